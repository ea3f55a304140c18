//! Notes of watched packets on their way through a chain.
//!
//! Everything here is called from the rare way only: of packets that are marked, that open a flow,
//! that wait, or that are dropped. While none is watched, each call is a look at a pointer.
//!
//! Not here: the keeping of them ([`crate::watch`]).

use super::{Job, Runner};
use crate::flows::FlowStore;
use crate::outbox::Outbox;
use crate::stage::Code;
use crate::stats::DropReason;
use crate::watch::trace::{Event, Verdict};
use crate::watch::{self, Ends};
use nf::{Direction, Reason, Way};
use wire::packet::flag::WATCHED;
use wire::{Packet, PacketBox};

/// A packet as it was before a function had it: its marks, and its addresses. Without marks it is
/// not watched.
#[derive(Clone, Copy)]
pub(super) struct Look {
    marks: u16,
    ends: Option<Ends>,
    name: usize,
}

impl Look {
    pub(super) const NONE: Look = Look {
        marks: 0,
        ends: None,
        name: 0,
    };

    fn at(packet: &Packet) -> Self {
        Look {
            marks: packet.flags() & WATCHED,
            ends: Some(Ends::of(packet)),
            name: watch::name_of(packet),
        }
    }
}

impl Runner {
    /// A packet enters its chain.
    #[inline(always)]
    pub(super) fn look<const SEEN: bool>(
        &self,
        chain: u8,
        packet: &Packet,
        direction: Direction,
        passed: usize,
        out: &mut Outbox,
    ) -> Look {
        if !SEEN || out.tap.is_none() || !packet.has(WATCHED) {
            return Look::NONE;
        }
        let look = Look::at(packet);
        // A call that is over may have been its last.
        let is_ahead = passed < self.stages.chains[usize::from(chain)].len();
        if let Some(ends) = look.ends.filter(|_| is_ahead) {
            let passed = passed as u8;
            let event = Event::Enters {
                chain,
                direction,
                passed,
                ends,
            };
            out.observe(packet, event);
        }
        look
    }

    /// A function has had the packet, or has it still: a box can be handed on without a look at its
    /// content. A function that writes an answer over a packet wipes its marks out, too.
    #[inline(always)]
    pub(super) fn seen(
        &mut self,
        look: &mut Look,
        packet: &mut PacketBox,
        function: u8,
        code: Code,
        resumed: bool,
        out: &mut Outbox,
    ) {
        if look.marks != 0 {
            self.seen_now(look, packet, function, code, resumed, out);
        }
    }

    #[cold]
    #[inline(never)]
    fn seen_now(
        &mut self,
        look: &mut Look,
        packet: &mut PacketBox,
        function: u8,
        code: Code,
        resumed: bool,
        out: &mut Outbox,
    ) {
        if code == Code::WAITING {
            return self.seen_waiting(look, function, out);
        }
        packet.set_flags(look.marks);
        if code == Code::ANSWER && !packet.has(wire::packet::flag::PARSED) {
            // Its addresses are to be shown; whether it is a packet at all is judged where it is
            // sent back.
            let _ = wire::parse(packet);
        }
        let after = Ends::of(packet);
        let verdict = match code {
            Code::FORWARD => Verdict::Forward,
            Code::ANSWER => Verdict::Answer,
            Code::CONSUME => Verdict::Consume,
            drop => {
                Verdict::Drop(self.reason(usize::from(function), drop.drop_reason().unwrap_or(usize::MAX)))
            }
        };
        let event = Event::Passed {
            function,
            verdict,
            resumed,
            before: look.ends.unwrap_or(after),
            after,
        };
        look.ends = Some(after);
        out.observe(packet, event);
    }

    /// A call waits. Its future has the packet, so nothing else may look at it till it is done: not
    /// even to say what it is called.
    fn seen_waiting(&mut self, look: &Look, function: u8, out: &mut Outbox) {
        self.parking = *look;
        if let (Some(tap), Some(ends)) = (&mut out.tap, look.ends) {
            let event = Event::Passed {
                function,
                verdict: Verdict::Wait,
                resumed: false,
                before: ends,
                after: ends,
            };
            tap.note_named(look.marks, look.name, self.now, event);
        }
    }

    /// A waiting call has gone on.
    pub(super) fn see_resumed(
        &mut self,
        mut look: Look,
        job: &mut Job,
        at: usize,
        code: Code,
        flows: &FlowStore,
        out: &mut Outbox,
    ) {
        if look.marks != 0 {
            let function = self.function_at(job.actor, at, flows) as u8;
            self.seen_now(&mut look, &mut job.packet, function, code, true, out);
        }
    }

    /// A function's reason, by its number.
    fn reason(&self, function: usize, index: usize) -> &'static str {
        if index == Reason::UNSTORED.index() {
            return DropReason::StoreFenced.name();
        }
        let reasons = self.stages.functions[function].reasons();
        reasons.get(index).copied().unwrap_or("undeclared")
    }

    /// A function drops a packet.
    pub(super) fn see_drop(&self, packet: &Packet, function: usize, index: usize, out: &mut Outbox) {
        if let Some(tap) = &mut out.tap {
            let reason = self.reason(function, index);
            tap.dropped(packet, self.now, Some(function as u8), reason);
        }
    }

    /// A function has made a packet beside the one at hand. It belongs to the watch of that one.
    pub(super) fn see_made(
        &self,
        job: &Job,
        at: usize,
        made: &mut Packet,
        way: Way,
        flows: &FlowStore,
        out: &mut Outbox,
    ) {
        if out.tap.is_some() {
            made.set_port(job.packet.port());
            made.set_flags(job.packet.flags() & WATCHED);
            let function = self.function_at(job.actor, at, flows) as u8;
            let back = way == Way::Back;
            out.observe(made, Event::Made { function, back });
        }
    }

    /// Drops a packet for a function's reason; an undeclared reason counts as the last.
    pub(super) fn drop_for(&mut self, packet: PacketBox, function: usize, index: usize, out: &mut Outbox) {
        let reasons = &mut self.function_drops[function];
        let index = index.min(reasons.len() - 1);
        reasons[index] += 1;
        self.see_drop(&packet, function, index, out);
        out.recycle(packet);
    }
}
