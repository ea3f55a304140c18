//! The switch's own ports: which packets are read when, and what leaves by them.
//!
//! # Theory of operation
//!
//! *Back-pressure.* A port that can wait is not read while a runtime's queue is nearly full, nor
//! while packets wait to leave by a port of this switch; each time is a *stall*. Packets that a
//! waiting port has no room for stay here, in order, until it has. No more can wait than there are
//! buffers, and a switch without buffers reads nothing: so packets that a reflector cannot take in
//! hold a generator at another switch in the end, and nothing is lost. A port that cannot wait is
//! given everything, and counts what it loses; it is read as long as *some* runtime has room. So
//! one runtime's full queue does not hold up the others' packets (packets for it are counted
//! drops), and when all are full, packets that would be dropped behind parsing and routing stay in
//! the device's queue, are taken up when there is room, and if that does not come in time are lost
//! there for less. Where every port of the cluster can wait, packets that a peer hands over, and
//! turned ones, wait for the runtime's queue, too.
//!
//! ```text
//!   generator ─► switch 0 ─► runtimes ─► switch 1 ─► [ waiting ] ─► reflector ─► switch 1 ─► runtimes ─► …
//!        ▲ no buffer left: not read          │ no room: its buffers stay here
//! ```
//!
//! The port that answers is read on meanwhile, for its room comes of that.
//!
//! *Reading by time.* Where packets carry the time, ports are read a burst ahead, and packets are
//! taken up in the order of their times, whatever port they come from. A host answers a packet that
//! is late by its time with the time of that packet; so nothing is taken up that is more than
//! [`SwitchSettings::lead_max`](super::SwitchSettings::lead_max) later than a time at which
//! everything earlier was done with, answers included. That everything is done with shows in the
//! pool: all buffers are home. A function may hold packets, or wait for a time that only later
//! packets bring: after [`PATIENCE`] steps in which nothing moves, packets that are out count as
//! held, and time goes on.
//!
//! *Delay.* Of every [`SAMPLE`]th packet that leaves, the time from being read to being sent is
//! noted. The count of sent packets says when one is due, so a burst costs an exclusive or, a
//! comparison and a jump, and a packet nothing. A packet's time that is no reading of the switch's
//! clock is told by being later than now, or longer ago than [`DELAY_MAX`]; where packets carry the
//! time nothing is noted.
//!
//! Invariants: packets of a port are taken up, and leave, in order; a port that answers is never
//! held up by time or by packets that wait to leave.
//!
//! Not here: routes.

use super::outbox::Outbox;
use super::{Local, SideRule, SwitchSettings};
use crate::env::{AttachError, BURST, Burst, Port, PortCounters};
use crate::stats::{DropReason, Durations};
use alloc::vec::Vec;
use nf::{Prefix, Side};
use wire::{Packet, PacketBox, PacketList, Pool};

struct Slot<P> {
    port: P,
    rule: SideRule,
    burst: Burst,
    /// Packets that the port had no room for, oldest first.
    waiting: PacketList,
    /// Packets that were read and are not yet taken up, oldest last.
    ahead: Burst,
}

/// How far reading by time has got.
#[derive(Default)]
struct Progress {
    /// A time at which everything earlier was done with.
    done: u64,
    /// Buffers out at that time: packets held.
    held: usize,
    /// Steps since in which nothing moved.
    quiet: u32,
}

/// Of so many packets one's delay is noted: a power of two.
const SAMPLE: u64 = 1024;
/// In nanoseconds: a packet that seems to have been inside for longer has its time from elsewhere,
/// a capture for example.
const DELAY_MAX: u64 = 60_000_000_000;

/// Steps without a movement after which packets that are out count as held.
pub const PATIENCE: u32 = 1000;

/// See the module's page.
pub(super) struct Ports<P> {
    slots: Vec<Slot<P>>,
    egress: [Option<u8>; 2],
    lead_max: u64,
    is_patient: bool,
    is_reading: bool,
    progress: Progress,
    received: u64,
    sent: u64,
    stalls: u64,
    /// Whether packets carry the time.
    packet_clock: bool,
    delays: Durations,
}

impl<P: Port> Ports<P> {
    pub fn new(ports: Vec<(P, SideRule)>, settings: &SwitchSettings) -> Self {
        let slots = ports.into_iter().map(|(port, rule)| Slot {
            port,
            rule,
            burst: Burst::new(),
            waiting: PacketList::new(),
            ahead: Burst::new(),
        });
        Ports {
            slots: slots.collect(),
            egress: settings.egress,
            lead_max: settings.lead_max,
            is_patient: settings.patient,
            is_reading: true,
            progress: Progress::default(),
            received: 0,
            sent: 0,
            stalls: 0,
            packet_clock: settings.packet_clock,
            delays: Durations::default(),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    // Output.

    /// Sends a processed packet by the port of its side.
    #[inline]
    pub fn send<L: Port>(&mut self, packet: PacketBox, outbox: &mut Outbox<L>, local: &mut Local) {
        let port = match packet.egress() {
            None => self.egress[packet.exit() as usize],
            Some(port) => Some(port / local.switches),
        };
        let Some((port, slot)) = port.and_then(|port| Some((port, self.slots.get_mut(usize::from(port))?)))
        else {
            return outbox.drop_packet(packet, DropReason::NoEgress, local);
        };
        slot.burst.push(packet);
        if slot.burst.is_full() {
            self.transmit(usize::from(port), outbox, local);
        }
    }

    /// Sends what a port has room for.
    fn transmit<L: Port>(&mut self, port: usize, outbox: &mut Outbox<L>, local: &mut Local) {
        let slot = &mut self.slots[port];
        if !slot.waiting.is_empty() || (slot.port.room() < slot.burst.len() && slot.port.waits()) {
            return self.transmit_as_room_is(port, outbox, local);
        }
        self.transmit_burst(port, outbox, local);
    }

    fn transmit_burst<L: Port>(&mut self, port: usize, outbox: &mut Outbox<L>, local: &mut Local) {
        let slot = &mut self.slots[port];
        let before = self.sent;
        self.sent += slot.burst.len() as u64;
        if (before ^ self.sent) >= SAMPLE && !self.packet_clock {
            note_delay(&slot.burst, local.now, &mut self.delays);
        }
        let number = local.port_number(port);
        if let Some(tap) = &mut local.tap {
            tap.goes(&slot.burst, number, local.now);
        }
        slot.port.transmit(local.now, &mut local.pool, &mut slot.burst);
        // The remaining buffers are done with, and of other pools.
        for packet in core::mem::take(&mut slot.burst) {
            outbox.give_home(packet, local);
        }
    }

    /// [`Ports::transmit`] where packets wait, or must.
    #[cold]
    fn transmit_as_room_is<L: Port>(&mut self, port: usize, outbox: &mut Outbox<L>, local: &mut Local) {
        let slot = &mut self.slots[port];
        for packet in slot.burst.drain(..) {
            slot.waiting.push(packet);
        }
        loop {
            let slot = &mut self.slots[port];
            let mut room = slot.port.room().min(BURST);
            while room > 0
                && let Some(packet) = slot.waiting.pop()
            {
                slot.burst.push(packet);
                room -= 1;
            }
            if slot.burst.is_empty() {
                return;
            }
            self.transmit_burst(port, outbox, local);
        }
    }

    /// Sends packets that wait, as far as ports have room.
    pub fn flush<L: Port>(&mut self, outbox: &mut Outbox<L>, local: &mut Local) {
        for port in 0..self.slots.len() {
            let slot = &self.slots[port];
            if !slot.burst.is_empty() || !slot.waiting.is_empty() {
                self.transmit(port, outbox, local);
            }
        }
    }

    // Input.

    /// Some of what a port has, to be taken in at once.
    pub fn receive<L: Port>(&mut self, index: usize, outbox: &Outbox<L>, local: &mut Local) -> Burst {
        let mut burst = Burst::new();
        if self.may_read(index, outbox) {
            let aside = outbox.set_aside(&mut local.pool);
            let port = &mut self.slots[index].port;
            port.receive(local.now, &mut local.pool, &mut burst);
            take_back(aside, &mut local.pool);
            self.received += burst.len() as u64;
        }
        burst
    }

    /// Whether a port is to be read now.
    fn may_read<L: Port>(&mut self, index: usize, outbox: &Outbox<L>) -> bool {
        let port = &self.slots[index].port;
        if !self.is_reading && !port.answers() {
            return false;
        }
        let is_stalled = if port.waits() {
            !outbox.all_have_room() || (!port.answers() && self.is_held_up())
        } else {
            !port.answers() && outbox.all_are_full()
        };
        self.stalls += u64::from(is_stalled);
        !is_stalled
    }

    /// Whether what others brought is to be routed now.
    pub fn may_route<L: Port>(&mut self, outbox: &Outbox<L>) -> bool {
        let may = !self.is_patient || outbox.all_have_room();
        self.stalls += u64::from(!may);
        may
    }

    /// Whether packets wait for room at a port.
    fn is_held_up(&self) -> bool {
        self.slots.iter().any(|slot| !slot.waiting.is_empty())
    }

    /// From which side a port's packet comes.
    #[inline]
    pub fn side(&self, index: usize, packet: &Packet) -> Side {
        self.slots[index].rule.side(packet)
    }

    /// The prefixes that are inside, of a port that tells sides by them.
    #[inline]
    pub fn inside(&self, index: usize) -> Option<&[Prefix]> {
        match &self.slots[index].rule {
            SideRule::Fixed(_) => None,
            SideRule::BySource(prefixes) => Some(prefixes),
        }
    }

    /// Where packets carry the time: those of a port that are next, to be taken in at once. `held`
    /// packets wait for later fragments.
    pub fn receive_next<L: Port>(
        &mut self,
        held: usize,
        outbox: &Outbox<L>,
        local: &mut Local,
    ) -> Option<(usize, Burst)> {
        for port in 0..self.slots.len() {
            self.read_ahead(port, outbox, local);
        }
        let (index, time) = self.earliest()?;
        if !self.slots[index].port.answers() && !self.may_go_on_to(time, held, &local.pool) {
            return None;
        }
        if !outbox.all_have_room() {
            self.stalls += 1;
            return None;
        }
        let others = self.slots.iter().enumerate().filter(|(other, _)| *other != index);
        let until = others
            .filter_map(|(_, slot)| slot.ahead.last().map(|packet| packet.timestamp()))
            .fold(self.progress.done.saturating_add(self.lead_max), u64::min)
            .max(time);
        let mut burst = Burst::new();
        let ahead = &mut self.slots[index].ahead;
        while ahead.last().is_some_and(|packet| packet.timestamp() <= until)
            && let Some(packet) = ahead.pop()
        {
            burst.push(packet);
        }
        self.received += burst.len() as u64;
        self.moved();
        Some((index, burst))
    }

    fn read_ahead<L: Port>(&mut self, index: usize, outbox: &Outbox<L>, local: &mut Local) {
        if self.slots[index].ahead.is_empty() && self.may_read(index, outbox) {
            let aside = outbox.set_aside(&mut local.pool);
            let slot = &mut self.slots[index];
            slot.port.receive(local.now, &mut local.pool, &mut slot.ahead);
            slot.ahead.reverse();
            take_back(aside, &mut local.pool);
        }
    }

    /// Which port has the packet of the earliest time, and that time; of equals the first.
    fn earliest(&self) -> Option<(usize, u64)> {
        let heads = self.slots.iter().enumerate();
        heads
            .filter_map(|(index, slot)| Some((index, slot.ahead.last()?.timestamp())))
            .min_by_key(|(_, time)| *time)
    }

    /// Whether a packet of this time may be taken up: all much earlier packets are done with.
    fn may_go_on_to(&mut self, time: u64, held: usize, pool: &Pool) -> bool {
        if time <= self.progress.done.saturating_add(self.lead_max) {
            return true;
        }
        let here = self.slots.iter().flat_map(|slot| &slot.ahead);
        let here = here.filter(|packet| packet.origin() == pool.origin()).count();
        // Fragments that wait for their first one wait for later packets.
        let out = (pool.total() - pool.free() - here).saturating_sub(held);
        if out <= self.progress.held || self.progress.quiet >= PATIENCE {
            self.progress = Progress {
                done: time,
                held: out,
                quiet: 0,
            };
            return true;
        }
        self.progress.quiet += 1;
        false
    }

    /// Something has moved in this step.
    pub fn moved(&mut self) {
        self.progress.quiet = 0;
    }

    // For drivers.

    /// Reads no more, but from ports that answer.
    pub fn stop_reading(&mut self) {
        self.is_reading = false;
    }

    /// Whether every port has brought all it ever will, and nothing waits.
    pub fn finished(&self) -> bool {
        self.slots.iter().all(|slot| {
            let is_over = slot.port.finished() || (!self.is_reading && !slot.port.answers());
            is_over && slot.waiting.is_empty() && slot.ahead.is_empty()
        })
    }

    /// Gives buffers that devices are done with back.
    pub fn reap_transmitted(&mut self, pool: &mut Pool) {
        self.each_mut().for_each(|port| port.reap_transmitted(pool));
    }

    /// Has each port answer for these addresses, by the ports' order, and for no others
    /// ([`Port::claim`]).
    pub fn claim(&mut self, addresses: &[Vec<Prefix>]) -> Result<(), AttachError> {
        let mut ports = self.each_mut().zip(addresses);
        ports.try_for_each(|(port, addresses)| port.claim(addresses))
    }

    /// The ports.
    pub fn each(&self) -> impl Iterator<Item = &P> {
        self.slots.iter().map(|slot| &slot.port)
    }

    /// The ports, to be changed.
    pub fn each_mut(&mut self) -> impl Iterator<Item = &mut P> {
        self.slots.iter_mut().map(|slot| &mut slot.port)
    }

    /// A port, to be changed.
    pub fn port_mut(&mut self, index: usize) -> &mut P {
        &mut self.slots[index].port
    }

    /// The ports' own counters.
    pub fn counters(&self) -> impl Iterator<Item = PortCounters> {
        self.each().map(Port::counters)
    }

    /// Packets received, and sent or given to a port that lost them; and how often a port was not
    /// read for want of room.
    pub fn figures(&self) -> [u64; 3] {
        [self.received, self.sent, self.stalls]
    }

    /// How long packets were inside: of one of so many.
    pub fn delays(&self) -> Durations {
        self.delays
    }
}

/// Notes how long the packet that leaves first has been inside.
#[cold]
fn note_delay(burst: &Burst, now: u64, delays: &mut Durations) {
    let delay = burst
        .first()
        .and_then(|packet| now.checked_sub(packet.timestamp()));
    if let Some(delay) = delay.filter(|delay| *delay <= DELAY_MAX) {
        delays.note(delay);
    }
}

fn take_back(mut aside: PacketList, pool: &mut Pool) {
    while let Some(buffer) = aside.pop() {
        pool.give(buffer);
    }
}
