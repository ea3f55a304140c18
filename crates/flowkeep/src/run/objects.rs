//! Which runtimes share objects, as runtimes come and go.
//!
//! ```text
//!   add ────► made with the view in force; there ─► a view with it
//!   remove ─► empty ─► a view without it, to which its objects go ─► its ends say 0
//!   kill ───► all have seen it go ─► a failure view
//! ```
//!
//! Views are told by the thread that adds, removes or kills, one change at a time
//! ([`protocols::objects::Conductor`]). A change that has not come to an end within [`PATIENCE`]
//! goes on before the next one.
//!
//! Of a cluster of several processes the coordinator decides on views (`coordinator::decider`), and
//! runtimes hear of them at their member slots. A process that ends has its runtimes leave first
//! ([`leave`]). Without a coordinator no process knows which runtimes have failed, so functions
//! that share objects are refused.
//!
//! Not here: the work of runtimes at a view (`runtime::objects`).

use super::Shared;
use super::build::RunError;
use super::handle::Handle;
use super::links::WorkerLink;
use nf::ConfigError;
use protocols::objects::{Conductor, Members};
use protocols::ownership::RuntimeId;
use runtime::Runtime;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a change of views may take before it is left to the next.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(1);

/// Refuses functions that share objects at a member that has no coordinator.
pub(super) fn check(runtime: &Runtime<WorkerLink>, is_without: bool) -> Result<(), RunError> {
    match runtime.object_kinds().first() {
        Some(kind) if is_without => Err(RunError::Function {
            function: kind.function.clone(),
            source: ConfigError::new(
                "",
                "it shares objects, and without a coordinator no member knows which runtimes have failed",
                "start all members with --join ADDRESS:PORT (docs/coordinator.md), or leave [[member]] and [cluster] out, so that one process \
                 has all runtimes",
            ),
        }),
        _ => Ok(()),
    }
}

/// Has the runtimes of a process that ends share objects no more: their objects go to others. Where
/// no coordinator decides within [`PATIENCE`], only the copies at others are left.
pub(super) fn leave(shared: &Shared, each: &mut impl FnMut(&dyn crate::cluster::Cluster)) {
    let runtimes = shared.runtimes();
    if shared.part.is_none() || runtimes.is_empty() {
        return;
    }
    let deadline = Instant::now() + PATIENCE;
    loop {
        // A runtime that does not answer has ended.
        let has_left = |handle: &Handle| {
            let answer = handle.runtime(|runtime| {
                runtime.leave_objects();
                runtime.has_left_objects()
            });
            answer.unwrap_or(true)
        };
        let left = runtimes.values().filter(|handle| has_left(handle)).count();
        if left == runtimes.len() || Instant::now() > deadline || shared.is_to_break_off() {
            return;
        }
        std::thread::sleep(LOOK);
        each(shared);
    }
}

/// The views of one process's runtimes.
pub(super) struct Views {
    /// Whether functions share objects at all.
    is_on: bool,
    state: Mutex<State>,
}

struct State {
    conductor: Conductor,
    /// The next incarnation of a runtime.
    incarnation: u64,
}

impl Views {
    /// Of runtimes that are made and have not begun: they share with each other from the start.
    pub fn begin<'a>(runtimes: impl Iterator<Item = (u16, &'a mut Runtime<WorkerLink>)>) -> Self {
        let mut runtimes: Vec<_> = runtimes.collect();
        let numbers = runtimes.iter().map(|(number, _)| RuntimeId(*number));
        let members = numbers.fold(Members::NONE, Members::with);
        let is_on = runtimes
            .iter()
            .any(|(_, runtime)| !runtime.object_kinds().is_empty());
        for (_, runtime) in &mut runtimes {
            runtime.share_objects(1, members, 1);
        }
        let conductor = Conductor::new(1, members);
        Views {
            is_on,
            state: Mutex::new(State {
                conductor,
                incarnation: 2,
            }),
        }
    }

    fn with<T>(&self, what: impl FnOnce(&mut State) -> T) -> T {
        what(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The view with which a runtime's next incarnation begins: its number, its members, and the
    /// incarnation.
    fn next(&self, number: u16) -> (u32, Members, u64) {
        self.with(|state| {
            if state.conductor.view().1.is_empty() {
                // The runtime is the first, and shares with itself from the start.
                state.conductor.change(Members::one(RuntimeId(number)));
            }
            state.incarnation += 1;
            let (view, members) = state.conductor.view();
            (view, members, state.incarnation - 1)
        })
    }

    /// A runtime is made: it takes part from when it is told of a view that has it.
    pub fn make(&self, runtime: &mut Runtime<WorkerLink>, number: u16) {
        let (view, members, incarnation) = self.next(number);
        runtime.share_objects(view, members, incarnation);
    }

    /// A runtime that was made is there.
    pub fn add(&self, shared: &Shared, number: u16) -> Result<(), String> {
        self.change(shared, |members| members.with(RuntimeId(number)))
    }

    /// A runtime is to go: its objects go to the others.
    pub fn leave(&self, shared: &Shared, number: u16) -> Result<(), String> {
        self.change(shared, |members| members.without(RuntimeId(number)))
    }

    /// A runtime that was to go stays after all, as another incarnation.
    pub fn stay(&self, shared: &Shared, number: u16, handle: &Handle) -> Result<(), String> {
        let (view, members, incarnation) = self.next(number);
        let answer = handle.runtime(move |runtime| runtime.share_objects(view, members, incarnation));
        answer.map_err(|why| format!("runtime {number} did not answer: {why}"))?;
        self.add(shared, number)
    }

    /// A runtime has failed.
    pub fn fail(&self, shared: &Shared, number: u16) -> Result<(), String> {
        if !self.is_on {
            return Ok(());
        }
        self.with(|state| {
            let conductor = &mut state.conductor;
            let before = conductor.course();
            conductor.fail(Members::one(RuntimeId(number)));
            conduct(conductor, shared)?;
            // A runtime that was to join, and had not been told, is to join again.
            let members = conductor.view().1;
            conductor.change(members.or(before.next.minus(before.members).without(RuntimeId(number))));
            conduct(conductor, shared)
        })
    }

    fn change(&self, shared: &Shared, next: impl FnOnce(Members) -> Members) -> Result<(), String> {
        if !self.is_on {
            return Ok(());
        }
        self.with(|state| {
            let conductor = &mut state.conductor;
            conduct(conductor, shared)?;
            conductor.change(next(conductor.view().1));
            conduct(conductor, shared)
        })
    }
}

/// Tells runtimes the views, until all of them have the last one.
fn conduct(conductor: &mut Conductor, shared: &Shared) -> Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    while !conductor.has_reached_all() {
        let (to, told) = conductor.directive();
        let runtimes = shared.runtimes();
        for to in to.iter() {
            let Some(handle) = runtimes.get(&to.0) else {
                continue;
            };
            let reached = handle.runtime(move |runtime| {
                runtime.handle_directive(&told);
                runtime.objects_reached()
            });
            if let Ok(Some(stage)) = reached {
                conductor.note_reached(to, stage);
            }
        }
        if Instant::now() > deadline {
            let waiting: Vec<String> = to.iter().map(|to| to.0.to_string()).collect();
            return Err(format!(
                "runtimes {} have not said within {} s that they share objects in another view; calls to \
                 shared objects may wait until the next `flowkeep runtime add`, `remove` or `kill`",
                waiting.join(", "),
                PATIENCE.as_secs()
            ));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}
