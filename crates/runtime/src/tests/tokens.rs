//! Calls that wait for a token: each goes on by its own, and no other.

use super::stored::Shop;
use super::*;
use crate::mobility::{MoveOrder, Selector};
use core::cell::RefCell;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use nf::variables::{Consistency, Counter, Options, Token, Variables};
use nf::{Cx, Packet, Verdict, WorkerInfo, network_function};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use std::vec;

const MS: u64 = 1_000_000;

std::thread_local! {
    /// Polls of calls, by the key that they wait for. Each test has a thread of its own.
    static POLLS: RefCell<BTreeMap<u8, u32>> = const { RefCell::new(BTreeMap::new()) };
    static TOKENS: RefCell<BTreeMap<u8, Token>> = const { RefCell::new(BTreeMap::new()) };
}

/// Counts the polls of a call.
struct Polled<F>(u8, F);

impl<F: Future + Unpin> Future for Polled<F> {
    type Output = F::Output;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        POLLS.with_borrow_mut(|polls| *polls.entry(self.0).or_default() += 1);
        Pin::new(&mut self.1).poll(cx)
    }
}

fn polls(key: u8) -> u32 {
    POLLS.with_borrow(|polls| polls.get(&key).copied().unwrap_or(0))
}

/// Two counters: the store is told of one at once, and of the other each 50 ms.
struct Pair([Counter; 2]);

#[network_function]
impl NetworkFunction for Pair {
    const NAME: &'static str = "pair";
    type Config = NoConfig;
    type Flow = ();
    type Group = ();
    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        unreachable!("it has variables")
    }
    fn with_variables(
        _: &Arc<NoConfig>,
        _: &WorkerInfo,
        variables: &mut Variables,
    ) -> Result<Self, ConfigError> {
        let slow = Consistency::Behind {
            interval_ns: 50 * MS,
            bound_ns: 1000 * MS,
        };
        let mut open = |name, consistency| {
            variables.counter(
                name,
                Options {
                    capacity: 1,
                    consistency,
                },
            )
        };
        Ok(Pair([open("fast", Consistency::THROUGH)?, open("slow", slow)?]))
    }
    fn generation(&self) -> u32 {
        self.0[0].heard().wrapping_add(self.0[1].heard())
    }
    async fn process(&self, packet: &mut Packet, _: &mut (), cx: &mut Cx<Self>) -> Verdict {
        let key = packet.payload()[0];
        let counter = &self.0[usize::from(key)];
        counter.add(1);
        let tickets = [counter.stored()];
        let stored = core::pin::pin!(cx.stored(&tickets));
        Polled(key, stored).await.unwrap();
        Verdict::Forward
    }
}

/// Before tokens, each acknowledgement had all waiting calls of a function look.
#[test]
fn an_acknowledgement_has_those_calls_go_on_that_wait_for_it_and_no_other() {
    let shop = Shop::default();
    let plan = plan(vec![factory::<Pair>()]).keeping(shop.keeper());
    let links = vec![QueuePort::default()];
    let mut runtime = Runtime::new(Settings::alone(64), plan, links, pool(128, 0), Region::heap).unwrap();
    let feed = |runtime: &mut Runtime<QueuePort>, host: u8, key: u8| {
        let packet = udp(host, 1, 1, 80, false, &[key]);
        runtime.links_mut()[0].input.push_back(packet);
    };
    // The first change of each goes at once; the next of the slow one when its interval is over.
    let at = |ms: u64| 100 * MS + ms * MS;
    feed(&mut runtime, 1, 1);
    for now in 1..4 {
        runtime.step(at(now));
    }
    assert_eq!((runtime.stats().passed, runtime.stats().waiting), (1, 0));
    POLLS.take();
    feed(&mut runtime, 2, 1);
    runtime.step(at(4));
    for host in 3..13 {
        feed(&mut runtime, host, 0);
        runtime.step(at(4) + u64::from(host));
    }
    runtime.step(at(5));
    assert_eq!((runtime.stats().passed, runtime.stats().waiting), (11, 1));
    assert_eq!(
        (polls(0), polls(1)),
        (20, 1),
        "ten calls were acknowledged; the other was not"
    );
    for now in 6..50 {
        runtime.step(at(now));
    }
    assert_eq!(
        (runtime.stats().waiting, polls(1)),
        (1, 1),
        "nothing was said to it"
    );
    // It goes on in the very step that hears of it, and the step before has the time.
    for now in [at(60), at(60) + 1, at(60) + 2] {
        runtime.step(now);
    }
    assert_eq!((runtime.stats().waiting, polls(1)), (0, 2));
    assert_eq!(runtime.stats().untold, 0);
    assert_conserved(&runtime);
}

/// A packet of 0 waits for the key behind it, for as many milliseconds as the third byte says; a
/// packet of 1 answers it.
struct Asker;

#[network_function]
impl NetworkFunction for Asker {
    const NAME: &'static str = "asker";
    const BEGINS_AGAIN: bool = true;
    const REASONS: &'static [&'static str] = &["unanswered"];
    type Config = NoConfig;
    type Flow = ();
    type Group = ();
    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Asker)
    }
    async fn process(&self, packet: &mut Packet, _: &mut (), cx: &mut Cx<Self>) -> Verdict {
        let [answers, key, patience] = *packet.payload().first_chunk::<3>().unwrap();
        if answers == 1 {
            // It stays in the table: late answers are given to calls that are over.
            TOKENS.with_borrow(|tokens| tokens.get(&key).inspect(|token| token.give()).is_some());
            return Verdict::Forward;
        }
        let token = cx.token();
        TOKENS.with_borrow_mut(|tokens| tokens.insert(key, token.clone()));
        let patience = Duration::from_millis(u64::from(patience));
        let is_given = Polled(key, cx.given(&token, patience)).await;
        if is_given {
            Verdict::Forward
        } else {
            cx.drop("unanswered")
        }
    }
}

fn asker() -> Runtime<QueuePort> {
    let mut settings = Settings::alone(64);
    settings.waiting_max = 3;
    alone(settings, vec![factory::<Asker>()])
}

fn send(runtime: &mut Runtime<QueuePort>, host: u8, what: [u8; 3]) {
    let packet = udp(host, 1, 1, 80, false, &what);
    runtime.links_mut()[0].input.push_back(packet);
}

#[test]
fn an_answer_has_one_of_two_calls_go_on_at_once() {
    let mut runtime = asker();
    send(&mut runtime, 1, [0, 7, 200]);
    send(&mut runtime, 2, [0, 8, 200]);
    runtime.step(MS);
    assert_eq!((polls(7), polls(8)), (1, 1));
    send(&mut runtime, 3, [1, 8, 0]);
    runtime.step(2 * MS);
    assert_eq!((polls(7), polls(8)), (1, 2), "in the step of the answer");
    assert_eq!((runtime.stats().waiting, runtime.stats().passed), (1, 2));
    for now in 3..=201 {
        runtime.step(now * MS);
    }
    let stats = runtime.stats();
    assert_eq!((polls(7), stats.waiting, stats.passed), (2, 0, 2));
    assert_eq!(stats.dropped[0].name, "unanswered");
    assert_conserved(&runtime);
}

#[test]
fn a_token_of_a_call_that_is_over_does_nothing_and_waits_leave_nothing_behind() {
    let mut runtime = asker();
    let mut now = MS;
    // Its frame is the next call's.
    send(&mut runtime, 1, [0, 7, 1]);
    runtime.step(now);
    now += 5 * MS;
    runtime.step(now);
    assert_eq!((runtime.stats().waiting, polls(7)), (0, 2));
    for host in 2..5 {
        send(&mut runtime, host, [0, host + 10, 250]);
    }
    runtime.step(now);
    assert_eq!(runtime.stats().waiting, 3);
    send(&mut runtime, 9, [1, 7, 0]);
    runtime.step(now + 1);
    runtime.step(now + 2);
    let all: vec::Vec<u32> = (12..15).map(polls).collect();
    assert_eq!((runtime.stats().waiting, all), (3, vec![1, 1, 1]));
    // Many waits one after another, each answered long before its time, in memory of four.
    for host in 2..5 {
        send(&mut runtime, 20 + host, [1, host + 10, 0]);
        send(&mut runtime, 20 + host, [1, host + 10, 0]);
    }
    runtime.step(now + 3);
    assert_eq!(runtime.stats().waiting, 0);
    POLLS.take();
    for n in 0..200 {
        now += 4;
        send(&mut runtime, 1, [0, 7, 250]);
        runtime.step(now);
        send(&mut runtime, 2, [1, 7, 0]);
        send(&mut runtime, 3, [1, 7, 0]);
        runtime.step(now + 1);
        assert_eq!((runtime.stats().waiting, polls(7)), (0, 2 * (n + 1)));
    }
    assert_conserved(&runtime);
}

/// A call that moves begins again at the target, with a token of its own there.
#[test]
fn a_call_that_moved_goes_on_by_its_token_at_the_target() {
    let plan = plan(vec![factory::<Asker>()]);
    let mut cluster = super::spread::cluster(1, 2, crate::switch::Policy::RoundRobin, &plan, 64);
    cluster.feed(0, [udp(1, 1, 1, 80, false, &[0, 7, 255])]);
    let from = (0..2)
        .find(|index| cluster.runtimes[*index].stats().waiting == 1)
        .unwrap();
    let left = TOKENS.with_borrow(|tokens| tokens[&7].clone());
    let order = MoveOrder {
        selector: Selector::All,
        to: vec![1 - from as u16],
    };
    cluster.runtimes[from].order(order).unwrap();
    cluster.run_until_quiet();
    let waiting = |cluster: &super::spread::Cluster| {
        let of = |index: usize| cluster.runtimes[index].stats().waiting;
        (of(from), of(1 - from))
    };
    assert_eq!(waiting(&cluster), (0, 1));
    left.give();
    cluster.run_until_quiet();
    assert_eq!(
        waiting(&cluster),
        (0, 1),
        "the token of the call that was given up"
    );
    TOKENS.with_borrow(|tokens| tokens[&7].give());
    cluster.run_until_quiet();
    assert_eq!((waiting(&cluster), cluster.sent().len()), ((0, 0), 1));
    cluster.check();
}
