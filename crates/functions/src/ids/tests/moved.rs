//! A flow's state goes to another worker as bytes, in the middle of a match, and goes on there; and
//! whatever bytes it is, it is served.

use super::*;
use crate::stream::Streams;
use alloc::sync::Arc;
use nf::by_hand::ByHand;
use nf::plain::{bytes_of, from_bytes};
use nf::{Direction, NetworkFunction, Packet, Side, Verdict, WorkerInfo};
use wire::memory::Region;
use wire::{LinkType, PacketBox, Pool};

const RULES: &str = r#"drop tcp any any -> any 80 (content:"user"; nocase; content:"root"; distance:1; flowbits:isset,hello; sid:1;)
    alert tcp any any -> any 80 (content:"hello"; flowbits:set,hello; sid:2;)"#;

/// An instance with rules that it has read itself.
pub fn worker(rules: &str) -> ByHand<Ids> {
    let info = WorkerInfo {
        runtime: 0,
        runtimes: 2,
        flows_max: 100,
        seed: 3,
    };
    ByHand::new(Ids::new(&Arc::new(config(rules)), &info).expect("the rules are read"))
}

/// Packets, made and taken back.
pub struct Packets(Pool);

impl Packets {
    pub fn new() -> Self {
        Packets(Pool::new(Region::heap(Pool::region_length(1, 4096)), 1, 4096, 0))
    }

    pub fn with<T>(&mut self, frame: &[u8], job: impl FnOnce(&mut Packet) -> T) -> Option<T> {
        let mut packet: PacketBox = self.0.take().expect("each job gives its buffer back");
        assert!(packet.set_frame(frame, LinkType::Ethernet));
        let done = wire::parse(&mut packet).is_ok().then(|| job(&mut packet));
        self.0.give(packet);
        done
    }
}

fn segment(sequence: u32, syn: bool, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let ip = etherparse::PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [192, 0, 2, 1], 64);
    let tcp = ip.tcp(1000, 80, sequence, 1000);
    let tcp = if syn { tcp.syn() } else { tcp.ack(1) };
    tcp.write(&mut frame, payload).expect("a frame");
    frame
}

fn process(worker: &mut ByHand<Ids>, packets: &mut Packets, frame: &[u8], flow: &mut Inspection) -> Verdict {
    worker.raw().set(1, Side::Inside, Direction::Opening);
    packets
        .with(frame, |packet| {
            worker.process_now(packet, flow).expect("it never waits")
        })
        .expect("the packet parses")
}

#[test]
fn a_copied_state_goes_on() {
    let text = b"say hello, USER .... root; bye";
    let mut packets = Packets::new();
    let mut workers = [worker(RULES), worker(RULES)];
    let mut flow = Inspection::default();
    let _ = process(&mut workers[0], &mut packets, &segment(100, true, b""), &mut flow);
    let mut dropped = Vec::new();
    // Segments that come early are held packets, which the runtime moves (`tests/moving/ids.rs`).
    for at in 0..text.len() {
        // Each packet at the other worker, which knows only the bytes.
        let bytes: Vec<u8> = bytes_of(&flow).into();
        flow = from_bytes::<Inspection>(&bytes).expect("a state");
        let frame = segment(101 + at as u32, false, &text[at..=at]);
        let verdict = process(&mut workers[at % 2], &mut packets, &frame, &mut flow);
        dropped.push(matches!(verdict, Verdict::Drop(_)));
    }
    let first = dropped.iter().position(|drop| *drop).expect("it is found");
    let end = text.iter().position(|byte| *byte == b';').expect("there") - 1;
    assert_eq!(first, end);
    assert!(dropped[first..].iter().all(|drop| *drop), "and stays dropped");
}

#[test]
fn a_state_of_other_rules_begins_again() {
    let other = r#"drop tcp any any -> any 80 (content:"xxroot"; sid:9;)"#;
    let mut packets = Packets::new();
    let (mut first, mut second) = (worker(RULES), worker(other));
    let mut flow = Inspection::default();
    let _ = process(&mut first, &mut packets, &segment(100, true, b""), &mut flow);
    let _ = process(
        &mut first,
        &mut packets,
        &segment(101, false, b"hello user  "),
        &mut flow,
    );
    assert_ne!((flow.bits, flow.ways[0].hits_used), ([0; 2], 0));
    // Its numbers would mean something else here: only the stream's are kept.
    let verdict = process(
        &mut second,
        &mut packets,
        &segment(113, false, b"root"),
        &mut flow,
    );
    assert_eq!(verdict, Verdict::Forward);
    assert_eq!((flow.bits, flow.ways[0].hits_used), ([0; 2], 0));
    assert_eq!(flow.streams.half(0).position(), 16);
    assert!(matches!(
        process(
            &mut second,
            &mut packets,
            &segment(117, false, b"xxroot"),
            &mut flow
        ),
        Verdict::Drop(_)
    ));
}

#[test]
fn a_dropped_flow_stays_dropped_by_other_rules() {
    let one_more = format!("{RULES}\nalert tcp any any -> any 80 (content:\"unrelated\"; sid:3;)");
    let mut packets = Packets::new();
    let (mut first, mut second) = (worker(RULES), worker(&one_more));
    let mut flow = Inspection::default();
    let _ = process(&mut first, &mut packets, &segment(100, true, b""), &mut flow);
    let hello = segment(101, false, b"hello ");
    let _ = process(&mut first, &mut packets, &hello, &mut flow);
    let reason = |verdict| match verdict {
        Verdict::Drop(reason) => Ids::REASONS[reason.index()],
        other => panic!("{other:?} is no drop"),
    };
    let root = segment(107, false, b"user  root");
    let verdict = process(&mut first, &mut packets, &root, &mut flow);
    assert_eq!(reason(verdict), "dropped_by_rule");
    let next = segment(117, false, b"more");
    for worker in [&mut second, &mut first] {
        let verdict = process(worker, &mut packets, &next, &mut flow);
        assert_eq!(reason(verdict), "flow_dropped");
    }
}

#[test]
fn a_passed_flow_is_asked_again_by_other_rules() {
    let drops = "drop tcp any any -> any 80 (content:\"root\"; sid:2;)";
    let passes = format!("pass tcp any any -> any 80 (content:\"hello\"; sid:1;)\n{drops}");
    let mut packets = Packets::new();
    let (mut first, mut second) = (worker(&passes), worker(drops));
    let mut flow = Inspection::default();
    let _ = process(&mut first, &mut packets, &segment(100, true, b""), &mut flow);
    let mut send = |worker: &mut _, sequence, bytes: &[u8]| {
        process(worker, &mut packets, &segment(sequence, false, bytes), &mut flow)
    };
    assert_eq!(send(&mut first, 101, b"hello"), Verdict::Forward);
    assert_eq!(send(&mut first, 106, b"root"), Verdict::Forward);
    assert!(matches!(send(&mut second, 110, b"root"), Verdict::Drop(_)));
}

#[test]
fn numbers_at_their_end_are_served() {
    let streams = size_of::<Inspection>() - size_of::<Streams>();
    let mut bytes = std::vec![0xff; size_of::<Inspection>()];
    // Neither passed nor dropped, and not closed: both directions' next byte is known.
    bytes[24] = 0;
    for (place, marks) in [(20, 3), (44, 3), (48, 0)] {
        bytes[streams + place] = marks;
    }
    let mut flow = from_bytes::<Inspection>(&bytes).expect("numbers only");
    let (mut worker, mut packets) = (worker(RULES), Packets::new());
    flow.rules = rule_set(RULES).hash();
    assert_eq!(flow.streams.half(0).position(), u64::MAX);
    for sequence in [u32::MAX, 15] {
        let hello = segment(sequence, false, b"hello user root!");
        let _ = process(&mut worker, &mut packets, &hello, &mut flow);
    }
    assert_eq!(flow.streams.half(0).position(), u64::MAX);
}

proptest! {
    #[test]
    fn any_state_is_served(
        seed in any::<u64>(),
        own_rules in any::<bool>(),
        payloads in prop::collection::vec((any::<u32>(), any::<bool>(), prop::collection::vec(any::<u8>(), 0..40)), 1..12),
    ) {
        let mut bytes = std::vec![0u8; size_of::<Inspection>()];
        let mut state = seed;
        for byte in &mut bytes {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (state >> 56) as u8;
        }
        let mut flow = from_bytes::<Inspection>(&bytes).expect("numbers only");
        let mut worker = worker(RULES);
        if own_rules {
            flow.rules = rule_set(RULES).hash();
        }
        let mut packets = Packets::new();
        for (sequence, syn, payload) in payloads {
            let _ = process(&mut worker, &mut packets, &segment(sequence, syn, &payload), &mut flow);
        }
    }
}
