//! Blocks of ports that go to another runtime.
//!
//! ```text
//!   a block is lent, or goes home ─► part ─┬─ no copies are kept ─────────────────────────────► announced
//!                                          └─ waits ─ its last record is sent ─ acknowledged ─► announced
//! ```
//!
//! A block that leaves had a group here a moment ago, and the replica may not know that this is
//! over. If this runtime fails then, its heir claims the block for that group, while another
//! runtime has given it to a host.
//!
//! Invariants: where copies are kept, no block leaves before the replica has acknowledged all
//! records up to the end of its last use here; blocks leave in order, and each of them once.
//!
//! Not here: blocks of groups that move, with which their copies are withdrawn (`mobility`); a
//! block that another group of this runtime takes, whose claim is a record behind the release.

use crate::message::Message;
use crate::outbox::Outbox;
use alloc::collections::VecDeque;

/// See the module's page. There are no more than blocks.
#[derive(Default)]
pub(crate) struct Parting {
    /// Whether copies are kept.
    waits: bool,
    /// Behind which record each leaves, once that is sent.
    queue: VecDeque<(Option<u64>, Message)>,
}

impl Parting {
    /// Says to all switches that a block leaves, or will.
    #[cold]
    pub fn part(&mut self, message: Message, out: &mut Outbox) {
        match self.waits {
            true => self.queue.push_back((None, message)),
            false => out.announce(message),
        }
    }

    /// Copies are kept from now on, as a base of their own; or none are, and all leave.
    #[cold]
    pub fn keep_copies(&mut self, waits: bool, out: &mut Outbox) {
        self.waits = waits;
        match waits {
            true => self.queue.iter_mut().for_each(|(behind, _)| *behind = None),
            false => self
                .queue
                .drain(..)
                .for_each(|(_, message)| out.announce(message)),
        }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Of what happened so far all is in so many records, of which so many are acknowledged.
    #[cold]
    pub fn go_on(&mut self, sent: u64, acknowledged: u64, out: &mut Outbox) {
        let new = self.queue.iter_mut().rev();
        new.map_while(|(behind, _)| behind.is_none().then_some(behind))
            .for_each(|behind| *behind = Some(sent));
        let may_leave = |(behind, _): &mut (Option<u64>, Message)| {
            behind.is_some_and(|behind| behind <= acknowledged)
                || crate::replica::is_broken("blocks wait for copies")
        };
        while let Some((_, message)) = self.queue.pop_front_if(may_leave) {
            out.announce(message);
        }
    }
}
