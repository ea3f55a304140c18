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
pub(crate) enum KeyMessage {
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
    GroupEmpty,
    /// If the key is one of a flow, or group, here.
    Routed,
}

/// A word that is being told.
pub(crate) struct KeyMessages {
    key_message: KeyMessage,
    /// With the group's own last.
    keys: Vec<GroupKey>,
    switches: Switches,
    /// The switch at hand, and how many keys it was told of.
    switch: u8,
    sent: usize,
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
        let mut keys = Vec::with_capacity(moving.reply_keys.len() + 1);
        keys.extend_from_slice(&moving.reply_keys);
        keys.push(group);
        let key_message = KeyMessage::Reroute {
            group,
            from,
            to,
            incarnation: core.sessions.incarnation_to_name(to.0),
            epoch,
            taken,
        };
        self.send_for_keys(core, key_message, keys, switches);
    }

    /// Whether a switch has, or may have, the route of a key.
    pub(crate) fn is_home(&self, core: &Core, key: &GroupKey, switch: u8) -> bool {
        key.is_reply_key(core.flows.affinity())
            || home_of(key.hash(&core.settings.seed), core.settings.switches) == switch
    }

    pub(crate) fn homes(&self, core: &Core, group: &GroupKey, reply_keys: &[GroupKey]) -> Switches {
        let mut homes = Switches::NONE;
        for switch in 0..core.settings.switches {
            if self.is_home(core, group, switch)
                || reply_keys.iter().any(|key| self.is_home(core, key, switch))
            {
                homes = homes.with(switch);
            }
        }
        homes
    }

    /// Tells switches of all keys of a group, behind whatever is still to be told.
    pub(crate) fn send_for_keys(
        &mut self,
        core: &mut Core,
        key_message: KeyMessage,
        keys: Vec<GroupKey>,
        switches: Switches,
    ) {
        let key_messages = KeyMessages {
            key_message,
            keys,
            switches,
            switch: 0,
            sent: 0,
        };
        self.key_messages.push_back(key_messages);
        self.go_on_sending_keys(core);
    }

    /// How many groups there are of whose keys switches are still to be told.
    pub fn key_messages_unsent(&self) -> usize {
        self.key_messages.len()
    }

    /// Goes on with messages that are due; answers how many.
    pub(crate) fn go_on_sending_keys(&mut self, core: &mut Core) -> usize {
        let mut count = 0;
        while let Some(mut key_messages) = self.key_messages.pop_front() {
            let is_done = self.send_some(core, &mut key_messages, &mut count);
            if !is_done {
                self.key_messages.push_front(key_messages);
                break;
            }
        }
        count
    }

    fn send_some(&mut self, core: &mut Core, key_messages: &mut KeyMessages, count: &mut usize) -> bool {
        while key_messages.switch < core.settings.switches {
            let switch = key_messages.switch;
            if !key_messages.switches.has(switch) {
                key_messages.switch += 1;
                continue;
            }
            let is_home = |key: &GroupKey| self.is_home(core, key, switch);
            let last = key_messages.keys.iter().rposition(is_home);
            while let Some(key) = key_messages.keys.get(key_messages.sent).copied() {
                if !core.out.has_spare() {
                    return false;
                }
                if self.is_home(core, &key, switch) {
                    self.send_one(
                        core,
                        key_messages.key_message,
                        key,
                        switch,
                        last == Some(key_messages.sent),
                    );
                    *count += 1;
                }
                key_messages.sent += 1;
            }
            (key_messages.switch, key_messages.sent) = (switch + 1, 0);
        }
        true
    }

    fn send_one(
        &mut self,
        core: &mut Core,
        key_message: KeyMessage,
        key: GroupKey,
        switch: u8,
        is_last: bool,
    ) {
        let message = match key_message {
            KeyMessage::Reroute {
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
            KeyMessage::Installed(epoch) => Message::Installed(key, epoch),
            KeyMessage::GroupEmpty
                if core.has_group(&key) || core.silent.defers(key, &core.settings.seed) =>
            {
                return;
            }
            KeyMessage::GroupEmpty => Message::GroupEmpty(key, 0),
            KeyMessage::Routed if core.has_group(&key) => Message::Routed(key),
            KeyMessage::Routed => return,
        };
        core.out.send(usize::from(switch), &message);
    }

    /// Says to the homes of a group that came back from nowhere where it is.
    pub(crate) fn say_routed(&mut self, core: &mut Core, group: GroupKey, mut keys: Vec<GroupKey>) {
        keys.push(group);
        self.send_for_keys(core, KeyMessage::Routed, keys, self.all_switches(core));
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
        self.send_for_keys(core, KeyMessage::Installed(epoch), keys, self.all_switches(core));
    }

    pub(super) fn say_group_empty(&mut self, core: &mut Core, group: GroupKey, mut keys: Vec<GroupKey>) {
        keys.push(group);
        self.send_for_keys(core, KeyMessage::GroupEmpty, keys, self.all_switches(core));
    }

    /// Tells all switches of keys.
    pub(crate) fn send_to_all(&mut self, core: &mut Core, key_message: KeyMessage, keys: Vec<GroupKey>) {
        let switches = self.all_switches(core);
        self.send_for_keys(core, key_message, keys, switches);
    }
}
