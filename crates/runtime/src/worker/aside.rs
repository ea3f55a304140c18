//! What becomes of a packet that a function did not simply forward: verdicts that stop it, and effects.
//!
//! Not here: the usual way through a chain (`data.rs`), calls that wait (`waiting.rs`).

use super::{Job, Runtime};
use crate::env::Port;
use crate::flows::actor::Phase;
use crate::stage::Code;
use crate::stats::DropReason;
use nf::cx::{RawCx, effect};
use nf::{Direction, Way};
use wire::PacketList;
use wire::packet::{Kind, flag as packet_flag};

impl<P: Port> Runtime<P> {
    /// Anything but a plain "forward": a verdict that stops the packet, or effects to apply. Answers the job if the packet
    /// goes on to the next function after all.
    #[cold]
    #[inline(never)]
    pub(super) fn turn_aside(&mut self, job: Job, at: usize, code: Code) -> Option<Job> {
        if code == Code::WAITING {
            self.park(job, at);
            return None;
        }
        // What the call has emitted was made of spares; the next packet of the burst may need as many.
        self.top_up_spares();
        // SAFETY: the call is over, so the frame in hand is nobody's but ours.
        let cx = unsafe { &mut (*self.frame_ptr.as_ptr()).cx };
        self.after_call(job, at, code, cx)
    }

    /// What follows a finished call, here or resumed from waiting (`cx` is then the waiting frame's).
    pub(super) fn after_call(&mut self, job: Job, at: usize, code: Code, cx: &mut RawCx) -> Option<Job> {
        let actor = job.actor;
        let timeout = cx.timeout;
        self.apply_blocks(cx, actor);
        let effects = core::mem::take(&mut cx.effects);
        self.recalls |= effects & effect::RECALL != 0;
        // First what this call left in its cx: packets that are let go run through it.
        if effects & effect::EMIT != 0 {
            self.apply_emits(&job, at, cx);
        }
        let behind = match effects & effect::HELD {
            0 => PacketList::new(),
            _ => self.settle_held(&job, at, cx),
        };
        if effects & (effect::RELEASE | effect::DISCARD) != 0 {
            self.let_go(&job, at, effects, cx.discard);
            cx.timeout = timeout;
        }
        let (direction, passed) = (job.direction, job.passed + 1);
        let goes_on = match code {
            // One of those that were let go has ended the flow.
            _ if code.drop_reason().is_none() && self.flows.header(actor).phase == Phase::Free => {
                self.drop_packet(job.packet, DropReason::HeldAtEnd);
                None
            }
            Code::FORWARD if self.flows.header(actor).phase == Phase::Waiting => {
                // One of those that were let go waits now.
                let passed = job.passed + 1;
                self.queue_job_behind(Job { passed, ..job });
                None
            }
            Code::FORWARD if !behind.is_empty() => {
                self.extend(actor, timeout);
                self.run_now(Job { passed, ..job });
                None
            }
            Code::FORWARD => Some(job),
            Code::ANSWER => {
                self.answer(job, at);
                None
            }
            Code::CONSUME => {
                self.extend(actor, timeout);
                self.hold(job, at);
                None
            }
            other => {
                let function = self.function_at(actor, at);
                let reasons = &mut self.function_drops[function];
                let index = other.drop_reason().unwrap_or(usize::MAX).min(reasons.len() - 1);
                reasons[index] += 1;
                self.see_drop(&job.packet, function, index);
                self.recycle(job.packet);
                None
            }
        };
        self.go_on_behind(actor, at, direction, passed, behind);
        if effects & effect::KEEP != 0 {
            self.keep_flow(actor);
        }
        // A flow whose first packet was refused is not kept, unless a function has asked for it. A flow
        // that was told to end goes when its packet has gone.
        let refused = code.drop_reason().is_some() && self.flows.header(actor).has_nothing_to_its_name();
        if effects & effect::END != 0 || refused {
            match goes_on {
                Some(job) => self.finish_then_end(job),
                None => {
                    // An answer, or what was emitted, is still to pass functions of this flow.
                    self.run_jobs();
                    self.end_unless_busy(actor);
                }
            }
            return None;
        }
        goes_on
    }

    /// Keeps a flow of which nothing has left yet.
    fn keep_flow(&mut self, actor: u32) {
        self.flows.header_mut(actor).answered = true;
        if self.flows.header(actor).deadline == 0 {
            self.extend(actor, 0);
        }
    }

    pub(super) fn function_at(&self, actor: u32, at: usize) -> usize {
        let chain = self.flows.header(actor).chain;
        usize::from(self.stages.chains[usize::from(chain)][at].function)
    }

    /// Runs the rest of a packet's chain, then ends its flow.
    fn finish_then_end(&mut self, mut job: Job) {
        let actor = job.actor;
        job.passed += 1;
        // Ahead of what it, or a call that let it go, has emitted.
        self.run_now(job);
        self.run_jobs();
        self.end_unless_busy(actor);
    }

    fn end_unless_busy(&mut self, actor: u32) {
        if self.flows.header(actor).phase == Phase::Active {
            self.end_actor(actor);
        }
    }

    /// The functions already passed, seen in the other direction, as a job's count.
    fn turned_count(&self, actor: u32, at: usize, direction: Direction) -> u8 {
        let chain = self.flows.header(actor).chain;
        self.stages.chains[usize::from(chain)].passed_by_answer(at, direction) as u8
    }

    /// Sends the packet, now an answer, back through the functions it had passed.
    fn answer(&mut self, job: Job, at: usize) {
        let Job {
            actor,
            mut packet,
            direction,
            ..
        } = job;
        self.keep_flow(actor);
        if !packet.has(packet_flag::PARSED) && wire::parse(&mut packet).is_err() {
            return self.drop_packet(packet, DropReason::AnswerMalformed);
        }
        packet.set_flags(packet_flag::MADE);
        let back_to = packet.side();
        packet.set_side(back_to.opposite());
        packet.set_exit(back_to);
        let passed = self.turned_count(actor, at, direction);
        self.push_job(Job {
            actor,
            packet,
            direction: direction.reversed(),
            passed,
        });
    }

    fn push_job(&mut self, job: Job) {
        if let Err(full) = self.jobs.try_push(job) {
            let packet = full.element().packet;
            self.drop_packet(packet, DropReason::EmitOverflow);
        }
    }

    fn apply_emits(&mut self, job: &Job, at: usize, cx: &mut RawCx) {
        for (mut packet, way) in core::mem::take(&mut cx.emitted) {
            self.emitted += 1;
            if !packet.has(packet_flag::PARSED) && wire::parse(&mut packet).is_err() {
                self.drop_packet(packet, DropReason::AnswerMalformed);
                continue;
            }
            packet.set_kind(Kind::Data);
            packet.set_flags(packet_flag::MADE);
            // In a replay the worker's clock is the latest time seen, and may be far from this packet's own.
            packet.set_timestamp(match self.settings.packet_clock {
                true => job.packet.timestamp(),
                false => self.now,
            });
            self.see_made(job, at, &mut packet, way);
            let (direction, passed) = match way {
                Way::Onward => {
                    packet.set_side(job.packet.side());
                    packet.set_exit(job.packet.exit());
                    (job.direction, job.passed + 1)
                }
                Way::Back => {
                    packet.set_side(job.packet.side().opposite());
                    packet.set_exit(job.packet.side());
                    (
                        job.direction.reversed(),
                        self.turned_count(job.actor, at, job.direction),
                    )
                }
            };
            self.push_job(Job {
                actor: job.actor,
                packet,
                direction,
                passed,
            });
        }
    }
}
