//! Any bytes from the wire or out of a file: no panic, and no state that should not be.

use super::super::config::Config;
use super::super::state::{Connection, Phase};
use super::{Bench, CLIENT, INSIDE, OUTSIDE, REJECT, SERVER, ping, tcp_segment, udp, unreachable};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use nf::{FlowState, NetworkFunction, Side, Verdict};
use proptest::prelude::*;
use wire::{FlowKey, LinkType};

const CHECKING: &str = "verify_checksums = true\n[[rules]]\nname = \"all\"\naction = \"allow\"\n";
const LAX: &str = "invalid = \"allow\"\n[[rules]]\nname = \"all\"\naction = \"allow\"\n";
const PLAIN: &str = "[[rules]]\nname = \"all\"\naction = \"allow\"\n";

/// Frames of one flow each, to be broken.
fn seeds() -> Vec<Vec<u8>> {
    let question = udp(CLIENT, SERVER, &[1; 40]);
    let v6 = {
        let mut frame = Vec::new();
        etherparse::PacketBuilder::ethernet2([2; 6], [4; 6])
            .ipv6([0x20; 16], [0x21; 16], 9)
            .tcp(1, 2, 3, 4)
            .syn()
            .write(&mut frame, &[9; 30])
            .unwrap();
        frame
    };
    alloc::vec![
        tcp_segment(CLIENT, SERVER, "S", 100, 0, &[]),
        tcp_segment(SERVER, CLIENT, "SA", 500, 101, &[]),
        tcp_segment(CLIENT, SERVER, "A", 101, 501, &[3; 60]),
        ping(INSIDE, OUTSIDE, 7, true),
        ping(OUTSIDE, INSIDE, 7, false),
        unreachable(INSIDE, &question),
        question,
        v6,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases * 12))]

    #[test]
    fn broken_frames_panic_nothing(
        config in prop_oneof![Just(CHECKING), Just(LAX), Just(PLAIN), Just(REJECT)],
        sent in proptest::collection::vec(
            (0usize..8, proptest::collection::vec((12usize..100, any::<u8>()), 0..4), 0usize..40, any::<bool>()),
            1..12,
        ),
    ) {
        let seeds = seeds();
        let mut bench = Bench::new(config);
        for (seed, changes, cut, inside) in sent {
            let mut frame = seeds[seed].clone();
            for (at, value) in changes {
                if let Some(byte) = frame.get_mut(at) {
                    *byte = value;
                }
            }
            frame.truncate(frame.len() - cut.min(frame.len()));
            let mut packet = bench.pool.take().unwrap();
            prop_assert!(packet.set_frame(&frame, LinkType::Ethernet));
            if wire::parse(&mut packet).is_ok() && FlowKey::of(&packet).is_some() {
                let side = if inside { Side::Inside } else { Side::Outside };
                // One flow's state meets packets of other flows here: worse than a runtime would do
                // to it.
                bench.opening = None;
                let fresh = bench.flow.phase == Phase::New;
                let verdict = bench.run_packet(side, &mut packet);
                if fresh && matches!(verdict, Verdict::Drop(_)) {
                    prop_assert_eq!(bench.flow, Connection::default());
                }
                prop_assert!(bench.firewall.timeout(&bench.flow).is_some());
                let bytes = nf::plain::bytes_of(&bench.flow);
                prop_assert!(nf::plain::from_bytes::<Connection>(bytes).is_some());
            }
            bench.pool.give(packet);
        }
    }

    #[test]
    fn any_text_in_a_rule_is_read_or_refused(text in "\\PC{0,12}", field in 0usize..7) {
        let field = ["source", "destination", "source_ports", "destination_ports", "protocol", "tcp_flags", "icmp_type"][field];
        let quoted: String = text.chars().filter(|c| *c != '\'').collect();
        let rule = format!("[[rules]]\nname = \"x\"\naction = \"allow\"\n{field} = '{quoted}'\n");
        if let Ok(config) = toml::from_str::<Config>(&rule)
            && let Err(error) = config.program()
        {
            prop_assert!(error.at.starts_with("rules[0]."), "{}", error);
        }
    }
}

#[test]
fn four_bytes_are_committed() {
    assert_eq!(Connection::COMMITTED, 4);
    let mut names = Vec::new();
    Connection::default().each_field(&mut |name, _| names.push(name));
    assert_eq!(names[..4], ["phase", "marks", "scales", "options"]);
}
