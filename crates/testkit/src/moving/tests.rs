//! Moves tried on a function that comes through them, and with one fault at a time.

use super::*;
use crate::{tcp, udp, wait};
use nf::{Arrival, ConfigError, Cx, Departure, FlowState, Packet, Verdict, WorkerInfo, network_function};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// Numbers a flow's packets in its payloads; every third is dropped.
struct Numbers {
    fault: Fault,
    /// What a function must not do: knowing of its flows here.
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

    fn command(&self, _: &[&str]) -> Result<String, String> {
        Ok(format!("{} taken", self.taken.get()))
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

/// What a check says when it fails.
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
    // Five of one flow, and the one that it moves before.
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
