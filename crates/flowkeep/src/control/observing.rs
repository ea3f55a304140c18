//! One watch over all members: begun at each, fetched from each, merged by time.
//!
//! # Theory of operation
//!
//! ```text
//!   watch ──► WatchPart at all members ─► each has its part, by one number
//!   observed ─► ObservedPart at all that have one ─► pieces ─► by time ─┬─ no later than the last of the round before: out
//!                                                                      └─ later: waits for the next round
//!   drop ───► EndWatch at all; a command that is killed says nothing, and each part ends by itself
//! ```
//!
//! Round N + 1 begins behind the answers of round N. So it has all observations from before the
//! last one of round N, and none waits longer than a round. Members' clocks are compared as they
//! are.
//!
//! A member that joins, or begins again, gets a part at the next look. A member that does not
//! answer is named, and the others go on. The watch is over when no member has a part of it.
//!
//! A trace's packets are marked where they come in, and the mark goes with them over links. So it
//! is the same at all members: a mark that is taken at any of them is tried no more, and the next
//! one is.
//!
//! Not here: a member's part (`watches`).

use super::members::{Members, OfMember};
use super::{Answer, FOREIGN, Observe, Request};
use crate::capture::Frame;
use crate::cluster::Observed;
use crate::following::FlowLine;
use crate::trace::Step;
use std::collections::{BTreeMap, BTreeSet};

/// Marks of traces.
const SLOTS: u8 = runtime::watch::TRACES_MAX as u8;

/// Things of several members, by their times.
struct ByTime<K, T> {
    waiting: Vec<(K, T)>,
    /// The latest of the rounds before.
    horizon: Option<K>,
}

impl<K, T> Default for ByTime<K, T> {
    fn default() -> Self {
        ByTime {
            waiting: Vec::new(),
            horizon: None,
        }
    }
}

impl<K: Ord + Clone, T> ByTime<K, T> {
    /// Takes the observations of a round, and answers those that go out now. Those of one member
    /// are in their order.
    fn round(&mut self, new: Vec<(K, T)>, is_last: bool) -> Vec<T> {
        let has_news = !new.is_empty();
        self.waiting.extend(new);
        self.waiting.sort_by(|a, b| a.0.cmp(&b.0));
        let count = match (&self.horizon, has_news && !is_last) {
            (_, false) => self.waiting.len(),
            (Some(horizon), true) => self.waiting.partition_point(|(time, _)| time <= horizon),
            (None, true) => 0,
        };
        let newest = self.waiting.last().map(|(time, _)| time.clone());
        self.horizon = newest.or_else(|| self.horizon.take());
        self.waiting.drain(..count).map(|(_, thing)| thing).collect()
    }
}

/// A watch of all members.
pub(super) struct Watch {
    number: u64,
    observe: Observe,
    slot: Option<u8>,
    /// Members that have a part.
    parts: BTreeSet<String>,
    /// Members that were asked for a part since the last look at the members.
    asked: BTreeSet<String>,
    steps: ByTime<u64, Step>,
    frames: ByTime<u64, Frame>,
    flows: ByTime<String, FlowLine>,
    /// A packet's number here, by its member's.
    packets: BTreeMap<(String, u64), u64>,
    packets_seen: u64,
}

/// A number that no other command has.
fn by_chance() -> u64 {
    rand::random()
}

impl Watch {
    fn new(observe: Observe, slot: Option<u8>) -> Self {
        Watch {
            number: by_chance(),
            observe,
            slot,
            parts: BTreeSet::new(),
            asked: BTreeSet::new(),
            steps: ByTime::default(),
            frames: ByTime::default(),
            flows: ByTime::default(),
            packets: BTreeMap::new(),
            packets_seen: 0,
        }
    }

    /// Members that are to get a part now.
    fn wanting(&self, there: &[String]) -> Vec<(String, Request)> {
        let new = there
            .iter()
            .filter(|name| !self.parts.contains(*name) && !self.asked.contains(*name));
        let part = |name: &String| {
            let request = Request::WatchPart {
                watch: self.number,
                observe: Box::new(self.observe.clone()),
                slot: self.slot,
            };
            (name.clone(), request)
        };
        new.map(part).collect()
    }

    fn of_all(&self, request: impl Fn() -> Request) -> Vec<(String, Request)> {
        self.parts.iter().map(|name| (name.clone(), request())).collect()
    }

    /// The members' observations; which of them have no part any more, and why, if that is not
    /// their end.
    fn take(&mut self, answers: Vec<OfMember>, is_last: bool) -> (Observed, Vec<(String, String)>) {
        let mut whole = Observed::default();
        let (mut steps, mut frames, mut flows, mut gone) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (member, answer) in answers {
            let part = match answer {
                Ok(Answer::Observed(part)) => *part,
                Ok(_) => {
                    gone.push((member, FOREIGN.to_owned()));
                    continue;
                }
                Err(why) => {
                    gone.push((member, why));
                    continue;
                }
            };
            whole.steps_lost += part.steps_lost;
            whole.flows_lost += part.flows_lost;
            for (port, count) in part.lost {
                *whole.lost.entry(port).or_default() += count;
            }
            if let Some(left) = part.left {
                *whole.left.get_or_insert(0) += left;
            }
            let mut latest = 0;
            for step in part.steps {
                // A member has its own steps in order, though its workers' times may differ.
                latest = step.time_ns.max(latest);
                steps.push((latest, self.renumbered(step, &member)));
            }
            let name = || Some(member.clone());
            let named = part.frames.into_iter().map(|frame| Frame {
                member: name(),
                ..frame
            });
            frames.extend(named.map(|frame| (frame.time_ns, frame)));
            let named = part.flows.into_iter().map(|line| FlowLine {
                member: name(),
                ..line
            });
            flows.extend(named.map(|line| (line.time.clone(), line)));
            if part.is_over {
                self.parts.remove(&member);
            }
        }
        for (member, _) in &gone {
            self.parts.remove(member);
        }
        whole.is_over = self.parts.is_empty();
        let is_last = is_last || whole.is_over;
        whole.steps = self.steps.round(steps, is_last);
        whole.frames = self.frames.round(frames, is_last);
        whole.flows = self.flows.round(flows, is_last);
        (whole, gone)
    }

    fn renumbered(&mut self, step: Step, member: &str) -> Step {
        let seen = &mut self.packets_seen;
        let packet = self.packets.entry((member.to_owned(), step.packet));
        let packet = *packet.or_insert_with(|| {
            *seen += 1;
            *seen
        });
        Step {
            packet,
            member: Some(member.to_owned()),
            ..step
        }
    }
}

/// Begins to watch at all members that are there: the names of all ports.
pub(super) fn begin(members: &mut Members, observe: &Observe) -> Result<Answer, String> {
    end(members);
    let slots: Vec<Option<u8>> = match observe {
        Observe::Flow { .. } => (0..SLOTS).map(Some).collect(),
        _ => vec![None],
    };
    let mut problems = BTreeMap::new();
    for slot in slots {
        let is_trace = slot.is_some();
        let mut watch = Watch::new(observe.clone(), slot);
        let requests = watch.wanting(&members.there());
        let mut ports: Vec<String> = Vec::new();
        problems.clear();
        for (member, answer) in members.relay(requests)? {
            match answer {
                Ok(Answer::Watching { ports: its }) => {
                    add_ports(&mut ports, its);
                    watch.parts.insert(member.clone());
                }
                Ok(_) => drop(problems.insert(member.clone(), FOREIGN.to_owned())),
                Err(why) => drop(problems.insert(member.clone(), why)),
            }
            watch.asked.insert(member);
        }
        // A mark that is taken at one member is tried at none.
        let is_good =
            !watch.parts.is_empty() && (problems.is_empty() || !is_trace || slot == Some(SLOTS - 1));
        members.watch = Some(watch);
        if is_good {
            members.miss(problems);
            return Ok(Answer::Watching { ports });
        }
        end(members);
    }
    let why: BTreeSet<String> = problems.into_values().collect();
    Err(match why.is_empty() {
        true => "no member is there by the coordinator's view; `flowkeep cluster status` shows it".to_owned(),
        false => why.into_iter().collect::<Vec<_>>().join("\n"),
    })
}

/// Ports have numbers of the whole cluster; each member knows the names of its own.
fn add_ports(all: &mut Vec<String>, its: Vec<String>) {
    for (number, name) in its.into_iter().enumerate() {
        if all.len() <= number {
            all.resize(number + 1, String::new());
        }
        if all[number].is_empty() {
            all[number] = name;
        }
    }
}

/// The members' observations since the last time, by time; with `is_last`, nothing waits.
pub(super) fn observed(members: &mut Members, is_last: bool) -> Result<Observed, String> {
    let Some(mut watch) = members.watch.take() else {
        return Err(FOREIGN.to_owned());
    };
    let done = round(members, &mut watch, is_last);
    members.watch = Some(watch);
    done
}

fn round(members: &mut Members, watch: &mut Watch, is_last: bool) -> Result<Observed, String> {
    if members.look()? {
        watch.asked.clear();
    }
    let new = watch.wanting(&members.there());
    if !new.is_empty() && !is_last {
        watch.asked.extend(new.iter().map(|(member, _)| member.clone()));
        for (member, answer) in members.relay(new)? {
            if let Ok(Answer::Watching { .. }) = answer {
                // Another incarnation of it counts from the beginning.
                watch.packets.retain(|(of, _), _| *of != member);
                watch.parts.insert(member);
            }
        }
    }
    let number = watch.number;
    let requests = watch.of_all(|| Request::ObservedPart { watch: number });
    let answers = members.relay(requests)?;
    let (observed, gone) = watch.take(answers, is_last);
    members.miss(gone.into_iter().collect());
    Ok(observed)
}

/// Ends the watch at all members that have a part.
pub(super) fn end(members: &mut Members) {
    if let Some(watch) = members.watch.take() {
        let number = watch.number;
        let requests = watch.of_all(|| Request::EndWatch { watch: number });
        if !requests.is_empty() {
            drop(members.relay(requests));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(time: &str) -> FlowLine {
        FlowLine {
            time: time.to_owned(),
            event: "opened".to_owned(),
            runtime: 0,
            protocol: "tcp".to_owned(),
            vlan: 0,
            source: String::new(),
            destination: String::new(),
            translated: None,
            chain: "web".to_owned(),
            member: None,
        }
    }

    fn part(member: &str, times: &[&str], is_over: bool) -> OfMember {
        let observed = Observed {
            flows: times.iter().map(|time| line(time)).collect(),
            flows_lost: 1,
            is_over,
            ..Observed::default()
        };
        (member.to_owned(), Ok(Answer::Observed(Box::new(observed))))
    }

    fn times(observed: &Observed) -> Vec<(&str, &str)> {
        observed
            .flows
            .iter()
            .map(|line| (line.time.as_str(), line.member.as_deref().unwrap_or("")))
            .collect()
    }

    #[test]
    fn lines_of_members_come_by_time_and_wait_for_a_round_at_most() {
        let mut watch = Watch::new(Observe::Flows(crate::following::Choice::default()), None);
        watch.parts = ["left", "right"].map(str::to_owned).into();
        let (first, _) = watch.take(
            vec![part("left", &["1", "4"], false), part("right", &["2"], false)],
            false,
        );
        assert_eq!((times(&first), first.flows_lost), (vec![], 2));
        // Events at the right from before the left's last one are told before it.
        let (second, _) = watch.take(
            vec![part("left", &[], false), part("right", &["3", "5"], false)],
            false,
        );
        assert_eq!(
            times(&second),
            [("1", "left"), ("2", "right"), ("3", "right"), ("4", "left")]
        );
        let (third, _) = watch.take(vec![part("left", &[], false), part("right", &[], false)], false);
        assert_eq!(times(&third), [("5", "right")]);
        // A silent member is named, the other goes on; behind the last one nothing waits.
        let silent = (
            "left".to_owned(),
            Err("member `left` has not answered".to_owned()),
        );
        let (fourth, gone) = watch.take(vec![silent, part("right", &["7"], false)], false);
        assert_eq!((gone.len(), fourth.is_over), (1, false));
        let (last, _) = watch.take(vec![part("right", &["9"], true)], false);
        assert_eq!(times(&last), [("7", "right"), ("9", "right")]);
        assert!(last.is_over);
    }

    #[test]
    fn packets_have_numbers_of_their_own_and_a_members_steps_stay_in_order() {
        let mut watch = Watch::new(Observe::Flows(crate::following::Choice::default()), None);
        watch.parts = ["front", "left"].map(str::to_owned).into();
        let step = |packet, time_ns| Step {
            packet,
            time_ns,
            worker: "switch 0".to_owned(),
            member: None,
            event: crate::trace::Event::Turned,
        };
        let of = |member: &str, steps: Vec<Step>| {
            let observed = Observed {
                steps,
                left: Some(3),
                ..Observed::default()
            };
            (member.to_owned(), Ok(Answer::Observed(Box::new(observed))))
        };
        let all = vec![
            of("front", vec![step(1, 50), step(1, 20), step(2, 60)]),
            of("left", vec![step(1, 30)]),
        ];
        let (observed, _) = watch.take(all, true);
        let seen: Vec<_> = observed
            .steps
            .iter()
            .map(|step| (step.member.as_deref().unwrap_or(""), step.packet, step.time_ns))
            .collect();
        assert_eq!(
            seen,
            [
                ("left", 3, 30),
                ("front", 1, 50),
                ("front", 1, 20),
                ("front", 2, 60)
            ]
        );
        assert_eq!(observed.left, Some(6));
    }
}
