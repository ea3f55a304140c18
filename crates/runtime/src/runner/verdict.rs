//! The steps behind a call: verdicts that stop the packet, and effects.
//!
//! Not here: the usual way through a chain (`run`), calls that wait (`waiting`).

use super::{Job, Runner};
use crate::flows::FlowStore;
use crate::outbox::Outbox;
use crate::stage::Code;
use crate::stats::DropReason;
use nf::cx::{RawCx, effect};
use nf::{Direction, Reason, Way};
use wire::PacketList;
use wire::packet::{Kind, flag as packet_flag};

impl Runner {
    /// The steps behind a finished call, here or resumed from waiting (`cx` is then the waiting
    /// frame's).
    pub(super) fn after_call(
        &mut self,
        job: Job,
        at: usize,
        code: Code,
        cx: &mut RawCx,
        flows: &mut FlowStore,
        out: &mut Outbox,
    ) -> Option<Job> {
        let actor = job.actor;
        let timeout = cx.timeout;
        self.apply_blocks(cx, actor, flows, out);
        let effects = core::mem::take(&mut cx.effects);
        self.recalls |= effects & effect::RECALL != 0;
        if effects & effect::EMIT != 0 {
            self.apply_emits(&job, at, cx, flows, out);
        }
        let behind = match effects & effect::HELD {
            0 => PacketList::new(),
            _ => self.keep_copies(&job, at, cx, flows, out),
        };
        let before = match effects & (effect::RELEASE | effect::DISCARD) {
            0 => PacketList::new(),
            _ => self.let_go(&job, at, effects, cx.discard, flows, out),
        };
        if effects & effect::KEEP != 0 {
            self.keep_flow(actor, flows);
        }
        // A flow whose first packet was refused is not kept, unless a function has asked for it.
        let refused = code.drop_reason().is_some() && flows.header(actor).has_nothing_to_its_name();
        if effects & effect::END != 0 || refused {
            self.end_behind(actor);
        }
        let function = self.function_at(actor, at, flows);
        let before = (!before.is_empty()).then(|| Self::released(before, &job, function));
        let is_alone = before.is_none() && behind.is_empty();
        if !behind.is_empty() {
            self.release(Self::released(behind, &job, function));
        }
        match code {
            Code::FORWARD if is_alone => return Some(job),
            Code::FORWARD => self.put_ahead(Job {
                passed: job.passed + 1,
                timeout,
                ..job
            }),
            Code::ANSWER => self.answer(job, at, flows, out),
            Code::CONSUME => {
                self.extend(actor, timeout, flows);
                self.hold(job, at, flows, out);
            }
            other => {
                let index = other.drop_reason().unwrap_or(usize::MAX);
                match index == Reason::UNSTORED.index() {
                    true => out.drop_packet(job.packet, DropReason::StoreFenced),
                    false => self.drop_for(job.packet, function, index, out),
                }
            }
        }
        // They go before the packet at hand, which has yet to leave this call.
        if let Some(before) = before {
            self.release(before);
        }
        None
    }

    /// Keeps a flow of which nothing has left yet.
    fn keep_flow(&mut self, actor: u32, flows: &mut FlowStore) {
        flows.header_mut(actor).answered = true;
        if flows.header(actor).deadline == 0 {
            self.extend(actor, 0, flows);
        }
    }

    /// The functions already passed, seen in the other direction, as a job's count.
    fn turned_count(&self, actor: u32, at: usize, direction: Direction, flows: &FlowStore) -> u8 {
        let chain = flows.header(actor).chain;
        self.stages.chains[usize::from(chain)].passed_by_answer(at, direction) as u8
    }

    /// Sends the packet, now an answer, back through the functions it had passed.
    fn answer(&mut self, job: Job, at: usize, flows: &mut FlowStore, out: &mut Outbox) {
        let Job {
            actor,
            mut packet,
            direction,
            ..
        } = job;
        self.keep_flow(actor, flows);
        if !packet.has(packet_flag::PARSED) && wire::parse(&mut packet).is_err() {
            return out.drop_packet(packet, DropReason::AnswerMalformed);
        }
        packet.set_flags(packet_flag::MADE);
        let back_to = packet.side();
        packet.set_side(back_to.opposite());
        packet.set_exit(back_to);
        let passed = self.turned_count(actor, at, direction, flows);
        let answer = Job {
            actor,
            packet,
            direction: direction.reversed(),
            passed,
            timeout: 0,
            whole: false,
        };
        self.push_job(answer, out);
    }

    fn apply_emits(&mut self, job: &Job, at: usize, cx: &mut RawCx, flows: &mut FlowStore, out: &mut Outbox) {
        for (mut packet, way) in core::mem::take(&mut cx.emitted) {
            self.emitted += 1;
            if !packet.has(packet_flag::PARSED) && wire::parse(&mut packet).is_err() {
                out.drop_packet(packet, DropReason::AnswerMalformed);
                continue;
            }
            packet.set_kind(Kind::Data);
            packet.set_flags(packet_flag::MADE);
            // In a replay the worker's clock is the latest time seen, and may be far from this
            // packet's own.
            packet.set_timestamp(match self.bounds.packet_clock {
                true => job.packet.timestamp(),
                false => self.now,
            });
            self.see_made(job, at, &mut packet, way, flows, out);
            let (direction, passed) = match way {
                Way::Onward => {
                    packet.set_side(job.packet.side());
                    packet.set_exit(job.packet.exit());
                    (job.direction, job.passed + 1)
                }
                Way::Back => {
                    packet.set_side(job.packet.side().opposite());
                    packet.set_exit(job.packet.side());
                    let passed = self.turned_count(job.actor, at, job.direction, flows);
                    (job.direction.reversed(), passed)
                }
            };
            let made = Job {
                actor: job.actor,
                packet,
                direction,
                passed,
                timeout: 0,
                whole: false,
            };
            self.push_job(made, out);
        }
    }
}
