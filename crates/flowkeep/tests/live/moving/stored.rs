//! Every process of the cluster is killed while real clients talk through it; their flows are in a
//! data store, and no connection fails.
//!
//! ```text
//!   gateway, one process, two runtimes ──► a file (redb:)
//!   gateway: switch and two nodes      ──► redis-server
//!   clients: 500 downloads, each compared byte by byte; iperf3, TCP, up and down; SSH, words back and forth; names, 300 a second
//!     └ meanwhile, twice: kill -9 of all processes; all begin again
//! ```
//!
//! The policy is `store`: changes within its interval before the kill are lost. So the kill comes
//! once connections are open. Names are asked from eight ports that stay; only names that were
//! asked while there was no process have no answer.

use super::{Contents, PATIENCE, serve};
use crate::site::{Links, Site, site};
use crate::ssh;
use lab::process::Process;
use std::time::{Duration, Instant};

const KILLS: u32 = 2;
/// How long there may be no process, and no flow in it: a start on a busy machine.
const GAP: Duration = Duration::from_secs(5);

fn config(uri: &str) -> String {
    let replication = super::failing::CONFIG.replace("\"commit\"", "\"store\"");
    format!("{replication}\n[store]\nuri = \"{uri}\"\n")
}

/// A redis-server beside the gateway's processes, which keeps a log.
fn redis(site: &Site) -> Process {
    let folder = site.network.folder.path("");
    let words = format!("redis-server --port 6400 --save  --appendonly yes --dir {folder}");
    let mut server = site.network.gateway.start(&words).unwrap();
    server.wait_for("Ready to accept connections", PATIENCE).unwrap();
    server
}

/// Flows at all runtimes, and the flows that came out of the store.
fn flows(site: &Site, members: &[usize]) -> [u64; 2] {
    let mut sum = [0; 2];
    for member in members {
        let status = site.status_of(*member);
        for of in status["runtimes"].as_array().into_iter().flatten() {
            for (sum, name) in sum.iter_mut().zip(["flows", "recovered_flows"]) {
                *sum += of[name].as_u64().unwrap_or(0);
            }
        }
    }
    sum
}

/// All processes are killed, and begin again.
fn kill(site: &Site, members: &[usize], nodes: &[usize]) {
    let [before, _] = flows(site, nodes);
    let began = Instant::now();
    site.kill(members);
    // By this thread: a process ends with the thread that has begun it.
    members.iter().for_each(|member| site.revive(*member));
    let (gap, [_, recovered]) = (began.elapsed(), flows(site, nodes));
    println!(
        "{before} flows before the kill, {recovered} out of the store, all processes answer after {gap:?}"
    );
    let told = format!("{before} flows, {recovered} of them out of the store, {gap:?}");
    site.log.expect(
        "flows go on",
        before > 500 && recovered > before - before / 10,
        told.clone(),
    );
    site.log.expect("begins soon", gap < GAP, told);
}

fn killed(members: &[usize], nodes: &[usize], start: impl FnOnce(&mut Site) -> Option<Process>) {
    let programs: Vec<_> = [
        super::PROGRAMS,
        ssh::PROGRAMS,
        &[("redis-server", "redis-server")],
    ]
    .concat();
    let Some(mut site) = site("afpacket", &programs) else {
        return;
    };
    let _directory = ssh::PrivilegeSeparation::new();
    let contents: Contents = serve(&mut site);
    let server = start(&mut site);
    let site_of = &site;
    std::thread::scope(|scope| {
        for host in super::DOWNLOADERS {
            let content = &contents.file;
            scope.spawn(move || super::downloads(site_of, host, content, super::RATE));
        }
        for (host, port, how) in [(3, 5201, "--bitrate 5M"), (4, 5202, "--bitrate 5M --reverse")] {
            scope.spawn(move || super::stream(site_of, host, port, how, &super::Missing::default()));
        }
        scope.spawn(move || super::words(site_of));
        scope.spawn(move || super::failing::named(site_of, (GAP * KILLS).as_millis() as u64));
        super::failing::opened(site_of);
        for _ in 0..KILLS {
            std::thread::sleep(Duration::from_secs(2));
            kill(site_of, members, nodes);
        }
    });
    site.end_after_failures();
    drop(server);
}

#[test]
fn the_only_process_is_killed_with_its_flows_in_a_file() {
    killed(&[0], &[0], |site| {
        let file = site.network.folder.path("flows.redb");
        site.start(&config(&format!("redb:{file}")));
        None
    });
}

#[test]
fn all_three_processes_are_killed_with_their_flows_in_redis() {
    killed(&[0, 1, 2], &[1, 2], |site| {
        // All in one network namespace, whose loopback is up.
        let server = redis(site);
        site.start_members(Links::Memory, &config("redis://127.0.0.1:6400"));
        Some(server)
    });
}
