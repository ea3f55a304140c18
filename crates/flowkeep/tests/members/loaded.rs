//! Members at the coordinator's usual times, with as much traffic as they take and a thread for
//! each processor that only burns time: no worker is suspected, and hardly a packet lacks a lease.
//! And heartbeats' share of a processor.
//!
//! It takes `FLOWKEEP_BUSY_SECONDS`: 60 where it is not said, ten minutes every night.
//!
//! A worker that gets no processor for 50 ms is suspected, as the time says. So a suspicion is
//! excused by a pause of the machine, as long as four heartbeats, that had not ended half a second
//! before it. Such a run is tried again, once, and counts where the other has one, too.
//!
//! Not here: the cost of leases for a packet (`flowkeep bench leases`).

use super::joined::{Site, is_listed, no_lease, passes};
use super::machine::{self, Pauses};
use super::rig::Member;
use serde_json::Value;
use std::time::{Duration, Instant};

/// The usual times, without a guard.
const USUAL: &str = "--unguarded";
/// As fast as the switch reads.
const FULL: &str = "flows = 1000\npackets_max = 1099511627776\npace = \"reader\"\nsources = [\"10.0.0.0/24\"]\nsource_ports = [1024, 60000]\n\
     destinations = [\"198.51.100.0/28\"]\ndestination_ports = [443, 80]\nseed = 3\n[[classes]]\nshare = 1.0\ntcp = 0.0\n";

/// How long the load goes on for a member that stands still.
const BURNS: Duration = Duration::from_secs(6);
/// Of a processor, in percent, for heartbeats of one member.
const AGENT_MAX: f64 = 5.0;
/// Silence of 50 ms is a suspicion, and a heartbeat is sent every 10: a shorter pause causes none.
const PAUSE: Duration = Duration::from_millis(40);
/// A pause that ended so long before a suspicion was seen may have caused it.
const BEFORE: Duration = Duration::from_millis(500);
/// How often the coordinator's log is looked at.
const LOOK: Duration = Duration::from_millis(20);

fn said(variable: &str, usual: u64) -> u64 {
    let said = std::env::var(variable).ok();
    said.map_or(usual, |count| count.parse().expect("a number"))
}

/// How many members the coordinator has said that it suspected, one after another: each line that
/// has more of them than the line before.
fn suspicions(site: &Site) -> usize {
    let text = site.folder.read("cluster.err");
    let counts = text.lines().filter_map(|line| {
        let words = line.strip_suffix(" suspected")?;
        words.rsplit(' ').next()?.parse::<usize>().ok()
    });
    let (mut sum, mut last) = (0, 0);
    for count in counts {
        sum += count.saturating_sub(last);
        last = count;
    }
    sum
}

fn incarnations(view: &Value) -> Vec<(String, u64)> {
    let workers = view["workers"].as_array().expect("a list").iter();
    let incarnation = |worker: &Value| {
        let name = worker["name"].as_str().expect("a name").to_owned();
        (name, worker["incarnation"].as_u64().expect("a number"))
    };
    workers.map(incarnation).collect()
}

/// Processor time that agents' threads have had, of each member.
fn of_agents(members: &[Member; 3]) -> [Duration; 3] {
    members.each_ref().map(|member| {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", member.process.id()));
        let tasks = tasks.expect("it runs").flatten().map(|task| task.path());
        let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap_or_default();
        let agents = tasks.filter(|task| read(task.join("comm")).trim() == "agent");
        let ran = agents.map(|task| {
            let stat = read(task.join("schedstat"));
            let first = stat.split(' ').next().and_then(|word| word.parse().ok());
            Duration::from_nanos(first.expect("nanoseconds"))
        });
        ran.sum()
    })
}

/// So long, with a thread for each processor that only burns time.
fn burn(time: Duration) {
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                let began = Instant::now();
                while began.elapsed() < time {
                    std::hint::spin_loop();
                }
            });
        }
    });
}

/// Burns, and answers which suspicions came meanwhile: when they were seen.
fn burn_and_look(site: &Site, time: Duration) -> Vec<Instant> {
    let (mut seen, mut count) = (Vec::new(), suspicions(site));
    let mut look = || {
        let now = suspicions(site);
        seen.extend((count..now).map(|_| Instant::now()));
        count = now;
    };
    std::thread::scope(|scope| {
        let load = scope.spawn(|| burn(time));
        while !load.is_finished() {
            look();
            std::thread::sleep(LOOK);
        }
        look();
    });
    seen
}

/// Answers whether no member was suspected at all.
fn full_load() -> bool {
    let site = Site::by(USUAL, "loaded", false, FULL, "");
    let members = site.all();
    passes(&members[0], 100_000);
    let then = site.coordinator.view().expect("it answers");
    let without = || members.each_ref().map(|one| no_lease(&one.status()));
    let (dropped, pauses) = (without(), Pauses::watch());
    let before = of_agents(&members);
    let (out, since) = (members[0].status().packets.out, Instant::now());
    let seen = burn_and_look(&site, Duration::from_secs(said("FLOWKEEP_BUSY_SECONDS", 60)));
    let (passed, took) = (members[0].status().packets.out - out, since.elapsed());
    let agents = of_agents(&members);
    let after = without();
    let now = site.coordinator.view().expect("it answers");
    let causes: Vec<Duration> = seen
        .iter()
        .map(|at| pauses.longest_within(*at - BEFORE..=*at))
        .collect();
    println!(
        "{took:.1?}: {:.0} packets/s, the machine's longest pause {:?}, dropped without a lease {dropped:?}, then {after:?}, suspicions beside pauses of {causes:?}",
        passed as f64 / took.as_secs_f64(),
        pauses.longest(),
    );
    let shares = [0, 1, 2].map(|at| 100.0 * (agents[at] - before[at]).as_secs_f64() / took.as_secs_f64());
    println!("heartbeats: of a processor {shares:.2?} %");
    assert!(passed > 0 && shares.iter().all(|share| *share > 0.0 && *share < AGENT_MAX));
    assert!(
        causes.iter().all(|pause| *pause >= PAUSE),
        "a worker was suspected while the machine ran: {causes:?}"
    );
    assert_eq!(
        (&then["view"], incarnations(&then)),
        (&now["view"], incarnations(&now))
    );
    // A worker that gets no processor for 40 ms drops the packets that it has then.
    let lost = after.iter().sum::<u64>() - dropped.iter().sum::<u64>();
    assert!(
        lost * 1000 < passed,
        "{lost} dropped without a lease, {passed} passed"
    );
    // The coordinator suspects under that load: it may excuse silence in its own pauses.
    let removed = std::thread::scope(|scope| {
        let load = scope.spawn(|| burn(BURNS));
        std::thread::sleep(BURNS / 10);
        members[2].signal("-STOP");
        let since = Instant::now();
        site.coordinator
            .wait_until("it is removed", |view| !is_listed(view, "right"));
        let removed = since.elapsed();
        load.join().expect("it only burns");
        removed
    });
    members[2].signal("-CONT");
    println!("one that stands still is removed after {removed:?}");
    assert!(removed < BURNS / 2, "{removed:?}");
    causes.is_empty()
}

#[test]
fn the_usual_times_hold_under_full_load() {
    machine::judged(2, PAUSE, full_load);
}
