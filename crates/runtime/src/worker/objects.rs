//! Objects that functions share, as the worker sees them: records come in, calls go on, views are
//! told by the runtimes' driver.
//!
//! Not here: the effects of each ([`crate::objects`]).

use super::Runtime;
use crate::env::Port;
use crate::objects::{ObjectTotals, SharedObjects};
use crate::parts::Core;
use crate::stats::ObjectStats;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use nf::objects::{Kind, ObjectsHere, PendingCalls};
use protocols::objects::{Caller, Decision, Directive, Members, Report, Stage};
use protocols::ownership::RuntimeId;

impl<P: Port> Runtime<P> {
    /// The kinds of objects that functions here share.
    pub fn object_kinds(&self) -> &[Kind] {
        self.core.runner.stages().objects.kinds()
    }

    /// Takes part in sharing objects: in a view with these members, or, if it is none of them, when
    /// it is told of one. `incarnation` is higher than that of any runtime that had its number
    /// before. To be called behind [`Runtime::join`] and [`Runtime::inherit`].
    pub fn share_objects(&mut self, view: u32, members: Members, incarnation: u64) {
        if self.object_kinds().is_empty() {
            return;
        }
        let me = Caller {
            runtime: self.id(),
            incarnation,
        };
        // The same at all workers of a cluster.
        let [seed, ..] = self.core.settings.seed.0;
        let opened = &self.core.runner.stages().objects;
        let pending_calls = opened.pending_calls();
        pending_calls.open(true);
        let mut objects = SharedObjects::new(opened, me, seed, (view, members));
        if let Some(before) = &self.objects {
            objects.count_on(before);
        }
        if let Some(before) = self.objects.replace(Box::new(objects)) {
            before.give_up(&pending_calls);
            self.core.runner.hasten_answered(&pending_calls);
        }
    }

    /// A runtime alone on a port shares with none.
    pub(super) fn share_alone(&mut self) {
        self.share_objects(1, Members::one(self.id()), 1);
    }

    fn id(&self) -> RuntimeId {
        RuntimeId(self.core.settings.info.runtime)
    }

    /// Is told of a view of the runtimes that share objects.
    pub fn handle_directive(&mut self, directive: &Directive) {
        let pending_calls = self.pending_calls();
        if let Some(objects) = &mut self.objects {
            objects.handle_directive(self.core.now, directive, &pending_calls);
        }
    }

    /// Is told of a decision of the coordinator.
    pub fn handle_decision(&mut self, decision: &Decision) {
        let pending_calls = self.pending_calls();
        if let Some(objects) = &mut self.objects {
            objects.handle_decision(self.core.now, decision, &pending_calls);
        }
    }

    /// The shared objects that are here.
    pub(super) fn objects_here(&self) -> ObjectsHere<'_> {
        let objects = self.objects.as_deref();
        objects.map_or_else(ObjectsHere::default, |objects| ObjectsHere::of(objects))
    }

    /// Figures of shared objects, by kind.
    pub(super) fn object_stats(&self) -> Vec<ObjectStats> {
        let objects = self.objects.as_ref();
        objects.map_or_else(Vec::new, |objects| objects.stats(&self.pending_calls()))
    }

    fn pending_calls(&self) -> Arc<PendingCalls> {
        self.core.runner.stages().objects.pending_calls()
    }

    /// When there is something to do for shared objects by the time alone.
    pub(super) fn objects_next_at(&self) -> Option<u64> {
        self.objects.as_ref()?.next_at(&self.pending_calls())
    }

    /// The report to the coordinator on shared objects here, where functions have any.
    pub fn objects_report(&self) -> Option<Report> {
        let objects = self.objects.as_ref()?;
        Some(objects.report(&self.core.sessions))
    }

    /// Wants to share objects no more: its objects go to other runtimes.
    pub fn leave_objects(&mut self) {
        if let Some(objects) = &mut self.objects {
            objects.leave();
        }
    }

    /// Whether this runtime takes no part in sharing objects, by the coordinator's newest decision.
    pub fn has_left_objects(&self) -> bool {
        self.objects.as_ref().is_none_or(|objects| objects.has_left())
    }

    /// The newest stage that it has been told, and has reached.
    pub fn objects_reached(&self) -> Option<Stage> {
        self.objects.as_ref()?.reached()
    }

    /// Figures of shared objects, where functions have any.
    pub fn objects(&self) -> Option<ObjectTotals> {
        self.objects.as_ref().map(|objects| objects.totals())
    }

    /// A runtime sends a piece of a message.
    #[cold]
    pub(crate) fn take_object(&mut self, peer: usize, is_last: bool, piece: &[u8]) {
        let objects = self.objects.as_mut();
        let is_sound = objects.is_some_and(|objects| objects.take(self.core.now, peer, is_last, piece));
        if !is_sound {
            self.core.out.reject();
        }
    }

    /// Goes on with shared objects; answers how much was done.
    #[cold]
    #[inline(never)]
    pub(super) fn share(&mut self) -> usize {
        let pending_calls = self.pending_calls();
        let Some(objects) = &mut self.objects else {
            return 0;
        };
        let Core {
            now, out, sessions, ..
        } = &mut self.core;
        let (work, has_answers) = objects.go_on(*now, &pending_calls, out, sessions);
        if has_answers {
            self.core.runner.hasten_answered(&pending_calls);
        }
        work
    }
}
