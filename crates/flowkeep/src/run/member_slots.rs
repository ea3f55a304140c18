//! A worker's member slot in a cluster with a coordinator, on the thread that steps the worker.
//!
//! ```text
//!   agent thread ── views, suspects ──► JoinedWorker::attend, before each step ─► Membership of the worker
//!                ◄── steps, view, load, withdrawn leases ──┘                └─► members: which are gone
//! ```
//!
//! Decisions on which runtimes share objects come the same way, and each runtime's progress goes
//! back.
//!
//! A worker that finds itself removed by a view says so once ([`Fence`]): its process begins again,
//! as another incarnation, or ends at once if its end is under way.
//!
//! Not here: the agent (`coordinator::agent`), leases and the effects of a view's removals
//! (`runtime::members`).

use super::driver::{Driver, Worker};
use crate::config::layout::WorkerId;
use adapters::clock::monotonic_ns;
use coordinator::agent::{self, MemberSlot};
use protocols::membership::{Membership, Role, View};
use runtime::members::gone_between;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use stores::Views;

/// How often a worker's figures are written for the heartbeats, in nanoseconds.
const FIGURES: u64 = 200_000_000;
/// The longest sleep of a thread with a member slot, in nanoseconds: heartbeats tell of steps, and
/// leases are asked for.
pub(super) const LOOK: u64 = 4_000_000;

/// By which view a worker of this process was removed; 0 while none was.
pub(super) type Fence = Arc<AtomicU32>;

/// A worker's member slot.
pub(super) struct JoinedWorker {
    member_slot: agent::MemberSlot,
    fence: Fence,
    /// Where locks of functions look for the view.
    views: Option<Arc<Views>>,
    /// The view that the worker was told of last.
    known: View,
    figures_at: u64,
    /// The thread's processor time at the last figures, and when that was.
    cpu: Option<(u64, u64)>,
    /// Packets at the last figures, and the rate since, lately.
    packets: Option<u64>,
    packet_rate: u64,
    is_ready: bool,
    /// Whether functions share objects; and when the coordinator is told of that next.
    shares: bool,
    report_at: u64,
}

/// Gives each worker its member slot.
pub(super) fn assign_member_slots(
    threads: &mut [Driver],
    all: Vec<(WorkerId, MemberSlot)>,
    fence: &Fence,
    views: Option<&Arc<Views>>,
) {
    let mut all: BTreeMap<WorkerId, MemberSlot> = all.into_iter().collect();
    for member_slot in threads.iter_mut().flat_map(|thread| &mut thread.worker_slots) {
        if let Some(place) = all.remove(&member_slot.worker.id()) {
            let views = views.cloned();
            member_slot.place = Some(JoinedWorker::take(
                place,
                &mut member_slot.worker,
                fence.clone(),
                views,
            ));
        }
    }
}

fn tell(views: &Views, membership: &Membership) {
    let all = membership.view().members().iter();
    let runtimes = all.filter(|member| member.id.role == Role::Runtime);
    let incarnations = runtimes.map(|member| (member.id.number.into(), member.incarnation.0));
    views.tell(membership.view().number, incarnations, membership.incarnation().0);
}

impl JoinedWorker {
    /// The worker begins to act by leases and views.
    pub fn take(
        mut member_slot: agent::MemberSlot,
        worker: &mut Worker,
        fence: Fence,
        views: Option<Arc<Views>>,
    ) -> Self {
        let membership = member_slot.membership().clone();
        if let Some(views) = &views {
            tell(views, &membership);
        }
        let known = membership.view().clone();
        match worker {
            Worker::Switch(switch) => switch.begin_membership(membership),
            Worker::Runtime(runtime) => runtime.begin_membership(membership),
        }
        let shares = worker
            .runtime()
            .is_some_and(|runtime| !runtime.object_kinds().is_empty());
        JoinedWorker {
            member_slot,
            fence,
            views,
            known,
            figures_at: 0,
            cpu: None,
            packets: None,
            packet_rate: 0,
            is_ready: false,
            shares,
            report_at: 0,
        }
    }

    /// Takes over the coordinator's views and decisions, before a step at `now`, and says what this
    /// worker has done.
    #[inline]
    pub fn attend(&mut self, now: u64, worker: &mut Worker) {
        let membership = match worker {
            Worker::Switch(switch) => switch.membership_mut(),
            Worker::Runtime(runtime) => runtime.membership_mut(),
        };
        let Some(membership) = membership else { return };
        if self.member_slot.turn_with(now, membership) {
            let (number, is_fenced) = (membership.view().number, membership.is_fenced());
            let removed = gone_between(&self.known, membership.view());
            self.known = membership.view().clone();
            if let Some(views) = &self.views {
                tell(views, membership);
            }
            match worker {
                Worker::Switch(switch) => switch.members(number, &removed),
                Worker::Runtime(runtime) => runtime.members(number, &removed),
            }
            if is_fenced {
                self.fence.store(number, Ordering::Release);
            }
        }
        if self.shares
            && let Worker::Runtime(runtime) = worker
        {
            while let Some(decision) = self.member_slot.decision() {
                runtime.handle_decision(&decision);
            }
            if now >= self.report_at {
                self.report_at = now.saturating_add(LOOK);
                let report = runtime.objects_report();
                report
                    .into_iter()
                    .for_each(|report| self.member_slot.report(report));
            }
        }
        if now >= self.figures_at {
            self.figures_at = now.saturating_add(FIGURES);
            self.write_figures(worker);
        }
    }

    #[cold]
    fn write_figures(&mut self, worker: &Worker) {
        let (is_linked, packets, dropped, flows) = match worker {
            Worker::Switch(switch) => {
                let stats = switch.stats();
                let dropped: u64 = stats.dropped.iter().map(|named| named.count).sum();
                (switch.is_linked(), stats.received, dropped, stats.routes)
            }
            Worker::Runtime(runtime) => {
                let stats = runtime.stats();
                let dropped: u64 = stats.dropped.iter().map(|named| named.count).sum();
                (runtime.is_linked(), stats.received, dropped, stats.flows)
            }
        };
        if is_linked && !std::mem::replace(&mut self.is_ready, true) {
            self.member_slot.set_ready();
        }
        let (at, cpu) = (
            monotonic_ns(),
            super::threads::cpu_ns(rustix::thread::gettid().as_raw_nonzero().get()),
        );
        let figures = self.member_slot.figures();
        if let Some((then, before)) = self.cpu.replace((at, cpu))
            && at > then
        {
            let share = cpu.saturating_sub(before).saturating_mul(1000) / (at - then);
            figures
                .cpu
                .store(u32::try_from(share).unwrap_or(u32::MAX), Ordering::Relaxed);
            if let Some(before) = self.packets {
                let since = packets.saturating_sub(before).saturating_mul(1_000_000_000) / (at - then);
                // Over a second, about.
                self.packet_rate = (self.packet_rate.saturating_mul(3).saturating_add(since)) / 4;
            }
        }
        self.packets = Some(packets);
        figures.packet_rate.store(self.packet_rate, Ordering::Relaxed);
        figures.packets.store(packets, Ordering::Relaxed);
        figures.dropped_packets.store(dropped, Ordering::Relaxed);
        figures.flows.store(flows, Ordering::Relaxed);
        figures
            .memory
            .store(super::threads::resident_bytes(), Ordering::Relaxed);
    }
}
