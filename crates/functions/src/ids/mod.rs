//! Intrusion detection and prevention: a subset of Suricata's rules over packets and TCP streams.
//!
//! **Theory of operation.** A packet's payload is read by automata that know every content of every
//! rule ([`automaton`]). For TCP they read the stream ([`crate::stream`]): bytes once, in order,
//! the automata's states and the hits so far being kept in the flow ([`state`]), so that it makes
//! no difference how packets divide a content. Rules whose contents have all been hit, and rules
//! without contents, are asked in order ([`ruleset`]); packets that they match are alerted,
//! dropped, answered or passed.
//!
//! ```text
//!   packet ─► stream ─► automata ─► hits ─┬─► candidates ─► head, flow, flags … ─► flow bits ─► places of contents ─► match
//!             │  early: waits             │                                                                          │
//!             └─ seen before: unread      └─ remembered in the flow                              pass  drop  reject  alert
//! ```
//!
//! **Example.**
//! `drop tcp any any -> any 80 (content:"/etc/"; content:"passwd"; distance:0; sid:1;)`. A segment
//! `GET /et` leaves the automaton inside of `/etc/`; the next, `c/pass`, hits it at position 9,
//! which the flow remembers. The third, `wd`, hits `passwd`; both contents have hits and one is
//! new; `passwd` begins at or behind 9: the packet is dropped with an alert, and as this was found
//! in the stream, the flow with it.
//!
//! **How far a match reaches.** As in Suricata: a rule that only asks which ends talk is asked once
//! for each direction of a flow, and its action holds for the flow. So does a match in a stream.
//! Any other match is the packet's. (The runtime forgets a flow whose very first packet is dropped:
//! its next packet is judged as a first one again.)
//!
//! **Matches that are not found**, each of them counted: contents across the fragments of a
//! datagram; contents of one rule between which more hits that matter lie than a flow remembers
//! (`hits_forgotten`, [`memory`]); across early segments of which too many wait (`segments_beyond`;
//! and `stream_room_full` where those of all flows are too many); across bytes that were not seen
//! (`gaps`); across segments that are part of no stream, as behind a reset or without a beginning
//! (`segments_outside`); behind more hits or tries than a packet may cost (`searches_given_up`).
//!
//! **Invariants.** A content is found wherever packets divide it
//! (`a_content_divided_anywhere_is_found`) and in whatever order they come
//! (`early_segments_are_read_in_their_order`); a flow moved in the middle of a match goes on
//! (`a_copied_state_goes_on`); a dropped packet leaves no trace in the stream, so that its bytes
//! are read when they come again, perhaps other ones (`a_dropped_packet_is_read_again`); packets
//! allocate nothing (`established_flows_allocate_nothing`).
//!
//! Not here: protocols of applications (`http.uri` and its kind are refused), reassembly of
//! fragments, regular expressions.
//!
//! Sources: Suricata 7's documentation of its rules; NFVactor's and NFActor's IDS, which keep the
//! automaton's state per flow.

mod alert;
mod automaton;
mod classes;
pub mod config;
mod content;
mod facts;
pub mod header;
mod memory;
mod options;
pub mod parse;
pub mod rule;
pub mod ruleset;
mod search;
pub mod spans;
pub mod state;
#[cfg(test)]
mod tests;
mod thresholds;

pub use config::Config;
pub use state::Inspection;

use crate::budget::Budget;
use crate::stream::{Accepted, Follow, Piece, Taken};
use alert::Alert;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use config::{Loaded, Mode, OutOfOrder, Skipped};
use core::cell::RefCell;
use facts::Facts;
use nf::{
    Adds, ConfigError, Cx, Event, NetworkFunction, Packet, Row, Table, Verdict, WorkerInfo, network_function,
    row,
};
use rule::{Action, BitWord, Protocol, Track};
use ruleset::{Compiled, RuleSet, group};
use search::{Scope, Search};
use state::{Way, mark};
use thresholds::{Counted, Passes, Thresholds};
use wire::packet::flag;
use wire::tcp::flags;
use wire::{Addr, protocol};

/// The IDS of one runtime.
pub struct Ids {
    rules: Arc<RuleSet>,
    skipped: alloc::vec::Vec<Skipped>,
    mode: Mode,
    follow: Follow,
    out_of_order: OutOfOrder,
    verify_checksums: bool,
    /// A rule may drop packets, so their changes must be kept till that is known.
    may_drop: bool,
    work: RefCell<Work>,
    answers: Budget,
}

/// The memory that is used again for each packet, and the thresholds' counts.
struct Work {
    search: Search,
    thresholds: Thresholds,
    /// Alerts by rule, for the operator.
    alerts: alloc::vec::Vec<u64>,
}

/// Where a packet's contents are searched, and whether its connection was established before it.
#[derive(Clone, Copy, Default)]
struct Scopes {
    /// Its TCP connection was established before it.
    was_established: bool,
    /// In the stream, as far as it has come.
    stream: Option<Scope>,
    /// In the packet alone.
    packet: Option<Scope>,
    /// Only rules about packets and places in them: the rest will be asked when the bytes' turn has
    /// come.
    is_early: bool,
}

/// The most that a packet's matches ask for.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Outcome {
    action: Action,
    whole_flow: bool,
}

#[network_function]
impl NetworkFunction for Ids {
    const NAME: &'static str = "ids";
    const EVENTS: &'static [Event] = &[Event::new(
        "alert",
        "A rule that alerts fits a packet, and its threshold lets it.",
        alert::FIELDS,
    )];
    const TABLES: &'static [Table] = &[
        Table {
            name: "rules",
            columns: &[
                ("alerts", Adds::Counted),
                ("action", Adds::Name),
                ("sid", Adds::Name),
                ("message", Adds::Name),
            ],
            top: 0,
            metrics: &[],
        },
        Table {
            name: "size",
            columns: &[
                ("rules", Adds::Greatest),
                ("contents", Adds::Greatest),
                ("automaton_states", Adds::Greatest),
            ],
            top: 0,
            metrics: &[],
        },
    ];
    const COUNTERS: &'static [&'static str] = &[
        /// Alerts that were written.
        "alerts",
        /// Alerts that a threshold held back.
        "alerts_held_back",
        /// TCP streams that were followed from their beginning.
        "streams",
        /// Gaps in streams: bytes that never came and were passed over.
        "gaps",
        /// Early segments that were kept until the segments before them came.
        "segments_kept",
        /// Early segments that were read alone: too far ahead, or no room to keep them.
        "segments_beyond",
        /// Early segments for which there was no room.
        "stream_room_full",
        /// Segments whose bytes had been read before.
        "segments_repeated",
        /// Segments outside of the window of their stream.
        "segments_outside",
        /// Matches of contents that had to be forgotten before their rule was decided.
        "hits_forgotten",
        /// Searches that were given up at their bound.
        "searches_given_up",
        /// Packets with a wrong checksum, which are not searched.
        "checksums_wrong",
        /// Flows whose state was of other rules, and began from the start.
        "states_of_other_rules",
    ];
    const REASONS: &'static [&'static str] = &[
        /// A rule drops it.
        "dropped_by_rule",
        /// A rule has dropped an earlier packet of its flow.
        "flow_dropped",
        /// A rule rejects it, and no answer is sent.
        "rejected_without_answer",
        /// A TCP segment that came too early to be kept, or found no room.
        "out_of_order",
    ];
    const FILES: &'static [&'static str] = &["rules_file"];
    type Config = Config;
    type Flow = Inspection;
    type Group = ();

    fn new(config: &Arc<Config>, worker: &WorkerInfo) -> Result<Self, ConfigError> {
        let Loaded { rules, skipped } = config.rules()?;
        let settings = config.settings();
        let drops = |rule: &Compiled| matches!(rule.rule.action, Action::Drop | Action::Reject);
        Ok(Ids {
            mode: settings.mode,
            follow: Follow {
                pick_up: settings.pick_up,
                early_max: settings.early_max.into(),
                hold: settings.mode == Mode::Ips && settings.out_of_order == OutOfOrder::Hold,
            },
            out_of_order: settings.out_of_order,
            verify_checksums: settings.verify_checksums,
            may_drop: settings.mode == Mode::Ips
                && (settings.out_of_order != OutOfOrder::Pass || rules.rules.iter().any(drops)),
            work: RefCell::new(Work {
                search: Search::new(&rules),
                thresholds: Thresholds::new(
                    rules.rules.iter().any(|rule| rule.rule.threshold.is_some()),
                    worker.seed,
                ),
                alerts: alloc::vec![0; rules.len()],
            }),
            answers: Budget::new(settings.answers_per_second),
            rules,
            skipped,
        })
    }

    fn process(&self, packet: &mut Packet, flow: &mut Inspection, cx: &mut Cx<Self>) -> Verdict {
        if flow.rules != self.rules.hash() {
            if flow.rules != 0 {
                cx.count("states_of_other_rules");
            }
            flow.take_up(self.rules.hash());
        }
        if self.mode == Mode::Ips && flow.is(mark::DROPPED) {
            // The flow is not even followed: else a reset and a SYN that no end receives would end
            // the drop.
            return cx.drop("flow_dropped");
        }
        if self.verify_checksums && !packet.checksums_valid() {
            cx.count("checksums_wrong");
            return Verdict::Forward;
        }
        let before = self.may_drop.then_some((flow.streams, flow.ways));
        let half = cx.direction() as usize;
        let mut work = self.work.borrow_mut();
        work.search.begin();
        let (scopes, taken) = self.read(packet, flow, &mut work.search, half, cx);
        if flow.is(mark::PASSED) {
            return self.go_on(packet, flow, taken, half, cx);
        }
        let is_unread = matches!(taken, Taken::Beyond | Taken::Full);
        if self.mode == Mode::Ips && is_unread && self.out_of_order != OutOfOrder::Pass {
            return cx.drop("out_of_order");
        }
        let outcome = self.ask(packet, flow, &mut work, &scopes, half, cx);
        drop(work);
        let Some(Outcome { action, whole_flow }) = outcome else {
            return self.go_on(packet, flow, taken, half, cx);
        };
        if whole_flow {
            // Its next packets are dropped too, though none has passed.
            cx.keep_flow();
            if action == Action::Pass {
                flow.marks |= mark::PASSED;
            } else {
                flow.marks |= mark::DROPPED;
                cx.discard("flow_dropped");
            }
        } else if let Some((streams, ways)) = before
            && action != Action::Pass
        {
            (flow.streams, flow.ways) = (streams, ways);
        }
        match action {
            Action::Drop => cx.drop("dropped_by_rule"),
            Action::Reject => self.reject(packet, cx),
            Action::Pass | Action::Alert => self.go_on(packet, flow, taken, half, cx),
        }
    }

    /// Flows go on: their state of other rules begins again with their next packet
    /// ([`Inspection::take_up`]). With the same rules the thresholds and counts go on, too.
    fn take_over(&self, before: &Self) {
        if self.rules.hash() == before.rules.hash() {
            let (mut mine, mut old) = (self.work.borrow_mut(), before.work.borrow_mut());
            core::mem::swap(&mut mine.thresholds, &mut old.thresholds);
            core::mem::swap(&mut mine.alerts, &mut old.alerts);
        }
    }

    /// The rules with their alerts. A rule that was left out has no number; its message says where
    /// it is and why.
    fn rows(&self, table: &str, most: usize) -> Vec<Row> {
        if table == "size" {
            let (contents, states) = self.rules.sizes();
            return Vec::from([row![self.rules.len() as u64, contents as u64, states as u64]]);
        }
        let work = self.work.borrow();
        let rules = self.rules.rules.iter().zip(&work.alerts);
        let rules = rules.map(|(rule, alerts)| {
            let rule = &rule.rule;
            row![*alerts, rule.action.name(), rule.sid, &*rule.message]
        });
        let skipped = self.skipped.iter().map(|Skipped { file, error }| {
            let why = format!("{file}:{}: {}", error.line, error.fault.problem);
            row![0u32, "left out", "", &*why]
        });
        rules.chain(skipped).take(most).collect()
    }

    fn command(&self, _: &[&str]) -> Result<String, String> {
        Err("the commands are: rules (the rules with their alerts, and those left out); size".into())
    }
}

#[nf::network_function]
impl Ids {
    /// The verdict on a packet that may pass. An early one waits, or a copy of it; packets that
    /// waited and have been read go on behind the packet that filled the gap.
    fn go_on(
        &self,
        packet: &Packet,
        flow: &Inspection,
        taken: Taken,
        half: usize,
        cx: &mut Cx<Self>,
    ) -> Verdict {
        if flow.is(mark::PASSED) {
            cx.release_some(|_| true);
            return Verdict::Forward;
        }
        match taken {
            Taken::Kept if self.follow.hold => return Verdict::Consume,
            Taken::Kept if !cx.hold_copy(packet) => cx.count("stream_room_full"),
            Taken::New | Taken::Old => cx.release_some(|held| flow.streams.has_read(half, held)),
            _ => {}
        }
        Verdict::Forward
    }

    /// Follows the stream and reads what is new of it, or the payload by itself.
    fn read(
        &self,
        packet: &Packet,
        flow: &mut Inspection,
        search: &mut Search,
        half: usize,
        cx: &mut Cx<Self>,
    ) -> (Scopes, Taken) {
        let is_segment = packet.tcp().is_some() && !packet.has(flag::ICMP_ERROR);
        if !is_segment {
            let mut scopes = Scopes {
                was_established: flow.streams.is_established(),
                ..Scopes::default()
            };
            self.read_alone(packet, search, &mut scopes);
            return (scopes, Taken::Outside);
        }
        if flow.streams.begins(packet) {
            cx.count("streams");
            if flow.streams.is_closed() {
                // Packets that wait are of the old connection.
                cx.discard("out_of_order");
            }
            flow.begin(self.rules.hash());
        }
        let Inspection { ways, streams, .. } = flow;
        let way = &mut ways[half];
        let was_at = streams.half(half).position();
        search.recall(way, was_at);
        let mut scopes = Scopes {
            was_established: streams.is_established(),
            ..Scopes::default()
        };
        let mut gaps = 0;
        let accepted = streams.accept(packet, half, self.follow, cx, &mut |_, piece| match piece {
            Piece::Bytes { bytes, position } => {
                search.read(&self.rules, &mut way.states, bytes, position);
            }
            Piece::Gap { .. } => {
                gaps += 1;
                way.states = [0; 2];
            }
        });
        let Accepted {
            taken,
            start,
            refused,
            ..
        } = accepted;
        cx.count_by("gaps", gaps);
        if refused {
            flow.ways[1 - half] = Way::default();
        }
        match taken {
            Taken::New => {
                scopes.stream = Some(Scope {
                    base: 0,
                    end: flow.streams.half(half).position(),
                    new_from: was_at,
                });
                scopes.packet = Some(Scope {
                    base: start,
                    end: start.saturating_add(packet.payload().len() as u64),
                    new_from: was_at,
                });
                let position = flow.streams.half(half).position();
                let forgotten = search.remember(&self.rules, &mut flow.ways[half], position);
                cx.count_by("hits_forgotten", forgotten);
            }
            Taken::Nothing => {}
            Taken::Old => cx.count("segments_repeated"),
            Taken::Kept => {
                cx.count("segments_kept");
                self.read_alone(packet, search, &mut scopes);
                scopes.is_early = true;
            }
            Taken::Beyond | Taken::Full => {
                cx.count("segments_beyond");
                cx.count_by("stream_room_full", u64::from(taken == Taken::Full));
                self.read_alone(packet, search, &mut scopes);
            }
            Taken::Outside => {
                cx.count("segments_outside");
                self.read_alone(packet, search, &mut scopes);
            }
        }
        (scopes, taken)
    }

    /// Reads a payload by itself.
    fn read_alone(&self, packet: &Packet, search: &mut Search, scopes: &mut Scopes) {
        let payload = packet.payload();
        search.forget_hits();
        search.read(&self.rules, &mut [0; 2], payload, 0);
        scopes.packet = (!payload.is_empty()).then_some(Scope {
            base: 0,
            end: payload.len() as u64,
            new_from: 0,
        });
    }

    /// Asks the rules about a packet; answers the result of their matches.
    fn ask(
        &self,
        packet: &Packet,
        flow: &mut Inspection,
        work: &mut Work,
        scopes: &Scopes,
        half: usize,
        cx: &mut Cx<Self>,
    ) -> Option<Outcome> {
        let facts = self.facts(packet, flow, half, scopes.was_established);
        let asked = mark::of(mark::ASKED, half);
        let is_error = packet.has(flag::ICMP_ERROR);
        // Whether the other end takes a SYN's data is not known yet.
        let is_syn = packet.tcp().is_some_and(|tcp| tcp.flags() & flags::SYN != 0);
        // An error is a packet of another protocol that only came along.
        let first = is_error || !flow.is(asked);
        if !is_error {
            flow.marks |= asked;
        }
        work.search.add_candidates(&self.rules);
        let group = group(packet.protocol());
        self.rules
            .add_candidates(group, first, &mut work.search.candidates);
        let mut outcome: Option<Outcome> = None;
        for word in 0..work.search.candidates.len() {
            let mut rest = work.search.candidates[word];
            while rest != 0 {
                let number = word * 64 + rest.trailing_zeros() as usize;
                rest &= rest - 1;
                let rule = &self.rules.rules[number];
                let Some(in_stream) = self.matches(rule, &facts, flow, &mut work.search, scopes) else {
                    continue;
                };
                change_bits(rule, flow);
                let passes = self.count(packet, number, work, cx);
                if passes == Passes::Not {
                    continue;
                }
                let whole_flow = (rule.about_flow || (in_stream && !is_syn)) && !is_error;
                let action = rule.rule.action;
                if action == Action::Pass {
                    return Some(Outcome { action, whole_flow });
                }
                if passes == Passes::Alert {
                    self.alert(packet, number, &facts, work, cx);
                }
                if action != Action::Alert && self.mode == Mode::Ips {
                    // The first that stops it says how; each may widen it to the flow.
                    let before = outcome.get_or_insert(Outcome { action, whole_flow });
                    before.whole_flow |= whole_flow;
                }
            }
        }
        if work.search.gave_up() || work.search.overflow > 0 {
            cx.count("searches_given_up");
        }
        outcome
    }

    fn facts(&self, packet: &Packet, flow: &mut Inspection, half: usize, was_established: bool) -> Facts {
        let (to_server, established) = if packet.protocol() == protocol::TCP {
            // The handshake's last acknowledgement only makes it so. Data on it are the established
            // connection's, for no later packet shows them again.
            let has_data = packet.tcp().is_some_and(|tcp| tcp.payload_length() > 0);
            let established = flow.streams.is_established() && (was_established || has_data);
            (half == flow.streams.client(), established)
        } else {
            if !packet.has(flag::ICMP_ERROR) {
                flow.marks |= mark::of(mark::SEEN, half);
            }
            let both = mark::of(mark::SEEN, 0) | mark::of(mark::SEEN, 1);
            (half == 0, flow.is(both))
        };
        Facts::of(packet, to_server, established)
    }

    /// Whether a rule matches, and if so, whether in the stream.
    fn matches(
        &self,
        rule: &Compiled,
        facts: &Facts,
        flow: &Inspection,
        search: &mut Search,
        scopes: &Scopes,
    ) -> Option<bool> {
        if !facts.fit(&rule.rule) || !bits_hold(rule, flow) {
            return None;
        }
        let contents = &rule.rule.contents;
        if contents.is_empty() {
            return Some(false);
        }
        if let Some(scope) = &scopes.stream
            && !rule.about_packet
            && search.finds(rule, &self.rules, scope)
        {
            return Some(true);
        }
        // As in Suricata, places from the beginning are those of the stream or of a packet.
        let has_place = contents
            .iter()
            .any(|content| content.offset.is_some() || content.depth.is_some());
        let by_packet = rule.about_packet
            || (rule.rule.protocol != Protocol::TcpStream
                && (has_place || (scopes.stream.is_none() && !scopes.is_early)));
        let scope = scopes.packet.as_ref().filter(|_| by_packet)?;
        search.finds(rule, &self.rules, scope).then_some(false)
    }

    /// Counts a match for its rule's threshold.
    fn count(&self, packet: &Packet, number: usize, work: &mut Work, cx: &mut Cx<Self>) -> Passes {
        let Some(threshold) = &self.rules.rules[number].rule.threshold else {
            return Passes::Alert;
        };
        let (source, destination) = (packet.source_addr(), packet.destination_addr());
        let addresses = match threshold.track {
            Track::Source => [source, Addr::default()],
            Track::Destination => [Addr::default(), destination],
            Track::Pair => [source, destination],
            Track::Rule => [Addr::default(); 2],
        };
        let counted = Counted {
            rule: number as u32,
            addresses,
        };
        let passes = work.thresholds.count(counted, threshold, cx.now());
        if passes != Passes::Alert {
            cx.count("alerts_held_back");
        }
        passes
    }

    fn alert(&self, packet: &Packet, number: usize, facts: &Facts, work: &mut Work, cx: &mut Cx<Self>) {
        let rule = &self.rules.rules[number];
        if rule.rule.silent {
            return;
        }
        work.alerts[number] += 1;
        cx.count("alerts");
        let alert = Alert {
            packet,
            rule,
            blocked: self.mode == Mode::Ips && rule.rule.action != Action::Alert,
            icmp: facts.icmp,
        };
        cx.event("alert", format_args!("{alert}"));
    }

    fn reject(&self, packet: &mut Packet, cx: &mut Cx<Self>) -> Verdict {
        if !self.answers.take(cx.now()) {
            return cx.drop("rejected_without_answer");
        }
        let code = wire::answer::Unreachable::Prohibited.code(packet.version());
        let answered = match packet.protocol() {
            protocol::TCP => wire::answer::tcp_reset(packet),
            _ => wire::answer::icmp_unreachable(packet, code),
        };
        match answered {
            true => Verdict::Answer,
            false => cx.drop("rejected_without_answer"),
        }
    }
}

/// Whether the flow's bits are as a rule asks.
fn bits_hold(rule: &Compiled, flow: &Inspection) -> bool {
    rule.bits.iter().all(|(word, bits)| match word {
        BitWord::IsSet => bits.iter().any(|bit| flow.bit(*bit)),
        BitWord::IsNotSet => bits.iter().any(|bit| !flow.bit(*bit)),
        BitWord::Set | BitWord::Unset | BitWord::Toggle => true,
    })
}

fn change_bits(rule: &Compiled, flow: &mut Inspection) {
    for (word, bits) in &rule.bits {
        for bit in bits {
            match word {
                BitWord::Set => flow.change_bit(*bit, |_| true),
                BitWord::Unset => flow.change_bit(*bit, |_| false),
                BitWord::Toggle => flow.change_bit(*bit, |value| !value),
                BitWord::IsSet | BitWord::IsNotSet => {}
            }
        }
    }
}
