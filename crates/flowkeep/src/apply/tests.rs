//! The steps of a change, with runtimes that are stepped by hand, one of which does not do as it is
//! told.

use super::report::Outcome;
use super::*;
use adapters::ring::RingPort;
use runtime::env::{Burst, Port};
use runtime::{Runtime, Settings};
use std::cell::{Cell, RefCell};
use wire::memory::Region;
use wire::{LinkType, Pool};

/// Two runtimes with a flow each, the second of which may be stuck.
struct Pair {
    runtimes: [RefCell<Runtime<RingPort>>; 2],
    is_stuck: Cell<bool>,
    followed: Cell<u32>,
    claimed: RefCell<Vec<Vec<Prefix>>>,
}

/// A runtime with a flow from inside.
fn runtime(plan: &Plan, info: WorkerInfo) -> RefCell<Runtime<RingPort>> {
    let (near, mut far) = RingPort::pair(64);
    let pool = Pool::new(Region::heap(Pool::region_length(64, 2048)), 64, 2048, 0);
    let settings = Settings {
        info,
        ..Settings::alone(64)
    };
    let made = Runtime::new(settings, plan.clone(), vec![near], pool, Region::heap);
    let mut runtime = made.unwrap_or_else(|error| panic!("{error:?}"));
    let mut frame = Vec::new();
    let from = etherparse::PacketBuilder::ipv4([10, 0, 0, 1], [198, 51, 100, 7], 64);
    from.udp(1000, 53).write(&mut frame, b"?").unwrap();
    let mut pool = Pool::new(Region::heap(Pool::region_length(4, 2048)), 4, 2048, 1);
    let mut packet = pool.take().unwrap();
    assert!(packet.set_frame(&frame, LinkType::Raw));
    packet.set_side(nf::Side::Inside);
    far.transmit(1, &mut pool, &mut Burst::from_iter([packet]));
    runtime.step(1);
    assert_eq!(runtime.stats().flows, 1, "{:?}", runtime.stats().dropped);
    RefCell::new(runtime)
}

impl Pair {
    fn rules(&self, runtime: usize) -> String {
        self.runtimes[runtime]
            .borrow_mut()
            .command("firewall", &["rules"])
            .unwrap()
    }

    fn generation(&self, runtime: usize) -> u64 {
        self.runtimes[runtime].borrow().change().generation.0
    }
}

impl Workers for Pair {
    fn runtimes(&self) -> usize {
        2
    }
    fn prepare(&self, runtime: usize, prepared: Box<Prepared>) -> Option<Result<(), ChangeError>> {
        let prepared = self.runtimes[runtime].borrow_mut().prepare_change(prepared);
        Some(prepared.map_err(|(error, _)| error))
    }
    fn abandon(&self, runtime: usize) {
        drop(self.runtimes[runtime].borrow_mut().abandon_change());
    }
    fn commit(&self, tickets: &[Ticket]) -> Vec<bool> {
        let commit = |(index, ticket): (usize, &Ticket)| {
            let is_stuck = index == 1 && self.is_stuck.get();
            !is_stuck && ticket.redeem() && self.runtimes[index].borrow_mut().commit_change()
        };
        tickets.iter().enumerate().map(commit).collect()
    }
    fn state(&self, runtime: usize) -> Option<ChangeState> {
        let mut runtime = self.runtimes[runtime].borrow_mut();
        runtime.step(1);
        Some(runtime.change())
    }
    fn listed(&self, runtime: usize) -> Vec<CutFlow> {
        self.runtimes[runtime].borrow_mut().take_listed()
    }
    fn before(&self, runtime: usize) -> Option<Box<Before>> {
        self.runtimes[runtime].borrow_mut().take_before()
    }
    fn claim(&self, _: usize, addresses: Vec<Vec<Prefix>>) -> Result<(), String> {
        self.claimed.borrow_mut().push(addresses.concat());
        Ok(())
    }
    fn follow(&self, _: usize, _: Plan) {
        self.followed.set(self.followed.get() + 1);
    }
}

/// The new configuration has one more chain, in front of the other.
fn text(rule: &str, pool: &str) -> String {
    let more = match rule {
        "new" => {
            "[[chain]]\nname = \"web\"\nfunctions = [\"firewall\", \"nat\"]\n[chain.match]\ndestination_port = [80]\n"
        }
        _ => "",
    };
    format!(
        "[[port]]\nname = \"a\"\ninput = \"memory:a\"\n{more}[[chain]]\nname = \"all\"\nfunctions = [\"firewall\", \"nat\"]\n\
         [[function.firewall.rules]]\nname = \"{rule}\"\naction = \"allow\"\n[function.nat]\npool = [\"{pool}\"]\n"
    )
}

fn ask(path: &Path) -> Ask {
    Ask {
        path: Some(path.to_owned()),
        ..Ask::default()
    }
}

/// A folder that is removed with its content, after a failure too.
struct Folder(std::path::PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A cluster of the pair, and its file.
fn cluster(name: &str) -> (Folder, PathBuf, Live, Pair) {
    let folder = Folder(std::env::temp_dir().join(format!("flowkeep-apply-{name}-{}", std::process::id())));
    std::fs::create_dir_all(&folder.0).unwrap();
    let path = folder.0.join("a.toml");
    std::fs::write(&path, text("old", "203.0.113.0/31")).unwrap();
    let registry = crate::functions();
    let (mut config, tree, _) = config::read_tree(&path, &registry).unwrap();
    let plan = Plan::new(config.rules(), config.take_factories()).unwrap();
    let infos: Vec<WorkerInfo> = (0..2)
        .map(|runtime| WorkerInfo {
            runtime,
            runtimes: 2,
            flows_max: 64,
            seed: 1,
        })
        .collect();
    let pair = Pair {
        runtimes: [runtime(&plan, infos[0]), runtime(&plan, infos[1])],
        is_stuck: Cell::new(false),
        followed: Cell::new(0),
        claimed: RefCell::default(),
    };
    let source = Source {
        registry,
        path: path.clone(),
        tree,
        overrides: Box::new(|_| Ok(())),
        own: None,
    };
    let outside = vec![vec![SideRule::Fixed(nf::Side::Outside)]];
    let live = Live::new(config, plan, Some(source), infos, outside);
    (folder, path, live, pair)
}

/// One runtime does not commit: the other goes back, switches have not heard of the new
/// configuration, and the next change finds all as if nothing had been.
#[test]
fn who_does_not_commit_has_the_others_go_back() {
    let (_folder, path, live, pair) = cluster("stuck");
    pair.is_stuck.set(true);
    std::fs::write(&path, text("new", "203.0.113.0/30")).unwrap();
    let failed = live.change(&ask(&path), &pair).unwrap_err();
    assert!(failed.contains("runtime 1 did not commit"), "{failed}");
    for runtime in 0..2 {
        assert!(pair.rules(runtime).contains("old"), "{}", pair.rules(runtime));
    }
    assert_eq!(
        (pair.generation(0), pair.generation(1), pair.followed.get()),
        (3, 1, 0)
    );
    let last = pair.claimed.borrow().last().cloned().unwrap();
    assert_eq!(last, ["203.0.113.0/31".parse().unwrap()]);
    let chains = |runtime: usize| {
        let (flows, _) = pair.runtimes[runtime].borrow().flows(0, 8);
        flows.iter().map(|flow| flow.chain.clone()).collect::<Vec<_>>()
    };
    assert_eq!((chains(0), chains(1)), (vec!["all".into()], vec!["all".into()]));
    pair.is_stuck.set(false);
    let change = live.change(&ask(&path), &pair).unwrap();
    assert_eq!(change.outcome, Outcome::Applied, "{change}");
    for runtime in 0..2 {
        assert!(pair.rules(runtime).contains("new"));
        assert_eq!(pair.generation(runtime), 4);
    }
    let last = pair.claimed.borrow().last().cloned().unwrap();
    assert_eq!(
        (last, pair.followed.get()),
        (vec!["203.0.113.0/30".parse().unwrap()], 1)
    );
}

/// A hangup that came while another command compared files was once lost.
#[test]
fn who_waits_is_not_refused_for_another_change() {
    let (_folder, path, live, pair) = cluster("waits");
    let (begun, has_begun) = std::sync::mpsc::channel();
    let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let live = &live;
        scope.spawn(move || {
            live.with_workers(|_, _, _| {
                begun.send(()).unwrap();
                may_go_on.recv().unwrap();
                std::thread::sleep(Duration::from_millis(200));
            })
        });
        has_begun.recv().unwrap();
        let refused = live.change(&ask(&path), &pair).unwrap_err();
        assert!(refused.contains("under way"), "{refused}");
        go_on.send(()).unwrap();
        let waits = Ask {
            waits: true,
            ..ask(&path)
        };
        assert_eq!(live.change(&waits, &pair).unwrap().outcome, Outcome::Same);
    });
}

fn on_trial(path: &Path, ms: u64) -> Ask {
    Ask {
        confirm_ms: Some(ms),
        ..ask(path)
    }
}

/// A second rule in place of the first: the flow that is there goes on by either.
#[test]
fn what_is_on_trial_goes_back_unless_it_is_confirmed() {
    let (_folder, path, live, pair) = cluster("trial");
    let trials = live.trials();
    assert!(
        trials
            .confirm()
            .unwrap_err()
            .contains("no configuration is on trial")
    );
    std::fs::write(&path, text("new", "203.0.113.0/31")).unwrap();
    for ms in [0, 999, 86_400_001, u64::MAX] {
        let refused = live.change(&on_trial(&path, ms), &pair).unwrap_err();
        assert!(refused.contains("write 1s to 24h"), "{refused}");
    }
    assert!(pair.rules(0).contains("old"));

    let began = Instant::now();
    let change = live.change(&on_trial(&path, 1000), &pair).unwrap();
    assert!(change.to_string().contains("goes back in 1 s"), "{change}");
    let (trial, _) = trials.status();
    let trial = trial.unwrap();
    assert!(trial.seconds_left > 0.0 && trial.seconds_left <= 1.0, "{trial:?}");
    assert_eq!(trial.generation, 2);
    // Another change is refused by name, and so is a signal's; a dry one is not.
    std::fs::write(&path, text("third", "203.0.113.0/31")).unwrap();
    for waits in [false, true] {
        let refused = live.change(&Ask { waits, ..ask(&path) }, &pair).unwrap_err();
        let named = refused.contains(&path.display().to_string());
        assert!(named && refused.contains("is on trial"), "{refused}");
    }
    let looks = Ask {
        dry: true,
        ..ask(&path)
    };
    assert_eq!(live.change(&looks, &pair).unwrap().outcome, Outcome::Possible);
    assert!(live.end_trial(2, &pair).is_none(), "its time is not over");
    assert!(trials.wait(2));
    assert!(began.elapsed() >= Duration::from_secs(1));
    let went = live.end_trial(2, &pair).unwrap().unwrap();
    assert_eq!((went.generation, went.now, went.flows_cut), (2, 3, 0));
    for runtime in 0..2 {
        assert!(pair.rules(runtime).contains("old"), "{}", pair.rules(runtime));
    }
    assert_eq!(trials.status(), (None, Some(went)));
    // A rollback that was meant for the trial does not put its configuration in force again.
    let back = Ask {
        rollback: true,
        ..Ask::default()
    };
    let refused = live.change(&back, &pair).unwrap_err();
    assert!(refused.contains("went back by itself"), "{refused}");

    std::fs::write(&path, text("new", "203.0.113.0/31")).unwrap();
    live.change(&on_trial(&path, 1000), &pair).unwrap();
    assert_eq!(trials.confirm(), Ok(4));
    assert!(!trials.wait(4), "the thread that waits hears of it");
    std::thread::sleep(Duration::from_millis(1010));
    assert!(live.end_trial(4, &pair).is_none());
    assert!(pair.rules(1).contains("new"));

    std::fs::write(&path, text("third", "203.0.113.0/31")).unwrap();
    live.change(&on_trial(&path, 86_400_000), &pair).unwrap();
    live.change(&back, &pair).unwrap();
    assert!(pair.rules(1).contains("new") && trials.status().0.is_none());
    live.change(&on_trial(&path, 1000), &pair).unwrap();
    trials.close();
    assert!(!trials.wait(7), "the process ends");
}

/// The rules of before do not let the flow in that came by those on trial.
#[test]
fn going_back_cuts_what_it_must_and_counts_it_and_is_tried_again() {
    let (_folder, path, live, pair) = cluster("trial-cuts");
    let none = text("old", "203.0.113.0/31").replace("action = \"allow\"", "action = \"drop\"");
    std::fs::write(&path, &none).unwrap();
    let cuts = Ask {
        cut: true,
        ..on_trial(&path, 1000)
    };
    let change = live.change(&cuts, &pair).unwrap();
    assert_eq!(change.receipt.unwrap().flows_cut, 2);
    assert!(live.trials().wait(2));
    // One runtime does not commit: it is on trial still, may be confirmed, and goes back later.
    pair.is_stuck.set(true);
    let failed = live.end_trial(2, &pair).unwrap().unwrap_err();
    assert!(failed.contains("runtime 1 did not commit"), "{failed}");
    let left = live.trials().status().0.unwrap().seconds_left;
    assert!(left > 3.0, "{left}");
    pair.is_stuck.set(false);
    assert!(live.trials().wait(2));
    let went = live.end_trial(2, &pair).unwrap().unwrap();
    assert!(pair.rules(1).contains("allow"), "{}", pair.rules(1));
    assert_eq!(went.flows_cut, 0, "they were cut before");
}

#[test]
fn a_ticket_is_used_or_taken_back_once() {
    let used = Ticket::default();
    assert!(used.redeem() && !used.take_back() && !used.redeem());
    let back = Ticket::default();
    assert!(back.take_back() && !back.redeem());
}
