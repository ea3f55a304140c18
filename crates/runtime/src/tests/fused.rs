//! A chain in one piece does what the same chain does function by function.

use super::flows::{Masquerade, Meter};
use super::waits::Sleeper;
use super::*;
use crate::fused::Fused;
use nf::Direction;

type Three = (Meter, Sleeper, Masquerade);

fn factories() -> Vec<Box<dyn Factory>> {
    std::vec![factory::<Meter>(), factory::<Sleeper>(), factory::<Masquerade>(),]
}

fn runtime(fused: &[Fused]) -> Runtime<QueuePort> {
    let mut settings = Settings::alone(16);
    (settings.held_max, settings.waiting_max) = (16, 16);
    let made = Runtime::new(
        settings,
        plan(factories()).fusing(fused),
        std::vec![QueuePort::default()],
        pool(512, 0),
        Region::heap,
    );
    made.unwrap_or_else(|error| panic!("{error:?}"))
}

#[test]
fn only_a_chain_of_its_functions_in_their_order_is_in_one_piece() {
    let entries = |fused: Fused, factories: &[Box<dyn Factory>]| {
        fused
            .entries_of(factories.iter().map(|factory| &**factory))
            .is_some()
    };
    let three = factories();
    assert!(entries(Fused::of::<Three>(), &three));
    assert!(!entries(Fused::of::<(Sleeper, Meter, Masquerade)>(), &three));
    assert!(!entries(Fused::of::<(Meter, Sleeper)>(), &three));
    assert!(!entries(Fused::of::<Three>(), &three[..2]));
    assert!(!entries(
        Fused::of::<(Meter, Sleeper, Masquerade, Meter)>(),
        &three
    ));
    assert!(entries(Fused::of::<(Meter, Sleeper)>(), &three[..2]));
    let worker = Settings::alone(4).info;
    let plan = plan(factories()).fusing(&[Fused::of::<(Meter, Sleeper)>(), Fused::of::<Three>()]);
    let stages = crate::chain::Stages::new(&plan, &worker).unwrap_or_else(|error| panic!("{error:?}"));
    for direction in [Direction::Opening, Direction::Reply] {
        assert!(stages.fused::<true>(0, direction).is_some());
    }
}

/// Ports at which the functions drop, answer, hold, emit, end the flow; waits; replies; deadlines.
#[test]
fn both_ways_have_the_same_results() {
    let mut seed = 0x0f05_ed00_u64;
    let mut below = move |most: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % most
    };
    let mut both = [runtime(&[Fused::of::<Three>()]), runtime(&[])];
    let (mut now, mut waited, mut sent) = (1, 0, 0);
    for round in 0..3000 {
        now += [1_000, 700_000, 4_000_000_000][[0, 0, 0, 0, 1, 1, 1, 2][below(8) as usize]];
        let packets: Vec<Sent> = (0..below(6) as u8)
            .map(|number| {
                let (host, port) = (1 + below(3) as u8, 1 + below(10) as u16);
                let wait = u8::from(below(12) == 0);
                let mark = if below(40) == 0 { 255 } else { number };
                udp(host, 1, 1, port, below(5) < 2, &[wait, mark, number])
            })
            .collect();
        for runtime in &mut both {
            runtime.links_mut()[0].input.extend(packets.iter().cloned());
            runtime.step(now);
            runtime.step(now);
            assert_conserved(runtime);
        }
        let [one, other] = &mut both;
        let (stats, expected) = (one.stats(), other.stats());
        assert_eq!(
            std::format!("{stats:?}"),
            std::format!("{expected:?}"),
            "round {round}"
        );
        let (left, expected) = (
            core::mem::take(&mut one.links_mut()[0].output),
            core::mem::take(&mut other.links_mut()[0].output),
        );
        assert_eq!(left, expected, "round {round}");
        sent += left.len();
        waited += usize::from(stats.held > 0);
    }
    assert!(
        sent > 3000 && waited > 100,
        "{sent} left, {waited} rounds with packets held"
    );
}
