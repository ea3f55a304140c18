//! Blocks of ports that go to another runtime, and keys that are idle: switches are told of an end
//! when the replica knows of it.
//!
//! ```text
//!   a block is lent, or goes home; a group, or reply key, is idle
//!     ─► part ─┬─ no copies are kept ─────────────────────────────► announced
//!              └─ waits ─ its last record is sent ─ acknowledged ─► announced, unless the key is here again
//! ```
//!
//! Whether a group's block goes home, or is kept since its home is not there, is seen when it is
//! announced (`parts::pools`).
//!
//! A block that leaves had a group here a moment ago, and the replica may not know that this is
//! over. If this runtime fails then, its heir claims the block for that group, while another
//! runtime has given it to a host. The same of a route: its group would begin again at another
//! runtime, with another block, and the heir go on with the one before. When it hears that the
//! group is another's, it lets go without giving back, and its block would stay taken.
//!
//! Invariants: where copies are kept, no block leaves, and no route of a copied flow or group ends,
//! before the replica has acknowledged all records up to the end of its last use here; blocks leave
//! in order, and each of them once; a key that has ended here twice is idle behind the second end.
//!
//! *How many wait.* A key waits that had a copy, so there was a record of it. Of these no more are
//! sent than there is room for ([`crate::replica::compare::PENDING_MAX`]), while the replica stands
//! still.
//!
//! Not here: blocks of groups that move, with which their copies are withdrawn (`mobility`); a
//! block that another group of this runtime takes, whose claim is a record behind the release.

use super::group::GroupKey;
use crate::message::Message;
use crate::outbox::Outbox;
use alloc::collections::VecDeque;
use hashbrown::HashMap;

/// See the module's page.
#[derive(Default)]
pub(crate) struct Parting {
    /// Whether copies are kept.
    waits: bool,
    /// Behind which record each leaves, once that is sent.
    queue: VecDeque<(Option<u64>, Message)>,
    /// Keys that are idle: how often each is in the queue.
    idle: HashMap<GroupKey, u32>,
}

impl Parting {
    /// Says to all switches that a block leaves, or will; or to switches that must know that a key
    /// is idle.
    #[cold]
    pub fn part(&mut self, message: Message, out: &mut Outbox) {
        let is_to_be_seen = matches!(message, Message::BlockKept(..));
        if !self.waits && self.queue.is_empty() && out.has_room() && !is_to_be_seen {
            return out.announce(message);
        }
        if let Message::GroupEmpty(key, _) = message {
            *self.idle.entry(key).or_insert(0) += 1;
        }
        self.queue.push_back((None, message));
    }

    /// Blocks that were to be kept, if their homes are not there, go home.
    #[cold]
    pub fn keep_none(&mut self) {
        for (_, message) in &mut self.queue {
            if let Message::BlockKept(block, home) = *message {
                *message = Message::BlockReturned(block, home);
            }
        }
    }

    /// Copies are kept from now on, as a base of their own; or none are, and nothing waits for any.
    #[cold]
    pub fn keep_copies(&mut self, waits: bool) {
        self.waits = waits;
        self.queue.iter_mut().for_each(|(behind, _)| *behind = None);
    }

    /// Whether nothing waits to be said.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether it waits to be said that a key is idle.
    #[inline]
    pub fn has_idle(&self, key: &GroupKey) -> bool {
        !self.idle.is_empty() && self.idle.contains_key(key)
    }

    /// So many records have all that happened so far.
    pub fn note_sent(&mut self, sent: u64) {
        let new = self.queue.iter_mut().rev();
        new.map_while(|(behind, _)| behind.is_none().then_some(behind))
            .for_each(|behind| *behind = Some(sent));
    }

    /// The next that may be said, so many records being acknowledged.
    pub fn next(&mut self, acknowledged: u64) -> Option<Message> {
        let waits = self.waits;
        let may_leave = |(behind, _): &mut (Option<u64>, Message)| {
            !waits
                || behind.is_some_and(|behind| behind <= acknowledged)
                || crate::replica::is_broken("blocks wait for copies")
        };
        loop {
            let (_, message) = self.queue.pop_front_if(may_leave)?;
            match message {
                Message::GroupEmpty(key, _) if !self.is_last(&key) => {}
                message => return Some(message),
            }
        }
    }

    /// A word that a key is idle leaves the queue: whether no other of it is there.
    fn is_last(&mut self, key: &GroupKey) -> bool {
        let Some(count) = self.idle.get_mut(key) else {
            return true;
        };
        *count -= 1;
        let is_last = *count == 0;
        if is_last {
            self.idle.remove(key);
        }
        is_last
    }
}
