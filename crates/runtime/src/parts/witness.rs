//! Changes in the lives of flows, for their followers ([`crate::watch::flows`]).

use super::Core;
use crate::flows::actor::flag;
use crate::watch::flows::{Change, FlowEvent};
use arrayvec::ArrayString;

impl Core {
    /// Tells the followers, if there are any, of a change in the life of a flow. Its keys and its
    /// chain are there still.
    #[inline(always)]
    pub fn witness(&mut self, actor: u32, change: Change) {
        if self.followers.are_there() {
            self.tell_followers(actor, change);
        }
    }

    #[cold]
    #[inline(never)]
    fn tell_followers(&mut self, actor: u32, change: Change) {
        let header = self.flows.header(actor);
        // It never opened: its first packet was dropped, or waits.
        if change == Change::Ended && header.flags & (flag::SETTLED | flag::REPLY_KEY) == 0 {
            return;
        }
        let is_translated = header.flags & flag::REPLY_KEY != 0;
        let translated = is_translated.then(|| self.flows.reply_key(actor).ends(header.opening(1)));
        let mut chain = ArrayString::new();
        for letter in self.runner.chain_name(actor, &self.flows).chars() {
            if chain.try_push(letter).is_err() {
                break;
            }
        }
        let event = FlowEvent {
            at: self.now,
            change,
            protocol: header.key.protocol(),
            vlan: header.key.vlan(),
            ends: header.key.ends(header.opening(0)),
            translated,
            chain,
        };
        self.followers.tell(event);
    }
}
