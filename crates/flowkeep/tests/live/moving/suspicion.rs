//! Processes that were taken for failed. A process that only waits for a processor may not be.
//!
//! ```text
//!   front ── channel ── left: runtime 0          each end counts how often it has met the other: 1, and one more
//!     └ memory ─ right: runtime 1 ── channel ┘   for each failure of the other since it began ([`Suspicions`])
//! ```
//!
//! *Full load*: iperf3 sends as fast as it can, up and down, through two runtimes that keep copies
//! of each other's flows, and a thread per processor only burns time. Nothing fails, so there is no
//! recovery, and no session ends. It takes `FLOWKEEP_BUSY_SECONDS`: 60 where it is not said, ten
//! minutes every night.
//!
//! A run on a machine that stands still for as long as a quarter of `silence` is tried again.

use super::failing::{CONFIG, NODES, PAUSE, of_runtime, protected};
use crate::machine::{self, Pauses};
use crate::site::{Links, SERVER, Site, site};
use serde_json::Value;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// By places among the processes: how often each should have met each other, and how often each
/// recovered another's flows.
pub struct Suspicions {
    met: [[u64; 3]; 3],
    recoveries: [u64; 3],
}

impl Suspicions {
    /// All have met, and nothing has failed yet.
    pub fn new() -> Self {
        Suspicions {
            met: [[1; 3]; 3],
            recoveries: [0; 3],
        }
    }

    /// A process was told to fail, and another has its flows now; it has begun again, or stood
    /// still and gone on.
    pub fn fail(&mut self, failed: usize, heir: usize, is_new: bool) {
        for other in 0..3 {
            self.met[other][failed] += 1;
            self.met[failed][other] = match is_new {
                true => 1,
                false => self.met[failed][other] + 1,
            };
        }
        self.recoveries[heir] += 1;
        if is_new {
            self.recoveries[failed] = 0;
        }
    }

    /// Checks that no process has failed but those that were told to.
    pub fn judge(&self, site: &Site, when: &str) {
        for (member, met) in self.met.iter().enumerate() {
            let status = site.status_of(member);
            let links = status["links"].as_array().cloned().unwrap_or_default();
            for link in links.iter().filter(|link| link["kind"] == "channel") {
                let other = match link["to"].as_str() {
                    Some("switch 0") => 0,
                    Some("runtime 0") => 1,
                    _ => 2,
                };
                let good = link["meetings"] == met[other] && link["is_there"] == true;
                let named = format!("sessions of {member} with {other}");
                site.log
                    .note(&named, good, || format!("{when}, not {}: {link}", met[other]));
            }
        }
        for (member, runtime) in NODES {
            let of = of_runtime(site, (member, runtime));
            let recoveries = of["recoveries"].as_array().map_or(0, Vec::len) as u64;
            let good = recoveries == self.recoveries[member];
            let named = format!("recoveries at runtime {runtime}");
            let expected = self.recoveries[member];
            site.log
                .note(&named, good, || format!("{when}, not {expected}: {of}"));
        }
    }
}

fn duration() -> Duration {
    let said = std::env::var("FLOWKEEP_BUSY_SECONDS").ok();
    let seconds = said.map(|text| {
        text.parse()
            .expect("FLOWKEEP_BUSY_SECONDS is a number of seconds")
    });
    Duration::from_secs(seconds.unwrap_or(60).max(5))
}

/// The machine's processor time so far, in ticks: with something to do, and without.
fn processor_time() -> [u64; 2] {
    let text = std::fs::read_to_string("/proc/stat").unwrap();
    let ticks = text.lines().next().unwrap().split_whitespace().skip(1);
    let ticks: Vec<u64> = ticks.map(|ticks| ticks.parse().unwrap()).collect();
    let idle = ticks[3] + ticks[4];
    // Guests' time is in users', too.
    [ticks[..8].iter().sum::<u64>() - idle, idle]
}

/// As fast as it can, in one direction; answers how many bytes came.
fn flood(site: &Site, host: u8, port: u16, duration: Duration, how: &str) -> u64 {
    let seconds = duration.as_secs();
    let words = format!(
        "timeout {} iperf3 --json --client {SERVER} --bind 10.0.1.{host} --port {port} --time {seconds} --interval 10 {how}",
        seconds + 50
    );
    let limit = lab::process::Run::within(duration + Duration::from_secs(60));
    let ended = site.network.client.finish(&words, limit).unwrap();
    let report: Value = serde_json::from_str(&ended.out).unwrap_or_default();
    let bytes = report["end"]["sum_received"]["bytes"].as_u64().unwrap_or(0);
    println!("iperf3 {how}: {bytes} bytes in {seconds} s");
    let good = ended.status.success() && bytes > 1_000_000 * seconds;
    site.log.expect("iperf3", good, format!("{ended:?}"));
    bytes
}

fn busy() {
    let Some(mut site) = site("afpacket", &[super::PROGRAMS, crate::ssh::PROGRAMS].concat()) else {
        return;
    };
    let _directory = crate::ssh::PrivilegeSeparation::new();
    super::serve(&mut site);
    site.lifetime = duration() + Duration::from_secs(300);
    site.start_members(Links::Geneve, CONFIG);
    println!("protected after {:?}", protected(&site));
    let (on, suspicions, pauses) = (AtomicBool::new(true), Suspicions::new(), Pauses::watch());
    let before = processor_time();
    std::thread::scope(|scope| {
        let burning = super::On(&on);
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while on.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let floods: Vec<_> = [
            (1, 5201, "--parallel 4"),
            (2, 5202, "--parallel 4"),
            (3, 5203, "--parallel 4 --reverse"),
            (4, 5204, "--parallel 4 --reverse"),
        ]
        .map(|(host, port, how)| {
            let site = &site;
            scope.spawn(move || flood(site, host, port, duration(), how))
        })
        .into();
        let bytes: Vec<u64> = floods.into_iter().map(|flood| flood.join().unwrap()).collect();
        println!("bytes through the chain: {bytes:?}");
        drop(burning);
    });
    let [busy, idle] = processor_time();
    let share = (busy - before[0]) * 100 / (busy - before[0] + idle - before[1]).max(1);
    println!(
        "processors busy: {share} %; the machine's longest pause {:?}",
        pauses.longest()
    );
    site.log
        .expect("full load", share >= 95, format!("only {share} %"));
    suspicions.judge(&site, "under full load");
    for node in NODES {
        let of = of_runtime(&site, node);
        println!("{of}");
        let packets = of["received"].as_u64().unwrap_or(0);
        site.log
            .expect("both have work", packets > 10_000, of.to_string());
    }
    site.end_after_failures();
}

#[test]
fn a_busy_processor_is_no_failure() {
    machine::unless_paused(PAUSE, busy);
}
