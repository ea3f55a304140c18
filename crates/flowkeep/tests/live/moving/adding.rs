//! A runtime comes into a cluster of the default size, on a machine whose processors are busy:
//! flows hardly notice that its memory is made.
//!
//! ```text
//!   a thread per processor that only burns time      two probes of 1000 datagrams a second ([`super::probe`])
//!     │  three seconds                as it is        ── longest round trip: a
//!     └  `runtime add --rebalance`    and after it    ── longest round trip: b, no more than a few times a, or than a tenth of a second
//! ```
//!
//! The machine's own pause meanwhile ([`Seen::paused`]) is allowed besides: twice, since it may
//! hold a datagram up on each way. A round trip that is too long is looked at again in a cluster of
//! its own, a few times.
//!
//! Its purpose: the room for a million flows is some 600 MB a runtime. Flows stand still where the
//! kernel finds and clears it when the first flows use it, or a thread of the workers' priority
//! does.

use super::probe::{self, Seen};
use crate::machine;
use crate::site::{Site, site};
use serde_json::Value;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A pause that no client would notice.
const PAUSE: Duration = Duration::from_millis(100);
/// Times the longest round trip without a new runtime: on a machine that is busy with more than
/// this test, that is longer.
const WORSE: u32 = 4;

/// The figures of the probes beside some work.
struct Probed {
    /// Both hosts' longest round trip.
    longest: Duration,
    /// Datagrams of both.
    missing: u64,
    /// The machine's longest pause.
    paused: Duration,
}

fn probed(site: &Site, ports: [u16; 2], act: impl FnOnce()) -> Probed {
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
    Probed {
        longest: all.iter_mut().map(Seen::longest).max().unwrap(),
        missing: all.iter().map(Seen::missing).sum(),
        paused: all.iter().map(|seen| seen.paused).max().unwrap(),
    }
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
        // Once each host has asked for its neighbours' link addresses: packets that wait for that
        // in a kernel may leave behind later ones.
        let on = AtomicBool::new(true);
        std::thread::scope(|scope| {
            let (client, server, on) = (&site.network.client, &site.network.server, &on);
            for (host, port) in [("10.0.1.2", 7026), ("10.0.1.3", 7027)] {
                scope.spawn(move || probe::probe(client, server, host, port, on));
            }
            std::thread::sleep(Duration::from_secs(1));
            on.store(false, Ordering::Relaxed);
        });
        let before = probed(&site, [7006, 7007], || {
            std::thread::sleep(Duration::from_secs(3));
        });
        let with = probed(&site, [7016, 7017], || {
            let began = Instant::now();
            let answer = site.asked("runtime add --rebalance --json").unwrap();
            let receipt: Value = serde_json::from_str(&answer).unwrap();
            println!("it took {:?}: {receipt}", began.elapsed());
            let good = receipt["flows_refused"] == 0 && receipt["flows_failed"] == 0;
            site.log.expect("receipt", good, &answer);
        });
        drop(burning);
        let told = format!(
            "longest round trip {:?} before, {:?} with a new runtime; the machine paused for {:?} and {:?}",
            before.longest, with.longest, before.paused, with.paused
        );
        println!("{told}; {} and {} missing", before.missing, with.missing);
        let most = PAUSE.max(before.longest * WORSE) + with.paused * 2;
        site.log.expect("pause", with.longest <= most, told);
        let gap = probe::GAP_MAX + with.paused.as_millis() as u64;
        let told = format!("{}, before {}", with.missing, before.missing);
        site.log
            .expect("missing", with.missing <= before.missing + gap, told);
    });
    site.end();
}

#[test]
fn a_runtime_comes_over_packet_sockets() {
    machine::unless_paused(Duration::ZERO, || a_runtime_comes("afpacket"));
}

#[test]
fn a_runtime_comes_over_xdp() {
    machine::unless_paused(Duration::ZERO, || a_runtime_comes("afxdp"));
}
