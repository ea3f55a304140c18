//! The way of a packet through its chain, and of what its calls have left to do.
//!
//! Not here: the effects of a verdict (`verdict`), of a wait (`waiting`).

use super::{Ahead, Changed, Effect, Job, Runner, Through};
use crate::chain::Step;
use crate::flows::FlowStore;
use crate::flows::actor::{Phase, flag};
use crate::outbox::Outbox;
use crate::stage::Code;
use crate::stats::DropReason;
use crate::watch::trace::Event;
use core::ptr::NonNull;
use nf::Direction;

impl Runner {
    /// Runs the functions ahead of a packet, until one stops it or it leaves the chain. `SEEN`: the
    /// packet may be watched. `WATCHED`: the changes by its calls are ([`Changed`]). If
    /// [`Runner::has_more`] then, [`Runner::next`] says what else there is.
    #[inline(always)]
    pub fn run<const SEEN: bool, const WATCHED: bool>(
        &mut self,
        job: Job,
        flows: &mut FlowStore,
        out: &mut Outbox,
    ) -> Option<Through> {
        let Job {
            actor,
            mut packet,
            direction,
            passed,
            mut timeout,
            whole,
        } = job;
        let passed = usize::from(passed);
        let header = flows.header(actor);
        let state = flows.state(actor);
        let group = flows.group_state(header.group, state);
        let mut holds = header.flags & flag::HOLDS != 0;
        let chain = header.chain;
        let steps = core::ptr::from_ref(self.stages.way(chain, direction));
        let cx = self.prepare(actor, packet.side(), direction, flows);
        // SAFETY: stages change between two steps of the worker only (`change`): these stay where
        // they are.
        let steps = unsafe { &*steps };
        let mut look = self.look::<SEEN>(chain, &packet, direction, passed, out);
        // In one piece from the chain's begin, where no list of held packets is to be at hand.
        let mut fused = match SEEN || holds || passed > 0 {
            true => None,
            false => self.stages.fused::<WATCHED>(chain, direction),
        };
        let mut is_watching = WATCHED;
        let mut is_other = false;
        let mut index = passed;
        while let Some(step) = steps.get(index) {
            let (code, step) = match fused.take() {
                Some(fused) => {
                    // SAFETY: as below, for all of the chain's functions.
                    let stop = unsafe { fused(steps, &mut packet, state, group, self.frame_ptr) };
                    timeout = timeout.max(stop.timeout);
                    index = stop.at as usize;
                    is_other = WATCHED && stop.code.split().1;
                    let Some(step) = steps.get(index) else {
                        break;
                    };
                    (stop.code, step)
                }
                None => {
                    // SAFETY: the group's state is as long as all functions' parts.
                    cx.group = unsafe { group.add(step.group as usize) };
                    cx.counters = step.counters;
                    if holds {
                        cx.held = self.held.list((actor, step.at, direction == Direction::Opening));
                    }
                    let before = if SEEN { self.sampling.before() } else { 0 };
                    // SAFETY: the state is this actor's, laid out for this chain; if the call
                    // waits, the actor is pinned, and the packet and frame are put aside until its
                    // future is done.
                    let answer = unsafe {
                        let flow = state.add(step.flow as usize);
                        match is_watching {
                            true => step.run_watched(&mut packet, flow, self.frame_ptr),
                            false => step.run(&mut packet, flow, self.frame_ptr),
                        }
                    };
                    timeout = timeout.max(answer.timeout);
                    if SEEN {
                        self.sampling.after(step.function, before);
                        self.seen(&mut look, &mut packet, step.function, answer.code, false, out);
                    }
                    (answer.code, step)
                }
            };
            let (code, has_changed) = if WATCHED { code.split() } else { (code, false) };
            is_other |= has_changed;
            if code.number() | u32::from(cx.effects) != 0 {
                let job = Job {
                    actor,
                    packet,
                    direction,
                    passed: index as u8,
                    timeout,
                    whole,
                };
                cx.timeout = timeout;
                if core::mem::take(&mut is_watching) {
                    self.end_watch(steps.get(index + 1..).unwrap_or_default(), state);
                }
                packet = self
                    .turn_aside(job, usize::from(step.at), code, flows, out)?
                    .packet;
                cx.held = None;
                holds = flows.header(actor).flags & flag::HOLDS != 0;
            }
            index += 1;
        }
        if SEEN {
            out.observe(&packet, Event::Leaves { exit: packet.exit() });
        }
        if WATCHED {
            self.changed = match (is_watching, is_other) {
                (true, false) => Changed::Nothing,
                (true, true) => Changed::Something,
                (false, _) => Changed::Unknown,
            };
        }
        Some(Through {
            actor,
            packet,
            direction,
            timeout,
            whole,
        })
    }

    /// A packet stops, or has effects, and calls are watched no more: committed bytes of these
    /// functions, which have yet to run, are noted now.
    #[cold]
    #[inline(never)]
    fn end_watch(&mut self, ahead: &[Step], state: NonNull<u8>) {
        self.changed = Changed::Unknown;
        for step in ahead {
            // SAFETY: the state is laid out for the chain, and its shadow is as long.
            unsafe {
                let flow = state.add(step.flow as usize);
                step.shadow
                    .copy_from_nonoverlapping(flow, step.committed as usize);
            }
        }
    }

    /// Works off what calls have left to do, up to the next effect.
    #[cold]
    pub fn next(&mut self, flows: &mut FlowStore, out: &mut Outbox) -> Option<Effect> {
        loop {
            let job = match self.ahead.pop() {
                Some(Ahead::Drop) => {
                    self.drop_ahead(out);
                    continue;
                }
                Some(Ahead::Job(job)) => job,
                Some(Ahead::Released {
                    mut list,
                    actor,
                    direction,
                    function,
                    passed,
                }) => {
                    let Some(packet) = list.pop() else {
                        continue;
                    };
                    self.ahead.push(Ahead::Released {
                        list,
                        actor,
                        direction,
                        function,
                        passed,
                    });
                    out.observe(&packet, Event::Released { function });
                    Job {
                        actor,
                        packet,
                        direction,
                        passed,
                        timeout: 0,
                        whole: false,
                    }
                }
                None => match self.jobs.pop_at(0) {
                    Some(job) => job,
                    None => {
                        self.has_more = false;
                        return self.ending.take().map(Effect::End);
                    }
                },
            };
            if let Some(through) = self.run_or_queue(job, flows, out) {
                return Some(Effect::Through(through));
            }
        }
    }

    /// Runs a job: unless its flow waits since, behind which it queues, or is over.
    pub(super) fn run_or_queue(
        &mut self,
        job: Job,
        flows: &mut FlowStore,
        out: &mut Outbox,
    ) -> Option<Through> {
        match flows.header(job.actor).phase {
            Phase::Active => return self.run::<true, false>(job, flows, out),
            Phase::Waiting => self.queue_job_behind(job, flows, out),
            Phase::Free | Phase::Arriving | Phase::Leaving => {
                out.drop_packet(job.packet, DropReason::HeldAtEnd);
            }
        }
        None
    }

    /// Anything but a plain "forward": a verdict that stops the packet, or effects to apply.
    /// Answers the job if the packet goes on to the next function at once after all.
    #[cold]
    #[inline(never)]
    pub(super) fn turn_aside(
        &mut self,
        job: Job,
        at: usize,
        code: Code,
        flows: &mut FlowStore,
        out: &mut Outbox,
    ) -> Option<Job> {
        if code == Code::WAITING {
            self.park(job, at, flows, out);
            return None;
        }
        // Packets that the call has emitted were made of spares; the next packet of the burst may
        // need as many.
        self.top_up_spares(out);
        // SAFETY: the call is over, so nothing but this uses the frame in hand.
        let cx = unsafe { &mut (*self.frame_ptr.as_ptr()).cx };
        self.after_call(job, at, code, cx, flows, out)
    }
}
