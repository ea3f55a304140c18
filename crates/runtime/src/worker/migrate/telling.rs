//! What homes are told of the keys of a group, of which there may be very many: piece by piece, as far as there are buffers.
//!
//! ```text
//!   reroute, installed, idle, routed: of all keys of a group ─► told at once, as a rule
//!                                                          └─► in the order of their being said, when buffers come home
//! ```
//!
//! Late words do no harm: until the last re-route is answered the move waits, and whether a key is idle is looked at when it is said. For what is said again of a group
//! that is called back nobody waits: who hears it late has answered it (`Moves::ended`).
//!
//! Invariants: what is told of a key is told in order; a step that is under way keeps the buffers for what it may want to say.
//!
//! Not here: words about single keys of flows that begin and end (`output.rs`), for which each step has buffers.

use super::super::Runtime;
use crate::env::Port;
use crate::flows::group::GroupKey;
use crate::message::{Message, Reroute};
use crate::switch::home_of;
use alloc::vec::Vec;
use protocols::ownership::{Epoch, RuntimeId, Switches};

/// What is told of each key, at its homes.
#[derive(Clone, Copy)]
pub(super) enum Word {
    Reroute {
        group: GroupKey,
        from: RuntimeId,
        to: RuntimeId,
        epoch: Epoch,
    },
    Installed(Epoch),
    /// If it is.
    Idle,
    /// If the key is one of a flow, or group, here.
    Routed,
}

/// A word that is being told.
pub(super) struct Telling {
    word: Word,
    /// With the group's own last.
    keys: Vec<GroupKey>,
    switches: Switches,
    /// The switch at hand, and how many keys it was told of.
    switch: u8,
    told: usize,
}

impl<P: Port> Runtime<P> {
    /// Re-routes each key of a group at its homes; the last one at each switch is answered.
    pub(super) fn reroute(
        &mut self,
        id: u32,
        switches: Switches,
        from: RuntimeId,
        to: RuntimeId,
        epoch: Epoch,
    ) {
        let Some(moving) = self.moves.moving(id) else {
            return;
        };
        let group = moving.group;
        let mut keys = Vec::with_capacity(moving.aliases.len() + 1);
        keys.extend_from_slice(&moving.aliases);
        keys.push(group);
        let word = Word::Reroute {
            group,
            from,
            to,
            epoch,
        };
        self.tell_keys(word, keys, switches);
    }

    /// Whether a switch has, or may have, the route of a key.
    pub(super) fn is_home(&self, key: &GroupKey, switch: u8) -> bool {
        key.is_second_key(self.flows.affinity())
            || home_of(key.hash(&self.settings.seed), self.settings.switches) == switch
    }

    pub(super) fn homes(&self, group: &GroupKey, aliases: &[GroupKey]) -> Switches {
        let mut homes = Switches::NONE;
        for switch in 0..self.settings.switches {
            if self.is_home(group, switch) || aliases.iter().any(|key| self.is_home(key, switch)) {
                homes = homes.with(switch);
            }
        }
        homes
    }

    /// Tells switches of all keys of a group, behind whatever is still to be told.
    pub(super) fn tell_keys(&mut self, word: Word, keys: Vec<GroupKey>, switches: Switches) {
        let telling = Telling {
            word,
            keys,
            switches,
            switch: 0,
            told: 0,
        };
        self.moves.telling.push_back(telling);
        self.go_on_telling_keys();
    }

    /// How many groups there are of whose keys switches are still to be told.
    pub fn words_untold(&self) -> usize {
        self.moves.telling.len()
    }

    /// Goes on with what is to be told; answers how much was.
    pub(super) fn go_on_telling_keys(&mut self) -> usize {
        let mut count = 0;
        while let Some(mut telling) = self.moves.telling.pop_front() {
            let is_done = self.tell_some(&mut telling, &mut count);
            if !is_done {
                self.moves.telling.push_front(telling);
                break;
            }
        }
        count
    }

    fn tell_some(&mut self, telling: &mut Telling, count: &mut usize) -> bool {
        while telling.switch < self.settings.switches {
            let switch = telling.switch;
            if !telling.switches.has(switch) {
                telling.switch += 1;
                continue;
            }
            let is_home = |key: &GroupKey| self.is_home(key, switch);
            let last = telling.keys.iter().rposition(is_home);
            while let Some(key) = telling.keys.get(telling.told).copied() {
                if self.pool.free() <= self.message_frames() || !self.unsaid.is_empty() {
                    return false;
                }
                if self.is_home(&key, switch) {
                    self.tell_one(telling.word, key, switch, last == Some(telling.told));
                    *count += 1;
                }
                telling.told += 1;
            }
            (telling.switch, telling.told) = (switch + 1, 0);
        }
        true
    }

    fn tell_one(&mut self, word: Word, key: GroupKey, switch: u8, is_last: bool) {
        let message = match word {
            Word::Reroute {
                group,
                from,
                to,
                epoch,
            } => Message::Reroute(Reroute {
                group,
                key,
                from,
                to,
                epoch,
                is_last,
            }),
            Word::Installed(epoch) => Message::Installed(key, epoch),
            Word::Idle if self.has_group(&key) || self.is_deferred(&key) => return,
            Word::Idle => Message::Idle(key, 0),
            Word::Routed if self.has_group(&key) => Message::Routed(key),
            Word::Routed => return,
        };
        self.append(usize::from(switch), &message);
    }

    /// Whether it will be seen later if a key is idle.
    pub(super) fn is_deferred(&mut self, key: &GroupKey) -> bool {
        self.lingering.contains(key) || self.moves.defers(*key, &self.settings.seed)
    }
}
