//! Timers that wake a function without a packet: by the wall clock, a bounded number in a step,
//! through changed configurations and restarts.

use super::sessions::SECOND;
use super::stored::{INTERVAL, Shop, WALL};
use super::{QueuePort, alone, factory, plan, pool, udp};
use crate::chain::Plan;
use crate::stage::Configured;
use crate::worker::change::Prepared;
use crate::worker::{Runtime, Settings};
use nf::variables::{Options, Timers, Variables};
use nf::{ConfigError, Cx, Generation, NetworkFunction, NoConfig, Packet, TimerCx, Verdict, WorkerInfo};
use nf::{Recall, network_function};
use std::boxed::Box;
use std::cell::Cell;
use std::string::String;
use std::sync::Arc;
use std::vec;
use wire::memory::Region;

const MS: u64 = 1_000_000;

/// A packet to port `n` arms a timer `n` that is due `n` milliseconds later; a packet to port 0
/// cancels the first.
pub(super) struct Alarm {
    timers: Timers<u16, u64>,
    recalled: Cell<u32>,
}

#[network_function]
impl NetworkFunction for Alarm {
    const NAME: &'static str = "alarm";

    fn with_variables(
        _: &Arc<NoConfig>,
        _: &WorkerInfo,
        variables: &mut Variables,
    ) -> Result<Self, ConfigError> {
        Ok(Alarm {
            timers: variables.timers("alarms", Options::default())?,
            recalled: Cell::new(0),
        })
    }

    fn process(&self, packet: &mut Packet, _: &mut (), cx: &mut Cx<Self>) -> Verdict {
        let port = packet.destination().port;
        let at = cx.wall_ms() + u64::from(port);
        let armed = match port {
            0 => self.timers.cancel(&1).map(drop),
            _ => self.timers.arm(&port, at, at),
        };
        if armed.is_err() {
            cx.count("refused");
        }
        Verdict::Forward
    }

    fn next_timer(&self) -> Option<u64> {
        self.timers.next_at()
    }

    fn timer_due(&self, cx: &mut TimerCx<Self>) {
        if let Some((port, at)) = self.timers.fire(cx.wall_ms()) {
            cx.count("fired");
            cx.event(
                "fired",
                format_args!("\"port\":{port},\"late\":{}", cx.wall_ms() - at),
            );
            cx.recall();
        } else {
            cx.count("none");
        }
    }

    fn recall(&self) -> Recall {
        self.recalled.set(self.recalled.get() + 1);
        Recall::Nothing
    }

    fn command(&self, _: &[&str]) -> Result<String, String> {
        Ok(std::format!("{} {}", self.timers.len(), self.recalled.get()))
    }
}

fn settings() -> Settings {
    Settings {
        wall: WALL,
        ..Settings::alone(512)
    }
}

fn feed(runtime: &mut Runtime<QueuePort>, ports: impl IntoIterator<Item = u16>) {
    let packets = ports.into_iter().map(|port| udp(1, 1, 1, port, false, &[0; 4]));
    runtime.links_mut()[0].input.extend(packets);
}

fn counted(runtime: &Runtime<QueuePort>, name: &str) -> u64 {
    let counters = runtime.stats().counters;
    counters.iter().filter(|c| c.name == name).map(|c| c.count).sum()
}

fn fired(runtime: &Runtime<QueuePort>) -> u64 {
    counted(runtime, "fired")
}

#[test]
fn timers_fire_in_their_order_when_they_are_due_and_no_packet_comes() {
    let mut runtime = alone(settings(), vec![factory::<Alarm>()]);
    feed(&mut runtime, [30, 10, 1, 20]);
    runtime.step(0);
    assert_eq!((runtime.stats().passed, fired(&runtime)), (4, 0));
    // The first is cancelled: its time is looked at once, and nothing fires.
    feed(&mut runtime, [0]);
    runtime.step(1);
    assert_eq!(runtime.next_at(), Some(MS));
    runtime.step(MS);
    assert_eq!((fired(&runtime), counted(&runtime, "none")), (0, 1));
    assert_eq!(runtime.next_at(), Some(10 * MS));
    // Not before its time, and the step says that it did something.
    assert!(runtime.step(10 * MS - 1).is_idle() && fired(&runtime) == 0);
    assert!(!runtime.step(10 * MS).is_idle());
    assert!(runtime.step(10 * MS + 1).is_idle());
    assert_eq!(fired(&runtime), 1);
    // Two that are late, in order.
    assert_eq!(runtime.step(100 * MS).other, 2);
    assert_eq!((fired(&runtime), runtime.next_at()), (3, None));
    let mut lines = String::new();
    runtime.take_events(&mut lines);
    let fields = |line: &str| line.split("\"fired\",").nth(1).map(String::from);
    let said: vec::Vec<String> = lines.lines().filter_map(fields).collect();
    let expected = [
        "\"port\":10,\"late\":0}",
        "\"port\":20,\"late\":80}",
        "\"port\":30,\"late\":70}",
    ];
    assert_eq!(said, expected, "{lines}");
    // The wishes of a timer's call are done: the function was asked which flows it wants ended,
    // once in each of two steps.
    assert_eq!(runtime.command("alarm", &[]).unwrap(), "0 2");
}

#[test]
fn a_step_fires_a_bounded_number_and_packets_go_on_between() {
    let mut runtime = alone(settings(), vec![factory::<Alarm>()]);
    feed(&mut runtime, 1..=100);
    for now in 0..10 {
        runtime.step(now);
    }
    let mut steps = 0;
    while fired(&runtime) < 100 {
        let before = (fired(&runtime), runtime.stats().passed);
        feed(&mut runtime, [60_000]);
        assert_eq!(runtime.step(SECOND + steps).packets, 1);
        assert!(fired(&runtime) - before.0 <= 32 && runtime.stats().passed == before.1 + 1);
        steps += 1;
    }
    assert_eq!(steps, 4);
}

#[test]
fn a_timer_waits_while_the_event_log_is_full() {
    let mut runtime = alone(
        Settings {
            events_max: 8 * 1024 + 100,
            ..settings()
        },
        vec![factory::<Alarm>()],
    );
    feed(&mut runtime, 1..=10);
    for now in 0..3 {
        runtime.step(now);
    }
    let mut lines = String::new();
    for now in 1..=20 {
        runtime.step(SECOND + now);
        assert!(fired(&runtime) <= now * 2, "a line or two have room");
        runtime.take_events(&mut lines);
    }
    assert_eq!((fired(&runtime), runtime.stats().events_lost), (10, 0));
    assert_eq!(lines.matches("\"event\":\"fired\"").count(), 10);
}

#[test]
fn the_wall_clock_that_is_set_counts() {
    let mut runtime = alone(settings(), vec![factory::<Alarm>()]);
    feed(&mut runtime, [60_000]);
    runtime.step(0);
    runtime.step(SECOND);
    assert_eq!(fired(&runtime), 0);
    runtime.set_wall(WALL + 60 * SECOND);
    assert_eq!(runtime.next_at(), Some(0));
    runtime.step(SECOND + 1);
    assert_eq!(fired(&runtime), 1);
}

#[test]
fn where_packets_carry_the_time_timers_fire_with_it_and_no_time_is_waited_for() {
    let settings = Settings {
        packet_clock: true,
        ..Settings::alone(16)
    };
    let mut runtime = alone(settings, vec![factory::<Alarm>()]);
    feed(&mut runtime, [50]);
    runtime.step(1000 * MS);
    runtime.step(1001 * MS);
    assert_eq!((fired(&runtime), runtime.next_at()), (0, None));
    feed(&mut runtime, [60]);
    runtime.step(2000 * MS);
    runtime.step(2001 * MS);
    assert_eq!(fired(&runtime), 1);
}

#[test]
fn a_changed_function_goes_on_with_its_timers() {
    let settings = settings();
    let info = settings.info;
    let of = || Box::new(Configured::<Alarm>::new("alarm", NoConfig {}));
    let first = plan(vec![of()]);
    let mut runtime = Runtime::new(
        settings,
        first.clone(),
        vec![QueuePort::default()],
        pool(64, 0),
        Region::heap,
    )
    .unwrap();
    feed(&mut runtime, [10, 20]);
    runtime.step(0);
    let next = plan(vec![of()]).keeping(first.keeper().clone());
    let prepared = Prepared::new(Generation(2), next, &first, &info, 0).unwrap();
    assert!(runtime.prepare_change(prepared).is_ok());
    // Prepared, the new instance has none; the old one is asked.
    runtime.step(10 * MS);
    assert_eq!(fired(&runtime), 1);
    assert!(runtime.commit_change());
    assert_eq!(runtime.next_at(), Some(20 * MS));
    runtime.step(20 * MS);
    runtime.step(30 * MS);
    assert_eq!(fired(&runtime), 2);
}

fn kept(shop: &Shop) -> Plan {
    plan(vec![factory::<Alarm>()]).keeping(shop.keeper())
}

fn begin(shop: &Shop, wall: u64) -> Runtime<QueuePort> {
    let settings = Settings {
        wall,
        ..Settings::alone(512)
    };
    Runtime::new(
        settings,
        kept(shop),
        vec![QueuePort::default()],
        pool(128, 0),
        Region::heap,
    )
    .unwrap()
}

#[test]
fn the_successor_fires_what_was_armed_once() {
    let shop = Shop::default();
    let mut runtime = begin(&shop, WALL);
    feed(&mut runtime, [10, 200, 300]);
    runtime.step(0);
    runtime.step(2 * INTERVAL);
    runtime.step(10 * MS);
    runtime.step(10 * MS + 2 * INTERVAL);
    assert_eq!(
        (fired(&runtime), shop.entries()),
        (1, 2),
        "what has fired is gone from the store"
    );
    // Killed, and away past the time of one; its clock begins again.
    drop(runtime);
    let mut runtime = begin(&shop, WALL + 250 * MS);
    runtime.step(1);
    assert_eq!((fired(&runtime), runtime.next_at().is_some()), (1, true));
    runtime.step(2 * INTERVAL);
    assert_eq!(shop.entries(), 1);
    drop(runtime);
    // A timer that the store does not know as fired fires again: here its removal did not get
    // there.
    shop.with(|shelves| shelves.is_down = true);
    for _ in 0..2 {
        let mut runtime = begin(&shop, WALL + 400 * MS);
        runtime.step(1);
        runtime.step(2 * INTERVAL);
        assert_eq!((fired(&runtime), shop.entries()), (1, 1));
    }
    shop.with(|shelves| shelves.is_down = false);
    let mut runtime = begin(&shop, WALL + 400 * MS);
    runtime.step(1);
    runtime.step(2 * INTERVAL);
    assert_eq!((fired(&runtime), shop.entries()), (1, 0));
    drop(runtime);
    let mut runtime = begin(&shop, WALL + 500 * MS);
    runtime.step(1);
    assert_eq!((fired(&runtime), runtime.next_at()), (0, None));
}
