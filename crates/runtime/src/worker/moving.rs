//! Groups that move, as the worker sees it: records of other runtimes come in, effects are applied.
//!
//! Not here: how a group moves ([`crate::mobility`]).

use super::Runtime;
use crate::env::{Burst, Port};
use crate::mobility::{MoveOrder, OrderError, Receipt};
use crate::record::Record;
use alloc::vec::Vec;
use wire::packet::Kind;

impl<P: Port> Runtime<P> {
    /// Joins this runtime with the others: `peers` are its links to them by their numbers, `None`
    /// for itself.
    pub fn join(&mut self, peers: Vec<Option<P>>) {
        let sessions = peers.iter().map(|peer| peer.as_ref().map_or(0, Port::session));
        self.core.sessions.note_runtimes(sessions.collect());
        let clocks = peers.iter().map(|peer| peer.as_ref().map(Port::has_other_clock));
        let clocks: Vec<_> = clocks.collect();
        let others = clocks.iter().map(|clock| clock.unwrap_or(false));
        // Where all workers are one process, one may begin again alone: others see that by its
        // session.
        let is_member = self.links.iter().any(Port::is_apart);
        let is_mate = peers
            .iter()
            .map(|peer| is_member && peer.as_ref().is_some_and(|peer| !peer.is_apart()));
        let is_mate: Vec<bool> = is_mate.collect();
        self.keeper.join(others.collect(), is_mate.clone());
        self.moves.join(clocks, &mut self.core);
        self.peers = peers;
        // The end of a ring was there from the beginning: no session begins in which that is said.
        for (runtime, _) in is_mate.iter().enumerate().filter(|(_, is_mate)| **is_mate) {
            if self.core.sessions.runtimes[runtime] != 0 {
                self.greet_runtime(runtime);
            }
        }
        self.core.choose_replica();
    }

    /// Another link was laid to a runtime that was not there. `rank`: how good a place it is for
    /// copies, as in [`Settings::replica_ranks`](crate::Settings).
    pub fn relaid(&mut self, runtime: u16, rank: Option<u8>) {
        let place = usize::from(runtime);
        let Some(Some(link)) = self.peers.get(place) else {
            return;
        };
        let has_other_clock = link.has_other_clock();
        self.keeper.set_clock(place, has_other_clock);
        self.moves.set_clock(place, has_other_clock);
        if let Some(known) = self.core.settings.replica_ranks.get_mut(place) {
            *known = rank;
        }
        self.core.choose_replica();
    }

    /// Reads what other runtimes say and hand over.
    #[inline]
    pub(super) fn handle_runtimes(&mut self) -> usize {
        let mut count = 0;
        for peer in 0..self.peers.len() {
            let is_still = self.peers[peer].as_ref().is_none_or(Port::is_still);
            if is_still && !self.core.sessions.has_runtime(peer as u16) {
                continue;
            }
            // States come in thousands of frames.
            for _ in 0..8 {
                let mut burst = Burst::new();
                let mut is_over = false;
                if self.core.out.pool().free() >= crate::mobility::ANSWERS
                    && let Some(link) = &mut self.peers[peer]
                {
                    let is_heard = self.core.sessions.may_read_runtime(peer, link.session());
                    if is_heard || self.core.sessions.is_runtime_fenced(peer, link.session()) {
                        link.receive(self.core.now, self.core.out.pool_mut(), &mut burst);
                    }
                    is_over = self.core.sessions.is_runtime_over(peer, link.session());
                    if !is_heard {
                        self.drop_unheard(&mut burst);
                    }
                }
                if !burst.is_empty() {
                    count += self.take_from_runtime(peer, burst);
                } else if !is_over {
                    break;
                }
                if is_over {
                    self.runtime_session_over(peer);
                    break;
                }
            }
        }
        count
    }

    fn take_from_runtime(&mut self, peer: usize, burst: Burst) -> usize {
        let count = burst.len();
        self.moves.prefetch_groups_named(&self.core, &burst);
        let session = self.core.sessions.runtimes[peer];
        for packet in burst {
            if self.core.sessions.is_runtime_fenced(peer, session) {
                self.drop_unheard(&mut Burst::from_iter([packet]));
                continue;
            }
            match packet.kind() {
                Kind::Empty => self.core.out.recycle(packet),
                Kind::Message => {
                    let mut bytes = packet.frame();
                    loop {
                        if let Some((copy, rest)) = Record::read_copy(bytes) {
                            bytes = rest;
                            self.keeper.take(&mut self.core, peer, copy);
                            continue;
                        }
                        if let Some((is_last, piece, rest)) = Record::read_object(bytes) {
                            bytes = rest;
                            self.take_object(peer, is_last, piece);
                            continue;
                        }
                        if let Some((incarnation, since, rest)) = Record::read_incarnation(bytes) {
                            bytes = rest;
                            self.handle_incarnation(peer, incarnation, since);
                            if self.core.sessions.is_runtime_fenced(peer, session) {
                                break;
                            }
                            continue;
                        }
                        let Some(rest) = self.moves.read_record(&mut self.core, peer, bytes) else {
                            break;
                        };
                        bytes = rest;
                        self.apply_moves();
                    }
                    self.core.out.recycle(packet);
                }
                Kind::Data => {
                    self.moves.take_handed(&mut self.core, peer, packet);
                    self.apply_moves();
                }
            }
        }
        count
    }

    /// Goes on with all moves; answers how much was done.
    #[inline]
    pub(super) fn go_on_moving(&mut self) -> usize {
        match self.moves.has_work() {
            true => self.move_on(),
            false => 0,
        }
    }

    #[cold]
    fn move_on(&mut self) -> usize {
        let mut work = self.moves.go_on(&mut self.core);
        self.apply_moves();
        let ready = self.moves.quiesced_moves(&mut self.core);
        if !ready.is_empty() {
            // *DrainMarker* goes behind all packets and messages of these groups.
            self.transmit();
        }
        work += ready.len();
        for id in ready {
            self.moves.quiesced(&mut self.core, id);
        }
        work += self.moves.send_states(&mut self.core);
        self.moves.watch_moves(&mut self.core);
        self.apply_moves();
        work
    }

    /// Begins to move flows; the number under which [`Runtime::receipt`] tells how it goes.
    pub fn order(&mut self, order: MoveOrder) -> Result<u32, OrderError> {
        self.order_with(order, &[])
    }

    /// The same; a group that does not move to its targets may be offered to these, too, as far as
    /// they are there then.
    pub fn order_with(&mut self, order: MoveOrder, others: &[u16]) -> Result<u32, OrderError> {
        self.order_some(order, others, u32::MAX)
    }

    /// The same, of no more than so many flows. Groups move whole: a group that has more flows than
    /// are left of that stays.
    pub fn order_some(&mut self, order: MoveOrder, others: &[u16], count: u32) -> Result<u32, OrderError> {
        self.moves.order_some(&mut self.core, order, others, count)
    }

    /// Takes back the moves of an order that have not begun, if there is such an order.
    pub fn cancel(&mut self, number: u32) {
        self.moves.cancel(&mut self.core, number);
    }

    /// The progress of an order; `None` if it is long over.
    pub fn receipt(&mut self, number: u32) -> Option<Receipt> {
        self.moves.receipt(number)
    }

    /// Whether an order is over; a forgotten one is.
    pub fn is_over(&mut self, number: u32) -> bool {
        self.moves.is_over(number)
    }

    /// How many groups there are of whose keys switches are still to be told.
    pub fn key_messages_unsent(&self) -> usize {
        self.moves.key_messages_unsent()
    }

    /// How long moves that begin from now on may take, in nanoseconds, before they are given up.
    pub fn set_move_timeout(&mut self, timeout: u64) {
        self.core.settings.move_timeout = timeout;
    }

    /// Takes no more groups from other runtimes, or does again.
    pub fn set_leaving(&mut self, is_leaving: bool) {
        if core::mem::replace(&mut self.core.is_leaving, is_leaving) && !is_leaving {
            self.core.stay();
        }
    }

    /// The work left for groups on their way, to or from here.
    #[cfg(test)]
    pub(crate) fn moves_left(&self) -> Vec<alloc::string::String> {
        self.moves.moves_left(&self.core)
    }

    /// Has a switch say of every group on its way from here that another runtime has it.
    #[cfg(test)]
    pub(crate) fn fence_all(&mut self, switch: u8) {
        self.moves.fence_all(&mut self.core, switch);
        self.apply_moves();
    }

    /// Has every group on its way from here take too long.
    #[cfg(test)]
    pub(crate) fn call_back_all(&mut self) {
        self.moves.call_back_all(&mut self.core);
        self.apply_moves();
    }

    /// Whether anything is noted that a replica is to be told, for tests.
    #[cfg(test)]
    pub fn has_noted(&self) -> bool {
        self.core.flows.has_ended() || self.core.flows.owners.has_changes()
    }

    /// Takes buffers until so few are left, for tests: no link holds more.
    #[cfg(test)]
    pub fn take_buffers(&mut self, left: usize) -> alloc::vec::Vec<wire::PacketBox> {
        let count = self.core.out.pool().free().saturating_sub(left);
        let pool = self.core.out.pool_mut();
        (0..count).filter_map(|_| pool.take()).collect()
    }

    /// Gives them back, for tests.
    #[cfg(test)]
    pub fn give_buffers(&mut self, buffers: alloc::vec::Vec<wire::PacketBox>) {
        let pool = self.core.out.pool_mut();
        buffers.into_iter().for_each(|buffer| pool.give(buffer));
    }

    /// Blocks of groups that are here, for tests.
    #[cfg(test)]
    pub fn blocks_here(&mut self) -> alloc::vec::Vec<((nf::Addr, u16), crate::group::GroupKey)> {
        let owners = &self.core.flows.owners;
        let places = owners.places().into_iter();
        let owned = places.filter_map(|place| Some((place, owners.at(place.0, place.1)?)));
        let mut owned: alloc::vec::Vec<_> = owned.collect();
        owned.retain(|(_, group)| self.core.has_group(group));
        owned
    }

    /// Records for other runtimes that wait for buffers, for tests.
    #[cfg(test)]
    pub fn records_pending(&self) -> usize {
        self.core.out.records_pending()
    }

    /// Records for the replica that it has not acknowledged, for tests.
    #[cfg(test)]
    pub fn records_unacknowledged(&self) -> u64 {
        self.core.sender.sent() - self.core.gate.acknowledged()
    }

    /// Bytes that are held for copies, others' and its own, for tests; but for [`Runtime::shadow`].
    #[cfg(test)]
    pub fn copy_bytes(&self) -> usize {
        self.keeper.bytes() + self.core.gate.bytes() + self.core.sender.bytes()
    }

    /// The committed bytes of a flow as they were noted last, for tests. Each runtime has room for
    /// one flow's, which begins zeroed.
    #[cfg(test)]
    pub fn shadow(&self) -> &[u8] {
        self.core.runner.stages().shadow()
    }

    /// Groups on their way, for tests.
    #[cfg(test)]
    pub fn moves_under_way(&self) -> Vec<(crate::group::GroupKey, protocols::ownership::Phase)> {
        self.moves.moves_under_way()
    }

    /// Which incarnation it says that it is, if not by views, for tests.
    #[cfg(test)]
    pub fn said_incarnation(&self) -> u64 {
        self.core.incarnation()
    }

    /// Which groups have which blocks here, for tests.
    #[cfg(test)]
    pub fn blocks(&self) -> Vec<((nf::Addr, u16), crate::group::GroupKey)> {
        let places = self.core.flows.owners.places().into_iter();
        places
            .filter_map(|(addr, first)| Some(((addr, first), self.core.flows.owners.at(addr, first)?)))
            .collect()
    }
}
