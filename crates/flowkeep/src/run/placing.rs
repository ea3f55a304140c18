//! The thread by which new groups go where there is least to do: once a second it asks for the
//! runtimes' loads, and tells switches for how many groups each counts.
//!
//! ```text
//!   one process    packets and processor time of its own runtimes ──┐
//!   with a coordinator    loads by the heartbeats of all runtimes ──┴─► shares ─► each switch of this process: groups ─► handicaps
//! ```
//!
//! Processes without a coordinator know nothing of each other's load: there groups count, and so
//! they do where the coordinator is away for some seconds.
//!
//! Not here: handicaps (`runtime::switch::Placing`), heartbeats (`super::member_slots`). A replay
//! goes by a capture's time and has none of this, so that it is the same again.

use super::{Shared, lock, threads};
use crate::config::Policy;
use coordinator::agent::Loads;
use runtime::switch::{Load, Placing};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Between two words to switches.
const PERIOD: Duration = Duration::from_secs(1);
/// How often it is looked whether the cluster ends.
const LOOK: Duration = Duration::from_millis(100);

/// Packets and processor time of a runtime so far.
#[derive(Clone, Copy, Default)]
struct Sum {
    packets: u64,
    cpu_ns: u64,
}

#[derive(Default)]
struct Placer {
    /// By switch.
    switches: BTreeMap<u16, Placing>,
    before: BTreeMap<u16, Sum>,
    at: Option<Instant>,
}

/// Has switches of this process go by load from now on, if their policy is that.
pub(super) fn begin(shared: &Arc<Shared>, policy: Policy, loads: Option<Arc<Loads>>) {
    let is_wanted = policy == Policy::LeastLoaded && shared.layout.runtimes > 1;
    let knows = shared.part.is_none() || loads.is_some();
    if !is_wanted || !knows || shared.packet_clock || shared.switches.is_empty() {
        return;
    }
    let me = Weak::clone(&shared.me);
    let thread = std::thread::Builder::new().name("placing".into());
    if let Err(error) = thread.spawn(move || run(&me, loads.as_deref())) {
        let _ = writeln!(
            std::io::stderr(),
            "new groups go by the number of groups and not by load: no thread for it: {error}"
        );
    }
}

fn run(me: &Weak<Shared>, loads: Option<&Loads>) {
    let mut placer = Placer::default();
    let mut next = Instant::now() + PERIOD;
    loop {
        std::thread::sleep(LOOK);
        let Some(shared) = me.upgrade() else { return };
        if shared.stop.load(Ordering::Relaxed) {
            return;
        }
        if Instant::now() >= next {
            next = Instant::now() + PERIOD;
            if loads.is_none() && shared.runtimes().len() < 2 {
                continue;
            }
            let all = match loads {
                Some(loads) => said(&shared, loads),
                None => placer.own(&shared),
            };
            placer.place(&shared, &all);
        }
    }
}

/// The loads by heartbeats, by runtime.
fn said(shared: &Shared, loads: &Loads) -> Vec<Option<Load>> {
    let mut all = vec![None; shared.layout.runtimes];
    for load in loads.newest() {
        if let Some(place) = all.get_mut(load.runtime as usize) {
            *place = Some(Load {
                packets: load.packet_rate,
                cpu: load.cpu.into(),
            });
        }
    }
    all
}

impl Placer {
    /// The loads of the runtimes of this process since the last time.
    fn own(&mut self, shared: &Shared) -> Vec<Option<Load>> {
        let now = Instant::now();
        let since = self.at.replace(now).map(|at| now.saturating_duration_since(at));
        let mut all = vec![None; shared.layout.runtimes];
        let mut sums = BTreeMap::new();
        for (number, handle) in shared.runtimes() {
            let Ok(packets) = handle.runtime(|runtime| runtime.received()) else {
                continue;
            };
            let sum = Sum {
                packets,
                cpu_ns: cpu_of(shared, number),
            };
            let before = self.before.get(&number).copied();
            if let (Some(before), Some(since), Some(place)) =
                (before, since, all.get_mut(usize::from(number)))
            {
                *place = Some(load(before, sum, since));
            }
            sums.insert(number, sum);
        }
        self.before = sums;
        all
    }

    fn place(&mut self, shared: &Shared, loads: &[Option<Load>]) {
        let shares = Load::shares(loads);
        for (number, handle) in &shared.switches {
            let Ok(groups) = handle.switch(|switch| switch.groups()) else {
                continue;
            };
            let handicaps = self.switches.entry(*number).or_default().next(&shares, &groups);
            // A switch that ends needs none.
            let _ = handle.switch(move |switch| switch.set_handicaps(handicaps));
        }
    }
}

/// The processor time of the thread that steps a runtime: its share, where others are on that
/// thread.
fn cpu_of(shared: &Shared, runtime: u16) -> u64 {
    let name = format!("runtime {runtime}");
    for thread in &shared.threads {
        let workers = lock(&thread.inbox.workers);
        if workers.contains(&name) {
            let spent = threads::cpu_ns(thread.number.load(Ordering::Relaxed));
            return spent / workers.len().max(1) as u64;
        }
    }
    0
}

fn load(before: Sum, now: Sum, since: Duration) -> Load {
    let nanoseconds = since.as_nanos().max(1);
    let rate = |of: u64, per: u128| {
        let rate = u128::from(of) * per / nanoseconds;
        u64::try_from(rate).unwrap_or(u64::MAX)
    };
    Load {
        packets: rate(now.packets.saturating_sub(before.packets), 1_000_000_000),
        cpu: rate(now.cpu_ns.saturating_sub(before.cpu_ns), 1000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_by_time_and_a_runtime_that_began_anew_has_none() {
        let sum = |packets, cpu_ns| Sum { packets, cpu_ns };
        let second = Duration::from_secs(2);
        let of = load(sum(1000, 5), sum(3000, 1_000_000_005), second);
        assert_eq!((of.packets, of.cpu), (1000, 500));
        let of = load(sum(1000, 1000), sum(10, 10), second);
        assert_eq!((of.packets, of.cpu), (0, 0));
        assert_eq!(load(sum(0, 0), sum(7, 7), Duration::ZERO).packets, 7_000_000_000);
    }
}
