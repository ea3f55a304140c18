//! Three nodes of Cassandra with three copies: one dead node is not missed, two are, and counters
//! are exact when the dust settles.
//!
//! Nightly, since they take 2.5 GB and a minute and a half: with `FLOWKEEP_THREE_NODES=1` in the
//! environment.

use crate::cassandra::Node;
use crate::faults::{PATIENCE, await_failure, await_recovery, goes_on, under_load};
use std::time::{Duration, Instant};

const CHOSEN: &str = "FLOWKEEP_THREE_NODES";

fn three() -> Result<[Node; 3], String> {
    if std::env::var_os(CHOSEN).is_none() {
        return Err(format!("three nodes are for the nights ({CHOSEN}=1)"));
    }
    let first = Node::start_with("")?;
    let port = first.port;
    // The nodes start one after the other: a node joins a ring that stands still.
    let second = Node::start_at(2, port, "")?;
    let third = Node::start_at(3, port, "")?;
    Ok([first, second, third])
}

#[test]
fn one_node_of_three_is_not_missed_and_two_are_until_they_are_back() {
    let mut nodes = match three() {
        Ok(nodes) => nodes,
        Err(why) => return println!("not run: cassandra: {why}"),
    };
    let port = nodes[0].port;
    let uri = |keyspace: &str| {
        format!(
            "cassandra://127.0.0.1:{port},127.0.0.2:{port},127.0.0.3:{port}/{keyspace}?consistency=quorum&replication=3"
        )
    };
    // Each in its turn, the first too, which the others have met the ring by.
    for number in [2, 1, 0] {
        let uri = uri(&format!("without_{number}"));
        let (seen, health, _) = under_load(&uri, &uri, |store, packets| {
            goes_on(packets, Duration::from_secs(2));
            nodes[number].kill();
            goes_on(packets, Duration::from_secs(5));
            // Whatever failed at once was done by the others then.
            await_recovery(store);
            goes_on(packets, Duration::from_secs(1));
            nodes[number].launch();
            goes_on(packets, Duration::from_secs(2));
        });
        assert!(
            !health.failing && seen.iter().all(|seen| seen.rewritten == 0),
            "{health:?}"
        );
        println!("without node {}: {} failures", number + 1, health.failures);
    }
    let uri = uri("without_two");
    let (seen, health, _) = under_load(&uri, &uri, |store, packets| {
        goes_on(packets, Duration::from_secs(2));
        nodes[1].kill();
        nodes[2].kill();
        await_failure(store);
        goes_on(packets, Duration::from_secs(2));
        nodes[1].launch();
        // Two are a quorum.
        let began = Instant::now();
        await_recovery(store);
        assert!(began.elapsed() < PATIENCE);
        nodes[2].launch();
        goes_on(packets, Duration::from_secs(2));
    });
    assert!(!health.failing && seen.iter().all(|seen| seen.was_late && seen.rewritten == 0));
}
