//! Messages of switches about groups, reply keys and blocks that concern flows here.
//!
//! Not here: groups that move (`mobility`); messages to a switch that restarts
//! (`worker::sessions`).

use super::Core;
use super::presence::{ABSENT, SILENT};
use crate::flows::actor::Phase;
use crate::flows::group::GroupKey;
use crate::stats::DropReason;
use nf::{Affinity, Block, BlockWas};
use protocols::ownership::Switches;
use wire::FlowKey;

impl Core {
    /// Whether new groups are for others.
    #[inline]
    pub fn takes_no_groups(&self) -> bool {
        self.takes_no_moves() || self.pools.is_dry()
    }

    /// Whether groups that move are for others, too.
    #[inline]
    pub fn takes_no_moves(&self) -> bool {
        self.is_leaving || self.sessions.is_beginning() || self.sessions.is_joining || self.pools.is_without()
    }

    /// Looks whether all switches have told, or the time for it is over. A switch that runs by the
    /// view is waited for until a view is without it.
    #[cold]
    pub fn go_on_beginning(&mut self) {
        let Some(beginning) = &mut self.sessions.beginning else {
            return;
        };
        let waited = self.now - *beginning.since.get_or_insert(self.now);
        let resynced = beginning.resynced;
        let mut switches = 0..self.settings.switches;
        let running = self.sessions.running;
        let is_over = switches.all(|switch| match self.out.is_present(usize::from(switch)) {
            _ if resynced.has(switch) => true,
            _ if running.has(switch) => false,
            true => waited >= SILENT,
            false => waited >= ABSENT,
        });
        if is_over {
            self.sessions.beginning = None;
        }
    }

    /// A switch says that another runtime's group has a block.
    #[cold]
    pub fn handle_block_in_use(&mut self, link: usize, block: Block) {
        // Functions that go on from a predecessor's know which blocks that had lent. Another switch
        // may have returned a block before this runtime was met, and its word be forgotten: it is
        // not waited for. Of blocks lent later all switches know.
        let is_noted = match self.runner.block_in_use(block) {
            BlockWas::Free => true,
            BlockWas::Out => {
                self.sessions.is_beginning() && !crate::replica::is_broken("what a forerunner lent is noted")
            }
            BlockWas::Anothers => false,
        };
        if is_noted {
            self.sessions.lent.entry(block).or_insert(Switches::NONE);
        }
        if let Some(known) = self.sessions.lent.get_mut(&block) {
            *known = known.with(link as u8);
        }
    }

    /// A switch has told which blocks are in use.
    #[cold]
    pub fn handle_resynced(&mut self, link: usize) {
        if let Some(beginning) = &mut self.sessions.beginning {
            beginning.resynced = beginning.resynced.with(link as u8);
        }
        // Its messages about groups that are others' came before.
        self.sessions.reconciled = self.sessions.reconciled.with(link as u8);
        self.sessions.taken_cursor = [0; 5];
        if self.out.unreconciled().has(link as u8) {
            self.ask_others(link);
        }
    }

    /// A switch that was met again has said what it knows. Another may have let this runtime go,
    /// too, in a session that is not seen here to be over: it answers only if it has not.
    #[cold]
    fn ask_others(&mut self, link: usize) {
        for other in 0..usize::from(self.settings.switches) {
            if other != link && self.out.is_present(other) {
                self.out.barrier_mut().note(other);
            }
        }
        self.sessions.reconciled_at = self.out.barrier().number();
    }

    /// A switch says that a group, or reply key, is another runtime's.
    #[cold]
    pub fn handle_route_conflict(&mut self, key: GroupKey) {
        let is_second = match self.flows.affinity() {
            Affinity::Flow => {
                let flow = key.flow();
                let found = self.find(flow.hash(&self.settings.seed), &flow);
                found.is_none_or(|value| value & 1 == 1)
            }
            _ => key.is_reply_key(self.flows.affinity()),
        };
        if is_second {
            self.reply_key_refused(key.flow());
        } else if self.has_group(&key) {
            // Groups that are here, each once.
            self.sessions.taken.insert(*key.words());
        }
    }

    /// A group that was another's has come from another runtime, and is this one's.
    pub fn note_installed(&mut self, group: &GroupKey) {
        self.sessions.taken.remove(group.words());
    }

    /// Ends flows whose reply keys were refused, once they are back or go on; flows that have moved
    /// away are refused where they are now.
    pub fn end_refused(&mut self) -> usize {
        let mut count = 0;
        for words in core::mem::take(&mut self.sessions.refused) {
            let key = FlowKey::from_words(words);
            let found = self.find(key.hash(&self.settings.seed), &key);
            let Some(value) = found.filter(|value| value & 1 == 1) else {
                continue;
            };
            match self.flows.header(value >> 1).phase {
                Phase::Active if self.may_end_now() => {
                    self.refuse_waiting(value >> 1, DropReason::ReplyKeyTaken);
                    self.end_actor(value >> 1);
                    count += 1;
                }
                _ => {
                    self.sessions.refused.insert(words);
                }
            }
        }
        count
    }
}
