//! A runtime and its group: as `runtime::mobility` and `runtime::worker` do, without copies.

use super::*;

impl World {
    fn is_leased(&self, r: usize, bounds: &Bounds, but: Broken) -> bool {
        self.may_act(r) || bounds.broken == Some(but)
    }

    pub(super) fn at_runtime(&mut self, r: usize, by_switch: bool, item: Item, bounds: &Bounds) -> Check {
        match (item, by_switch) {
            (Item::Packet(n), _) => self.take(r, by_switch, n, bounds),
            (Item::RuntimeMessage(message), false) => self.handle_runtime_message(r, message, bounds),
            (Item::State(epoch, seen), false) => {
                let runtime = &mut self.runtimes[r];
                if runtime.machine.is_some_and(|machine| machine.wants_state(epoch)) {
                    runtime.staged = Some(seen);
                }
                self.handle_runtime_message(r, RuntimeMessage::State(epoch), bounds)
            }
            (Item::SwitchMessage(message), true) => self.handle_switch_message(r, message, bounds),
            (Item::Probe, true) => {
                let runtime = &mut self.runtimes[r];
                match (runtime.machine, runtime.seen) {
                    (Some(_), _) => runtime.is_asked = true,
                    (None, None) => self.say_idle(r, bounds),
                    (None, Some(_)) => {}
                }
                Ok(())
            }
            (Item::Taken, true) => {
                self.runtimes[r].is_taken = self.runtimes[r].seen.is_some();
                self.give_up(r);
                Ok(())
            }
            _ => Err(format!("{item:?} is nothing for a runtime")),
        }
    }

    /// Of a packet that the switch sent the lease is looked at before all else. A packet that finds
    /// no group begins it: the switch has chosen this runtime.
    fn take(&mut self, r: usize, by_switch: bool, n: u8, bounds: &Bounds) -> Check {
        let is_refused = by_switch && !self.is_leased(r, bounds, Broken::ProcessesWithout);
        let runtime = &mut self.runtimes[r];
        runtime.consumed += u8::from(by_switch);
        let machine = runtime.machine;
        if is_refused {
            let is_known = machine.is_some() || runtime.seen.is_some();
            self.drop_packet(n);
            if !is_known {
                self.say_idle(r, bounds);
            }
            return Ok(());
        }
        let phase = machine.map(|machine| machine.phase());
        let class = match phase {
            _ if !by_switch => Class::Handed,
            Some(Phase::Returning { away, .. }) if !away.has(0) => Class::Before,
            _ => Class::Behind,
        };
        let take = match machine {
            Some(_) if matches!(phase, Some(Phase::Returning { .. })) => Take::Keep,
            Some(machine) if by_switch => machine.take(0),
            Some(machine) => machine.take_handed(0),
            None if runtime.seen.is_some() => Take::Process,
            None => Take::Stray,
        };
        match take {
            Take::Process if by_switch => self.process(r, n),
            Take::Process => self.release(r, n, bounds),
            Take::Keep => {
                runtime.kept.push((class, n));
                Ok(())
            }
            Take::PassOn(_) => {
                self.send_across(r, Item::Packet(n));
                Ok(())
            }
            Take::Stray if by_switch && machine.is_none() => {
                runtime.seen = Some(n);
                self.owner = None;
                self.process(r, n)
            }
            Take::Stray => {
                self.drop_packet(n);
                Ok(())
            }
        }
    }

    /// A packet that was kept, or handed over, goes on: the lease is looked at then.
    fn release(&mut self, r: usize, n: u8, bounds: &Bounds) -> Check {
        match self.is_leased(r, bounds, Broken::ReleasesWithout) {
            true => self.process(r, n),
            false => {
                self.drop_packet(n);
                Ok(())
            }
        }
    }

    /// Checker: each packet is processed once, behind those that came before it, by a runtime that
    /// may; and on the latest state as long as no runtime was removed.
    fn process(&mut self, r: usize, n: u8) -> Check {
        self.effect(r, "processes")?;
        let before = self.processed;
        self.processed |= 1 << n;
        let all_live = self.coordinator.view().number == 1;
        let dropped = self.dropped;
        let runtime = &mut self.runtimes[r];
        let Some(seen) = runtime.seen else {
            return Err(format!("packet {n} is processed by {r}, which has no state"));
        };
        let has_missed = (seen..n).any(|n| dropped >> n & 1 == 0);
        if n < seen || before >> n != 0 || (all_live && has_missed) {
            return Err(format!(
                "packet {n} is processed by {r} on a state that has seen {seen} of them"
            ));
        }
        runtime.seen = Some(n + 1);
        runtime.outbox.push(Item::Packet(n));
        Ok(())
    }

    /// The items in the outbox leave; packets do with the lease alone.
    pub(super) fn transmit(&mut self, r: usize, bounds: &Bounds) -> Check {
        let is_leased = self.is_leased(r, bounds, Broken::TransmitsWithout);
        for item in core::mem::take(&mut self.runtimes[r].outbox) {
            match item {
                Item::Packet(n) if !is_leased => self.drop_packet(n),
                Item::Packet(_) => {
                    self.effect(r, "transmits")?;
                    self.send_up(r, item, bounds);
                }
                message => self.send_up(r, message, bounds),
            }
        }
        Ok(())
    }

    /// A message to the switch goes behind the packets that were to leave before.
    fn say_up(&mut self, r: usize, item: Item, bounds: &Bounds) {
        match self.runtimes[r].outbox.is_empty() {
            true => self.send_up(r, item, bounds),
            false => self.runtimes[r].outbox.push(item),
        }
    }

    fn say_idle(&mut self, r: usize, bounds: &Bounds) {
        let consumed = self.runtimes[r].consumed;
        self.say_up(r, Item::GroupEmpty(consumed), bounds);
    }

    /// The view that a runtime has removes another.
    pub(super) fn runtime_learns(&mut self, r: usize, gone: usize, bounds: &Bounds) -> Check {
        let unread = core::mem::take(&mut self.across[gone]);
        self.drop_packets(&unread);
        // The removed runtime may read words on their way to it.
        let unread = self.across[r].clone();
        self.drop_packets(&unread);
        let runtime = &mut self.runtimes[r];
        if runtime.seen.is_some() || runtime.staged.is_some() {
            self.survivor = Some(r);
        }
        let Some(machine) = runtime.machine else {
            return Ok(());
        };
        let (phase, gone) = (machine.phase(), id(gone));
        let is_slot = matches!(phase, Phase::Buffering { from, is_staged: false, .. } if from == gone);
        let is_taken = match phase {
            Phase::Rerouting { to, .. } | Phase::Quiescing { to } | Phase::Forwarding { to, .. } => {
                to == gone
            }
            Phase::Returning { peer, .. } => peer == gone,
            _ => false,
        };
        runtime.is_to_be_routed |= is_taken;
        self.drive(r, Input::Removed(gone), bounds)?;
        if is_slot {
            self.say_up(r, Item::Installed(machine.latest()), bounds);
            self.say_idle(r, bounds);
        }
        Ok(())
    }

    fn let_go(&mut self, r: usize) {
        self.runtimes[r].seen = None;
    }

    /// The group is another's.
    fn give_up(&mut self, r: usize) {
        let runtime = &mut self.runtimes[r];
        if runtime.is_taken && runtime.machine.is_none() {
            runtime.is_taken = false;
            self.let_go(r);
        }
    }

    /// As `Moves::handle_runtime_message`, and `answer_without_move`.
    fn handle_runtime_message(&mut self, r: usize, message: RuntimeMessage, bounds: &Bounds) -> Check {
        let runtime = &mut self.runtimes[r];
        let mut room = Ok(());
        if let RuntimeMessage::Open(epoch, _) = message {
            runtime.clock = runtime.clock.max(epoch);
            if runtime.machine.is_some() || runtime.seen.is_some() {
                room = Err(Refusal::Busy);
            } else {
                runtime.staged = None;
                runtime.machine = Some(Ownership::absent(id(r), Switches::one(0)));
            }
        }
        if runtime.machine.is_some() {
            return self.drive(r, Input::FromRuntime(id(1 - r), message, room), bounds);
        }
        let answer = match message {
            RuntimeMessage::Open(epoch, _) => RuntimeMessage::Refuse(epoch, Refusal::Busy),
            RuntimeMessage::Cancel(epoch) => RuntimeMessage::Canceled(epoch),
            RuntimeMessage::State(epoch) => RuntimeMessage::Fenced(epoch.next()),
            RuntimeMessage::Done(epoch) => RuntimeMessage::Gone(epoch),
            RuntimeMessage::Back(epoch, home) => RuntimeMessage::End(epoch, home),
            _ => return Ok(()),
        };
        self.send_across(r, Item::RuntimeMessage(answer));
        Ok(())
    }

    /// As `Moves::handle_switch_message`.
    fn handle_switch_message(&mut self, r: usize, message: SwitchMessage, bounds: &Bounds) -> Check {
        let runtime = &self.runtimes[r];
        match (runtime.machine, message) {
            (Some(machine), SwitchMessage::Fenced(epoch)) => {
                let epoch = match runtime.is_to_be_routed {
                    true => epoch.max(machine.latest().next()),
                    false => epoch,
                };
                self.drive(r, Input::FromSwitch(0, SwitchMessage::Fenced(epoch)), bounds)
            }
            (Some(_), _) => self.drive(r, Input::FromSwitch(0, message), bounds),
            (None, SwitchMessage::Moved(to, epoch)) => {
                if to != id(r) {
                    self.let_go(r);
                }
                self.send_across(r, Item::RuntimeMessage(RuntimeMessage::End(epoch, 0)));
                Ok(())
            }
            (None, _) => Ok(()),
        }
    }

    /// As `Moves::drive`.
    pub(super) fn drive(&mut self, r: usize, input: Input, bounds: &Bounds) -> Check {
        let Some(machine) = &mut self.runtimes[r].machine else {
            return Ok(());
        };
        let mut outputs = vec![];
        machine.handle(input, |output| outputs.push(output));
        for output in outputs {
            self.carry_out(r, output, bounds)?;
        }
        let over = |machine: Ownership| {
            matches!(
                machine.phase(),
                Phase::Absent | Phase::Active | Phase::Tombstone { .. }
            )
        };
        match self.runtimes[r].machine.is_some_and(over) {
            true => self.end_moving(r, bounds),
            false => Ok(()),
        }
    }

    fn carry_out(&mut self, r: usize, output: Output, bounds: &Bounds) -> Check {
        let runtime = &mut self.runtimes[r];
        match output {
            Output::Tell(_, message @ RuntimeMessage::Done(_)) => {
                runtime.done = Some(message);
                self.say_done(r, bounds);
            }
            Output::Tell(_, message) => self.send_across(r, Item::RuntimeMessage(message)),
            Output::TellSwitches(_, words) => {
                if let TellSwitch::Reroute { epoch, .. } = words {
                    runtime.clock = runtime.clock.max(epoch);
                }
                self.say_up(r, Item::Tell(words), bounds);
            }
            Output::Quiesce => runtime.quiesces = true,
            Output::SendState(_, epoch) => {
                let Some(seen) = runtime.seen else {
                    return Err("a state is sent that is not there".into());
                };
                self.send_across(r, Item::State(epoch, seen));
            }
            Output::Install => {
                runtime.seen = runtime.staged.take();
                let epoch = runtime.machine.map(|machine| machine.latest());
                self.say_up(r, Item::Installed(epoch.unwrap_or_default()), bounds);
                self.process_kept(r, bounds)?;
            }
            Output::Depart => runtime.seen = None,
            Output::HandOver(..) => {
                let mut kept = core::mem::take(&mut runtime.kept);
                kept.sort_by_key(|(class, _)| *class != Class::Handed);
                for (_, n) in kept {
                    self.send_across(r, Item::Packet(n));
                }
            }
            Output::CloseSlot => {
                runtime.staged = None;
                let kept = core::mem::take(&mut runtime.kept);
                kept.into_iter().for_each(|(_, n)| self.drop_packet(n));
            }
            Output::Stop => {
                self.let_go(r);
                self.say_up(r, Item::Suspect, bounds);
            }
            // As `Moves::take_back`.
            Output::Orphaned => {
                let latest = runtime.machine.map_or(runtime.clock, |machine| machine.latest());
                runtime.clock = runtime.clock.max(latest.next());
                self.drive(r, Input::Grant(latest.next()), bounds)?;
            }
            Output::Finished(_) | Output::Release(_) => {}
        }
        Ok(())
    }

    /// As `Moves::go_on_handing`: the word waits for a lease.
    pub(super) fn say_done(&mut self, r: usize, bounds: &Bounds) {
        if self.is_leased(r, bounds, Broken::SaysDoneWithout)
            && let Some(message) = self.runtimes[r].done.take()
        {
            self.send_across(r, Item::RuntimeMessage(message));
        }
    }

    fn end_moving(&mut self, r: usize, bounds: &Bounds) -> Check {
        let runtime = &mut self.runtimes[r];
        let Some(machine) = runtime.machine.take() else {
            return Ok(());
        };
        runtime.done = None;
        let is_to_be_routed = core::mem::take(&mut runtime.is_to_be_routed);
        let is_asked = core::mem::take(&mut runtime.is_asked);
        runtime.quiesces = false;
        let has_it = runtime.seen.is_some();
        if machine.phase() == Phase::Active {
            if is_to_be_routed && has_it {
                self.say_up(r, Item::Routed, bounds);
            }
            self.process_kept(r, bounds)?;
            if !has_it {
                self.say_idle(r, bounds);
            }
        } else {
            let kept = core::mem::take(&mut runtime.kept);
            kept.into_iter().for_each(|(_, n)| self.drop_packet(n));
            if is_asked && !has_it {
                self.say_idle(r, bounds);
            }
        }
        self.give_up(r);
        Ok(())
    }

    fn process_kept(&mut self, r: usize, bounds: &Bounds) -> Check {
        let mut kept = core::mem::take(&mut self.runtimes[r].kept);
        kept.sort_by_key(|(class, _)| *class);
        for (_, n) in kept {
            match self.runtimes[r].seen {
                Some(_) => self.release(r, n, bounds)?,
                None => self.drop_packet(n),
            }
        }
        Ok(())
    }
}
