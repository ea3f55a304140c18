//! A change is at the replica as a whole, or not at all: a runtime fails behind any of its records.

use super::failing::Process;
use super::groups::OURS;
use super::udp;
use crate::chain::{ChainRule, Match, Plan};
use crate::env::LinkTo;
use crate::record::Record;
use crate::replica::BROKEN;
use crate::replica::policy::Policy as Copied;
use nf::{
    Affinity, Block, ConfigError, Cx, Departure, FlowState, NetworkFunction, NoConfig, Packet, Verdict,
    WorkerInfo, network_function,
};
use std::boxed::Box;
use std::string::ToString;
use std::sync::Arc;
use std::time::Duration;
use std::vec::Vec;
use std::{format, vec};

const SECOND: u64 = 1_000_000_000;
/// The rule that this is about, by its name.
const RULE: &str = "changes are whole";
/// In place of a count: the state is of two times.
pub(super) const TORN: u32 = u32::MAX;
/// Flows from a lower port live long.
const SHORT: u16 = 10;

/// All words of a state are the same, and each packet changes all of them.
fn add(words: &mut [u64], count: i64) {
    for word in words {
        *word = word.wrapping_add_signed(count);
    }
}

fn count_of(words: &[u64]) -> u32 {
    match words.iter().all(|word| *word == words[0]) {
        true => words[0] as u32,
        false => TORN,
    }
}

#[derive(FlowState, Clone, Copy, Debug)]
#[repr(C)]
struct Counted {
    /// From which port it was opened.
    port: u64,
    packets: [u64; 300],
}

impl Default for Counted {
    fn default() -> Self {
        Counted {
            port: 0,
            packets: [0; 300],
        }
    }
}

#[derive(FlowState, Clone, Copy, Debug)]
#[repr(C)]
struct Sum {
    packets: [u64; 200],
}

impl Default for Sum {
    fn default() -> Self {
        Sum { packets: [0; 200] }
    }
}

/// Counts packets by flow, and by group those of its flows that are there. Writes both counts into
/// the packet. Each flow has a block of ports.
struct Counter;

fn block_of(port: u16) -> Block {
    Block {
        addr: nf::Addr::v4(OURS),
        first: port * 64,
        ports: 64,
    }
}

#[network_function]
impl NetworkFunction for Counter {
    const NAME: &'static str = "counter";
    const AFFINITY: Affinity = Affinity::InsideAddress;
    type Config = NoConfig;
    type Flow = Counted;
    type Group = Sum;
    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Counter)
    }
    fn process(&self, packet: &mut Packet, flow: &mut Counted, cx: &mut Cx<Self>) -> Verdict {
        if flow.port == 0 {
            flow.port = packet.source_port().into();
            assert!(cx.claim_block(block_of(packet.source_port())));
        }
        add(&mut flow.packets, 1);
        add(&mut cx.group().packets, 1);
        let counts = [count_of(&flow.packets), count_of(&cx.group().packets)];
        for (at, count) in [28, 32].into_iter().zip(counts) {
            packet.frame_mut()[at..at + 4].copy_from_slice(&count.to_be_bytes());
        }
        Verdict::Forward
    }
    fn departed(&self, flow: &Counted, _: Departure, cx: &mut Cx<Self>) {
        add(&mut cx.group().packets, -i64::from(count_of(&flow.packets)));
        if flow.port != 0 {
            assert!(cx.release_block(block_of(flow.port as u16)));
        }
    }
    fn timeout(&self, flow: &Counted) -> Option<Duration> {
        Some(Duration::from_secs(if flow.port < SHORT.into() {
            300
        } else {
            1
        }))
    }
}

pub(super) fn plan(policy: Copied) -> Plan {
    let rule = ChainRule {
        name: "test".to_string(),
        matching: Match::default(),
        functions: vec!["counter".to_string()],
        replication: Some(policy),
    };
    Plan::new(vec![rule], vec![super::factory::<Counter>() as Box<_>]).unwrap()
}

/// From this port of a host.
pub(super) fn from(port: u16) -> super::Sent {
    udp(1, port, 1, 80, false, &[0; 8])
}

/// Of packets that have left, behind the first ones: from which port, and both counts.
pub(super) fn counts(process: &mut Process, behind: usize) -> Vec<(u16, [u32; 2])> {
    let number = |frame: &[u8], at: usize| u32::from_be_bytes(frame[at..at + 4].try_into().unwrap());
    let sent = process.sent().into_iter().skip(behind);
    let count = |(_, frame): super::Sent| {
        let port = u16::from_be_bytes([frame[20], frame[21]]);
        (port, [number(&frame, 28), number(&frame, 32)])
    };
    sent.map(count).collect()
}

/// The events before the failure.
#[derive(Clone, Copy, Debug)]
enum Doing {
    /// Packets of flows that there are.
    Goes,
    /// Flows that begin, and packets of others.
    Begins,
    /// Flows that are over.
    Ends,
    /// The same, and others begin.
    Both,
}

/// The first runtime's replica has read no more than so many records, and the first one fails.
/// Whether there were more, and whether all flows that go on are of one time.
fn fail_behind(records: usize, doing: Doing, policy: Copied) -> (bool, bool) {
    let what = format!("{records} records, {doing:?}, {policy:?}");
    let mut process = Process::new(1, 2, true, plan(policy));
    // The first host's flows are at the second runtime.
    process.feed(0, [udp(2, SHORT + 2, 1, 80, false, &[0; 8])]);
    process.feed(0, [1, 2, 3, SHORT, SHORT + 1].map(from));
    process.feed(0, [1, 2].map(from));
    assert_eq!(process.flows(), [5, 1], "{what}");
    if matches!(doing, Doing::Ends | Doing::Both) {
        process.now += 2 * SECOND;
    }
    process.switches[0].port_mut(0).input.extend(match doing {
        Doing::Goes => [1, 1, 2, 3].map(from).to_vec(),
        Doing::Begins | Doing::Both => [1, 4, 2, 5, 4].map(from).to_vec(),
        Doing::Ends => Vec::new(),
    });
    for worker in [0, 1].into_iter().cycle().take(40) {
        // Snapshots are due, too.
        process.now += SECOND / 2000;
        process.step(worker);
    }
    // Records that have not come are lost with the runtime.
    let (mut left, mut is_cut) = (records, false);
    let replica = process.runtimes[1].as_mut().unwrap();
    replica.each_link(|to, end| {
        if to != LinkTo::Runtime(0) {
            return;
        }
        let mut queue = end.incoming.borrow_mut();
        for mut frame in core::mem::take(&mut *queue) {
            let all = frame.frame().len();
            let mut rest = frame.frame();
            while left > 0
                && let Some((_, behind)) = Record::read(rest)
            {
                (rest, left) = (behind, left - 1);
            }
            let length = all - rest.len();
            is_cut |= length < all;
            assert!(frame.set_length(length));
            queue.push_back(frame);
        }
    });
    process.fail(0);
    process.run_until_quiet();
    let known = counts(&mut process, 0);
    let (there, blocks) = (process.flows()[1], process.runtimes[1].as_ref().unwrap().blocks());
    // Each flow has its block, and there is no other.
    let mut is_whole = blocks.len() as u64 == there;
    let behind = known.len();
    process.feed(0, (1..6).map(from));
    let last = counts(&mut process, behind);
    assert_eq!(last.len(), 5, "{what}");
    for (port, [flow, group]) in &last {
        is_whole &= *flow != TORN && *group != TORN;
        let left = known.iter().filter(|(known, _)| known == port);
        let left = left.map(|(_, [flow, _])| *flow).max().unwrap_or(0);
        is_whole &= *flow > left || policy == Copied::Snapshot;
        // These had copies before.
        is_whole &= *flow > 1 || *port > 3;
    }
    if policy == Copied::Commit {
        process.now += 2 * SECOND;
        process.run_until_quiet();
        let behind = behind + last.len();
        process.feed(0, [from(1)]);
        let sum: u32 = last
            .iter()
            .map(|(_, [flow, _])| flow)
            .fold(1, |sum, flow| sum.wrapping_add(*flow));
        is_whole &= counts(&mut process, behind)[0].1[1] == sum;
    }
    assert!(
        is_whole || BROKEN.get() == RULE,
        "{what}: {there} flows, {} blocks, {last:?}",
        blocks.len()
    );
    if is_whole {
        process.assert_all_is_home(&what);
    }
    (is_cut, is_whole)
}

/// Behind how many records that is seen, and how many failures there were.
fn fail_behind_each(doing: Doing, policy: Copied) -> [usize; 2] {
    let (mut records, mut torn) = (0, 0);
    loop {
        let (is_cut, is_whole) = fail_behind(records, doing, policy);
        torn += usize::from(!is_whole);
        if !is_cut {
            return [torn, records];
        }
        records += 1;
    }
}

#[test]
fn a_change_is_at_the_replica_as_a_whole_or_not_at_all() {
    for rule in ["", RULE] {
        BROKEN.set(rule);
        for doing in [Doing::Goes, Doing::Begins, Doing::Ends, Doing::Both] {
            for policy in [Copied::Commit, Copied::Snapshot] {
                let [torn, records] = fail_behind_each(doing, policy);
                let what = format!("{doing:?}, {policy:?}: {torn} of {records}");
                assert!(records > 3, "{what}");
                assert_eq!(torn > 0, !rule.is_empty(), "{what}");
            }
        }
    }
    BROKEN.set("");
}
