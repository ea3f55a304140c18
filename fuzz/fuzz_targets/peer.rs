//! Another process's record of a packet: any bytes end somewhere, and an accepted record has
//! offsets of its own frame and is written again as it was, but for flags that the frame does not
//! bear out.

#![no_main]

use libfuzzer_sys::fuzz_target;
use runtime::peer::{HEAD, read, write};
use wire::packet::Kind;
use wire::{FlowKey, LinkType};

fuzz_target!(|input: &[u8]| {
    flowkeep_fuzz::with_packet(LinkType::Raw, 0, &[], |packet, _| {
        if read(input, packet, 8, Some(7)).is_err() {
            return;
        }
        if packet.kind() == Kind::Message {
            assert_eq!(packet.frame(), &input[1..]);
            return;
        }
        let mut frame = input[HEAD..].to_vec();
        // A total length of 0 is written when the packet is parsed, with its checksum.
        let network = packet.network_offset();
        if frame.get(network + 2..network + 4) == Some(&[0, 0]) && frame.len() >= network + 20 {
            for field in [network + 2..network + 4, network + 10..network + 12] {
                frame[field.clone()].copy_from_slice(&packet.frame()[field]);
            }
        }
        assert_eq!((packet.frame(), packet.timestamp()), (&frame[..], 7));
        assert!(packet.port() < 8 && packet.egress().is_none_or(|port| port < 8) && packet.hairpins() < 2);
        let _ = (packet.network(), packet.transport(), packet.payload(), FlowKey::of(packet));
        let said = [&write(packet)[..], packet.frame()].concat();
        for at in [0, 1, 2, 4, 5, 6] {
            assert_eq!(said[at], input[at]);
        }
        assert_eq!((&said[8..12], &said[16..24], said[3] & !input[3]), (&input[8..12], &input[16..24], 0));
        flowkeep_fuzz::with_packet(LinkType::Raw, 0, &[], |again, _| {
            assert_eq!(read(&said, again, 8, None), Ok(()));
            assert_eq!((again.flags(), again.network_offset()), (packet.flags(), packet.network_offset()));
        });
    });
});
