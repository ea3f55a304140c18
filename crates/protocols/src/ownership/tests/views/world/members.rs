//! Members: leases, heartbeats, views. As `runtime::members` and the member slots of workers do.

use super::*;
use crate::membership::Notice;

impl World {
    /// A worker's clock.
    pub(super) fn clock(&self, place: usize) -> u64 {
        1000 * (place as u64 + 1) + self.now
    }

    pub(super) fn membership(&self, place: usize) -> &Membership {
        match place {
            SWITCH => &self.switch.membership,
            r => &self.runtimes[r].membership,
        }
    }

    fn membership_mut(&mut self, place: usize) -> &mut Membership {
        match place {
            SWITCH => &mut self.switch.membership,
            r => &mut self.runtimes[r].membership,
        }
    }

    /// Whether a runtime has its lease.
    pub(super) fn may_act(&self, r: usize) -> bool {
        self.runtimes[r].membership.may_act(self.clock(r))
    }

    /// Whether a runtime is a member by the view that a worker has.
    pub(super) fn has_at(&self, place: usize, r: usize) -> bool {
        self.membership(place).view().has(worker(r), ONE)
    }

    /// Whether a runtime is a member by the newest view.
    pub(super) fn is_member(&self, r: usize) -> bool {
        self.coordinator.view().has(worker(r), ONE)
    }

    pub(super) fn is_in(&self, bounds: &Bounds, r: usize, trouble: Trouble) -> bool {
        r == bounds.troubled && self.trouble == trouble
    }

    /// Whether a runtime takes steps.
    pub(super) fn runs(&self, bounds: &Bounds, r: usize) -> bool {
        !self.runtimes[r].membership.is_fenced() && !self.is_in(bounds, r, Trouble::Stalls)
    }

    /// Whether the coordinator hears a runtime, and it the coordinator.
    pub(super) fn is_heard(&self, bounds: &Bounds, r: usize) -> bool {
        let is_well = matches!(self.trouble, Trouble::None | Trouble::Over) || r != bounds.troubled;
        is_well && self.runs(bounds, r)
    }

    /// Whether a worker lacks what the coordinator has said: of lists, the switch's alone matter.
    pub(super) fn is_behind(&self, place: usize) -> bool {
        let membership = self.membership(place);
        let is_fenced = membership.is_fenced();
        let lacks_view = membership.view().number < self.coordinator.view().number;
        let lacks_list = place == SWITCH && membership.list() < self.coordinator.suspects().0;
        !is_fenced && (lacks_view || lacks_list)
    }

    // Leases.

    /// A runtime asks, and the switch answers: the request and the answer are frames. The switch
    /// has its own lease by the other runtime, which is never late.
    pub(super) fn ask(&mut self, r: usize) {
        let (now, asked) = (self.clock(SWITCH), self.clock(r));
        let grant = self.switch.membership.grant(now, worker(r), ONE, asked);
        self.runtimes[r].grant = grant;
    }

    /// The lease of a runtime that is never late, and the switch's by it.
    pub(super) fn renew_both(&mut self, r: usize) {
        let (now, of_switch) = (self.clock(r), self.clock(SWITCH));
        let membership = &mut self.runtimes[r].membership;
        if let Some(asked) = membership.grant(now, S, ONE, of_switch) {
            self.switch.membership.renew(of_switch, worker(r), ONE, asked);
        }
        let grant = self.switch.membership.grant(of_switch, worker(r), ONE, now);
        if let Some(asked) = grant {
            self.runtimes[r].membership.renew(now, S, ONE, asked);
        }
    }

    // The coordinator.

    /// Whether time passes: not before workers that are never late have heard what was said at this
    /// time; and, at the end, only as long as some answer takes time.
    pub(super) fn may_tick(&self, bounds: &Bounds) -> bool {
        if self.is_behind(SWITCH) || self.is_behind(1 - bounds.troubled) {
            return false;
        }
        let is_silent = !matches!(self.trouble, Trouble::None | Trouble::Over);
        let is_to_go = is_silent && !bounds.ends && self.is_member(bounds.troubled);
        let view = self.coordinator.view();
        let is_deciding = !self.coordinator.suspects().1.is_empty() || self.reached < view.number;
        self.now < bounds.ticks || is_to_go || is_deciding
    }

    pub(super) fn tick(&mut self, bounds: &Bounds, is_lost: bool) -> Check {
        self.now += 1;
        let (troubled, well) = (bounds.troubled, 1 - bounds.troubled);
        self.renew_both(well);
        self.beat(SWITCH)?;
        self.beat(well)?;
        self.say_withdrawn(self.now * FINE)?;
        if self.is_heard(bounds, troubled) && !is_lost {
            self.beat(troubled)?;
        }
        self.tell(self.now * FINE + MIDDLE, membership::Input::Tick)
    }

    pub(super) fn beat(&mut self, place: usize) -> Check {
        let membership = self.membership(place);
        let (view, list) = (membership.view().number, membership.list());
        let beat = membership::Input::Heartbeat(worker(place), ONE, view, list);
        self.tell(self.now * FINE, beat)
    }

    /// The switch says which leases that it has withdrawn are over.
    fn say_withdrawn(&mut self, heard_at: u64) -> Check {
        let mut said = vec![];
        let now = self.clock(SWITCH);
        self.switch.membership.poll(now, |notice| said.push(notice));
        for notice in said {
            if let Notice::Withdrawn(id, incarnation, list) = notice {
                let word = membership::Input::Withdrawn {
                    by: S,
                    incarnation: ONE,
                    of: (id, incarnation),
                    list,
                };
                self.tell(heard_at, word)?;
            }
        }
        Ok(())
    }

    /// The log has each entry at once: `membership::tests::explore` has one that is slow.
    fn tell(&mut self, now: u64, input: membership::Input) -> Check {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let (before, mut said) = (self.coordinator.view().number, vec![]);
            self.coordinator.handle(now, input, |output| said.push(output));
            for output in said {
                match output {
                    membership::Output::Log(number, _) => inputs.push_back(membership::Input::Logged(number)),
                    membership::Output::Reached(number) => self.note_reached(number)?,
                    membership::Output::Say(..) => {}
                }
            }
            if self.coordinator.view().number != before {
                self.note_view(before)?;
            }
        }
        Ok(())
    }

    /// Checker: a view that is said to be at all members is.
    fn note_reached(&mut self, number: u32) -> Check {
        let (_, suspects) = self.coordinator.suspects();
        for place in 0..=SWITCH {
            let incarnation = (worker(place), ONE);
            let is_awaited =
                self.coordinator.view().has(incarnation.0, incarnation.1) && !suspects.contains(&incarnation);
            if is_awaited && self.membership(place).view().number < number {
                return Err(format!("{:?} has not got view {number}", incarnation.0));
            }
        }
        self.reached = number;
        Ok(())
    }

    /// Checker: views' numbers grow by one, and none follows one that has not reached its members.
    fn note_view(&mut self, before: u32) -> Check {
        let number = self.coordinator.view().number;
        if number != before + 1 || self.reached < before {
            return Err(format!(
                "view {number} follows view {before}, and {} has reached all",
                self.reached
            ));
        }
        for r in 0..RUNTIMES {
            if !self.is_member(r) {
                self.note_gone(r);
            }
        }
        Ok(())
    }

    /// Drops the packets that go with a runtime.
    fn note_gone(&mut self, gone: usize) {
        let of_it = &self.runtimes[gone];
        let mut lost: Vec<u8> = of_it.kept.iter().map(|(_, n)| *n).collect();
        for item in &of_it.outbox {
            if let Item::Packet(n) = item {
                lost.push(*n);
            }
        }
        lost.into_iter().for_each(|n| self.drop_packet(n));
    }

    /// A worker hears the newest view and list, and once more, late, the first ones.
    pub(super) fn hear(&mut self, place: usize, bounds: &Bounds) -> Check {
        let (view, (list, suspects)) = (self.coordinator.view().clone(), self.coordinator.suspects());
        let membership = self.membership_mut(place);
        let before = membership.view().clone();
        for (view, list, suspects) in [(view, list, suspects.as_slice()), (first_view(), 0, &[][..])] {
            membership.adopt(view, |_| ());
            membership.suspect(list, suspects);
        }
        let after = membership.view().clone();
        let is_known = membership.list() == list;
        if after.number < before.number || !is_known {
            return Err(format!("{:?} goes back to view {}", worker(place), after.number));
        }
        if membership.is_fenced() {
            self.end_incarnation(place);
            return Ok(());
        }
        for gone in 0..RUNTIMES {
            let is_gone = before.has(worker(gone), ONE) && !after.has(worker(gone), ONE);
            match place {
                _ if !is_gone || gone == place => {}
                SWITCH => self.switch_learns(gone, bounds),
                r => self.runtime_learns(r, gone, bounds)?,
            }
        }
        match place {
            SWITCH => self.say_withdrawn(self.now * FINE + MIDDLE),
            _ => Ok(()),
        }
    }

    /// A removed runtime knows it, and stops.
    fn end_incarnation(&mut self, r: usize) {
        let runtime = &mut self.runtimes[r];
        let membership = runtime.membership.clone();
        let old = core::mem::replace(runtime, Runtime::new(r));
        (self.runtimes[r].membership, self.runtimes[r].seen) = (membership, None);
        self.drop_packets(&old.outbox);
        old.kept.into_iter().for_each(|(_, n)| self.drop_packet(n));
        for unread in [
            core::mem::take(&mut self.down[r]),
            core::mem::take(&mut self.across[1 - r]),
        ] {
            self.drop_packets(&unread);
        }
    }
}
