//! Answers of several members, merged into one, and things of one member that say whose they are.
//!
//! Figures are summed and lists are put behind each other. Packets between members are counted by
//! both, so they are in neither sum: packets sent and not received yet are on their way.

use super::Answer;
use crate::explain::Explanation;
use crate::moving::Deletion;
use crate::report::{Flow, MemberReport, Packets, Status};
use std::collections::BTreeMap;

/// One answer, as far as all are to the same question.
pub(super) fn merged(answers: Vec<(String, Answer)>, missing: &BTreeMap<String, String>) -> Option<Answer> {
    let mut all = answers.into_iter();
    let (member, first) = all.next()?;
    let mut whole = match first {
        Answer::Status(status) => Answer::Status(Box::new(alone(*status, &member))),
        answer => tagged(answer, &member),
    };
    for (member, answer) in all {
        match (&mut whole, answer) {
            (Answer::Status(whole), Answer::Status(status)) => add(whole, alone(*status, &member)),
            (Answer::Flow(found), Answer::Flow(flow)) => {
                if found.is_none() {
                    *found = flow.map(|flow| of(flow, &member));
                }
            }
            (Answer::Explained(found), Answer::Explained(more)) => {
                *found = Explanation::better(found.take(), explained(more, &member));
            }
            (Answer::Threads(threads), Answer::Threads(more)) => threads.extend(more),
            (Answer::Function(answers), Answer::Function(more)) => answers.extend(more),
            (Answer::Ordered(parts), Answer::Ordered(more)) => parts.extend(more),
            (Answer::Deleted(done), Answer::Deleted(more)) => {
                *done = Deletion {
                    flows_ended: done.flows_ended + more.flows_ended,
                    flows_busy: done.flows_busy + more.flows_busy,
                }
            }
            (Answer::Replication, Answer::Replication) => {}
            _ => return None,
        }
    }
    match &mut whole {
        Answer::Status(status) => finish(status, missing),
        Answer::Explained(Some(found)) if missing.is_empty() => found.conclude(),
        Answer::Function(answers) => answers.sort_by_key(|told| (told.runtime, told.gone)),
        _ => {}
    }
    Some(whole)
}

/// A member's answer, whose flows, runtimes, switches and ports say that they are that member's.
pub(super) fn tagged(answer: Answer, member: &str) -> Answer {
    match answer {
        Answer::Status(mut status) => {
            tag(&mut status, member);
            Answer::Status(status)
        }
        Answer::Flows(mut list) => {
            list.flows = list.flows.into_iter().map(|flow| of(flow, member)).collect();
            Answer::Flows(list)
        }
        Answer::Flow(flow) => Answer::Flow(flow.map(|flow| of(flow, member))),
        Answer::Explained(found) => Answer::Explained(explained(found, member)),
        answer => answer,
    }
}

fn explained(found: Option<Box<Explanation>>, member: &str) -> Option<Box<Explanation>> {
    let mut found = found?;
    found.flow = found.flow.map(|flow| of(flow, member));
    Some(found)
}

fn of(flow: Flow, member: &str) -> Flow {
    Flow {
        member: Some(member.to_owned()),
        ..flow
    }
}

fn tag(status: &mut Status, member: &str) {
    let member = || Some(member.to_owned());
    status.runtimes.iter_mut().for_each(|of| of.member = member());
    status.switches.iter_mut().for_each(|of| of.member = member());
    status.ports.iter_mut().for_each(|of| of.member = member());
}

/// The whole cluster's status, of one member so far.
fn alone(mut status: Status, member: &str) -> Status {
    tag(&mut status, member);
    status.members = vec![MemberReport {
        member: member.to_owned(),
        problem: None,
        configuration: status.configuration.take(),
        uptime_seconds: status.uptime_seconds,
        packets: status.packets.clone(),
        flows: status.flows.clone(),
    }];
    status.member = None;
    status
}

fn add(whole: &mut Status, more: Status) {
    whole.uptime_seconds = whole.uptime_seconds.max(more.uptime_seconds);
    whole.generation = whole.generation.max(more.generation);
    add_packets(&mut whole.packets, &more.packets);
    whole.flows.active += more.flows.active;
    whole.flows.max += more.flows.max;
    whole.flows.opened += more.flows.opened;
    whole.flows.ended += more.flows.ended;
    whole.runtimes.extend(more.runtimes);
    whole.switches.extend(more.switches);
    whole.ports.extend(more.ports);
    whole.members.extend(more.members);
    whole.others.extend(more.others);
    whole.links.extend(more.links);
    whole.unanswered.extend(more.unanswered);
    whole.stores.extend(more.stores);
    whole.variables.extend(more.variables);
    whole.objects.extend(more.objects);
    for (name, count) in more.counters {
        *whole.counters.entry(name).or_default() += count;
    }
}

fn add_packets(whole: &mut Packets, more: &Packets) {
    whole.r#in += more.r#in;
    whole.made += more.made;
    whole.out += more.out;
    whole.from_others += more.from_others;
    whole.to_others += more.to_others;
    whole.held += more.held;
    whole.passing += more.passing;
    whole.recounted += more.recounted;
    for (reason, count) in &more.dropped {
        *whole.dropped.entry(reason.clone()).or_default() += count;
    }
}

/// All members that have answered are in it: names the silent ones, and those that are in the
/// configuration and not in the cluster.
fn finish(status: &mut Status, missing: &BTreeMap<String, String>) {
    for (member, why) in missing {
        status.members.push(MemberReport::without(member, why));
    }
    let others: Vec<String> = status.others.drain(..).map(|other| other.member).collect();
    for other in others {
        if !status.members.iter().any(|member| member.member == other) {
            let why = format!("member `{other}` is in the configuration, and not in the coordinator's view");
            status.members.push(MemberReport::without(&other, &why));
        }
    }
    status.members.sort_by(|one, other| one.member.cmp(&other.member));
    status.runtimes.sort_by_key(|runtime| runtime.runtime);
    status.switches.sort_by_key(|switch| switch.switch);
    let packets = &mut status.packets;
    let inside = packets.from_others.min(packets.to_others);
    packets.from_others -= inside;
    packets.to_others -= inside;
    if status.members.iter().all(|member| member.problem.is_none()) {
        packets.passing += std::mem::take(&mut packets.to_others);
        packets.recounted += std::mem::take(&mut packets.from_others);
        let both = packets.passing.min(packets.recounted);
        packets.passing -= both;
        packets.recounted -= both;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::fake;
    use crate::report::OtherStatus;

    /// The status of a member, with figures of its own.
    fn member(name: &str, runtime: u16, others: [u64; 2]) -> (String, Answer) {
        let mut status = Status::from(&fake::snapshot());
        status.member = Some(name.to_owned());
        status.runtimes.truncate(1);
        status.runtimes[0].runtime = runtime;
        [status.packets.from_others, status.packets.to_others] = others;
        status.others = vec![OtherStatus {
            member: "c".to_owned(),
            ..OtherStatus::default()
        }];
        (name.to_owned(), Answer::Status(Box::new(status)))
    }

    fn status(answer: Option<Answer>) -> Status {
        match answer {
            Some(Answer::Status(status)) => *status,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn figures_are_summed_and_members_named() {
        let all = || {
            vec![
                member("b", 1, [0, 40]),
                member("a", 0, [30, 0]),
                member("c", 2, [0, 0]),
            ]
        };
        let whole = status(merged(all(), &BTreeMap::new()));
        assert_eq!(whole.packets.r#in, 300);
        assert_eq!(whole.packets.dropped["firewall/denied"], 21);
        assert_eq!(whole.counters["nat/mappings"], 12);
        assert_eq!(whole.flows.max, 6000);
        // Between members: 40 were sent, and 30 have come.
        let alone = Status::from(&fake::snapshot()).packets.passing;
        assert_eq!(whole.packets.passing, 10 + 3 * alone);
        assert_eq!((whole.packets.from_others, whole.packets.to_others), (0, 0));
        let whose: Vec<_> = whole
            .runtimes
            .iter()
            .map(|of| (of.runtime, of.member.as_deref()))
            .collect();
        assert_eq!(whose, [(0, Some("a")), (1, Some("b")), (2, Some("c"))]);
        let text = whole.to_string();
        assert!(text.contains("Member") && !text.contains("alone"), "{text}");
        assert_eq!(
            serde_json::from_value::<Status>(serde_json::json!(whole)).unwrap(),
            whole
        );

        let missing = BTreeMap::from([("b".to_owned(), "it is silent".to_owned())]);
        let whole = status(merged(vec![member("a", 0, [30, 0])], &missing));
        let problems: Vec<_> = whole
            .members
            .iter()
            .map(|of| (of.member.as_str(), of.problem.is_some()))
            .collect();
        assert_eq!(problems, [("a", false), ("b", true), ("c", true)]);
        assert_eq!(whole.packets.from_others, 30, "from the one that is missing");
        assert!(whole.to_string().contains("not in the figures"), "{whole}");
    }

    #[test]
    fn answers_to_different_questions_are_none() {
        let answers = vec![
            ("a".to_owned(), Answer::Replication),
            ("b".to_owned(), Answer::Stopping),
        ];
        assert_eq!(merged(answers, &BTreeMap::new()), None);
    }
}
