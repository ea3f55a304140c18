//! A member is killed from outside of its process (`kill -9`), at the coordinator's usual times:
//! each time is one gap of 100 ms at most, and no flow begins again.
//!
//! ```text
//!   right ✕ ── silent ──► coordinator: suspects it ── log ──► front: withdraws its lease ─┐
//!                         coordinator: a view without it ◄── the next heartbeat ──────────┘
//!                                   └── log ──► front keeps packets for its flows, left goes on with them
//! ```
//!
//! Packets for `right` are lost until `front` has the view. The steps until then, with a suspicion
//! of 50 ms, a lease of 40 ms and heartbeats each 10 ms:
//!
//! | step | at most, in ms |
//! |---|---|
//! | the suspicion, which counts from the last heartbeat, 0 to 10 ms before the death | 50 |
//! | the coordinator looks: each 10 ms, and when a heartbeat comes | 10 |
//! | `front` takes its next step | 4 |
//! | the lease that `front` granted `right` is over: 42.5 ms behind the last frame of `right`, so before this | 0 |
//! | the next heartbeat of `front` says so | 10 |
//! | `front` takes its next step | 4 |
//! | **sum** | **78** |
//!
//! The lease runs beside the suspicion, so it is not added to it. Between the steps are two writes
//! of the coordinator's log and four messages, for which the bound leaves 22 ms. Once `front` has
//! the view, packets wait and come late.
//!
//! Where the machine itself pauses, the gap may be longer by that, a member that is not killed may
//! be without its lease, and a coordinator that got no processor suspects no worker for a while: a
//! run that fails beside a pause of a third of a lease is tried again
//! ([`machine::unless_excused`]). So is one whose gap needs a pause of more than 50 ms
//! ([`probe::EXCUSE_MAX`]).

use super::{GAP, HALVES, Hosts, LEFT, RIGHT, clients, incarnation, key, with_copies};
use super::{On, of_runtime, probe};
use crate::machine;
use crate::moving::failing::{How, go_on_elsewhere, opened};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// The coordinator's own: nothing is said.
const USUAL: &str = "";
/// Kills, one after the other, while the clients talk.
const KILLS: usize = 2;
/// A third of a lease, and a little more.
const PAUSE: Duration = Duration::from_millis(15);

impl Hosts {
    /// Of each flow in the cluster: the runtime, and how its first packet left.
    fn translations(&self) -> BTreeMap<String, (Value, Value)> {
        let list = self.asked("read", "flow list --limit 10000");
        let flows = list["flows"].as_array().cloned().unwrap_or_default();
        let of = |flow: &Value| (key(flow), (flow["runtime"].clone(), flow["translated"].clone()));
        flows.iter().map(of).collect()
    }

    /// Flows that left has gone on with so far, and those that began there.
    fn at_left(&self) -> [u64; 2] {
        let left = of_runtime(&self.site, LEFT);
        ["recovered_flows", "opened"].map(|of| left[of].as_u64().unwrap_or(0))
    }

    /// Right is killed, its flows go on at left, and it is there again. Says when it was killed.
    fn kill_right(&self) -> Instant {
        let log = &self.site.log;
        let view = self.view().expect("the coordinator answers");
        let (before, counts) = (self.translations(), self.at_left());
        let killed = Instant::now();
        go_on_elsewhere(&self.site, How::Kill, RIGHT, LEFT);
        let (after, now) = (self.translations(), self.at_left());
        let [recovered, opened] = [0, 1].map(|of| now[of] - counts[of]);
        let mut kept = 0;
        for (flow, (_, old)) in before.iter().filter(|(_, (at, _))| *at == RIGHT.1) {
            // A flow that has ended is in no list.
            if let Some((heir, new)) = after.get(flow) {
                let good = *heir == LEFT.1 && new == old;
                log.note("same endpoints", good, || {
                    format!("{flow}: {old}, then {new} at {heir}")
                });
                kept += 1;
            }
        }
        let others: Vec<_> = after.keys().filter(|flow| !before.contains_key(*flow)).collect();
        let told = format!(
            "{recovered} flows went on, {kept} of those in the list before have the endpoints that they \
             had; {opened} others began there: {others:?}"
        );
        println!("{told}");
        // A flow that had begun again would be in both lists, and not have gone on.
        log.expect("no flow begins again", kept > 0 && kept <= recovered, told);
        self.site.revive(RIGHT.0);
        let now = self.until("it runs again", |view| incarnation(view, "right").is_some());
        let is_new = incarnation(&now, "right") > incarnation(&view, "right");
        log.expect("another incarnation", is_new, &now);
        for other in ["front", "left", "middle"] {
            let good = incarnation(&now, other) == incarnation(&view, other);
            log.note("no other is removed", good, || {
                format!("{other}: {view}, then {now}")
            });
        }
        self.place(&HALVES[1], RIGHT.1);
        self.protected();
        killed
    }
}

/// Whether no gap needed a long pause of the machine.
fn killed() -> bool {
    let Some(hosts) = with_copies(USUAL) else {
        return true;
    };
    let (on, before) = (AtomicBool::new(true), hosts.site.lost_at_interfaces());
    let (times, probes) = std::thread::scope(|scope| {
        let ending = On(&on);
        let (probes, _) = clients(scope, &hosts, [7046, 7047], &on);
        hosts.place(&HALVES[0], LEFT.1);
        hosts.place(&HALVES[1], RIGHT.1);
        hosts.protected();
        opened(&hosts.site);
        let times = [(); KILLS].map(|()| hosts.kill_right());
        drop(ending);
        (times, probes.map(|probe| probe.join().unwrap()))
    });
    for at in times {
        let gap = probes[1].gap_behind(at);
        println!(
            "killed at the usual times: {gap} ms stood still, of at most {}",
            probe::GAP_MAX
        );
        // Else the clients were at another runtime.
        hosts.site.log.expect("there was a gap", gap > GAP, gap);
    }
    let lost = hosts.site.lost_at_interfaces() - before;
    let is_unexcused = hosts.judge(probes, lost, (KILLS, probe::GAP_MAX));
    hosts.each_flow_has_one_owner();
    hosts.site.end_after_failures();
    is_unexcused
}

#[test]
fn a_member_is_killed_at_the_usual_times() {
    machine::unless_excused(PAUSE, killed);
}
