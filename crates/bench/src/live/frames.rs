//! The frames of `bench live`: UDP, 64 bytes on a wire, each with its flow's number in it; and what
//! of them comes out.
//!
//! A frame that came through is judged without the system's help: by its number it is known which
//! flow it was, so that its addresses can be compared with what they should be now, and its
//! checksums with what they say.

use adapters::interface::offer::OFFERED;
use std::collections::HashSet;
use std::net::Ipv4Addr;
use wire::checksum::checksum;

/// Where an inside host's frames go to.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 9);
/// The same with a load balancer, and the servers behind it.
pub const VIRTUAL: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 80);
/// See [`VIRTUAL`].
pub const SERVERS: [Ipv4Addr; 2] = [Ipv4Addr::new(203, 0, 113, 11), Ipv4Addr::new(203, 0, 113, 12)];
/// The service's port.
pub const PORT: u16 = 4433;
/// A port to which nothing may go.
pub const REFUSED: u16 = 4434;
/// Flows of one inside host.
const FLOWS_PER_HOST: u32 = 50;
const MARK: [u8; 4] = *b"FKLV";
const IP: usize = 14;
const UDP: usize = 34;
const PAYLOAD: usize = 42;

/// Link addresses: at the ends no interface's, so that the receiving interface drops frames at
/// once; and the gateway's two.
pub mod link {
    pub const INSIDE: [u8; 6] = [2, 0, 0, 0, 1, 1];
    pub const OUTSIDE: [u8; 6] = [2, 0, 0, 0, 2, 1];
    pub const LEFT: [u8; 6] = [2, 0, 0, 0, 1, 0xfe];
    pub const RIGHT: [u8; 6] = [2, 0, 0, 0, 2, 0xfe];
}

/// An address and a port.
pub type End = (Ipv4Addr, u16);

/// A frame's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text {
    pub source: End,
    pub destination: End,
    pub flow: u32,
}

/// The inside end of a flow.
pub fn client(flow: u32) -> End {
    let host = flow / FLOWS_PER_HOST;
    let address = Ipv4Addr::from(0x0a00_0101 + (host / 200) * 256 + host % 200);
    (address, 20_000 + (flow % FLOWS_PER_HOST) as u16)
}

/// A frame from one link address to another.
pub fn write(text: &Text, from: [u8; 6], to: [u8; 6]) -> [u8; OFFERED] {
    let mut frame = [0; OFFERED];
    frame[..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&from);
    frame[12..14].copy_from_slice(&[8, 0]);
    let ip = [0x45, 0, 0, (OFFERED - IP) as u8, 0, 0, 0x40, 0, 64, 17, 0, 0];
    frame[IP..IP + 12].copy_from_slice(&ip);
    frame[IP + 12..IP + 16].copy_from_slice(&text.source.0.octets());
    frame[IP + 16..UDP].copy_from_slice(&text.destination.0.octets());
    let sum = checksum(&frame[IP..UDP]);
    frame[IP + 10..IP + 12].copy_from_slice(&sum.to_be_bytes());
    frame[UDP..UDP + 2].copy_from_slice(&text.source.1.to_be_bytes());
    frame[UDP + 2..UDP + 4].copy_from_slice(&text.destination.1.to_be_bytes());
    frame[UDP + 5] = (OFFERED - UDP) as u8;
    frame[PAYLOAD..PAYLOAD + 4].copy_from_slice(&MARK);
    frame[PAYLOAD + 4..PAYLOAD + 8].copy_from_slice(&text.flow.to_be_bytes());
    // Zero would be no checksum (RFC 768).
    let sum = match checksum(&pseudo(&frame)) {
        0 => 0xffff,
        sum => sum,
    };
    frame[UDP + 6..UDP + 8].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// The bytes that the UDP checksum covers.
fn pseudo(frame: &[u8; OFFERED]) -> Vec<u8> {
    let mut over = frame[IP + 12..UDP].to_vec();
    over.extend([0, 17, 0, (OFFERED - UDP) as u8]);
    over.extend(&frame[UDP..]);
    over
}

/// Reads a frame of ours, whatever has become of it: `None` for other frames, an error for a frame
/// that is damaged or was not forwarded once.
pub fn read(frame: &[u8]) -> Option<Result<Text, String>> {
    let frame: &[u8; OFFERED] = frame.try_into().ok()?;
    if frame[12..14] != [8, 0] || frame[PAYLOAD..PAYLOAD + 4] != MARK {
        return None;
    }
    let quad = |at: usize| [frame[at], frame[at + 1], frame[at + 2], frame[at + 3]];
    let port = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let text = Text {
        source: (quad(IP + 12).into(), port(UDP)),
        destination: (quad(IP + 16).into(), port(UDP + 2)),
        flow: u32::from_be_bytes(quad(PAYLOAD + 4)),
    };
    Some(if frame[IP + 8] != 63 {
        Err(format!("{text:?}: {} hops left of 64, not 63", frame[IP + 8]))
    } else if checksum(&frame[IP..UDP]) != 0 || checksum(&pseudo(frame)) != 0 {
        Err(format!("{text:?}: a checksum is wrong"))
    } else {
        Ok(text)
    })
}

/// Packets that have come out outside, by flow: the ends that replies are between.
#[derive(Debug)]
pub struct Outside {
    pub seen: Vec<Option<Text>>,
    ends: HashSet<(End, End)>,
}

impl Outside {
    /// Nothing of so many flows.
    pub fn new(flows: u32) -> Self {
        Outside {
            seen: vec![None; flows as usize],
            ends: HashSet::new(),
        }
    }

    /// How many flows have not come out.
    pub fn missing(&self) -> usize {
        self.seen.iter().filter(|text| text.is_none()).count()
    }

    /// Takes note of a frame; an error if it should not look so.
    pub fn take(&mut self, text: Text, translated: Ipv4Addr, balanced: bool) -> Result<(), String> {
        let servers: &[Ipv4Addr] = if balanced { &SERVERS } else { &[SERVER] };
        if text.source.0 != translated {
            return Err(format!("{text:?}: its source is not {translated}"));
        }
        if !servers.contains(&text.destination.0) || text.destination.1 != PORT {
            return Err(format!("{text:?}: it is for none of {servers:?}"));
        }
        let Some(place) = self.seen.get_mut(text.flow as usize) else {
            return Err(format!("{text:?}: there is no such flow"));
        };
        match place {
            Some(before) if *before != text => Err(format!("{text:?}: it was {before:?}")),
            Some(_) => Ok(()),
            None => {
                *place = Some(text);
                match self.ends.insert((text.source, text.destination)) {
                    true => Ok(()),
                    false => Err(format!("{text:?}: two flows have these ends")),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(flow: u32) -> Text {
        Text {
            source: client(flow),
            destination: (SERVER, PORT),
            flow,
        }
    }

    #[test]
    fn what_was_written_is_read_and_damage_is_found() {
        let mut frame = write(&text(77), link::INSIDE, link::LEFT);
        assert!(read(&frame).unwrap().unwrap_err().contains("64 hops left"));
        // As a router does: one hop less, the header's checksum mended.
        frame[IP + 8] = 63;
        frame[IP + 10] += 1;
        assert_eq!(read(&frame), Some(Ok(text(77))));
        for at in [IP + 13, UDP + 1, PAYLOAD + 9] {
            let mut damaged = frame;
            damaged[at] ^= 1;
            assert!(read(&damaged).unwrap().unwrap_err().contains("checksum"), "{at}");
        }
        assert_eq!(read(&frame[..59]), None);
        assert_eq!(read(&[0; OFFERED]), None);
    }

    #[test]
    fn flows_have_ends_of_their_own() {
        let all: HashSet<End> = (0..50_000).map(client).collect();
        assert_eq!(all.len(), 50_000);
    }

    #[test]
    fn only_what_was_translated_is_taken() {
        let nat = Ipv4Addr::new(203, 0, 113, 64);
        let mut outside = Outside::new(2);
        let out = |flow, port| Text {
            source: (nat, port),
            destination: (SERVER, PORT),
            flow,
        };
        assert!(outside.take(text(0), nat, false).is_err(), "not translated");
        assert!(outside.take(out(0, 1), nat, true).is_err(), "not balanced");
        assert!(outside.take(out(2, 1), nat, false).is_err(), "no such flow");
        assert_eq!(outside.missing(), 2);
        outside.take(out(0, 1), nat, false).unwrap();
        outside.take(out(0, 1), nat, false).unwrap();
        assert!(
            outside.take(out(0, 2), nat, false).is_err(),
            "another end than before"
        );
        assert!(outside.take(out(1, 1), nat, false).is_err(), "another flow's end");
    }
}
