//! A rule, taken apart: the meaning of each of its words, before all rules are put together.
//!
//! Not here: the text (`parse`), the compiled set (`ruleset`).

use super::spans::Spans;
use alloc::string::String;
use alloc::vec::Vec;
use wire::protocol;

/// The action of a rule. In the order in which rules are asked (Suricata's `action-order`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Action {
    /// Nothing more is looked at.
    Pass,
    /// The packet vanishes, with an alert.
    Drop,
    /// The packet is answered by a reset or an ICMP error, with an alert.
    Reject,
    /// An alert.
    Alert,
}

impl Action {
    /// As written.
    pub fn name(self) -> &'static str {
        match self {
            Action::Pass => "pass",
            Action::Drop => "drop",
            Action::Reject => "reject",
            Action::Alert => "alert",
        }
    }
}

/// Which packets a rule is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Protocol {
    /// Any.
    Ip,
    /// Any over IPv4.
    Ipv4,
    /// Any over IPv6.
    Ipv6,
    /// TCP.
    Tcp,
    /// TCP, each packet by itself.
    TcpPacket,
    /// TCP, the stream only.
    TcpStream,
    /// UDP.
    Udp,
    /// ICMP or ICMPv6.
    Icmp,
    /// ICMP.
    Icmpv4,
    /// ICMPv6.
    Icmpv6,
    /// SCTP.
    Sctp,
}

impl Protocol {
    /// Whether a rule about it is about packets of an IP version and protocol.
    #[inline]
    pub fn has(self, version: u8, number: u8) -> bool {
        match self {
            Protocol::Ip => true,
            Protocol::Ipv4 => version == 4,
            Protocol::Ipv6 => version == 6,
            Protocol::Tcp | Protocol::TcpPacket | Protocol::TcpStream => number == protocol::TCP,
            Protocol::Udp => number == protocol::UDP,
            Protocol::Icmp => matches!(number, protocol::ICMP | protocol::ICMPV6),
            Protocol::Icmpv4 => number == protocol::ICMP,
            Protocol::Icmpv6 => number == protocol::ICMPV6,
            Protocol::Sctp => number == protocol::SCTP,
        }
    }

    /// Whether it is about streams as well as packets, if not about streams alone.
    pub fn has_streams(self) -> bool {
        self != Protocol::TcpPacket && (self.has(4, protocol::TCP) || self.has(6, protocol::TCP))
    }
}

/// Every protocol with its name.
pub(super) const PROTOCOLS: &[(&str, Protocol)] = &[
    ("ip", Protocol::Ip),
    ("ip4", Protocol::Ipv4),
    ("ipv4", Protocol::Ipv4),
    ("ip6", Protocol::Ipv6),
    ("ipv6", Protocol::Ipv6),
    ("tcp", Protocol::Tcp),
    ("tcp-pkt", Protocol::TcpPacket),
    ("tcp-stream", Protocol::TcpStream),
    ("udp", Protocol::Udp),
    ("icmp", Protocol::Icmp),
    ("icmpv4", Protocol::Icmpv4),
    ("icmpv6", Protocol::Icmpv6),
    ("sctp", Protocol::Sctp),
];

/// The condition on a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Numbers {
    /// This one.
    Equal(u32),
    /// Any but this one.
    Not(u32),
    /// Less.
    Below(u32),
    /// More.
    Above(u32),
    /// Between the two, neither of them.
    Between(u32, u32),
}

impl Numbers {
    /// Whether a number is as it must be.
    #[inline]
    pub fn hold(self, number: u32) -> bool {
        match self {
            Numbers::Equal(n) => number == n,
            Numbers::Not(n) => number != n,
            Numbers::Below(n) => number < n,
            Numbers::Above(n) => number > n,
            Numbers::Between(low, high) => low < number && number < high,
        }
    }
}

/// The field of a packet that a rule asks about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Field {
    /// Bytes of payload.
    PayloadLength,
    /// Sequence number of a segment.
    Sequence,
    /// Acknowledgement number of a segment.
    Acknowledgement,
    /// Time to live or hop limit.
    TimeToLive,
    /// ICMP type.
    IcmpType,
    /// ICMP code.
    IcmpCode,
    /// Identifier of an ICMP query.
    IcmpIdentifier,
    /// Sequence number of an ICMP query.
    IcmpSequence,
    /// IP protocol.
    IpProtocol,
}

/// How TCP flags are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum FlagMode {
    /// These and no others.
    Exactly,
    /// These, and others as they like.
    AtLeast,
    /// One of these.
    Any,
    /// Not all of these.
    Not,
}

/// The condition on TCP flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Flags {
    /// How they are compared.
    pub mode: FlagMode,
    /// The flags.
    pub flags: u8,
    /// Flags that are not looked at.
    pub ignored: u8,
}

impl Flags {
    /// Whether a segment's flags are as they must be.
    #[inline]
    pub fn hold(self, flags: u8) -> bool {
        if self.flags == 0 && flags != 0 {
            // `0` is no flag at all, those to ignore counted (Suricata's `FlagsMatch`).
            return self.mode == FlagMode::Not;
        }
        let seen = flags & !self.ignored;
        match self.mode {
            FlagMode::Exactly => seen == self.flags,
            FlagMode::AtLeast => seen & self.flags == self.flags,
            FlagMode::Any => seen & self.flags != 0,
            FlagMode::Not => seen & self.flags != self.flags,
        }
    }
}

/// Bytes to be found, or not to be found.
#[derive(Clone, PartialEq, Eq, Debug, Hash, Default)]
pub struct Content {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// They must not be there.
    pub negated: bool,
    /// Upper and lower case are one.
    pub nocase: bool,
    /// It begins so many bytes from the beginning, or later.
    pub offset: Option<u32>,
    /// It ends within so many bytes from `offset`.
    pub depth: Option<u32>,
    /// It begins so many bytes behind the content before, or later.
    pub distance: Option<i32>,
    /// It ends within so many bytes from there.
    pub within: Option<u32>,
    /// It ends the payload.
    pub at_end: bool,
    /// By this one the rule is found.
    pub fast: bool,
    /// It has no place at all (`fast_pattern:only`).
    pub fast_only: bool,
}

impl Content {
    /// Whether it has a place from the beginning.
    pub fn has_place(&self) -> bool {
        self.offset.is_some() || self.depth.is_some()
    }

    /// Whether its place is counted from the content before.
    pub fn is_relative(&self) -> bool {
        self.distance.is_some() || self.within.is_some()
    }
}

/// A change of flow bits, or a question about them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum BitWord {
    /// Set.
    Set,
    /// Cleared.
    Unset,
    /// Turned over.
    Toggle,
    /// One of them must be set.
    IsSet,
    /// One of them must not be set.
    IsNotSet,
}

/// A word on flow bits, by name.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub struct Bits {
    /// The word.
    pub word: BitWord,
    /// The bits' names; one, but for the questions.
    pub names: Vec<String>,
}

/// How alerts are thinned out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum ThresholdKind {
    /// The first `count` in a period alert.
    Limit,
    /// Every `count`th in a period alerts.
    Threshold,
    /// The `count`th in a period alerts, and no other.
    Both,
    /// Matches behind the `count`th in a period alert (`detection_filter`).
    Filter,
}

/// By what matches are counted together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Track {
    /// The source address.
    Source,
    /// The destination address.
    Destination,
    /// Both.
    Pair,
    /// All of the rule's.
    Rule,
}

/// How alerts are thinned out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Threshold {
    /// Which of them alert.
    pub kind: ThresholdKind,
    /// Which matches are counted together.
    pub track: Track,
    /// How many.
    pub count: u32,
    /// The period in seconds.
    pub seconds: u32,
}

/// A rule.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub struct Rule {
    /// Line of the file on which it begins.
    pub line: usize,
    /// Its action.
    pub action: Action,
    /// Which packets.
    pub protocol: Protocol,
    /// Source addresses and ports.
    pub source: (Spans, Spans),
    /// Destination addresses and ports.
    pub destination: (Spans, Spans),
    /// The other way as well (`<>`).
    pub both_ways: bool,
    /// Text of the alert.
    pub message: String,
    /// Its number.
    pub sid: u32,
    /// Its group.
    pub gid: u32,
    /// Its revision.
    pub revision: u32,
    /// Name of its class.
    pub class: String,
    /// Its priority, if it says one.
    pub priority: Option<u8>,
    /// Only packets to the server (true), or to the client.
    pub to_server: Option<bool>,
    /// Only in established flows, or only in others.
    pub established: Option<bool>,
    /// It has the word `flow`.
    pub asks_flow: bool,
    /// TCP flags.
    pub flags: Option<Flags>,
    /// Numbers of the packet.
    pub fields: Vec<(Field, Numbers)>,
    /// Bytes, in the order in which they are written.
    pub contents: Vec<Content>,
    /// Flow bits.
    pub bits: Vec<Bits>,
    /// It never alerts.
    pub silent: bool,
    /// How alerts are thinned out.
    pub threshold: Option<Threshold>,
}

impl Rule {
    /// Whether it only asks which ends talk: it is asked once per flow and direction, and its
    /// action holds for the flow.
    pub fn is_about_flow(&self) -> bool {
        self.contents.is_empty()
            && self.fields.is_empty()
            && self.flags.is_none()
            && !self.asks_flow
            && self.bits.iter().all(|bits| bits.word == BitWord::Set)
    }

    /// Whether it asks something of the packet itself, so that its contents are looked for in each
    /// packet alone.
    pub fn is_about_packet(&self) -> bool {
        self.protocol == Protocol::TcpPacket
            || self.flags.is_some()
            || !self.fields.is_empty()
            || self.contents.iter().any(|content| content.at_end)
    }

    /// Its place among rules of one action, lowest first: rules that only change flow bits, rules
    /// that do both, rules that only ask, the others (Suricata's order).
    pub(super) fn bit_order(&self) -> u8 {
        let asks = |bits: &Bits| matches!(bits.word, BitWord::IsSet | BitWord::IsNotSet);
        let (some_ask, some_do) = (
            self.bits.iter().any(asks),
            self.bits.iter().any(|bits| !asks(bits)),
        );
        match (some_do, some_ask) {
            (true, false) => 0,
            (true, true) => 1,
            (false, true) => 2,
            (false, false) => 3,
        }
    }
}
