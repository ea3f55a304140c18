//! Flows in a data store, and a coordinator: every process is killed, the coordinator too.

use super::joined::{Site, passes};
use super::rig::Member;
use super::server::Server;
use std::time::Duration;

const FLOWS: u64 = 400;

/// How many flows the nodes have, and how many have begun there.
fn at_nodes(members: &[Member; 3]) -> [u64; 2] {
    let [_, left, right] = members;
    let all = [left, right].map(|node| node.status().runtimes[0].clone());
    [
        all.iter().map(|of| of.flows).sum(),
        all.iter().map(|of| of.opened).sum(),
    ]
}

#[test]
fn flows_in_a_store_go_on_when_the_coordinator_is_killed_with_all_members() {
    let server = match Server::start(&[]) {
        Ok(server) => server,
        Err(why) => return println!("not run: {why}"),
    };
    // The first line is of the chain that the site has.
    let more = format!(
        "replication = \"store\"\n[store]\nuri = \"{}\"\ninterval = \"10ms\"\n",
        server.uri()
    );
    let mut site = Site::of("stored", false, FLOWS as u32, &more);
    let mut members = site.all();
    members[0].wait_until("packets of all flows", |status| status.packets.out > 20 * FLOWS);
    // Two of the generator's may have one key.
    let [flows, _] = at_nodes(&members);
    assert!(flows > FLOWS * 9 / 10, "{flows}");
    // All of them are with the store.
    std::thread::sleep(Duration::from_secs(1));
    for _ in 0..2 {
        members.iter_mut().for_each(Member::kill);
        site.coordinator.kill();
        site.coordinator.begin_again();
        members = site.all();
        passes(&members[0], 20 * FLOWS);
        assert_eq!(
            at_nodes(&members),
            [flows, 0],
            "each flow is there, and none was opened again"
        );
    }
}
