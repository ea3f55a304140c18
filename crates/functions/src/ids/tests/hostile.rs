//! Any text is rules or is refused; any packet is served.

use super::moved::{Packets, worker};
use super::*;
use nf::{Direction, Side};

/// Pieces that rules are made of, so that random texts get further than the first word.
fn piece() -> impl Strategy<Value = String> {
    let known = [
        "alert ",
        "drop ",
        "tcp ",
        "ip ",
        "icmp ",
        "any ",
        "-> ",
        "<> ",
        "(",
        ")",
        ";",
        "\n",
        "\\\n",
        "!",
        "[",
        "]",
        ",",
        "$HOME_NET ",
        "10.0.0.0/8",
        "2001:db8::/32",
        "80:90",
        "sid:1;",
        "content:\"",
        "\";",
        "|41 42|",
        "|",
        "nocase;",
        "distance:-5;",
        "within:9;",
        "offset:1;",
        "depth:65535;",
        "dsize:1<>9;",
        "flags:+SA,12;",
        "flow:established;",
        "flowbits:set,a;",
        "flowbits:isset,a|b;",
        "threshold:type limit, track by_src, count 1, seconds 1;",
        "endswith;",
        "alert tcp any any -> any any (content:\"ab\"; sid:3;)\n",
        "msg:\"x\";",
        "#",
        "\"",
    ];
    prop_oneof![
        8 => prop::sample::select(known.to_vec()).prop_map(String::from),
        1 => "\\PC{0,6}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases * 4))]

    #[test]
    fn any_text_is_read_or_refused(pieces in prop::collection::vec(piece(), 0..40), payload in prop::collection::vec(any::<u8>(), 0..60)) {
        let text = pieces.concat();
        let read = parse::rules(&text, &variables(&Default::default()));
        let rules: Vec<Rule> = read.into_iter().flatten().collect();
        if let Ok(set) = RuleSet::new(rules)
            && !set.is_empty()
        {
            let _ = set.hash();
        }
        if let Ok(loaded) = config(&text).rules() {
            prop_assert!(!loaded.rules.is_empty());
            let mut worker = worker(&text);
            let mut flow = Inspection::default();
            let mut frame = Vec::new();
            etherparse::PacketBuilder::ethernet2([2; 6], [4; 6])
                .ipv4([10, 0, 0, 1], [192, 0, 2, 1], 64)
                .tcp(1000, 80, 1, 1000)
                .write(&mut frame, &payload)
                .unwrap();
            worker.raw().set(1, Side::Inside, Direction::Opening);
            Packets::new().with(&frame, |packet| worker.process_now(packet, &mut flow));
        }
    }

    #[test]
    fn any_frame_is_served(frames in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..120), any::<bool>(), 0u8..4), 1..20)) {
        let mut worker = worker(
            "reject ip any any -> any any (content:\"a\"; content:\"b\"; distance:0; sid:1;)\nalert ip any any -> any any (content:!\"c\"; sid:2;)",
        );
        let (mut flow, mut packets) = (Inspection::default(), Packets::new());
        for (mut bytes, reply, kind) in frames {
            // Enough of a header that many parse.
            let protocol = [6, 17, 1, 132][usize::from(kind)];
            let length = (20 + bytes.len()) as u16;
            let mut frame = [&[2; 12][..], &[8, 0, 0x45, 0], &length.to_be_bytes()].concat();
            frame.extend([0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
            if let Some(offset) = bytes.get_mut(12) {
                *offset = 0x50;
            }
            frame.append(&mut bytes);
            let direction = if reply { Direction::Reply } else { Direction::Opening };
            worker.raw().set(1, Side::Inside, direction);
            packets.with(&frame, |packet| worker.process_now(packet, &mut flow));
        }
    }
}

#[test]
fn what_a_packet_costs_is_bounded() {
    // Every byte hits every content of a rule that never fits.
    let contents: String = (0..20).map(|_| "content:\"a\"; distance:0; ").collect();
    let first = contents.replacen(" distance:0;", "", 1);
    let rules = format!("alert udp any any -> any any ({first} content:\"b\"; within:1; sid:1;)");
    let payload = [&b"b"[..], &[b'a'; 1400]].concat();
    let outcome = run(&rules, [udp("10.0.0.1:1", "192.0.2.1:53").payload(payload)]);
    assert_eq!(outcome.counter("searches_given_up"), 1);
}
