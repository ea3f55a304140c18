//! Invariant 5, of what functions know: state that is read from streams and counted in records
//! continues wherever the flow goes, neither lost nor doubled.
//!
//! Looked at is the event log. A packet is in one record of the flow monitor; a request makes one
//! record of the HTTP parser; a needle in a stream, its two halves in two segments, makes one
//! alert, whichever runtime read the first half. A connection whose first segment comes once more
//! behind its last ones, since the network doubled it, is another connection to whatever reads it,
//! and so are the copies that follow it. All is exact where no fault takes anything away
//! from a flow ([`Script::loses_nothing`]); at most so where nothing is altered on its way, no
//! worker crashes and no clock jumps. Of packets, records have at least those that left, if no
//! worker crashes or may be removed.

use super::Violation;
use super::conservation::ClusterStats;
use crate::frame::{Transport, flags};
use crate::script::{Fault, Manner, Script};
use crate::streams;
use crate::world::Packet;
use std::collections::BTreeMap;

const NAME: &str = "read";

/// The lines of the event log so far.
#[derive(Default)]
pub(crate) struct Read {
    /// Packets in flows' records, with ICMP errors.
    packets: u64,
    /// By talk: alerts each way, and records by number of request.
    talks: BTreeMap<u16, Told>,
}

#[derive(Default)]
struct Told {
    alerts: [u32; 2],
    requests: BTreeMap<u16, u32>,
    /// Whether an end has closed the connection, and how often it began again since.
    is_closed: bool,
    begun_again: u32,
}

impl Read {
    /// A packet has come in at a port.
    pub fn entered(&mut self, packet: &Packet) {
        let Transport::Tcp { flags, .. } = packet.head.transport else {
            return;
        };
        if flags & (flags::FIN | flags::RST) != 0 {
            self.talks.entry(packet.talk).or_default().is_closed = true;
        } else if flags & (flags::SYN | flags::ACK) == flags::SYN
            && let Some(told) = self.talks.get_mut(&packet.talk)
            && told.is_closed
        {
            told.begun_again += 1;
        }
    }

    /// Lines of the event log.
    pub fn hear(&mut self, script: &Script, lines: &str) {
        for line in lines.lines() {
            if line.contains("\"event\":\"flow\"") {
                for name in ["\"orig_packets\":", "\"resp_packets\":", "\"icmp_errors\":"] {
                    self.packets += number(line, name).unwrap_or(0);
                }
            } else if line.contains("\"event_type\":\"alert\"") {
                let way = usize::from(line.contains(streams::NEEDLES[1]));
                let name = ["\"src_port\":", "\"dest_port\":"][way];
                let port = number(line, name);
                let of_port = |talk: &crate::script::Talk| port == Some(u64::from(talk.client.port));
                if let Some(talk) = script.talks.iter().position(of_port) {
                    self.talks.entry(talk as u16).or_default().alerts[way] += 1;
                }
            } else if line.contains("\"event_type\":\"http\"")
                && let Some((_, url)) = line.split_once("\"url\":\"/t")
                && let (Some(talk), Some(request)) = (number(url, ""), number(url, "/"))
            {
                let told = self.talks.entry(talk as u16).or_default();
                *told.requests.entry(request as u16).or_default() += 1;
            }
        }
    }

    /// All flows have ended. `done` says of a talk whether all of it was answered.
    pub fn check(
        &self,
        script: &Script,
        figures: &ClusterStats,
        done: impl Fn(usize) -> bool,
    ) -> Result<(), Violation> {
        let is_crash = |fault: &Fault| matches!(fault, Fault::Crash { .. } | Fault::Silence { .. });
        let is_removed = script.joined().is_some() && !script.is_calm;
        if is_removed || script.faults.iter().any(|timed| is_crash(&timed.fault)) {
            return Ok(());
        }
        let is_exact = script.loses_nothing();
        if script.scenario.records_all() {
            let left = figures.left - figures.own - figures.damaged_errors;
            if self.packets < left || is_exact && self.packets != left {
                let what = format!("{left} packets left, and flows' records have {}", self.packets);
                return Err(Violation::new(NAME, what));
            }
        }
        let is_jump = |fault: &Fault| matches!(fault, Fault::Jump { .. });
        let is_whole = !script.corrupts() && !script.faults.iter().any(|timed| is_jump(&timed.fault));
        if !script.scenario.has_streams() || !is_whole {
            return Ok(());
        }
        for (index, talk) in script.talks.iter().enumerate() {
            let told = self.talks.get(&(index as u16));
            if talk.manner != Manner::Tcp {
                continue;
            }
            let must = is_exact && done(index);
            let times = 1 + told.map_or(0, |told| told.begun_again);
            for way in [false, true] {
                let most = u32::from(streams::needle_at(talk, way).is_some());
                let alerts = told.map_or(0, |told| told.alerts[usize::from(way)]);
                if alerts > most * times || must && alerts < most {
                    let what = format!("{alerts} alerts for {most} needles in talk {index} ({talk})");
                    return Err(Violation::new(NAME, what));
                }
            }
            let of = |request: u16| told.and_then(|told| told.requests.get(&request)).copied();
            let twice = told.and_then(|told| told.requests.iter().find(|(_, count)| **count > times));
            if let Some((request, count)) = twice {
                let what = format!("request {request} of talk {index} is in {count} records ({talk})");
                return Err(Violation::new(NAME, what));
            }
            let lost = (0..streams::requests_of(talk)).find(|request| must && of(*request).is_none());
            if let Some(request) = lost {
                let what = format!("request {request} of talk {index} is in no record ({talk})");
                return Err(Violation::new(NAME, what));
            }
        }
        Ok(())
    }
}

/// The number behind a name.
fn number(line: &str, name: &str) -> Option<u64> {
    let (_, rest) = line.split_once(name)?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}
