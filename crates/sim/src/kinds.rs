//! Further parts of talks in some scenarios: IPv6, fragments, ICMP errors, hairpins; streams, and a
//! host that opens more flows than it may.
//!
//! These are drawn from a stream of their own, and only where the scenario has them
//! ([`Scenario::has_kinds`]): so the seeds of other scenarios do the same as before. Which packet
//! is taken apart, and which arrival is answered with an error, follows from the seed and the
//! packet's identifier.
//!
//! ```text
//!   talk ── over IPv6, or to a host inside by its external endpoint (a hairpin)
//!   packet ── UDP or echo, sometimes ──► 2 to 4 fragments, in their order or not, by one port or by several
//!   arrival ── sometimes ──► an error to its sender, from the host, or from a router before it; quoting all of it, or the first 8 bytes of its transport
//! ```
//!
//! An error changes nothing for the hosts: no host gives up for its sake. The demands on it are in
//! `checkers/delivered`.
//!
//! Not here: how such packets look ([`crate::frame`]).

use crate::frame::{self, End, Label};
use crate::random::{Random, Stream};
use crate::scenario::{HAIRPIN, OPEN, STRANGER, Scenario, even, inside_host, server};
use crate::script::{Fate, Fault, INSIDE_HOSTS, Manner, Move, Part, Script, Talk, Whom};
use crate::streams;

/// How often, in a thousand, things that packets may be.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Kinds {
    /// UDP and echo packets that are taken apart.
    pub parts: u16,
    /// Whether their fragments are sent in any order.
    pub is_shuffled: bool,
    /// Whether they come in by different ports.
    pub is_spread: bool,
    /// Arrivals that are answered with an ICMP error.
    pub errors: u16,
}

/// Routers that errors come from: one outside, one inside.
pub(crate) const ROUTERS: [[u8; 4]; 2] = [[192, 0, 2, 0xcc], [10, 0, 0, 0xcc]];

impl Script {
    /// Draws what else talks are made of, and makes of some moves of a host's groups those of its
    /// IPv6 address.
    pub(crate) fn draw_kinds(&mut self) {
        if self.scenario.has_streams() {
            self.draw_streams();
        }
        if self.scenario.has_waits() && self.shape.is_roomy {
            self.shape.calls_max = (256, 1024);
        }
        if !self.scenario.has_kinds() {
            return;
        }
        let mut random = Random::of(self.seed, Stream::Kinds, self.scenario as u64);
        self.kinds = Kinds {
            parts: random.of_these(&[0, 300, 800]),
            is_shuffled: random.once_in(2),
            is_spread: random.once_in(2),
            errors: random.of_these(&[0, 100, 400]),
        };
        if self.shape.is_roomy {
            self.shape.fragments_max = 1024;
        }
        let scenario = self.scenario;
        // Two flows are one too many where those of all talks just fit.
        let has_room = |talk: &Talk| self.shape.is_roomy || talk.part == Part::Faults;
        for talk in &mut self.talks {
            let (version, hairpin) = (random.once_in(3), random.once_in(4));
            if hairpin && has_room(talk) && may_turn(scenario, talk) {
                talk.to = HAIRPIN;
            } else if version && may_be_v6(scenario, talk) {
                talk.is_v6 = true;
            }
        }
        for Move { whom, .. } in &mut self.moves {
            if let Whom::Host(host) = *whom
                && random.once_in(3)
            {
                *whom = Whom::HostOverV6(host);
            }
        }
    }

    /// Talks that are streams, of hosts that keep to their limits, and one host that does not.
    fn draw_streams(&mut self) {
        let mut random = Random::of(self.seed, Stream::Kinds, self.scenario as u64);
        // The state of one flow takes seven buffers.
        self.shape.own_buffers += 32;
        for (index, talk) in self.talks.iter_mut().enumerate() {
            if talk.manner == Manner::Tcp {
                talk.size = talk.size.max(streams::SEGMENT_MIN);
            }
            if talk.client.addr == STRANGER {
                talk.to = End::new(server(random.below(3) as u16), talk.to.port);
            }
            talk.client.addr = inside_host(index as u16 % (INSIDE_HOSTS - 1));
        }
        let greedy = inside_host(INSIDE_HOSTS - 1);
        let span = self.heals_at;
        for index in 0..random.between(12, 24) as u16 {
            self.talks.push(Talk {
                part: Part::Faults,
                start: random.below(span * 3 / 4),
                manner: Manner::Udp,
                is_v6: false,
                client: End::new(greedy, 41_000 + even(index)),
                to: End::new(server(random.below(3) as u16), OPEN[0]),
                burst: 1,
                rounds: random.between(1, 4) as u16,
                gap: 5_000_000,
                size: 20,
                fate: Fate::Open,
            });
        }
    }

    /// The payload of a request or an answer of a talk.
    pub(crate) fn payload(&self, label: &Label) -> Vec<u8> {
        let talk = &self.talks[usize::from(label.talk)];
        match self.scenario.has_streams() && talk.manner == Manner::Tcp {
            true => streams::segment(label.talk, talk, label.number, label.is_answer),
            false => frame::payload(label, talk.size.into()),
        }
    }

    /// Which request or answer the payload of a packet is that was sent with this label.
    pub(crate) fn label(&self, talk: u16, sent: Option<Label>, payload: &[u8]) -> Option<Label> {
        let is_stream = self.scenario.has_streams()
            && (self.talks.get(usize::from(talk))).is_some_and(|talk| talk.manner == Manner::Tcp);
        match is_stream {
            true => sent.filter(|label| self.payload(label) == payload),
            false => frame::label(payload),
        }
    }

    /// Whether anything is altered on its way.
    pub(crate) fn corrupts(&self) -> bool {
        let storms = self.faults.iter().filter_map(|timed| match timed.fault {
            Fault::Storm { noise, .. } => Some(noise),
            _ => None,
        });
        storms.chain([self.noise]).any(|noise| noise.corrupted > 0)
    }

    /// Into how many fragments a packet is taken apart, and in which order they are sent; `None` if
    /// it is not.
    pub(crate) fn parts_of(&self, talk: &Talk, id: u16) -> Option<(usize, [usize; 4])> {
        if self.kinds.parts == 0 || talk.manner == Manner::Tcp {
            return None;
        }
        let mut random = Random::of(self.seed, Stream::Kinds, 1 << 8 | u64::from(id) << 16);
        if !random.per_mille(self.kinds.parts) {
            return None;
        }
        let count = random.between(2, 4) as usize;
        let mut order = [0, 1, 2, 3];
        if self.kinds.is_shuffled {
            for at in (1..count).rev() {
                order.swap(at, random.below(at as u64 + 1) as usize);
            }
        }
        Some((count, order))
    }

    /// Whether an arrival is answered with an error: by a router or the host itself, quoting all or
    /// not, and which error.
    pub(crate) fn error_about(&self, id: u16) -> Option<(bool, bool, u64)> {
        let mut random = Random::of(self.seed, Stream::Kinds, 2 << 8 | u64::from(id) << 16);
        let draws = random.per_mille(self.kinds.errors);
        draws.then(|| (random.once_in(2), random.once_in(2), random.next()))
    }
}

/// Whether a talk may as well be with a host inside, by its external endpoint.
fn may_turn(scenario: Scenario, talk: &Talk) -> bool {
    let clients = (1..INSIDE_HOSTS).map(inside_host);
    scenario.has_hairpins()
        && talk.fate == Fate::Answered
        && talk.manner != Manner::Ping
        && clients.into_iter().any(|host| host == talk.client.addr)
        && !crate::scenario::VIRTUAL.contains(&talk.to.addr)
}

/// Whether a talk may be over IPv6: between hosts themselves.
fn may_be_v6(_: Scenario, talk: &Talk) -> bool {
    let addr = talk.to.addr;
    !crate::scenario::VIRTUAL.contains(&addr) && !crate::scenario::POOL.contains(&addr)
}
