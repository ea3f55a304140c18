//! A place for a link to a worker of a member that the configuration does not list: links are laid
//! in it and taken down while the worker runs.
//!
//! # Theory of operation
//!
//! A worker has a link to each runtime that there may be, from its start. The link to a runtime
//! that no configuration lists is a berth. While it is vacant its session is 0, so the worker never
//! chooses the runtime, like a listed one that is not started yet.
//!
//! ```text
//!              set(link): another thread made it                       set(none), or set(another link)
//!   vacant ───────────────────────────────────► laid: all calls pass ──────────────► closing: session 0, others' buffers go home
//!      ▲                                                                                 │
//!      └── the next one is laid, if there is one ◄── retired: another thread drops it ◄──┘
//! ```
//!
//! Sockets and memory are made and dropped by the thread that lays links (`laying.rs`), so no
//! worker waits for the kernel for that. The session changes in [`Port::receive`] only, in a call
//! that appends nothing.
//!
//! Invariants: no buffer is lost with a link: own ones go to the pool, others' come out of
//! `receive` as empty ones; figures go on from link to link.
//!
//! Not here: which links there are to be (`laying.rs`).

use super::links::WorkerLink;
use runtime::env::{AttachError, Burst, Port, PortCounters, give_or_keep};
use std::cell::Cell;
use wire::packet::Kind;
use wire::{PacketList, Pool};

/// Sessions of the links that were laid in a berth, one after the other, differ from this bit on.
const LAID: u32 = 48;

std::thread_local! {
    static CHANGES: Cell<u32> = const { Cell::new(0) };
}

/// How often a link was laid or taken down in berths of this thread's workers: another number, and
/// other descriptors say that something was received.
pub(super) fn changes() -> u32 {
    CHANGES.get()
}

/// See the module's page.
#[derive(Default)]
pub(crate) struct Berth {
    link: Option<Box<WorkerLink>>,
    /// The link that is laid when there is room.
    next: Option<Box<WorkerLink>>,
    /// The link is to be taken down, and whether the worker has seen its session end.
    is_closing: bool,
    is_shut: bool,
    retired: Option<Box<WorkerLink>>,
    /// How many links were laid here.
    laid: u64,
    /// Others' empty buffers.
    homeward: PacketList,
    /// Figures of links that were here.
    before: PortCounters,
}

impl Berth {
    /// Has this link laid here, or none, in place of the present one. Answers with the link that
    /// was to be laid and was not.
    pub fn set(&mut self, link: Option<Box<WorkerLink>>) -> Option<Box<WorkerLink>> {
        self.is_closing = self.link.is_some();
        std::mem::replace(&mut self.next, link)
    }

    /// The link that was taken down, to be dropped elsewhere.
    pub fn take_retired(&mut self) -> Option<Box<WorkerLink>> {
        self.retired.take()
    }

    /// Whether no link is here, and none comes.
    pub fn is_vacant(&self) -> bool {
        self.link.is_none() && self.next.is_none()
    }

    /// The link that is here, or comes.
    pub fn link(&self) -> Option<&WorkerLink> {
        self.link.as_deref().or(self.next.as_deref())
    }

    /// Does something with the link that is here, and with the next one.
    pub fn each(&mut self, mut act: impl FnMut(&mut WorkerLink)) {
        let all = [&mut self.link, &mut self.next];
        all.into_iter().flatten().for_each(|link| act(link));
    }

    /// The link by which packets pass.
    #[inline]
    fn open(&self) -> Option<&WorkerLink> {
        self.link.as_deref().filter(|_| !self.is_shut)
    }

    #[cold]
    fn close(&mut self, pool: &mut Pool, burst: &mut Burst) {
        if !std::mem::replace(&mut self.is_shut, true) {
            return;
        }
        let Some(link) = &mut self.link else { return };
        if self.retired.is_none() && link.clear(pool, burst) {
            add(&mut self.before, link.counters());
            self.retired = self.link.take();
            (self.is_closing, self.is_shut) = (false, false);
            CHANGES.set(CHANGES.get().wrapping_add(1));
        }
    }

    #[cold]
    fn lay(&mut self, pool: &mut Pool) {
        // Its buffers are those of all links of this worker, which were attached at the start.
        if let Some(mut next) = self.next.take()
            && next.attach(pool).is_ok()
        {
            self.link = Some(next);
            self.laid += 1;
            CHANGES.set(CHANGES.get().wrapping_add(1));
        }
    }
}

fn add(sum: &mut PortCounters, more: PortCounters) {
    sum.received_packets += more.received_packets;
    sum.received_bytes += more.received_bytes;
    sum.sent_packets += more.sent_packets;
    sum.sent_bytes += more.sent_bytes;
    sum.refused_packets += more.refused_packets;
    sum.unsent_packets += more.unsent_packets;
    sum.lost_packets += more.lost_packets;
    sum.answered_packets += more.answered_packets;
}

impl Port for Berth {
    fn frame_max(&self) -> usize {
        // A vacant berth receives nothing.
        self.link().map_or(0, Port::frame_max)
    }

    fn attach(&mut self, _: &mut Pool) -> Result<(), AttachError> {
        Ok(())
    }

    fn reap_transmitted(&mut self, pool: &mut Pool) {
        if let Some(link) = &mut self.link {
            link.reap_transmitted(pool);
        }
    }

    #[inline]
    fn receive(&mut self, now: u64, pool: &mut Pool, burst: &mut Burst) {
        while !burst.is_full()
            && let Some(packet) = self.homeward.pop()
        {
            burst.push(packet);
        }
        if self.is_closing {
            return self.close(pool, burst);
        }
        match &mut self.link {
            Some(link) => link.receive(now, pool, burst),
            None if self.next.is_some() => self.lay(pool),
            None => {}
        }
    }

    #[inline]
    fn transmit(&mut self, now: u64, pool: &mut Pool, burst: &mut Burst) {
        if !self.is_shut
            && let Some(link) = &mut self.link
        {
            return link.transmit(now, pool, burst);
        }
        for packet in burst.drain(..) {
            self.before.unsent_packets += u64::from(packet.kind() == Kind::Data);
            if let Some(mut packet) = give_or_keep(pool, packet) {
                packet.set_kind(Kind::Empty);
                self.homeward.push(packet);
            }
        }
    }

    fn waits(&self) -> bool {
        true
    }

    #[inline]
    fn room(&self) -> usize {
        self.open().map_or(0, Port::room)
    }

    fn next_at(&self) -> Option<u64> {
        match self.is_closing || self.link.is_none() && self.next.is_some() {
            true => Some(0),
            false => self.open()?.next_at(),
        }
    }

    fn wakes_by(&self) -> Option<Vec<i32>> {
        self.link.as_deref().map_or(Some(Vec::new()), Port::wakes_by)
    }

    #[inline]
    fn session(&self) -> u64 {
        // Links through shared memory each count their sessions from 1, and the worker remembers
        // the last one here as over.
        match self.open().map_or(0, Port::session) {
            0 => 0,
            session => session.wrapping_add(self.laid << LAID).max(1),
        }
    }

    fn is_apart(&self) -> bool {
        true
    }

    fn has_other_clock(&self) -> bool {
        // The clock of the next link, if it replaces another.
        let link = self.next.as_deref().or(self.link.as_deref());
        link.is_none_or(Port::has_other_clock)
    }

    fn flush(&mut self) {
        if !self.is_shut
            && let Some(link) = &mut self.link
        {
            link.flush();
        }
    }

    fn counters(&self) -> PortCounters {
        let mut sum = self.before;
        if let Some(link) = &self.link {
            add(&mut sum, link.counters());
        }
        sum
    }
}
