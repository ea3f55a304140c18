//! The knowledge of a group, or of a flow that passes no packet, is in its copy, whatever changed
//! it.

use super::sessions::{Members, SECOND};
use super::*;
use crate::switch::Policy;
use nf::{Affinity, Arrival, Cx, Departure, FlowState, Packet, Verdict, WorkerInfo, network_function};
use std::sync::Arc;
use std::time::Duration;
use std::vec;

/// Counts in the group of an inside host what happens to its flows, and writes that into each
/// packet that passes.
struct Ledger;

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
struct Account {
    begun: u8,
    over: u8,
    refused: u8,
    late: u8,
}

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
struct Count {
    packets: u8,
}

#[network_function]
impl NetworkFunction for Ledger {
    const NAME: &'static str = "ledger";
    const AFFINITY: Affinity = Affinity::InsideAddress;
    const REASONS: &'static [&'static str] = &["refused"];
    type Config = NoConfig;
    type Flow = Count;
    type Group = Account;
    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Ledger)
    }
    async fn process(&self, packet: &mut Packet, flow: &mut Count, cx: &mut Cx<Self>) -> Verdict {
        flow.packets += 1;
        match packet.payload().first() {
            Some(b'k') => {
                cx.group().refused += 1;
                cx.keep_flow();
                return cx.drop("refused");
            }
            Some(b's') => {
                cx.sleep(Duration::from_millis(10)).await;
                flow.packets += 100;
                cx.group().late += 1;
                return cx.drop("refused");
            }
            _ => {}
        }
        let account = *cx.group();
        let told = [
            account.begun,
            account.over,
            account.refused,
            account.late,
            flow.packets,
        ];
        packet.frame_mut()[28..33].copy_from_slice(&told);
        Verdict::Forward
    }
    fn arrived(&self, _: &mut Count, why: Arrival, cx: &mut Cx<Self>) {
        if why == Arrival::New {
            cx.group().begun += 1;
        }
    }
    fn departed(&self, _: &Count, why: Departure, cx: &mut Cx<Self>) {
        if why == Departure::Expired {
            cx.group().over += 1;
        }
    }
    fn timeout(&self, _: &Count) -> Option<Duration> {
        Some(Duration::from_secs(10))
    }
}

/// Packets of one host, by port and payload, with a pause of six seconds behind each that says `p`;
/// the runtime fails behind them. The next packet of the first flow is told: flows begun, over,
/// packets refused, calls that have waited, packets of the flow.
#[track_caller]
fn told_behind(packets: &[(u16, &str)]) -> [u8; 5] {
    let mut members = Members::copied(1, 2, Policy::LeastLoaded, plan(vec![factory::<Ledger>()]));
    let say = |members: &mut Members, port: u16, what: &str| {
        let payload = std::format!("{what:-<8}");
        members.feed(0, [udp(1, port, 1, 80, false, payload.as_bytes())]);
    };
    for (port, what) in packets {
        say(&mut members, *port, what);
        if what.ends_with('p') {
            members.now += 6 * SECOND;
            members.run_until_quiet();
        }
    }
    members.stop(1);
    members.run_until_quiet();
    say(&mut members, packets[0].0, "x");
    let sent = members.sent();
    sent.last().unwrap().1[28..33].try_into().unwrap()
}

#[test]
fn a_flow_that_begins_in_a_group_with_a_copy_is_in_it() {
    assert_eq!(told_behind(&[(1, "x"), (2, "x")]), [2, 0, 0, 0, 2]);
}

#[test]
fn a_flow_that_is_over_is_over_in_its_groups_copy() {
    assert_eq!(
        told_behind(&[(1, "x"), (2, "xp"), (1, "xp"), (1, "x")]),
        [2, 1, 0, 0, 4]
    );
    // No packet comes behind its end.
    assert_eq!(told_behind(&[(1, "x"), (2, "xp"), (1, "xp")]), [2, 1, 0, 0, 3]);
}

#[test]
fn a_flow_that_has_passed_no_packet_is_copied_if_it_is_kept() {
    assert_eq!(told_behind(&[(1, "k"), (1, "k")]), [1, 0, 2, 0, 3]);
}

#[test]
fn what_a_call_has_changed_that_waited_is_copied() {
    assert_eq!(told_behind(&[(1, "x"), (1, "sp")]), [1, 0, 0, 1, 103]);
    assert_eq!(told_behind(&[(1, "x"), (1, "sp"), (1, "x")]), [1, 0, 0, 1, 104]);
    // Its flow is over with it, and its group goes on.
    assert_eq!(told_behind(&[(1, "x"), (2, "sp"), (1, "x")]), [2, 1, 0, 1, 3]);
}

/// Else its group would know for ever of a flow whose end no runtime tells.
#[test]
fn a_flow_whose_first_packet_waits_is_copied_with_its_group() {
    let mut members = Members::copied(1, 2, Policy::LeastLoaded, plan(vec![factory::<Ledger>()]));
    members.feed(0, [udp(1, 1, 1, 80, false, b"x-------")]);
    // No time passes in which it could go on.
    let now = members.now;
    members.feed(0, [udp(1, 2, 1, 80, false, b"s-------")]);
    assert!(members.now - now < 10_000_000);
    assert!(members.runtime(0).has_waiting());
    members.stop(1);
    members.run_until_quiet();
    assert_eq!(members.runtime(1).stats().recovered, [2, 0]);
    members.assert_nothing_stays();
}
