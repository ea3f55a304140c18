//! What switches are answered about keys and blocks that they ask about, as far as there are buffers; the rest later.
//!
//! ```text
//!   question ─► told at once, as a rule
//!        └────► waits, while a step needs the buffers for what it says by itself ─► looked at again, and told if it is still so
//! ```
//!
//! Invariants: a question is answered once, or needs no answer any more; what a step says by itself has its buffers, however much is asked. How many
//! answers wait follows from how much there is to ask about ([`Moves::answers_max`]); beyond it a question is refused (`words_refused`), which only
//! who asks again and again can bring about: the switch asks again with its next packet for the group.
//!
//! Not here: words that no switch has asked for (`output.rs`, `telling.rs`).

use super::super::Runtime;
use super::Moves;
use crate::env::Port;
use crate::flows::group::GroupKey;
use crate::message::Message;
use alloc::collections::VecDeque;
use nf::Block;

/// What a switch is told.
#[derive(Clone, Copy)]
pub(super) enum Answer {
    /// The key is idle, if it is.
    Idle(GroupKey),
    /// Whether the group has the block.
    Block(Block, GroupKey),
    /// Whoever has the key is to be asked.
    Doubted(GroupKey),
}

/// Answers that wait, each for a switch.
pub(super) type Answers = VecDeque<(u8, Answer)>;

impl<P: Port> Moves<P> {
    /// Of answers that wait: for each switch, what may have routes to here, and second keys and blocks, at most one for each flow.
    fn answers_max(&self, flows: usize, switches: u8) -> usize {
        3 * flows * usize::from(switches)
    }
}

impl<P: Port> Runtime<P> {
    /// Answers a switch, behind whatever is still to be answered. `false`: it asks more than there is.
    pub(super) fn answer_switch(&mut self, link: usize, answer: Answer) -> bool {
        let most = self
            .moves
            .answers_max(self.flows.capacity(), self.settings.switches);
        if self.moves.answers.len() >= most {
            return false;
        }
        self.answer_anyway(link, answer);
        true
    }

    /// The same of what this runtime says by itself of a group whose move is over.
    pub(super) fn answer_anyway(&mut self, link: usize, answer: Answer) {
        self.moves.answers.push_back((link as u8, answer));
        self.go_on_answering();
    }

    /// Goes on with answers; says how many were given.
    pub(super) fn go_on_answering(&mut self) -> usize {
        let mut count = 0;
        // One that is short by no more than a frame of these goes on: at rest a small pool may have no more than that.
        while self.has_room_for_messages()
            && let Some((link, answer)) = self.moves.answers.pop_front()
        {
            count += 1;
            let link = usize::from(link);
            let message = match answer {
                // Who came meanwhile is told everything.
                _ if !self.sessions.has_switch(link) => continue,
                Answer::Idle(key) if self.has_group(&key) || self.is_deferred(&key) => continue,
                Answer::Idle(key) => Message::Idle(key, 0),
                Answer::Block(block, group) if self.is_block_deferred(link, block, group) => continue,
                Answer::Block(block, group)
                    if self.flows.owners.at(block.addr, block.first) == Some(group) =>
                {
                    Message::BlockClaimed(block, group)
                }
                Answer::Block(block, group) => Message::BlockDoubted(block, group),
                Answer::Doubted(key) => Message::Doubted(key),
            };
            self.append(link, &message);
            if let Message::BlockClaimed(..) = message {
                // A new flow may use the block before the switch has heard.
                self.unheard.note(link);
            }
        }
        count
    }
}
