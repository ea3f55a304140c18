//! A rule set, compiled: which rules are asked of a packet, in which order.
//!
//! **Theory of operation.** Rules are numbered in the order in which they are asked: by action
//! (pass, drop, reject, alert), then those that set flow bits before those that ask for them, then
//! by priority, then as they are written; Suricata's order. A packet's *candidates* are a set of
//! these numbers, gone through from the lowest:
//!
//! ```text
//!   about the flow    only addresses, ports, protocol       first packet of each direction
//!   without contents  flags, dsize, itype, flow …           every packet of the protocol
//!   with contents     found by the *fast* one, the longest  where all of its contents have hits, one of them new
//! ```
//!
//! Equal contents of several rules are one pattern. All patterns are in two automata
//! ([`super::automaton`]); a pattern's number counts through both, those that tell upper from lower
//! case first.
//!
//! Invariant: equal rules have equal hashes on every machine, whatever line they stand on, and
//! different ones different hashes (`hashes_tell_rule_sets_apart`).
//!
//! Not here: the search for contents (`search`), reading rules (`parse`).

use super::automaton::Patterns;
use super::classes;
use super::memory::Memory;
use super::parse::Fault;
use super::rule::{BitWord, Content, Protocol, Rule};
use super::state::BITS_MAX;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};
use wire::protocol;

/// Protocols by which candidates are kept apart. All others are the group behind them.
const GROUPED: [u8; 5] = [
    protocol::TCP,
    protocol::UDP,
    protocol::ICMP,
    protocol::ICMPV6,
    protocol::SCTP,
];
const GROUPS: usize = GROUPED.len() + 1;
/// A protocol number that stands for all of the last group.
const OTHER: u8 = u8::MAX;

/// Which group a protocol is in.
pub(super) fn group(protocol: u8) -> usize {
    let known = GROUPED.iter().position(|grouped| *grouped == protocol);
    known.unwrap_or(GROUPED.len())
}

/// Whether a rule may be about packets of a group.
fn is_about(protocol: Protocol, group: usize) -> bool {
    let number = GROUPED.get(group).copied().unwrap_or(OTHER);
    protocol.has(4, number) || protocol.has(6, number)
}

/// A word on flow bits, and their numbers.
pub(super) type NumberedBits = (BitWord, Vec<u8>);

/// A rule with what follows from it.
#[derive(Debug)]
pub(super) struct Compiled {
    pub rule: Rule,
    /// The pattern of each content.
    pub patterns: Vec<u32>,
    /// Words on flow bits, by number.
    pub bits: Vec<NumberedBits>,
    pub about_flow: bool,
    pub about_packet: bool,
    pub category: &'static str,
    pub severity: u8,
}

/// The facts of a pattern.
#[derive(Debug)]
pub(super) struct Pattern {
    pub length: u32,
    /// Which of its hits are kept in the flow.
    pub memory: Memory,
    /// The rules found by it.
    pub fast_of: Vec<u32>,
}

/// All rules.
#[derive(Debug)]
pub struct RuleSet {
    pub(super) rules: Vec<Compiled>,
    pub(super) patterns: Vec<Pattern>,
    pub(super) automata: [Option<Patterns>; 2],
    /// The first pattern of the second automaton.
    pub(super) first_folded: u32,
    about_flow: [Vec<u64>; GROUPS],
    without_contents: [Vec<u64>; GROUPS],
    hash: u64,
}

impl RuleSet {
    /// Puts rules together. `Err` names a rule's line.
    pub fn new(mut rules: Vec<Rule>) -> Result<Self, (usize, Fault)> {
        check_numbers(&rules)?;
        let priority = |rule: &Rule| rule.priority.unwrap_or(classes::of(&rule.class).1);
        rules.sort_by_key(|rule| (rule.action, rule.bit_order(), priority(rule)));
        let hash = hash(&rules);
        let mut names = BTreeMap::new();
        let mut pool = Pool::default();
        let mut compiled = Vec::with_capacity(rules.len());
        for rule in rules {
            let bits = number_bits(&rule, &mut names)?;
            let patterns = rule.contents.iter().map(|content| pool.number(content)).collect();
            compiled.push(Compiled {
                patterns,
                bits,
                about_flow: rule.is_about_flow(),
                about_packet: rule.is_about_packet(),
                category: classes::of(&rule.class).0,
                severity: priority(&rule),
                rule,
            });
        }
        pool.number_second(&mut compiled);
        let mut set = RuleSet {
            about_flow: masks(&compiled, |rule| rule.about_flow),
            without_contents: masks(&compiled, |rule| {
                !rule.about_flow && rule.rule.contents.iter().all(|content| content.negated)
            }),
            patterns: pool.facts(),
            automata: pool.automata()?,
            first_folded: pool.texts[0].len() as u32,
            rules: compiled,
            hash,
        };
        for (index, rule) in set.rules.iter().enumerate() {
            for (content, pattern) in rule.patterns.iter().enumerate() {
                set.patterns[*pattern as usize].memory.add(&rule.rule, content);
            }
            if let Some(fast) = fast(&rule.rule.contents) {
                set.patterns[rule.patterns[fast] as usize]
                    .fast_of
                    .push(index as u32);
            }
        }
        Ok(set)
    }

    /// The number by which a flow's state is known to be of these rules; never 0.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// How many rules there are.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// How many contents and automaton states there are.
    pub fn sizes(&self) -> (usize, usize) {
        let states = self.automata.iter().flatten().map(Patterns::states).sum();
        (self.patterns.len(), states)
    }

    /// Adds the rules that every packet of a protocol is asked about, and those that the first of a
    /// direction is.
    pub(super) fn add_candidates(&self, group: usize, first: bool, candidates: &mut [u64]) {
        let about_flow = if first { &self.about_flow[group][..] } else { &[] };
        for masks in [&self.without_contents[group][..], about_flow] {
            for (word, mask) in candidates.iter_mut().zip(masks) {
                *word |= mask;
            }
        }
    }
}

fn masks(rules: &[Compiled], which: impl Fn(&Compiled) -> bool) -> [Vec<u64>; GROUPS] {
    core::array::from_fn(|group| {
        let mut words = vec![0u64; rules.len().div_ceil(64)];
        for (index, rule) in rules.iter().enumerate() {
            if which(rule) && is_about(rule.rule.protocol, group) {
                words[index / 64] |= 1 << (index % 64);
            }
        }
        words
    })
}

/// The content by which a rule is found: the one it names, or its longest that must be there.
fn fast(contents: &[Content]) -> Option<usize> {
    let positive = || {
        contents
            .iter()
            .enumerate()
            .filter(|(_, content)| !content.negated)
    };
    positive()
        .find(|(_, content)| content.fast)
        .or_else(|| positive().max_by_key(|(_, content)| content.bytes.len()))
        .map(|(index, _)| index)
}

/// Each pair of group and number is one rule's.
fn check_numbers(rules: &[Rule]) -> Result<(), (usize, Fault)> {
    let mut seen = BTreeMap::new();
    for rule in rules {
        if let Some(line) = seen.insert((rule.gid, rule.sid), rule.line) {
            let problem = format!("sid {} is also that of the rule on line {line}", rule.sid);
            let fault = Fault::new(problem, "give each rule a sid of its own");
            return Err((rule.line, fault));
        }
    }
    Ok(())
}

fn number_bits(rule: &Rule, names: &mut BTreeMap<String, u8>) -> Result<Vec<NumberedBits>, (usize, Fault)> {
    let mut words = Vec::with_capacity(rule.bits.len());
    for bits in &rule.bits {
        let mut numbers = Vec::with_capacity(bits.names.len());
        for name in &bits.names {
            let next = names.len();
            let number = match names.get(name) {
                Some(number) => *number,
                None if next < BITS_MAX => {
                    names.insert(name.clone(), next as u8);
                    next as u8
                }
                None => {
                    let problem = format!("`{name}` is one flow bit too many; there are at most {BITS_MAX}");
                    return Err((rule.line, Fault::new(problem, "leave rules out")));
                }
            };
            numbers.push(number);
        }
        words.push((bits.word, numbers));
    }
    Ok(words)
}

/// Patterns on their way to numbers: texts of both automata, each once.
#[derive(Default)]
struct Pool {
    known: BTreeMap<(bool, Vec<u8>), u32>,
    texts: [Vec<Vec<u8>>; 2],
}

impl Pool {
    /// A pattern's number within its automaton; the top bit says which.
    fn number(&mut self, content: &Content) -> u32 {
        let folded = content.nocase && content.bytes.iter().any(u8::is_ascii_alphabetic);
        let mut bytes = content.bytes.clone();
        if folded {
            bytes.make_ascii_lowercase();
        }
        let texts = &mut self.texts[usize::from(folded)];
        *self.known.entry((folded, bytes.clone())).or_insert_with(|| {
            texts.push(bytes);
            (texts.len() - 1) as u32 | u32::from(folded) << 31
        })
    }

    /// Now that the first automaton is whole, counts the second's numbers on from it.
    fn number_second(&self, rules: &mut [Compiled]) {
        let first_folded = self.texts[0].len() as u32;
        for number in rules.iter_mut().flat_map(|rule| &mut rule.patterns) {
            if *number >> 31 == 1 {
                *number = (*number & !(1 << 31)) + first_folded;
            }
        }
    }

    fn facts(&self) -> Vec<Pattern> {
        let fact = |bytes: &Vec<u8>| Pattern {
            length: bytes.len() as u32,
            memory: Memory::default(),
            fast_of: Vec::new(),
        };
        self.texts.iter().flatten().map(fact).collect()
    }

    fn automata(&self) -> Result<[Option<Patterns>; 2], (usize, Fault)> {
        let build = |fold: usize| {
            let texts: Vec<&[u8]> = self.texts[fold].iter().map(Vec::as_slice).collect();
            Patterns::new(&texts, fold == 1).map_err(|error| {
                let problem = format!("the contents do not fit into an automaton: {error}");
                (0, Fault::new(problem, "leave rules out"))
            })
        };
        Ok([build(0)?, build(1)?])
    }
}

fn hash(rules: &[Rule]) -> u64 {
    let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
    for rule in rules {
        let mut rule = rule.clone();
        rule.line = 0;
        rule.hash(&mut hasher);
    }
    hasher.finish().max(1)
}

/// FNV-1a, with numbers in one order of bytes and one width on every machine.
struct Fnv(u64);

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    fn write_u16(&mut self, number: u16) {
        self.write(&number.to_le_bytes());
    }
    fn write_u32(&mut self, number: u32) {
        self.write(&number.to_le_bytes());
    }
    fn write_u64(&mut self, number: u64) {
        self.write(&number.to_le_bytes());
    }
    fn write_u128(&mut self, number: u128) {
        self.write(&number.to_le_bytes());
    }
    fn write_i32(&mut self, number: i32) {
        self.write(&number.to_le_bytes());
    }
    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }
    fn write_isize(&mut self, number: isize) {
        self.write_u64(number as u64);
    }
}
