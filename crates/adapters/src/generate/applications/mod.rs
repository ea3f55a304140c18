//! A port that plays applications: recorded connections, each begun so often a second, with
//! addresses of their own.
//!
//! # Theory of operation
//!
//! Each template (a capture of one connection, [`template`]) begins again at its rate; each
//! beginning takes a client, a client's port and a server from the profile's prefixes, and then its
//! packets follow at their recorded times, with these addresses in place of the recorded ones and
//! the checksums mended.
//!
//! ```text
//!   DNS, 498 a second:   16.0.0.1:1024 ▶ 48.0.0.1:53 query, 10 ms later the answer
//!   HTTP, 102 a second:  SYN, SYN ACK, ACK, GET …  44 packets, with the recorded pauses
//! ```
//!
//! A template with several connections between its ends (RTSP with its RTP) keeps the ports of all
//! but the first. Addresses inside the data (SDP in SIP, for example) stay as recorded.
//!
//! Invariants: as the generator's: the same settings give the same packets at the same times; each
//! connection has all of its template's packets, in order (`tests`).
//!
//! Not here: reaction to loss, timing by round trip (TRex's `ipg` and `rtt`); the recorded times
//! are played.
//!
//! Source: TRex's stateful traffic profiles, of which SFR is one.

pub mod template;

#[cfg(test)]
mod tests;

use super::paced::{self, Made, Paced, Source};
use super::profile::{Emit, Profile, ProfileError, Spacing};
use super::random::Random;
use super::tuples::{Tuple, Tuples};
use schemars::JsonSchema;
use serde::Deserialize;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::Path;
use template::{Template, read_list};
use wire::packet::Side;
use wire::{Endpoint, LinkType, Packet};

/// Settings of the applications' port.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApplicationsProfile {
    /// A TRex traffic profile; its captures lie beside it.
    pub mix: String,
    /// Connections per second, as a multiple of the mix's. Default: 1.
    #[serde(default = "one")]
    pub factor: f64,
    /// Prefixes, client ports, seed, spacing of beginnings, pace, limits and `emit`. Its flows,
    /// rate, classes, replies and destination ports are not used: the mix has its own. IPv4 only.
    #[serde(default)]
    pub traffic: Profile,
}

fn one() -> f64 {
    1.0
}

/// A connection being played.
struct Playing {
    template: u32,
    next: u32,
    start: u64,
    tuple: Tuple,
}

/// Connections of a mix.
pub struct Mix {
    templates: Vec<Template>,
    tuples: Tuples,
    random: Random,
    spacing: Spacing,
    factor: f64,
    /// Due times of templates' next beginnings (numbers below their count) and of connections' next
    /// packets (above).
    due: BinaryHeap<Reverse<(u64, u32)>>,
    playing: Vec<Playing>,
    /// Places in `playing` that are free.
    free: Vec<u32>,
    begun: Vec<u64>,
    /// No connection begins from then on.
    end: u64,
}

/// A port that receives applications' packets.
pub type Applications = Paced<Mix>;

impl Applications {
    /// Reads the mix and its captures.
    pub fn new(profile: &ApplicationsProfile) -> Result<Self, ProfileError> {
        let traffic = Profile {
            ipv6_share: 0.0,
            replies: 1.0,
            ..profile.traffic.clone()
        };
        traffic.check()?;
        Ok(Paced::over(Mix::new(profile, &traffic)?, &traffic))
    }

    /// Templates' names and how many connections of each have begun.
    pub fn begun(&self) -> impl Iterator<Item = (&str, u64)> {
        let names = self.source.templates.iter().map(|t| t.name.as_str());
        names.zip(self.source.begun.iter().copied())
    }
}

impl Mix {
    fn new(profile: &ApplicationsProfile, traffic: &Profile) -> Result<Self, ProfileError> {
        if !(1e-6..=1e6).contains(&profile.factor) {
            return Err(ProfileError::new(
                "factor",
                "no multiple",
                "write a number above 0",
            ));
        }
        let templates = read_list(Path::new(&profile.mix))?;
        let tuples = Tuples::new(traffic, 4)?.ok_or_else(|| {
            ProfileError::new(
                "traffic.sources",
                "`sources` or `destinations` have no IPv4 prefix",
                "add one",
            )
        })?;
        let mut random = Random::new(traffic.seed);
        let first = |(number, template): (u32, &Template)| {
            let gap = 1e9 / (template.rate * profile.factor);
            Reverse(((gap * random.unit()) as u64, number))
        };
        let due = (0..).zip(&templates).map(first).collect();
        Ok(Mix {
            begun: vec![0; templates.len()],
            templates,
            tuples,
            random,
            spacing: traffic.spacing,
            factor: profile.factor,
            due,
            playing: Vec::new(),
            free: Vec::new(),
            end: paced::end(traffic),
        })
    }

    fn begin(&mut self, now: u64, template: u32) {
        self.begun[template as usize] += 1;
        let gap = 1e9 / (self.templates[template as usize].rate * self.factor);
        let wait = match self.spacing {
            Spacing::Even => gap,
            Spacing::Poisson => gap * self.random.exponential(),
        };
        self.due.push(Reverse((now + (wait as u64).max(1), template)));
        let connection = Playing {
            template,
            next: 0,
            start: now,
            tuple: self.tuples.next(),
        };
        let place = match self.free.pop() {
            Some(place) => {
                self.playing[place as usize] = connection;
                place
            }
            None => {
                self.playing.push(connection);
                self.playing.len() as u32 - 1
            }
        };
        self.due.push(Reverse((now, self.templates.len() as u32 + place)));
    }
}

impl Source for Mix {
    /// Begins the connections that are due before or with the next packet; says when that packet is
    /// due.
    fn peek(&mut self) -> u64 {
        loop {
            match self.due.peek() {
                Some(&Reverse((due, number)))
                    if (number as usize) < self.templates.len() && due < self.end =>
                {
                    self.due.pop();
                    self.begin(due, number);
                }
                Some(Reverse((due, _))) => return *due,
                None => return u64::MAX,
            }
        }
    }

    fn take(&mut self, emit: Emit, packet: &mut Packet) -> Made {
        let Some(Reverse((_, number))) = self.due.pop() else {
            return Made::OtherEnds;
        };
        let place = number - self.templates.len() as u32;
        let connection = &mut self.playing[place as usize];
        let template = &self.templates[connection.template as usize];
        let recorded = &template.packets[connection.next as usize];
        connection.next += 1;
        match template.packets.get(connection.next as usize) {
            Some(following) => self
                .due
                .push(Reverse((connection.start + following.after, number))),
            None => self.free.push(place),
        }
        if !emit.wants(recorded.from_client) {
            return Made::OtherEnds;
        }
        if !packet.set_frame(template.frame(recorded), LinkType::Ethernet) {
            return Made::Refused;
        }
        packet.set_wire_length(recorded.wire_length);
        if wire::parse(packet).is_err() {
            return Made::Refused;
        }
        let tuple = &connection.tuple;
        let (client, server) = (self.tuples.source(tuple), self.tuples.destination(tuple));
        let port = |recorded| {
            if recorded == template.client_port {
                tuple.source_port
            } else {
                recorded
            }
        };
        let (from, to) = (packet.source_port(), packet.destination_port());
        if recorded.from_client {
            packet.set_source(Endpoint::new(client, port(from)));
            packet.set_destination(Endpoint::new(server, to));
            packet.set_side(Side::Inside);
        } else {
            packet.set_source(Endpoint::new(server, from));
            packet.set_destination(Endpoint::new(client, port(to)));
            packet.set_side(Side::Outside);
        }
        Made::Packet
    }
}
