//! What another process says of a packet: any bytes end somewhere, and what is accepted has offsets of its own frame and is said again
//! in the same words, but for flags that the frame does not bear out.

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
        assert_eq!((packet.frame(), packet.timestamp()), (&input[HEAD..], 7));
        assert!(packet.port() < 8 && packet.egress().is_none_or(|port| port < 8) && packet.turns() < 2);
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
