//! A runtime as a primary and as a replica, and as an heir: as `runtime::replica` does.

use super::*;

impl World {
    pub(super) fn runtime_notices(&mut self, me: usize, gone: usize) -> Check {
        self.noticed[gone] |= 1 << me;
        let lost = core::mem::take(&mut self.across[gone][me]);
        self.drop_packets(lost);
        // As `Moves::peer_gone`.
        if let Some(machine) = self.live(me).machine {
            let (phase, gone) = (machine.phase(), id(gone));
            let runtime = self.live(me);
            runtime.is_to_be_routed |= match phase {
                Phase::Rerouting { to, .. } | Phase::Quiescing { to } | Phase::Forwarding { to, .. } => {
                    to == gone
                }
                Phase::Returning { peer, .. } => peer == gone,
                _ => false,
            };
            if runtime.withdrawn.is_some_and(|(to, ..)| to == gone) {
                runtime.withdrawn = None;
            }
            runtime.done = runtime.done.filter(|(to, ..)| *to != gone);
            let is_slot = matches!(phase, Phase::Buffering { from, is_staged: false, .. } if from == gone);
            self.drive(me, Input::Removed(gone))?;
            if is_slot && self.live(me).seen.is_none() {
                self.up[me].push(Item::GroupEmpty);
            }
        }
        // As `Moves::leave_to_copies`.
        let runtime = self.live(me);
        let is_copied = runtime.copies[gone].is_some_and(|copies| copies.seen.is_some() || copies.is_over);
        let is_taken_back = |machine: &Ownership| goes_on_from_copies(machine.is_taken_back());
        let machine = runtime.machine.filter(is_taken_back);
        if let (Some(machine), true) = (machine, is_copied) {
            let epoch = machine.latest().next();
            self.drive(me, Input::FromSwitch(0, SwitchMessage::Fenced(epoch)))?;
        }
        // As `Keeper::peer_gone`.
        let runtime = self.live(me);
        let copies = runtime.copies[gone].take();
        let number = copies.map_or(0, |copies| copies.number);
        runtime.recoveries[gone] = copies.map(|copies| (copies, false));
        let is_replica = runtime.replica == Some(gone as u8);
        self.up[me].push(Item::Keeps(gone as u8, number));
        if is_replica {
            self.choose_replica(me);
            self.send_end(me);
            self.send_done(me);
        }
        self.go_on(me, gone)
    }

    pub(super) fn choose_replica(&mut self, me: usize) {
        let others = (1..RUNTIMES).map(|step| (me + step) % RUNTIMES);
        let there: Vec<_> = others.filter(|other| !self.knows(me, *other)).collect();
        let runtime = self.live(me);
        runtime.replica = there.first().map(|other| *other as u8);
        let waiting = core::mem::take(&mut runtime.gate);
        if runtime.replica.is_none() {
            (runtime.sent, runtime.acknowledged) = (0, 0);
            for (n, _) in waiting {
                self.up[me].push(Item::Packet(n));
            }
            return;
        }
        runtime.number += 1;
        (runtime.sent, runtime.acknowledged) = (0, 0);
        runtime.is_copied = false;
        let (number, machine) = (runtime.number, runtime.machine);
        self.send_copy(me, Item::Base(number));
        if self.live(me).is_over {
            self.send_copy(me, Item::Over(true));
        }
        // A group that is called back, or away, is copied when that is over.
        let is_away = machine.is_some_and(|machine| {
            matches!(
                machine.phase(),
                Phase::Forwarding { .. } | Phase::Returning { .. }
            )
        });
        if !is_away || !waiting.is_empty() {
            self.copy(me);
        }
        let runtime = self.live(me);
        let sent = runtime.sent;
        runtime.gate = waiting.into_iter().map(|(n, _)| (n, sent)).collect();
    }

    // Copies.

    pub(super) fn send_copy(&mut self, me: usize, item: Item) {
        let runtime = self.live(me);
        if let Some(to) = runtime.replica {
            runtime.sent += 1;
            self.send_across(me, usize::from(to), item);
        }
    }

    /// Sends all bytes of the state.
    pub(super) fn copy(&mut self, me: usize) {
        if let Some(seen) = self.live(me).seen {
            self.live(me).is_copied = true;
            self.send_copy(me, Item::Copy(seen));
        }
    }

    /// A state that is here no more is none of the replica's.
    pub(super) fn let_go(&mut self, me: usize) {
        self.live(me).seen = None;
        self.withdraw(me);
    }

    pub(super) fn withdraw(&mut self, me: usize) {
        if core::mem::take(&mut self.live(me).is_copied) {
            let is_over = self.live(me).is_over;
            self.send_copy(me, Item::End(is_over));
        }
    }

    pub(super) fn acknowledge(&mut self, me: usize, from: usize, number: u32, count: u64) -> Check {
        let runtime = self.live(me);
        if (runtime.number, runtime.replica) != (number, Some(from as u8)) {
            return Ok(());
        }
        runtime.acknowledged = runtime.acknowledged.max(count);
        self.open_gate(me)?;
        self.send_end(me);
        self.send_done(me);
        Ok(())
    }

    /// Checker: no packet leaves whose state is not at the replica.
    pub(super) fn open_gate(&mut self, me: usize) -> Check {
        loop {
            let runtime = self.live(me);
            let Some((n, needed)) = runtime.gate.first().copied() else {
                return Ok(());
            };
            if !may_leave(needed, runtime.acknowledged) {
                return Ok(());
            }
            runtime.gate.remove(0);
            let replica = runtime.replica.map(usize::from);
            self.up[me].push(Item::Packet(n));
            let keeper = replica.and_then(|replica| self.runtimes[replica].as_ref());
            let kept = keeper.and_then(|keeper| keeper.copies[me]);
            let is_kept = kept.is_some_and(|copies| copies.seen.is_some_and(|seen| seen > n));
            if keeper.is_some() && !is_kept && !self.ended {
                return Err(format!("packet {n} leaves, and its state is not at the replica"));
            }
        }
    }

    /// As `Moves::send_end`: *State*, behind the withdrawal of the copies.
    pub(super) fn send_end(&mut self, me: usize) {
        let runtime = self.live(me);
        let Some((to, epoch, mut withdrawn)) = runtime.withdrawn else {
            return;
        };
        let waits = runtime.replica.is_some() && withdrawn.is_awaited(runtime.number, runtime.acknowledged);
        runtime.withdrawn = waits.then_some((to, epoch, withdrawn));
        if !waits {
            let seen = runtime.seen;
            self.send_across(me, usize::from(to.0), Item::State(epoch, seen));
        }
    }

    /// As `Moves::go_on_handing`: *Done*, when the replica has the state. Of another base that is
    /// its last record so far.
    pub(super) fn send_done(&mut self, me: usize) {
        let runtime = self.live(me);
        let Some((to, message, mut copied)) = runtime.done else {
            return;
        };
        if copied.number != runtime.number {
            (copied.number, copied.count) = (runtime.number, runtime.sent);
        }
        let waits = runtime.replica.is_some() && runtime.acknowledged < copied.count;
        runtime.done = Some((to, message, copied)).filter(|_| waits && !has(Bug::DoneBeforeCopied));
        if runtime.done.is_none() {
            self.send_across(me, usize::from(to.0), Item::RuntimeMessage(message));
        }
    }

    // Recovery.

    /// As `Keeper::go_on`.
    pub(super) fn go_on(&mut self, me: usize, failed: usize) -> Check {
        let runtime = self.live(me);
        let Some((copies, is_let_go)) = runtime.recoveries[failed] else {
            return Ok(());
        };
        let let_go = match is_let_go {
            true => Switches::one(0),
            false => Switches::NONE,
        };
        if !may_begin(let_go, Switches::one(0)) {
            return Ok(());
        }
        runtime.recoveries[failed] = None;
        if let (Some(seen), None) = (copies.seen, runtime.seen) {
            runtime.seen = Some(seen);
            self.copy(me);
            self.up[me].push(Item::Routed);
        }
        if copies.is_over && self.live(me).seen.is_none() {
            // A switch tells the source that another runtime has the group.
            self.up[me].extend([Item::Routed, Item::GroupEmpty]);
        }
        self.up[me].push(Item::Recovered(failed as u8));
        Ok(())
    }
}
