//! Messages to homes about the keys of a group, of which there may be very many: piece by piece, as
//! far as there are buffers.
//!
//! ```text
//!   reroute, installed, idle, routed: of all keys of a group ─► told at once, as a rule
//!                                                          └─► in the order of their being said, when buffers come home
//! ```
//!
//! Late words do no harm: until the last re-route is answered the move waits, and whether a key is
//! idle is looked at when it is said. No worker waits for the repeated word that a group is called
//! back: a target that hears of it late has answered it (`Moves::ended`).
//!
//! Invariants: messages about a key go in order; a step that is under way keeps the buffers for
//! what it may want to say.
//!
//! Not here: words about single keys of flows that begin and end (`output.rs`), for which each step
//! has buffers.

use super::{LATE, Moves};
use crate::flows::group::GroupKey;
use crate::message::{Message, Reroute, Taken};
use crate::parts::Core;
use crate::switch::home_of;
use alloc::vec::Vec;
use protocols::ownership::{Epoch, RuntimeId, Switches};

/// The messages about each key, at its homes.
#[derive(Clone, Copy)]
pub(crate) enum Word {
    Reroute {
        group: GroupKey,
        from: RuntimeId,
        to: RuntimeId,
        /// The incarnation that has agreed.
        incarnation: u64,
        epoch: Epoch,
        taken: Taken,
    },
    Installed(Epoch),
    /// If it is.
    Idle,
    /// If the key is one of a flow, or group, here.
    Routed,
}

/// A word that is being told.
pub(crate) struct Telling {
    word: Word,
    /// With the group's own last.
    keys: Vec<GroupKey>,
    switches: Switches,
    /// The switch at hand, and how many keys it was told of.
    switch: u8,
    told: usize,
}

impl Moves {
    /// Re-routes each key of a group at its homes; the last one at each switch is answered.
    pub(crate) fn reroute(
        &mut self,
        core: &mut Core,
        id: u32,
        switches: Switches,
        from: RuntimeId,
        to: RuntimeId,
        epoch: Epoch,
    ) {
        let now = self.moving_time(core);
        let Some(moving) = self.moving(id) else {
            return;
        };
        let group = moving.group;
        let is_late = now.saturating_sub(moving.taken_at) > LATE;
        let taken = match (moving.machine.is_taken_back(), is_late) {
            (false, _) => Taken::Not,
            (true, false) => Taken::Back,
            (true, true) => Taken::Late,
        };
        let mut keys = Vec::with_capacity(moving.aliases.len() + 1);
        keys.extend_from_slice(&moving.aliases);
        keys.push(group);
        let word = Word::Reroute {
            group,
            from,
            to,
            incarnation: core.sessions.incarnation_to_name(to.0),
            epoch,
            taken,
        };
        self.tell_keys(core, word, keys, switches);
    }

    /// Whether a switch has, or may have, the route of a key.
    pub(crate) fn is_home(&self, core: &Core, key: &GroupKey, switch: u8) -> bool {
        key.is_reply_key(core.flows.affinity())
            || home_of(key.hash(&core.settings.seed), core.settings.switches) == switch
    }

    pub(crate) fn homes(&self, core: &Core, group: &GroupKey, aliases: &[GroupKey]) -> Switches {
        let mut homes = Switches::NONE;
        for switch in 0..core.settings.switches {
            if self.is_home(core, group, switch) || aliases.iter().any(|key| self.is_home(core, key, switch))
            {
                homes = homes.with(switch);
            }
        }
        homes
    }

    /// Tells switches of all keys of a group, behind whatever is still to be told.
    pub(crate) fn tell_keys(&mut self, core: &mut Core, word: Word, keys: Vec<GroupKey>, switches: Switches) {
        let telling = Telling {
            word,
            keys,
            switches,
            switch: 0,
            told: 0,
        };
        self.telling.push_back(telling);
        self.go_on_telling_keys(core);
    }

    /// How many groups there are of whose keys switches are still to be told.
    pub fn words_untold(&self) -> usize {
        self.telling.len()
    }

    /// Goes on with messages that are due; answers how many.
    pub(crate) fn go_on_telling_keys(&mut self, core: &mut Core) -> usize {
        let mut count = 0;
        while let Some(mut telling) = self.telling.pop_front() {
            let is_done = self.tell_some(core, &mut telling, &mut count);
            if !is_done {
                self.telling.push_front(telling);
                break;
            }
        }
        count
    }

    fn tell_some(&mut self, core: &mut Core, telling: &mut Telling, count: &mut usize) -> bool {
        while telling.switch < core.settings.switches {
            let switch = telling.switch;
            if !telling.switches.has(switch) {
                telling.switch += 1;
                continue;
            }
            let is_home = |key: &GroupKey| self.is_home(core, key, switch);
            let last = telling.keys.iter().rposition(is_home);
            while let Some(key) = telling.keys.get(telling.told).copied() {
                if !core.out.has_spare() {
                    return false;
                }
                if self.is_home(core, &key, switch) {
                    self.tell_one(core, telling.word, key, switch, last == Some(telling.told));
                    *count += 1;
                }
                telling.told += 1;
            }
            (telling.switch, telling.told) = (switch + 1, 0);
        }
        true
    }

    fn tell_one(&mut self, core: &mut Core, word: Word, key: GroupKey, switch: u8, is_last: bool) {
        let message = match word {
            Word::Reroute {
                group,
                from,
                to,
                incarnation,
                epoch,
                taken,
            } => Message::Reroute(Reroute {
                group,
                key,
                from,
                to,
                incarnation,
                epoch,
                is_last,
                taken,
            }),
            Word::Installed(epoch) => Message::Installed(key, epoch),
            Word::Idle if core.has_group(&key) || core.silent.defers(key, &core.settings.seed) => return,
            Word::Idle => Message::Idle(key, 0),
            Word::Routed if core.has_group(&key) => Message::Routed(key),
            Word::Routed => return,
        };
        core.out.send(usize::from(switch), &message);
    }

    /// Says to the homes of a group that came back from nowhere where it is.
    pub(crate) fn say_routed(&mut self, core: &mut Core, group: GroupKey, mut keys: Vec<GroupKey>) {
        keys.push(group);
        self.tell_keys(core, Word::Routed, keys, self.all_switches(core));
    }

    /// Says to the homes of a group that it is here, or will not be.
    pub(crate) fn say_installed(
        &mut self,
        core: &mut Core,
        group: GroupKey,
        mut keys: Vec<GroupKey>,
        epoch: Epoch,
    ) {
        keys.push(group);
        self.tell_keys(core, Word::Installed(epoch), keys, self.all_switches(core));
    }

    pub(super) fn say_idle(&mut self, core: &mut Core, group: GroupKey, mut keys: Vec<GroupKey>) {
        keys.push(group);
        self.tell_keys(core, Word::Idle, keys, self.all_switches(core));
    }

    /// Tells all switches of keys.
    pub(crate) fn tell_all(&mut self, core: &mut Core, word: Word, keys: Vec<GroupKey>) {
        let switches = self.all_switches(core);
        self.tell_keys(core, word, keys, switches);
    }
}
