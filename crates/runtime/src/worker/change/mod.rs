//! Another configuration while flows live: prepared elsewhere, put in between two bursts, taken to each flow afterwards.
//!
//! # Theory of operation
//!
//! ```text
//!   control thread    Prepared::new: instances of the new plan, compiled and allocated away from the worker
//!   worker  prepare   does it fit? nothing changes. Then, a few flows a step, the survey: which would end?
//!           commit    between two steps: the new instances take over what the old ones hold, plan and instances change places
//!           sweep     a few flows a step: each is asked once whether it goes on, and ends if it may not
//!                     a packet that comes for a flow not yet asked has it asked first
//!           settled   nobody is of the old configuration: its instances go back to the control thread, to be dropped there
//! ```
//!
//! A flow's header has the low bits of the number of the configuration (its *generation*) under which it was judged last, beside
//! its phase: a packet of an established flow compares both at once, and pays nothing for that there may be changes. There are
//! never flows of more than two generations, since a change is only prepared when the one before has settled.
//!
//! *A packet is judged by one configuration*: it passes its chain within a step, and the change is between steps. One that waits in
//! a function ([`super::waiting`]) is the exception: it waits, and ends its call, in the old instance, which is kept for that; then its flow
//! is asked, and only if it may go on does the packet pass the rest of its chain, by the new instances. So it passes if both let it.
//!
//! *Chains.* A flow goes on with a chain of the new plan that has the same functions in the same order, preferably of the same name. Where
//! there is none it ends (`chain_gone`). Which chain a new flow takes is the new plan's to say.
//!
//! ```text
//!   settled ──prepare──► prepared ──commit──► sweeping ──the last flow asked──► settled
//!      ▲                    │
//!      └──────abandon───────┘
//! ```
//!
//! Invariants: a flow is asked exactly once for each change, before its next packet and before its end; what the functions' `departed` sees is
//! always of the instances in force; the survey changes nothing (it asks about copies); functions, their order, their
//! states and the affinity stay the same for a runtime's whole life ([`Prepared::new`] sees to it).
//!
//! Not here: what differs and may differ (the tool), what a function makes of it ([`nf::NetworkFunction::configured`]).

mod prepared;

pub use prepared::{Before, CHAIN_GONE, ChangeError, ChangeState, CutFlow, Prepared, fits};

use super::Runtime;
use crate::actor::{Header, Phase, flag};
use crate::chain::Step;
use crate::env::Port;
use alloc::boxed::Box;
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use core::ptr::NonNull;
use nf::cx::{EventLog, RawCx};
use nf::{Direction, Reason, Side};
use prepared::{Cut, Subject, Tally, ask, reason_name};
use wire::{Orientation, PacketBox};

/// Actors looked at in a step at most, and how many of them are asked about.
const LOOKS: u32 = 128;
const ASKED: u32 = 32;

impl<P: Port> Runtime<P> {
    /// Takes in what it may become, if that fits; nothing changes.
    pub fn prepare_change(&mut self, prepared: Box<Prepared>) -> Result<(), (ChangeError, Box<Prepared>)> {
        if let Some(before) = &self.before {
            return Err((ChangeError::Unsettled { flows: before.left }, prepared));
        }
        if let Err(error) = fits(&prepared.plan, &self.plan) {
            return Err((error, prepared));
        }
        if prepared.stages.flow_size > self.stages.flow_size {
            let chains = prepared.plan.chains().iter().enumerate();
            let mut too_large =
                chains.filter(|(index, _)| prepared.plan.flow_size(*index) > self.stages.flow_size);
            let chain = too_large
                .next()
                .map(|(_, chain)| chain.name.clone())
                .unwrap_or_default();
            return Err((ChangeError::Room { chain }, prepared));
        }
        self.prepared = Some(prepared);
        Ok(())
    }

    /// Gives back what was prepared, to be dropped elsewhere.
    pub fn abandon_change(&mut self) -> Option<Box<Prepared>> {
        self.prepared.take()
    }

    /// From the next packet on, what was prepared is in force; `false` if nothing was.
    pub fn commit_change(&mut self) -> bool {
        let Some(prepared) = self.prepared.take() else {
            return false;
        };
        let Prepared {
            generation,
            plan,
            mut stages,
            chains,
            translates,
            survey,
        } = *prepared;
        // Where flows are by themselves, their group state lies behind the longest chain's at the start.
        stages.flow_size = self.stages.flow_size;
        stages.succeed(&mut self.stages);
        let tally = Tally {
            by_function: survey
                .tally
                .by_function
                .iter()
                .map(|reasons| alloc::vec![0; reasons.len()])
                .collect(),
            ..Tally::default()
        };
        let plan = core::mem::replace(&mut self.plan, plan);
        let stages = core::mem::replace(&mut self.stages, stages);
        self.generation = generation;
        self.before = Some(Box::new(Before {
            plan,
            stages,
            chains,
            translates,
            left: self.slab.active() as u64,
            cursor: 0,
            tally,
        }));
        true
    }

    /// How far a change has come.
    pub fn change(&self) -> ChangeState {
        let mut state = ChangeState {
            generation: self.generation,
            is_prepared: self.prepared.is_some(),
            is_through: true,
            ..ChangeState::default()
        };
        if let Some(Prepared { survey, stages, .. }) = self.prepared.as_deref() {
            state.is_through = survey.done;
            (state.kept, state.waiting) = (survey.tally.kept, survey.tally.waiting);
            state.cut = survey.tally.named(stages);
        } else if let Some(before) = self.before.as_deref() {
            state.is_through = before.cursor as usize >= self.slab.capacity();
            (state.kept, state.waiting) = (before.tally.kept, before.left);
            state.cut = before.tally.named(&self.stages);
        }
        state
    }

    /// The flows that would end, as far as they are listed.
    pub fn take_listed(&mut self) -> Vec<CutFlow> {
        match self.prepared.as_deref_mut() {
            Some(prepared) => core::mem::take(&mut prepared.survey.listed),
            None => Vec::new(),
        }
    }

    /// What was in force before, if nothing is of it any more: to be dropped elsewhere.
    pub fn take_before(&mut self) -> Option<Box<Before>> {
        let before = self.before.as_deref()?;
        let over = before.left == 0 && before.cursor as usize >= self.slab.capacity();
        if over { self.before.take() } else { None }
    }

    /// Goes on with the survey or the sweep; answers how many actors were looked at.
    pub(super) fn walk(&mut self) -> usize {
        if self.prepared.is_none() && self.before.is_none() {
            return 0;
        }
        if self.prepared.is_some() {
            self.survey()
        } else {
            self.sweep()
        }
    }

    #[cold]
    fn survey(&mut self) -> usize {
        let Some(mut prepared) = self.prepared.take() else {
            return 0;
        };
        let (mut looked, mut asked) = (0, 0);
        while looked < LOOKS && asked < ASKED && !prepared.survey.done {
            let actor = prepared.survey.cursor;
            if actor as usize >= self.slab.capacity() {
                prepared.survey.done = true;
                break;
            }
            prepared.survey.cursor += 1;
            looked += 1;
            match self.slab.header(actor).phase {
                Phase::Free => {}
                // Its state is its call's.
                Phase::Waiting => prepared.survey.tally.waiting += 1,
                Phase::Active => {
                    asked += 1;
                    self.ask_about_copy(actor, &mut prepared);
                }
            }
        }
        self.prepared = Some(prepared);
        looked as usize
    }

    /// Asks about a flow without changing anything.
    fn ask_about_copy(&mut self, actor: u32, prepared: &mut Prepared) {
        let Prepared {
            stages,
            chains,
            translates,
            survey,
            ..
        } = prepared;
        let header = *self.slab.header(actor);
        let mut subject = self.subject(actor);
        let steps = &self.stages.chains[usize::from(header.chain)];
        // SAFETY: the copies' regions are as long as what is copied into them, and nothing uses the flow's states meanwhile.
        unsafe {
            let (flow, group) = (survey.flow.start(), survey.group.start());
            let length = self.stages.flow_size.min(survey.flow.length());
            core::ptr::copy_nonoverlapping(subject.flow.as_ptr(), flow.as_ptr(), length);
            let length = self.stages.group_size;
            core::ptr::copy_nonoverlapping(subject.group.as_ptr(), group.as_ptr(), length);
            (subject.flow, subject.group) = (flow, group);
        }
        let mut cx = self.scratch(&mut survey.log);
        let counters = NonNull::new(survey.counters.as_mut_ptr()).expect("a vector's pointer is not null");
        // SAFETY: the copies are states of the chain's functions; as many counters are there as any of them has.
        let ends = unsafe { ask(stages, translates, steps, &subject, &mut cx, |_| counters) };
        for packet in cx
            .spares
            .drain(..)
            .chain(cx.emitted.drain(..).map(|(packet, _)| packet))
        {
            self.recycle(packet);
        }
        let cut = match (ends, chains[usize::from(header.chain)]) {
            (None, Some(_)) => {
                survey.tally.kept += 1;
                return;
            }
            (ends, _) => ends,
        };
        survey.tally.cut(cut);
        if survey.listed.len() < survey.listed_max {
            let (source, destination) = header.key.ends(header.opening(0));
            let translated = (header.flags & flag::SECOND_KEY != 0)
                .then(|| self.slab.second_key(actor).ends(header.opening(1)));
            survey.listed.push(CutFlow {
                runtime: self.settings.info.runtime,
                key: header.key,
                source,
                destination,
                translated,
                chain: header.chain,
                function: cut.map(|(function, _)| function),
                reason: cut.map_or(CHAIN_GONE, |(function, reason)| {
                    reason_name(stages, usize::from(function), reason.index())
                }),
            });
        }
    }

    /// A `cx` for questions of which nothing comes.
    fn scratch(&self, log: &mut EventLog) -> RawCx {
        RawCx {
            now: self.now,
            wake_at: RawCx::NO_WAKE,
            timeout: 0,
            key: NonNull::dangling(),
            opening: Orientation::Along,
            side: Side::Inside,
            direction: Direction::Opening,
            effects: 0,
            group: NonNull::dangling(),
            counters: NonNull::dangling(),
            log: NonNull::from(log),
            spares: ArrayVec::new(),
            emitted: ArrayVec::new(),
            blocks: ArrayVec::new(),
            discard: Reason::UNDECLARED,
            pinned: core::marker::PhantomPinned,
        }
    }

    fn subject(&self, actor: u32) -> Subject {
        let header = self.slab.header(actor);
        let flow = self.slab.state(actor);
        let first = (self.slab.key(actor), header.opening(0));
        let last = if header.flags & flag::SECOND_KEY != 0 {
            (NonNull::from(self.slab.second_key(actor)), header.opening(1))
        } else {
            first
        };
        Subject {
            side: opened_from(header),
            first,
            last,
            flow,
            group: self.group_state(header.group, flow),
        }
    }

    /// Asks a few flows of the configuration before.
    #[cold]
    fn sweep(&mut self) -> usize {
        let (mut looked, mut asked) = (0, 0);
        while looked < LOOKS && asked < ASKED && self.log.room() >= super::expiry::EVENT_ROOM {
            let Some(before) = self.before.as_deref_mut() else {
                break;
            };
            let actor = before.cursor;
            if actor as usize >= self.slab.capacity() {
                break;
            }
            before.cursor += 1;
            looked += 1;
            let header = self.slab.header(actor);
            // A call that waits has the state; its flow is asked when it is done.
            if header.phase == Phase::Active && header.generation != self.young() {
                asked += 1;
                self.goes_on(actor);
            }
        }
        looked as usize
    }

    /// The number in the headers of flows that were judged under the configuration in force.
    #[inline(always)]
    pub(super) fn young(&self) -> u8 {
        self.generation.0 as u8
    }

    /// Whether an actor that is no free one is still of the configuration before.
    #[inline]
    pub(super) fn is_of_before(&self, actor: u32) -> bool {
        self.slab.header(actor).generation != self.young()
    }

    /// Asks a flow of the configuration before, whose calls are over: `false`, and it has ended, if it does not go on.
    #[cold]
    pub(super) fn goes_on(&mut self, actor: u32) -> bool {
        self.settle_all();
        if self.slab.header(actor).phase != Phase::Active {
            return false;
        }
        let (cut, heir) = self.adapt(actor);
        let Some(before) = self.before.as_deref_mut() else {
            debug_assert!(false, "a flow of a configuration that is gone");
            return true;
        };
        match (cut, heir) {
            (None, Some(chain)) => {
                before.left -= 1;
                before.tally.kept += 1;
                let generation = self.young();
                let header = self.slab.header_mut(actor);
                header.chain = chain;
                header.generation = generation;
                true
            }
            (cut, _) => {
                before.tally.cut(cut);
                self.end_adapted(actor);
                false
            }
        }
    }

    /// Makes a flow's states those of the instances in force. Answers who would end it, and its chain from now on.
    pub(super) fn adapt(&mut self, actor: u32) -> (Cut, Option<u8>) {
        let Some(before) = self.before.as_deref() else {
            return (None, None);
        };
        let chain = usize::from(self.slab.header(actor).chain);
        let subject = self.subject(actor);
        let cx = self.prepare(actor, subject.side, Direction::Opening);
        let steps = &before.stages.chains[chain];
        // SAFETY: the states are this actor's, laid out for the chain it began with; no call of it waits. A step's counters are
        // the ones in force (`Stages::succeed`).
        let cut = unsafe {
            ask(&self.stages, &before.translates, steps, &subject, cx, |step| {
                step.counters
            })
        };
        let heir = before.chains[chain];
        self.settle_accounts(cx, actor);
        (cut, heir)
    }

    /// The steps of an actor's chain: of those that are in force, or of those that were when it was judged last.
    #[inline]
    pub(super) fn steps_of(&self, actor: u32) -> &[Step] {
        let header = self.slab.header(actor);
        match &self.before {
            Some(before) if header.generation != self.young() => {
                &before.stages.chains[usize::from(header.chain)]
            }
            _ => &self.stages.chains[usize::from(header.chain)],
        }
    }

    /// The name of an actor's chain.
    pub(super) fn chain_name(&self, actor: u32) -> &str {
        let header = self.slab.header(actor);
        let plan = match &self.before {
            Some(before) if header.generation != self.young() => &before.plan,
            _ => &self.plan,
        };
        &plan.chains()[usize::from(header.chain)].name
    }

    /// A flow of the configuration before has ended.
    pub(super) fn note_end_of_old(&mut self) {
        if let Some(before) = self.before.as_deref_mut() {
            before.left -= 1;
        }
    }

    /// Drops what a call had to say whose flow ends with the change, but for what it did to blocks of ports.
    pub(super) fn drop_changed(&mut self, packet: PacketBox, cx: &mut RawCx, actor: u32) {
        self.settle_accounts(cx, actor);
        self.drop_packet(packet, crate::stats::DropReason::ConfigurationChanged);
    }
}

fn opened_from(header: &Header) -> Side {
    if header.flags & flag::FROM_OUTSIDE != 0 {
        Side::Outside
    } else {
        Side::Inside
    }
}
