//! A change of configuration over all members: prepared by each, decided by the coordinator, put in
//! force by each.
//!
//! # Theory of operation
//!
//! ```text
//!   coordinator's status ─► members of the view, number N in force
//!   Prepare(text, N+1) ───► all members ─► judge ─┬─ one refuses, is silent, has another configuration: TakeBack at all, it is named
//!                                                 ├─ flows would be cut without leave, or only asked:    TakeBack at all
//!                                                 └─ Configure(view, N+1, digest, text) ─► log ─► members put it in force
//!   coordinator's status ─► all members have N+1 ─► receipts
//! ```
//!
//! This end may die at any place. Before `Configure` nothing is decided, and members take back the
//! changes that they hold. Behind it the coordinator tells members, with or without this end. Where
//! the answer to `Configure` is lost, the coordinator's status says which it was. It may be
//! neither: the record may be on its way to the log. Then the error says that it is undecided. The
//! coordinator withdraws a record that the log does not take, and refuses it by name
//! (`log-unwritable`).
//!
//! A rollback is a change to the text before, which the coordinator has. A trial (`--confirm`) is
//! the coordinator's: its record in the log says until when, so this end may go, and whichever
//! coordinator there is then has all members go back.
//!
//! Not here: a member's half (`crate::apply::joined`), the coordinator's checks
//! (`coordinator::decider`).

use super::members::{Members, OfMember, with_remedy};
use super::{Answer, FOREIGN, REQUEST_MAX, Request};
use crate::apply::joined::{PartDone, PartRequest, Prepared};
use crate::apply::report::{Change, CutCount, MemberPart, Outcome, Receipt};
use crate::apply::trial::time_of;
use crate::apply::{Ask, LISTED_MAX};
use crate::config::chains::chains_of;
use coordinator::agent::CallError;
use coordinator::proto::{Configuration, StatusAnswer};
use coordinator::refusal::{self, Refusal};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

/// How long members may take to put in force a decided configuration, until it is said that one
/// lags.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often it is looked.
const LOOK: Duration = Duration::from_millis(50);
/// The most flows that all members together list: an answer has a bound.
const LISTED: usize = 200;

/// The verdict on the members' answers.
enum Verdict {
    /// The change is not decided; this is why.
    Stop(Box<Change>),
    /// The change may be decided: the digests now and then, and its effects.
    Go {
        before: String,
        digest: String,
        change: Box<Change>,
    },
}

/// A text that members are to prepare.
struct Text {
    file: String,
    text: String,
    is_chains: bool,
}

/// Why an attempt came to nothing; nothing has changed.
enum Failed {
    /// The view changed between the members' answers and the decision, and the configuration did
    /// not.
    ByView(String),
    Else(String),
}

impl From<String> for Failed {
    fn from(problem: String) -> Self {
        Failed::Else(problem)
    }
}

impl From<&str> for Failed {
    fn from(problem: &str) -> Self {
        problem.to_owned().into()
    }
}

/// So often a change is attempted while members come and go.
const ATTEMPTS: u32 = 5;

/// Says what a change would do, or makes it, at all members.
pub(super) fn change(members: &mut Members, ask: &Ask) -> Result<Change, String> {
    let mut attempts = 1;
    loop {
        match attempt(members, ask) {
            Err(Failed::ByView(_)) if attempts < ATTEMPTS => attempts += 1,
            Err(Failed::ByView(problem) | Failed::Else(problem)) => return Err(problem),
            Ok(change) => return Ok(change),
        }
    }
}

fn attempt(members: &mut Members, ask: &Ask) -> Result<Change, Failed> {
    let trial = trial_of(ask)?;
    let status = members.line().status().map_err(|error| with_remedy(&error))?;
    let number = status.configuration.as_ref().map_or(1, |of| of.number);
    let names = of_view(&status);
    if names.is_empty() {
        let problem = "no member is there by the coordinator's view; `flowkeep cluster status` shows it";
        return Err(problem.into());
    }
    let text = text_of(members, ask)?;
    let part = PartRequest {
        number: number.saturating_add(1),
        file: text.file.clone(),
        text: text.text.clone(),
        is_chains: text.is_chains,
        dry: ask.dry,
        cut: ask.cut,
        listed: ask.listed.min(LISTED_MAX).min(LISTED / names.len()),
        // Another command may prepare the same text for the same number.
        by: RandomState::new().hash_one(std::process::id()),
    };
    let (next, held) = (part.number, (part.number, part.by));
    let verdict = prepare(members, &names, part, ask)?;
    let (before, digest, mut change) = match verdict {
        Verdict::Stop(change) => {
            take_back(members, &names, held, ask);
            return Ok(*change);
        }
        Verdict::Go {
            before,
            digest,
            change,
        } => (before, digest, change),
    };
    let decided = decide(members, &status, &names, (next, digest, trial), (before, text));
    if let Err(problem) = decided {
        take_back(members, &names, held, ask);
        return Err(problem);
    }
    let mut receipt = wait(members, &names, next)?;
    receipt.confirm_seconds = (trial > 0).then(|| Duration::from_millis(trial).as_secs_f64());
    change.receipt = Some(receipt);
    change.outcome = Outcome::Applied;
    Ok(*change)
}

/// Milliseconds of the trial that is asked for; 0 for none.
fn trial_of(ask: &Ask) -> Result<u64, String> {
    let Some(ms) = ask.confirm_ms else {
        return Ok(0);
    };
    if ask.dry || ask.rollback {
        return Err("only `chain apply FILE` can be confirmed".to_owned());
    }
    time_of(ms).map(|_| ms)
}

/// The configuration that is on trial stays at all members; its number.
pub(super) fn confirm(members: &mut Members) -> Result<u64, String> {
    let confirmed = members.line().confirm();
    confirmed.map_err(|error| match is_open(&error) {
        true => format!(
            "it is not known whether the configuration stays: {}. `flowkeep status --cluster` says whether one is on trial",
            with_remedy(&error)
        ),
        false => with_remedy(&error),
    })
}

/// The names of the members of the view.
fn of_view(status: &StatusAnswer) -> Vec<String> {
    let names: BTreeSet<&String> = status.members.iter().map(|member| &member.name).collect();
    names.into_iter().cloned().collect()
}

fn text_of(members: &mut Members, ask: &Ask) -> Result<Text, String> {
    if ask.rollback {
        let decided = members
            .line()
            .configuration()
            .map_err(|error| with_remedy(&error))?;
        if decided.text_before.is_empty() {
            return Err(
                "there is no configuration to go back to: none was applied since the members started by their files".to_owned(),
            );
        }
        return Ok(Text {
            file: format!("the configuration before {}", decided.number),
            text: decided.text_before,
            is_chains: true,
        });
    }
    let Some(path) = &ask.path else {
        return Err("say which file: members are on other hosts".to_owned());
    };
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| format!("{file}: {error}"))?;
    Ok(Text {
        file,
        text,
        is_chains: false,
    })
}

fn prepare(members: &mut Members, names: &[String], part: PartRequest, ask: &Ask) -> Result<Verdict, String> {
    let (number, file, held) = (part.number, part.file.clone(), (part.number, part.by));
    let request = Request::Prepare(Box::new(part));
    let length = serde_json::to_vec(&request).map_or(0, |bytes| bytes.len() as u64);
    if length > REQUEST_MAX {
        return Err(format!(
            "{file} has {length} bytes on its way to members, and at most {REQUEST_MAX} may be: put rules into files that settings name, on each member's host"
        ));
    }
    let requests = names.iter().map(|name| (name.clone(), request.clone())).collect();
    let judged = members
        .relay(requests)
        .and_then(|answers| judge(answers, number, ask));
    judged.inspect_err(|_| take_back(members, names, held, ask))
}

/// The held change is not wanted. A member that does not hear this takes it back by itself.
fn take_back(members: &mut Members, names: &[String], (number, by): (u64, u64), ask: &Ask) {
    if !ask.dry {
        let requests = names
            .iter()
            .map(|name| (name.clone(), Request::TakeBack { number, by }));
        drop(members.relay(requests.collect()));
    }
}

/// Members by a property that they share, in words.
fn alike<'a>(of: impl Iterator<Item = (&'a String, String)>) -> BTreeMap<String, Vec<&'a str>> {
    let mut all: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (member, what) in of {
        all.entry(what).or_default().push(member);
    }
    all
}

fn in_words(all: &BTreeMap<String, Vec<&str>>) -> String {
    let all: Vec<String> = all
        .iter()
        .map(|(what, members)| format!("{what} at {}", members.join(", ")))
        .collect();
    all.join("; ")
}

/// Judges the answers. `number` is the change's future number.
fn judge(answers: Vec<OfMember>, number: u64, ask: &Ask) -> Result<Verdict, String> {
    let mut all: Vec<(String, Prepared)> = Vec::new();
    let mut missing = Vec::new();
    for (member, answer) in answers {
        match answer {
            Ok(Answer::Prepared(prepared)) => all.push((member, *prepared)),
            Ok(_) => missing.push(format!("member `{member}`: {FOREIGN}")),
            Err(why) => missing.push(why),
        }
    }
    if !missing.is_empty() {
        return Err(format!(
            "nothing has changed at any member: {}",
            missing.join("\n")
        ));
    }
    let in_force = alike(all.iter().map(|(member, of)| {
        let InWords(words) = InWords::of(of);
        (member, words)
    }));
    let has_number = |(_, of): &(String, Prepared)| of.in_force.number.checked_add(1) == Some(number);
    if in_force.len() != 1 || !all.iter().all(has_number) {
        return Err(format!(
            "nothing has changed: by the coordinator configuration {} is in force, and members have {}. Ask again; a member that stays behind says why \
             in `flowkeep status --cluster`: mend that, or start it again",
            number.saturating_sub(1),
            in_words(&in_force)
        ));
    }
    let change = merge(&all, number);
    if change.outcome == Outcome::Refused {
        return Ok(Verdict::Stop(Box::new(change)));
    }
    let digests = alike(all.iter().map(|(member, of)| (member, of.digest.clone())));
    if digests.len() != 1 {
        return Err(format!(
            "nothing has changed: a file that a setting names has other content at some members, so their texts have other digests: {}. Copy it to all",
            in_words(&digests)
        ));
    }
    let is_to_cut = change.flows_cut > 0;
    let outcome = match (change.outcome, ask.dry, is_to_cut) {
        (Outcome::Same, ..) => Outcome::Same,
        (_, true, false) => Outcome::Possible,
        (_, true, true) => Outcome::WouldCut,
        (_, false, true) if !ask.cut => Outcome::RefusedToCut,
        _ => Outcome::Applied,
    };
    let change = Box::new(Change { outcome, ..change });
    let (_, first) = all.swap_remove(0);
    Ok(match outcome {
        Outcome::Applied => Verdict::Go {
            before: first.in_force.digest,
            digest: first.digest,
            change,
        },
        _ => Verdict::Stop(change),
    })
}

/// A configuration in force, as messages name it.
struct InWords(String);

impl InWords {
    fn of(prepared: &Prepared) -> Self {
        let of = &prepared.in_force;
        InWords(format!("{} ({})", of.number, of.digest))
    }
}

/// All members' halves as one.
fn merge(all: &[(String, Prepared)], number: u64) -> Change {
    let mut whole = Change {
        generation: number.saturating_sub(1),
        outcome: Outcome::Same,
        ..Change::default()
    };
    let mut refusing = Vec::new();
    for (member, Prepared { change, .. }) in all {
        let is_refused = change.outcome == Outcome::Refused;
        whole.members.push(MemberPart {
            member: member.clone(),
            flows_kept: change.flows_kept,
            flows_cut: change.flows_cut,
            flows_waiting: change.flows_waiting,
            problem: change.refusal.clone(),
        });
        whole.flows_kept += change.flows_kept;
        whole.flows_cut += change.flows_cut;
        whole.flows_waiting += change.flows_waiting;
        add(&mut whole.cut, &change.cut);
        whole.listed.extend(change.listed.iter().cloned());
        whole.unlisted += change.unlisted;
        // The same text is as wrong everywhere, as a rule.
        new_ones(&mut whole.differences, &change.differences);
        new_ones(&mut whole.fixed, &change.fixed);
        new_ones(&mut whole.problems, &change.problems);
        if is_refused {
            let why = change.refusal.as_ref().map(|why| format!(" ({why})"));
            refusing.push(format!("{member}{}", why.unwrap_or_default()));
        }
        if change.outcome != Outcome::Same && whole.outcome != Outcome::Refused {
            whole.outcome = change.outcome;
        }
    }
    if !refusing.is_empty() {
        whole.outcome = Outcome::Refused;
        whole.refusal = Some(format!("refused by {}", refusing.join(", ")));
    }
    whole
}

fn new_ones<T: Clone + PartialEq>(all: &mut Vec<T>, more: &[T]) {
    for one in more {
        if !all.contains(one) {
            all.push(one.clone());
        }
    }
}

fn add(sum: &mut Vec<CutCount>, more: &[CutCount]) {
    for one in more {
        let same = |of: &&mut CutCount| (&of.function, &of.reason) == (&one.function, &one.reason);
        match sum.iter_mut().find(same) {
            Some(of) => of.flows += one.flows,
            None => sum.push(one.clone()),
        }
    }
}

/// Has the coordinator decide it. An error: it has not, or says that this is not known.
fn decide(
    members: &mut Members,
    status: &StatusAnswer,
    names: &[String],
    (number, digest, trial): (u64, String, u64),
    (digest_before, text): (String, Text),
) -> Result<(), Failed> {
    let decided = members
        .line()
        .configuration()
        .map_err(|error| with_remedy(&error))?;
    let text_before = match decided.text.is_empty() {
        false => decided.text,
        true => chains_at(members, names)?,
    };
    let chains = match text.is_chains {
        true => Some(text.text),
        false => chains_of(&text.text),
    };
    let configuration = Configuration {
        number,
        digest: digest.clone(),
        text: chains.ok_or("chains and functions of this text cannot be read")?,
        digest_before,
        text_before,
        trial,
        ..Configuration::default()
    };
    match members.line().configure(status.view, configuration) {
        Ok(()) => Ok(()),
        Err(error) if is_decided_anyway(members, &error, number, &digest) => Ok(()),
        Err(error) if is_overtaken(&error) && is_in_force(members, number - 1) => {
            Err(Failed::ByView(with_remedy(&error)))
        }
        Err(error) if is_open(&error) => Err(undecided(number, &error).into()),
        Err(error) => Err(with_remedy(&error).into()),
    }
}

/// Whether an error leaves open what the coordinator decides: there is no answer of its own, or the
/// coordinator ended before the log had the record.
fn is_open(error: &CallError) -> bool {
    let CallError::Refused(status) = error else {
        return true;
    };
    let by = refusal::ALL.into_iter().find(|by| refusal::is(status, *by));
    matches!(by, None | Some(Refusal::Late))
}

fn undecided(number: u64, error: &CallError) -> String {
    format!(
        "it is not known whether configuration {number} is decided, and it may be yet: {}. `flowkeep status --cluster` says \
         which one is in force: ask again if that is {} still",
        with_remedy(error),
        number.saturating_sub(1)
    )
}

fn is_overtaken(error: &CallError) -> bool {
    matches!(error, CallError::Refused(status) if refusal::is(status, Refusal::Overtaken))
}

/// Whether the newest configuration has this number.
fn is_in_force(members: &mut Members, number: u64) -> bool {
    let status = members.line().status().ok();
    status.is_some_and(|status| status.configuration.map_or(1, |of| of.number) == number)
}

/// Of a decision without an answer: whether the coordinator has made it.
fn is_decided_anyway(members: &mut Members, error: &CallError, number: u64, digest: &str) -> bool {
    // An overtaken decision may have been overtaken by its own first try.
    if !is_open(error) && !is_overtaken(error) {
        return false;
    }
    let status = members.line().status().ok();
    let decided = status.and_then(|status| status.configuration);
    decided.is_some_and(|decided| decided.number == number && decided.digest == digest)
}

/// The chains and functions that members started with, of the first that says.
fn chains_at(members: &mut Members, names: &[String]) -> Result<String, String> {
    let mut why = FOREIGN.to_owned();
    for name in names {
        match members.relay(vec![(name.clone(), Request::Chains)])?.remove(0).1 {
            Ok(Answer::Chains(chains)) => return Ok(chains),
            Ok(_) => {}
            Err(problem) => why = problem,
        }
    }
    Err(why)
}

/// Waits until members have the decided configuration: the receipt, with the members that lag.
fn wait(members: &mut Members, names: &[String], number: u64) -> Result<Receipt, String> {
    let (began, mut receipts) = (Instant::now(), BTreeMap::new());
    let mut lagging: BTreeMap<String, String> = names
        .iter()
        .map(|name| (name.clone(), "it has not said that it has it".to_owned()))
        .collect();
    while !lagging.is_empty() && began.elapsed() < PATIENCE {
        let there = members
            .line()
            .status()
            .map(|status| of_view(&status))
            .unwrap_or_else(|_| names.to_vec());
        // A member that a view has removed takes it on when it begins again.
        lagging.retain(|name, _| there.contains(name));
        let requests = lagging
            .keys()
            .map(|name| (name.clone(), Request::PartDone { number }));
        for (member, answer) in members.relay(requests.collect()).unwrap_or_default() {
            match answer {
                Ok(Answer::PartDone(done)) => match is_done(*done, number) {
                    Ok(receipt) => {
                        lagging.remove(&member);
                        receipts.insert(member, receipt);
                    }
                    Err(why) => drop(lagging.insert(member, why)),
                },
                Ok(_) => {}
                Err(why) => drop(lagging.insert(member, why)),
            }
        }
        std::thread::sleep(LOOK);
    }
    Ok(sum(receipts, &lagging, number))
}

/// A member's receipt, or why it has none yet.
fn is_done(done: PartDone, number: u64) -> Result<Receipt, String> {
    match (done.receipt, done.in_force) {
        (Some(receipt), _) => Ok(receipt),
        // Put in force by another way, or another was decided since: its receipt is gone.
        (None, in_force) if in_force.number > number => Ok(Receipt::default()),
        (None, in_force) => Err(in_force
            .problem
            .unwrap_or_else(|| format!("it has configuration {} still", in_force.number))),
    }
}

fn sum(receipts: BTreeMap<String, Receipt>, lagging: &BTreeMap<String, String>, number: u64) -> Receipt {
    let mut whole = Receipt {
        generation: number,
        members: Some(receipts.len()),
        ..Receipt::default()
    };
    let mut warnings: Vec<String> = lagging
        .iter()
        .map(|(member, why)| {
            format!("member `{member}` lags: {why}. It is decided, and the member goes on trying; `flowkeep status --cluster` shows it")
        })
        .collect();
    for (member, receipt) in receipts {
        whole.runtimes += receipt.runtimes;
        whole.flows_kept += receipt.flows_kept;
        whole.flows_cut += receipt.flows_cut;
        whole.flows_waiting += receipt.flows_waiting;
        add(&mut whole.cut, &receipt.cut);
        whole.prepared_seconds = whole.prepared_seconds.max(receipt.prepared_seconds);
        whole.commit_seconds = whole.commit_seconds.max(receipt.commit_seconds);
        whole.seconds = whole.seconds.max(receipt.seconds);
        warnings.extend(
            receipt
                .warning
                .map(|warning| format!("member `{member}`: {warning}")),
        );
    }
    whole.warning = (!warnings.is_empty()).then(|| warnings.join("\n"));
    whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::joined::InForce;

    fn ask(dry: bool, cut: bool) -> Ask {
        Ask {
            path: Some("gateway.toml".into()),
            dry,
            cut,
            rollback: false,
            listed: 0,
            waits: false,
            confirm_ms: None,
        }
    }

    /// The answer of a member with configuration 3 to the fourth.
    fn prepared(member: &str, outcome: Outcome, flows_cut: u64) -> (String, Prepared) {
        let change = Change {
            outcome,
            flows_cut,
            flows_kept: 10,
            ..Change::default()
        };
        let in_force = InForce {
            number: 3,
            digest: "three".to_owned(),
            problem: None,
        };
        let digest = "four".to_owned();
        (
            member.to_owned(),
            Prepared {
                in_force,
                digest,
                change,
            },
        )
    }

    fn judged(all: Vec<(String, Prepared)>, ask: &Ask) -> Result<Verdict, String> {
        let said = |(member, prepared)| (member, Ok(Answer::Prepared(Box::new(prepared))));
        judge(all.into_iter().map(said).collect(), 4, ask)
    }

    fn stopped(verdict: Result<Verdict, String>) -> Change {
        match verdict {
            Ok(Verdict::Stop(change)) => *change,
            Ok(Verdict::Go { .. }) => panic!("it would be decided"),
            Err(problem) => panic!("{problem}"),
        }
    }

    #[test]
    fn all_agree_or_nothing_is_decided() {
        let both = |second: Outcome, cut: u64| {
            vec![
                prepared("left", Outcome::Possible, 0),
                prepared("right", second, cut),
            ]
        };
        match judged(both(Outcome::Possible, 0), &ask(false, false)) {
            Ok(Verdict::Go {
                before,
                digest,
                change,
            }) => {
                assert_eq!((before.as_str(), digest.as_str()), ("three", "four"));
                assert_eq!((change.flows_kept, change.members.len()), (20, 2));
            }
            _ => panic!("nothing is decided"),
        }
        let change = stopped(judged(both(Outcome::Refused, 0), &ask(false, true)));
        assert_eq!(change.outcome, Outcome::Refused);
        assert_eq!(change.refusal.as_deref(), Some("refused by right"));
        // One member's flows are enough, and leave is asked for.
        let change = stopped(judged(both(Outcome::WouldCut, 7), &ask(false, false)));
        assert_eq!((change.outcome, change.flows_cut), (Outcome::RefusedToCut, 7));
        let cut = judged(both(Outcome::WouldCut, 7), &ask(false, true));
        assert!(matches!(cut, Ok(Verdict::Go { .. })));
        // A dry request decides nothing, with leave or without.
        for cut in [false, true] {
            let change = stopped(judged(both(Outcome::WouldCut, 7), &ask(true, cut)));
            assert_eq!(change.outcome, Outcome::WouldCut);
        }
        let same = vec![
            prepared("left", Outcome::Same, 0),
            prepared("right", Outcome::Same, 0),
        ];
        assert_eq!(stopped(judged(same, &ask(false, false))).outcome, Outcome::Same);
    }

    #[test]
    fn a_member_that_is_silent_or_elsewhere_is_named() {
        let (left, there) = prepared("left", Outcome::Possible, 0);
        let answers = vec![
            (left.clone(), Ok(Answer::Prepared(Box::new(there.clone())))),
            (
                "right".to_owned(),
                Err("member `right` does not answer".to_owned()),
            ),
        ];
        let Err(problem) = judge(answers, 4, &ask(false, true)) else {
            panic!("a member is missing");
        };
        assert!(
            problem.contains("nothing has changed") && problem.contains("right"),
            "{problem}"
        );

        let (right, mut behind) = prepared("right", Outcome::Possible, 0);
        behind.in_force.number = 2;
        behind.in_force.digest = "two".to_owned();
        let all = vec![(left.clone(), there.clone()), (right.clone(), behind)];
        let Err(problem) = judged(all, &ask(false, true)) else {
            panic!("members have two configurations");
        };
        assert!(
            problem.contains("2 (two) at right; 3 (three) at left"),
            "{problem}"
        );

        // All have the same one, and the coordinator another.
        let overtaken = |mut one: (String, Prepared)| {
            one.1.in_force.number = 4;
            one
        };
        let all = vec![overtaken((left.clone(), there.clone()))];
        assert!(judged(all, &ask(false, true)).is_err());

        let (right, mut other) = prepared("right", Outcome::Possible, 0);
        other.digest = "another four".to_owned();
        let Err(problem) = judged(vec![(left, there), (right, other)], &ask(false, true)) else {
            panic!("members have read two texts");
        };
        assert!(problem.contains("another four at right"), "{problem}");
    }

    #[test]
    fn without_an_answer_it_is_said_to_be_undecided() {
        let refused = |by: Refusal| CallError::from(by.status("why"));
        for by in [Refusal::LogUnwritable, Refusal::Overtaken, Refusal::OnTrial] {
            assert!(!is_open(&refused(by)), "{by:?}");
        }
        let unnamed = CallError::Answer;
        for error in [refused(Refusal::Late), unnamed] {
            assert!(is_open(&error), "{error}");
            let said = undecided(4, &error);
            let words = [
                "not known whether configuration 4 is decided",
                "if that is 3 still",
            ];
            assert!(words.iter().all(|word| said.contains(word)), "{said}");
        }
    }

    #[test]
    fn a_decision_has_come_where_its_number_or_a_later_one_is_in_force() {
        let done = |number: u64, receipt: Option<Receipt>, problem: Option<&str>| PartDone {
            in_force: InForce {
                number,
                digest: String::new(),
                problem: problem.map(str::to_owned),
            },
            receipt,
        };
        assert!(is_done(done(4, Some(Receipt::default()), None), 4).is_ok());
        assert!(is_done(done(5, None, None), 4).is_ok());
        assert_eq!(
            is_done(done(3, None, Some("no file")), 4),
            Err("no file".to_owned())
        );
        assert_eq!(
            is_done(done(3, None, None), 4),
            Err("it has configuration 3 still".to_owned())
        );
    }
}
