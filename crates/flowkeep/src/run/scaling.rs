//! The thread by which runtimes of one process come and go by load ([`crate::scaling`]).
//!
//! Each step, each limit that holds scaling up and each failure is an event. The thread ends with
//! the cluster: a step that is under way then ends first, or is given up.
//!
//! Not here: members of a cluster of several processes. A replay goes by a capture's time, which
//! says nothing of load.

use super::{MEMBERS_RUNTIMES, Shared};
use crate::cluster::Cluster;
use crate::control::{Answer, Request, service};
use crate::events;
use crate::log::{self, Level};
use crate::scaling::acting::{Actor, Ground, Said};
use crate::scaling::{Limit, Rules, Step};
use serde_json::Value;
use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often it is looked whether the cluster ends.
const LOOK: Duration = Duration::from_millis(50);
const OVER: &str = "the cluster is ending";

/// This process.
struct Here(Weak<Shared>);

impl Ground for Here {
    fn ask(&mut self, request: &Request) -> Result<Answer, String> {
        let shared = self.0.upgrade().ok_or(OVER)?;
        service::asked(request.clone(), &*shared)
    }

    fn add(&mut self) -> Result<u16, String> {
        self.0.upgrade().ok_or(OVER)?.add_runtime(None)
    }

    fn remove(&mut self, runtime: u16) -> Result<bool, String> {
        let shared = self.0.upgrade().ok_or(OVER)?;
        Ok(shared.remove_runtime(runtime)?.done)
    }

    fn is_over(&self) -> bool {
        let shared = self.0.upgrade();
        shared.is_none_or(|shared| shared.stop.load(Ordering::Relaxed))
    }
}

/// Has runtimes come and go by these rules from now on.
pub(super) fn begin(shared: &Shared, rules: Option<(Rules, Duration)>) {
    let Some((rules, interval)) = rules else {
        return;
    };
    if shared.worker_pool.is_none() || shared.packet_clock {
        let why = match shared.packet_clock {
            true => "a replay goes by its packets' time, which says nothing of load",
            false => MEMBERS_RUNTIMES,
        };
        return log::say(
            Level::Warn,
            format_args!("no runtime comes or goes by load: {why}"),
        );
    }
    let me = Weak::clone(&shared.me);
    let thread = std::thread::Builder::new().name("scaling".into());
    if let Err(error) = thread.spawn(move || run(&me, rules, interval)) {
        log::say(
            Level::Warn,
            format_args!("no runtime comes or goes by load: no thread for it: {error}"),
        );
    }
}

fn run(me: &Weak<Shared>, rules: Rules, interval: Duration) {
    let mut actor = Actor::new(Here(Weak::clone(me)), rules);
    let mut next = Instant::now();
    while !Here(Weak::clone(me)).is_over() {
        if Instant::now() < next {
            std::thread::sleep(LOOK.min(interval));
            continue;
        }
        next = Instant::now() + interval;
        // A runtime that does not answer now is asked again.
        let said = actor.turn().ok().flatten();
        if let (Some(said), Some(shared)) = (said, me.upgrade()) {
            tell(&shared, &said);
        }
    }
}

fn tell(shared: &Shared, said: &Said) {
    match said {
        Said::Done {
            step,
            runtime,
            moved,
            took,
            runtimes,
        } => {
            let (what, from): (_, Value) = match step {
                Step::Add { from, .. } => (&events::RUNTIME_ADDED, (*from).into()),
                Step::Move { from, .. } => (&events::LOAD_MOVED, (*from).into()),
                Step::Remove(runtime) => (&events::RUNTIME_REMOVED, (*runtime).into()),
            };
            let fields = [
                ("runtime", Value::from(*runtime)),
                ("from", from),
                ("flows_moved", (*moved).into()),
                ("milliseconds", (took.as_millis() as u64).into()),
                ("runtimes", (*runtimes).into()),
            ];
            shared.notices.tell(what, &fields);
        }
        Said::Failed(step, why) => {
            let what = match step {
                Step::Add { .. } => "add",
                Step::Move { .. } => "move",
                Step::Remove(_) => "remove",
            };
            let fields = [("step", what.into()), ("why", why.as_str().into())];
            shared.notices.tell(&events::SCALING_FAILED, &fields);
            log::say(Level::Warn, format_args!("scaling by load: {what}: {why}"));
        }
        Said::Limit(limit) => {
            let fields: [(&str, Value); 2] = match limit {
                Limit::Most => [("why", "runtimes_max".into()), ("runtime", Value::Null)],
                Limit::Undivided(runtime) => [("why", "one_group".into()), ("runtime", (*runtime).into())],
            };
            shared.notices.tell(&events::SCALING_LIMIT, &fields);
        }
    }
}
