//! Rules, compiled so that a thousand of them cost a new flow about what ten do.
//!
//! **Theory of operation.** A rule is a conjunction over seven *dimensions*: side and protocol,
//! ICMP type, TCP flags, source address, destination address, source port, destination port. Each
//! dimension is cut into the intervals between the values at which any rule begins or ends; each
//! interval has a *bit set* of the rules that hold in it. A packet is looked up in each dimension
//! (a table or a binary search), and the first bit that all seven sets share is the first rule that
//! matches. This is the bit vector scheme of Lakshman and Stiliadis ("High-speed policy-based
//! packet forwarding using efficient multi-dimensional range matching", SIGCOMM 1998).
//!
//! ```text
//!   rule 0: source 10.0.0.0/8                 source ports     any
//!   rule 1: source 10.1.0.0/16, port 53
//!
//!   source       0.0.0.0     10.0.0.0   10.1.0.0   10.2.0.0   11.0.0.0
//!   bits 0,1     00          10         11         10         00
//!   destination port   0        53       54
//!   bits 0,1           10       11       10
//!
//!   10.1.2.3 → port 53:  11 & 11 = 11, the first bit: rule 0
//! ```
//!
//! A rule with a set of endpoints (address *and* port together) is no conjunction of an address and
//! a port, so a rule may have several *terms*, one per port; the bits are terms, in the order of
//! their rules.
//!
//! **Invariants**: terms are in the order of their rules; every table covers its whole range; equal
//! bit sets are stored once. `tests` compares [`Program::find`] with going through the rules one by
//! one.
//!
//! Not here: the rules as written (`config`).

use super::config::Action;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use hashbrown::HashMap;
use nf::{Endpoint, Packet, Prefix, Side};
use wire::packet::flag;
use wire::protocol;

/// The most terms a program has: bit sets grow with it.
pub const TERMS_MAX: usize = 8192;
/// The most bytes of bit sets in one dimension.
const POOL_BYTES_MAX: usize = 256 << 20;
/// In the tables of ICMP types and TCP flags: the packet has none.
const NONE: usize = 256;

/// A rule, as far as a packet's way through is concerned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CompiledRule {
    /// Its name, for lists.
    pub name: String,
    /// The action on a packet that matches.
    pub action: Action,
}

/// A set of values below 256.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ByteSet([u64; 4]);

impl ByteSet {
    pub const EMPTY: ByteSet = ByteSet([0; 4]);
    pub const ALL: ByteSet = ByteSet([u64::MAX; 4]);

    pub fn insert(&mut self, value: u8) {
        self.0[usize::from(value >> 6)] |= 1 << (value & 63);
    }

    pub fn has(&self, value: u8) -> bool {
        self.0[usize::from(value >> 6)] & (1 << (value & 63)) != 0
    }
}

/// Addresses in a dimension.
#[derive(Clone, Debug)]
pub(super) enum Addresses {
    Any,
    In(Vec<Prefix>),
}

/// One conjunction.
#[derive(Clone, Debug)]
pub(super) struct Term {
    pub rule: usize,
    /// Bit 0: from inside; bit 1: from outside.
    pub sides: u8,
    pub protocols: ByteSet,
    /// Only ICMP packets of these types.
    pub icmp_types: Option<ByteSet>,
    /// Only TCP segments with these flags.
    pub tcp_flags: Option<ByteSet>,
    pub source: Addresses,
    pub destination: Addresses,
    /// Inclusive ranges.
    pub source_ports: Vec<(u16, u16)>,
    pub destination_ports: Vec<(u16, u16)>,
}

/// A packet that opens a flow, as the rules see it.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// The side it came in from.
    pub side: Side,
    /// Its transport protocol.
    pub protocol: u8,
    /// Where it comes from.
    pub source: Endpoint,
    /// Where it goes.
    pub destination: Endpoint,
    /// ICMP type.
    pub icmp_type: Option<u8>,
    /// TCP flags.
    pub tcp_flags: Option<u8>,
}

impl Opening {
    /// The opening of a flow with this packet.
    pub fn of(packet: &Packet, side: Side) -> Self {
        let transport = packet.transport();
        let whole = !packet.has(flag::LATER_FRAGMENT);
        Opening {
            side,
            protocol: packet.protocol(),
            source: packet.source(),
            destination: packet.destination(),
            icmp_type: transport
                .first()
                .copied()
                .filter(|_| whole && is_icmp(packet.protocol())),
            tcp_flags: transport
                .get(13)
                .copied()
                .filter(|_| whole && packet.protocol() == protocol::TCP),
        }
    }

    /// The first packet of a flow, made again from what is known of the flow now.
    pub(super) fn again(
        source: Endpoint,
        destination: Endpoint,
        protocol: u8,
        side: Side,
        icmp_type: u8,
    ) -> Self {
        Opening {
            side,
            protocol,
            source,
            destination,
            icmp_type: is_icmp(protocol).then_some(icmp_type),
            tcp_flags: (protocol == protocol::TCP).then_some(wire::tcp::flags::SYN),
        }
    }
}

fn is_icmp(protocol: u8) -> bool {
    protocol == protocol::ICMP || protocol == protocol::ICMPV6
}

/// Protocols whose packets have ports; an ICMP identifier is none.
pub(super) const WITH_PORTS: [u8; 4] = [protocol::TCP, protocol::UDP, protocol::UDPLITE, protocol::SCTP];

/// Bit sets of one length, each stored once.
#[derive(Debug)]
struct Pool {
    words: usize,
    bits: Vec<u64>,
}

/// Fills a [`Pool`]; knows which sets are there already.
struct PoolBuilder {
    pool: Pool,
    known: HashMap<Vec<u64>, u32>,
}

impl PoolBuilder {
    fn new(terms: usize) -> Self {
        let pool = Pool {
            words: terms.div_ceil(64).max(1),
            bits: Vec::new(),
        };
        PoolBuilder {
            pool,
            known: HashMap::new(),
        }
    }

    /// The number of a bit set in the pool; `None` when the pool would grow too large.
    fn intern(&mut self, set: &[u64]) -> Option<u32> {
        if let Some(number) = self.known.get(set) {
            return Some(*number);
        }
        if (self.pool.bits.len() + set.len()) * 8 > POOL_BYTES_MAX {
            return None;
        }
        let number = (self.pool.bits.len() / self.pool.words) as u32;
        self.pool.bits.extend_from_slice(set);
        self.known.insert(set.into(), number);
        Some(number)
    }
}

impl Pool {
    #[inline]
    fn word(&self, number: u32, word: usize) -> u64 {
        self.bits[number as usize * self.words + word]
    }
}

/// A dimension of numbers: `starts[i]` is where the interval with bit set `sets[i]` begins. The
/// first is 0.
#[derive(Debug)]
struct Intervals<K> {
    starts: Vec<K>,
    sets: Vec<u32>,
    pool: Pool,
}

impl<K: Copy + Ord + Default> Intervals<K> {
    /// `ranges` are (first, behind the last or `None` for the end, term). Ranges of one term may
    /// overlap.
    fn build(ranges: &[(K, Option<K>, usize)], terms: usize) -> Option<Self> {
        // How many ranges of each term are open: a term's own may overlap.
        let mut open = vec![0u32; terms];
        let mut events: Vec<(K, usize, bool)> = Vec::with_capacity(2 * ranges.len());
        for (first, behind, term) in ranges {
            events.push((*first, *term, true));
            if let Some(behind) = behind {
                events.push((*behind, *term, false));
            }
        }
        events.sort_unstable_by_key(|(at, ..)| *at);
        let mut builder = PoolBuilder::new(terms);
        let mut current = vec![0u64; builder.pool.words];
        let (mut starts, mut sets) = (vec![K::default()], Vec::new());
        for (at, term, opens) in events {
            if at != starts[starts.len() - 1] {
                sets.push(builder.intern(&current)?);
                starts.push(at);
            }
            // A range is never empty, so its end comes behind its beginning, and no count falls
            // below zero.
            open[term] = if opens { open[term] + 1 } else { open[term] - 1 };
            let bit = 1 << (term % 64);
            if open[term] != 0 {
                current[term / 64] |= bit;
            } else {
                current[term / 64] &= !bit;
            }
        }
        sets.push(builder.intern(&current)?);
        Some(Intervals {
            starts,
            sets,
            pool: builder.pool,
        })
    }

    /// The number of a key's bit set.
    #[inline]
    fn number(&self, key: K) -> u32 {
        // `starts[0]` is the smallest key there is, so at least one start is not above it.
        let at = self.starts.partition_point(|start| *start <= key);
        self.sets[at - 1]
    }
}

/// A dimension of few values.
#[derive(Debug)]
struct Direct {
    sets: Vec<u32>,
    pool: Pool,
}

impl Direct {
    fn build(values: usize, terms: &[Term], holds: impl Fn(&Term, usize) -> bool) -> Option<Self> {
        let mut builder = PoolBuilder::new(terms.len());
        let mut sets = Vec::with_capacity(values);
        for value in 0..values {
            let mut set = vec![0u64; builder.pool.words];
            for (number, _) in terms.iter().enumerate().filter(|(_, term)| holds(term, value)) {
                set[number / 64] |= 1 << (number % 64);
            }
            sets.push(builder.intern(&set)?);
        }
        Some(Direct {
            sets,
            pool: builder.pool,
        })
    }

    #[inline]
    fn number(&self, value: usize) -> u32 {
        self.sets[value]
    }
}

/// Addresses of both versions.
#[derive(Debug)]
struct AddressTable {
    v4: Intervals<u32>,
    v6: Intervals<u128>,
}

impl AddressTable {
    fn build(terms: &[Term], of: impl Fn(&Term) -> &Addresses) -> Option<Self> {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (number, term) in terms.iter().enumerate() {
            let Addresses::In(prefixes) = of(term) else {
                v4.push((0, None, number));
                v6.push((0, None, number));
                continue;
            };
            for prefix in prefixes {
                let length = u32::from(prefix.length());
                if prefix.is_v4() {
                    let first = prefix.addr().low_u32();
                    let size = 1u32.checked_shl(32 - length);
                    v4.push((first, size.and_then(|size| first.checked_add(size)), number));
                } else {
                    let first = u128::from_be_bytes(*prefix.addr().octets());
                    let size = 1u128.checked_shl(128 - length);
                    v6.push((first, size.and_then(|size| first.checked_add(size)), number));
                }
            }
        }
        Some(AddressTable {
            v4: Intervals::build(&v4, terms.len())?,
            v6: Intervals::build(&v6, terms.len())?,
        })
    }

    /// The pool of the address's version, and the number of its bit set there.
    #[inline]
    fn find(&self, addr: nf::Addr) -> (&Pool, u32) {
        if addr.is_v4() {
            (&self.v4.pool, self.v4.number(addr.low_u32()))
        } else {
            let number = self.v6.number(u128::from_be_bytes(*addr.octets()));
            (&self.v6.pool, number)
        }
    }
}

/// A rule set, compiled. Built once, shared by all instances, never changed.
#[derive(Debug)]
pub struct Program {
    rules: Vec<CompiledRule>,
    /// The rule of each term.
    rule_of: Vec<u32>,
    class: Direct,
    icmp_type: Direct,
    tcp_flags: Direct,
    source: AddressTable,
    destination: AddressTable,
    source_port: Intervals<u16>,
    destination_port: Intervals<u16>,
}

impl Program {
    /// Compiles terms, which are in the order of their rules; `None` when the tables would grow too
    /// large.
    pub(super) fn compile(rules: Vec<CompiledRule>, terms: &[Term]) -> Option<Self> {
        let ports = |of: fn(&Term) -> &[(u16, u16)]| {
            let mut ranges = Vec::new();
            for (number, term) in terms.iter().enumerate() {
                ranges.extend(
                    of(term)
                        .iter()
                        .map(|(from, to)| (*from, to.checked_add(1), number)),
                );
            }
            Intervals::build(&ranges, terms.len())
        };
        let byte = |set: &Option<ByteSet>, value: usize| match set {
            None => true,
            Some(set) => value != NONE && set.has(value as u8),
        };
        Some(Program {
            rule_of: terms.iter().map(|term| term.rule as u32).collect(),
            class: Direct::build(512, terms, |term, value| {
                term.sides & (1 << (value >> 8)) != 0 && term.protocols.has(value as u8)
            })?,
            icmp_type: Direct::build(NONE + 1, terms, |term, value| byte(&term.icmp_types, value))?,
            tcp_flags: Direct::build(NONE + 1, terms, |term, value| byte(&term.tcp_flags, value))?,
            source: AddressTable::build(terms, |term| &term.source)?,
            destination: AddressTable::build(terms, |term| &term.destination)?,
            source_port: ports(|term| &term.source_ports)?,
            destination_port: ports(|term| &term.destination_ports)?,
            rules,
        })
    }

    /// The rules, in order.
    pub fn rules(&self) -> &[CompiledRule] {
        &self.rules
    }

    /// The first rule that matches.
    pub fn find(&self, opening: &Opening) -> Option<usize> {
        let has_ports = WITH_PORTS.contains(&opening.protocol);
        let port = |endpoint: &Endpoint| if has_ports { endpoint.port } else { 0 };
        let side = opening.side as usize;
        let class = self.class.number(side << 8 | usize::from(opening.protocol));
        let destination_port = self.destination_port.number(port(&opening.destination));
        let source_port = self.source_port.number(port(&opening.source));
        let (destinations, destination) = self.destination.find(opening.destination.addr);
        let (sources, source) = self.source.find(opening.source.addr);
        let icmp_type = self.icmp_type.number(opening.icmp_type.map_or(NONE, usize::from));
        let tcp_flags = self.tcp_flags.number(opening.tcp_flags.map_or(NONE, usize::from));
        for word in 0..self.class.pool.words {
            let common = self.class.pool.word(class, word)
                & self.destination_port.pool.word(destination_port, word)
                & self.source_port.pool.word(source_port, word)
                & destinations.word(destination, word)
                & sources.word(source, word)
                & self.icmp_type.pool.word(icmp_type, word)
                & self.tcp_flags.pool.word(tcp_flags, word);
            if common != 0 {
                let term = word * 64 + common.trailing_zeros() as usize;
                return Some(self.rule_of[term] as usize);
            }
        }
        None
    }
}
