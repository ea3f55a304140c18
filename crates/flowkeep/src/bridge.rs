//! The command `port bridge`: every frame that comes in at one port goes out at the other, and
//! back.
//!
//! It is the least that can stand between two ports: no parsing, no flow, no chain. Traffic that
//! does not pass it fails by the ports' or the network's fault. A chain over the same ports can be
//! compared with it.
//!
//! ```text
//!   port a ── receive ─► burst ─► transmit ── port b
//!          ◄─ transmit ◄─ burst ◄─ receive ──
//! ```
//!
//! Invariant: a frame that one port received the other sent, or could not send; no frame is held
//! when it ends.

use crate::cli::jobs::BridgeJob;
use crate::cli::{FAILURE, USAGE, failed};
use crate::shape::{self, Shape};
use crate::signals::StopSignal;
use adapters::buffers;
use adapters::clock::monotonic_ns;
use adapters::open::{BoxPort, OpenError, Ports};
use adapters::uri::{PortUri, Role};
use runtime::PortCounters;
use runtime::env::{AttachError, BURST, Burst, Port};
use schemars::JsonSchema;
use serde::Serialize;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use wire::Pool;

/// Buffers of both ports.
const BUFFERS: usize = 8192;
/// Rounds without a packet before the loop yields, and before it naps.
const SPINS: u32 = 200;
const YIELDS: u32 = 400;
const NAP: Duration = Duration::from_micros(50);
/// How long packets that are queued at the end may take to leave.
const DRAIN: Duration = Duration::from_secs(1);

/// Runs the command.
pub fn run(job: BridgeJob) -> ExitCode {
    if let Some(port) = job.ports.iter().find(|port| is_capture(port)) {
        let why = format!(
            "{port} is a capture, which is read or written, and a bridge's port does both: name two interfaces, like \
             afpacket:eth0 and afpacket:eth1"
        );
        return failed::ends(job.json, why, USAGE);
    }
    match try_run(&job) {
        Ok(code) => code,
        Err(error) => {
            let code = match error {
                OpenError::Uri(_) => USAGE,
                _ => FAILURE,
            };
            failed::ends(job.json, error, code)
        }
    }
}

/// Whether a port is a file, of which one run has one direction alone.
fn is_capture(port: &str) -> bool {
    matches!(PortUri::parse(port, Role::Input), Ok(PortUri::PcapInput { .. }))
}

fn try_run(job: &BridgeJob) -> Result<ExitCode, OpenError> {
    let mut opener = Ports::new();
    let mut ports = [
        opener.open(&job.ports[0], &job.ports[0])?,
        opener.open(&job.ports[1], &job.ports[1])?,
    ];
    opener.complete()?;
    opener.follow_addresses()?;
    let frame_max = ports.iter().map(Port::frame_max).max().unwrap_or(0);
    let mut pool = buffers::pool(BUFFERS, frame_max, 0).map_err(|error| AttachError(error.to_string()))?;
    for port in &mut ports {
        port.attach(&mut pool)?;
    }
    // The process that started this waits for the line: from here on frames pass.
    let _ = writeln!(io::stderr(), "bridging {} and {}", job.ports[0], job.ports[1]);
    pass(&mut ports, &mut pool, &job.stop);
    let counters = ports.each_ref().map(|port| port.counters());
    report(job, &counters);
    let reports = opener.reports().take();
    for report in &reports {
        let _ = writeln!(io::stderr(), "{report}");
    }
    let reserved: usize = ports.iter().map(Port::reserved).sum();
    let lost = pool.total() - pool.free() - reserved;
    if lost > 0 {
        let _ = writeln!(io::stderr(), "{lost} buffers have not come back");
    }
    Ok(ExitCode::from(if reports.is_empty() && lost == 0 {
        0
    } else {
        FAILURE
    }))
}

/// Passes frames until it is told to stop.
fn pass(ports: &mut [BoxPort; 2], pool: &mut Pool, stop: &StopSignal) {
    let mut burst = Burst::new();
    let mut idle = 0_u32;
    while !stop.is_raised() {
        let mut passed = 0;
        for (from, to) in [(0, 1), (1, 0)] {
            ports[from].receive(monotonic_ns(), pool, &mut burst);
            passed += burst.len();
            if !burst.is_empty() {
                ports[to].transmit(monotonic_ns(), pool, &mut burst);
            }
            debug_assert!(burst.is_empty() && burst.capacity() == BURST);
            ports[to].reap_transmitted(pool);
        }
        idle = if passed > 0 { 0 } else { idle.saturating_add(1) };
        match idle {
            0..SPINS => std::hint::spin_loop(),
            SPINS..YIELDS => std::thread::yield_now(),
            _ => std::thread::sleep(NAP),
        }
    }
    drain(ports, pool);
}

/// Waits until queued packets have left.
fn drain(ports: &mut [BoxPort; 2], pool: &mut Pool) {
    let began = Instant::now();
    while began.elapsed() < DRAIN {
        ports.iter_mut().for_each(|port| port.reap_transmitted(pool));
        let reserved: usize = ports.iter().map(Port::reserved).sum();
        if pool.free() + reserved == pool.total() {
            return;
        }
        std::thread::sleep(NAP);
    }
}

/// The frames that went through, as `--json` has them.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Bridged {
    /// Each port.
    ports: Vec<BridgedPort>,
}

impl Shape for Bridged {
    const NAME: &'static str = "port-bridge";
}

/// A port, and its counters.
#[derive(Serialize, JsonSchema)]
struct BridgedPort {
    /// Its URI.
    name: String,
    /// Packets that came in.
    received_packets: u64,
    /// Their bytes.
    received_bytes: u64,
    /// Packets that went out.
    sent_packets: u64,
    /// Their bytes.
    sent_bytes: u64,
    /// Packets that it did not take.
    refused_packets: u64,
    /// Packets that could not be sent.
    unsent_packets: u64,
    /// Packets that the kernel lost before.
    lost_packets: u64,
}

fn report(job: &BridgeJob, counters: &[PortCounters; 2]) {
    let mut out = io::stdout();
    let mut ports = job.ports.iter().zip(counters);
    let _ = if job.json {
        let ports = ports.map(|(name, counters)| row(name, counters)).collect();
        writeln!(out, "{}", shape::object(&Bridged { ports }))
    } else {
        ports.try_for_each(|(name, counters)| line(&mut out, name, counters))
    };
}

fn row(name: &str, counters: &PortCounters) -> BridgedPort {
    BridgedPort {
        name: name.to_owned(),
        received_packets: counters.received_packets,
        received_bytes: counters.received_bytes,
        sent_packets: counters.sent_packets,
        sent_bytes: counters.sent_bytes,
        refused_packets: counters.refused_packets,
        unsent_packets: counters.unsent_packets,
        lost_packets: counters.lost_packets,
    }
}

fn line(out: &mut impl Write, name: &str, counters: &PortCounters) -> io::Result<()> {
    writeln!(
        out,
        "{name}: received {} packets, sent {}; refused {}, unsent {}, lost by the kernel {}",
        counters.received_packets,
        counters.sent_packets,
        counters.refused_packets,
        counters.unsent_packets,
        counters.lost_packets
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use adapters::memory::MemoryPort;
    use wire::LinkType;

    #[test]
    fn frames_pass_both_ways_until_it_is_told_to_stop() {
        let ((a, near), (b, far)) = (MemoryPort::new("a"), MemoryPort::new("b"));
        for n in 0..100 {
            near.push(&[n; 60], LinkType::Ethernet);
            far.push(&[n; 61], LinkType::Ethernet);
        }
        let stop = StopSignal::default();
        let signal = stop.clone();
        let bridge = std::thread::spawn(move || {
            let mut pool = buffers::pool(64, 256, 0).unwrap();
            pass(&mut [Box::new(a), Box::new(b)], &mut pool, &stop);
            assert_eq!(pool.free(), 64);
        });
        let take = |end: &adapters::memory::MemoryEnd| {
            let mut got = Vec::new();
            while got.len() < 100 {
                got.extend(end.take_all());
                std::thread::yield_now();
            }
            got
        };
        let (there, back) = (take(&far), take(&near));
        signal.raise();
        bridge.join().unwrap();
        for n in 0..100 {
            assert_eq!(there[n].bytes, [n as u8; 60]);
            assert_eq!(back[n].bytes, [n as u8; 61]);
        }
    }
}
