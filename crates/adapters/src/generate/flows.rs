//! The flows and their lives: which packet is next, and when.
//!
//! There is a place for each flow at once; when its flow ends, the next one begins there. [`Order`]
//! says whose packet is next; the flow says which packet that is.
//!
//! A TCP flow's packets, the server's in brackets; without `replies` there are only the client's:
//!
//! ```text
//!             begin        [SYN ACK]                last                   [FIN ACK]
//!   Unborn ────── SYN ──▶ Open ── ACK + data ──▶ … ── FIN ACK + data ──▶ Closing ── ACK ──▶ Unborn
//!                          │                           └── a flow of two packets ends here ─▶
//!                          └── a flow of one packet is a SYN alone ─────────────────────────▶
//! ```
//!
//! The client's first sequence number is random, the server's is made from it as the `reflect` port
//! does ([`first_sequence`]); so the client acknowledges the bytes that the port sends, and neither
//! needs to know of the other.
//!
//! Invariants: times never go back; the same profile gives the same packets; a client acknowledges
//! only bytes that have been sent to it by then.
//!
//! Not here: bytes ([`super::packets`]), clocks and buffers ([`super::Generator`]).

use super::distribution::{Alias, Sampler};
use super::order::Order;
use super::packets::{Segment, header_length};
use super::profile::{Kind, KindOfLife, Profile, ProfileError, SharesOf, Sizes};
use super::random::Random;
use super::tuples::{Tuple, Tuples};
use crate::reflect::first_sequence;
use std::collections::VecDeque;
use wire::tcp::flags::{ACK, FIN, PSH, SYN};

/// Bytes of a frame around the IP packet, check sequence included.
const AROUND: u16 = 18;
const UNBOUNDED: u64 = u64::MAX;

/// All flows of a profile.
pub struct Traffic {
    flows: Vec<Flow>,
    kinds: Vec<Kind>,
    new_kinds: Option<Alias>,
    order: Order,
    replies: VecDeque<Reply>,
    /// IPv4, IPv6.
    tuples: [Option<Tuples>; 2],
    random: Random,
    ipv6_share: f64,
    per_packet: f32,
    round_trip: u64,
    /// Flows begun.
    begun: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Unborn,
    Begin,
    Open,
    Closing,
}

/// One place and its flow: a cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Flow {
    /// Packets or bytes still to be sent.
    left: u64,
    ends_at: u64,
    tuple: Tuple,
    first_sequence: u32,
    /// Client's sequence numbers used.
    sent: u32,
    /// The server's next sequence number, and the one the client acknowledges.
    served: u32,
    acknowledged: u32,
    /// Parts of a reply.
    owed: f32,
    id: u16,
    kind: u8,
    stage: Stage,
    tcp: bool,
    six: bool,
    /// `left` counts bytes.
    bytes: bool,
    /// Packets that the end takes: FIN, and ACK if there is one left for it.
    closing: u8,
    /// The flow began with the run.
    first: bool,
}

const _: () = assert!(size_of::<Flow>() == 64);

struct Reply {
    due: u64,
    flow: u32,
    sequence: u32,
    acknowledgement: u32,
    length: u16,
    flags: u8,
}

impl Traffic {
    /// All flows, none begun.
    pub fn new(profile: &Profile) -> Result<Self, ProfileError> {
        profile.check()?;
        let (kinds, shares) = profile.kinds()?;
        let tuples = [Tuples::new(profile, 4)?, Tuples::new(profile, 6)?];
        for (tuples, needed, version) in [
            (&tuples[0], profile.ipv6_share < 1.0, 4),
            (&tuples[1], profile.ipv6_share > 0.0, 6),
        ] {
            if needed && tuples.is_none() {
                return Err(ProfileError::new(
                    "sources",
                    format!(
                        "`sources` or `destinations` have no IPv{version} prefix, and ipv6_share is {}",
                        profile.ipv6_share
                    ),
                    "add one, or change ipv6_share",
                ));
            }
        }
        let mut random = Random::new(profile.seed);
        let flows: Vec<Flow> = (0..profile.flows)
            .map(|n| Flow::unborn(kind_of(n, &shares)))
            .collect();
        let gaps = flows.iter().map(|flow| kinds[usize::from(flow.kind)].gap);
        let order = Order::new(profile, gaps, &mut random);
        Ok(Traffic {
            flows,
            order,
            replies: VecDeque::new(),
            new_kinds: (profile.shares_of == SharesOf::NewFlows).then(|| Alias::new(&shares)),
            kinds,
            tuples,
            random,
            ipv6_share: profile.ipv6_share,
            per_packet: profile.replies as f32,
            round_trip: (profile.round_trip * 1e9) as u64,
            begun: 0,
        })
    }

    /// When the next packet is due, in nanoseconds from the start.
    #[inline]
    pub fn peek(&mut self) -> u64 {
        let packet = self.order.peek();
        match self.replies.front() {
            Some(reply) => packet.min(reply.due),
            None => packet,
        }
    }

    /// Flows begun so far.
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// Takes the packet that is due at [`Traffic::peek`].
    #[inline]
    pub fn take(&mut self) -> Segment {
        let due = self.peek();
        // A reply goes before a packet of the same moment: that packet may acknowledge it.
        if self.replies.front().is_some_and(|r| r.due <= due)
            && let Some(reply) = self.replies.pop_front()
        {
            return self.answer(&reply);
        }
        let (number, soon) = self.order.take(&mut self.random);
        if let Some(place) = soon.and_then(|soon| self.flows.get(soon as usize)) {
            wire::memory::prefetch(place);
        }
        if self.flows[number as usize].stage == Stage::Unborn {
            self.begin(number, due);
        }
        let segment = self.step(number, due);
        self.put_back(number, due, &segment);
        segment
    }

    /// With a rate per flow: when the flow, or the next in its place, is due again.
    #[inline]
    fn put_back(&mut self, number: u32, due: u64, segment: &Segment) {
        let flow = &self.flows[number as usize];
        let gap = self.kinds[usize::from(flow.kind)].gap;
        // The client cannot go on before the answer is there, nor the next flow take the place
        // before.
        let answered = segment.flags & (SYN | FIN) != 0 || flow.stage == Stage::Unborn;
        let at_least = if answered { self.round_trip } else { 0 };
        self.order.put_back(number, due, gap, at_least, &mut self.random);
    }

    fn begin(&mut self, number: u32, now: u64) {
        self.begun += 1;
        let old = &self.flows[number as usize];
        let (first, mut kind) = (old.first, old.kind);
        if let Some(alias) = &self.new_kinds {
            kind = alias.draw(&mut self.random) as u8;
        }
        let class = &self.kinds[usize::from(kind)];
        let tcp = self.random.unit() < class.tcp;
        let six = self.random.unit() < self.ipv6_share;
        let (left, ends_at) = self.life(kind, first, now);
        let bytes = matches!(self.kinds[usize::from(kind)].life, KindOfLife::Bytes(_));
        // A flow of one or two packets has none for a closing ACK.
        let closing = if bytes || left >= 3 { 2 } else { 1 };
        // Both were found to be there if the share can draw them.
        let tuple = self.tuples[usize::from(six)]
            .as_mut()
            .map_or(Tuple::default(), Tuples::next);
        let sequence = self.random.bits() as u32;
        let servers = if tcp { first_sequence(sequence) } else { 0 };
        self.flows[number as usize] = Flow {
            left,
            ends_at,
            tuple,
            first_sequence: sequence,
            sent: 0,
            served: servers,
            acknowledged: servers,
            owed: 0.0,
            id: 0,
            kind,
            stage: if tcp { Stage::Begin } else { Stage::Open },
            tcp,
            six,
            bytes,
            closing,
            first: false,
        };
    }

    /// How much a new flow sends, and when it ends.
    fn life(&mut self, kind: u8, first: bool, now: u64) -> (u64, u64) {
        let Kind { life, gap, .. } = &self.kinds[usize::from(kind)];
        match life {
            KindOfLife::Endless => (UNBOUNDED, UNBOUNDED),
            KindOfLife::Packets(sampler) | KindOfLife::Bytes(sampler) => {
                (sampler.draw_whole(&mut self.random), UNBOUNDED)
            }
            KindOfLife::Seconds(sampler) => {
                let part = if first { self.random.unit_above_zero() } else { 1.0 };
                let life = seconds(sampler, part, &mut self.random);
                match self.order.is_per_flow() {
                    true => (((life / gap).round() as u64).max(1), UNBOUNDED),
                    false => (UNBOUNDED, now.saturating_add(life as u64)),
                }
            }
        }
    }

    /// The client's next packet.
    #[inline]
    fn step(&mut self, number: u32, now: u64) -> Segment {
        let flow = &mut self.flows[number as usize];
        if now >= flow.ends_at && !flow.bytes {
            let rest = if flow.tcp { u64::from(flow.closing) } else { 1 };
            flow.left = flow.left.min(rest);
        }
        let header = header_length(flow.six, flow.tcp);
        let sizes = &self.kinds[usize::from(flow.kind)].sizes;
        let (flags, length, after) = match flow.stage {
            Stage::Begin => (SYN, 0, Stage::Open),
            Stage::Closing => (ACK, 0, Stage::Unborn),
            _ => {
                let drawn = u64::from(draw_size(sizes, &mut self.random) - AROUND).max(header);
                let ip_length = if flow.bytes {
                    flow.share_of_left(drawn, header)
                } else {
                    drawn
                };
                let length = ip_length - header;
                let last = if flow.bytes {
                    flow.left <= ip_length
                } else {
                    flow.left <= flow.last_at()
                };
                match (last, flow.tcp, flow.closing) {
                    (false, ..) => (ACK | PSH, length, Stage::Open),
                    (true, true, 2) => (FIN | ACK, length, Stage::Closing),
                    (true, ..) => (FIN | ACK, length, Stage::Unborn),
                }
            }
        };
        flow.left = match flow.left {
            UNBOUNDED => UNBOUNDED,
            left if flow.bytes => left.saturating_sub(header + length),
            left => left - 1,
        };
        flow.stage = after;
        if flow.left == 0 && after == Stage::Open {
            // A flow of one packet.
            flow.stage = Stage::Unborn;
        }
        let segment = Segment {
            from_client: true,
            flags: if flow.tcp { flags } else { 0 },
            sequence: flow.first_sequence.wrapping_add(flow.sent),
            acknowledgement: if flags == SYN { 0 } else { flow.acknowledged },
            length: length as u16,
            ..segment(flow, &self.tuples)
        };
        let controls = u32::from(flags & (SYN | FIN) != 0);
        flow.sent = flow.sent.wrapping_add(length as u32).wrapping_add(controls);
        flow.id = flow.id.wrapping_add(1);
        if self.per_packet > 0.0 {
            self.reply_to(number, now, &segment);
        } else {
            // The end that plays the server has answered SYN and FIN by the time of the next
            // packet.
            flow.acknowledged = flow.acknowledged.wrapping_add(controls);
        }
        segment
    }

    /// Queues what the server answers.
    fn reply_to(&mut self, number: u32, now: u64, segment: &Segment) {
        let flow = &mut self.flows[number as usize];
        let header = header_length(flow.six, flow.tcp);
        let mut queue = |flags: u8, length: u64, flow: &mut Flow| {
            self.replies.push_back(Reply {
                due: now + self.round_trip,
                flow: number,
                sequence: flow.served,
                acknowledgement: flow.first_sequence.wrapping_add(flow.sent),
                length: length as u16,
                flags,
            });
            let controls = u32::from(flags & (SYN | FIN) != 0);
            flow.served = flow.served.wrapping_add(length as u32).wrapping_add(controls);
        };
        if segment.flags & (SYN | FIN) != 0 {
            return queue(segment.flags | ACK, 0, flow);
        }
        if flow.tcp && flow.stage != Stage::Open {
            // The closing ACK is answered by nothing.
            return;
        }
        flow.owed += self.per_packet;
        while flow.owed >= 1.0 {
            flow.owed -= 1.0;
            let sizes = &self.kinds[usize::from(flow.kind)].sizes;
            let drawn = u64::from(draw_size(sizes, &mut self.random) - AROUND).max(header);
            queue(if flow.tcp { ACK | PSH } else { 0 }, drawn - header, flow);
        }
    }

    fn answer(&mut self, reply: &Reply) -> Segment {
        let flow = &mut self.flows[reply.flow as usize];
        let controls = u32::from(reply.flags & (SYN | FIN) != 0);
        flow.acknowledged = reply
            .sequence
            .wrapping_add(u32::from(reply.length))
            .wrapping_add(controls);
        let Segment {
            addrs: [client, server],
            ports: [client_port, server_port],
            ..
        } = segment(flow, &self.tuples);
        let answer = Segment {
            addrs: [server, client],
            ports: [server_port, client_port],
            from_client: false,
            flags: reply.flags,
            sequence: reply.sequence,
            acknowledgement: reply.acknowledgement,
            length: reply.length,
            ..segment(flow, &self.tuples)
        };
        flow.id = flow.id.wrapping_add(1);
        answer
    }
}

/// A lifetime in nanoseconds.
fn seconds(sampler: &Sampler, part: f64, random: &mut Random) -> f64 {
    (sampler.draw(random) * part * 1e9).clamp(0.0, 1e18)
}

#[inline]
fn segment(flow: &Flow, tuples: &[Option<Tuples>; 2]) -> Segment {
    let addrs = match &tuples[usize::from(flow.six)] {
        Some(tuples) => [tuples.source(&flow.tuple), tuples.destination(&flow.tuple)],
        None => Default::default(),
    };
    Segment {
        addrs,
        ports: [flow.tuple.source_port, flow.tuple.destination_port],
        six: flow.six,
        tcp: flow.tcp,
        from_client: true,
        flags: 0,
        sequence: 0,
        acknowledgement: 0,
        length: 0,
        id: flow.id,
    }
}

impl Flow {
    fn unborn(kind: u8) -> Self {
        Flow {
            left: 0,
            ends_at: 0,
            tuple: Tuple::default(),
            first_sequence: 0,
            sent: 0,
            served: 0,
            acknowledged: 0,
            owed: 0.0,
            id: 0,
            kind,
            stage: Stage::Unborn,
            tcp: false,
            six: false,
            bytes: false,
            closing: 1,
            first: true,
        }
    }

    /// How long an IP packet may be so that exactly the flow's bytes are sent in the end: no longer
    /// than the bytes left, and leaving none or room for another packet's header.
    fn share_of_left(&self, drawn: u64, header: u64) -> u64 {
        let behind = self.left.saturating_sub(drawn);
        if behind == 0 {
            self.left.max(header)
        } else if behind < header {
            (self.left - header).max(header)
        } else {
            drawn
        }
    }

    /// With how many packets left the next one is the last with data.
    fn last_at(&self) -> u64 {
        if self.tcp { u64::from(self.closing) } else { 1 }
    }
}

/// The class of place n: the golden section spreads places evenly over the shares, nearly exactly
/// for any number of them.
fn kind_of(n: u32, shares: &[f64]) -> u8 {
    let whole: f64 = shares.iter().sum();
    let point = (f64::from(n) * 0.618_033_988_749_894_9 + 0.25).fract() * whole;
    let mut below = 0.0;
    for (index, share) in shares.iter().enumerate() {
        below += share;
        if point < below {
            return index as u8;
        }
    }
    (shares.len() - 1) as u8
}

#[inline]
fn draw_size(sizes: &Sizes, random: &mut Random) -> u16 {
    match sizes {
        Sizes::Fixed(size) => *size,
        Sizes::Uniform(from, to) => from + random.below(u64::from(to - from) + 1) as u16,
        Sizes::Table(entries) => {
            let u = random.unit();
            let found = entries.iter().find(|e| u < e.0).or(entries.last());
            found.map_or(64, |e| e.1)
        }
    }
}
