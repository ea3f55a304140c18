//! Moves tried on a function that comes through them, and with one fault at a time.

use super::*;
use crate::tests::{Tally, hit};
use crate::{tcp, udp, wait};
use nf::{
    Arrival, ConfigError, Cx, Departure, FlowState, Keep, Packet, Verdict, WorkerInfo, network_function,
};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// Numbers a flow's packets in its payloads; every third is dropped.
struct Numbers {
    fault: Fault,
    /// Knowledge of its flows, which a function must not keep here.
    known: RefCell<HashMap<nf::FlowKey, u64>>,
    taken: Cell<i64>,
}

#[derive(Clone, Copy, PartialEq, Default, serde::Deserialize)]
enum Fault {
    #[default]
    None,
    KeptInTheInstance,
    ForgottenOnArrival,
    RecordOfWhatGoesOn,
    GivenBackTwice,
    Panics,
    NotTakenOver,
    CountsAsAsked,
    CountsTwice,
}

#[derive(Clone, Default, serde::Deserialize)]
struct Choice {
    fault: Fault,
}

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
struct Numbered {
    packets: u64,
}

#[network_function]
impl NetworkFunction for Numbers {
    const NAME: &'static str = "numbers";
    const COUNTERS: &'static [&'static str] = &["thirds"];
    const REASONS: &'static [&'static str] = &["third"];
    type Config = Choice;
    type Flow = Numbered;
    type Group = ();

    fn new(config: &Arc<Choice>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Numbers {
            fault: config.fault,
            known: RefCell::default(),
            taken: Cell::new(0),
        })
    }

    async fn process(&self, packet: &mut Packet, flow: &mut Numbered, cx: &mut Cx<Self>) -> Verdict {
        flow.packets += 1;
        let mut number = flow.packets;
        if self.fault == Fault::KeptInTheInstance {
            let mut known = self.known.borrow_mut();
            let (key, _) = nf::FlowKey::of(packet).expect("a parsed packet");
            number = *known.entry(key).and_modify(|count| *count += 1).or_insert(1);
        }
        // As many flows as a script has may be counted.
        if self.counts_as_asked() && self.taken.get() > 8 {
            return cx.drop("third");
        }
        match packet.payload().first() {
            Some(b's') => cx.sleep(Duration::from_millis(10)).await,
            Some(b'c') => return Verdict::Consume,
            Some(b'r') => cx.release(),
            _ => {}
        }
        if number.is_multiple_of(3) {
            cx.count("thirds");
            return cx.drop("third");
        }
        let end = packet.transport_mut();
        if let Some(byte) = end.last_mut() {
            *byte = number as u8;
        }
        Verdict::Forward
    }

    fn arrived(&self, flow: &mut Numbered, why: Arrival, _: &mut Cx<Self>) {
        self.taken.set(self.taken.get() + 1);
        match self.fault {
            Fault::ForgottenOnArrival => flow.packets = 0,
            Fault::Panics if why == Arrival::Migrated && flow.packets == 5 => panic!("at the fifth packet"),
            _ => {}
        }
    }

    fn departed(&self, flow: &Numbered, why: Departure, cx: &mut Cx<Self>) {
        let times = if self.fault == Fault::GivenBackTwice && why == Departure::Migrated {
            2
        } else {
            1
        };
        self.taken.set(self.taken.get() - times);
        if why == Departure::Expired || self.fault == Fault::RecordOfWhatGoesOn {
            cx.event("ended", format_args!("\"packets\":{}", flow.packets));
        }
    }

    fn timeout(&self, _: &Numbered) -> Option<Duration> {
        Some(Duration::from_secs(10))
    }

    fn take_over(&self, before: &Self) {
        let forgets = [Fault::NotTakenOver, Fault::CountsAsAsked, Fault::CountsTwice];
        // The counts for the survey are forgotten.
        self.taken.set(match forgets.contains(&self.fault) {
            true => 0,
            false => before.taken.get(),
        });
    }

    fn configured(&self, _: &mut Numbered, _: &mut Cx<Self>) -> Keep {
        if self.counts_as_asked() {
            self.taken.set(self.taken.get() + 1);
        }
        Keep::Keep
    }

    fn recovered_of_before(&self, flow: &mut Numbered, cx: &mut Cx<Self>) -> Keep {
        if self.fault != Fault::CountsAsAsked {
            self.arrived(flow, Arrival::Recovered, cx);
        }
        self.configured(flow, cx)
    }

    fn command(&self, _: &[&str]) -> Result<String, String> {
        Ok(format!("{} taken", self.taken.get()))
    }
}

impl Numbers {
    fn counts_as_asked(&self) -> bool {
        [Fault::CountsAsAsked, Fault::CountsTwice].contains(&self.fault)
    }
}

/// Forty packets of eight flows, and a flow's end in between.
fn script() -> Vec<Step> {
    let mut steps = Vec::new();
    for round in 0..5 {
        for flow in 0..8 {
            let flow = udp(&format!("10.0.0.1:{}", 1000 + flow), "192.0.2.1:80");
            steps.push(flow.payload("xx"));
        }
        if round == 3 {
            steps.push(wait(Duration::from_secs(4)));
        }
    }
    steps.push(wait(Duration::from_secs(7)));
    steps.push(udp("10.0.0.1:1000", "192.0.2.1:80").payload("xx"));
    steps
}

fn moving(fault: Fault) -> Migration {
    migration()
        .function::<Numbers>(Choice { fault })
        .asking::<Numbers>(&["taken"])
}

/// The words of a failing check.
#[track_caller]
fn failure(migration: &Migration, script: Vec<Step>) -> String {
    let result = catch_unwind(AssertUnwindSafe(|| migration.check(script)));
    let panic = match result {
        Ok(_) => panic!("nothing was noticed"),
        Err(panic) => panic,
    };
    *panic.downcast::<String>().expect("words")
}

#[test]
fn a_function_that_keeps_all_in_its_state_survives() {
    let survived = moving(Fault::None).check(script());
    assert!(survived.moved() > 8 * 40 * 3, "{}", survived.moved());
    assert_eq!(survived.dropped("third"), 9);
    assert_eq!(survived.counter("thirds"), 9);
    assert_eq!(survived.left(), 32);
    assert_eq!(survived.events().matches("ended").count(), 8);
}

#[test]
fn what_an_instance_keeps_to_itself_is_noticed_and_made_small() {
    let words = failure(&moving(Fault::KeptInTheInstance), script());
    // A packet before the move and one behind it, of one flow.
    assert!(words.contains("has 2 of the script's 43 steps"), "{words}");
    assert!(words.contains("over to the other runtime before step"), "{words}");
    assert!(words.contains(".ways([Way::Over]).only(["), "{words}");
    // The line that repeats it does.
    let only = numbers_of(&words, ".only([");
    let at = numbers_of(&words, ".at([");
    assert_eq!((only.len(), at.len()), (2, 1), "{words}");
    // Each of its steps has a line, with its number in the whole script.
    let is_line_of = |line: &str, number: &usize| {
        let line = line.trim_start_matches(['>', ' ']);
        line.starts_with(&format!("{number}  "))
    };
    for number in &only {
        let lines = words.lines().filter(|line| is_line_of(line, number));
        assert_eq!(lines.count(), 1, "step {number}: {words}");
    }
    let again = moving(Fault::KeptInTheInstance)
        .ways([Way::Over])
        .only(only.clone())
        .at(at.clone());
    let again = failure(&again, script());
    assert!(again.contains("has 2 of the script's 2 steps"), "{again}");
    moving(Fault::None)
        .ways([Way::Over])
        .only(only)
        .at(at)
        .check(script());
}

fn numbers_of(words: &str, behind: &str) -> Vec<usize> {
    let (_, rest) = words.rsplit_once(behind).expect("the line is there");
    let (numbers, _) = rest.split_once(']').expect("a list ends");
    numbers
        .split(", ")
        .map(|number| number.parse().expect("a number"))
        .collect()
}

#[test]
fn a_state_that_arrival_forgets_is_noticed() {
    let words = failure(&moving(Fault::ForgottenOnArrival), script());
    assert!(words.contains("to the other runtime and back before"), "{words}");
    assert!(words.contains("has 2 of"), "{words}");
}

#[test]
fn a_record_of_a_flow_that_goes_on_is_noticed() {
    let words = failure(&moving(Fault::RecordOfWhatGoesOn), script());
    assert!(words.contains("while they move there is the event"), "{words}");
    // A flow and any step behind it.
    assert!(words.contains("has 2 of"), "{words}");
}

#[test]
fn what_is_given_back_twice_is_noticed() {
    let words = failure(&moving(Fault::GivenBackTwice), script());
    assert!(words.contains("while flows stay there is the answer"), "{words}");
    assert!(words.contains("0 taken"), "{words}");
}

#[test]
fn a_panic_is_made_small() {
    let words = failure(&moving(Fault::Panics), script());
    assert!(words.contains("panicked: at the fifth packet"), "{words}");
    // Five packets of one flow, and the step that it moves before.
    assert!(words.contains("has 6 of the script's 43 steps"), "{words}");
}

#[test]
fn calls_that_wait_and_packets_that_are_held_survive() {
    let flow = |port: u16| udp(&format!("10.0.0.1:{port}"), "192.0.2.1:80");
    let mut steps = Vec::new();
    for round in 0..4 {
        for port in 1000..1004 {
            steps.push(flow(port).payload(if (round + port) % 3 == 0 { "ss" } else { "xx" }));
            steps.push(wait(Duration::from_millis(3)));
        }
        steps.push(flow(1001).payload("c1"));
        steps.push(flow(1001).payload("c2"));
        steps.push(flow(1001).payload("rr"));
    }
    steps.push(wait(Duration::from_secs(1)));
    let survived = moving(Fault::None).check(steps);
    assert_eq!(survived.dropped("third"), 5);
}

#[test]
fn a_script_without_a_flow_that_goes_on_is_refused() {
    let words = failure(
        &moving(Fault::None),
        vec![tcp("10.0.0.1:1", "192.0.2.1:80").syn()],
    );
    assert!(words.contains("no flow of `numbers` has moved"), "{words}");
}

fn failing(fault: Fault) -> Migration {
    moving(fault).ways(Way::FAILURES)
}

#[test]
fn a_function_that_keeps_all_in_its_state_survives_failures() {
    for switches in [1, 2] {
        for way in Way::FAILURES {
            let survived = failing(Fault::None)
                .ways([way])
                .switches(switches)
                .check(script());
            assert!(survived.moved() > 8 * 40 / 3, "{way:?}: {}", survived.moved());
            assert_eq!(survived.dropped("third"), 9);
            assert_eq!(survived.left(), 32);
            assert_eq!(survived.events().matches("ended").count(), 8);
        }
    }
}

#[test]
fn what_an_instance_keeps_to_itself_is_noticed_when_it_fails() {
    let words = failure(&failing(Fault::KeptInTheInstance), script());
    assert!(
        words.contains("does not come through a runtime's failure"),
        "{words}"
    );
    assert!(words.contains("has 2 of the script's 43 steps"), "{words}");
    assert!(words.contains("a runtime fails before step"), "{words}");
    assert!(words.contains("while runtimes fail,"), "{words}");
    assert!(words.contains(".ways([Way::Fail]).only(["), "{words}");
    for way in Way::FAILURES {
        let words = failure(&failing(Fault::KeptInTheInstance).ways([way]), script());
        assert!(
            words.contains(&format!(".ways([Way::{way:?}]).only([")),
            "{words}"
        );
    }
}

#[test]
fn a_state_that_a_recovery_forgets_is_noticed() {
    let words = failure(&failing(Fault::ForgottenOnArrival), script());
    assert!(words.contains("has 2 of"), "{words}");
}

/// Copies begin before a runtime fails: flows without one, or with an older one, go on.
#[test]
fn flows_that_are_committed_from_now_on_survive_failures() {
    for before in [Policy::None, Policy::Snapshot] {
        for (way, first) in Way::FAILURES
            .into_iter()
            .flat_map(|way| (0..3).map(move |at| (way, at)))
        {
            let at = (first..script().len()).step_by(3);
            let failing = failing(Fault::None).replicated_by(before).ways([way]).at(at);
            let survived = failing.check(script());
            assert!(
                survived.moved() > 8 * 40 / 9,
                "{before:?}, {way:?}: {}",
                survived.moved()
            );
        }
        // A group's knowledge, and the flows of one host.
        let packets = [
            (1, "x"),
            (2, "x"),
            (1, "d"),
            (2, "x"),
            (1, "x"),
            (3, "k"),
            (1, "x"),
            (2, "x"),
        ];
        let ledger = || {
            migration()
                .function::<Ledger>(nf::NoConfig {})
                .replicated_by(before)
        };
        for every in [2, 3] {
            ledger().ways(Way::FAILURES).every(every).check(of_host(&packets));
        }
    }
}

/// A group that rests has no flow: its state is in its copy, and how long it lives on.
#[test]
fn groups_that_rest_survive_failures() {
    let pause = |seconds| wait(Duration::from_secs(seconds));
    let first = [hit(1), hit(2), hit(1), pause(30), hit(1)];
    // The second host's time is over then, and the first one's is not.
    let script = || first.iter().cloned().chain([pause(40), hit(2), hit(1), hit(2)]);
    for way in Way::FAILURES {
        let survived = migration()
            .function::<Tally>(nf::NoConfig {})
            .ways([way])
            .check(script());
        assert!(survived.moved() > 5, "{way:?}: {}", survived.moved());
        assert_eq!((survived.dropped("odd"), survived.dropped("even")), (4, 3));
    }
}

/// A flow that is over is in no copy, and begins again.
#[test]
fn what_is_over_does_not_come_back_when_its_runtime_fails() {
    let expiring = |fault: Fault, every: usize| {
        let ways = moving(fault).ways([Way::Expire]);
        ways.every(every).may_stay()
    };
    assert_eq!(expiring(Fault::None, 4).check(script()).moved(), 0);
    let words = failure(&expiring(Fault::KeptInTheInstance, 20), script());
    assert!(
        words.contains("hours pass, and a runtime fails, before"),
        "{words}"
    );
}

#[test]
fn so_says_the_one_line_of_each_step() {
    let ends = |fault: Fault| {
        let line = || crate::survives_expiry::<Numbers>(Choice { fault }, script());
        catch_unwind(AssertUnwindSafe(line)).map(|survived| survived.moved())
    };
    assert_eq!(ends(Fault::None).ok(), Some(0));
    let Err(panic) = ends(Fault::KeptInTheInstance) else {
        panic!("nothing was noticed");
    };
    let words = panic.downcast::<String>().expect("words");
    assert!(words.contains("hours pass, and a runtime fails"), "{words}");
}

fn changing(fault: Fault) -> Migration {
    moving(fault).ways(Way::CHANGES)
}

#[test]
fn what_a_change_does_to_a_function_is_noticed() {
    for fault in [Fault::None, Fault::CountsAsAsked] {
        let survived = changing(fault).check(script());
        assert!(survived.moved() > 8 * 40 / 3, "{}", survived.moved());
        assert_eq!((survived.dropped("third"), survived.left()), (9, 32));
    }
    for fault in [Fault::KeptInTheInstance, Fault::NotTakenOver] {
        let words = failure(&changing(fault), script());
        assert!(
            words.contains("does not come through a change of configuration"),
            "{words}"
        );
        assert!(words.contains(".ways([Way::Change]).only(["), "{words}");
    }
    // A flow is counted as it arrives, and as it is asked, in one.
    let words = failure(&changing(Fault::CountsTwice), script());
    assert!(
        words.contains("take their settings again, and one fails, before"),
        "{words}"
    );
}

/// Counts the events of an inside host's flows in the group's state, and writes the counts into
/// each packet.
struct Ledger;

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
struct Account {
    begun: u16,
    over: u16,
    refused: u16,
    late: u16,
}

#[network_function]
impl NetworkFunction for Ledger {
    const NAME: &'static str = "ledger";
    const AFFINITY: nf::Affinity = nf::Affinity::InsideAddress;
    const REASONS: &'static [&'static str] = &["refused"];
    type Config = nf::NoConfig;
    type Flow = Numbered;
    type Group = Account;

    fn new(_: &Arc<nf::NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Ledger)
    }

    async fn process(&self, packet: &mut Packet, flow: &mut Numbered, cx: &mut Cx<Self>) -> Verdict {
        let is_slow = matches!(packet.payload().first(), Some(b's' | b'w'));
        if is_slow {
            // Nothing is changed before: a base that is sent meanwhile has the state of before.
            cx.sleep(Duration::from_millis(10)).await;
        }
        flow.packets += 1;
        match packet.payload().first() {
            // A flow that begins with a packet that does not pass, and stays.
            Some(b'k') => {
                cx.group().refused += 1;
                cx.keep_flow();
                return cx.drop("refused");
            }
            Some(b'd') => {
                cx.group().refused += 1;
                return cx.drop("refused");
            }
            Some(b's') => {
                cx.group().late += 1;
                return cx.drop("refused");
            }
            _ => {}
        }
        let Account {
            begun,
            over,
            refused,
            late,
        } = *cx.group();
        let told = [begun, over, refused, late, flow.packets as u16].map(u16::to_be_bytes);
        if let Some(place) = packet.transport_mut().get_mut(8..18) {
            place.copy_from_slice(told.as_flattened());
        }
        Verdict::Forward
    }

    fn arrived(&self, _: &mut Numbered, why: Arrival, cx: &mut Cx<Self>) {
        if why == Arrival::New {
            cx.group().begun += 1;
        }
    }

    fn departed(&self, _: &Numbered, why: Departure, cx: &mut Cx<Self>) {
        if why == Departure::Expired {
            cx.group().over += 1;
        }
    }

    fn timeout(&self, _: &Numbered) -> Option<Duration> {
        Some(Duration::from_secs(10))
    }
}

/// Packets of one host, by port and payload, with pauses in seconds where there is no port.
fn of_host(packets: &[(u16, &str)]) -> Vec<Step> {
    let step = |(port, what): &(u16, &str)| match port {
        0 => wait(Duration::from_secs(what.parse().expect("seconds"))),
        _ => udp(&format!("10.0.0.1:{port}"), "192.0.2.1:80").payload(format!("{what:-<12}")),
    };
    packets.iter().map(step).collect()
}

/// A group's state is in its copy, whatever changed it: a packet, a flow that begins, a flow that
/// is over, a call that has waited; of flows that pass packets and of flows that only drop them.
#[test]
fn what_a_group_knows_is_copied_whatever_changes_it() {
    for packets in [
        &[(1, "x"), (2, "x"), (1, "x"), (2, "x")][..],
        &[
            (1, "x"),
            (2, "x"),
            (0, "6"),
            (2, "x"),
            (0, "6"),
            (2, "x"),
            (0, "6"),
            (2, "x"),
        ],
        &[(1, "x"), (1, "d"), (1, "x"), (2, "d"), (1, "x")],
        &[(1, "k"), (1, "k"), (1, "x"), (1, "x")],
        &[(1, "x"), (1, "s"), (0, "1"), (1, "x"), (1, "x")],
    ] {
        for way in Way::MOVES.into_iter().chain(Way::FAILURES) {
            let mut ledger = migration().function::<Ledger>(nf::NoConfig {}).ways([way]);
            if packets.len() > 5 {
                // A flow that is recovered again and again is never over.
                ledger = ledger.at([6, 7]);
            }
            ledger.may_stay().check(of_host(packets));
        }
    }
}

#[test]
fn packets_that_wait_in_calls_come_again_when_their_runtime_fails() {
    let packets = [
        (1, "x"),
        (2, "w"),
        (1, "x"),
        (1, "w"),
        (1, "x"),
        (3, "w"),
        (3, "w"),
        (1, "s"),
        (0, "1"),
        (1, "x"),
        (2, "x"),
        (3, "x"),
        (0, "1"),
    ];
    for way in Way::FAILURES {
        let ledger = migration().function::<Ledger>(nf::NoConfig {}).ways([way]);
        ledger.check(of_host(&packets));
    }
}

/// Settings that change as they are used, as a table that is compiled at its first use does.
#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct Used(#[serde(skip)] std::sync::atomic::AtomicBool);

impl Clone for Used {
    fn clone(&self) -> Self {
        Used(self.0.load(std::sync::atomic::Ordering::Relaxed).into())
    }
}

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
struct First {
    was: u64,
}

/// Lets the first flow pass that any instance with its settings sees.
struct OnceIn(Arc<Used>);

#[network_function]
impl NetworkFunction for OnceIn {
    const NAME: &'static str = "once";
    type Config = Used;
    type Flow = First;
    type Group = ();

    fn new(config: &Arc<Used>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(OnceIn(config.clone()))
    }

    fn process(&self, _: &mut Packet, flow: &mut First, cx: &mut Cx<Self>) -> Verdict {
        let was_used = self.0.0.swap(true, std::sync::atomic::Ordering::Relaxed);
        if was_used && flow.was == 0 {
            return cx.drop("used");
        }
        flow.was = 1;
        Verdict::Forward
    }
}

#[test]
fn each_play_has_settings_of_its_own() {
    let flow = udp("10.0.0.1:1000", "192.0.2.1:80");
    let script = || [flow.clone(), flow.clone(), flow.clone()];
    // The next play does not get the settings as a play leaves them.
    let survived = migration().function::<OnceIn>(Used::default()).check(script());
    assert!(survived.moved() > 0);
    let changing = migration().ways(Way::CHANGES).function::<OnceIn>(Used::default());
    changing.changing_to::<OnceIn>(Used::default()).check(script());
    let survived = migration().function_each::<OnceIn>(Used::default).check(script());
    assert!(survived.moved() > 0);
}
