//! The state machine as a table, the record's text, the settings.

use super::config::{Config, Timeout};
use super::connection::{End, Flags};
use super::history::{History, Letter};
use super::record::Record;
use super::state::Flow;
use nf::{Addr, Direction, Endpoint, FlowKey, Time};
use std::format;
use std::string::{String, ToString};
use std::vec::Vec;
use wire::memory::Region;
use wire::tcp::flags;
use wire::{LinkType, Packet, Pool, protocol};

/// An IPv4 packet without link header.
fn ipv4(protocol: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::from([
        0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ]);
    bytes.extend_from_slice(body);
    let total = bytes.len() as u16;
    bytes[2..4].copy_from_slice(&total.to_be_bytes());
    bytes
}

fn tcp(flags: u8, sequence: u32, payload: usize, window: u16) -> Vec<u8> {
    let mut body = Vec::from([4, 0, 0, 80]);
    body.extend_from_slice(&sequence.to_be_bytes());
    body.extend_from_slice(&[0, 0, 0, 0, 0x50, flags]);
    body.extend_from_slice(&window.to_be_bytes());
    body.extend_from_slice(&[0; 4]);
    body.resize(20 + payload, 0);
    ipv4(protocol::TCP, &body)
}

fn with_packet(bytes: &[u8], see: impl FnOnce(&mut Packet)) {
    let mut pool = Pool::new(Region::heap(Pool::region_length(1, 2048)), 1, 2048, 0);
    let mut packet = pool.take().unwrap();
    assert!(packet.set_frame(bytes, LinkType::Raw));
    wire::parse(&mut packet).unwrap();
    see(&mut packet);
    pool.give(packet);
}

/// Segments are `>` or `<`, flags by letter, sequence number, payload and window where they are not
/// 0 and not zero: `>PA 1 5` is five bytes from the opener at sequence number 1, `<A 1 0 w0`
/// advertises no window.
fn replay(script: &str) -> Flow {
    let mut flow = Flow::default();
    for segment in script.split(';').map(str::trim).filter(|s| !s.is_empty()) {
        let mut words = segment[1..].split(' ');
        let direction = if segment.starts_with('>') {
            Direction::Opening
        } else {
            Direction::Reply
        };
        let flags = words
            .next()
            .unwrap()
            .chars()
            .fold(0, |all, letter| all | 1 << "FSRPAU".find(letter).expect("a flag"));
        let sequence = words.next().map_or(0, |w| w.parse::<i64>().unwrap()) as u32;
        let payload = words.next().map_or(0, |w| w.parse().unwrap());
        let window = if words.next() == Some("w0") { 0 } else { 512 };
        with_packet(&tcp(flags, sequence, payload, window), |p| {
            flow.on_packet(p, direction)
        });
    }
    flow
}

#[test]
fn connections_go_as_zeek_says() {
    let open = ">S 0; <SA 0; >A 1;";
    let table: &[(&str, &str, &str)] = &[
        // Every state.
        (">S 0", "S", "S0"),
        (">S 0; <RA 0", "Sr", "REJ"),
        (">S 0; <SA 0; >A 1", "ShA", "S1"),
        (
            "OPEN >PA 1 5; <A 1; <PA 1 7; >FA 6; <FA 8; >A 7",
            "ShADadFf",
            "SF",
        ),
        ("OPEN >FA 1; <A 1", "ShAFa", "S2"),
        ("OPEN <FA 1; >A 1", "ShAf", "S3"),
        ("OPEN >R 1", "ShAR", "RSTO"),
        ("OPEN <R 1", "ShAr", "RSTR"),
        (">S 0; >R 1", "SR", "RSTOS0"),
        (">A 5; <R 9", "Ar", "RSTRH"),
        (">PA 5 3; <RA 9", "Dr", "RSTRH"),
        (">S 0; >F 1", "SF", "SH"),
        (">A 5; <FA 9", "Af", "SHR"),
        (">A 5; <A 9", "Aa", "OTH"),
        ("", "", "OTH"),
        // A SYN that is acknowledged before it is answered is no midstream traffic.
        (">S 0; <A 7; <SA 8; >A 1", "SahA", "S1"),
        // The SYN was missed: the answer to it shows which end sent it.
        (">SA 0; <A 1", "^hA", "S1"),
        (">SA 0", "^h", "OTH"),
        (">SA 0; >FA 1", "^hf", "SHR"),
        (">SA 0; <A 1; <PA 1 7; >PA 1 9; <FA 8; >FA 10", "^hADdFf", "SF"),
        (">SA 0; >R 1", "^hr", "RSTRH"),
        (">SA 0; <R 1", "^hR", "RSTO"),
        (">SA 0; >SA 0; <PA 1 5", "^hD", "S1"),
        // A SYN and ACK with flags that do not go with them do not say which end sent first.
        (">SFA 0", "Q", "SH"),
        (">A 5; >SA 5; <A 6", "AHa", "OTH"),
        // Simultaneous open.
        (">S 0; <S 9; >SA 0; <SA 9", "Ss", "S1"),
        // After the answer, a RST of the opener is no give-up; neither is one in the midst.
        (">S 0; >A 1; >R 1", "SAR", "OTH"),
        (">A 1; >R 1", "AR", "OTH"),
        // Both reset: refused, unless there was payload.
        ("OPEN >R 1; <R 1", "ShARr", "REJ"),
        ("OPEN >PA 1 5; >R 6; <R 1", "ShADRr", "RSTR"),
        // A FIN and then a RST is an abort, unless the other end closes after all.
        ("OPEN >FA 1; >R 2", "ShAFR", "RSTO"),
        ("OPEN >FA 1; >R 2; <FA 1", "ShAFRf", "SF"),
        // Once both have closed, a RST changes nothing.
        ("OPEN >FA 1; <FA 1; >R 2", "ShAFfR", "SF"),
        // Letters stand once, or again with another sequence number.
        (">S 0; >S 0; <SA 0; <SA 0; >A 1; >A 1", "ShA", "S1"),
        (">S 0; >S 70", "SS", "S0"),
        ("OPEN >FA 1; >FA 1", "ShAF", "S2"),
        ("OPEN >R 1; >R 1; >R 9", "ShARR", "RSTO"),
        // Flags that do not go together.
        (">SF 0", "Q", "SH"),
        (">SR 0", "Q", "OTH"),
        (">FR 5", "I", "OTH"),
        // Retransmissions at the first and tenth, across the end of the sequence space.
        ("OPEN >PA 1 5; >PA 1 5", "ShADT", "S1"),
        (">S -3; <SA 0; >A -2; >PA -2 5; >PA 3 5; >PA -2 5", "ShADT", "S1"),
        (
            "OPEN >A 1 5; >A 1 5; >A 1 5; >A 1 5; >A 1 5; >A 1 5; >A 1 5; >A 1 5; >A 1 5; >A 1 5; >A 1 5",
            "ShADTT",
            "S1",
        ),
        // A segment that overtook another is seen as sent before: the top is behind nothing.
        ("OPEN >PA 6 5; >PA 1 5; >PA 11 5", "ShADT", "S1"),
        // No window: of interest while the other end can send, and not in a RST.
        ("OPEN <A 1 0 w0; <A 1 0 w0", "ShAaw", "S1"),
        ("OPEN >FA 1; <A 1 0 w0", "ShAFa", "S2"),
        (">S 0; <RA 0 0 w0", "Sr", "REJ"),
    ];
    for (script, history, state) in table {
        let flow = replay(&script.replace("OPEN", open));
        let got = (
            flow.connection.history.to_string(),
            flow.state(protocol::TCP).name().to_string(),
        );
        assert_eq!(got, (history.to_string(), state.to_string()), "{script}");
    }
}

#[test]
fn a_connection_is_over_when_both_closed_or_one_reset() {
    for (script, over) in [
        (">S 0; <SA 0; >FA 1", false),
        (">S 0; <SA 0; >FA 1; <FA 1", true),
        (">S 0; <SA 0; >R 1", true),
        (">S 0", false),
    ] {
        assert_eq!(replay(script).connection.is_over(), over, "{script}");
    }
}

#[test]
fn flags_and_counts_are_kept_by_direction() {
    let flow = replay(">S 0; <SA 0; >PA 1 100");
    assert_eq!(
        flow.connection.flags,
        [flags::SYN | flags::PSH | flags::ACK, flags::SYN | flags::ACK].map(Flags::from)
    );
    assert_eq!(flow.packets, [2, 1]);
    assert_eq!(flow.bytes, [180, 40]);
    assert_eq!(flow.ip_bytes, [180, 40]);
    assert_eq!(flow.connection.ends, [End::Established; 2]);
}

#[test]
fn a_connection_first_seen_by_its_answer_is_recorded_the_other_way_round() {
    let flow = replay(">SA 0; <A 1; <PA 1 100");
    let (server, client) = (
        Endpoint::new(Addr::v4([192, 0, 2, 1]), 80),
        Endpoint::new(Addr::v4([10, 0, 0, 1]), 1024),
    );
    let (key, _) = FlowKey::new(server, client, protocol::TCP, 0);
    let record = Record {
        key: &key,
        ends: (server, client),
        flow: &flow,
    };
    let line = format!("{{{record}}}");
    let value: serde_json::Value = serde_json::from_str(&line).unwrap();
    for (name, expected) in [
        ("orig", serde_json::json!("10.0.0.1")),
        ("orig_port", serde_json::json!(1024)),
        ("resp", serde_json::json!("192.0.2.1")),
        ("orig_packets", serde_json::json!(2)),
        ("orig_bytes", serde_json::json!(180)),
        ("orig_flags", serde_json::json!("PA")),
        ("resp_packets", serde_json::json!(1)),
        ("resp_ip_bytes", serde_json::json!(40)),
        ("resp_flags", serde_json::json!("SA")),
        ("history", serde_json::json!("^hAD")),
        ("state", serde_json::json!("S1")),
    ] {
        assert_eq!(value[name], expected, "{name} in {line}");
    }
}

#[test]
fn a_records_times_are_of_the_earliest_and_the_latest_packet() {
    let mut flow = Flow::default();
    // A capture that is out of order, by decades.
    for time in [1_600_000_000, 5, 1_700_000_000, 1_500_000_000] {
        with_packet(&tcp(flags::ACK, 1, 0, 512), |packet| {
            packet.set_timestamp(time);
            flow.on_packet(packet, Direction::Opening);
        });
    }
    assert_eq!(
        (flow.start, flow.end),
        (Time::from_nanoseconds(5), Time::from_nanoseconds(1_700_000_000))
    );
}

#[test]
fn a_frame_cut_short_counts_with_its_whole_length() {
    let mut flow = Flow::default();
    let mut bytes = tcp(flags::ACK | flags::PSH, 1, 1000, 512);
    bytes.truncate(40);
    let mut pool = Pool::new(Region::heap(Pool::region_length(1, 2048)), 1, 2048, 0);
    let mut packet = pool.take().unwrap();
    assert!(packet.set_frame(&bytes, LinkType::Raw));
    packet.set_wire_length(1040);
    packet.set_timestamp(7);
    wire::parse(&mut packet).unwrap();
    flow.on_packet(&packet, Direction::Opening);
    assert_eq!(
        (flow.bytes[0], flow.ip_bytes[0], flow.start, flow.end),
        (1040, 1040, Time::from_nanoseconds(7), Time::from_nanoseconds(7))
    );
    assert_eq!(flow.connection.history.to_string(), "D");
    assert_eq!(flow.connection.top[0], 1001);
    pool.give(packet);
}

#[test]
fn udp_is_known_by_who_sent() {
    let datagram = ipv4(protocol::UDP, &[0, 53, 0, 53, 0, 8, 0, 0]);
    let mut flow = Flow::default();
    assert_eq!(flow.state(protocol::UDP).name(), "OTH");
    with_packet(&datagram, |p| flow.on_packet(p, Direction::Opening));
    assert_eq!(flow.state(protocol::UDP).name(), "S0");
    with_packet(&datagram, |p| flow.on_packet(p, Direction::Reply));
    assert_eq!(flow.state(protocol::UDP).name(), "SF");
    assert_eq!(flow.connection.history.to_string(), "Dd");
    assert_eq!(flow.state(protocol::ICMP).name(), "OTH");
}

#[test]
fn a_history_holds_nineteen_letters_and_says_when_there_were_more() {
    let mut history = History::default();
    for n in 0..History::LETTERS_MAX {
        let direction = if n % 2 == 0 {
            Direction::Opening
        } else {
            Direction::Reply
        };
        history.push(Letter::Reset, direction);
    }
    assert_eq!(history.to_string(), "RrRrRrRrRrRrRrRrRrR");
    assert!(!history.has_more());
    let full = history;
    history.push(Letter::Syn, Direction::Reply);
    assert_eq!(history.to_string(), "RrRrRrRrRrRrRrRrRrR+");
    assert!(history.has_more() && history != full);
}

#[test]
fn every_letter_reads_as_it_was_written() {
    use Letter::*;
    let mut history = History::default();
    for letter in [
        Syn,
        Handshake,
        Ack,
        Payload,
        Fin,
        Reset,
        Repeat,
        ZeroWindow,
        Inconsistent,
        Questionable,
    ] {
        history.push(letter, Direction::Reply);
    }
    assert_eq!(history.to_string(), "shadfrtwiq");
    let mut turned = History::default();
    turned.push(Turned, Direction::Opening);
    assert_eq!(turned.to_string(), "^");
}

#[test]
fn the_record_is_as_documented() {
    let mut flow = replay(">S 0; <RA 0");
    flow.bytes = [74, 60];
    flow.ip_bytes = [60, 40];
    flow.end = Time::from_nanoseconds(10_000_000);
    let (opener, other) = (
        Endpoint::new(Addr::v4([10, 0, 0, 1]), 1024),
        Endpoint::new(Addr::v4([192, 0, 2, 1]), 80),
    );
    let (key, _) = FlowKey::new(opener, other, protocol::TCP, 0);
    let record = Record {
        key: &key,
        ends: (opener, other),
        flow: &flow,
    };
    let documented = include_str!("mod.rs")
        .lines()
        .skip_while(|line| !line.contains("\"event\":\"flow\""))
        .take_while(|line| line.contains('"'))
        .map(|line| line.trim_start_matches("//!").trim())
        .collect::<String>();
    let (_, fields) = documented.split_once("\"event\":\"flow\",").expect("the example");
    assert_eq!(format!("{record}}}"), fields);
}

#[test]
fn settings_are_times_or_none() {
    let read = |text: &str| toml::from_str::<Config>(text);
    assert_eq!(read("").unwrap(), Config::default());
    let set = read("idle_timeout = \"5m\"\nclosed_timeout = \"none\"").unwrap();
    assert_eq!(set.idle_timeout, Timeout::seconds(300));
    assert_eq!(set.closed_timeout, Timeout::NONE);
    for (wrong, word) in [
        (
            "idle_timeout = 60",
            "a time with its unit, like \"60s\", or \"none\"",
        ),
        ("idle_timeout = \"60\"", "write \"60s\""),
        ("idle_timeout = \"0s\"", "a flow cannot end at once"),
        ("idle_timeout = \"never\"", "90s"),
        ("idle = \"3s\"", "idle_timeout"),
    ] {
        let error = read(wrong).unwrap_err().to_string();
        assert!(error.contains(word), "{wrong}: {error}");
    }
}

#[test]
fn counts_at_their_end_stay_there() {
    let most = [u64::MAX; 2];
    let mut flow = Flow {
        packets: most,
        bytes: most,
        ip_bytes: most,
        ..Flow::default()
    };
    with_packet(&tcp(flags::ACK, 1, 5, 512), |packet| {
        flow.on_packet(packet, Direction::Opening);
        flow.on_packet(packet, Direction::Reply);
    });
    assert_eq!([flow.packets, flow.bytes, flow.ip_bytes], [most; 3]);
}
