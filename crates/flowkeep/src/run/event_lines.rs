//! Changes of runtimes and flows, by hand or by load, as lines of the event log; and which workers
//! views have.
//!
//! ```text
//!   order ─► a thread asks after its parts, each LOOK ─► over ─► flows_moved, the receipt
//!   add, remove, kill, drain, resume, delete ─► done ─► its line
//!   a later view ─► worker_joined, worker_gone for each change
//! ```
//!
//! An order goes on without the caller that gave it, so its line does not wait for the caller to
//! ask. A drain that empties a runtime is its own line and that of its order. Flows that a runtime
//! gave are in no receipt if it was killed meanwhile.
//!
//! Not here: the outcome of a step of scaling by load ([`super::scaling`]), recoveries
//! (`runtime::stats`), the lives of flows (`flow events`).

use super::handle::Unanswered;
use super::orders::{Asked, so_far};
use super::{Shared, driver::Worker};
use crate::config::layout::WorkerId;
use crate::events;
use crate::log::{self, Level};
use crate::moving::{Deletion, Killed, Leaving, Order, OrderPart, Receipt, Removal};
use coordinator::proto::Contact;
use protocols::membership::{Incarnation, Role, View};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Weak;
use std::time::{Duration, Instant};

/// How often an order is asked after.
const LOOK: Duration = Duration::from_millis(10);
/// How long a runtime may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Tells the outcome of an order, as soon as it is over.
pub(super) fn order(shared: &Shared, order: &Order, parts: &[OrderPart]) {
    let (me, order, parts) = (Weak::clone(&shared.me), order.clone(), parts.to_vec());
    let thread = std::thread::Builder::new().name("order".into());
    if let Err(error) = thread.spawn(move || until_over(&me, &order, &parts)) {
        log::say(
            Level::Warn,
            format_args!("the event log will not say the outcome of an order: no thread for it: {error}"),
        );
    }
}

fn until_over(me: &Weak<Shared>, order: &Order, parts: &[OrderPart]) {
    loop {
        let Some(shared) = me.upgrade() else { return };
        let asked = shared.receipts_of(parts);
        let has_ended = |(_, asked): &(u16, Asked)| asked.is_refused(Unanswered::Gone);
        // The workers have ended: the cluster does, too.
        if !asked.is_empty() && asked.iter().all(has_ended) {
            return;
        }
        let receipt = so_far(asked, Instant::now() + PATIENCE);
        if receipt.over {
            return shared.notices.tell(&events::FLOWS_MOVED, &moved(order, &receipt));
        }
        drop(shared);
        std::thread::sleep(LOOK);
    }
}

fn moved(order: &Order, receipt: &Receipt) -> [(&'static str, Value); 13] {
    let to: Vec<String> = order.to.iter().map(ToString::to_string).collect();
    [
        ("from", order.from.map_or(Value::Null, Value::from)),
        ("to", to.join(", ").into()),
        ("flows_asked", receipt.flows_asked.into()),
        ("flows_moved", receipt.flows_moved.into()),
        ("flows_refused", receipt.flows_refused.into()),
        ("flows_failed", receipt.flows_failed.into()),
        ("groups_canceled", receipt.groups_canceled.into()),
        ("packets_buffered", receipt.packets_buffered.into()),
        ("packets_handed_on", receipt.packets_handed_on.into()),
        ("packets_dropped", receipt.packets_dropped.into()),
        ("pause_longest_ns", receipt.pause_longest_ns.into()),
        ("bytes", receipt.bytes.into()),
        ("duration_ns", receipt.duration_ns.into()),
    ]
}

/// Tells how many flows were ended by hand, if any were.
pub(super) fn deleted(
    shared: &Shared,
    order: &Order,
    done: Result<Deletion, String>,
) -> Result<Deletion, String> {
    if let Ok(done) = &done {
        let fields = [
            ("from", order.from.map_or(Value::Null, Value::from)),
            ("flows_ended", done.flows_ended.into()),
            ("flows_busy", done.flows_busy.into()),
        ];
        shared.notices.tell(&events::FLOWS_DELETED, &fields);
    }
    done
}

/// Tells that a runtime was added, if it was.
pub(super) fn added(shared: &Shared, added: Result<u16, String>) -> Result<u16, String> {
    if let Ok(runtime) = added {
        let fields = [("runtime", runtime.into())];
        shared.notices.tell(&events::RUNTIME_BEGAN, &fields);
    }
    added
}

/// Tells that a runtime was removed, if it is gone.
pub(super) fn removed(
    shared: &Shared,
    runtime: u16,
    removal: Result<Removal, String>,
) -> Result<Removal, String> {
    if removal.as_ref().is_ok_and(|removal| removal.done) {
        let fields = [("runtime", runtime.into())];
        shared.notices.tell(&events::RUNTIME_ENDED, &fields);
    }
    removal
}

/// Tells the figures of a killed runtime, if it was killed.
pub(super) fn killed(
    shared: &Shared,
    runtime: u16,
    killed: Result<Killed, String>,
) -> Result<Killed, String> {
    if let Ok(had) = &killed {
        let fields = [
            ("runtime", runtime.into()),
            ("flows", had.flows.into()),
            ("protected_flows", had.protected_flows.into()),
            ("packets", had.packets.into()),
        ];
        shared.notices.tell(&events::RUNTIME_KILLED, &fields);
    }
    killed
}

/// Tells that a runtime was drained or resumed, if it was.
pub(super) fn leaving(
    shared: &Shared,
    runtime: u16,
    leaving: Leaving,
    said: Result<Vec<OrderPart>, String>,
) -> Result<Vec<OrderPart>, String> {
    if said.is_ok() {
        let event = match leaving {
            Leaving::Drained | Leaving::Forced => &events::RUNTIME_DRAINED,
            Leaving::Resumed => &events::RUNTIME_RESUMED,
        };
        shared.notices.tell(event, &[("runtime", runtime.into())]);
    }
    said
}

/// The view of which was told last, and by worker the member that had it there.
pub(super) struct Told {
    view: View,
    members: BTreeMap<WorkerId, String>,
}

impl Told {
    /// Of nothing yet.
    pub fn new() -> Self {
        Told {
            view: View::new(0, Vec::new()),
            members: BTreeMap::new(),
        }
    }

    /// Tells the changes in the newest view that a worker of this process has.
    pub fn look(&mut self, shared: &Shared, contacts: &[Contact]) {
        let Some(newest) = newest(shared, self.view.number) else {
            return;
        };
        let before = std::mem::replace(&mut self.view, newest);
        for gone in before.members() {
            if !self.view.has(gone.id, gone.incarnation) {
                let worker = worker_of(gone.id);
                let member = self.members.remove(&worker).unwrap_or_default();
                self.tell(shared, &events::WORKER_GONE, (worker, gone.incarnation), member);
            }
        }
        let view = self.view.clone();
        for joined in view.members() {
            if !before.has(joined.id, joined.incarnation) {
                let worker = worker_of(joined.id);
                let member = member_of(shared, worker, contacts);
                self.members.insert(worker, member.clone());
                self.tell(
                    shared,
                    &events::WORKER_JOINED,
                    (worker, joined.incarnation),
                    member,
                );
            }
        }
    }

    fn tell(
        &self,
        shared: &Shared,
        event: &events::Declared,
        (worker, incarnation): (WorkerId, Incarnation),
        member: String,
    ) {
        let fields = [
            ("worker", worker.to_string().into()),
            ("member", member.into()),
            ("incarnation", incarnation.0.into()),
            ("view", self.view.number.into()),
        ];
        shared.notices.tell(event, &fields);
    }
}

fn worker_of(id: protocols::membership::WorkerId) -> WorkerId {
    match id.role {
        Role::Switch => WorkerId::Switch(id.number.into()),
        Role::Runtime => WorkerId::Runtime(id.number.into()),
    }
}

/// The view of a worker of this process, if it is another one than that.
fn newest(shared: &Shared, known: u32) -> Option<View> {
    let worker = shared.workers().next()?;
    let asked = worker.call(move |worker| {
        let membership = match worker {
            Worker::Switch(switch) => switch.membership_mut(),
            Worker::Runtime(runtime) => runtime.membership_mut(),
        };
        let view = membership?.view();
        (view.number != known).then(|| view.clone())
    });
    // The worker hangs up where there is no other view.
    asked.ok()?.recv_timeout(PATIENCE).ok()
}

/// The member that has a worker: a listed one, this one, or one that no file lists.
fn member_of(shared: &Shared, worker: WorkerId, contacts: &[Contact]) -> String {
    let Some(part) = &shared.part else {
        return String::new();
    };
    if shared.layout.is_here(worker) {
        return part.name.clone();
    }
    let listed = part.member_of(worker);
    let WorkerId::Runtime(number) = worker else {
        return listed;
    };
    let has = |contact: &&Contact| contact.workers.iter().any(|of| of.number as usize == number);
    match listed.is_empty() {
        true => contacts
            .iter()
            .find(has)
            .map_or(listed, |contact| contact.member.clone()),
        false => listed,
    }
}
