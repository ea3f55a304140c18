//! Orders to move flows, as the tool gives them to a running cluster, and their receipts.
//!
//! ```text
//!   order ─► parts: which runtimes give flows away, and to which ─► a number of each ─► asked after until over ─► receipt, the sum
//! ```
//!
//! Sources and targets are chosen when the order is given, by the states that the runtimes report
//! ([`Order::parts`]). An order without a target goes to all other runtimes that take flows, not to
//! drained or full ones. A target that becomes full or drained while flows are on their way refuses
//! them. If the order leaves a choice they are offered once more, to another; the receipt says so.
//!
//! An order that has begun has a number ([`UnderWay`]). By it any caller finds the order again and
//! takes it back.
//!
//! Not here: how flows move (`runtime::mobility`); how a command waits for the end, and its text
//! then (`cli::moving`).

use crate::control::Key;
use crate::shape::Shape;
use runtime::mobility;
use runtime::stats::RuntimeStats;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Which flows go where.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
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
    /// Of those flows' groups, only one in so many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_in: Option<u16>,
    /// Of those flows so many at most. Groups move whole, so fewer may move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// The targets, in turn; none: all other runtimes that take flows.
    #[serde(default)]
    pub to: Vec<u16>,
}

impl Order {
    /// As the workers take it.
    pub fn selector(&self) -> Result<mobility::Selector, String> {
        match (&self.flow, &self.address) {
            (Some(_), Some(_)) => Err("say a flow or a prefix, not both".into()),
            (Some(key), None) => Ok(mobility::Selector::Flow((*key).into())),
            (None, Some(text)) => match text.parse() {
                Ok(prefix) => Ok(mobility::Selector::Ends(prefix)),
                Err(_) => Err(format!("`{text}` is no prefix; write one like 10.0.0.0/24")),
            },
            (None, None) => Ok(match self.one_in {
                Some(many) => mobility::Selector::OneIn(many),
                None => mobility::Selector::All,
            }),
        }
    }
}

/// The outcome of deleting flows.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deletion {
    /// Flows that have ended.
    pub flows_ended: u64,
    /// Flows that were meant, and go on since a call of theirs waits.
    pub flows_busy: u64,
}

impl Shape for Deletion {
    const NAME: &'static str = "flow-delete";
}

impl fmt::Display for Deletion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.flows_ended {
            1 => f.write_str("1 flow has ended")?,
            count => write!(f, "{count} flows have ended")?,
        }
        match self.flows_busy {
            0 => Ok(()),
            1 => f.write_str("; 1 goes on, since a call of it waits"),
            count => write!(f, "; {count} go on, since calls of them wait"),
        }
    }
}

/// The state of a runtime, for choosing it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CandidateRuntime {
    /// Flows now.
    pub flows: u64,
    /// The most flows.
    pub flows_max: u64,
    /// The runtime takes no flows until it is resumed. Of another process: it has said that it
    /// takes none.
    pub leaving: bool,
    /// Another process has the runtime, so its number of flows is not known; the runtime answers
    /// each request whether it takes a flow.
    pub elsewhere: bool,
    /// The runtime is not there.
    pub absent: bool,
    /// The runtime is absent, and no member has it: its number waits for `runtime add`, or for a
    /// member that no file lists.
    pub spare: bool,
    /// A caller is just having it take no flows.
    pub is_drained_now: bool,
}

impl CandidateRuntime {
    /// Of another process.
    pub fn elsewhere() -> Self {
        CandidateRuntime {
            elsewhere: true,
            ..CandidateRuntime::default()
        }
    }

    /// Why it takes no flows, if it does not.
    fn closed(&self) -> Option<&'static str> {
        match self {
            CandidateRuntime { absent: true, .. } => Some("not there"),
            CandidateRuntime {
                elsewhere: true,
                leaving: true,
                ..
            } => Some("drained, or just beginning"),
            CandidateRuntime { elsewhere: true, .. } => None,
            CandidateRuntime { leaving: true, .. } => Some("drained"),
            CandidateRuntime {
                is_drained_now: true, ..
            } => Some("just being drained"),
            _ if self.flows >= self.flows_max => Some("full"),
            _ => None,
        }
    }
}

impl From<&RuntimeStats> for CandidateRuntime {
    fn from(stats: &RuntimeStats) -> Self {
        CandidateRuntime {
            flows: stats.flows,
            flows_max: stats.flows_max,
            leaving: stats.leaving,
            ..CandidateRuntime::default()
        }
    }
}

impl Order {
    /// Which runtimes give flows away, and to which others. An error says why nothing can move; no
    /// move has begun then.
    pub fn parts(&self, places: &[CandidateRuntime]) -> Result<Vec<(u16, Vec<u16>)>, String> {
        let all = 0..places.len() as u16;
        let named = self.to.iter().chain(&self.from);
        if let Some(none) = named.clone().find(|number| !all.contains(number)) {
            return Err(no_such_runtime(*none));
        }
        if let Some(from) = self.from.filter(|from| places[usize::from(*from)].elsewhere) {
            return Err(not_here(from));
        }
        // A runtime of another process answers for itself: it may take flows by now.
        let drained = |number: &&u16| {
            let place = places[usize::from(**number)];
            (place.leaving || place.is_drained_now) && !place.elsewhere
        };
        if let Some(number) = self.to.iter().find(drained) {
            return Err(format!(
                "runtime {number} is drained and takes no flows; nothing has moved. Say `flowkeep runtime resume {number}` first, or \
                 name another"
            ));
        }
        if let Some(number) = self.to.iter().find(|number| places[usize::from(**number)].absent) {
            return Err(format!(
                "runtime {number} is not there; nothing has moved. Start it (`flowkeep runtime add {number}`, or its member), or name another"
            ));
        }
        among_others(places)?;
        let gives = |number: &u16| {
            self.from
                .map_or(!self.to.contains(number), |from| from == *number)
        };
        let mut parts = Vec::new();
        for from in all.clone().filter(gives) {
            let place = places[usize::from(from)];
            if place.elsewhere || place.absent {
                continue;
            }
            let takes = |to: &u16| {
                *to != from && (!self.to.is_empty() || places[usize::from(*to)].closed().is_none())
            };
            let to: Vec<u16> = match self.to.is_empty() {
                true => all.clone().filter(takes).collect(),
                false => self.to.iter().copied().filter(takes).collect(),
            };
            // Without any flow it has nothing to give either.
            if to.is_empty() && (self.from.is_some() || places[usize::from(from)].flows > 0) {
                return Err(match self.to.is_empty() {
                    true => format!("{}; none has moved. {}", nowhere(from, places), remedy(places)),
                    false => format!(
                        "runtime {from} is where these flows are and where they are to go; name another with --to"
                    ),
                });
            }
            if !to.is_empty() {
                parts.push((from, to));
            }
        }
        if self.count.is_some() {
            parts.retain(|(from, _)| places[usize::from(*from)].flows > 0);
            if parts.len() > 1 {
                return Err(format!(
                    "{} runtimes have flows to give, and a count is of one; nothing has moved. Say which: --from N",
                    parts.len()
                ));
            }
        }
        Ok(parts)
    }
}

/// Whether a runtime may be drained: another must take new flows.
pub fn may_leave(runtime: u16, places: &[CandidateRuntime]) -> Result<(), String> {
    if usize::from(runtime) >= places.len() {
        return Err(no_such_runtime(runtime));
    }
    if places[usize::from(runtime)].elsewhere {
        return Err(not_here(runtime));
    }
    among_others(places)?;
    let mut others = places
        .iter()
        .enumerate()
        .filter(|(at, _)| *at != usize::from(runtime));
    match others.any(|(_, place)| place.closed().is_none()) {
        true => Ok(()),
        false => Err(format!(
            "{}; nothing has changed. {}. With `flowkeep runtime drain {runtime} --force` it is drained all the same: its flows stay there and go on; {NEW_FLOWS}",
            nowhere(runtime, places),
            remedy(places)
        )),
    }
}

/// The wanted state of a runtime.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Leaving {
    /// The runtime takes no new flows, as long as another does.
    Drained,
    /// The runtime takes no new flows, even if no other does.
    Forced,
    /// The runtime takes new flows again.
    Resumed,
}

/// Whether there are others than one runtime, in this process or in another.
fn among_others(places: &[CandidateRuntime]) -> Result<(), String> {
    let there = places.iter().filter(|place| place.elsewhere || !place.absent);
    match there.count() {
        0 | 1 => Err(alone(places.len())),
        _ => Ok(()),
    }
}

/// The message where one runtime is there, of so many that there may be.
pub(crate) fn alone(most: usize) -> String {
    let remedy = match most {
        0 | 1 => "Write `runtimes = 2`, or more, into its configuration and start it again",
        _ => "`flowkeep runtime add` starts another",
    };
    format!("this cluster has one runtime, so there is none to move flows to; nothing has changed. {remedy}")
}

/// Where new flows go when no runtime takes any.
pub(crate) const NEW_FLOWS: &str = "new flows go to the runtimes that are not drained, also to one that is full, which drops them; as long as all are \
                                    drained, they go to all of them";

/// Why no runtime takes this one's flows.
fn nowhere(from: u16, places: &[CandidateRuntime]) -> String {
    let others = places
        .iter()
        .enumerate()
        .filter(|(number, place)| *number != usize::from(from) && !place.spare);
    let why: Vec<String> = others
        .filter_map(|(number, place)| Some(format!("{number} is {}", place.closed()?)))
        .collect();
    let why = match why.is_empty() {
        true => "no member has another".to_string(),
        false => why.join(", "),
    };
    format!("no other runtime takes the flows of runtime {from} ({why})")
}

/// The remedy then.
fn remedy(places: &[CandidateRuntime]) -> String {
    let start = match places.iter().any(|place| place.absent) {
        true => "Start one that is not there, or say",
        false => "Say",
    };
    let whom = match places.iter().any(|place| place.elsewhere) {
        true => ", to its own member's --socket (`flowkeep status` shows them)",
        false => "",
    };
    format!("{start} `flowkeep runtime resume N` for one that is drained{whom}")
}

/// The message on a runtime of another process.
fn not_here(number: u16) -> String {
    format!(
        "runtime {number} is in another process; name that one's socket with --socket. Nothing has changed"
    )
}

/// The message on a number that is no runtime's.
pub fn no_such_runtime(number: u16) -> String {
    format!("there is no runtime {number}; `flowkeep runtime list` shows which there are")
}

/// A part of an order: the runtime that gives flows away, and the order's number there.
pub type OrderPart = (u16, u32);

/// An order that is under way.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
pub struct UnderWay {
    /// Its number, by which it can be taken back.
    pub number: u32,
    /// The order.
    pub order: Order,
    /// Its receipt so far.
    pub receipt: Receipt,
}

/// Whether a runtime was removed, or what it waits for.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct Removal {
    /// The runtime is gone.
    pub done: bool,
    /// Flows that it has.
    pub flows: u64,
    /// Packets that it holds, and calls that wait.
    pub packets: u64,
    /// Routes that lead to it.
    pub routes: u64,
    /// Switches that do not know that it is leaving.
    pub unheard: u64,
}

impl fmt::Display for Removal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "it has {} flows, {} packets, and {} routes lead to it",
            self.flows, self.packets, self.routes
        )
    }
}

/// The flows and packets of a killed runtime.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
pub struct Killed {
    /// Flows.
    pub flows: u64,
    /// Flows that had copies at another runtime.
    pub protected_flows: u64,
    /// Packets, with packets on their way to it.
    pub packets: u64,
}

/// The outcome of an order.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    /// Flows of the groups that have begun to move.
    pub flows_asked: u64,
    /// Flows that have moved.
    pub flows_moved: u64,
    /// Flows that a target refused: full or leaving; where another may have taken them, that one,
    /// too.
    pub flows_refused: u64,
    /// Flows that a target refused, so that they were offered once more, to another: the other
    /// figures count them too.
    #[serde(default)]
    pub flows_offered_again: u64,
    /// Flows whose move was given up: they are where they were.
    pub flows_failed: u64,
    /// Groups that had not begun when the order was taken back: they stay.
    #[serde(default)]
    pub groups_canceled: u64,
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
    /// The longest pause of a group, in nanoseconds: from its switches' being told to the target's
    /// word of its installation.
    pub pause_longest_ns: u64,
    /// The median of the groups' pauses, in nanoseconds; with several sources, of the source where
    /// it is longest.
    pub pause_median_ns: u64,
    /// Bytes of state that were sent.
    pub bytes: u64,
    /// How long it took, in nanoseconds.
    pub duration_ns: u64,
    /// Whether it is over.
    pub over: bool,
}

impl Shape for Receipt {
    const NAME: &'static str = "moved";
}

impl Receipt {
    /// Nothing to do, and all done.
    pub fn empty() -> Self {
        Receipt {
            over: true,
            ..Receipt::default()
        }
    }

    /// Adds the receipt of another order, given behind this one.
    pub fn add_later(&mut self, later: &Receipt) {
        self.flows_asked += later.flows_asked;
        self.flows_moved += later.flows_moved;
        self.flows_refused += later.flows_refused;
        self.flows_offered_again += later.flows_offered_again;
        self.groups_canceled += later.groups_canceled;
        self.flows_failed += later.flows_failed;
        self.groups_waiting += later.groups_waiting;
        self.groups_under_way += later.groups_under_way;
        self.packets_buffered += later.packets_buffered;
        self.packets_handed_on += later.packets_handed_on;
        self.packets_dropped += later.packets_dropped;
        self.pause_longest_ns = self.pause_longest_ns.max(later.pause_longest_ns);
        self.pause_median_ns = self.pause_median_ns.max(later.pause_median_ns);
        self.bytes += later.bytes;
        self.duration_ns += later.duration_ns;
        self.over &= later.over;
    }

    /// Adds the receipt of the same order at another member, at the same time.
    pub fn add_beside(&mut self, other: &Receipt) {
        let longest = self.duration_ns.max(other.duration_ns);
        self.add_later(other);
        self.duration_ns = longest;
    }

    /// Adds the receipt of a part.
    pub fn add(&mut self, part: &mobility::Receipt) {
        self.flows_asked += part.asked;
        self.flows_moved += part.moved;
        self.flows_refused += part.refused;
        self.flows_offered_again += part.offered_again;
        self.groups_canceled += part.canceled;
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
        if self.flows_offered_again > 0 {
            writeln!(
                f,
                "flows    offered again {}, to another runtime than the one that refused them",
                self.flows_offered_again
            )?;
        }
        if self.groups_canceled > 0 {
            writeln!(
                f,
                "groups   canceled {}, which had not begun: they are where they were",
                self.groups_canceled
            )?;
        }
        if !self.over {
            writeln!(
                f,
                "groups   waiting {}, under way {}",
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
            "state    bytes {}, duration {:.3} ms",
            self.bytes,
            milliseconds(self.duration_ns)
        )?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(flows: u64, leaving: bool) -> CandidateRuntime {
        CandidateRuntime {
            flows,
            flows_max: 10,
            leaving,
            ..CandidateRuntime::default()
        }
    }

    fn order(from: Option<u16>, to: &[u16]) -> Order {
        Order {
            from,
            to: to.to_vec(),
            ..Order::default()
        }
    }

    #[test]
    fn who_gives_and_who_takes() {
        let places = [place(5, false), place(5, false), place(5, false)];
        for (from, to, parts) in [
            (None, vec![1], vec![(0, vec![1]), (2, vec![1])]),
            (None, vec![1, 0], vec![(2, vec![1, 0])]),
            (Some(0), vec![], vec![(0, vec![1, 2])]),
            (Some(0), vec![0, 2], vec![(0, vec![2])]),
            (
                None,
                vec![],
                vec![(0, vec![1, 2]), (1, vec![0, 2]), (2, vec![0, 1])],
            ),
        ] {
            assert_eq!(order(from, &to).parts(&places), Ok(parts), "{from:?} {to:?}");
        }
    }

    #[test]
    fn who_is_drained_or_full_is_left_out_where_nobody_names_it() {
        let places = [place(5, false), place(0, true), place(10, false), place(9, false)];
        assert_eq!(order(Some(0), &[]).parts(&places), Ok(vec![(0, vec![3])]));
        // The drained runtime gives to all that take flows.
        assert_eq!(order(Some(1), &[]).parts(&places), Ok(vec![(1, vec![0, 3])]));
        // A full target that is named may have room when flows come: it refuses them by itself.
        assert_eq!(order(Some(0), &[2]).parts(&places), Ok(vec![(0, vec![2])]));
        // A runtime that has no flows gives none, and needs no target.
        let places = [place(0, false), place(5, true)];
        assert_eq!(order(None, &[]).parts(&places), Ok(vec![(1, vec![0])]));
    }

    #[test]
    fn who_is_in_another_process_takes_and_is_not_told_to_give() {
        let places = [place(5, false), CandidateRuntime::elsewhere()];
        assert_eq!(order(Some(0), &[]).parts(&places), Ok(vec![(0, vec![1])]));
        // The process has refused that before: it knows other members' runtimes (`run::part`).
        assert_eq!(order(None, &[0]).parts(&places), Ok(vec![]));
        for said in [
            order(Some(1), &[0]).parts(&places).map(drop),
            may_leave(1, &places),
        ] {
            assert!(
                said.unwrap_err()
                    .starts_with("runtime 1 is in another process; name that one's socket")
            );
        }
    }

    #[test]
    fn of_another_process_it_counts_what_it_has_said() {
        let drained = CandidateRuntime {
            leaving: true,
            ..CandidateRuntime::elsewhere()
        };
        let places = [place(5, false), drained, CandidateRuntime::elsewhere()];
        assert_eq!(order(Some(0), &[]).parts(&places), Ok(vec![(0, vec![2])]));
        assert_eq!(may_leave(0, &places), Ok(()));
        let said = may_leave(0, &places[..2]).unwrap_err();
        for words in [
            "(1 is drained, or just beginning); nothing has changed",
            "to its own member's --socket",
            "flowkeep runtime drain 0 --force",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
        // A target that is named is asked.
        assert_eq!(order(Some(0), &[1]).parts(&places), Ok(vec![(0, vec![1])]));
    }

    #[test]
    fn a_count_is_of_one_runtime() {
        let places = [place(5, false), place(5, false), place(0, false)];
        let some = |from: Option<u16>, to: &[u16]| Order {
            count: Some(3),
            ..order(from, to)
        };
        assert_eq!(some(Some(0), &[]).parts(&places), Ok(vec![(0, vec![1, 2])]));
        // Of all others one has some.
        assert_eq!(some(None, &[0]).parts(&places), Ok(vec![(1, vec![0])]));
        let said = some(None, &[2]).parts(&places).unwrap_err();
        assert!(
            said.starts_with("2 runtimes have flows to give") && said.contains("--from N"),
            "{said}"
        );
    }

    #[test]
    fn who_is_not_there_is_to_be_started() {
        let absent = CandidateRuntime {
            absent: true,
            ..CandidateRuntime::elsewhere()
        };
        let said = may_leave(0, &[place(5, false), absent]).unwrap_err();
        assert!(
            said.contains("(1 is not there)") && said.contains("Start one that is not there"),
            "{said}"
        );
        // Numbers that no member has are not listed.
        let spare = CandidateRuntime {
            spare: true,
            ..absent
        };
        let said = may_leave(0, &[place(5, false), absent, spare, spare]).unwrap_err();
        assert!(said.contains("(1 is not there)"), "{said}");
        let said = may_leave(0, &[place(5, false), spare]).unwrap_err();
        assert!(said.contains("(no member has another)"), "{said}");
    }

    #[test]
    fn the_last_that_takes_flows_does_not_leave() {
        let places = [place(5, false), place(0, true), place(10, false)];
        let said = may_leave(0, &places).unwrap_err();
        assert!(
            said.starts_with(
                "no other runtime takes the flows of runtime 0 (1 is drained, 2 is full); nothing has"
            ),
            "{said}"
        );
        assert_eq!(may_leave(1, &places), Ok(()));
        assert_eq!(may_leave(2, &places), Ok(()));
        assert!(
            may_leave(3, &places)
                .unwrap_err()
                .starts_with("there is no runtime 3")
        );
        assert!(may_leave(0, &places[..1]).unwrap_err().contains("one runtime"));
    }

    #[test]
    fn what_cannot_move_says_why_and_what_to_do() {
        let places = [place(5, false), place(0, true), place(10, false)];
        for (from, to, words) in [
            (None, vec![7], "there is no runtime 7; `flowkeep runtime list`"),
            (Some(3), vec![0], "there is no runtime 3"),
            (
                None,
                vec![0, 1],
                "runtime 1 is drained and takes no flows; nothing has moved. Say `flowkeep runtime resume 1`",
            ),
            (
                Some(0),
                vec![0],
                "runtime 0 is where these flows are and where they are to go",
            ),
            (
                Some(0),
                vec![],
                "no other runtime takes the flows of runtime 0 (1 is drained, 2 is full); none has moved",
            ),
        ] {
            let said = order(from, &to).parts(&places).unwrap_err();
            assert!(said.starts_with(words), "{said}");
        }
        let said = order(None, &[]).parts(&places[..1]).unwrap_err();
        assert!(said.contains("Write `runtimes = 2`"), "{said}");
    }
}
