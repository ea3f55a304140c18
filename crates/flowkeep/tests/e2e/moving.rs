//! Flows that move all the time while captures are replayed: tables, counts and sums stay the same.

use crate::cluster::{Lines, Ran, Shape, capture_port, data, files, finish, name, start};
use crate::tables::{ndpi, records};
use adapters::open::Ports;
use flowkeep::cluster::Cluster;
use flowkeep::moving::{Order, Receipt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs a configuration to its end, every runtime's flows being ordered to the others again and
/// again.
#[track_caller]
fn run_restless(toml: &str, runtimes: u16, what: &str) -> (Ran, Receipt) {
    let (running, lines): (_, Lines) = start(toml, Ports::new());
    let cluster: Arc<dyn Cluster> = running.cluster();
    let is_over = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&is_over);
    let restless = std::thread::spawn(move || {
        let mut whole = Receipt::empty();
        'moving: loop {
            for from in 0..runtimes {
                let order = Order {
                    from: Some(from),
                    ..Order::default()
                };
                let parts = match cluster.order(&order) {
                    Ok(parts) => parts,
                    // As many are under way as may be.
                    Err(said) if said.contains("orders to move flows are under way") => {
                        if seen.load(Ordering::Acquire) {
                            break 'moving;
                        }
                        std::thread::yield_now();
                        continue;
                    }
                    Err(_) => break 'moving,
                };
                if seen.load(Ordering::Acquire) {
                    break 'moving;
                }
                let Ok(receipt) = cluster.receipt(&parts) else {
                    break 'moving;
                };
                whole.flows_moved += receipt.flows_moved;
                whole.packets_dropped += receipt.packets_dropped;
            }
        }
        whole
    });
    let outcome = running.wait(|_| is_over.store(true, Ordering::Release));
    is_over.store(true, Ordering::Release);
    let receipt = restless.join().expect("no order panics");
    (finish(outcome, &lines, what), receipt)
}

/// A seventh of nDPI's captures.
fn tables_with(shape: Shape, first: usize) {
    let Some(data) = data() else { return };
    let folder = data.join("flow/ndpi");
    let (mut captures, mut flows, mut moved) = (0, 0, 0);
    for expected in files(&folder.join("expected"), "tsv")
        .iter()
        .skip(first)
        .step_by(7)
    {
        let capture = folder.join("pcap").join(expected.file_stem().expect("a name"));
        let text = std::fs::read_to_string(expected).expect("readable");
        let what = format!("{} {shape:?}", name(&capture));
        let (ran, moves) = watch(&capture, shape, &what);
        let found = records::read(&ran.lines);
        let differences = ndpi::compare(&found, &text);
        assert!(differences.is_empty(), "{what}: {differences:#?}");
        captures += 1;
        flows += found.len();
        moved += moves;
    }
    println!("{shape:?}: {captures} captures equal; {flows} records, flows moved {moved} times");
    assert!(moved > 0, "{shape:?}: nothing has moved");
}

fn watch(capture: &Path, shape: Shape, what: &str) -> (Ran, u64) {
    let toml = format!(
        "{}{}[[chain]]\nname = \"watched\"\nfunctions = [\"flow_monitor\"]\n",
        shape.toml(4096),
        capture_port(capture)
    );
    let (ran, _) = run_restless(&toml, shape.runtimes, what);
    let moved = ran
        .snapshot
        .runtimes
        .iter()
        .map(|runtime| runtime.flows_moved[0])
        .sum();
    for runtime in &ran.snapshot.runtimes {
        assert!(
            runtime.dropped.iter().all(|drop| drop.name == "not_ip"),
            "{what}: {runtime:?}"
        );
    }
    (ran, moved)
}

#[test]
fn tables_stay_exact_while_flows_move_between_two_runtimes() {
    tables_with(Shape::of(2), 0);
}

#[test]
fn tables_stay_exact_while_flows_move_between_three_runtimes_of_two_switches() {
    tables_with(Shape::of(3).with_switches(2), 3);
}
