//! A new link header: the headers that a router writes in front of a packet.
//!
//! ```text
//!   eth A>B │ VLAN 10 │ IPv4 …      set_ethernet(D, C, 0)
//!           eth C>D   │ IPv4 …      the frame begins four bytes later
//! ```

use super::{FRAME_MAX, Packet, flag};
use crate::LinkType;

impl Packet {
    /// Replaces whatever stands before the IP header of a parsed packet by an Ethernet header, with
    /// an 802.1Q tag if `vlan` is not 0. All that is known of the packet stays known. `false`, and
    /// no change, if there is no room, or if the packet lies under labels: the router that takes
    /// them off says where they lead (RFC 3031 3.18), and here nothing does.
    #[inline]
    pub fn set_ethernet(&mut self, to: [u8; 6], from: [u8; 6], vlan: u16) -> bool {
        let length = if vlan == 0 { 14 } else { 18 };
        // One label takes as many bytes as one tag does. All other labels differ by the length.
        let may_be_labelled = vlan != 0 && self.has(flag::LABELLED);
        if (self.notes.link != LinkType::Ethernet
            || usize::from(self.notes.network) != length
            || may_be_labelled)
            && !self.make_room(length as u16)
        {
            return false;
        }
        let ether_type: u16 = if self.notes.version == 4 { 0x0800 } else { 0x86dd };
        // A packet that was cut behind its parsing may not have it.
        let Some(header) = self.frame_mut().get_mut(..length) else {
            return false;
        };
        header[..6].copy_from_slice(&to);
        header[6..12].copy_from_slice(&from);
        if vlan == 0 {
            header[12..14].copy_from_slice(&ether_type.to_be_bytes());
        } else {
            header[12..14].copy_from_slice(&[0x81, 0]);
            header[14..16].copy_from_slice(&vlan.to_be_bytes());
            header[16..18].copy_from_slice(&ether_type.to_be_bytes());
        }
        self.notes.vlan = vlan;
        true
    }

    /// Makes `length` bytes of the headers before the IP header.
    #[cold]
    fn make_room(&mut self, length: u16) -> bool {
        if self.has(flag::LABELLED) {
            return false;
        }
        let notes = &mut self.notes;
        let Some(start) = (notes.start + notes.network).checked_sub(length) else {
            return false;
        };
        let (old, new) = (u32::from(notes.network), u32::from(length));
        let Some(total) = notes.length.checked_sub(old).map(|rest| rest + new) else {
            return false;
        };
        if total as usize > FRAME_MAX {
            return false;
        }
        notes.start = start;
        notes.length = total;
        notes.wire_length = notes.wire_length.saturating_sub(old).saturating_add(new);
        for offset in [&mut notes.transport, &mut notes.payload, &mut notes.end] {
            *offset = *offset - notes.network + length;
        }
        notes.network = length;
        notes.link = LinkType::Ethernet;
        true
    }
}

#[cfg(test)]
mod tests {
    use crate::LinkType;
    use crate::testing::parsed;
    use std::vec::Vec;

    const TO: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const FROM: [u8; 6] = [2, 0, 0, 0, 0, 2];

    fn packet_behind(head: &[u8]) -> Vec<u8> {
        let mut bytes = head.to_vec();
        etherparse::PacketBuilder::ipv4([10, 0, 0, 1], [192, 0, 2, 1], 64)
            .udp(1000, 53)
            .write(&mut bytes, b"hello")
            .unwrap();
        bytes
    }

    #[test]
    fn labels_are_not_replaced() {
        for depth in 1..4 {
            let mut head = Vec::from([2, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 0x88, 0x47]);
            for n in 1..=depth {
                head.extend([0, 1, if n == depth { 0x11 } else { 0x10 }, 64]);
            }
            let frame = packet_behind(&head);
            for vlan in [0, 10] {
                let mut packet = parsed(LinkType::Ethernet, &frame);
                assert!(!packet.set_ethernet(TO, FROM, vlan));
                assert_eq!(packet.frame(), frame);
            }
        }
    }

    #[test]
    fn a_packet_that_was_cut_behind_its_parsing_gets_no_header() {
        let plain = [2, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 0x08, 0];
        for length in [0, 5, 13] {
            for vlan in [0, 10] {
                let mut packet = parsed(LinkType::Ethernet, &packet_behind(&plain));
                assert!(packet.set_length(length));
                assert!(!packet.set_ethernet(TO, FROM, vlan));
                assert_eq!(packet.frame(), &plain[..length]);
            }
        }
    }

    #[test]
    fn any_link_header_becomes_ethernet_and_the_notes_agree() {
        let tagged = [2, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 0x81, 0, 0, 10, 0x08, 0];
        let twice = [
            2, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 0x88, 0xa8, 0, 7, 0x81, 0, 0, 10, 0x08, 0,
        ];
        let plain = [2, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 0x08, 0];
        let cooked = [0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 9, 0, 0, 0x08, 0];
        let heads: [(&[u8], LinkType); 5] = [
            (&plain, LinkType::Ethernet),
            (&tagged, LinkType::Ethernet),
            (&twice, LinkType::Ethernet),
            (&cooked, LinkType::LinuxSll),
            (&[], LinkType::Raw),
        ];
        for (head, link) in heads {
            for vlan in [0, 10, 4000] {
                let mut packet = parsed(link, &packet_behind(head));
                assert!(packet.set_ethernet(TO, FROM, vlan));
                let written = packet.frame().to_vec();
                assert_eq!(written[..12], [TO, FROM].concat()[..]);
                assert_eq!(packet.wire_length() as usize, written.len());
                let notes = |p: &crate::Packet| {
                    let ends = (p.source(), p.destination());
                    (
                        p.network().to_vec(),
                        p.payload().to_vec(),
                        p.vlan(),
                        ends,
                        p.flags(),
                    )
                };
                let fresh = parsed(LinkType::Ethernet, &written);
                assert_eq!(notes(&packet), notes(&fresh), "{link:?} {vlan}");
                assert_eq!((packet.vlan(), packet.payload()), (vlan, &b"hello"[..]));
            }
        }
    }
}
