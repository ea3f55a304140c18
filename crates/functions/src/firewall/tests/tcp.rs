//! The TCP machine: its table, scripts of segments, and properties.

use super::super::state::{Connection, Phase, mark, option};
use super::super::tcp::{Fault, Judgement, Kind, Segment, Step, judge, next, open, quick};
use super::{Bench, CLIENT, OUTWARD, SERVER, tcp_segment};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use proptest::prelude::*;
use wire::tcp::flags;

const PHASES: [Phase; 10] = [
    Phase::New,
    Phase::TcpSynSent,
    Phase::TcpBothSynSent,
    Phase::TcpSynReceived,
    Phase::TcpEstablished,
    Phase::TcpFinWait,
    Phase::TcpCloseWait,
    Phase::TcpLastAck,
    Phase::TcpTimeWait,
    Phase::TcpClosed,
];
const KINDS: [Kind; 6] = [
    Kind::Syn,
    Kind::SynAck,
    Kind::Fin,
    Kind::Ack,
    Kind::Rst,
    Kind::None,
];

fn short(phase: Phase) -> &'static str {
    match phase {
        Phase::New => "new",
        Phase::TcpSynSent => "sent",
        Phase::TcpBothSynSent => "both",
        Phase::TcpSynReceived => "rcvd",
        Phase::TcpEstablished => "open",
        Phase::TcpFinWait => "finw",
        Phase::TcpCloseWait => "clsw",
        Phase::TcpLastAck => "last",
        Phase::TcpTimeWait => "timw",
        Phase::TcpClosed => "clsd",
        _ => "????",
    }
}

/// All transitions. `.` stands for refuse, `~` for watch.
const TABLE: &str = "\
phase sender    syn  s+a  fin  ack  rst  none
new   opener    sent .    .    open .    .
new   responder .    .    .    .    .    .
sent  opener    sent .    .    .    clsd .
sent  responder both rcvd .    ~    clsd .
both  opener    both rcvd .    .    clsd .
both  responder both rcvd .    ~    clsd .
rcvd  opener    ~    rcvd finw open clsd .
rcvd  responder .    ~    finw rcvd clsd .
open  opener    ~    .    finw open clsd .
open  responder .    ~    finw open clsd .
finw  opener    ~    .    last clsw clsd .
finw  responder .    ~    last clsw clsd .
clsw  opener    ~    .    last clsw clsd .
clsw  responder .    ~    last clsw clsd .
last  opener    ~    .    last timw clsd .
last  responder .    ~    last timw clsd .
timw  opener    sent .    timw timw clsd .
timw  responder sent ~    timw timw clsd .
clsd  opener    sent .    clsd clsd clsd .
clsd  responder .    ~    clsd clsd clsd .
";

#[test]
fn the_transitions_are_these() {
    let mut text = String::from("phase sender    syn  s+a  fin  ack  rst  none\n");
    for phase in PHASES {
        for responder in [false, true] {
            let sender = if responder { "responder" } else { "opener" };
            let mut line = format!("{:<5} {sender:<9}", short(phase));
            for kind in KINDS {
                let step = match next(phase, responder, kind) {
                    Step::To(to) => short(to),
                    Step::Watch => "~",
                    Step::Refuse => ".",
                };
                line += &format!(" {step:<4}");
            }
            text += line.trim_end();
            text.push('\n');
        }
    }
    assert_eq!(text, TABLE);
}

#[test]
fn the_valid_flags_are_these() {
    let valid: Vec<u8> = (0..=255u8)
        .filter(|bits| bits & (flags::PSH | flags::ECE | flags::CWR) == 0)
        .filter(|bits| segment(*bits, 0, 0, 0, &[]).has_valid_flags())
        .collect();
    let expected = [
        flags::SYN,
        flags::RST,
        flags::ACK,
        flags::ACK | flags::FIN,
        flags::ACK | flags::SYN,
        flags::ACK | flags::RST,
        flags::URG | flags::SYN,
        flags::URG | flags::ACK,
        flags::URG | flags::ACK | flags::FIN,
    ];
    assert_eq!(valid, expected);
}

fn segment(bits: u8, seq: u32, ack: u32, length: u32, options: &[u8]) -> Segment<'_> {
    Segment {
        seq,
        ack,
        flags: bits,
        window: 1000,
        length,
        options,
    }
}

fn bits(text: &str) -> u8 {
    text.chars()
        .map(|c| match c {
            'S' => flags::SYN,
            'A' => flags::ACK,
            'F' => flags::FIN,
            'R' => flags::RST,
            'P' => flags::PSH,
            _ => panic!("no such flag"),
        })
        .fold(0, |all, bit| all | bit)
}

/// A flow driven by hand: as the function drives it, without rules.
struct Script {
    flow: Connection,
    loose: bool,
}

impl Script {
    fn new() -> Self {
        Script {
            flow: Connection::default(),
            loose: true,
        }
    }

    /// Client 0 or server 1 sends a segment.
    fn send(&mut self, half: usize, segment: &Segment<'_>) -> Judgement {
        if self.flow.phase == Phase::New && !open(&mut self.flow, segment, half, self.loose) {
            self.flow = Connection::default();
            return Judgement::Refuse(Fault::State);
        }
        let mut judgement = judge(&mut self.flow, segment, half);
        if judgement == Judgement::Reopen {
            assert!(open(&mut self.flow, segment, half, self.loose));
            judgement = judge(&mut self.flow, segment, half);
        }
        if judgement == Judgement::Accept && half != self.flow.reversed() {
            self.flow.marks |= mark::REPLIED;
        }
        if judgement == Judgement::Finish {
            self.flow = Connection::default();
        }
        judgement
    }

    /// Sends, and looks at the phase after.
    fn step(&mut self, half: usize, what: &str, seq: u32, ack: u32, length: u32, phase: Phase) -> &mut Self {
        let judgement = self.send(half, &segment(bits(what), seq, ack, length, &[]));
        assert_eq!(judgement, Judgement::Accept, "{half} {what} {seq} {ack}");
        assert_eq!(self.flow.phase, phase, "{half} {what} {seq} {ack}");
        self
    }

    fn refused(&mut self, half: usize, what: &str, seq: u32, ack: u32, fault: Fault) -> &mut Self {
        let judgement = self.send(half, &segment(bits(what), seq, ack, 0, &[]));
        assert_eq!(judgement, Judgement::Refuse(fault), "{half} {what} {seq} {ack}");
        self
    }

    /// An established connection, client at 101, server at 501.
    fn established() -> Self {
        let mut script = Script::new();
        script
            .step(0, "S", 100, 0, 0, Phase::TcpSynSent)
            .step(1, "SA", 500, 101, 0, Phase::TcpSynReceived)
            .step(0, "A", 101, 501, 0, Phase::TcpEstablished);
        script
    }
}

#[test]
fn opening_and_closing() {
    let mut script = Script::established();
    script
        .step(0, "PA", 101, 501, 10, Phase::TcpEstablished)
        .step(1, "A", 501, 111, 0, Phase::TcpEstablished)
        .step(0, "FA", 111, 501, 0, Phase::TcpFinWait)
        .step(1, "A", 501, 112, 0, Phase::TcpCloseWait)
        .step(1, "FA", 501, 112, 0, Phase::TcpLastAck)
        .step(0, "A", 112, 502, 0, Phase::TcpTimeWait)
        // The same ends begin again.
        .step(0, "S", 70_000, 0, 0, Phase::TcpSynSent)
        .step(1, "SA", 900, 70_001, 0, Phase::TcpSynReceived);
}

#[test]
fn the_responder_may_open_after_the_end() {
    let mut script = Script::established();
    script
        .step(0, "FA", 101, 501, 0, Phase::TcpFinWait)
        .step(1, "FA", 501, 102, 0, Phase::TcpLastAck)
        .step(0, "A", 102, 502, 0, Phase::TcpTimeWait)
        .step(1, "S", 70_000, 0, 0, Phase::TcpSynSent);
    assert!(script.flow.is(mark::REVERSED));
    script.step(0, "SA", 5, 70_001, 0, Phase::TcpSynReceived).step(
        1,
        "A",
        70_001,
        6,
        0,
        Phase::TcpEstablished,
    );
    assert!(script.flow.is(mark::ASSURED));
}

#[test]
fn simultaneous_open() {
    let mut script = Script::new();
    script
        .step(0, "S", 100, 0, 0, Phase::TcpSynSent)
        .step(1, "S", 500, 0, 0, Phase::TcpBothSynSent)
        .step(0, "SA", 100, 501, 0, Phase::TcpSynReceived)
        .step(1, "SA", 500, 101, 0, Phase::TcpSynReceived)
        .step(0, "A", 101, 501, 0, Phase::TcpEstablished);
    let mut script = Script::new();
    script
        .step(0, "S", 100, 0, 0, Phase::TcpSynSent)
        .step(1, "S", 500, 0, 0, Phase::TcpBothSynSent)
        .step(1, "SA", 500, 101, 0, Phase::TcpSynReceived)
        .step(1, "A", 501, 101, 0, Phase::TcpEstablished);
}

#[test]
fn sequence_numbers_wrap() {
    let mut script = Script::new();
    let start = u32::MAX - 5;
    script
        .step(0, "S", start, 0, 0, Phase::TcpSynSent)
        .step(1, "SA", 500, start.wrapping_add(1), 0, Phase::TcpSynReceived)
        .step(0, "A", start.wrapping_add(1), 501, 0, Phase::TcpEstablished)
        .step(0, "A", start.wrapping_add(1), 501, 100, Phase::TcpEstablished)
        .step(1, "A", 501, 95, 0, Phase::TcpEstablished)
        .step(0, "A", 95, 501, 10, Phase::TcpEstablished)
        .refused(0, "A", start.wrapping_sub(3_000_000_000), 501, Fault::Window);
    assert_eq!(script.flow.halves[0].end, 105);
}

#[test]
fn windows_scale_only_if_both_ends_say_so() {
    const SCALE_7: &[u8] = &[3, 3, 7, 1];
    for (answer, limit) in [(SCALE_7, 101 + (1000 << 7)), (&[][..], 101 + 1000)] {
        let mut script = Script::new();
        script.send(0, &segment(flags::SYN, 100, 0, 0, SCALE_7));
        script.send(1, &segment(bits("SA"), 500, 101, 0, answer));
        script.send(0, &segment(flags::ACK, 101, 501, 0, &[]));
        script.send(1, &segment(flags::ACK, 501, 101, 0, &[]));
        assert_eq!(script.flow.halves[0].limit, limit);
        assert_eq!(script.flow.phase, Phase::TcpEstablished);
    }
    // More than 14 counts as 14 (RFC 7323 2.3).
    let mut script = Script::new();
    script.send(0, &segment(flags::SYN, 100, 0, 0, &[3, 3, 200, 1]));
    assert_eq!(script.flow.scale(0), 14);
}

#[test]
fn sack_counts_as_acknowledged() {
    const PERMITTED: &[u8] = &[4, 2, 1, 1];
    let mut script = Script::new();
    script.send(0, &segment(flags::SYN, 100, 0, 0, PERMITTED));
    script.send(1, &segment(bits("SA"), 500, 101, 0, PERMITTED));
    script.send(0, &segment(flags::ACK, 101, 501, 0, &[]));
    script.send(0, &segment(flags::ACK, 101, 501, 400, &[]));
    // 201..501 has arrived, 101..201 has not.
    let mut block = [1u8, 1, 5, 10, 0, 0, 0, 201, 0, 0, 1, 245];
    assert_eq!(
        script.send(1, &segment(flags::ACK, 501, 101, 0, &block)),
        Judgement::Accept
    );
    assert_eq!(script.flow.halves[0].limit, 501 + 1000);
    // The end cannot have received a block beyond all that was sent.
    block[10] = 9;
    let judgement = script.send(1, &segment(flags::ACK, 501, 101, 0, &block));
    assert_eq!(judgement, Judgement::Refuse(Fault::Window));
}

#[test]
fn what_is_out_of_window_is_refused_and_what_is_late_is_not() {
    let mut script = Script::established();
    script
        .refused(0, "A", 500_000, 501, Fault::Window)
        .refused(0, "A", 101, 70_000, Fault::Window);
    // Data acknowledged long ago, sent again.
    script.step(0, "A", 101, 501, 900, Phase::TcpEstablished);
    let before = script.flow.halves;
    script.step(
        0,
        "A",
        101u32.wrapping_sub(90_000),
        501,
        10,
        Phase::TcpEstablished,
    );
    assert_eq!(script.flow.halves, before);
    // A little more than the window holds: the receiver will say.
    script.step(0, "A", 1101 + 100, 501, 10, Phase::TcpEstablished);
    assert_eq!(script.flow.halves[0].end, 1211);
}

#[test]
fn resets_must_be_where_they_are_expected() {
    let mut script = Script::established();
    script.step(1, "A", 501, 101, 100, Phase::TcpEstablished).step(
        0,
        "A",
        101,
        601,
        0,
        Phase::TcpEstablished,
    );
    // Below what the client has acknowledged: forged or late.
    script.refused(1, "R", 550, 0, Fault::Reset);
    // In the window, but not exact: passes, and the client will challenge it.
    script.step(1, "R", 700, 0, 0, Phase::TcpEstablished);
    // Exact.
    script.step(1, "R", 601, 0, 0, Phase::TcpClosed);
    // Behind its own last segment.
    let mut script = Script::established();
    script
        .step(1, "A", 501, 101, 0, Phase::TcpEstablished)
        .step(1, "A", 501, 101, 100, Phase::TcpEstablished)
        .step(1, "R", 601, 0, 0, Phase::TcpClosed);
}

#[test]
fn a_restarted_opener_may_be_refused() {
    let mut script = Script::established();
    script
        .step(0, "S", 9_000_000, 0, 0, Phase::TcpEstablished)
        // The answer to a SYN that passed unbelieved: no window knows its numbers.
        .step(1, "RA", 501, 9_000_001, 0, Phase::TcpClosed);
}

#[test]
fn a_reset_without_numbers_is_judged_by_the_window_alone() {
    // In a connection picked up and not yet assured, number 0 may answer a SYN that the firewall
    // did not see.
    let mut script = Script::new();
    script
        .step(0, "A", 1000, 2000, 10, Phase::TcpEstablished)
        .step(1, "A", 2000, 1010, 0, Phase::TcpEstablished)
        .step(0, "R", 0, 0, 0, Phase::TcpClosed);
    // An opener that gives up its SYN, whose number 0 would seem to lie far ahead.
    let mut script = Script::new();
    script.step(0, "S", 3_000_000_000, 0, 0, Phase::TcpSynSent);
    assert_eq!(
        script.send(0, &segment(flags::RST, 0, 0, 0, &[])),
        Judgement::Finish
    );
}

#[test]
fn acknowledgements_may_be_older_than_the_window() {
    let mut script = Script::established();
    for n in 0..20 {
        script
            .step(1, "A", 501 + n * 1000, 101, 1000, Phase::TcpEstablished)
            .step(0, "A", 101, 501 + (n + 1) * 1000, 0, Phase::TcpEstablished);
    }
    let late = Segment {
        window: 5000,
        ..segment(flags::ACK, 101, 501 + 10_000, 0, &[])
    };
    assert_eq!(script.send(0, &late), Judgement::Accept);
    assert_eq!(script.flow.halves[0].window, 5000, "it fits, so it counts");
    let ancient = Segment {
        window: 6000,
        ..segment(flags::ACK, 101, 501u32.wrapping_sub(90_000), 0, &[])
    };
    assert_eq!(script.send(0, &ancient), Judgement::Accept);
    assert_eq!(
        script.flow.halves[0].window, 5000,
        "it passes, and does not count"
    );
}

#[test]
fn a_window_overrun_shows_how_large_it_really_is() {
    let mut script = Script::established();
    script.step(0, "A", 101, 501, 1500, Phase::TcpEstablished);
    assert_eq!(script.flow.halves[1].window, 1000 + 500);
}

#[test]
fn a_closed_window_lets_one_byte_through() {
    let mut script = Script::established();
    script.step(0, "A", 101, 501, 1000, Phase::TcpEstablished);
    let closed = Segment {
        window: 0,
        ..segment(flags::ACK, 501, 1101, 0, &[])
    };
    assert_eq!(script.send(1, &closed), Judgement::Accept);
    assert_eq!(script.flow.halves[0].limit, 1102, "room for a probe of one byte");
    script.step(0, "A", 1101, 501, 1, Phase::TcpEstablished);
    assert_eq!(script.flow.halves[0].end, 1102);
    assert_eq!(script.flow.halves[1].window, 1000, "a probe is no overrun");
}

#[test]
fn an_opener_may_try_another_syn() {
    let mut script = Script::new();
    script.send(0, &segment(flags::SYN, 100, 0, 0, &[3, 3, 7, 1]));
    script.send(0, &segment(flags::SYN, 90_000, 0, 0, &[3, 3, 5, 1]));
    assert_eq!((script.flow.halves[0].end, script.flow.scale(0)), (90_001, 5));
    script.step(1, "SA", 500, 90_001, 0, Phase::TcpSynReceived);
    assert_eq!(script.flow.scale(0), 0, "the other end does not scale");
}

#[test]
fn a_refused_syn_ends_the_flow() {
    let mut script = Script::new();
    script.step(0, "S", 100, 0, 0, Phase::TcpSynSent);
    let judgement = script.send(1, &segment(bits("RA"), 0, 101, 0, &[]));
    assert_eq!(judgement, Judgement::Finish);
}

#[test]
fn a_restarted_opener_is_believed_once_it_is_answered() {
    let mut script = Script::established();
    script
        // The client has rebooted: its SYN passes, nothing is believed yet.
        .step(0, "S", 9_000_000, 0, 0, Phase::TcpEstablished)
        .step(1, "SA", 70_000, 9_000_001, 0, Phase::TcpSynReceived)
        .step(0, "A", 9_000_001, 70_001, 0, Phase::TcpEstablished);
    assert_eq!(script.flow.halves[0].end, 9_000_001);
}

#[test]
fn a_challenge_is_not_the_last_acknowledgement() {
    let mut script = Script::established();
    script
        .step(0, "FA", 101, 501, 0, Phase::TcpFinWait)
        .step(1, "FA", 501, 102, 0, Phase::TcpLastAck)
        .step(0, "S", 9_000_000, 0, 0, Phase::TcpLastAck)
        .step(1, "A", 502, 102, 0, Phase::TcpLastAck)
        .step(1, "A", 502, 102, 0, Phase::TcpTimeWait);
}

#[test]
fn a_half_open_connection_is_reset_and_opened_again() {
    let mut script = Script::new();
    script
        .step(0, "S", 100, 0, 0, Phase::TcpSynSent)
        // The server still has an old connection and challenges the SYN.
        .step(1, "A", 7000, 5555, 0, Phase::TcpSynSent)
        .step(0, "R", 5555, 0, 0, Phase::TcpClosed)
        .step(0, "S", 100, 0, 0, Phase::TcpSynSent);
}

#[test]
fn mid_stream_is_picked_up_only_if_loose() {
    let mut script = Script::new();
    script
        .step(0, "A", 1000, 2000, 10, Phase::TcpEstablished)
        .step(1, "A", 2000, 1010, 10, Phase::TcpEstablished)
        .step(0, "A", 1010, 2010, 10, Phase::TcpEstablished);
    assert!(script.flow.options & option::LIBERAL != 0 && script.flow.is(mark::ASSURED));
    let mut script = Script::new();
    script.loose = false;
    script.refused(0, "A", 1000, 2000, Fault::State);
    let mut script = Script::new();
    script
        .refused(0, "SA", 1000, 2000, Fault::State)
        .refused(0, "FA", 1000, 2000, Fault::State)
        .refused(0, "R", 1000, 2000, Fault::State);
}

#[test]
fn a_keep_alive_and_its_answer_pass() {
    let mut script = Script::established();
    script
        .step(0, "A", 101, 501, 10, Phase::TcpEstablished)
        .step(1, "A", 501, 111, 0, Phase::TcpEstablished)
        .step(0, "A", 110, 501, 0, Phase::TcpEstablished)
        .step(1, "A", 501, 111, 0, Phase::TcpEstablished);
}

fn near() -> impl Strategy<Value = u32> {
    // Near the numbers of the scripts, or anything.
    prop_oneof![4 => 0u32..2000, 1 => any::<u32>(), 1 => (0u32..2000).prop_map(|n| 0u32.wrapping_sub(n))]
}

#[derive(Clone, Debug)]
struct Sent {
    half: usize,
    bits: u8,
    seq: u32,
    ack: u32,
    window: u16,
    length: u32,
    options: Vec<u8>,
}

fn sent() -> impl Strategy<Value = Sent> {
    let flag = prop_oneof![
        Just("S"),
        Just("SA"),
        Just("A"),
        Just("A"),
        Just("PA"),
        Just("FA"),
        Just("R"),
        Just("RA")
    ];
    let bits = prop_oneof![8 => flag.prop_map(bits), 1 => any::<u8>()];
    let options = prop_oneof![
        Just(Vec::new()),
        Just(alloc::vec![3, 3, 7, 4, 2, 1]),
        proptest::collection::vec(any::<u8>(), 0..40),
    ];
    (
        0usize..2,
        bits,
        near(),
        near(),
        any::<u16>(),
        prop_oneof![Just(0u32), 0u32..1500, 0u32..65_536],
        options,
    )
        .prop_map(|(half, bits, seq, ack, window, length, options)| Sent {
            half,
            bits,
            seq,
            ack,
            window,
            length,
            options,
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases * 8))]

    #[test]
    fn nothing_is_established_without_a_handshake(all in proptest::collection::vec(sent(), 0..40)) {
        let mut script = Script::new();
        script.loose = false;
        let (mut syn, mut answer) = ([false; 2], [false; 2]);
        for s in &all {
            let segment = Segment {
                seq: s.seq, ack: s.ack, flags: s.bits, window: s.window, length: s.length, options: &s.options,
            };
            if !segment.has_valid_flags() {
                continue;
            }
            let before = script.flow.phase;
            let judgement = script.send(s.half, &segment);
            if !matches!(judgement, Judgement::Refuse(_)) {
                match segment.kind() {
                    Kind::Syn => syn[s.half] = true,
                    Kind::SynAck => answer[s.half] = true,
                    _ => {}
                }
            } else {
                prop_assert_eq!(script.flow.phase, before);
            }
            if script.flow.phase == Phase::TcpEstablished {
                prop_assert!((syn[0] && answer[1]) || (syn[1] && answer[0]) || (syn[0] && syn[1]));
            }
        }
    }

    #[test]
    fn the_fast_path_does_what_the_machine_does(
        opening in proptest::collection::vec((0usize..2, near(), near(), 0u32..1500), 0..6),
        half in 0usize..2,
        what in prop_oneof![4 => Just("A"), 2 => Just("PA"), 1 => Just("FA"), 1 => Just("R"), 1 => Just("S")],
        seq in near(),
        ack in near(),
        length in 0usize..1200,
        timestamps: bool,
        scale in 0u8..15,
    ) {
        let mut script = Script::established();
        script.flow.set_scale(half, scale);
        for (half, seq, ack, length) in opening {
            script.send(half, &segment(flags::ACK, seq, ack, length, &[]));
        }
        let (from, to) = if half == 0 { (CLIENT, SERVER) } else { (SERVER, CLIENT) };
        let data = alloc::vec![0u8; length];
        let mut frame = tcp_segment(from, to, what, seq, ack, &data);
        if timestamps && length >= 12 {
            // The first data bytes become the usual option.
            frame[46] = 8 << 4;
            frame[54..58].copy_from_slice(&[1, 1, 8, 10]);
        }
        let mut bench = Bench::new(OUTWARD);
        let packet = bench.packet(&frame);
        let (mut fast, mut slow) = (script.flow, Script { flow: script.flow, loose: true });
        let taken = quick(&mut fast, &packet, half);
        if taken {
            let judgement = slow.send(half, &Segment::from(packet.tcp().unwrap()));
            prop_assert_eq!(judgement, Judgement::Accept);
            prop_assert_eq!(fast, slow.flow);
        } else {
            prop_assert_eq!(fast, script.flow);
        }
        bench.pool.give(packet);
    }
}

#[test]
fn plain_segments_take_the_fast_path() {
    let mut script = Script::established();
    script.step(1, "A", 501, 101, 0, Phase::TcpEstablished);
    script.step(0, "A", 101, 501, 0, Phase::TcpEstablished);
    let mut bench = Bench::new(OUTWARD);
    for (half, frame) in [
        (0, tcp_segment(CLIENT, SERVER, "PA", 101, 501, b"hello")),
        (1, tcp_segment(SERVER, CLIENT, "A", 501, 106, b"")),
        (1, tcp_segment(SERVER, CLIENT, "A", 501, 106, b"world")),
    ] {
        let packet = bench.packet(&frame);
        assert!(quick(&mut script.flow, &packet, half));
        bench.pool.give(packet);
    }
    assert_eq!(script.flow.halves[1].end, 506);
}
