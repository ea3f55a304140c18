//! The steps of a script: packets to be received, and waits.
//!
//! # Theory of operation
//! A [`Step`] is a description; the frame is made when its turn comes, because TCP numbers follow
//! from earlier segments and an [`answer`] goes to where the function sent the packet it answers.
//! Every method returns a changed copy, so one `let web = tcp(…)` serves a whole conversation:
//!
//! ```text
//! web.syn()              10.0.0.1:1000 > 192.0.2.1:80   from inside
//! web.reply().syn_ack()  192.0.2.1:80 > 10.0.0.1:1000   from outside
//! web.payload("GET")     10.0.0.1:1000 > 192.0.2.1:80   with the right sequence and acknowledgement numbers
//! ```
//!
//! Not here: the bytes (`build`).

use nf::{Addr, Endpoint, Side};
use std::time::Duration;
use wire::LinkType;
use wire::tcp::flags;

/// One step of a script. Made by [`tcp`], [`udp`], [`ping`], [`answer`], [`frame`] and [`wait`].
#[derive(Clone, Debug)]
#[must_use = "a step does nothing by itself: put it into a script"]
pub struct Step {
    pub(crate) what: What,
    pub(crate) times: usize,
    /// How far the clock goes on before it.
    pub(crate) after: Option<Duration>,
    /// Of a frame that was cut short when it was captured: its length on the wire.
    pub(crate) wire_length: Option<u32>,
}

#[derive(Clone, Debug)]
pub(crate) enum What {
    Packet(Described),
    Frame(Vec<u8>, LinkType, Side),
    Wait(Duration),
}

/// The sender and the receiver of a described packet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ends {
    Of(Endpoint, Endpoint),
    /// The far end of the packet that left last answers it.
    Answer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Tcp,
    Udp,
    Ping {
        reply: bool,
    },
    /// The protocol of the answered packet.
    Same,
}

/// A packet in words.
#[derive(Clone, Debug)]
pub(crate) struct Described {
    pub ends: Ends,
    pub transport: Transport,
    pub side: Side,
    pub flags: u8,
    pub payload: Vec<u8>,
    pub sequence: Option<u32>,
    pub acknowledgement: Option<u32>,
    pub window: u16,
    pub options: Vec<u8>,
    pub ttl: u8,
    pub vlan: Option<u16>,
    /// An ICMP error from this router that quotes the packet, instead of the packet itself.
    pub unreachable_from: Option<Addr>,
}

/// A TCP segment from inside, with ACK set and no data. Refine it with [`Step::syn`],
/// [`Step::payload`] and others.
///
/// # Panics
/// If an end is not like `10.0.0.1:1000` or `[2001:db8::1]:1000`, or one is IPv4 and the other
/// IPv6.
#[track_caller]
pub fn tcp(source: &str, destination: &str) -> Step {
    described(Transport::Tcp, source, destination)
}

/// A UDP datagram from inside, without data.
///
/// # Panics
/// As [`tcp`].
#[track_caller]
pub fn udp(source: &str, destination: &str) -> Step {
    described(Transport::Udp, source, destination)
}

/// An ICMP echo request (ICMPv6 for IPv6 addresses) from inside; [`Step::reply`] makes it an echo
/// reply.
///
/// # Panics
/// If an address is none, or one is IPv4 and the other IPv6.
#[track_caller]
pub fn ping(source: &str, destination: &str, identifier: u16) -> Step {
    let source = Endpoint::new(addr(source), identifier);
    let destination = Endpoint::new(addr(destination), identifier);
    Step::packet(Described::new(
        Transport::Ping { reply: false },
        ends(source, destination),
    ))
}

/// The far end's answer to the packet that left last: from where that packet went, to where it came
/// from, translated or not, received on the side it left by.
pub fn answer() -> Step {
    Step::packet(Described {
        flags: flags::ACK,
        ..Described::new(Transport::Same, Ends::Answer)
    })
}

/// A frame as it stands, Ethernet unless [`Step::link`] says otherwise, from inside unless
/// [`Step::from_outside`] does.
pub fn frame(bytes: impl Into<Vec<u8>>) -> Step {
    Step::new(What::Frame(bytes.into(), LinkType::Ethernet, Side::Inside))
}

/// A step for each of several frames: a capture, say.
pub fn frames<B: Into<Vec<u8>>>(frames: impl IntoIterator<Item = B>) -> Vec<Step> {
    frames.into_iter().map(frame).collect()
}

/// Moves the clock on: calls that sleep go on, flows expire. The runtime looks at a flow up to 34
/// ms after its time has come, so a test of a timeout waits a little longer than the timeout.
pub fn wait(time: Duration) -> Step {
    Step::new(What::Wait(time))
}

#[track_caller]
fn described(transport: Transport, source: &str, destination: &str) -> Step {
    let flags = if transport == Transport::Tcp {
        flags::ACK
    } else {
        0
    };
    Step::packet(Described {
        flags,
        ..Described::new(transport, ends(endpoint(source), endpoint(destination)))
    })
}

#[track_caller]
fn ends(source: Endpoint, destination: Endpoint) -> Ends {
    assert_eq!(
        source.addr.version(),
        destination.addr.version(),
        "{source} and {destination} are of different IP versions: no packet has both"
    );
    Ends::Of(source, destination)
}

#[track_caller]
fn endpoint(text: &str) -> Endpoint {
    match text.parse() {
        Ok(endpoint) => endpoint,
        Err(_) => {
            panic!("`{text}` is no address and port: write it like `10.0.0.1:1000` or `[2001:db8::1]:1000`")
        }
    }
}

#[track_caller]
fn addr(text: &str) -> Addr {
    match text.parse() {
        Ok(addr) => addr,
        Err(_) => panic!("`{text}` is no address: write it like `10.0.0.1` or `2001:db8::1`"),
    }
}

impl Described {
    fn new(transport: Transport, ends: Ends) -> Self {
        Described {
            ends,
            transport,
            side: Side::Inside,
            flags: 0,
            payload: Vec::new(),
            sequence: None,
            acknowledgement: None,
            window: 65_535,
            options: Vec::new(),
            // The hosts' default (RFC 1700's 64, still Linux's).
            ttl: 64,
            vlan: None,
            unreachable_from: None,
        }
    }
}

impl Step {
    fn new(what: What) -> Self {
        Step {
            what,
            times: 1,
            after: None,
            wire_length: None,
        }
    }

    fn packet(described: Described) -> Self {
        Step::new(What::Packet(described))
    }

    #[track_caller]
    fn changed(&self, change: impl FnOnce(&mut Described)) -> Step {
        let mut step = self.clone();
        match &mut step.what {
            What::Packet(described) => change(described),
            What::Frame(..) => panic!("a frame is taken as it stands: change its bytes"),
            What::Wait(_) => panic!("a wait has no packet to change"),
        }
        step
    }

    #[track_caller]
    fn tcp_changed(&self, change: impl FnOnce(&mut Described)) -> Step {
        self.changed(|described| {
            let fits = matches!(described.transport, Transport::Tcp | Transport::Same);
            assert!(
                fits,
                "only a TCP segment has flags and numbers: begin with `tcp(…)`"
            );
            change(described);
        })
    }

    /// The other way: ends and side change places, an echo request becomes its reply.
    #[track_caller]
    pub fn reply(&self) -> Step {
        self.changed(|described| {
            if let Ends::Of(source, destination) = described.ends {
                described.ends = Ends::Of(destination, source);
            }
            if let Transport::Ping { reply } = &mut described.transport {
                *reply = !*reply;
            }
            described.side = described.side.opposite();
        })
    }

    /// Received on the outside instead of the inside.
    pub fn from_outside(&self) -> Step {
        let mut step = self.clone();
        match &mut step.what {
            What::Packet(described) => described.side = Side::Outside,
            What::Frame(_, _, side) => *side = Side::Outside,
            What::Wait(_) => {}
        }
        step
    }

    /// SYN alone.
    #[track_caller]
    pub fn syn(&self) -> Step {
        self.flags(flags::SYN)
    }

    /// SYN and ACK.
    #[track_caller]
    pub fn syn_ack(&self) -> Step {
        self.flags(flags::SYN | flags::ACK)
    }

    /// ACK alone, as [`tcp`] makes it.
    #[track_caller]
    pub fn ack(&self) -> Step {
        self.flags(flags::ACK)
    }

    /// FIN and ACK.
    #[track_caller]
    pub fn fin(&self) -> Step {
        self.flags(flags::FIN | flags::ACK)
    }

    /// RST and ACK.
    #[track_caller]
    pub fn rst(&self) -> Step {
        self.flags(flags::RST | flags::ACK)
    }

    /// These TCP flags ([`wire::tcp::flags`]) and no others.
    #[track_caller]
    pub fn flags(&self, flags: u8) -> Step {
        self.tcp_changed(|described| described.flags = flags)
    }

    /// Data. A TCP segment gets PSH beside the flags it has.
    #[track_caller]
    pub fn payload(&self, bytes: impl AsRef<[u8]>) -> Step {
        self.changed(|described| {
            described.payload = bytes.as_ref().to_vec();
            if described.flags != 0 {
                described.flags |= flags::PSH;
            }
        })
    }

    /// This sequence number instead of the next by the sent segments.
    #[track_caller]
    pub fn sequence(&self, number: u32) -> Step {
        self.tcp_changed(|described| described.sequence = Some(number))
    }

    /// This acknowledgement number instead of the next by the segments that came the other way.
    #[track_caller]
    pub fn acknowledgement(&self, number: u32) -> Step {
        self.tcp_changed(|described| described.acknowledgement = Some(number))
    }

    /// The TCP window field, 65,535 otherwise.
    #[track_caller]
    pub fn window(&self, window: u16) -> Step {
        self.tcp_changed(|described| described.window = window)
    }

    /// TCP options as bytes, at most 40; filled up with end-of-options to a multiple of four.
    #[track_caller]
    pub fn options(&self, options: &[u8]) -> Step {
        assert!(
            options.len() <= 40,
            "a TCP header has room for 40 bytes of options, not {}",
            options.len()
        );
        self.tcp_changed(|described| described.options = options.to_vec())
    }

    /// Time to live or hop limit, 64 otherwise.
    #[track_caller]
    pub fn ttl(&self, ttl: u8) -> Step {
        self.changed(|described| described.ttl = ttl)
    }

    /// In this VLAN.
    #[track_caller]
    pub fn vlan(&self, identifier: u16) -> Step {
        assert!(
            identifier < 4096,
            "a VLAN's number is below 4096, not {identifier}"
        );
        self.changed(|described| described.vlan = Some(identifier))
    }

    /// Instead of the packet, the ICMP error "host unreachable" about it that `router` sends to its
    /// source. It comes in from the side the packet was headed for; for an [`answer`], it is about
    /// the packet that left last.
    #[track_caller]
    pub fn unreachable(&self, router: &str) -> Step {
        let router = addr(router);
        self.changed(|described| {
            described.unreachable_from = Some(router);
            if !matches!(described.ends, Ends::Answer) {
                described.side = described.side.opposite();
            }
        })
    }

    /// The link layer of a [`frame`], by which its bytes are read.
    #[track_caller]
    pub fn link(&self, kind: LinkType) -> Step {
        let mut step = self.clone();
        match &mut step.what {
            What::Frame(_, link, _) => *link = kind,
            _ => panic!("only a `frame(…)` has a link layer to choose"),
        }
        step
    }

    /// The length on the wire of a [`frame`] that was cut short when it was captured.
    #[track_caller]
    pub fn wire_length(&self, bytes: u32) -> Step {
        assert!(
            matches!(self.what, What::Frame(..)),
            "only a `frame(…)` can have been cut short"
        );
        Step {
            wire_length: Some(bytes),
            ..self.clone()
        }
    }

    /// So long after the step before, as a [`wait`] would have it, but without a step of its own:
    /// the packets of a capture keep their numbers.
    pub fn after(&self, time: Duration) -> Step {
        Step {
            after: Some(time),
            ..self.clone()
        }
    }

    /// The step so many times over. Each counts as a step of its own.
    pub fn times(&self, times: usize) -> Step {
        Step {
            times,
            ..self.clone()
        }
    }

    /// Source and destination, for finding the flow; `None` where they are not in the step.
    pub(crate) fn tuple(&self) -> Option<(Endpoint, Endpoint, u8, u16)> {
        let What::Packet(described) = &self.what else {
            return None;
        };
        let Ends::Of(source, destination) = described.ends else {
            return None;
        };
        let protocol = match described.transport {
            Transport::Tcp => wire::protocol::TCP,
            Transport::Udp => wire::protocol::UDP,
            Transport::Ping { .. } if source.addr.is_v4() => wire::protocol::ICMP,
            Transport::Ping { .. } => wire::protocol::ICMPV6,
            Transport::Same => return None,
        };
        Some((source, destination, protocol, described.vlan.unwrap_or(0)))
    }
}
