//! Traces where packets do not go straight through: calls that wait, packets that are held,
//! emitted, answered, late.

use super::flows::Meter;
use super::waits::{Nap, Sleeper};
use super::*;
use crate::watch::trace::{Budget, Event, Meeting, Trace, Verdict};
use crate::watch::{Seen, Watch, What};
use std::collections::HashMap;
use std::format;
use std::string::String;
use std::sync::Arc;
use std::vec;
use wire::{Addr, Endpoint, FlowKey};

const MS: u64 = 1_000_000;
const STEPS: usize = 256;

/// Watches the flow from 10.0.0.`a` to 192.0.2.`b`.
fn watch(runtime: &mut Runtime<QueuePort>, (a, ap): (u8, u16), (b, bp): (u8, u16)) {
    let source = Endpoint::new(Addr::v4([10, 0, 0, a]), ap);
    let destination = Endpoint::new(Addr::v4([192, 0, 2, b]), bp);
    let key = FlowKey::new(source, destination, wire::protocol::UDP, 0).0;
    let budget = Arc::new(Budget::default());
    budget.open(100);
    let what = What::Flow(Box::new(Trace::new(0, &[key], budget, STEPS)));
    runtime.watch(Watch { id: 7, what }).unwrap();
}

/// The steps seen, by packet in the order in which they came; each step in a word or two.
fn told(runtime: &mut Runtime<QueuePort>) -> Vec<Vec<String>> {
    let mut seen = Seen {
        steps: Vec::with_capacity(STEPS),
        ..Seen::default()
    };
    assert!(runtime.watched(7, &mut seen));
    assert_eq!(seen.steps_lost, 0);
    let mut order = Vec::new();
    let mut packets: HashMap<usize, Vec<String>> = HashMap::new();
    for step in &seen.steps {
        let said = match step.event {
            Event::In { .. } => "in".into(),
            Event::Met(meeting) => format!("{meeting:?}"),
            Event::Enters {
                passed, direction, ..
            } => format!("{direction:?} behind {passed}"),
            Event::Passed {
                function,
                verdict,
                resumed,
                ..
            } => format!("{function} {verdict:?}{}", if resumed { " resumed" } else { "" }),
            Event::Made { function, back } => format!("made by {function}, back: {back}"),
            other => format!("{other:?}"),
        };
        let packet = packets.entry(step.packet).or_insert_with(|| {
            order.push(step.packet);
            Vec::new()
        });
        packet.push(said);
    }
    order.iter().map(|packet| packets[packet].clone()).collect()
}

#[test]
fn calls_that_wait_and_packets_that_are_held_are_told() {
    let mut runtime = alone(Settings::alone(16), vec![factory::<Meter>(), factory::<Nap>()]);
    watch(&mut runtime, (1, 1), (1, 5));
    // The meter holds the first two and lets them go with the third; each naps behind it.
    runtime.links_mut()[0]
        .input
        .extend([2, 3, 1].map(|n| udp(1, 1, 1, 5, false, &[n])));
    for now in 1..=40 {
        runtime.step(now * MS);
    }
    assert_conserved(&runtime);
    let told = told(&mut runtime);
    let nap = ["1 Wait", "1 Forward resumed", "Leaves { exit: Outside }"];
    let held = |met: &'static str| {
        [
            "in",
            met,
            "Opening behind 0",
            "0 Consume",
            "Released { function: 0 }",
        ]
    };
    let first = [&held("Launched")[..], &["Opening behind 1"], &nap].concat();
    // Behind the first one's nap; the third one behind both.
    let second = [&held("Found")[..], &["Queued", "Opening behind 1"], &nap].concat();
    let third = [
        &[
            "in",
            "Found",
            "Opening behind 0",
            "0 Forward",
            "Queued",
            "Queued",
            "Opening behind 1",
        ][..],
        &nap,
    ]
    .concat();
    assert_eq!(told, [first, second, third]);
}

#[test]
fn what_a_function_makes_belongs_to_the_trace() {
    let mut runtime = alone(Settings::alone(16), vec![factory::<Meter>()]);
    watch(&mut runtime, (1, 1), (1, 6));
    runtime.links_mut()[0]
        .input
        .push_back(udp(1, 1, 1, 6, false, &[1]));
    for now in 1..=4 {
        runtime.step(now * MS);
    }
    let told = told(&mut runtime);
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(
        told[1..]
            .iter()
            .any(|packet| packet[0] == "made by 0, back: false"),
        "{told:?}"
    );
    assert!(
        told[1..]
            .iter()
            .any(|packet| packet[0] == "made by 0, back: true"),
        "{told:?}"
    );
    assert!(
        told[1..]
            .iter()
            .all(|packet| packet.last().unwrap().starts_with("Leaves")),
        "{told:?}"
    );
}

#[test]
fn a_drop_behind_a_wait_and_a_flow_that_was_over_are_told() {
    let mut runtime = alone(Settings::alone(16), vec![factory::<Sleeper>()]);
    watch(&mut runtime, (1, 1), (1, 9));
    runtime.links_mut()[0]
        .input
        .extend([[0, 1], [1, 255]].map(|payload| udp(1, 1, 1, 9, false, &payload)));
    for now in 1..=10 {
        runtime.step(now * MS);
    }
    let odd = Verdict::Drop("odd");
    let dropped = Event::Dropped {
        function: Some(0),
        reason: "odd",
    };
    let second = told(&mut runtime).remove(1);
    let expected = ["in", "Found", "Opening behind 0", "0 Wait"].map(String::from);
    assert_eq!(second[..4], expected);
    assert_eq!(
        second[4..],
        [format!("0 {odd:?} resumed"), format!("{dropped:?}")]
    );
    // Long after its time, and before the runtime has looked.
    runtime.links_mut()[0]
        .input
        .push_back(udp(1, 1, 1, 9, false, &[0, 1]));
    runtime.step(10_000_000 * MS);
    let late = told(&mut runtime).remove(0);
    assert_eq!(
        late[1..3],
        [
            format!("{:?}", Meeting::Expired),
            format!("{:?}", Meeting::Launched)
        ]
    );
    // There are as many traces as there may be: a third is refused; and a watch that is taken back
    // is not there.
    watch(&mut runtime, (2, 1), (1, 9));
    let budget = Arc::new(Budget::default());
    let third = What::Flow(Box::new(Trace::new(1, &[], budget, 1)));
    assert!(runtime.watch(Watch { id: 9, what: third }).is_err());
    runtime.unwatch(7);
    assert!(!runtime.watched(7, &mut Seen::default()));
}
