//! The established path: the same bytes as the general rewrite, for whatever comes.

extern crate std;

use super::frames::{assert_checksums, ends, mend_ip, udp_with};
use super::rig::{Rig, pool_of};
use etherparse::PacketBuilder;
use proptest::prelude::*;
use std::vec::Vec;
use wire::memory::Region;
use wire::packet::Packet;
use wire::rewrite::End;
use wire::{Endpoint, LinkType, Pool};

fn segment(from: ([u8; 4], u16), to: ([u8; 4], u16), flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(from.0, to.0, 64);
    let mut header = etherparse::TcpHeader::new(from.1, to.1, 77, 1000);
    header.syn = flags & 2 != 0;
    header.ack = flags & 16 != 0;
    header.fin = flags & 1 != 0;
    builder.tcp_header(header).write(&mut frame, payload).unwrap();
    frame
}

/// Runs `change` on a parsed packet and answers its frame and noted ports.
fn changed(frame: &[u8], change: impl FnOnce(&mut Packet) -> bool) -> Option<(Vec<u8>, u16, u16)> {
    let mut pool = Pool::new(Region::heap(Pool::region_length(1, 2048)), 1, 2048, 0);
    let mut packet = pool.take().unwrap();
    assert!(packet.set_frame(frame, LinkType::Ethernet));
    wire::parse(&mut packet).unwrap();
    let result = change(&mut packet).then(|| {
        (
            packet.frame().to_vec(),
            packet.source_port(),
            packet.destination_port(),
        )
    });
    pool.give(packet);
    result
}

fn wide(end: ([u8; 4], u16)) -> Endpoint {
    Endpoint::new(nf::Addr::v4(end.0), end.1)
}

proptest! {
    #[test]
    fn swapping_is_rewriting(
        from: ([u8; 4], u16),
        to: ([u8; 4], u16),
        new: ([u8; 4], u16),
        flags: u8,
        tcp: bool,
        source: bool,
        no_sum: bool,
        payload in proptest::collection::vec(any::<u8>(), 0..64),
    ) {
        let mut frame = if tcp { segment(from, to, flags, &payload) } else { udp_with(from, to, &payload) };
        if no_sum && !tcp {
            frame[40..42].fill(0);
        }
        let (end, old) = if source { (End::Source, from) } else { (End::Destination, to) };
        let mut seen = None;
        let swapped = changed(&frame, |p| {
            seen = p.swap_v4(end, old, new);
            seen.is_some()
        });
        prop_assert_eq!(&swapped, &changed(&frame, |p| p.rewrite(end, wide(new))));
        assert_checksums(&swapped.unwrap().0);
        prop_assert_eq!(seen, Some(if tcp { frame[47] } else { 0 }));
        // Any other end than the one expected: nothing changes.
        let other = ([old.0[0], old.0[1], old.0[2], old.0[3] ^ 1], old.1);
        prop_assert_eq!(changed(&frame, |p| p.swap_v4(end, other, new).is_some()), None);
        prop_assert_eq!(changed(&frame, |p| p.swap_v4(end, (old.0, old.1 ^ 1), new).is_some()), None);
    }

    #[test]
    fn any_payload_comes_back_as_it_went(payload in proptest::collection::vec(any::<u8>(), 0..200), tcp: bool, cut in 0usize..64) {
        let (x, r) = (([10, 0, 0, 1], 5000), ([198, 51, 100, 7], 53));
        let mut rig = Rig::new(pool_of("203.0.113.1/32"));
        let frame = |from, to| if tcp { segment(from, to, 2, &payload) } else { udp_with(from, to, &payload) };
        let (outside, _) = ends(&rig.send_inside(&frame(x, r)).sent());
        prop_assert_eq!(rig.send_inside(&frame(x, r)).sent(), frame(outside, r));
        prop_assert_eq!(rig.send_outside(&frame(r, outside)).sent(), frame(r, x));
        // Cut off and with bytes of the header changed: no panic, whatever comes of it.
        let mut broken = frame(r, outside);
        broken.truncate(broken.len() - cut.min(broken.len() - 14));
        if broken.len() > 34 {
            broken[14 + cut % 20] ^= 0x55;
            let _ = rig.send_outside(&broken);
            mend_ip_if_whole(&mut broken);
        }
        let _ = rig.send_outside(&broken);
        rig.expire_all();
        rig.assert_empty();
    }
}

fn mend_ip_if_whole(frame: &mut [u8]) {
    if etherparse::Ipv4HeaderSlice::from_slice(&frame[14..]).is_ok_and(|h| h.ihl() == 5) {
        mend_ip(frame);
    }
}
