//! The moving commands against a cluster that answers as it is told.

use super::*;
use crate::cli::{FAILURE, USAGE};
use crate::cluster::fake::{self, Fake};
use crate::cluster::{Cluster, Cursor, Snapshot};
use crate::control::server::Server;
use runtime::worker::FlowView;
use serde_json::json;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use wire::FlowKey;

/// Answers questions after an order with one receipt after the other, the last again and again;
/// each order leaves so many flows at runtime 1.
#[derive(Default)]
struct Scripted {
    receipts: Mutex<VecDeque<Result<Receipt, String>>>,
    left: Mutex<VecDeque<u64>>,
    orders: Mutex<Vec<Order>>,
    /// Why no order is taken.
    refusal: Mutex<Option<String>>,
    is_resumed: AtomicBool,
    /// Runtime 1 does not answer.
    is_silent: AtomicBool,
}

impl Cluster for Scripted {
    fn snapshot(&self) -> Snapshot {
        let mut snapshot = fake::snapshot();
        snapshot.runtimes[1].flows = self.left.lock().unwrap().front().copied().unwrap_or(0);
        // As it is asked about when it was drained.
        snapshot.runtimes[1].leaving = !self.is_resumed.load(Relaxed);
        if self.is_silent.load(Relaxed) {
            snapshot.runtimes.pop();
        }
        snapshot
    }

    fn flows(&self, _: Cursor, _: usize) -> Result<(Vec<FlowView>, Option<Cursor>), String> {
        Ok((Vec::new(), None))
    }

    fn flow(&self, key: &FlowKey) -> Option<FlowView> {
        Fake::default().flow(key)
    }

    fn command(&self, _: &str, _: &[&str]) -> Result<Vec<crate::tables::Told>, String> {
        Err("no words are understood here".into())
    }

    fn order(&self, order: &Order) -> Result<Vec<OrderPart>, String> {
        let mut orders = self.orders.lock().unwrap();
        if !orders.is_empty() {
            self.left.lock().unwrap().pop_front();
        }
        if let Some(refusal) = &*self.refusal.lock().unwrap() {
            return Err(refusal.clone());
        }
        orders.push(order.clone());
        Ok(vec![(1, orders.len() as u32)])
    }

    fn receipt(&self, _: &[OrderPart]) -> Result<Receipt, String> {
        let mut receipts = self.receipts.lock().unwrap();
        match receipts.len() {
            0 => Ok(Receipt::empty()),
            1 => receipts[0].clone(),
            _ => receipts.pop_front().unwrap(),
        }
    }

    fn set_leaving(&self, _: u16, _: Leaving) -> Result<Vec<OrderPart>, String> {
        Ok(Vec::new())
    }

    fn stop(&self) {}
}

struct Site {
    cluster: Arc<Scripted>,
    directory: PathBuf,
    server: Option<Server>,
}

impl Site {
    fn new(name: &str, receipts: Vec<Result<Receipt, String>>, left: &[u64]) -> Self {
        let directory = std::env::temp_dir().join(format!("flowkeep-moving-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let cluster = Arc::new(Scripted {
            receipts: Mutex::new(receipts.into()),
            left: Mutex::new(left.iter().copied().collect()),
            ..Scripted::default()
        });
        let server = Server::start(
            &directory.join("s.sock"),
            Arc::clone(&cluster) as Arc<dyn Cluster>,
        )
        .unwrap();
        Site {
            cluster,
            directory,
            server: Some(server),
        }
    }

    fn asking(&self, json: bool) -> Asking {
        let mut asking = Asking::at(Some(self.directory.join("s.sock")));
        asking.json = json;
        asking
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // The server ends by its socket, which is in there.
        self.server.take();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn receipt(moved: u64, asked: u64, over: bool) -> Receipt {
    Receipt {
        flows_asked: asked,
        flows_moved: moved,
        groups_waiting: asked - moved,
        duration_ns: 1_000_000,
        over,
        ..Receipt::default()
    }
}

#[test]
fn progress_is_a_line_that_goes_again() {
    let site = Site::new(
        "progress",
        vec![
            Ok(receipt(0, 9, false)),
            Ok(receipt(4, 9, false)),
            Ok(receipt(4, 9, false)),
            Ok(receipt(9, 9, true)),
        ],
        &[],
    );
    let mut client = connect(&site.asking(false)).unwrap();
    let mut terminal = Vec::new();
    let whole = see_through(&mut client, &[(1, 1)], Some(&mut terminal), STUCK).unwrap();
    assert_eq!(whole.flows_moved, 9);
    assert_eq!(
        String::from_utf8(terminal).unwrap(),
        "\r0 of 9 flows moved, 9 groups waiting\x1b[K\r4 of 9 flows moved, 5 groups waiting\x1b[K\r\x1b[K"
    );
}

#[test]
fn an_order_without_headway_is_not_waited_for() {
    let site = Site::new("stuck", vec![Ok(receipt(4, 9, false))], &[]);
    let mut client = connect(&site.asking(false)).unwrap();
    let failure = see_through(&mut client, &[(1, 1)], None, Duration::from_millis(200)).unwrap_err();
    assert_eq!(failure.code, FAILURE);
    assert!(
        failure
            .message
            .contains("4 of 9 flows have, 0 groups are on their way and 5 wait")
            && failure.message.contains("`flowkeep runtime list`"),
        "{}",
        failure.message
    );
}

#[test]
fn draining_goes_on_until_no_flow_is_left() {
    let site = Site::new(
        "again",
        vec![Ok(receipt(5, 5, true)), Ok(receipt(2, 2, true))],
        &[2, 0],
    );
    let mut out = Vec::new();
    drain(1, false, &site.asking(true), &mut out).unwrap();
    let drained: serde_json::Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(drained["flows_moved"], 7, "{drained}");
    assert_eq!(drained["duration_ns"], 2_000_000, "{drained}");
    assert_eq!(
        (&drained["flows_left"], &drained["leaving"]),
        (&json!(0), &json!(true))
    );
    let orders = site.cluster.orders.lock().unwrap();
    let meant: Vec<_> = orders.iter().map(|order| (order.from, order.to.len())).collect();
    assert_eq!(meant, [(Some(1), 0); 2]);
}

#[test]
fn draining_that_fails_says_that_it_is_drained_and_what_to_do() {
    let refused = Receipt {
        flows_refused: 3,
        ..receipt(2, 5, true)
    };
    for (receipt, left, says) in [
        (
            Ok(refused),
            3,
            "goes on with 3 flows: 3 refused by a runtime that is full or drained",
        ),
        (
            Err("runtime 1 did not answer; so it is".to_owned()),
            3,
            "runtime 1 did not answer; so it is\nruntime 1 takes no flows",
        ),
    ] {
        let site = Site::new("fails", vec![receipt], &[left]);
        let failure = drain(1, false, &site.asking(false), &mut Vec::new()).unwrap_err();
        assert_eq!(failure.code, FAILURE);
        for part in [says, "takes no flows any more", "`flowkeep runtime resume 1`"] {
            assert!(failure.message.contains(part), "{part}: {}", failure.message);
        }
    }
    // Flows come as fast as they go.
    let site = Site::new("endless", vec![Ok(receipt(1, 1, true))], &[1; 50]);
    let failure = drain(1, false, &site.asking(false), &mut Vec::new()).unwrap_err();
    assert!(
        failure.message.contains("1 flow: they keep beginning there"),
        "{}",
        failure.message
    );
    assert_eq!(site.cluster.orders.lock().unwrap().len(), ROUNDS);
}

#[test]
fn a_forced_drain_of_the_last_says_what_becomes_of_its_flows() {
    let refusal = "no other runtime takes the flows of runtime 1 (0 is drained); none has moved. Say `flowkeep runtime resume N`";
    for (left, json) in [(1, false), (7, true), (0, false)] {
        let site = Site::new("last", Vec::new(), &[left]);
        *site.cluster.refusal.lock().unwrap() = Some(refusal.to_owned());
        let mut out = Vec::new();
        let done = drain(1, true, &site.asking(json), &mut out);
        let shown = String::from_utf8(out).unwrap();
        match json {
            true => {
                let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
                let told = (&shown["leaving"], &shown["flows_left"], &shown["flows_moved"]);
                assert_eq!(told, (&json!(true), &json!(left), &json!(0)), "{shown}");
            }
            false => {
                let line = format!("runtime  1 is leaving, and keeps what it has: flows left {left}\n");
                assert!(shown.ends_with(&line), "{shown}");
            }
        }
        if left == 0 {
            assert_eq!(done, Ok(()));
            continue;
        }
        let failure = done.unwrap_err();
        assert_eq!(failure.code, FAILURE);
        let keeps = format!(
            "as `--force` has it, and keeps what it has ({}): that stays there and goes on; ",
            flows(left)
        );
        for part in [
            refusal,
            "\nruntime 1 is drained all the same",
            &keeps,
            NEW_FLOWS,
            "`flowkeep runtime drain 1` to move them",
            "`flowkeep runtime resume 1`",
        ] {
            assert!(failure.message.contains(part), "{part}: {}", failure.message);
        }
        for part in ["nothing has changed", "takes no flows any more"] {
            assert!(!failure.message.contains(part), "{part}: {}", failure.message);
        }
    }
    // Resumed by another operator in between: it is not said to be drained.
    let site = Site::new("last-resumed", Vec::new(), &[7]);
    *site.cluster.refusal.lock().unwrap() = Some(refusal.to_owned());
    site.cluster.is_resumed.store(true, Relaxed);
    let failure = drain(1, true, &site.asking(false), &mut Vec::new()).unwrap_err();
    assert!(
        failure.message.starts_with(refusal) && !failure.message.contains("all the same"),
        "{}",
        failure.message
    );
    // Without `--force` the last runtime is refused before its flows are ordered away. Here another
    // operator has drained the other runtimes since.
    let site = Site::new("not-last", Vec::new(), &[7]);
    *site.cluster.refusal.lock().unwrap() = Some(refusal.to_owned());
    let failure = drain(1, false, &site.asking(false), &mut Vec::new()).unwrap_err();
    assert!(!failure.message.contains("--force"), "{}", failure.message);
}

#[test]
fn where_to_or_from_has_to_be_said() {
    let site = Site::new("nowhere", Vec::new(), &[]);
    let which = Which {
        protocol: None,
        source: None,
        destination: None,
        vlan: 0,
        address: None,
        all: true,
    };
    let failure = migrate(
        which,
        None,
        Vec::new(),
        None,
        &site.asking(false),
        &mut Vec::new(),
    )
    .unwrap_err();
    assert_eq!(failure.code, USAGE);
    assert!(site.cluster.orders.lock().unwrap().is_empty());
}

#[test]
fn a_runtime_that_does_not_answer_is_not_drained() {
    let site = Site::new("silent", vec![Ok(receipt(5, 5, true))], &[3]);
    site.cluster.is_silent.store(true, Relaxed);
    let failure = drain(1, false, &site.asking(false), &mut Vec::new()).unwrap_err();
    assert_eq!(failure.code, FAILURE);
    assert!(
        failure
            .message
            .starts_with("runtime 1 did not answer, so how many flows it has is not known"),
        "{}",
        failure.message
    );
}
