//! Orders and drains while runtimes leave questions unanswered: each runtime is a thread that
//! answers as the real one would, but for questions that it is told to keep.

use super::super::handle::{Command, End, QUESTIONS};
use super::super::watching;
use super::*;
use crate::apply::Live;
use crate::config::layout::Layout;
use runtime::chain::Plan;
use runtime::mobility::ORDERS_MAX;
use runtime::stats::RuntimeStats;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, RwLock, Weak};

/// A runtime with flows, and room for more.
#[derive(Default)]
struct Script {
    is_leaving: bool,
    orders: u32,
    taken_back: Vec<u32>,
    /// Of which questions the answers are kept back.
    keeps: Option<fn(&Question) -> bool>,
    kept: Vec<(Question, Sender<WorkerAnswer>)>,
}

impl Script {
    fn answer(&mut self, question: Question) -> WorkerAnswer {
        match question {
            Question::Stats => WorkerAnswer::Runtime(Box::new(RuntimeStats {
                flows: 5,
                flows_max: 10,
                leaving: self.is_leaving,
                ..RuntimeStats::default()
            })),
            Question::Order(..) => {
                self.orders += 1;
                WorkerAnswer::Ordered(Ok(self.orders - 1))
            }
            Question::Receipt(number) => WorkerAnswer::Receipt((number < self.orders).then(|| {
                Box::new(mobility::Receipt {
                    is_over: self.taken_back.contains(&number),
                    ..mobility::Receipt::default()
                })
            })),
            Question::Cancel(number) => {
                self.taken_back.push(number);
                WorkerAnswer::Done
            }
            Question::Leaving(leaving) => {
                self.is_leaving = leaving;
                WorkerAnswer::Leaving
            }
            Question::Drained => WorkerAnswer::Drained {
                home: true,
                out: 0,
                held: 0,
                moved: 7,
            },
            _ => WorkerAnswer::NotMine,
        }
    }
}

struct Site {
    shared: Arc<Shared>,
    scripts: Vec<Arc<Mutex<Script>>>,
}

impl Site {
    fn new(runtimes: u16) -> Self {
        let text = format!(
            "runtimes = {runtimes}\n[[port]]\nname = \"a\"\ninput = \"memory:a\"\n[[chain]]\nname = \"all\"\nfunctions = [\"flow_monitor\"]\n"
        );
        let Ok(mut config) = crate::config::parse("a.toml", &text, &crate::functions()) else {
            panic!("{text}");
        };
        let plan = Plan::new(config.rules(), config.take_factories()).unwrap();
        let mut scripts = Vec::new();
        let mut handles = BTreeMap::new();
        for number in 0..runtimes {
            let script = Arc::new(Mutex::new(Script::default()));
            scripts.push(Arc::clone(&script));
            let (handle, inbox) = Handle::new();
            handles.insert(number, handle);
            // The thread ends with the handle.
            std::thread::spawn(move || {
                while let Some(command) = inbox.wait() {
                    let Command::Ask(question, answer) = command else {
                        continue;
                    };
                    let mut script = lock(&script);
                    match script.keeps.is_some_and(|keeps| keeps(&question)) {
                        true => script.kept.push((question, answer)),
                        false => drop(answer.send(script.answer(question))),
                    }
                }
            });
        }
        let shared = Arc::new_cyclic(|me: &Weak<Shared>| Shared {
            began: Instant::now(),
            switches: BTreeMap::new(),
            runtimes: RwLock::new(handles),
            ports: Vec::new(),
            layout: Layout::whole(&config),
            part: None,
            worker_pool: None,
            stop: AtomicBool::new(false),
            break_off: AtomicBool::new(false),
            last: Mutex::new(None),
            own: crate::run::counted::Own::default(),
            packet_clock: false,
            watch_registry: watching::WatchRegistry::default(),
            threads: Vec::new(),
            me: Weak::clone(me),
            notices: Default::default(),
            checks: Default::default(),
            is_checking: Default::default(),
            live: Live::new(config, plan, None, Vec::new(), Vec::new()),
            orders: Mutex::default(),
            has_inputs: false,
            stores: Vec::new(),
            neighbours: None,
        });
        Site { shared, scripts }
    }

    /// Does something in another thread, until a runtime keeps the answer to such a question back.
    fn until_kept<T: Send + 'static>(
        &self,
        runtime: usize,
        keeps: fn(&Question) -> bool,
        act: impl FnOnce(&Shared) -> T + Send + 'static,
    ) -> std::thread::JoinHandle<T> {
        lock(&self.scripts[runtime]).keeps = Some(keeps);
        let shared = Arc::clone(&self.shared);
        let acting = std::thread::spawn(move || act(&shared));
        while lock(&self.scripts[runtime]).kept.is_empty() {
            assert!(!acting.is_finished(), "nothing was asked");
            std::thread::sleep(LOOK);
        }
        acting
    }

    /// Has a runtime answer the kept questions, and all that come.
    fn release(&self, runtime: usize) {
        let mut script = lock(&self.scripts[runtime]);
        script.keeps = None;
        for (question, answer) in std::mem::take(&mut script.kept) {
            drop(answer.send(script.answer(question)));
        }
    }

    fn numbers(&self) -> Vec<u32> {
        self.shared.under_way().iter().map(|order| order.number).collect()
    }

    fn taken_back(&self, runtime: usize) -> Vec<u32> {
        lock(&self.scripts[runtime]).taken_back.clone()
    }
}

fn from(runtime: u16) -> Order {
    Order {
        from: Some(runtime),
        ..Order::default()
    }
}

fn is_order(question: &Question) -> bool {
    matches!(question, Question::Order(..))
}

fn is_leaving(question: &Question) -> bool {
    matches!(question, Question::Leaving(_))
}

#[test]
fn while_a_runtime_does_not_answer_orders_are_listed_and_taken_back() {
    let site = Site::new(3);
    assert_eq!(site.shared.give(&from(0)), Ok(vec![(0, 0)]));
    let giver = site.until_kept(1, is_order, |shared| shared.give(&from(1)));

    // The order that is being given is among them, and is not over.
    assert_eq!(site.numbers(), [0, 1]);
    assert_eq!(site.shared.take_back(0), Ok(vec![(0, 0)]));
    assert_eq!(site.taken_back(0), [0]);
    assert_eq!(site.numbers(), [1]);
    assert!(
        site.shared
            .take_back(0)
            .unwrap_err()
            .starts_with("no order 0 is under way")
    );
    // Other orders and words as well.
    assert_eq!(site.shared.give(&from(2)), Ok(vec![(2, 0)]));
    assert_eq!(site.shared.leave(2, Leaving::Drained), Ok(Vec::new()));
    assert_eq!(site.shared.leave(2, Leaving::Resumed), Ok(Vec::new()));

    assert!(!giver.is_finished(), "it was waited for");
    site.release(1);
    assert_eq!(giver.join().unwrap(), Ok(vec![(1, 0)]));
    assert_eq!(site.numbers(), [1, 2]);
}

#[test]
fn a_list_waits_for_all_that_do_not_answer_together_and_says_what_the_others_did() {
    let site = Site::new(3);
    for runtime in [0, 1, 2] {
        site.shared.give(&from(runtime)).unwrap();
    }
    for runtime in [0, 1] {
        lock(&site.scripts[runtime]).keeps = Some(|question| matches!(question, Question::Receipt(_)));
    }
    site.shared.take_back(2).unwrap();
    let began = Instant::now();
    assert_eq!(site.numbers(), [0, 1]);
    assert!(began.elapsed() < 2 * PATIENCE, "{:?}", began.elapsed());
}

#[test]
fn a_drain_that_is_under_way_counts_for_the_next_one() {
    let site = Site::new(2);
    let drains = site.until_kept(0, is_leaving, |shared| shared.leave(0, Leaving::Drained));
    // Runtime 0 says still that it takes flows.
    let said = site.shared.leave(1, Leaving::Drained).unwrap_err();
    assert!(
        said.contains("(0 is just being drained); nothing has changed"),
        "{said}"
    );
    // Nor do flows go there.
    let said = site.shared.give(&from(1)).unwrap_err();
    assert!(
        said.contains("(0 is just being drained); none has moved"),
        "{said}"
    );
    assert!(!drains.is_finished(), "it was waited for");
    site.release(0);
    assert_eq!(drains.join().unwrap(), Ok(Vec::new()));
    let said = site.shared.leave(1, Leaving::Drained).unwrap_err();
    assert!(said.contains("(0 is drained); nothing has changed"), "{said}");
    assert!(!lock(&site.scripts[1]).is_leaving);
}

#[test]
fn a_word_that_comes_to_nothing_is_forgotten() {
    let site = Site::new(2);
    lock(&site.scripts[1]).is_leaving = true;
    assert!(site.shared.leave(0, Leaving::Drained).is_err());
    assert_eq!(site.shared.leave(1, Leaving::Resumed), Ok(Vec::new()));
    assert_eq!(site.shared.leave(0, Leaving::Drained), Ok(Vec::new()));
    assert!(lock(&site.shared.orders).words.is_empty());
}

#[test]
fn a_runtime_has_one_word_at_a_time() {
    let site = Site::new(3);
    let drains = site.until_kept(0, is_leaving, |shared| shared.leave(0, Leaving::Drained));
    let shared = Arc::clone(&site.shared);
    let resumes = std::thread::spawn(move || shared.leave(0, Leaving::Resumed));
    std::thread::sleep(20 * LOOK);
    // The second would be kept as well, if it had been said.
    assert_eq!(lock(&site.scripts[0]).kept.len(), 1);
    site.release(0);
    assert_eq!(drains.join().unwrap(), Ok(Vec::new()));
    assert_eq!(resumes.join().unwrap(), Ok(Vec::new()));
    assert!(!lock(&site.scripts[0]).is_leaving);
}

#[test]
fn an_order_that_is_being_given_has_its_place() {
    let site = Site::new(2);
    for number in 0..ORDERS_MAX as u32 - 1 {
        assert_eq!(site.shared.give(&from(0)), Ok(vec![(0, number)]));
    }
    let giver = site.until_kept(1, is_order, |shared| shared.give(&from(1)));
    let said = site.shared.give(&from(0)).unwrap_err();
    assert!(
        said.starts_with("16 orders to move flows are under way")
            && said.ends_with("nothing of this one has begun"),
        "{said}"
    );
    // An order that is over makes room.
    site.shared.take_back(3).unwrap();
    assert_eq!(site.shared.give(&from(0)), Ok(vec![(0, ORDERS_MAX as u32 - 1)]));
    assert!(!giver.is_finished(), "it was waited for");
    site.release(1);
    assert_eq!(giver.join().unwrap(), Ok(vec![(1, 0)]));
    assert_eq!(site.numbers().len(), ORDERS_MAX);
}

#[test]
fn an_order_that_is_not_given_leaves_its_place() {
    let site = Site::new(2);
    lock(&site.scripts[1]).is_leaving = true;
    for _ in 0..=ORDERS_MAX {
        let said = site.shared.give(&from(0)).unwrap_err();
        assert!(said.contains("(1 is drained); none has moved"), "{said}");
    }
    assert!(lock(&site.shared.orders).orders.is_empty());
}

#[test]
fn what_is_taken_back_while_it_is_given_is_so_when_it_is() {
    let site = Site::new(2);
    let giver = site.until_kept(1, is_order, |shared| shared.give(&from(1)));
    let shared = Arc::clone(&site.shared);
    let takes_back = std::thread::spawn(move || shared.take_back(0));
    while !lock(&site.shared.orders).orders[&0].is_unwanted {
        std::thread::sleep(LOOK);
    }
    site.release(1);
    assert_eq!(giver.join().unwrap(), Ok(vec![(1, 0)]));
    assert!(site.taken_back(1).contains(&0));
    // The order may be over by the time that is looked for.
    let answered = takes_back.join().unwrap();
    assert!(
        answered == Ok(vec![(1, 0)])
            || answered
                .as_ref()
                .is_err_and(|said| said.starts_with("no order 0")),
        "{answered:?}"
    );
    assert!(site.numbers().is_empty());
}

#[test]
fn what_a_drain_orders_while_its_runtime_is_resumed_is_taken_back() {
    let site = Site::new(2);
    // The orders of a runtime that is not drained are not.
    for (leaves, taken_back) in [(false, vec![]), (true, vec![1])] {
        if leaves {
            site.shared.leave(1, Leaving::Drained).unwrap();
        }
        let giver = site.until_kept(1, is_order, |shared| shared.give(&from(1)));
        assert_eq!(site.shared.leave(1, Leaving::Resumed), Ok(Vec::new()));
        site.release(1);
        giver.join().unwrap().unwrap();
        assert_eq!(site.taken_back(1), taken_back);
    }
    // Its earlier orders are taken back at once, and answered; not those that are over.
    site.shared.leave(1, Leaving::Drained).unwrap();
    site.shared.give(&from(1)).unwrap();
    assert_eq!(site.shared.leave(1, Leaving::Resumed), Ok(vec![(1, 2)]));
    assert_eq!(site.taken_back(1), [1, 2]);
}

#[test]
fn all_are_taken_back_also_what_is_being_given() {
    let site = Site::new(2);
    site.shared.give(&from(0)).unwrap();
    let giver = site.until_kept(1, is_order, |shared| shared.give(&from(1)));
    site.shared.take_all_back();
    assert_eq!((site.taken_back(0), site.taken_back(1)), (vec![0], vec![]));
    site.release(1);
    giver.join().unwrap().unwrap();
    assert_eq!(site.taken_back(1), [0]);
}

#[test]
fn a_part_is_of_one_order() {
    let mut order_table = OrderTable::default();
    let [one, two, three] = [0, 0, 1].map(|runtime| order_table.reserve(&from(runtime)).unwrap());
    order_table.note(one, &[(0, 0)], false);
    order_table.note(three, &[(1, 0)], false);
    // Runtime 0 has come again, and counts from 0.
    order_table.note(two, &[(0, 0)], false);
    let numbers: Vec<u32> = order_table.orders.keys().copied().collect();
    assert_eq!(numbers, [two, three]);
}

#[test]
fn an_only_runtime_is_not_drained_where_that_is_forced_either() {
    let site = Site::new(1);
    for leaving in [Leaving::Drained, Leaving::Forced] {
        let said = site.shared.leave(0, leaving).unwrap_err();
        assert!(
            said.starts_with("this cluster has one runtime") && said.contains("nothing has changed"),
            "{said}"
        );
    }
    assert!(!lock(&site.scripts[0]).is_leaving);
}

#[test]
fn a_worker_that_does_not_answer_is_not_drained() {
    let site = Site::new(2);
    assert!(site.shared.drained().done);
    lock(&site.scripts[1]).keeps = Some(|question| matches!(question, Question::Drained));
    assert!(!site.shared.drained().done);
}

#[test]
fn a_full_queue_is_an_error_that_says_so() {
    let (handle, inbox) = Handle::new();
    let asked: Vec<_> = (0..10_000).map(|_| handle.ask_later(Question::Stats)).collect();
    assert_eq!(asked.iter().filter(|asked| asked.is_ok()).count(), QUESTIONS);
    let why = handle.ask(Question::Stats).err().unwrap();
    assert_eq!(
        why.to_string(),
        "its queue is full (128 questions wait there unanswered)"
    );
    // The end of a watch, and the end of the worker, still come through.
    handle.unwatch(3);
    handle.end(End::Quit);
    // Each question that is taken makes room for another.
    assert!(matches!(inbox.take(), Some(Command::Ask(Question::Stats, _))));
    assert!(handle.ask_later(Question::Stats).is_ok() && handle.ask_later(Question::Stats).is_err());
    let rest = std::iter::from_fn(|| inbox.take()).count();
    assert_eq!(rest, QUESTIONS + 1);
    drop(inbox);
    assert_eq!(
        handle.ask(Question::Stats).err(),
        Some(super::super::handle::Unanswered::Gone)
    );
}
