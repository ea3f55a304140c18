//! How much of a flow's state is copied: changed bytes of a wide one, and lazy fields if they are
//! wanted.

use super::failing::Process;
use super::replica::{out, stamped, stamps};
use super::sessions::Members;
use super::{factory, plan, udp};
use crate::env::LinkTo;
use crate::replica::policy::{Copying, Policy as Copied};
use crate::switch::Policy;
use nf::{
    ConfigError, Cx, FlowState, NetworkFunction, NoConfig, Packet, Verdict, WorkerInfo, network_function,
};
use std::sync::Arc;
use std::time::Duration;
use std::vec;

/// As wide as what the IDS has of a connection.
const WORDS: usize = 328;

#[derive(FlowState, Clone, Copy, Debug)]
#[repr(C)]
struct Wide {
    words: [u64; WORDS],
}

impl Default for Wide {
    fn default() -> Self {
        Wide { words: [7; WORDS] }
    }
}

/// Each packet changes one word, far from the one before.
struct Scanner;

#[network_function]
impl NetworkFunction for Scanner {
    const NAME: &'static str = "scanner";
    type Config = NoConfig;
    type Flow = Wide;
    type Group = ();
    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Scanner)
    }
    fn process(&self, _: &mut Packet, flow: &mut Wide, _: &mut Cx<Self>) -> Verdict {
        let at = (flow.words[0] as usize * 37) % WORDS;
        flow.words[at] ^= u64::MAX;
        Verdict::Forward
    }
    fn timeout(&self, _: &Wide) -> Option<Duration> {
        Some(Duration::from_secs(100))
    }
}

#[test]
fn a_wide_state_costs_what_changed() {
    let mut process = Process::new(1, 2, true, plan(vec![factory::<Scanner>()]));
    // Of two flows the second is at the first runtime.
    process.feed(0, [out(2000)]);
    process.feed(0, [udp(2, 2000, 1, 80, false, &[0; 8])]);
    assert_eq!(process.flows(), [1, 1]);
    for packets in [1, 10] {
        let sent = (0..packets).map(|_| udp(2, 2000, 1, 80, false, &[0; 8]));
        process.switches[0].port_mut(0).input.extend(sent);
        // The switch and the first runtime: its records for the second stay on the link.
        for worker in [0, 1].into_iter().cycle().take(40) {
            process.now += 1000;
            process.step(worker);
        }
        let mut bytes = 0;
        let replica = process.runtimes[1].as_mut().unwrap();
        replica.each_link(|to, end| {
            if to == LinkTo::Runtime(0) {
                let queue = end.incoming.borrow();
                bytes += queue.iter().map(|frame| frame.frame().len()).sum::<usize>();
            }
        });
        // A word, its place, its slot, and the frame's head.
        assert!(
            bytes > 8 * packets && bytes < 64 + 32 * packets,
            "{packets} packets: {bytes} bytes"
        );
        process.run_until_quiet();
    }
}

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
struct Billed {
    opened: u32,
    #[flow_state(lazy)]
    packets: u32,
}

/// Writes into each packet how many packets of its flow there were.
struct Meter;

#[network_function]
impl NetworkFunction for Meter {
    const NAME: &'static str = "meter";
    type Config = NoConfig;
    type Flow = Billed;
    type Group = ();
    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Meter)
    }
    fn process(&self, packet: &mut Packet, flow: &mut Billed, _: &mut Cx<Self>) -> Verdict {
        flow.opened = 1;
        flow.packets += 1;
        packet.frame_mut()[28..32].copy_from_slice(&flow.packets.to_be_bytes());
        Verdict::Forward
    }
    fn timeout(&self, _: &Billed) -> Option<Duration> {
        Some(Duration::from_secs(100))
    }
}

#[test]
fn lazy_fields_are_exact_behind_a_failure_if_they_are_committed() {
    for has_lazy in [false, true] {
        let copying = Copying {
            has_lazy,
            ..Copying::default()
        };
        assert!(matches!(copying.policy, Copied::Commit));
        let plan = plan(vec![factory::<Meter>()]);
        let mut members = Members::copying(copying, 1, 2, Policy::LeastLoaded, plan);
        members.runtime(1).set_leaving(true);
        members.run_until_quiet();
        (0..5).for_each(|_| members.feed(0, [out(3000)]));
        members.stop(1);
        members.run_until_quiet();
        members.feed(0, [out(3000)]);
        let sent = members.sent();
        let last = &sent.last().unwrap().1;
        let count = u32::from_be_bytes(last[28..32].try_into().unwrap());
        assert_eq!((sent.len(), members.flows()), (6, vec![0, 1]));
        assert_eq!(count == 6, has_lazy, "{count}");
    }
}

/// Flows that an heir has no room for are known before its primary fails: as many flows end, and
/// are counted. The others go on, and no flow is at two runtimes.
#[test]
fn copies_without_room_are_as_many_as_flows_that_a_failure_ends() {
    const FLOWS: u16 = 3000;
    const MOST: u64 = 2048;
    let mut members = stamped(1, 2, Policy::LeastLoaded);
    let feed = |members: &mut Members| {
        for from in (0..FLOWS).step_by(50) {
            members.feed(0, (from..from + 50).map(|n| out(2000 + n)));
        }
    };
    feed(&mut members);
    let flows = u64::from(FLOWS) / 2;
    assert_eq!(members.flows(), [flows, flows]);
    let heir = members.runtime(1).stats();
    assert_eq!((heir.copies, heir.flows_max), (flows, MOST));
    let without_room = heir.copies_without_room();
    assert_eq!(without_room, 2 * flows - MOST);
    members.stop(1);
    members.run_until_quiet();
    let heir = members.runtime(1).stats();
    assert_eq!(heir.recovered, [flows - without_room, without_room]);
    assert_eq!((heir.flows, heir.copies_without_room()), (MOST, 0));
    let before = members.sent().len() as u64;
    feed(&mut members);
    // Each flow that is there has gone on; the rest finds no room.
    assert_eq!(members.sent().len() as u64 - before, MOST);
    assert_eq!(members.dropped("flows_full"), without_room);
    let gone_on = stamps(&mut members)
        .into_values()
        .filter(|stamps| *stamps == [1, 2]);
    assert_eq!(gone_on.count() as u64, MOST);
}
