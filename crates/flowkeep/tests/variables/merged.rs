//! Merged views that a call asks for and waits for: they have the counts stored before, of all
//! runtimes and processes.

use super::{Said, Site, chain, gateway, most, said, sum};
use crate::rig::{Folder, Member};
use crate::storing::{server, wait};
use nf::variables::{Counter, Merged, Options, Variables};
use nf::{ConfigError, Cx, NetworkFunction, NoConfig, Packet, Verdict, WorkerInfo, network_function};
use std::cell::Cell;
use std::sync::Arc;

/// Every so many packets one waits for a merge; the rest counts.
const EVERY: i64 = 64;

pub struct Census {
    runtime: u16,
    seen: Counter,
    whole: Merged<i64>,
    /// The store's count, at least.
    stored: Cell<u64>,
    merged: Cell<u64>,
    /// Views that had less than was stored before they were asked for.
    short: Cell<u64>,
    unmerged: Cell<u64>,
}

fn count(cell: &Cell<u64>) {
    cell.set(cell.get() + 1);
}

#[network_function]
impl NetworkFunction for Census {
    const NAME: &'static str = "census";

    fn with_variables(
        _: &Arc<NoConfig>,
        worker: &WorkerInfo,
        variables: &mut Variables,
    ) -> Result<Self, ConfigError> {
        Ok(Census {
            runtime: worker.runtime,
            seen: variables.counter("seen", Options::default())?,
            whole: variables.merged_counter("seen")?,
            stored: Cell::new(0),
            merged: Cell::new(0),
            short: Cell::new(0),
            unmerged: Cell::new(0),
        })
    }

    fn process_now(&self, _: &mut Packet, (): &mut (), _: &mut Cx<Self>) -> Option<Verdict> {
        if (self.seen.get() + 1) % (EVERY / 2) == 0 {
            return None;
        }
        self.seen.add(1);
        Some(Verdict::Forward)
    }

    async fn process(&self, _: &mut Packet, (): &mut (), cx: &mut Cx<Self>) -> Verdict {
        let own = self.seen.add(1);
        // Every second one asks at once, without a stored count to compare with.
        let is_known = own % EVERY == 0 && cx.stored(&[self.seen.stored()]).await.is_ok();
        if is_known {
            self.stored.set(self.stored.get().max(own.cast_unsigned()));
        }
        let asked = self.whole.ask();
        match cx.merged(&asked).await {
            Ok(()) => {
                count(&self.merged);
                if is_known && self.whole.get().unwrap_or(0) < own {
                    count(&self.short);
                }
            }
            Err(_) => count(&self.unmerged),
        }
        Verdict::Forward
    }

    fn command(&self, _: &[&str]) -> Result<String, String> {
        let (runtime, own, whole) = (self.runtime, self.seen.get(), self.whole.get().unwrap_or(0));
        let [stored, merged, short, unmerged] =
            [&self.stored, &self.merged, &self.short, &self.unmerged].map(Cell::get);
        Ok(format!(
            "runtime={runtime} own={own} whole={whole} stored={stored} merged={merged} short={short} unmerged={unmerged}"
        ))
    }
}

fn state(member: &Member) -> Said {
    wait("an answer", || said(member, "census", "state"))
}

#[test]
fn a_view_has_what_two_runtimes_have_stored() {
    let folder = Folder::new("merged-memory");
    // No cycle: each view was asked for.
    let table = chain("census", "", "memory:") + "merge = \"0s\"\n";
    let running = gateway(&folder, 5000.0, &table);
    let now = wait("views at both runtimes", || {
        let said = said(&running, "census", "state")?;
        let merged = said.get("merged")?;
        (merged.len() == 2 && merged.iter().all(|merged| *merged >= 20)).then_some(said)
    });
    let stored = sum(&now, "stored");
    // Views from now on have at least the counts that both had then.
    let said = wait("views of both", || {
        let said = state(&running);
        said["whole"].iter().all(|whole| *whole >= stored).then_some(said)
    });
    assert_eq!((sum(&said, "short"), sum(&said, "unmerged")), (0, 0), "{said:?}");
    let all = sum(&state(&running), "own");
    assert!(said["whole"].iter().all(|whole| *whole <= all), "{said:?} {all}");
}

#[test]
fn a_view_has_what_processes_have_stored_one_that_was_killed_too() {
    let Some(mut server) = server(&["--appendonly", "yes"]) else {
        return;
    };
    let table = chain("census", "", &server.uri()) + "merge = \"0s\"\n";
    let site = Site::new("merged-killed", 5000.0, &table);
    let (_front, left, mut right) = (site.start("front"), site.start("left"), site.start("right"));
    let theirs = wait("views at both nodes", || {
        let (left, right) = (said(&left, "census", "state")?, said(&right, "census", "state")?);
        (sum(&left, "merged") >= 10 && sum(&right, "merged") >= 10).then_some(right)
    });
    right.kill();
    let own = sum(&state(&left), "stored");
    let at_least = own + sum(&theirs, "stored");
    let now = wait("a view that has what the killed one left", || {
        let said = state(&left);
        (most(&said, "whole") >= at_least).then_some(said)
    });
    assert_eq!((sum(&now, "short"), sum(&now, "unmerged")), (0, 0), "{now:?}");
    // Without a store a call is told that there is no merge, and with it views are made again.
    if let Some(mut child) = server.child.take() {
        child.kill().expect("it is killed");
        let _ = child.wait();
    }
    let without = wait("calls without a merge", || {
        Some(state(&left)).filter(|said| sum(said, "unmerged") > 0)
    });
    server.launch().expect("it begins again");
    let (merged, own) = (sum(&without, "merged"), sum(&without, "own"));
    let again = wait("views", || {
        let said = state(&left);
        (sum(&said, "merged") > merged + 10 && most(&said, "whole") > own).then_some(said)
    });
    assert_eq!(sum(&again, "short"), 0, "{again:?}");
}
