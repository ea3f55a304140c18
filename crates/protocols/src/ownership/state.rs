//! A group's ownership at a runtime: the source's side and the target's.

use super::inputs::{Finished, Input, Output, Phase, Take, Timer};
use super::message::{Epoch, Refusal, RuntimeId, RuntimeMessage, SwitchMessage, Switches, TellSwitch};
use super::{Bug, has};

/// One group at one runtime. See the module's page.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ownership {
    me: RuntimeId,
    phase: Phase,
    /// The epoch at which the group is here, or was last.
    epoch: Epoch,
    /// The highest that was said or heard.
    announced: Epoch,
    /// The switches that have routes of the group.
    homes: Switches,
    /// The switches by which its packets may leave.
    exits: Switches,
    /// Returning: homes that are gone, of which the target was told so.
    backed: Switches,
    /// Returning: from a target that is gone, and that may have installed the group.
    is_taken_back: bool,
}

impl Ownership {
    /// A runtime that has nothing of the group.
    pub const fn absent(me: RuntimeId, exits: Switches) -> Self {
        Ownership {
            me,
            phase: Phase::Absent,
            epoch: Epoch { view: 0, count: 0 },
            announced: Epoch { view: 0, count: 0 },
            homes: Switches::NONE,
            exits,
            backed: Switches::NONE,
            is_taken_back: false,
        }
    }

    /// A runtime that has the group, with routes at `homes`.
    pub const fn active(me: RuntimeId, epoch: Epoch, homes: Switches, exits: Switches) -> Self {
        Ownership {
            me,
            phase: Phase::Active,
            epoch,
            announced: epoch,
            homes,
            exits,
            backed: Switches::NONE,
            is_taken_back: false,
        }
    }

    /// The group's phase here.
    pub const fn phase(&self) -> Phase {
        self.phase
    }

    /// The highest epoch known here.
    pub const fn latest(&self) -> Epoch {
        self.announced
    }

    /// Whether packets are processed here.
    pub const fn is_active(&self) -> bool {
        matches!(
            self.phase,
            Phase::Active
                | Phase::Opening { .. }
                | Phase::Canceling { .. }
                | Phase::Rerouting { .. }
                | Phase::Quiescing { .. }
                | Phase::Returning { .. }
                | Phase::Announcing { .. }
        )
    }

    /// Whether a move may begin.
    pub const fn may_move(&self) -> bool {
        matches!(self.phase, Phase::Active)
    }

    /// Whether the group is taken back from a target that is gone, and that may have installed it.
    pub const fn is_taken_back(&self) -> bool {
        self.is_taken_back
    }

    /// Whether nothing is left to be done or waited for.
    pub const fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Absent | Phase::Active)
    }

    /// Whether something is awaited of a switch that it will never say, should it be gone.
    pub const fn awaits(&self, switch: u8) -> bool {
        match self.phase {
            Phase::Rerouting { unanswered, .. } => unanswered.has(switch),
            Phase::Returning {
                unanswered, unended, ..
            } => unanswered.has(switch) || (unended.has(switch) && !self.backed.has(switch)),
            Phase::Buffering { unclear, .. } => unclear.has(switch),
            Phase::Yielding { unmoved, .. } => unmoved.has(switch),
            _ => false,
        }
    }

    /// Whether the state of this epoch is awaited here.
    pub fn wants_state(&self, epoch: Epoch) -> bool {
        epoch == self.announced && matches!(self.phase, Phase::Buffering { is_staged: false, .. })
    }

    /// Whether this is a slot of that source, which is yet to hear from this switch that the group
    /// is called back.
    pub fn awaits_moved(&self, switch: u8, to: RuntimeId, epoch: Epoch) -> bool {
        match self.phase {
            Phase::Buffering { .. } => self.phase.is_slot_of(to) && epoch > self.announced,
            Phase::Yielding { to: source, unmoved } => {
                (source, epoch) == (to, self.announced) && unmoved.has(switch)
            }
            _ => false,
        }
    }

    /// How to take a packet that a switch sent.
    pub fn take(&self, home: u8) -> Take {
        match self.phase {
            Phase::Returning { away, unended, .. } if away.has(home) && unended.has(home) => Take::Keep,
            Phase::Buffering { .. } => Take::Keep,
            Phase::Yielding { unmoved, .. } if unmoved.has(home) => Take::Keep,
            Phase::Yielding { to, .. } | Phase::Forwarding { to, .. } | Phase::Tombstone { to } => {
                Take::PassOn(to)
            }
            Phase::Absent => Take::Stray,
            _ => Take::Process,
        }
    }

    /// How to take a packet of this home that another runtime passed on.
    pub fn take_handed(&self, home: u8) -> Take {
        match self.phase {
            Phase::Returning { away, .. } if !away.has(home) && !has(Bug::NoWaitForAnswer) => Take::Keep,
            Phase::Returning { .. } => Take::Process,
            _ => self.take(home),
        }
    }

    /// Whether a timer runs.
    pub fn is_armed(&self, timer: Timer) -> bool {
        match timer {
            Timer::Retry => matches!(
                self.phase,
                Phase::Opening { .. }
                    | Phase::Canceling { .. }
                    | Phase::Rerouting { .. }
                    | Phase::Forwarding {
                        is_removed: false,
                        ..
                    }
                    | Phase::Returning { .. }
                    | Phase::Announcing { .. }
            ),
            Timer::Deadline => {
                matches!(
                    self.phase,
                    Phase::Opening { .. } | Phase::Rerouting { .. } | Phase::Quiescing { .. }
                ) || (has(Bug::ResumesByItself) && matches!(self.phase, Phase::Forwarding { .. }))
            }
            Timer::Forget => matches!(self.phase, Phase::Tombstone { .. }),
        }
    }

    /// Takes an input in; outputs go to `out`, in order.
    pub fn handle(&mut self, input: Input, mut out: impl FnMut(Output)) {
        let out = &mut out;
        match input {
            Input::Move(to) => self.on_move(to, out),
            Input::FromRuntime(from, message, room) => self.on_runtime(from, message, room, out),
            Input::FromSwitch(switch, message) => self.on_switch(switch, message, out),
            Input::SwitchGone(switch) => self.on_switch_gone(switch, out),
            Input::Quiesced => self.on_quiesced(out),
            Input::Ended => self.on_ended(out),
            Input::Fired(Timer::Retry) => self.on_retry(out),
            Input::Fired(Timer::Deadline) => self.on_deadline(out),
            Input::Fired(Timer::Forget) => {
                if let Phase::Tombstone { .. } = self.phase {
                    self.phase = Phase::Absent;
                }
            }
            Input::Removed(runtime) => self.on_removed(runtime, out),
            Input::Grant(epoch) => self.on_grant(epoch, out),
        }
    }

    fn on_move(&mut self, to: RuntimeId, out: &mut impl FnMut(Output)) {
        if self.phase != Phase::Active || to == self.me {
            return;
        }
        self.announced = self.announced.next();
        self.phase = Phase::Opening { to };
        out(Output::Tell(to, RuntimeMessage::Open(self.announced, self.homes)));
    }

    fn on_runtime(
        &mut self,
        from: RuntimeId,
        message: RuntimeMessage,
        room: Result<(), Refusal>,
        out: &mut impl FnMut(Output),
    ) {
        let announced = self.announced;
        match (message, self.phase) {
            (RuntimeMessage::Open(epoch, homes), _) => self.on_open(from, epoch, homes, room, out),
            (RuntimeMessage::Accept(epoch), Phase::Opening { to }) if (epoch, from) == (announced, to) => {
                self.phase = Phase::Rerouting {
                    to,
                    unanswered: self.homes,
                };
                self.reroute(self.homes, self.me, to, out);
                self.on_answers(out);
            }
            (RuntimeMessage::Refuse(epoch, why), Phase::Opening { to })
                if (epoch, from) == (announced, to) =>
            {
                self.finish(Finished::Refused(why), out);
            }
            (RuntimeMessage::Cancel(epoch), phase) => {
                if epoch == announced && phase.is_slot_of(from) {
                    self.close(out);
                }
                out(Output::Tell(from, RuntimeMessage::Canceled(epoch)));
            }
            // The source has stopped, and nothing comes of it any more: not all homes will say that
            // it is called back.
            (RuntimeMessage::Fenced(_), phase) if phase.is_slot_of(from) || phase.is_yielding_to(from) => {
                self.close(out);
            }
            (RuntimeMessage::Canceled(epoch), Phase::Canceling { to })
                if (epoch, from) == (announced, to) =>
            {
                self.finish(Finished::Aborted, out);
            }
            (
                RuntimeMessage::State(epoch),
                Phase::Buffering {
                    from: source,
                    is_staged: false,
                    unclear,
                },
            ) if (epoch, from) == (announced, source) => {
                self.phase = Phase::Buffering {
                    from,
                    is_staged: true,
                    unclear,
                };
                self.install_if_clear(out);
            }
            // Said again: it is installed already.
            (RuntimeMessage::State(epoch), Phase::Announcing { .. } | Phase::Active)
                if epoch <= self.epoch =>
            {
                out(Output::Tell(from, RuntimeMessage::Done(epoch)));
            }
            // Another runtime was given the group meanwhile, and the packets that were kept here.
            (RuntimeMessage::State(epoch), Phase::Yielding { to, .. }) if to != from && epoch < announced => {
                out(Output::Tell(from, RuntimeMessage::Fenced(announced)));
            }
            (RuntimeMessage::Done(epoch), Phase::Forwarding { to, .. })
                if (epoch, from) == (announced, to) =>
            {
                self.epoch = epoch;
                self.phase = Phase::Tombstone { to };
                out(Output::Depart);
                out(Output::Tell(to, RuntimeMessage::Gone(epoch)));
                out(Output::Finished(Finished::Moved));
            }
            // Said again, or the copy was dropped when another runtime was given the group: there
            // is none.
            (RuntimeMessage::Done(epoch), phase) if !matches!(phase, Phase::Forwarding { to, .. } if to == from) =>
            {
                out(Output::Tell(from, RuntimeMessage::Gone(epoch)));
            }
            (RuntimeMessage::Gone(epoch), Phase::Announcing { from: source })
                if (epoch, from) == (self.epoch, source) =>
            {
                self.phase = Phase::Active;
            }
            (
                RuntimeMessage::End(epoch, home),
                Phase::Returning {
                    peer,
                    unanswered,
                    away,
                    unended,
                },
            ) if epoch == announced => {
                self.phase = Phase::Returning {
                    peer,
                    unanswered,
                    away,
                    unended: unended.without(home),
                };
                // The kept packets came behind it.
                if away.has(home) {
                    out(Output::Release(home));
                }
                self.on_returned(out);
            }
            (RuntimeMessage::Fenced(_), Phase::Announcing { from: source }) if from == source => {}
            // From another runtime it is a word of before: this source has asked its target only.
            (RuntimeMessage::Fenced(epoch), phase) if phase.target() == Some(from) => {
                self.on_fenced(epoch, out)
            }
            (RuntimeMessage::Fenced(_), _) => {}
            (RuntimeMessage::Back(epoch, home), Phase::Buffering { from: source, .. }) if from == source => {
                self.on_moved(home, from, epoch, out);
            }
            (RuntimeMessage::Back(epoch, home), Phase::Yielding { to, .. }) if from == to => {
                self.on_moved(home, from, epoch, out);
            }
            // Nothing is kept.
            (RuntimeMessage::Back(epoch, home), _) => {
                out(Output::Tell(from, RuntimeMessage::End(epoch, home)))
            }
            // Late, or said again.
            _ => {}
        }
    }

    fn on_open(
        &mut self,
        from: RuntimeId,
        epoch: Epoch,
        homes: Switches,
        room: Result<(), Refusal>,
        out: &mut impl FnMut(Output),
    ) {
        let answer = match self.phase {
            Phase::Buffering { from: source, .. } if source == from && epoch == self.announced => {
                RuntimeMessage::Accept(epoch)
            }
            // Asked again: the first answer stands, or the source would hear of a slot that it does
            // not want any more.
            Phase::Absent if epoch == self.announced => RuntimeMessage::Refuse(epoch, Refusal::Busy),
            _ if epoch <= self.announced => RuntimeMessage::Fenced(self.announced),
            Phase::Absent | Phase::Tombstone { .. } => match room {
                Ok(()) => {
                    self.announced = epoch;
                    self.homes = homes;
                    self.phase = Phase::Buffering {
                        from,
                        is_staged: false,
                        unclear: if has(Bug::NoClear) {
                            Switches::NONE
                        } else {
                            self.exits
                        },
                    };
                    RuntimeMessage::Accept(epoch)
                }
                Err(why) => {
                    self.announced = epoch;
                    self.phase = Phase::Absent;
                    RuntimeMessage::Refuse(epoch, why)
                }
            },
            _ => RuntimeMessage::Refuse(epoch, Refusal::Busy),
        };
        out(Output::Tell(from, answer));
    }

    fn on_switch(&mut self, switch: u8, message: SwitchMessage, out: &mut impl FnMut(Output)) {
        let announced = self.announced;
        match (message, self.phase) {
            (SwitchMessage::Rerouted(epoch), Phase::Rerouting { to, unanswered }) if epoch == announced => {
                self.phase = Phase::Rerouting {
                    to,
                    unanswered: unanswered.without(switch),
                };
                self.on_answers(out);
            }
            (
                SwitchMessage::Rerouted(epoch),
                Phase::Returning {
                    peer,
                    unanswered,
                    away,
                    unended,
                },
            ) if unanswered.has(switch) && (epoch == announced || epoch.next() == announced) => {
                let is_back = epoch == announced;
                self.phase = Phase::Returning {
                    peer,
                    unanswered: if is_back {
                        unanswered.without(switch)
                    } else {
                        unanswered
                    },
                    away: away.with(switch),
                    unended,
                };
                // The packets that were handed over meanwhile.
                if !away.has(switch) {
                    out(Output::Release(switch));
                }
                self.on_returned(out);
            }
            (SwitchMessage::Refused(epoch), Phase::Rerouting { to, .. }) if epoch == announced => {
                self.call_back(to, out);
            }
            (
                SwitchMessage::Drained(epoch),
                Phase::Buffering {
                    from,
                    is_staged,
                    unclear,
                },
            ) if epoch == announced => {
                self.phase = Phase::Buffering {
                    from,
                    is_staged,
                    unclear: unclear.without(switch),
                };
                self.install_if_clear(out);
            }
            (SwitchMessage::Moved(to, epoch), _) => self.on_moved(switch, to, epoch, out),
            (SwitchMessage::Fenced(epoch), _) => self.on_fenced(epoch, out),
            _ => {}
        }
    }

    fn on_switch_gone(&mut self, switch: u8, out: &mut impl FnMut(Output)) {
        let message = match self.phase {
            Phase::Rerouting { unanswered, .. } | Phase::Returning { unanswered, .. }
                if unanswered.has(switch) =>
            {
                Some(SwitchMessage::Rerouted(self.announced))
            }
            Phase::Buffering { unclear, .. } if unclear.has(switch) && !has(Bug::WaitsForGone) => {
                Some(SwitchMessage::Drained(self.announced))
            }
            Phase::Yielding { to, unmoved } if unmoved.has(switch) => {
                Some(SwitchMessage::Moved(to, self.announced))
            }
            _ => None,
        };
        if let Some(message) = message {
            self.on_switch(switch, message, out);
        }
        if let Phase::Returning { peer, unended, .. } = self.phase
            && unended.has(switch)
            && !self.backed.has(switch)
        {
            self.backed = self.backed.with(switch);
            if !has(Bug::SilentOfGone) {
                out(Output::Tell(peer, RuntimeMessage::Back(self.announced, switch)));
            }
        }
    }

    /// Hands over the packets kept from a home that sends elsewhere now. Every word is answered,
    /// even empty-handed.
    fn on_moved(&mut self, switch: u8, to: RuntimeId, epoch: Epoch, out: &mut impl FnMut(Output)) {
        match self.phase {
            Phase::Buffering { is_staged: false, .. } if epoch > self.announced => {
                self.announced = epoch;
                self.phase = Phase::Yielding {
                    to,
                    unmoved: self.homes,
                };
                self.yield_home(switch, to, out);
            }
            Phase::Yielding { unmoved, .. } if epoch == self.announced && unmoved.has(switch) => {
                self.yield_home(switch, to, out);
            }
            _ => {
                if self.is_active() {
                    self.on_fenced(epoch, out);
                }
                if !has(Bug::SilentWhenEmpty) {
                    out(Output::Tell(to, RuntimeMessage::End(epoch, switch)));
                }
            }
        }
    }

    fn yield_home(&mut self, switch: u8, to: RuntimeId, out: &mut impl FnMut(Output)) {
        let Phase::Yielding { unmoved, .. } = self.phase else {
            return;
        };
        out(Output::HandOver(to, switch));
        out(Output::Tell(to, RuntimeMessage::End(self.announced, switch)));
        let unmoved = unmoved.without(switch);
        self.phase = Phase::Yielding { to, unmoved };
        if unmoved.is_empty() {
            self.phase = Phase::Absent;
            out(Output::CloseSlot);
        }
    }

    fn on_answers(&mut self, out: &mut impl FnMut(Output)) {
        if let Phase::Rerouting { to, unanswered } = self.phase
            && (unanswered.is_empty() || (has(Bug::OneAnswerIsEnough) && unanswered != self.homes))
        {
            self.phase = Phase::Quiescing { to };
            out(Output::Quiesce);
        }
    }

    fn on_quiesced(&mut self, out: &mut impl FnMut(Output)) {
        let Phase::Quiescing { to } = self.phase else {
            return;
        };
        self.phase = Phase::Forwarding {
            to,
            is_removed: false,
        };
        self.send_state(to, out);
        if has(Bug::DropsCopyEarly) {
            out(Output::Depart);
        }
    }

    fn send_state(&self, to: RuntimeId, out: &mut impl FnMut(Output)) {
        let epoch = self.announced;
        out(Output::TellSwitches(
            self.exits,
            TellSwitch::DrainMarker { to, epoch },
        ));
        out(Output::SendState(to, epoch));
    }

    fn install_if_clear(&mut self, out: &mut impl FnMut(Output)) {
        if let Phase::Buffering {
            from,
            is_staged: true,
            unclear,
        } = self.phase
            && unclear.is_empty()
        {
            self.install(from, out);
        }
    }

    fn install(&mut self, from: RuntimeId, out: &mut impl FnMut(Output)) {
        self.epoch = self.announced;
        self.phase = Phase::Announcing { from };
        out(Output::Install);
        out(Output::Tell(from, RuntimeMessage::Done(self.epoch)));
    }

    /// A group that ends before any home was told needs no slot. Later, the target gets an empty
    /// state.
    fn on_ended(&mut self, out: &mut impl FnMut(Output)) {
        match self.phase {
            Phase::Opening { to } => {
                self.phase = Phase::Canceling { to };
                out(Output::Tell(to, RuntimeMessage::Cancel(self.announced)));
            }
            Phase::Active => self.phase = Phase::Absent,
            _ => {}
        }
    }

    fn on_retry(&mut self, out: &mut impl FnMut(Output)) {
        let epoch = self.announced;
        match self.phase {
            Phase::Opening { to } => out(Output::Tell(to, RuntimeMessage::Open(epoch, self.homes))),
            Phase::Canceling { to } => out(Output::Tell(to, RuntimeMessage::Cancel(epoch))),
            Phase::Rerouting { to, unanswered } => self.reroute(unanswered, self.me, to, out),
            Phase::Forwarding {
                to,
                is_removed: false,
            } => self.send_state(to, out),
            // A home that has answered, but of which nothing was handed over, tells the target
            // again.
            Phase::Returning {
                peer,
                unanswered,
                unended,
                ..
            } => self.reroute(unanswered.or(unended), peer, self.me, out),
            Phase::Announcing { from } if !has(Bug::SaysDoneOnce) => {
                out(Output::Tell(from, RuntimeMessage::Done(self.epoch)));
            }
            _ => {}
        }
    }

    fn on_deadline(&mut self, out: &mut impl FnMut(Output)) {
        match self.phase {
            Phase::Opening { to } => {
                self.phase = Phase::Canceling { to };
                out(Output::Tell(to, RuntimeMessage::Cancel(self.announced)));
            }
            Phase::Rerouting { to, .. } if has(Bug::CancelsAfterReroute) => {
                self.phase = Phase::Canceling { to };
                out(Output::Tell(to, RuntimeMessage::Cancel(self.announced)));
            }
            Phase::Rerouting { to, .. } | Phase::Quiescing { to } => self.call_back(to, out),
            Phase::Forwarding { .. } if has(Bug::ResumesByItself) => self.finish(Finished::Aborted, out),
            _ => {}
        }
    }

    fn on_removed(&mut self, gone: RuntimeId, out: &mut impl FnMut(Output)) {
        match self.phase {
            Phase::Opening { to } | Phase::Canceling { to } if to == gone => {
                self.finish(Finished::Aborted, out);
            }
            Phase::Rerouting { to, .. } | Phase::Quiescing { to } if to == gone => {
                self.call_back(to, out);
                self.give_up_on(gone, out);
            }
            Phase::Returning { peer, .. } if peer == gone => self.give_up_on(gone, out),
            Phase::Forwarding { to, .. } if to == gone => {
                self.phase = Phase::Forwarding { to, is_removed: true };
                out(Output::Orphaned);
            }
            // Nothing of the source is on the way any more, so nothing of it leaves behind ours.
            Phase::Buffering {
                from,
                is_staged: true,
                ..
            } if from == gone => self.install(from, out),
            Phase::Buffering { from, .. } if from == gone => self.close(out),
            Phase::Yielding { to, .. } if to == gone => self.close(out),
            _ => {}
        }
        // No runtime waits for the word, or for its answer.
        if self.phase == (Phase::Announcing { from: gone }) {
            self.phase = Phase::Active;
        }
    }

    fn close(&mut self, out: &mut impl FnMut(Output)) {
        self.phase = Phase::Absent;
        out(Output::CloseSlot);
    }

    /// Nothing will be handed over by the one that is gone.
    fn give_up_on(&mut self, gone: RuntimeId, out: &mut impl FnMut(Output)) {
        let Phase::Returning {
            peer,
            unanswered,
            away,
            unended,
        } = self.phase
        else {
            return;
        };
        debug_assert_eq!(peer, gone, "only of the target anything is awaited");
        self.phase = Phase::Returning {
            peer,
            unanswered,
            away,
            unended: Switches::NONE,
        };
        for home in unended.iter().filter(|home| away.has(*home)) {
            out(Output::Release(home));
        }
        self.on_returned(out);
    }

    fn on_grant(&mut self, epoch: Epoch, out: &mut impl FnMut(Output)) {
        let Phase::Forwarding { to, is_removed: true } = self.phase else {
            return;
        };
        if epoch <= self.announced {
            return;
        }
        (self.announced, self.is_taken_back) = (epoch, true);
        self.phase = Phase::Returning {
            peer: to,
            unanswered: self.homes,
            away: self.homes,
            unended: Switches::NONE,
        };
        self.reroute(self.homes, to, self.me, out);
    }

    /// Tells every home that the group is here after all.
    fn call_back(&mut self, to: RuntimeId, out: &mut impl FnMut(Output)) {
        let mut homes = self.homes;
        if has(Bug::ReturnsToSome)
            && let Phase::Rerouting { unanswered, .. } = self.phase
        {
            homes = Switches(homes.0 & !unanswered.0);
        }
        let away = match self.phase {
            Phase::Rerouting { unanswered, .. } => Switches(self.homes.0 & !unanswered.0),
            _ => self.homes,
        };
        self.announced = self.announced.next();
        self.backed = Switches::NONE;
        self.phase = Phase::Returning {
            peer: to,
            unanswered: homes,
            away,
            unended: if has(Bug::NoWaitForEnd) {
                Switches::NONE
            } else {
                homes
            },
        };
        self.reroute(homes, to, self.me, out);
        self.on_returned(out);
    }

    fn on_returned(&mut self, out: &mut impl FnMut(Output)) {
        if let Phase::Returning {
            unanswered, unended, ..
        } = self.phase
            && unanswered.is_empty()
            && unended.is_empty()
        {
            self.finish(Finished::Aborted, out);
        }
    }

    /// Of a higher epoch than any known here: another runtime was given the group. The target,
    /// which may have a slot, hears of it from this runtime alone; if it has the whole state
    /// already, that decides.
    fn on_fenced(&mut self, epoch: Epoch, out: &mut impl FnMut(Output)) {
        if epoch > self.announced && (self.is_active() || matches!(self.phase, Phase::Forwarding { .. })) {
            if let Some(target) = self.phase.target() {
                out(Output::Tell(target, RuntimeMessage::Fenced(epoch)));
            }
            self.announced = epoch;
            self.phase = Phase::Absent;
            out(Output::Stop);
        }
    }

    fn finish(&mut self, how: Finished, out: &mut impl FnMut(Output)) {
        self.phase = Phase::Active;
        (self.epoch, self.is_taken_back) = (self.announced, false);
        out(Output::Finished(how));
    }

    fn reroute(&self, homes: Switches, from: RuntimeId, to: RuntimeId, out: &mut impl FnMut(Output)) {
        let reroute = TellSwitch::Reroute {
            from,
            to,
            epoch: self.announced,
            is_taken_back: self.is_taken_back,
        };
        out(Output::TellSwitches(homes, reroute));
    }
}
