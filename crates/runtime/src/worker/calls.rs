//! Calls that wait and go on, and flows that are asked whether they go on under another
//! configuration.
//!
//! Not here: how a call waits ([`crate::runner`]).

use super::Runtime;
use crate::chain::COPIED_MAX;
use crate::env::Port;
use crate::flows::actor::Phase;
use crate::replica::policy::{Policy, STORED_MAX};
use crate::replica::sender::Unfit;
use crate::runner::change::{ASKED, Before, ChangeError, ChangeState, CutFlow, LOOKS, Prepared};
use crate::runner::{Call, Job, Woken, middle};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use wire::{FlowKey, PacketList, planted};

impl<P: Port> Runtime<P> {
    /// Goes on with up to `budget` calls whose time has come, the oldest first.
    pub(super) fn wake(&mut self, budget: usize) -> usize {
        let mut woken = 0;
        while woken < budget && self.core.out.is_clear() {
            match self.core.runner.wake(&mut self.core.flows, &mut self.core.out) {
                None => break,
                Some(Woken::Parked) => {}
                Some(Woken::Done(call)) => self.conclude(call),
            }
            woken += 1;
        }
        woken
    }

    fn conclude(&mut self, call: Call) {
        let actor = call.actor();
        let group = self.core.observe_woken(actor);
        if call.has_behind() {
            self.core.defer_idle(actor);
        }
        // The configuration may have changed while it waited, and end its flow.
        let goes_on = !self.core.runner.is_of_before(actor, &self.core.flows) || self.core.goes_on(actor);
        let behind = self
            .core
            .runner
            .conclude(call, goes_on, &mut self.core.flows, &mut self.core.out);
        self.core.run_more();
        self.core.commit_woken(actor, group);
        self.core.note_stored(actor);
        self.take_up_behind(actor, behind);
        self.core.end_deferred();
    }

    /// Processes the packets that came while a call waited, in their order; they may wait in turn.
    fn take_up_behind(&mut self, actor: u32, mut behind: PacketList) {
        while let Some(packet) = behind.pop() {
            self.core.runner.note_taken_up();
            if let Some((passed, direction)) = middle(&packet) {
                let group = self.core.observe_woken(actor);
                self.core.runner.put_ahead(Job {
                    actor,
                    packet,
                    direction,
                    passed,
                    timeout: 0,
                    whole: false,
                });
                self.core.run_more();
                self.core.commit_woken(actor, group);
                self.core.note_stored(actor);
                continue;
            }
            let Some((mut key, way)) = FlowKey::of(&packet) else {
                self.core
                    .out
                    .drop_packet(packet, crate::stats::DropReason::FrameMalformed);
                continue;
            };
            if packet.hairpins() > 0 {
                key = key.turned(way);
            }
            // The flow may be over, or another in its place: look it up as any packet.
            let hash = key.hash(&self.core.settings.seed);
            // Behind the next call, if there is one: it came before whatever was kept since for a
            // group that is called back.
            let waiting = self.core.find(hash, &key).map(|value| value >> 1);
            let waiting = waiting.filter(|actor| self.core.flows.header(*actor).phase == Phase::Waiting);
            match waiting.filter(|_| !planted::is("queued_packet_kept_late")) {
                Some(actor) => {
                    self.core
                        .runner
                        .queue_behind(actor, packet, &self.core.flows, &mut self.core.out)
                }
                None => self.meet_again(packet, key, hash, way, 0),
            }
        }
    }

    /// Goes on with the packets of calls of these flows that were given up.
    pub(super) fn begin_again(&mut self, actors: &[u32]) {
        for actor in actors {
            if let Some(packets) = self.core.runner.begin_again(*actor, &self.core.flows) {
                self.core.defer_idle(*actor);
                self.take_up_behind(*actor, packets);
                self.core.end_deferred();
            }
        }
    }

    // Another configuration ([`crate::runner::change`]).

    /// Takes in what it may become, if that fits; nothing changes.
    pub fn prepare_change(&mut self, prepared: Box<Prepared>) -> Result<(), (ChangeError, Box<Prepared>)> {
        self.core.runner.prepare_change(prepared, !self.moves.is_idle())
    }

    /// Gives back the prepared change, to be dropped elsewhere.
    pub fn abandon_change(&mut self) -> Option<Box<Prepared>> {
        self.core.runner.abandon_change()
    }

    /// From the next packet on, the prepared change is in force; `false` if there is none.
    pub fn commit_change(&mut self) -> bool {
        let is_committed = self.core.runner.commit_change(&self.core.flows);
        self.core.copy_as_configured();
        is_committed
    }

    /// Which runtime is to keep the copies of this one's flows; `None`: the runtime that the layout
    /// says.
    ///
    /// # Errors
    /// It cannot; the text says why, and nothing has changed.
    pub fn set_replica(&mut self, replica: Option<u16>) -> Result<(), String> {
        let number = replica.unwrap_or_default();
        self.core.order_replica(replica).map_err(|why| match why {
            Unfit::NoCopies => "no copies are kept here; write `policy = \"commit\"` below `[replication]` into the configuration, \
                                and start it again"
                .into(),
            Unfit::NotThere => format!("runtime {number} is not there, or is not met; `flowkeep status` shows its links"),
            Unfit::SameProcess => {
                format!("runtime {number} would fail with the flows that it is to protect: name one of another process")
            }
        })
    }

    /// The policy of copies for a chain's flows from now on; `None`: as the settings say. Until the
    /// next change of configuration.
    ///
    /// # Errors
    /// There is no such chain, or no copies are kept here; the text says what to do.
    pub fn set_replication(&mut self, chain: &str, policy: Option<Policy>) -> Result<(), String> {
        let is_stored = policy.is_some_and(Policy::is_stored);
        let has_either = self.core.sender.is_wanted() || self.core.ledger.is_on();
        let is_kept = match policy {
            Some(Policy::Store | Policy::StoreCommit) => self.core.ledger.is_on(),
            Some(Policy::Snapshot | Policy::Commit) => self.core.sender.is_wanted(),
            Some(Policy::None) | None => has_either,
        };
        if !is_kept {
            let word = if is_stored { "store" } else { "commit" };
            return Err(format!(
                "no copies are kept here that way; write `policy = \"{word}\"` below `[replication]` into the configuration, and \
                 start it again"
            ));
        }
        let chains = self.core.runner.plan().chains();
        let Some(index) = chains.iter().position(|known| known.name == chain) else {
            let names: Vec<&str> = chains.iter().map(|known| &*known.name).collect();
            return Err(format!(
                "there is no chain `{chain}`; there are: {}",
                names.join(", ")
            ));
        };
        if policy.is_some_and(|policy| policy != Policy::None)
            && let Err(error) = self
                .core
                .runner
                .plan()
                .check_copied(index, if is_stored { STORED_MAX } else { COPIED_MAX })
        {
            return Err(format!("{error}; the chain `{chain}` goes on without copies"));
        }
        let waits = |policy: Option<Policy>| {
            policy.is_some_and(|policy| matches!(policy, Policy::Commit | Policy::StoreCommit))
        };
        let before = self.core.policies().get(index).copied();
        let packets = self.core.gate.packets() + self.core.store_gate.packets();
        if waits(before) && waits(policy) && before != policy && packets > 0 {
            return Err(format!(
                "packets of the chain `{chain}` wait, and would leave before or behind others; set `none` first, and \
                 this again when none waits"
            ));
        }
        let mut policies: Vec<_> = self.core.policies().iter().copied().map(Some).collect();
        if let Some(place) = policies.get_mut(index) {
            *place = policy;
        }
        self.core.set_policies(policies.into_iter());
        self.core.runner.doubt_lazy(index);
        Ok(())
    }

    /// How far a change has come.
    pub fn change(&self) -> ChangeState {
        self.core.runner.change(&self.core.flows)
    }

    /// The flows that would end, as far as they are listed.
    pub fn take_listed(&mut self) -> Vec<CutFlow> {
        self.core.runner.take_listed()
    }

    /// The configuration before, if no flow is of it any more: to be dropped elsewhere.
    pub fn take_before(&mut self) -> Option<Box<Before>> {
        self.core.runner.take_before(&self.core.flows)
    }

    /// Goes on with the survey or the sweep; answers how many actors were looked at.
    pub(super) fn walk(&mut self) -> usize {
        match self.core.runner.walks() {
            (true, _) => self.core.runner.survey(&self.core.flows, &mut self.core.out),
            (_, true) => self.sweep(),
            _ => 0,
        }
    }

    /// Asks a few flows of the configuration before.
    #[cold]
    fn sweep(&mut self) -> usize {
        let (mut looked, mut asked) = (0, 0);
        while looked < LOOKS && asked < ASKED && self.core.runner.may_end() && self.core.out.is_clear() {
            let (actor, count) = self.core.runner.next_to_ask(LOOKS - looked, &self.core.flows);
            looked += count;
            let Some(actor) = actor else {
                break;
            };
            asked += 1;
            self.core.goes_on(actor);
        }
        looked as usize
    }
}
