//! A message of a link between processes: a packet behind the notes about it, or a message between
//! workers.
//!
//! Numbers are in network order.
//!
//! | at | bytes | field | meaning |
//! |---|---|---|---|
//! | 0 | 1 | what | 1 a packet, 2 a message between workers ([`crate::message`]), which is the rest |
//! | 1 | 1 | link | link type: 0 loopback, 1 Ethernet, 101 raw, 113 and 200 cooked |
//! | 2 | 1 | way | bit 0: from outside; bit 1: leaves to outside; bit 2: a copy that a function held, between runtimes |
//! | 3 | 1 | flags | see below |
//! | 4 | 1 | port | it came in at |
//! | 5 | 1 | egress | one more than the port it is to leave by; 0 if its side decides |
//! | 6 | 1 | hairpins | how often it was hairpinned: 0 or 1 |
//! | 7 | 1 | protocol | of a followed fragment; 0 of others |
//! | 8 | 4 | wire length | as it was on the wire |
//! | 12 | 4 | ports | source and destination of a followed fragment; 0 of others |
//! | 16 | 8 | hash | of the group by which it was routed |
//! | 24 | 8 | time | of reception, nanoseconds of the sender's clock |
//! | 32 | … | frame | link header first |
//!
//! Flags: bit 0 parsed, 1 both ends inside, 2 hairpin, 3 followed, 4 ICMP error, 5 ICMP query,
//! 6 and 7 watched.
//!
//! # Notes that are carried, and notes that are found again
//!
//! | note of a packet | |
//! |---|---|
//! | offsets, version, VLAN, protocol, ports, all that parsing finds | found again: nothing of the sender's is believed that bytes can say. A packet that the sender had parsed and that does not parse here is refused |
//! | protocol, ports, *ICMP query*, *followed* of a later fragment | carried: the first fragment said them, which went by elsewhere. On a packet that is no fragment they are refused |
//! | *ICMP error* | carried, and holds only where parsing finds one, too: the configuration may have it be none (`Plan::judge_icmp_error`) |
//! | *inside to inside*, *hairpin*, hairpins, side, exit, port, egress | carried: they follow from ports and functions, not from bytes |
//! | *watched* | carried: the mark goes with the packet |
//! | *copy* | carried: a runtime that drops packets handed over by a removed one counts packets, not copies. Of packets of switches that are processed it is cleared (`worker::intake`) |
//! | hash | carried: by which group it was routed, which a runtime compares with its own (`is_routed_here`) and nothing else |
//! | wire length | carried: a capture may hold less |
//! | time | carried, and taken where both ends have one clock; otherwise the receiver's own time is, as another host's says nothing here |
//! | origin, capacity, the next one | the buffer's own |
//!
//! Invariants: a buffer filled here has offsets of its own frame or none; a packet that breaks a
//! rule is a counted refusal and changes nothing but a buffer that is given back.

use core::mem::size_of;
use wire::packet::{Kind, Side, flag};
use wire::{LinkType, Packet};

/// Bytes before a packet's frame.
pub const HEAD: usize = 32;
const PACKET: u8 = 1;
/// The first byte of a message between workers.
pub(super) const WORDS: u8 = 2;

/// Bits of flags on the wire, and what they are in a packet.
const FLAGS: [(u8, u16); 7] = [
    (1, flag::PARSED),
    (2, flag::INSIDE_TO_INSIDE),
    (4, flag::HAIRPIN),
    (8, flag::FOLLOWED),
    (16, flag::ICMP_ERROR),
    (32, flag::ICMP_QUERY),
    (0xc0, flag::WATCHED),
];

/// Why something from another process is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Refused {
    /// Neither packet nor message, or shorter than its head.
    Form,
    /// A field with a value that there is not.
    Field,
    /// A port that the cluster does not have.
    Port,
    /// Longer than a buffer.
    TooLong,
    /// It is said to be parsed, and does not parse.
    Unparsed,
    /// It is said to be a followed fragment, and is none.
    Fragment,
}

impl Refused {
    /// All of them, in the order of [`super::PeerCounters::refused`].
    pub const ALL: [Refused; 6] = [
        Refused::Form,
        Refused::Field,
        Refused::Port,
        Refused::TooLong,
        Refused::Unparsed,
        Refused::Fragment,
    ];
    /// How many there are.
    pub const COUNT: usize = Refused::ALL.len();

    /// Its name in figures.
    pub fn name(self) -> &'static str {
        match self {
            Refused::Form => "form",
            Refused::Field => "field",
            Refused::Port => "port",
            Refused::TooLong => "too_long",
            Refused::Unparsed => "unparsed",
            Refused::Fragment => "fragment",
        }
    }
}

/// The head of a packet.
#[inline]
pub fn write(packet: &Packet) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    let mut flags = 0;
    for (bits, of) in FLAGS {
        flags |= match of {
            flag::WATCHED => (packet.flags() >> 8) as u8 & bits,
            // Elsewhere parsing finds it.
            flag::ICMP_QUERY if !is_followed(packet) => 0,
            of if packet.has(of) => bits,
            _ => 0,
        };
    }
    let copy = u8::from(packet.has(flag::COPY));
    let way = packet.side() as u8 | (packet.exit() as u8) << 1 | copy << 2;
    let egress = packet.egress().map_or(0, |port| port + 1);
    head[..7].copy_from_slice(&[
        PACKET,
        packet.link() as u8,
        way,
        flags,
        packet.port(),
        egress,
        packet.hairpins(),
    ]);
    if is_followed(packet) {
        head[7] = packet.protocol();
        head[12..14].copy_from_slice(&packet.source_port().to_be_bytes());
        head[14..16].copy_from_slice(&packet.destination_port().to_be_bytes());
    }
    head[8..12].copy_from_slice(&packet.wire_length().to_be_bytes());
    head[16..24].copy_from_slice(&packet.hash().to_be_bytes());
    head[24..].copy_from_slice(&packet.timestamp().to_be_bytes());
    head
}

/// A fragment whose transport is known from another one only.
fn is_followed(packet: &Packet) -> bool {
    packet.has(flag::FOLLOWED) && packet.has(flag::LATER_FRAGMENT)
}

fn link_type(number: u8) -> Option<LinkType> {
    let all = [
        LinkType::Ethernet,
        LinkType::Raw,
        LinkType::Loopback,
        LinkType::LinuxSll,
        LinkType::LinuxSll2,
    ];
    all.into_iter().find(|link| *link as u8 == number)
}

fn side(bit: u8) -> Side {
    match bit & 1 {
        0 => Side::Inside,
        _ => Side::Outside,
    }
}

/// Makes what another process said a packet or message in `buffer`. `ports` is how many the cluster
/// has; `now` the time of reception, if it is not the sender's.
#[inline]
pub fn read(said: &[u8], buffer: &mut Packet, ports: u8, now: Option<u64>) -> Result<(), Refused> {
    match said {
        [WORDS, words @ ..] => {
            if !buffer.set_frame(words, LinkType::Raw) {
                return Err(Refused::TooLong);
            }
            buffer.set_kind(Kind::Message);
            Ok(())
        }
        [PACKET, ..] => {
            let (head, frame) = said.split_first_chunk::<HEAD>().ok_or(Refused::Form)?;
            read_packet(
                head,
                frame.len(),
                |into| into.copy_from_slice(frame),
                buffer,
                ports,
                now,
            )
        }
        _ => Err(Refused::Form),
    }
}

/// [`read`] of a packet whose head has been taken off, and whose frame of `length` bytes is
/// elsewhere: `fill` copies it.
#[inline]
pub fn read_packet(
    head: &[u8; HEAD],
    length: usize,
    fill: impl FnOnce(&mut [u8]),
    buffer: &mut Packet,
    ports: u8,
    now: Option<u64>,
) -> Result<(), Refused> {
    let &[_, link, way, bits, port, egress, hairpins, protocol, ..] = head;
    let link = link_type(link).ok_or(Refused::Field)?;
    if way > 7 || hairpins > 1 {
        return Err(Refused::Field);
    }
    // A packet that a function made came in nowhere: it has port 0, if there is none, too.
    if port >= ports.max(1) || egress > ports {
        return Err(Refused::Port);
    }
    if length > buffer.room() {
        return Err(Refused::TooLong);
    }
    buffer.reset(length, link);
    fill(buffer.frame_mut());
    buffer.set_wire_length(u32::from_be_bytes(field(head, 8)));
    buffer.set_side(side(way));
    buffer.set_exit(side(way >> 1));
    buffer.set_port(port);
    if let Some(port) = egress.checked_sub(1) {
        buffer.set_egress(port);
    }
    buffer.clear_hairpins();
    if hairpins > 0 {
        buffer.add_hairpin();
    }
    buffer.set_hash(u64::from_be_bytes(field(head, 16)));
    buffer.set_timestamp(now.unwrap_or_else(|| u64::from_be_bytes(field(head, 24))));
    let is = |flag: u8| bits & flag != 0;
    if is(1) {
        wire::parse(buffer).map_err(|_| Refused::Unparsed)?;
        if !is(16) {
            buffer.clear_flags(flag::ICMP_ERROR);
        }
    }
    let mut carried = u16::from(bits & 0xc0) << 8;
    for (bits, of) in &FLAGS[1..=2] {
        if is(*bits) {
            carried |= of;
        }
    }
    if way & 4 != 0 {
        carried |= flag::COPY;
    }
    buffer.set_flags(carried);
    if is(8) {
        if !buffer.has(flag::FIRST_FRAGMENT | flag::LATER_FRAGMENT) {
            return Err(Refused::Fragment);
        }
        buffer.set_flags(flag::FOLLOWED);
        if buffer.has(flag::LATER_FRAGMENT) {
            let [source, destination] = [12, 14].map(|at| u16::from_be_bytes(field(head, at)));
            buffer.set_ports(source, destination);
            buffer.set_protocol(protocol);
            if is(32) {
                buffer.set_flags(flag::ICMP_QUERY);
            }
        }
    }
    Ok(())
}

#[inline]
fn field<const N: usize>(head: &[u8; HEAD], at: usize) -> [u8; N] {
    let mut value = [0; N];
    value.copy_from_slice(&head[at..at + N]);
    value
}

const _: () = assert!(size_of::<Side>() == 1 && flag::WATCHED >> 8 == 0xc0);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;
    use wire::memory::Region;
    use wire::{PacketBox, Pool};

    fn with_buffers<R>(run: impl FnOnce(&mut PacketBox, &mut PacketBox) -> R) -> R {
        let mut pool = Pool::new(Region::heap(Pool::region_length(2, 2048)), 2, 2048, 0);
        let (mut a, mut b) = (pool.take().unwrap(), pool.take().unwrap());
        let outcome = run(&mut a, &mut b);
        pool.give(a);
        pool.give(b);
        outcome
    }

    fn said(packet: &Packet) -> Vec<u8> {
        [&write(packet)[..], packet.frame()].concat()
    }

    fn datagram(change: impl FnOnce(&mut [u8])) -> Vec<u8> {
        let mut frame = Vec::new();
        etherparse::PacketBuilder::ethernet2([2; 6], [3; 6])
            .ipv4([10, 0, 0, 1], [192, 0, 2, 1], 64)
            .udp(4000, 53)
            .write(&mut frame, &[7; 64])
            .unwrap();
        change(&mut frame);
        frame
    }

    /// A good packet, changed.
    fn refused(frame: &[u8], flags: u16, change: impl FnOnce(&mut Vec<u8>)) -> Result<(), Refused> {
        with_buffers(|packet, buffer| {
            assert!(packet.set_frame(frame, LinkType::Ethernet));
            packet.set_flags(flags);
            let mut said = said(packet);
            change(&mut said);
            read(&said, buffer, 4, Some(5))
        })
    }

    #[test]
    fn what_is_not_as_it_must_be_is_refused() {
        let frame = &datagram(|_| {})[..];
        let parsed = flag::PARSED;
        assert_eq!(refused(frame, parsed, |_| {}), Ok(()));
        assert_eq!(refused(frame, parsed, |said| said.clear()), Err(Refused::Form));
        assert_eq!(refused(frame, parsed, |said| said[0] = 3), Err(Refused::Form));
        assert_eq!(
            refused(frame, parsed, |said| said.truncate(31)),
            Err(Refused::Form)
        );
        assert_eq!(refused(frame, parsed, |said| said[1] = 2), Err(Refused::Field));
        assert_eq!(refused(frame, parsed, |said| said[2] = 8), Err(Refused::Field));
        assert_eq!(refused(frame, parsed, |said| said[6] = 2), Err(Refused::Field));
        assert_eq!(refused(frame, parsed, |said| said[4] = 4), Err(Refused::Port));
        assert_eq!(refused(frame, parsed, |said| said[5] = 5), Err(Refused::Port));
        assert_eq!(
            refused(frame, parsed, |said| said.resize(4000, 0)),
            Err(Refused::TooLong)
        );
        assert_eq!(
            refused(frame, parsed, |said| said.truncate(50)),
            Err(Refused::Unparsed)
        );
        assert_eq!(refused(frame, 0, |said| said.truncate(50)), Ok(()));
        assert_eq!(
            refused(frame, parsed | flag::FOLLOWED, |_| {}),
            Err(Refused::Fragment)
        );
        let later = &datagram(|frame| frame[21] = 2)[..];
        assert_eq!(refused(later, parsed | flag::FOLLOWED, |_| {}), Ok(()));
    }

    /// The configuration may have it that errors are none: the receiver's parsing does not bring
    /// them back, nor the sender's word.
    #[test]
    fn an_icmp_error_is_one_where_both_find_one() {
        let mut frame = Vec::new();
        let quoted = &datagram(|_| {})[14..];
        etherparse::PacketBuilder::ethernet2([2; 6], [3; 6])
            .ipv4([192, 0, 2, 1], [10, 0, 0, 1], 64)
            .icmpv4_raw(3, 1, [0; 4])
            .write(&mut frame, quoted)
            .unwrap();
        let is_error = |frame: &[u8], error: bool| {
            with_buffers(|packet, buffer| {
                assert!(packet.set_frame(frame, LinkType::Ethernet));
                wire::parse(packet).unwrap();
                packet.clear_flags(flag::ICMP_ERROR);
                if error {
                    packet.set_flags(flag::ICMP_ERROR);
                }
                read(&said(packet), buffer, 4, None).unwrap();
                buffer.has(flag::ICMP_ERROR)
            })
        };
        assert!(is_error(&frame, true));
        assert!(!is_error(&frame, false));
        assert!(!is_error(&datagram(|_| {}), true));
    }

    /// The sender's clock is another's, unless it is not.
    #[test]
    fn time_is_the_receivers_or_the_senders() {
        let time = |now| {
            with_buffers(|packet, buffer| {
                assert!(packet.set_frame(&datagram(|_| {}), LinkType::Ethernet));
                packet.set_timestamp(77);
                read(&said(packet), buffer, 4, now).unwrap();
                buffer.timestamp()
            })
        };
        assert_eq!((time(None), time(Some(5))), (77, 5));
    }

    proptest! {
        /// A packet that was accepted is said again in the same words, but for notes that the
        /// receiver does not believe.
        #[test]
        fn hostile_bytes_are_no_harm(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..200),
            shape in any::<u8>(),
        ) {
            // Mostly something that looks like a packet.
            let frame = datagram(|_| {});
            if shape & 1 != 0 && bytes.len() > HEAD {
                bytes[..3].copy_from_slice(&[1, 1, shape >> 6]);
                bytes[6] &= 1;
                bytes.truncate(HEAD);
                bytes.extend(&frame);
                let at = HEAD + usize::from(shape >> 1) % frame.len();
                if shape & 2 != 0 {
                    bytes[at] ^= shape;
                }
            }
            with_buffers(|buffer, again| {
                if read(&bytes, buffer, 255, None).is_err() {
                    return Ok(());
                }
                prop_assert!(buffer.network().len() <= buffer.frame().len());
                if buffer.kind() == Kind::Message {
                    prop_assert_eq!(buffer.frame(), &bytes[1..]);
                    return Ok(());
                }
                prop_assert_eq!(buffer.frame(), &bytes[HEAD..]);
                let said = said(buffer);
                for at in [0, 1, 2, 4, 5, 6, 8, 9, 10, 11] {
                    prop_assert_eq!(said[at], bytes[at]);
                }
                prop_assert_eq!(&said[16..32], &bytes[16..32]);
                prop_assert_eq!(said[3] & !bytes[3], 0, "no flag that was not said");
                prop_assert_eq!(read(&said, again, 255, None), Ok(()));
                prop_assert_eq!(super::super::tests::seen(again), super::super::tests::seen(buffer));
                Ok(())
            })?;
        }
    }
}
