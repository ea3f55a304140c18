//! A runtime comes into a cluster of the default size, on a machine whose processors are busy: flows hardly notice that its memory is made.
//!
//! ```text
//!   a thread per processor that only burns time      two probes of 1000 datagrams a second ([`super::probe`])
//!     │  three seconds                as it is        ── longest round trip: a
//!     └  `runtime add --rebalance`    and after it    ── longest round trip: b, no more than a few times a, or than a tenth of a second
//! ```
//!
//! What it is for: the room for a million flows is some 600 MB a runtime. Where the kernel has to find and clear it when the first flows use it, or somebody
//! who is as important as the workers does it, flows stand still meanwhile.

use super::probe::{self, Seen};
use crate::site::{Site, site};
use serde_json::Value;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// As long as nobody would notice.
const PAUSE: Duration = Duration::from_millis(100);
/// Times the longest round trip without a new runtime: on a machine that is busy with more than this test, that is longer.
const WORSE: u32 = 4;

/// How long both hosts' probes took at most while something was done, and how many of their datagrams are missing.
fn probed(site: &Site, ports: [u16; 2], act: impl FnOnce()) -> (Duration, u64) {
    let on = AtomicBool::new(true);
    let (client, server) = (&site.network.client, &site.network.server);
    let mut all: Vec<Seen> = std::thread::scope(|scope| {
        let on = &on;
        let hosts = ["10.0.1.2", "10.0.1.3"].into_iter().zip(ports);
        let probes: Vec<_> = hosts
            .map(|(host, port)| scope.spawn(move || probe::probe(client, server, host, port, on)))
            .collect();
        let ending = super::On(on);
        std::thread::sleep(Duration::from_millis(500));
        act();
        std::thread::sleep(Duration::from_millis(500));
        drop(ending);
        probes.into_iter().map(|probe| probe.join().unwrap()).collect()
    });
    for seen in &mut all {
        println!("{}", seen.told());
        let good = seen.sent > 500 && seen.crooked() == 0 && seen.back.distinct > seen.sent / 2;
        site.log.expect("probe", good, seen.told());
    }
    let longest = all.iter_mut().map(Seen::longest).max().unwrap();
    (longest, all.iter().map(Seen::missing).sum())
}

fn a_runtime_comes(scheme: &'static str) {
    let Some(mut site) = site(scheme, &[]) else {
        return;
    };
    for host in 2..=3 {
        let address = format!("10.0.1.{host}/24");
        site.network.client.address("eth0", &address).unwrap();
    }
    site.network.keep_order();
    site.start_workers("runtimes = 2\nruntimes_max = 3", "");
    let on = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let burning = super::On(&on);
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while on.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        // Once each host has asked for its neighbours' link addresses: what waits for that in a kernel may leave behind what comes later.
        let on = AtomicBool::new(true);
        std::thread::scope(|scope| {
            let (client, server, on) = (&site.network.client, &site.network.server, &on);
            for (host, port) in [("10.0.1.2", 7026), ("10.0.1.3", 7027)] {
                scope.spawn(move || probe::probe(client, server, host, port, on));
            }
            std::thread::sleep(Duration::from_secs(1));
            on.store(false, Ordering::Relaxed);
        });
        let (before, lost_before) = probed(&site, [7006, 7007], || {
            std::thread::sleep(Duration::from_secs(3));
        });
        let (with, lost_with) = probed(&site, [7016, 7017], || {
            let began = Instant::now();
            let answer = site.asked("runtime add --rebalance --json").unwrap();
            let receipt: Value = serde_json::from_str(&answer).unwrap();
            println!("it took {:?}: {receipt}", began.elapsed());
            let good = receipt["flows_refused"] == 0 && receipt["flows_failed"] == 0;
            site.log.expect("receipt", good, &answer);
        });
        drop(burning);
        println!(
            "longest round trip {before:?} before, {with:?} with a new runtime; {lost_before} and {lost_with} missing"
        );
        let most = PAUSE.max(before * WORSE);
        site.log
            .expect("pause", with <= most, format!("{with:?}, before {before:?}"));
        let good = lost_with <= lost_before + probe::GAP_MAX;
        site.log
            .expect("missing", good, format!("{lost_with}, before {lost_before}"));
    });
    site.end();
}

#[test]
fn a_runtime_comes_over_packet_sockets() {
    a_runtime_comes("afpacket");
}

#[test]
fn a_runtime_comes_over_xdp() {
    a_runtime_comes("afxdp");
}
