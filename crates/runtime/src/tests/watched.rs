//! Changes by the calls of a packet are at the replica, whichever way they were watched: a chain in
//! one piece or function by function, packets that pass, and packets that a function stops.

use super::sessions::Members;
use super::*;
use crate::fused::Fused;
use crate::switch::Policy;
use nf::{Affinity, Cx, FlowState, Packet, Verdict, Way, WorkerInfo, network_function};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use std::vec;
use wire::LinkType;

/// The deeds of a function that a packet's byte asks for.
mod deed {
    pub const COMMIT: u8 = 1;
    pub const LAZY: u8 = 2;
    pub const GROUP: u8 = 4;
    /// Takes the group's state and leaves it.
    pub const TAKE: u8 = 8;
    pub const EMIT: u8 = 16;
    pub const DROP: u8 = 32;
    pub const KEEP: u8 = 64;
    /// Writes what it has committed into the packet.
    pub const TELL: u8 = 128;
}

/// Behind the headers of IPv4 and UDP.
const PAYLOAD: usize = 28;

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
struct State {
    committed: u32,
    #[flow_state(lazy)]
    lazy: u32,
}

macro_rules! function {
    ($name:ident, $called:literal, $at:literal) => {
        struct $name;

        #[network_function]
        impl NetworkFunction for $name {
            const NAME: &'static str = $called;
            const AFFINITY: Affinity = Affinity::InsideAddress;
            const REASONS: &'static [&'static str] = &["told_to"];
            type Config = NoConfig;
            type Flow = State;
            type Group = State;
            fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
                Ok($name)
            }
            fn process(&self, packet: &mut Packet, flow: &mut State, cx: &mut Cx<Self>) -> Verdict {
                let what = packet.frame().get(PAYLOAD + $at).copied().unwrap_or(0);
                let is = |deed: u8| what & deed != 0;
                flow.committed += u32::from(is(deed::COMMIT));
                flow.lazy += u32::from(is(deed::LAZY));
                if is(deed::GROUP | deed::TAKE) {
                    cx.group().committed += u32::from(is(deed::GROUP));
                }
                if is(deed::EMIT) {
                    let mut frame = packet.frame().to_vec();
                    frame[PAYLOAD..].fill(0);
                    assert!(cx.emit(Way::Onward, |p| p.set_frame(&frame, LinkType::Raw)));
                }
                if is(deed::KEEP) {
                    cx.keep_flow();
                }
                if is(deed::TELL) {
                    let group = cx.group().committed as u8;
                    let place = PAYLOAD + 4 + 2 * $at;
                    packet.frame_mut()[place..place + 2].copy_from_slice(&[flow.committed as u8, group]);
                }
                match is(deed::DROP) {
                    true => cx.drop("told_to"),
                    false => Verdict::Forward,
                }
            }
            fn timeout(&self, _: &State) -> Option<Duration> {
                Some(Duration::from_secs(100))
            }
        }
    };
}

function!(One, "one", 0);
function!(Two, "two", 1);
function!(Three, "three", 2);

fn packet((host, port): (u8, u16), is_reply: bool, deeds: [u8; 3]) -> (Side, Vec<u8>) {
    let mut payload = [0; 12];
    payload[..3].copy_from_slice(&deeds);
    udp(host, port, 1, 80, is_reply, &payload)
}

/// A flow, a direction, and what each function is to do.
fn sent() -> impl Strategy<Value = ((u8, u16), bool, [u8; 3])> {
    let flow = (1_u8..3, 1000_u16..1003);
    let deeds = prop_oneof![
        4 => Just(0),
        4 => prop_oneof![Just(deed::COMMIT), Just(deed::LAZY), Just(deed::GROUP), Just(deed::TAKE)],
        2 => 0..deed::TELL,
    ];
    (flow, any::<bool>(), [deeds.clone(), deeds.clone(), deeds])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn what_calls_change_is_at_the_replica(
        bursts in prop::collection::vec(prop::collection::vec(sent(), 1..6), 1..20),
        in_one_piece in any::<bool>(),
    ) {
        let fused = [Fused::of::<(One, Two, Three)>()];
        let plan = plan(vec![factory::<One>(), factory::<Two>(), factory::<Three>()])
            .fusing(if in_one_piece { &fused } else { &[] });
        let mut members = Members::copied(1, 2, Policy::RoundRobin, plan);
        let (mut flows, mut groups) = (BTreeMap::new(), BTreeMap::new());
        // They are there, and nothing is to end them.
        let all = (1..3).flat_map(|host| (1000..1003).map(move |port| (host, port)));
        members.feed(0, all.clone().map(|flow| packet(flow, false, [0; 3])));
        for burst in bursts {
            for (flow, is_reply, deeds) in &burst {
                let order = if *is_reply { [2, 1, 0] } else { [0, 1, 2] };
                for at in order {
                    let is = |deed: u8| deeds[at] & deed != 0;
                    *flows.entry((*flow, at)).or_insert(0) += u8::from(is(deed::COMMIT));
                    *groups.entry((flow.0, at)).or_insert(0) += u8::from(is(deed::GROUP));
                    if is(deed::DROP) {
                        break;
                    }
                }
            }
            members.feed(0, burst.into_iter().map(|(flow, is_reply, deeds)| packet(flow, is_reply, deeds)));
        }
        members.stop(1);
        members.run_until_quiet();
        members.feed(0, all.clone().map(|flow| packet(flow, false, [deed::TELL; 3])));
        let is_told = |frame: &[u8]| frame.get(PAYLOAD) == Some(&deed::TELL);
        let told: Vec<_> = members.sent().into_iter().filter(|(_, frame)| is_told(frame)).collect();
        prop_assert_eq!(told.len(), 6);
        for (_, frame) in told {
            let flow = (frame[15], u16::from_be_bytes([frame[20], frame[21]]));
            for at in 0..3 {
                let place = PAYLOAD + 4 + 2 * at;
                let known = |count: Option<&u8>| count.copied().unwrap_or(0);
                let expected = [known(flows.get(&(flow, at))), known(groups.get(&(flow.0, at)))];
                prop_assert_eq!(&frame[place..place + 2], &expected, "{:?}, function {}", flow, at);
            }
        }
    }
}
