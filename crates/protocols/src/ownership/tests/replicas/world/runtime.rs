//! A runtime and a group on its way: as `runtime::mobility` does.

use super::*;

impl World {
    pub(super) fn at_runtime(
        &mut self,
        r: usize,
        from: Option<usize>,
        item: Item,
        room: Result<(), Refusal>,
    ) -> Check {
        let runtime = self.live(r);
        let machine = runtime.machine;
        match (item, from) {
            (Item::Packet(n), _) => {
                let phase = machine.map(|machine| machine.phase());
                let is_pinned = matches!(phase, Some(Phase::Returning { .. }));
                let class = match phase {
                    _ if from.is_some() => Class::Handed,
                    Some(Phase::Returning { away, .. }) if !away.has(0) => Class::Before,
                    _ => Class::Behind,
                };
                let take = match (machine, from) {
                    (Some(machine), None) => machine.take(0),
                    (Some(machine), Some(_)) => machine.take_handed(0),
                    (None, _) if runtime.seen.is_some() => Take::Process,
                    (None, _) => Take::Stray,
                };
                match take {
                    _ if is_pinned => runtime.kept.push((class, n)),
                    Take::Process if runtime.seen.is_some() => self.process(r, n)?,
                    Take::Keep => runtime.kept.push((class, n)),
                    Take::PassOn(to) => self.send_across(r, usize::from(to.0), item),
                    // The flow is over, or never was here: the packet begins none.
                    Take::Process | Take::Stray => {
                        self.drop_packet(n);
                        if machine.is_none() {
                            self.up[r].push(Item::GroupEmpty);
                        }
                    }
                }
            }
            (Item::RuntimeMessage(message), Some(from)) => self.hear(r, from, message, room)?,
            (Item::State(epoch, seen), Some(from)) => {
                if machine.is_some_and(|machine| machine.wants_state(epoch)) {
                    runtime.staged = seen;
                }
                self.hear(r, from, RuntimeMessage::State(epoch), room)?;
            }
            (Item::Base(number), Some(from)) => {
                runtime.copies[from] = Some(Copies {
                    number,
                    count: 1,
                    seen: None,
                    is_over: false,
                });
                self.send_across(r, from, Item::Acknowledged(number, 1));
            }
            (Item::Copy(_) | Item::End(_) | Item::Over(_), Some(from)) => {
                if let Some(copies) = &mut runtime.copies[from] {
                    copies.count += 1;
                    (copies.seen, copies.is_over) = match item {
                        Item::Copy(seen) => (Some(seen), copies.is_over),
                        Item::Over(is_over) => (copies.seen, is_over),
                        Item::End(is_over) => (None, is_over || copies.is_over),
                        _ => (copies.seen, copies.is_over),
                    };
                    let (number, count) = (copies.number, copies.count);
                    self.send_across(r, from, Item::Acknowledged(number, count));
                }
            }
            (Item::Acknowledged(number, count), Some(from)) => self.acknowledge(r, from, number, count)?,
            (Item::SwitchMessage(message), None) => self.handle_switch_message(r, message)?,
            (Item::Heir(failed), None) => {
                let failed = usize::from(failed);
                if let Some((_, is_let_go)) = &mut runtime.recoveries[failed] {
                    *is_let_go = true;
                }
                self.go_on(r, failed)?;
            }
            (Item::Probe, None) => match (machine, runtime.seen) {
                (Some(_), _) => runtime.is_asked = true,
                (None, None) => self.up[r].push(Item::GroupEmpty),
                (None, Some(_)) => {}
            },
            (Item::Taken, None) => {
                runtime.is_taken = runtime.seen.is_some();
                self.give_up(r);
            }
            _ => return Err(format!("{item:?} is nothing for a runtime")),
        }
        Ok(())
    }

    /// The group is another's.
    pub(super) fn give_up(&mut self, r: usize) {
        let runtime = self.live(r);
        if runtime.is_taken && runtime.machine.is_none() {
            runtime.is_taken = false;
            self.let_go(r);
        }
    }

    /// As `Moves::handle_runtime_message`, and `answer_without_move`.
    pub(super) fn hear(
        &mut self,
        r: usize,
        from: usize,
        message: RuntimeMessage,
        room: Result<(), Refusal>,
    ) -> Check {
        let runtime = self.live(r);
        let mut room = room;
        if let RuntimeMessage::Open(epoch, _) = message {
            runtime.clock = runtime.clock.max(epoch);
            match runtime.machine {
                Some(_) => room = Err(Refusal::Busy),
                None => {
                    runtime.staged = None;
                    runtime.machine = Some(Ownership::absent(id(r), Switches::one(0)));
                }
            }
        }
        if runtime.machine.is_some() {
            return self.drive(r, Input::FromRuntime(id(from), message, room));
        }
        let answer = match message {
            RuntimeMessage::Open(epoch, _) => RuntimeMessage::Refuse(epoch, Refusal::Busy),
            RuntimeMessage::Cancel(epoch) => RuntimeMessage::Canceled(epoch),
            RuntimeMessage::State(epoch) => RuntimeMessage::Fenced(epoch.next()),
            RuntimeMessage::Done(epoch) => RuntimeMessage::Gone(epoch),
            RuntimeMessage::Back(epoch, home) => RuntimeMessage::End(epoch, home),
            _ => return Ok(()),
        };
        self.send_across(r, from, Item::RuntimeMessage(answer));
        Ok(())
    }

    /// As `Moves::handle_switch_message`.
    pub(super) fn handle_switch_message(&mut self, r: usize, message: SwitchMessage) -> Check {
        let runtime = self.live(r);
        match (runtime.machine, message) {
            (Some(machine), SwitchMessage::Fenced(epoch)) => {
                let epoch = match runtime.is_to_be_routed {
                    true => epoch.max(machine.latest().next()),
                    false => epoch,
                };
                self.drive(r, Input::FromSwitch(0, SwitchMessage::Fenced(epoch)))
            }
            (Some(_), _) => self.drive(r, Input::FromSwitch(0, message)),
            (None, SwitchMessage::Moved(to, epoch)) => {
                if to != id(r) {
                    self.let_go(r);
                }
                self.send_across(
                    r,
                    usize::from(to.0),
                    Item::RuntimeMessage(RuntimeMessage::End(epoch, 0)),
                );
                Ok(())
            }
            (None, _) => Ok(()),
        }
    }

    /// As `Moves::drive`.
    pub(super) fn drive(&mut self, r: usize, input: Input) -> Check {
        let Some(machine) = &mut self.live(r).machine else {
            return Ok(());
        };
        let mut outputs = vec![];
        machine.handle(input, |output| outputs.push(output));
        for output in outputs {
            self.carry_out(r, output)?;
        }
        let over = |machine: Ownership| {
            matches!(
                machine.phase(),
                Phase::Absent | Phase::Active | Phase::Tombstone { .. }
            )
        };
        match self.live(r).machine.is_some_and(over) {
            true => self.end_moving(r),
            false => Ok(()),
        }
    }

    pub(super) fn carry_out(&mut self, r: usize, output: Output) -> Check {
        match output {
            Output::Tell(to, message @ RuntimeMessage::Done(_)) => {
                let runtime = self.live(r);
                let copied = Withdrawn {
                    number: runtime.number,
                    count: runtime.sent,
                };
                runtime.done = Some((to, message, copied));
                self.send_done(r);
            }
            Output::Tell(to, message) => {
                self.send_across(r, usize::from(to.0), Item::RuntimeMessage(message))
            }
            Output::TellSwitches(_, words) => {
                if let TellSwitch::Reroute { epoch, .. } = words {
                    let runtime = self.live(r);
                    runtime.clock = runtime.clock.max(epoch);
                }
                self.up[r].push(Item::Tell(words));
            }
            Output::Quiesce => self.live(r).quiesces = true,
            Output::SendState(to, epoch) => self.send_state(r, to, epoch),
            Output::Install => {
                let runtime = self.live(r);
                runtime.seen = runtime.staged.take();
                let epoch = runtime
                    .machine
                    .map_or(Epoch::default(), |machine| machine.latest());
                self.copy(r);
                self.up[r].push(Item::Installed(epoch));
                self.process_kept(r)?;
            }
            Output::Depart => {
                self.live(r).seen = None;
            }
            Output::HandOver(to, _) => {
                let mut kept = core::mem::take(&mut self.live(r).kept);
                kept.sort_by_key(|(class, _)| *class != Class::Handed);
                for (_, n) in kept {
                    self.send_across(r, usize::from(to.0), Item::Packet(n));
                }
            }
            Output::CloseSlot => {
                let runtime = self.live(r);
                runtime.staged = None;
                let kept = core::mem::take(&mut runtime.kept);
                kept.into_iter().for_each(|(_, n)| self.drop_packet(n));
            }
            Output::Stop => {
                self.let_go(r);
                self.up[r].push(Item::Suspect);
            }
            // As `Moves::take_back`.
            Output::Orphaned => {
                let runtime = self.live(r);
                let latest = runtime.machine.map_or(runtime.clock, |machine| machine.latest());
                runtime.clock = runtime.clock.max(latest.next());
                self.drive(r, Input::Grant(latest.next()))?;
            }
            Output::Finished(_) | Output::Release(_) => {}
        }
        Ok(())
    }

    /// As `Core::withdraw_copies`: the copies count no more before the target has the state.
    pub(super) fn send_state(&mut self, r: usize, to: RuntimeId, epoch: Epoch) {
        let runtime = self.live(r);
        runtime.is_leaving = true;
        self.withdraw(r);
        let runtime = self.live(r);
        let withdrawn = match runtime.replica {
            // The replica hears of both by one link.
            Some(replica) if u16::from(replica) != to.0 => Withdrawn {
                number: runtime.number,
                count: runtime.sent,
            },
            _ => Withdrawn::default(),
        };
        runtime.withdrawn = Some((to, epoch, withdrawn));
        self.send_end(r);
    }

    pub(super) fn end_moving(&mut self, r: usize) -> Check {
        let runtime = self.live(r);
        let Some(machine) = runtime.machine.take() else {
            return Ok(());
        };
        runtime.is_leaving = false;
        let is_to_be_routed = core::mem::take(&mut runtime.is_to_be_routed);
        let is_asked = core::mem::take(&mut runtime.is_asked);
        (runtime.withdrawn, runtime.quiesces, runtime.done) = (None, false, None);
        if core::mem::take(&mut runtime.is_over) {
            self.send_copy(r, Item::Over(false));
        }
        if !self.live(r).is_copied {
            self.copy(r);
        }
        let has_it = self.live(r).seen.is_some();
        if machine.phase() == Phase::Active {
            if is_to_be_routed && has_it {
                self.up[r].push(Item::Routed);
            }
            self.process_kept(r)?;
            if !has_it {
                self.up[r].push(Item::GroupEmpty);
            }
        } else {
            let kept = core::mem::take(&mut self.live(r).kept);
            kept.into_iter().for_each(|(_, n)| self.drop_packet(n));
            if is_asked && !has_it {
                self.up[r].push(Item::GroupEmpty);
            }
        }
        self.give_up(r);
        Ok(())
    }

    pub(super) fn process_kept(&mut self, r: usize) -> Check {
        let mut kept = core::mem::take(&mut self.live(r).kept);
        kept.sort_by_key(|(class, _)| *class);
        for (_, n) in kept {
            match self.live(r).seen {
                Some(_) => self.process(r, n)?,
                None => self.drop_packet(n),
            }
        }
        Ok(())
    }

    /// Checker: each packet is processed once, behind those that came before it.
    pub(super) fn process(&mut self, r: usize, n: u8) -> Check {
        let before = self.processed;
        self.processed |= 1 << n;
        let runtime = self.live(r);
        let Some(seen) = runtime.seen else {
            return Err(format!("packet {n} is processed by {r}, which has no state"));
        };
        if n < seen || before >> n != 0 {
            return Err(format!(
                "packet {n} is processed by {r} on a state that has seen {seen} of them"
            ));
        }
        runtime.seen = Some(n + 1);
        self.copy(r);
        let runtime = self.live(r);
        if runtime.replica.is_none() {
            self.up[r].push(Item::Packet(n));
            return Ok(());
        }
        let sent = runtime.sent;
        runtime.gate.push((n, sent));
        self.open_gate(r)
    }
}
