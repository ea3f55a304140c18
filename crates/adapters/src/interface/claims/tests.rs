//! Requests and their answers, byte by byte; other frames stay as they are.

use super::*;
use proptest::prelude::*;
use wire::memory::Region;

const LINK: [u8; 6] = [2, 0, 0, 0, 0, 0xfe];
const ASKER: [u8; 6] = [2, 0, 0, 0, 0, 7];

fn pool() -> Pool {
    Pool::new(Region::heap(Pool::region_length(40, 256)), 40, 256, 0)
}

fn responder() -> Responder {
    let mut responder = Responder::new(LINK);
    responder.claim(&[
        "203.0.113.0/30".parse().unwrap(),
        "2001:db8::80/128".parse().unwrap(),
    ]);
    responder
}

fn arp(sender: [u8; 4], target: [u8; 4], tags: &[u8]) -> Vec<u8> {
    let mut frame = [[0xff; 6], ASKER].concat();
    frame.extend(tags);
    frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    frame.extend(ASKER);
    frame.extend(sender);
    frame.extend([0; 6]);
    frame.extend(target);
    frame
}

fn solicitation(source: &str, to: &str, target: &str) -> Vec<u8> {
    let octets = |text: &str| text.parse::<std::net::Ipv6Addr>().unwrap().octets();
    let mut frame = [[0x33, 0x33, 0xff, 0, 0, 0x80], ASKER].concat();
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 24, 58, 255]);
    frame.extend(octets(source));
    frame.extend(octets(to));
    let mut message = vec![135, 0, 0, 0, 0, 0, 0, 0];
    message.extend(octets(target));
    let sum = !fold(sum(&message, pseudo_sum(octets(source), octets(to), 24)));
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    frame.extend(message);
    frame
}

/// The answer to a frame; `None` if it is not answered, and it must be unchanged then.
fn answered(frame: &[u8]) -> Option<Vec<u8>> {
    let mut pool = pool();
    let mut packet = pool.take().unwrap();
    assert!(packet.set_frame(frame, LinkType::Ethernet));
    let answered = responder().answer(&mut packet);
    let after = packet.frame().to_vec();
    pool.give(packet);
    if answered {
        return Some(after);
    }
    assert_eq!(after, frame);
    None
}

#[test]
fn a_request_for_a_claimed_address_is_answered() {
    for tags in [&[][..], &[0x81, 0, 0, 7], &[0x88, 0xa8, 0, 9, 0x81, 0, 0, 7]] {
        let reply = answered(&arp([203, 0, 113, 254], [203, 0, 113, 2], tags)).unwrap();
        let mut expected = [ASKER, LINK].concat();
        expected.extend(tags);
        expected.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 2]);
        expected.extend(LINK);
        expected.extend([203, 0, 113, 2]);
        expected.extend(ASKER);
        expected.extend([203, 0, 113, 254]);
        assert_eq!(reply, expected);
    }
    // A probe: is the address free?
    assert!(answered(&arp([0; 4], [203, 0, 113, 3], &[])).is_some());
}

#[test]
fn a_solicitation_for_a_claimed_address_is_answered() {
    let asked = solicitation("2001:db8::1", "ff02::1:ff00:80", "2001:db8::80");
    let reply = answered(&asked).unwrap();
    assert_eq!(reply[..12], [ASKER, LINK].concat());
    let (header, message) = reply[14..].split_at(40);
    assert_eq!(header[..8], [0x60, 0, 0, 0, 0, 32, 58, 255]);
    assert_eq!(header[8..24], asked[62..78], "from the target");
    assert_eq!(header[24..], asked[22..38], "to the asker");
    assert_eq!((message[0], message[1], message[4]), (136, 0, 0x60));
    assert_eq!(message[24..], [&[2, 1][..], &LINK].concat());
    let (from, to) = (field(header, 8), field(header, 24));
    assert_eq!(fold(sum(message, pseudo_sum(from, to, 32))), 0xffff);
    // The sender has no address yet: all nodes are told.
    let reply = answered(&solicitation("::", "ff02::1:ff00:80", "2001:db8::80")).unwrap();
    assert_eq!(reply[..6], ALL_NODES_LINK);
    assert_eq!(reply[38..54], ALL_NODES);
    assert_eq!(reply[58], 0x20, "not solicited");
}

#[test]
fn what_is_no_request_for_a_claimed_address_is_left_alone() {
    let request = arp([203, 0, 113, 254], [203, 0, 113, 2], &[]);
    let asked = solicitation("2001:db8::1", "ff02::1:ff00:80", "2001:db8::80");
    let with = |frame: &[u8], at: usize, value: u8| {
        let mut frame = frame.to_vec();
        frame[at] = value;
        frame
    };
    for (what, frame) in [
        ("another address", arp([203, 0, 113, 254], [203, 0, 113, 4], &[])),
        ("an announcement", arp([203, 0, 113, 2], [203, 0, 113, 2], &[])),
        ("a reply", with(&request, 21, 2)),
        ("from a group", with(&request, 6, 3)),
        ("on behalf of a group", with(&request, 22, 3)),
        ("on behalf of all", {
            let mut frame = request.clone();
            frame[22..28].fill(0xff);
            frame
        }),
        ("not Ethernet", with(&request, 15, 6)),
        ("cut off", request[..41].to_vec()),
        (
            "another IPv6 address",
            solicitation("2001:db8::1", "ff02::1:ff00:81", "2001:db8::81"),
        ),
        ("from another network", with(&asked, 21, 254)),
        ("a wrong checksum", with(&asked, 56, asked[56] ^ 1)),
        ("an advertisement", with(&asked, 54, 136)),
        ("longer than the frame", with(&asked, 19, 25)),
        ("too short a message", with(&asked, 19, 23)),
    ] {
        assert_eq!(answered(&frame), None, "{what}");
    }
}

#[test]
fn claimed_addresses_are_announced_once_each_within_the_bound() {
    let (mut pool, mut responder) = (pool(), responder());
    let mut burst = Burst::new();
    responder.announce(&mut pool, &mut burst);
    assert_eq!(burst.len(), 5);
    assert!(!{
        responder.announce(&mut pool, &mut burst);
        responder.has_news()
    });
    for (last, packet) in (0..4).zip(&burst) {
        let frame = packet.frame();
        assert_eq!(frame[..6], [0xff; 6]);
        assert_eq!(
            (frame[21], &frame[28..32], &frame[38..42]),
            (1, &[203, 0, 113, last][..], &[203, 0, 113, last][..])
        );
    }
    assert_eq!(burst[4].frame()[..6], ALL_NODES_LINK);
    assert_eq!(burst[4].frame()[54], 136);
    burst.drain(..).for_each(|packet| pool.give(packet));
    let mut responder = Responder::new(LINK);
    responder.claim(&["10.0.0.0/8".parse().unwrap(), "2001:db8::/64".parse().unwrap()]);
    let mut announced = 0;
    while responder.has_news() {
        responder.announce(&mut pool, &mut burst);
        announced += burst.len();
        burst.drain(..).for_each(|packet| pool.give(packet));
    }
    assert_eq!(announced, ANNOUNCED_MAX as usize);
}

#[test]
fn picked_requests_are_counted_apart() {
    let (mut pool, responder) = (pool(), responder());
    let (mut burst, mut answers) = (Burst::new(), Burst::new());
    let request = arp([203, 0, 113, 254], [203, 0, 113, 2], &[]);
    let mut counters = PortCounters::default();
    for frame in [&request[..], &[0; 60], &request] {
        let mut packet = pool.take().unwrap();
        packet.set_frame(frame, LinkType::Ethernet);
        burst.push(packet);
        counters.received_packets += 1;
        counters.received_bytes += frame.len() as u64;
    }
    responder.pick(&mut burst, 0, &mut answers, &mut counters);
    assert_eq!((burst.len(), answers.len()), (1, 2));
    let expected = PortCounters {
        received_packets: 1,
        received_bytes: 60,
        answered_packets: 2,
        ..PortCounters::default()
    };
    assert_eq!(counters, expected);
    burst
        .drain(..)
        .chain(answers.drain(..))
        .for_each(|packet| pool.give(packet));
}

proptest! {
    #[test]
    fn no_bytes_do_harm(bytes in proptest::collection::vec(any::<u8>(), 0..120), kind in 0..3) {
        let mut frame = bytes;
        match kind {
            1 if frame.len() >= 22 => frame[12..22].copy_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]),
            2 if frame.len() >= 22 => frame[12..22].copy_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0, 0, 24, 58, 255]),
            _ => {}
        }
        answered(&frame);
    }
}
