//! The stateful firewall: it knows connections, and lets in what the rules allow or what answers
//! something they allowed.
//!
//! **Theory of operation.** Each packet gets a [`Class`], as Linux's connection tracking would give
//! it:
//!
//! | class | meaning | what happens |
//! |---|---|---|
//! | `New` | opens a flow, or goes the opening way while nothing has come back | a flow's first packet meets the rules; the others pass |
//! | `Established` | belongs to a flow that has been answered | passes |
//! | `Related` | an ICMP error about a flow that is known | passes; the flow's state does not change |
//! | `Untracked` | neighbour discovery and multicast listeners (IPv6) | meets the rules, each packet by itself |
//! | `Invalid` | fits no flow: a wrong TCP state or window, an unsolicited answer, malformed | dropped, or as `invalid` says |
//!
//! The rules ([`rules`]) are consulted for a flow's first packet. A packet that no rule allows is
//! dropped. When the configuration changes, a flow goes on if the new rules would let its first
//! packet in, and ends otherwise; its state is kept.
//!
//! **Example.** One rule, `from = "inside"`, `action = "allow"`. A host inside sends a SYN: `New`,
//! the rule allows, phase `TcpSynSent`. The server's SYN+ACK comes from outside; no rule allows
//! anything from there, but it is `Established`: an answer. A SYN from outside is `New`, no rule
//! allows it: dropped as `not_allowed`.
//!
//! ```text
//!   UDP     New ─► UdpUnreplied ─(answer)─► UdpReplied ─(2 s after the first packet)─► UdpStream
//!   ICMP    New ─(query)─► IcmpAsked ─(answer)─► IcmpAnswered
//!   other   New ─► OtherUnreplied ─(answer)─► OtherReplied
//!   TCP     see `tcp`
//! ```
//!
//! **Invariants.** A flow whose first packet is dropped keeps no state (the runtime frees it;
//! [`Cx::end_flow`] where the packet is answered or let through without a state). An ICMP error
//! never opens a flow. Established TCP and UDP packets touch 48 bytes of state and the packet's
//! first line, and nothing else. Checked in `tests` and, against a Linux kernel's verdicts, in
//! `tests/firewall_conntrack.rs`.
//!
//! Not here: translation (`nat`), limits per host, application gateways (FTP's data connections are
//! not expected), SCTP's own states (but for how it begins, it is tracked like any other protocol).
//!
//! Sources: RFC 9293, 7323, 2018, 5961 (TCP); RFC 5382, 4787, 5508 (timeouts); RFC 792, 4443, 4890
//! (ICMP).

mod answer;
pub mod config;
mod meaning;
mod names;
pub mod rules;
pub mod segment;
pub mod state;
pub mod tcp;
#[cfg(test)]
mod tests;
mod track;
mod window;

pub use config::Config;
pub use state::{Connection, Phase};

use crate::budget::Budget;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use config::{Action, InvalidAction};
use core::cell::Cell;
use core::time::Duration;
use nf::objects::ObjectsHere;
use nf::table::Figure;
use nf::{
    Adds, Arrival, ConfigError, Cx, Keep, Name, NetworkFunction, Packet, Row, Table, Time, Verdict,
    WorkerInfo, network_function, reason, row,
};
use rules::{Opening, Program};
use state::mark;
use tcp::{Fault, Judgement, Segment};
use track::{
    class_of, note_reply, sctp_may_open, track_error, track_icmp, track_other, track_udp, udp_quick,
};
use wire::packet::flag;
use wire::protocol;

/// A packet's class to the firewall.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// It opens a flow, or goes the opening way while nothing has come back.
    New,
    /// It belongs to a flow that has been answered.
    Established,
    /// An ICMP error about a known flow.
    Related,
    /// ICMPv6 without connections: neighbour discovery, multicast listeners.
    Untracked,
    /// It fits no flow.
    Invalid,
}

/// The class of a packet, and the checks that are left for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tracked {
    /// It passes.
    Pass(Class),
    /// It passes if the rules allow it as the flow's first, which the caller must then make of it.
    Ask(Class),
    /// It passes, and the flow is over.
    Finish(Class),
    /// It fits no flow, for the reason named.
    Invalid(Name),
    /// It is dropped whatever the setting: no state may begin with it.
    Never(Name),
}

/// The firewall. One instance per runtime.
pub struct Firewall {
    program: Arc<Program>,
    timeouts: [Duration; Phase::COUNT],
    /// For an established TCP flow that its other end has not answered: picked up, or half of it
    /// goes elsewhere.
    timeout_unanswered: Duration,
    invalid: InvalidAction,
    loose: bool,
    verify_checksums: bool,
    /// Hits per rule; the last one counts what no rule matched.
    hits: Vec<Cell<u64>>,
    answers: Budget,
}

#[network_function]
impl NetworkFunction for Firewall {
    const NAME: &'static str = "firewall";
    const TABLES: &'static [Table] = &[Table {
        name: "rules",
        columns: &[
            ("hits", Adds::Counted),
            ("action", Adds::Name),
            ("rule", Adds::Name),
        ],
        top: 0,
        metrics: &[Figure {
            column: "hits",
            name: "rule_hits",
            help: "How often each rule of a firewall was the first that fitted, of its first 256.",
        }],
    }];
    const COUNTERS: &'static [&'static str] = &[
        /// Packets that began a flow, whatever the rules said.
        "new_packets",
        /// ICMP errors about a known flow.
        "related_packets",
        /// Packets of kinds that are judged one by one, such as neighbour discovery.
        "untracked_packets",
        /// Packets that fit no state of their flow, or are malformed.
        "invalid_packets",
        /// Flows that a rule let in.
        "flows_allowed",
        /// Refused packets whose sender was answered.
        "packets_rejected",
    ];
    const REASONS: &'static [&'static str] = &[
        /// A first packet that no rule allows.
        "not_allowed",
        /// A first packet that a rule denies.
        "denied_by_rule",
        /// A rule rejects it, and no answer is sent: the budget of answers is used up, or such a
        /// packet may have none.
        "rejected_without_answer",
        /// A transport header that is cut short, or whose lengths contradict each other.
        "malformed",
        /// Its checksum is wrong, and `verify_checksums` is on.
        "bad_checksum",
        /// A combination of TCP flags that no stack sends.
        "tcp_bad_flags",
        /// A TCP segment that does not fit the connection's state: say, a segment that opens no
        /// connection where there is none.
        "tcp_invalid_state",
        /// A TCP segment outside the window that the other end has offered.
        "tcp_out_of_window",
        /// A TCP reset whose sequence number the other end would not take (RFC 5961 3).
        "tcp_invalid_reset",
        /// An SCTP packet that does not fit the association's state.
        "sctp_invalid_state",
        /// An ICMP answer without a request.
        "icmp_unsolicited",
        /// An ICMP error that quotes no packet of a flow.
        "icmp_error_unrelated",
        /// A later fragment whose first one has not been seen.
        "fragment_without_first",
    ];
    type Config = Config;
    type Flow = Connection;
    type Group = ();

    fn new(config: &Arc<Config>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        let program = config.program()?;
        let settings = config.settings();
        Ok(Firewall {
            timeouts: settings.timeouts.by_phase(),
            timeout_unanswered: settings.timeouts.tcp_opening.0,
            invalid: settings.invalid,
            loose: settings.tcp_loose,
            verify_checksums: settings.verify_checksums,
            hits: (0..=program.rules().len()).map(|_| Cell::new(0)).collect(),
            answers: Budget::new(settings.answers_per_second),
            program,
        })
    }

    fn process(&self, packet: &mut Packet, flow: &mut Connection, cx: &mut Cx<Self>) -> Verdict {
        let half = cx.direction() as usize;
        if !self.verify_checksums && (tcp::quick(flow, packet, half) || udp_quick(flow, packet, cx.now())) {
            return Verdict::Forward;
        }
        self.process_any(packet, flow, cx)
    }

    fn arrived(&self, flow: &mut Connection, why: Arrival, cx: &mut Cx<Self>) {
        if why == Arrival::Recovered && !cx.lazy_is_kept() {
            flow.relearn();
        }
        if why == Arrival::Recovered && wire::planted::is("recovered_is_reset") {
            flow.phase = Phase::New;
            flow.marks |= mark::CROSSED;
        }
    }

    fn timeout(&self, flow: &Connection) -> Option<Duration> {
        if flow.phase == Phase::TcpEstablished && !flow.is(mark::REPLIED) {
            return Some(self.timeout_unanswered);
        }
        Some(self.timeouts[flow.phase as usize])
    }

    fn take_over(&self, before: &Self) {
        // A rule of the same name goes on counting; the count of packets that no rule matched does,
        // too.
        let (rules, old) = (self.program.rules(), before.program.rules());
        for (rule, hits) in rules.iter().zip(&self.hits) {
            let same = old.iter().position(|other| other.name == rule.name);
            hits.set(same.map_or(0, |at| before.hits[at].get()));
        }
        if let (Some(rest), Some(old)) = (self.hits.last(), before.hits.last()) {
            rest.set(old.get());
        }
    }

    fn configured(&self, flow: &mut Connection, cx: &mut Cx<Self>) -> Keep {
        if flow.phase == Phase::New {
            // Nothing was let in yet: its next packet meets the rules.
            return Keep::Keep;
        }
        let rule = self.program.find(&first_of(flow, cx));
        match rule.map(|rule| self.program.rules()[rule].action) {
            Some(Action::Allow) => Keep::Keep,
            Some(Action::Drop | Action::Reject) => cx.cut("denied_by_rule"),
            None => cx.cut("not_allowed"),
        }
    }

    /// The rules with their hits.
    fn rows(&self, _: &str, most: usize) -> Vec<Row> {
        let rules = self.program.rules().iter().zip(&self.hits);
        let hits = rules.map(|(rule, hits)| row![hits.get(), rule.action.name(), &*rule.name]);
        let rest = self.hits.last().map(Cell::get).unwrap_or_default();
        let all = hits.chain([row![rest, "drop", "(no rule matched)"]]);
        all.take(most).collect()
    }

    fn row_count(&self, _: &str, _: ObjectsHere<'_>) -> usize {
        // One more row, for packets that no rule matched.
        self.program.rules().len() + 1
    }

    fn command(&self, _: &[&str]) -> Result<String, String> {
        Err("firewall takes one command: rules (the rules with their hits)".into())
    }
}

#[nf::network_function]
impl Firewall {
    /// Everything but the fast paths.
    #[inline(never)]
    fn process_any(&self, packet: &mut Packet, flow: &mut Connection, cx: &mut Cx<Self>) -> Verdict {
        let half = cx.direction() as usize;
        let fresh = flow.phase == Phase::New;
        if wire::planted::is("recovered_is_reset")
            && fresh
            && flow.is(mark::CROSSED)
            && packet.protocol() == protocol::TCP
            && answer::reject(packet)
        {
            return Verdict::Answer;
        }
        let class = match self.track(packet, flow, half, cx.now()) {
            Tracked::Pass(class) => class,
            Tracked::Finish(class) => {
                cx.end_flow();
                class
            }
            Tracked::Ask(class) => match self.ask(packet, flow, class, half, cx) {
                Ok(class) => class,
                Err(verdict) => return verdict,
            },
            Tracked::Invalid(reason) => {
                cx.count("invalid_packets");
                if self.invalid == InvalidAction::Drop {
                    return cx.drop(reason);
                }
                if fresh {
                    // The packet begins nothing, but it must not slip past the rules either.
                    cx.end_flow();
                    if let Err(verdict) = self.consult(packet, cx) {
                        return verdict;
                    }
                }
                return Verdict::Forward;
            }
            Tracked::Never(reason) => {
                cx.count("invalid_packets");
                return cx.drop(reason);
            }
        };
        match class {
            Class::New => cx.count("new_packets"),
            Class::Related => cx.count("related_packets"),
            Class::Untracked => cx.count("untracked_packets"),
            Class::Established | Class::Invalid => {}
        }
        Verdict::Forward
    }

    /// Says what a packet is, and moves the flow's state by it unless the rules are still to be
    /// asked.
    fn track(&self, packet: &Packet, flow: &mut Connection, half: usize, now: Time) -> Tracked {
        if packet.has(flag::LATER_FRAGMENT) {
            return match flow.phase {
                Phase::New => Tracked::Never(reason!(Firewall, "fragment_without_first")),
                _ => Tracked::Pass(class_of(flow, half)),
            };
        }
        if self.verify_checksums && !answer::checksum_holds(packet) {
            return Tracked::Invalid(reason!(Firewall, "bad_checksum"));
        }
        if packet.has(flag::ICMP_ERROR) {
            return track_error(packet, flow);
        }
        match packet.protocol() {
            protocol::TCP => self.track_tcp(packet, flow, half),
            protocol::UDP => track_udp(packet, flow, half, now),
            protocol::ICMP | protocol::ICMPV6 => track_icmp(packet, flow, half),
            protocol::SCTP if flow.phase == Phase::New && !sctp_may_open(packet) => {
                Tracked::Invalid(reason!(Firewall, "sctp_invalid_state"))
            }
            _ => track_other(flow, half),
        }
    }

    fn track_tcp(&self, packet: &Packet, flow: &mut Connection, half: usize) -> Tracked {
        let Some(tcp) = packet.tcp() else {
            return Tracked::Invalid(reason!(Firewall, "malformed"));
        };
        let segment = Segment::from(tcp);
        if !segment.has_valid_flags() {
            return Tracked::Invalid(reason!(Firewall, "tcp_bad_flags"));
        }
        if flow.phase == Phase::New {
            return match self.tcp_may_open(&segment) {
                true => Tracked::Ask(Class::New),
                false => Tracked::Invalid(reason!(Firewall, "tcp_invalid_state")),
            };
        }
        // The class is what the flow was before this packet.
        let class = class_of(flow, half ^ flow.reversed());
        let judgement = tcp::judge(flow, &segment, half);
        match judgement {
            Judgement::Accept => {
                note_reply(flow, half ^ flow.reversed());
                Tracked::Pass(class)
            }
            Judgement::Finish => Tracked::Finish(class),
            Judgement::Reopen => Tracked::Ask(Class::New),
            Judgement::Refuse(fault) => Tracked::Invalid(reason_of(fault)),
        }
    }

    /// Whether a connection can begin with this segment.
    fn tcp_may_open(&self, segment: &Segment<'_>) -> bool {
        match segment.kind() {
            tcp::Kind::Syn => true,
            tcp::Kind::Ack => self.loose,
            _ => false,
        }
    }

    /// Asks the rules about a packet that opens something, and makes it the flow's first if they
    /// allow it.
    fn ask(
        &self,
        packet: &mut Packet,
        flow: &mut Connection,
        class: Class,
        half: usize,
        cx: &mut Cx<Self>,
    ) -> Result<Class, Verdict> {
        let fresh = flow.phase == Phase::New;
        if let Err(verdict) = self.consult(packet, cx) {
            if fresh && verdict == Verdict::Answer {
                cx.end_flow();
            }
            return Err(verdict);
        }
        if class == Class::Untracked {
            return Ok(class);
        }
        cx.count("flows_allowed");
        match packet.protocol() {
            protocol::TCP => {
                let Some(tcp) = packet.tcp() else {
                    return Err(cx.drop("malformed"));
                };
                let segment = Segment::from(tcp);
                // In its place: to be copied there, a state that was just written piece by piece
                // would have to be read as a whole.
                let before = *flow;
                let judged = match tcp::open(flow, &segment, half, self.loose) {
                    true => tcp::judge(flow, &segment, half),
                    false => Judgement::Refuse(Fault::State),
                };
                // Nothing that `tcp_may_open` lets through is refused here; if it were, the old
                // flow would stand.
                debug_assert_eq!(judged, Judgement::Accept);
                if judged != Judgement::Accept {
                    *flow = before;
                    cx.count("invalid_packets");
                    return Err(cx.drop("tcp_invalid_state"));
                }
            }
            protocol::UDP => {
                flow.phase = Phase::UdpUnreplied;
                flow.began = cx.now().tick();
            }
            protocol::ICMP | protocol::ICMPV6 if half == 1 => {
                flow.marks |= mark::CROSSED;
                flow.last_seen = packet.transport().first().copied().unwrap_or(0);
            }
            protocol::ICMP | protocol::ICMPV6 => {
                flow.phase = Phase::IcmpAsked;
                flow.last_seen = packet.transport().first().copied().unwrap_or(0);
            }
            _ => flow.phase = Phase::OtherUnreplied,
        }
        Ok(class)
    }

    /// Asks the rules. A packet that they do not allow is dropped or answered.
    fn consult(&self, packet: &mut Packet, cx: &mut Cx<Self>) -> Result<(), Verdict> {
        let opening = Opening::of(packet, cx.side());
        match self.look_up(&opening) {
            Some(Action::Allow) => Ok(()),
            Some(Action::Drop) => Err(cx.drop("denied_by_rule")),
            Some(Action::Reject) => {
                if self.answers.take(cx.now()) && answer::reject(packet) {
                    cx.count("packets_rejected");
                    Err(Verdict::Answer)
                } else {
                    Err(cx.drop("rejected_without_answer"))
                }
            }
            None => Err(cx.drop("not_allowed")),
        }
    }

    fn look_up(&self, opening: &Opening) -> Option<Action> {
        let rule = self.program.find(opening);
        let hits = &self.hits[rule.unwrap_or(self.hits.len() - 1)];
        hits.set(hits.get() + 1);
        rule.map(|rule| self.program.rules()[rule].action)
    }
}

/// The packet with which a flow was opened. Fields that only the packet itself shows (flags) are
/// taken to be those of a first packet.
fn first_of(flow: &Connection, cx: &Cx<Firewall>) -> Opening {
    let (mut source, mut destination) = cx.opened_by();
    let mut side = cx.side();
    if flow.reversed() == 1 {
        core::mem::swap(&mut source, &mut destination);
        side = side.opposite();
    }
    Opening::again(source, destination, cx.key().protocol(), side, flow.last_seen)
}

fn reason_of(fault: Fault) -> Name {
    match fault {
        Fault::State => reason!(Firewall, "tcp_invalid_state"),
        Fault::Window => reason!(Firewall, "tcp_out_of_window"),
        Fault::Reset => reason!(Firewall, "tcp_invalid_reset"),
    }
}
