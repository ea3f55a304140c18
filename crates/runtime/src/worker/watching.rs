//! What a runtime sees of packets that somebody watches.
//!
//! Everything here is called from the rare way only: of packets that are marked, that open a flow, that wait, or that are
//! dropped. While nobody watches, each call is a look at a pointer.
//!
//! Not here: what is kept of it ([`crate::watch`]).

use super::data::{Lane, NOBODY};
use super::{Job, Runtime};
use crate::env::{Burst, Port};
use crate::stage::Code;
use crate::watch::trace::{Event, Verdict};
use crate::watch::{self, Ends, Seen, Watch, Worker};
use alloc::string::String;
use alloc::vec::Vec;
use nf::{Direction, Way};
use wire::packet::flag::WATCHED;
use wire::{FlowKey, Packet, PacketBox};

/// A packet as it was before a function had it: its marks, and its addresses. Without marks nobody looks.
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

impl<P: Port> Runtime<P> {
    /// Begins to watch; hands the watch back if there are as many as may be.
    pub fn watch(&mut self, mut watch: Watch) -> Result<(), Watch> {
        if let watch::What::Flow(trace) = &mut watch.what {
            // By all keys of the flow that has one of them.
            for key in trace.keys() {
                let hash = key.hash(&self.settings.seed);
                if let Some(value) = self.find(hash, &key) {
                    trace.learn(*self.flows.nth_key(value >> 1, 0));
                    if self.flows.header(value >> 1).flags & crate::flows::actor::flag::SECOND_KEY != 0 {
                        trace.learn(*self.flows.nth_key(value >> 1, 1));
                    }
                }
            }
        }
        watch::open(&mut self.eye, Worker::Runtime(self.settings.info.runtime), watch)
    }

    /// Ends a watch.
    pub fn unwatch(&mut self, id: u32) {
        watch::close(&mut self.eye, id);
    }

    /// Exchanges what a watch has seen for empty memory; `false` if there is no such watch.
    pub fn watched(&mut self, id: u32, seen: &mut Seen) -> bool {
        self.eye.as_mut().is_some_and(|eye| eye.swap(id, seen))
    }

    /// Has a trace know its flow by one more key.
    pub fn learn_key(&mut self, id: u32, key: FlowKey) {
        if let Some(eye) = &mut self.eye {
            eye.learn(id, key);
        }
    }

    /// The functions' names, in the order of their numbers.
    pub fn function_names(&self) -> Vec<String> {
        self.stages.names.clone()
    }

    /// The chains' names, in the order of their numbers.
    pub fn chain_names(&self) -> Vec<String> {
        let names = self.plan.chains().iter().map(|chain| chain.name.clone());
        names.collect()
    }

    /// Marks packets of a burst that somebody watches, and sends them the rare way.
    #[cold]
    pub(super) fn look_out(&mut self, burst: &mut Burst, lanes: &mut [Lane]) {
        for (packet, lane) in burst.iter_mut().zip(lanes) {
            if self.is_watched(packet, &lane.key) {
                lane.candidate = NOBODY;
            }
        }
    }

    /// Whether a packet with this key is watched; it is marked then.
    fn is_watched(&mut self, packet: &mut PacketBox, key: &FlowKey) -> bool {
        if let Some(eye) = &mut self.eye {
            let new = eye.recognise(packet, key);
            // Behind a switch that knew it, it has come in there.
            if new != 0 && self.settings.switches == 0 {
                let event = Event::came(packet);
                eye.note_for(new, packet, self.now, event);
            }
        }
        packet.has(WATCHED)
    }

    /// Notes a step of a packet, if anybody wants to know.
    #[inline(always)]
    pub(super) fn see(&mut self, packet: &Packet, event: Event) {
        if self.eye.is_some() {
            self.see_now(packet, event);
        }
    }

    #[cold]
    #[inline(never)]
    fn see_now(&mut self, packet: &Packet, event: Event) {
        if let Some(eye) = &mut self.eye
            && packet.has(WATCHED)
        {
            eye.note(packet, self.now, event);
        }
    }

    /// [`Runtime::begin`] of a packet that may be watched.
    #[inline(always)]
    pub(super) fn begin_seen(&mut self, actor: u32, packet: PacketBox, direction: Direction) {
        if self.eye.is_some() {
            self.begin_watched(actor, packet, direction);
        } else {
            self.begin::<false>(actor, packet, direction);
        }
    }

    #[cold]
    #[inline(never)]
    fn begin_watched(&mut self, actor: u32, packet: PacketBox, direction: Direction) {
        self.begin::<true>(actor, packet, direction);
    }

    /// A packet enters its chain.
    #[inline(always)]
    pub(super) fn look<const SEEN: bool>(
        &mut self,
        actor: u32,
        packet: &Packet,
        direction: Direction,
        passed: usize,
    ) -> Look {
        if !SEEN || self.eye.is_none() || !packet.has(WATCHED) {
            return Look::NONE;
        }
        let look = Look::at(packet);
        let chain = self.flows.header(actor).chain;
        // A call that is over may have been its last.
        let is_ahead = passed < self.stages.chains[usize::from(chain)].len();
        if let Some(ends) = look.ends.filter(|_| is_ahead) {
            let passed = passed as u8;
            self.see_now(
                packet,
                Event::Enters {
                    chain,
                    direction,
                    passed,
                    ends,
                },
            );
        }
        look
    }

    /// A function has had the packet, or has it still: a box can be handed on without a look at what is in it. Whoever writes an answer
    /// over a packet wipes its marks out, too.
    #[inline(always)]
    pub(super) fn seen(
        &mut self,
        look: &mut Look,
        packet: &mut PacketBox,
        function: u8,
        code: Code,
        resumed: bool,
    ) {
        if look.marks != 0 {
            self.seen_now(look, packet, function, code, resumed);
        }
    }

    #[cold]
    #[inline(never)]
    fn seen_now(&mut self, look: &mut Look, packet: &mut PacketBox, function: u8, code: Code, resumed: bool) {
        if code == Code::WAITING {
            return self.seen_waiting(look, function);
        }
        packet.set_flags(look.marks);
        if code == Code::ANSWER && !packet.has(wire::packet::flag::PARSED) {
            // Its addresses are to be shown; whether it is a packet at all is judged where it is sent back.
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
        self.see_now(packet, event);
    }

    /// A call waits. Its future has the packet, so nobody else may look at it till it is done: not even to say what it is called.
    fn seen_waiting(&mut self, look: &Look, function: u8) {
        self.parking = *look;
        if let (Some(eye), Some(ends)) = (&mut self.eye, look.ends) {
            let event = Event::Passed {
                function,
                verdict: Verdict::Wait,
                resumed: false,
                before: ends,
                after: ends,
            };
            eye.note_named(look.marks, look.name, self.now, event);
        }
    }

    /// A waiting call has gone on.
    pub(super) fn see_resumed(&mut self, mut look: Look, job: &mut Job, at: usize, code: Code) {
        if look.marks != 0 {
            let chain = usize::from(self.flows.header(job.actor).chain);
            let function = self.stages.chains[chain][at].function;
            self.seen_now(&mut look, &mut job.packet, function, code, true);
        }
    }

    /// A function's reason, by its number.
    fn reason(&self, function: usize, index: usize) -> &'static str {
        let reasons = self.stages.functions[function].reasons();
        reasons.get(index).copied().unwrap_or("undeclared")
    }

    /// A function drops a packet.
    pub(super) fn see_drop(&mut self, packet: &Packet, function: usize, index: usize) {
        if self.eye.is_some() {
            let reason = self.reason(function, index);
            if let Some(eye) = &mut self.eye {
                eye.dropped(packet, self.now, Some(function as u8), reason);
            }
        }
    }

    /// A function has made a packet beside the one at hand. It belongs to whoever watches that one.
    pub(super) fn see_made(&mut self, job: &Job, at: usize, made: &mut Packet, way: Way) {
        if self.eye.is_some() {
            made.set_port(job.packet.port());
            made.set_flags(job.packet.flags() & WATCHED);
            let chain = usize::from(self.flows.header(job.actor).chain);
            let function = self.stages.chains[chain][at].function;
            let back = way == Way::Back;
            self.see_now(made, Event::Made { function, back });
        }
    }

    /// A flow has got its second key.
    pub(super) fn see_second_key(&mut self, actor: u32, key: FlowKey, packet: &Packet) {
        if self.eye.is_none() {
            return;
        }
        let first = self.flows.header(actor).key;
        let Ends { source, destination } = Ends::of(packet);
        self.see_now(packet, Event::SecondKey { source, destination });
        if let Some(eye) = &mut self.eye {
            eye.learn_both(first, key);
        }
    }
}
