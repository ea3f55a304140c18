//! The traffic to make: the settings of the generator, with their defaults.
//!
//! ```toml
//! flows = 10000                            # at once
//! rate = { per_flow = 10.0 }               # packets per second of virtual time; or { total = 1e6 }
//! packets_max = 1000000
//! sources = ["10.0.0.0/16", "2001:db8:1::/64"]
//! destinations = ["198.51.100.0/24", "2001:db8:2::/64"]
//! ipv6_share = 0.2
//! replies = 1.0                            # the server's side, too: for chains that translate nothing
//!
//! [[classes]]
//! share = 0.5
//! size = { fixed = 64 }
//! life = { seconds = { fixed = 1.0 } }
//!
//! [[classes]]
//! share = 0.5
//! tcp = 0.0                                # all UDP
//! size = "imix"
//! life = { bytes = { file = "web-search.txt" } }
//! ```
//!
//! Sizes are of Ethernet frames with their check sequence of 4 bytes (RFC 2544, RFC 6985), which is
//! not in the buffer: a "64-byte packet" fills 60 bytes there, and 10 Gb/s carries 14.88 million of
//! them a second.
//!
//! Not here: how the settings are obeyed (`flows`).

use super::distribution::{Distribution, Sampler};
use schemars::JsonSchema;
use serde::Deserialize;
use wire::Prefix;

/// The settings of a generator. [`Profile::default`] is 1,000 TCP flows of 64-byte frames, 10
/// packets a second each, without end.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Profile {
    /// Equal seeds give equal packets.
    pub seed: u64,
    /// How many flows there are at once; when one ends the next begins in its place. Up to 2^24.
    pub flows: u32,
    /// How often packets come.
    pub rate: Rate,
    /// Whether packets come at even intervals or at random ones.
    pub spacing: Spacing,
    /// Which flow has the next packet, with a total rate.
    pub popularity: Popularity,
    /// Whether packets wait for their time or for their reader.
    pub pace: Pace,
    /// The run ends behind so many packets, replies counted.
    pub packets_max: Option<u64>,
    /// The run ends at this time, in seconds of virtual time.
    pub seconds_max: Option<f64>,
    /// Kinds of flows. Without one: [`Class::default`].
    pub classes: Vec<Class>,
    /// The whole of which the classes' shares are parts.
    pub shares_of: SharesOf,
    /// Addresses of clients, as prefixes of either version. Of a large prefix the first 2^24
    /// addresses are used.
    pub sources: Vec<String>,
    /// Ports of clients, first and last. Flows take address and port by a permutation, so no two at
    /// once are the same.
    pub source_ports: (u16, u16),
    /// Addresses of servers.
    pub destinations: Vec<String>,
    /// Ports of servers.
    pub destination_ports: Vec<u16>,
    /// Share of new flows that are IPv6.
    pub ipv6_share: f64,
    /// Packets the server sends for each of the client's data packets; 0 for none, and then SYN and
    /// FIN stay without answer, too. They go to the address that the client used: through a NAT use
    /// the `reflect` port instead.
    pub replies: f64,
    /// Seconds from a packet to its reply, with a rate per flow. With a total rate replies follow
    /// at once.
    pub round_trip: f64,
    /// Whose packets this port gives out. Two generators with one seed and `client` and `server`
    /// are the two ends.
    pub emit: Emit,
}

/// How often packets come, in packets per second of virtual time, replies not counted.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Rate {
    /// From each flow by itself.
    PerFlow(f64),
    /// From all flows together; [`Popularity`] says from which.
    Total(f64),
}

/// Spacing of packets: of each flow, or of all with a total rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Spacing {
    /// Always the same interval.
    Even,
    /// Exponential intervals: a Poisson process.
    Poisson,
}

/// Which flow a packet belongs to.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Popularity {
    /// Any, at random.
    Uniform,
    /// Flow number i with a chance in proportion to 1/i^s.
    Zipf(f64),
    /// The flows in turn.
    Turns,
}

/// The event that a packet waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Pace {
    /// For its reader only. Timestamps are virtual, from 0.
    Reader,
    /// For the worker's clock, counted from the first look at the port.
    Clock,
}

/// Whose packets a port gives out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Emit {
    /// Both sides', in one order, each packet marked with its side.
    Both,
    /// The clients'.
    Client,
    /// The servers'.
    Server,
}

/// The whole of which the classes' shares are parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SharesOf {
    /// Of the flows at once, and so, at equal rates and sizes, of the bandwidth.
    FlowsAtOnce,
    /// Of the flows that begin.
    NewFlows,
}

/// A kind of flows.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Class {
    /// Its share, relative to the other classes'.
    pub share: f64,
    /// Share of TCP in it; the rest is UDP.
    pub tcp: f64,
    /// Packets per second of each flow, where it is not the profile's `rate.per_flow`.
    pub rate: Option<f64>,
    /// Lengths of frames that carry data. TCP's first and last are as short as can be.
    pub size: Size,
    /// How long its flows live.
    pub life: Life,
}

/// Lengths of frames in bytes, check sequence included. Shorter than the headers means as short as
/// can be.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Size {
    /// Always the same.
    Fixed(u16),
    /// The simple IMIX: 7 of 64, 4 of 594 and 1 of 1518 bytes (IP packets of 40, 576 and 1500
    /// bytes, the first padded).
    Imix,
    /// Any between the two.
    Uniform(u16, u16),
    /// Lengths with weights.
    Table(Vec<(u16, f64)>),
}

/// How long a flow lives.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Life {
    /// For ever.
    Endless,
    /// For a time in seconds. The first flows have a random part of theirs behind them, so that not
    /// all end together.
    Seconds(Distribution),
    /// For a number of the client's packets, the first and last of TCP included.
    Packets(Distribution),
    /// For a number of the client's bytes, IP headers included (as NetFlow counts), a closing ACK
    /// of TCP not included.
    Bytes(Distribution),
}

/// The problem of a profile, its place, and the text to write instead.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{at}: {problem}; {remedy}")]
pub struct ProfileError {
    /// Path to the setting.
    pub at: String,
    /// The problem.
    pub problem: String,
    /// The text to write instead.
    pub remedy: String,
}

impl ProfileError {
    /// An error at a setting.
    pub fn new(at: impl Into<String>, problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        ProfileError {
            at: at.into(),
            problem: problem.into(),
            remedy: remedy.into(),
        }
    }
}

impl Default for Profile {
    fn default() -> Self {
        Profile {
            seed: 1,
            flows: 1000,
            rate: Rate::PerFlow(10.0),
            spacing: Spacing::Even,
            popularity: Popularity::Uniform,
            pace: Pace::Reader,
            packets_max: None,
            seconds_max: None,
            classes: Vec::new(),
            shares_of: SharesOf::FlowsAtOnce,
            sources: vec!["10.0.0.0/16".into(), "2001:db8:1::/64".into()],
            source_ports: (1024, 65535),
            destinations: vec!["198.51.100.0/24".into(), "2001:db8:2::/64".into()],
            destination_ports: vec![443, 80],
            ipv6_share: 0.0,
            replies: 0.0,
            round_trip: 0.0,
            emit: Emit::Both,
        }
    }
}

impl Default for Class {
    fn default() -> Self {
        Class {
            share: 1.0,
            tcp: 1.0,
            rate: None,
            size: Size::Fixed(64),
            life: Life::Endless,
        }
    }
}

impl Profile {
    /// The mixture of NFVactor VII-B: short flows of 1 s and long ones of 10 s, 64-byte TCP at 10
    /// packets a second each, half of the bandwidth for each kind.
    pub fn short_and_long(flows: u32) -> Self {
        let class = |seconds| Class {
            share: 0.5,
            life: Life::Seconds(Distribution::Fixed(seconds)),
            ..Class::default()
        };
        Profile {
            flows,
            classes: vec![class(1.0), class(10.0)],
            ..Profile::default()
        }
    }
}

/// A class, checked and ready to draw from.
pub(super) struct Kind {
    pub tcp: f64,
    /// Nanoseconds between two packets of a flow, with a rate per flow.
    pub gap: f64,
    pub sizes: Sizes,
    pub life: KindOfLife,
}

pub(super) enum Sizes {
    Fixed(u16),
    Uniform(u16, u16),
    Table(Vec<(f64, u16)>),
}

pub(super) enum KindOfLife {
    Endless,
    Seconds(Sampler),
    Packets(Sampler),
    Bytes(Sampler),
}

/// The longest frame made, check sequence included.
const SIZE_MAX: u16 = 9018;

impl Profile {
    /// Checks what concerns no class.
    pub(super) fn check(&self) -> Result<(), ProfileError> {
        let refuse = |at: &str, problem: &str, remedy: &str| Err(ProfileError::new(at, problem, remedy));
        if self.flows == 0 || self.flows > 1 << 24 {
            return refuse("flows", "no flow, or too many", "write 1 to 16777216");
        }
        let (rate, at) = match self.rate {
            Rate::PerFlow(rate) => (rate, "rate.per_flow"),
            Rate::Total(rate) => (rate, "rate.total"),
        };
        check_rate(at, rate)?;
        if matches!(self.popularity, Popularity::Zipf(s) if !(0.0..=10.0).contains(&s)) {
            return refuse(
                "popularity.zipf",
                "no exponent of Zipf's law",
                "write 0 (uniform) to 10",
            );
        }
        if !(0.0..=1.0).contains(&self.ipv6_share) {
            return refuse("ipv6_share", "no share", "write 0 to 1");
        }
        if !(0.0..=16.0).contains(&self.replies) {
            return refuse("replies", "no number of replies", "write 0 to 16");
        }
        if !(0.0..=60.0).contains(&self.round_trip) {
            return refuse("round_trip", "no time in seconds", "write 0 to 60");
        }
        if self.round_trip > 0.0 && matches!(self.rate, Rate::Total(_)) {
            return refuse(
                "round_trip",
                "with a total rate a flow may be drawn before its reply is there",
                "leave it out, or set rate.per_flow",
            );
        }
        if self.emit == Emit::Server && self.replies == 0.0 {
            return refuse(
                "emit",
                "there are no servers' packets without replies",
                "set `replies`",
            );
        }
        if self.seconds_max.is_some_and(|s| s.is_nan() || s < 0.0) {
            return refuse("seconds_max", "no time", "write seconds from 0");
        }
        if self.source_ports.0 > self.source_ports.1 {
            return refuse(
                "source_ports",
                "the first is behind the last",
                "write [1024, 65535]",
            );
        }
        if self.destination_ports.is_empty() {
            return refuse("destination_ports", "there is none", "write [443]");
        }
        Ok(())
    }

    pub(super) fn kinds(&self) -> Result<(Vec<Kind>, Vec<f64>), ProfileError> {
        let default = [Class::default()];
        let classes = if self.classes.is_empty() {
            &default[..]
        } else {
            &self.classes
        };
        if classes.len() > 255 {
            return Err(ProfileError::new("classes", "more than 255", "put some together"));
        }
        let mut kinds = Vec::new();
        for (index, class) in classes.iter().enumerate() {
            kinds.push(self.kind(index, class)?);
        }
        let shares: Vec<f64> = classes.iter().map(|c| c.share).collect();
        if shares.iter().sum::<f64>() <= 0.0 {
            return Err(ProfileError::new(
                "classes",
                "all shares are 0",
                "give one a share above 0",
            ));
        }
        Ok((kinds, shares))
    }

    fn kind(&self, index: usize, class: &Class) -> Result<Kind, ProfileError> {
        let at = |setting: &str| format!("classes[{index}].{setting}");
        if !(class.share >= 0.0 && class.share.is_finite()) {
            return Err(ProfileError::new(
                at("share"),
                "no share",
                "write a number from 0",
            ));
        }
        if !(0.0..=1.0).contains(&class.tcp) {
            return Err(ProfileError::new(
                at("tcp"),
                "no share",
                "write 0 (all UDP) to 1 (all TCP)",
            ));
        }
        let per_flow = match self.rate {
            Rate::PerFlow(rate) => class.rate.unwrap_or(rate),
            Rate::Total(rate) => rate,
        };
        check_rate(&at("rate"), per_flow)?;
        Ok(Kind {
            tcp: class.tcp,
            gap: 1e9 / per_flow,
            sizes: sizes(&at("size"), &class.size)?,
            life: match &class.life {
                Life::Endless => KindOfLife::Endless,
                Life::Seconds(d) => KindOfLife::Seconds(d.compile(&at("life.seconds"))?),
                Life::Packets(d) => KindOfLife::Packets(d.compile(&at("life.packets"))?),
                Life::Bytes(d) => KindOfLife::Bytes(d.compile(&at("life.bytes"))?),
            },
        })
    }

    /// The prefixes of one version from a list.
    pub(super) fn prefixes(at: &str, texts: &[String], version: u8) -> Result<Vec<Prefix>, ProfileError> {
        let mut found = Vec::new();
        for (index, text) in texts.iter().enumerate() {
            let prefix: Prefix = text.parse().map_err(|error| {
                ProfileError::new(
                    format!("{at}[{index}]"),
                    format!("`{text}`: {error}"),
                    "write a prefix like 10.0.0.0/16",
                )
            })?;
            if prefix.is_v4() == (version == 4) {
                found.push(prefix);
            }
        }
        Ok(found)
    }
}

fn check_rate(at: &str, rate: f64) -> Result<(), ProfileError> {
    if (1e-6..=1e9).contains(&rate) {
        Ok(())
    } else {
        Err(ProfileError::new(
            at,
            format!("{rate} is no rate"),
            "write packets per second, 1e-6 to 1e9",
        ))
    }
}

fn sizes(at: &str, size: &Size) -> Result<Sizes, ProfileError> {
    let fits = |size: &u16| (64..=SIZE_MAX).contains(size);
    let sizes = match size {
        Size::Fixed(size) if fits(size) => Sizes::Fixed(*size),
        Size::Imix => return sizes(at, &Size::Table(vec![(64, 7.0), (594, 4.0), (1518, 1.0)])),
        Size::Uniform(from, to) if fits(from) && fits(to) && from <= to => Sizes::Uniform(*from, *to),
        Size::Table(entries) if !entries.is_empty() && entries.iter().all(|e| fits(&e.0) && e.1 > 0.0) => {
            let whole: f64 = entries.iter().map(|e| e.1).sum();
            let mut below = 0.0;
            let cumulate = |&(size, weight): &(u16, f64)| {
                below += weight / whole;
                (below, size)
            };
            Sizes::Table(entries.iter().map(cumulate).collect())
        }
        _ => {
            return Err(ProfileError::new(
                at,
                "no length of frames",
                "write 64 to 9018 bytes, check sequence included, and weights above 0",
            ));
        }
    };
    Ok(sizes)
}
