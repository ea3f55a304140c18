//! The thread that checks servers, and the cluster as it has it ([`crate::health`]).

use super::Shared;
use crate::events;
use crate::health::stats::BackendStatus;
use crate::health::{Checked, Checker, Wanted, Words};
use runtime::chain::Plan;
use std::io::Write as _;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// The checks that a plan wants.
fn wanted_by(plan: &Plan) -> Vec<Wanted> {
    let mut all = Vec::new();
    for factory in plan.factories() {
        all.extend(factory.checks().into_iter().map(|check| Wanted {
            function: factory.name().to_owned(),
            check,
        }));
    }
    all
}

impl Checked for Arc<Shared> {
    fn wanted(&self, known: u64) -> Option<(u64, Vec<Wanted>)> {
        let asked = self.live.with_workers(|plan, generation, _| {
            let is_new = generation.0 != known;
            is_new.then(|| (generation.0, wanted_by(plan)))
        });
        // While a change is under way the one before goes on.
        asked.ok().flatten()
    }

    fn tell(&self, words: &[Words]) -> bool {
        let mut heard = true;
        for handle in self.runtimes().into_values() {
            let words = words.to_vec();
            let told = handle.runtime(move |runtime| {
                for (function, words) in &words {
                    // A server that another configuration does not check is refused.
                    let _ = runtime.command(function, &words.each_ref().map(String::as_str));
                }
            });
            heard &= told.is_ok();
        }
        heard
    }

    fn note(&self, status: &BackendStatus) {
        let fields = [
            ("function", status.function.as_str().into()),
            ("service", status.service.as_str().into()),
            ("backend", status.backend.as_str().into()),
            ("endpoint", status.endpoint.as_str().into()),
            ("why", status.why.as_str().into()),
        ];
        // A server that is up has no reason.
        let (event, fields) = match status.up {
            Some(true) => (&events::BACKEND_UP, fields.get(..4).unwrap_or_default()),
            _ => (&events::BACKEND_DOWN, &fields[..]),
        };
        self.notices.tell(event, fields);
    }
}

/// Has servers checked from now on, if the configuration wants that. Where workers go by a
/// capture's time, and where there are switches only, none is checked.
pub(super) fn begin(shared: &Shared) {
    let is_of_switches = shared.part.is_some() && shared.runtimes().is_empty();
    if shared.packet_clock || is_of_switches || shared.is_checking.load(Ordering::Acquire) {
        return;
    }
    let wants = shared.live.with_workers(|plan, _, _| !wanted_by(plan).is_empty());
    if wants != Ok(true) || shared.is_checking.swap(true, Ordering::AcqRel) {
        return;
    }
    let (me, board) = (Weak::clone(&shared.me), shared.checks.clone());
    let thread = std::thread::Builder::new().name("checks".into());
    let started = thread.spawn(move || Checker::default().run(&board, || me.upgrade()));
    if let Err(error) = started {
        shared.is_checking.store(false, Ordering::Release);
        let _ = writeln!(
            std::io::stderr(),
            "servers are not checked: no thread for it: {error}; apply the configuration again"
        );
    }
}
