//! Orders to move flows, as the tool gives them to a running cluster, and what came of them.
//!
//! An order goes to each runtime that is to give flows away; each answers with a number, by which it is asked how far it is until its
//! part is over. [`Receipt`] is the sum of the parts.
//!
//! Not here: how flows move (`runtime::worker::migrate`).

use crate::control::Key;
use runtime::worker::migrate;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Which flows go where.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// Only this flow's group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<Key>,
    /// Only groups of flows with an end in this prefix, before translation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Only flows of this runtime; otherwise of all but the targets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u16>,
    /// The targets; none: all other runtimes, in turn.
    #[serde(default)]
    pub to: Vec<u16>,
}

impl Order {
    /// As the workers take it.
    pub fn selector(&self) -> Result<migrate::Selector, String> {
        match (&self.flow, &self.address) {
            (Some(_), Some(_)) => Err("say a flow or a prefix, not both".into()),
            (Some(key), None) => Ok(migrate::Selector::Flow((*key).into())),
            (None, Some(text)) => match text.parse() {
                Ok(prefix) => Ok(migrate::Selector::Ends(prefix)),
                Err(_) => Err(format!("`{text}` is no prefix; write one like 10.0.0.0/24")),
            },
            (None, None) => Ok(migrate::Selector::All),
        }
    }
}

/// A part of an order: the runtime that gives flows away, and the order's number there.
pub type Part = (u16, u32);

/// What came of an order.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    /// Flows of the groups that have begun to move.
    pub flows_asked: u64,
    /// Flows that have moved.
    pub flows_moved: u64,
    /// Flows that a target refused: full or leaving.
    pub flows_refused: u64,
    /// Flows whose move was given up: they are where they were.
    pub flows_failed: u64,
    /// Groups that have not begun.
    pub groups_waiting: u64,
    /// Groups on their way.
    pub groups_under_way: u64,
    /// Packets kept at targets until their group was there.
    pub packets_buffered: u64,
    /// Packets that sources handed over.
    pub packets_handed_on: u64,
    /// Packets dropped because as many were kept as may be.
    pub packets_dropped: u64,
    /// The longest pause of a group, in nanoseconds: from its switches' being told to its installation.
    pub pause_longest_ns: u64,
    /// The median of the groups' pauses, in nanoseconds; with several sources, of the source where it is longest.
    pub pause_median_ns: u64,
    /// Bytes of state that were sent.
    pub bytes: u64,
    /// How long it took, in nanoseconds.
    pub duration_ns: u64,
    /// Whether it is over.
    pub over: bool,
}

impl Receipt {
    /// Nothing to do, and all done.
    pub fn empty() -> Self {
        Receipt {
            over: true,
            ..Receipt::default()
        }
    }

    /// Adds what came of a part.
    pub fn add(&mut self, part: &migrate::Receipt) {
        self.flows_asked += part.asked;
        self.flows_moved += part.moved;
        self.flows_refused += part.refused;
        self.flows_failed += part.failed;
        self.groups_waiting += part.waiting;
        self.groups_under_way += part.under_way;
        self.packets_buffered += part.buffered;
        self.packets_handed_on += part.handed_on;
        self.packets_dropped += part.dropped;
        self.pause_longest_ns = self.pause_longest_ns.max(part.pause_longest);
        self.pause_median_ns = self.pause_median_ns.max(part.pause_median);
        self.bytes += part.bytes;
        self.duration_ns = self.duration_ns.max(part.duration);
        self.over &= part.is_over;
    }
}

impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let milliseconds = |nanoseconds: u64| nanoseconds as f64 / 1e6;
        writeln!(
            f,
            "flows    asked {}, moved {}, refused {}, failed {}",
            self.flows_asked, self.flows_moved, self.flows_refused, self.flows_failed
        )?;
        if !self.over {
            writeln!(
                f,
                "groups   {} waiting, {} under way",
                self.groups_waiting, self.groups_under_way
            )?;
        }
        writeln!(
            f,
            "packets  buffered {}, handed on {}, dropped {}",
            self.packets_buffered, self.packets_handed_on, self.packets_dropped
        )?;
        writeln!(
            f,
            "pause    longest {:.3} ms, median {:.3} ms",
            milliseconds(self.pause_longest_ns),
            milliseconds(self.pause_median_ns)
        )?;
        writeln!(
            f,
            "state    {} bytes in {:.3} ms",
            self.bytes,
            milliseconds(self.duration_ns)
        )?;
        if self.flows_refused > 0 {
            writeln!(
                f,
                "refused flows stay where they are: the target is full, or leaving"
            )?;
        }
        if self.flows_failed > 0 {
            writeln!(
                f,
                "failed flows are where they were, and nothing of theirs is lost; try again"
            )?;
        }
        Ok(())
    }
}
