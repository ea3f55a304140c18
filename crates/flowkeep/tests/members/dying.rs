//! Deaths in the middle of a change over the cluster: of the command, of the coordinator, of a
//! member; before the decision and behind it.
//!
//! ```text
//!   Prepare ─► all hold it ─── here ─── Configure ─► the log ─── here ─── members hear of it
//! ```
//!
//! The test sends the command's messages to the cluster ([`Hand`]), and stops between any two. The
//! command itself is killed where a member that stands still keeps it waiting. In each case all
//! members have the old configuration in force or all the new one, and the next `chain apply`
//! works.

use super::changed::{NO_443, all_have, firewall, in_force};
use super::joined::{Site, passes};
use super::more::wait_for_word;
use super::rig::{Member, PATIENCE};
use super::wide::{until_all_answer, wide};
use coordinator::agent::CallError;
use coordinator::identity::Identity;
use coordinator::operator::{Line, Operator};
use coordinator::proto::Configuration;
use coordinator::refusal::{self, Refusal};
use flowkeep::apply::joined::{HOLD_MAX, PartRequest, Prepared};
use flowkeep::apply::report::Outcome;
use flowkeep::config::chains::chains_of;
use flowkeep::control::{Answer, Reply, Request};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const ALL: [&str; 3] = ["front", "left", "right"];

fn line(site: &Site) -> Line {
    let operator = Operator {
        addresses: vec![site.coordinator.address.clone()],
        identity: Identity::read(Path::new(&site.coordinator.folder), "admin").expect("it is there"),
    };
    operator.connect().expect("the coordinator answers")
}

fn ask(line: &mut Line, member: &str, request: &Request) -> Result<Answer, String> {
    let request = serde_json::to_vec(request).expect("it is a request");
    let mut answers = line.relay(vec![(member.to_owned(), request)]);
    let answer = answers.remove(0).map_err(|error| error.to_string())?;
    match serde_json::from_slice(&answer).expect("it is an answer") {
        Reply::Ok(answer) => Ok(answer),
        Reply::Error(problem) => Err(problem),
    }
}

/// The command, word by word.
struct Hand {
    line: Line,
    view: u32,
    part: PartRequest,
    digests: [String; 2],
}

impl Hand {
    fn begin(site: &Site, text: &str) -> Self {
        let mut line = line(site);
        let status = line.status().expect("it answers");
        let number = status.configuration.expect("one is in force").number;
        let part = PartRequest {
            number: number + 1,
            file: "new.toml".to_owned(),
            text: text.to_owned(),
            is_chains: false,
            dry: false,
            cut: true,
            listed: 0,
            by: 7,
        };
        Hand {
            line,
            view: status.view,
            part,
            digests: Default::default(),
        }
    }

    /// A member is asked to prepare, and holds the change.
    fn prepare(&mut self, member: &str) {
        let request = Request::Prepare(Box::new(self.part.clone()));
        let prepared: Prepared = match ask(&mut self.line, member, &request) {
            Ok(Answer::Prepared(prepared)) => *prepared,
            other => panic!("{member}: {other:?}"),
        };
        let outcome = prepared.change.outcome;
        assert!(
            matches!(outcome, Outcome::Possible | Outcome::WouldCut),
            "{member}: {outcome:?}"
        );
        self.digests = [prepared.in_force.digest, prepared.digest];
    }

    fn all_prepared(site: &Site, text: &str) -> Self {
        let mut hand = Hand::begin(site, text);
        ALL.into_iter().for_each(|member| hand.prepare(member));
        assert!(ALL.into_iter().all(|member| holds(site, member)));
        hand
    }

    fn decide(&mut self) -> Result<(), CallError> {
        let [digest_before, digest] = self.digests.clone();
        let chains = chains_of(&self.part.text).expect("it has chains");
        let configuration = Configuration {
            number: self.part.number,
            digest,
            text: chains.clone(),
            digest_before,
            text_before: chains,
            ..Configuration::default()
        };
        self.line.configure(self.view, configuration)
    }
}

/// Whether a member holds a change. The question has no valid configuration, so nothing is prepared
/// for it, and a command that prepares meanwhile is not in its way.
fn holds(site: &Site, member: &str) -> bool {
    let part = PartRequest {
        dry: true,
        ..Hand::begin(site, "[").part
    };
    let answer = ask(&mut line(site), member, &Request::Prepare(Box::new(part)));
    answer.is_err_and(|problem| problem.contains("another change is prepared here"))
}

/// Waits until all have this number in force, with one digest.
#[track_caller]
fn wait_until_all_have(site: &Site, number: u64) {
    let began = Instant::now();
    while !in_force(&until_all_answer(site)).iter().all(|of| of.1 == number) {
        assert!(began.elapsed() < PATIENCE, "configuration {number}");
        std::thread::sleep(Duration::from_millis(50));
    }
    all_have(site, number);
}

/// A command that works, once members have taken back the change that a dead one has left with
/// them.
#[track_caller]
fn next_works(site: &Site, file: &str, number: u64) {
    let began = Instant::now();
    loop {
        let applied = wide(site, "admin", &["chain", "apply", file, "--cut"]);
        if applied.code == 0 {
            break;
        }
        // A coordinator, or a member, that was killed is on its way back, too.
        let is_late = began.elapsed() > HOLD_MAX + Duration::from_secs(60);
        assert!(!is_late, "{} {}", applied.out, applied.err);
        std::thread::sleep(Duration::from_millis(500));
    }
    wait_until_all_have(site, number);
}

/// A cluster under traffic, and files with the old and the new configuration.
fn begin(name: &str) -> (Site, [Member; 3], [(String, String); 2]) {
    let site = Site::guarded(name, &firewall(""));
    let members = site.all();
    passes(&members[0], 2000);
    wait_until_all_have(&site, 1);
    let old = site.folder.read("cluster.toml");
    let new = old.replace(&firewall(""), &firewall(NO_443));
    let files = [("old.toml", old), ("new.toml", new)].map(|(name, text)| {
        let path = site.folder.write(name, &text);
        (path.display().to_string(), text)
    });
    (site, members, files)
}

fn end(site: &Site, members: [Member; 3]) {
    passes(&members[0], 2000);
    for member in members {
        member.stop(&site.folder);
    }
}

#[test]
fn the_command_dies_when_some_have_prepared() {
    let (site, members, [_, (new, _)]) = begin("dies-command");
    let [front, _, right] = &members;
    right.signal("-STOP");
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowkeep"))
        .args(["chain", "apply", &new, "--cut"])
        .args([
            "--cluster",
            &site.coordinator.address,
            "--identity",
            &site.coordinator.folder,
        ])
        .args(["--name", "admin"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let began = Instant::now();
    while !(holds(&site, "front") && holds(&site, "left")) {
        assert!(began.elapsed() < PATIENCE, "they prepare");
    }
    assert!(
        command.try_wait().expect("it is there").is_none(),
        "it waits for `right`"
    );
    command.kill().expect("it was there");
    command.wait().expect("it ends");
    right.signal("-CONT");
    passes(front, 2000);
    wait_until_all_have(&site, 1);
    next_works(&site, &new, 2);
    end(&site, members);
}

#[test]
fn the_coordinator_dies_before_the_decision_and_behind_it() {
    let (site, members, [(_, old), (new, text)]) = begin("dies-coordinator");
    let mut hand = Hand::all_prepared(&site, &text);
    // Another command, refused meanwhile, takes back its own change and not this one's.
    let (number, by) = (hand.part.number, hand.part.by + 1);
    for member in ALL {
        let taken = ask(&mut hand.line, member, &Request::TakeBack { number, by });
        assert!(matches!(taken, Ok(Answer::TakenBack)), "{taken:?}");
        assert!(holds(&site, member), "{member}");
    }
    site.coordinator.kill_guarded();
    assert!(hand.decide().is_err(), "nothing was decided");
    wait_until_all_have(&site, 1);
    next_works(&site, &new, 2);
    // The log has the decision, and no member has heard of it.
    site.wait_for_all();
    let mut hand = Hand::all_prepared(&site, &old);
    for member in &members {
        member.signal("-STOP");
    }
    hand.decide().expect("it is decided");
    site.coordinator.kill_guarded();
    for member in &members {
        member.signal("-CONT");
    }
    wait_until_all_have(&site, 3);
    next_works(&site, &new, 4);
    end(&site, members);
}

#[test]
fn a_member_dies_before_the_decision_and_behind_it() {
    let (site, [front, left, mut right], [(old, of_old), (new, text)]) = begin("dies-member");
    // Decided by the view that has it still: its next incarnation takes it on.
    let mut hand = Hand::all_prepared(&site, &text);
    right.kill();
    hand.decide().expect("the view is the same");
    left.wait_until("it is in force where it was held", |_| {
        !holds(&site, "left") && !holds(&site, "front")
    });
    let mut right = site.start("node", "right");
    let says = "configuration 2 of the cluster is in force here";
    wait_for_word(&site.folder, "right", says);
    wait_until_all_have(&site, 2);
    // Another incarnation of `right` is a member when the change is to be decided: that one has
    // prepared nothing.
    site.wait_for_all();
    let mut hand = Hand::all_prepared(&site, &of_old);
    right.kill();
    let mut right = site.start("node", "right");
    let began = Instant::now();
    while site
        .coordinator
        .view()
        .is_none_or(|view| view["view"] == hand.view)
    {
        assert!(began.elapsed() < PATIENCE, "another view follows");
    }
    let refused = hand.decide();
    let is_overtaken =
        matches!(&refused, Err(CallError::Refused(status)) if refusal::is(status, Refusal::Overtaken));
    assert!(is_overtaken, "{refused:?}");
    wait_until_all_have(&site, 2);
    next_works(&site, &old, 3);
    // `right` dies when the change is decided, before it has heard of it.
    site.wait_for_all();
    let mut hand = Hand::all_prepared(&site, &text);
    right.signal("-STOP");
    hand.decide().expect("it is decided");
    left.wait_until("it is in force", |_| !holds(&site, "left"));
    right.kill();
    let right = site.start("node", "right");
    wait_until_all_have(&site, 4);
    next_works(&site, &old, 5);
    next_works(&site, &new, 6);
    end(&site, [front, left, right]);
}
