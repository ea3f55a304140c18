//! When nothing is left to be done, and the demands then.

use super::*;

impl World {
    /// Whether all is over between the members, and a removed member knows it, if it can.
    pub(in super::super) fn is_end(&self, bounds: &Bounds) -> bool {
        let is_silent = !matches!(self.trouble, Trouble::None | Trouble::Over);
        let waits_for_trouble = is_silent && (bounds.ends || self.is_member(bounds.troubled));
        let view = self.coordinator.view();
        let is_known = (0..=SWITCH).all(|place| match view.has(worker(place), ONE) {
            true => !self.is_behind(place),
            false => is_silent || self.membership(place).is_fenced(),
        });
        self.came == bounds.packets
            && !waits_for_trouble
            && is_known
            && self.reached == view.number
            && self.coordinator.suspects().1.is_empty()
            && (0..RUNTIMES).all(|r| self.is_quiet(r))
    }

    /// Whether nothing of a member is on its way. A removed member may have the others' words for
    /// ever.
    fn is_quiet(&self, r: usize) -> bool {
        let runtime = &self.runtimes[r];
        let has_left = self.up[r].is_empty() && self.across[r].is_empty();
        match self.is_member(r) {
            false => has_left,
            true => {
                let has_left = self.up[r].is_empty() && (self.across[r].is_empty() || !self.is_member(1 - r));
                has_left
                    && self.down[r].is_empty()
                    && runtime.machine.is_none()
                    && runtime.kept.is_empty()
                    && runtime.outbox.is_empty()
            }
        }
    }

    /// Checkers of an end: everything is out or accounted for; the switch leads to the one runtime
    /// that has the group; a group that a live runtime had is there; and if none has it, it begins
    /// at a member with the next packet.
    pub(in super::super) fn check_end(&self, bounds: &Bounds) -> Check {
        let all = (1_u16 << bounds.packets) - 1;
        if u16::from(self.left | self.dropped | self.with_removed()) & all != all {
            return Err("a packet is missing, and not counted".into());
        }
        let is_calm = self.trouble == Trouble::None && self.losses == 0 && self.now == 0;
        if is_calm && self.dropped != 0 {
            return Err("a packet is lost, and no runtime was in trouble".into());
        }
        let holders = (0..RUNTIMES).filter(|r| self.is_member(*r) && self.runtimes[*r].seen.is_some());
        let holders: Vec<usize> = holders.collect();
        let route = self.switch.home.route.map(|RuntimeId(r)| usize::from(r));
        // A slot that is closed may have had a packet of a group that began: the next one begins
        // it.
        let all_are_there = (0..RUNTIMES).all(|r| self.is_member(r));
        let is_agreed = route == holders.first().copied() || (holders.is_empty() && !all_are_there);
        if holders.len() > 1 || !is_agreed {
            return Err(format!(
                "the switch leads to {route:?}, and {holders:?} have the group"
            ));
        }
        if holders.is_empty() && all_are_there {
            return Err("the state is lost, and no runtime was removed".into());
        }
        if self.survivor.is_some_and(|survivor| !holders.contains(&survivor)) {
            return Err(format!("the group was at {:?}, and is lost", self.survivor));
        }
        let is_lost = |owner: &usize| self.is_member(*owner) && !holders.contains(owner);
        if let Some(owner) = self.owner.filter(is_lost) {
            return Err(format!("{owner} let go of the group, and no other had it"));
        }
        let choices = self.choices().into_iter();
        choices
            .filter(|choice| self.is_member(*choice))
            .try_for_each(|choice| self.goes_on_at(choice, bounds))
    }

    /// Packets that a removed runtime has, or has yet to read.
    fn with_removed(&self) -> u8 {
        let removed = (0..RUNTIMES).filter(|r| !self.is_member(*r));
        removed.fold(0, |all, r| {
            let runtime = &self.runtimes[r];
            let kept = runtime.kept.iter().map(|(_, n)| *n);
            let unread = self.down[r]
                .iter()
                .chain(&self.across[1 - r])
                .chain(&runtime.outbox);
            let unread = unread.filter_map(|item| match item {
                Item::Packet(n) => Some(*n),
                _ => None,
            });
            kept.chain(unread).fold(all, |all, n| all | 1 << n)
        })
    }

    /// One more packet is processed, and leaves.
    fn goes_on_at(&self, choice: usize, bounds: &Bounds) -> Check {
        let (mut world, n) = (self.clone(), self.came);
        for action in [
            Action::Granted(choice),
            Action::Ask(choice),
            Action::Granted(choice),
            Action::Come(choice),
            Action::Down(choice),
            Action::Transmit(choice),
            Action::Up(choice),
        ] {
            world.step(action, bounds)?;
            if world.dropped >> n & 1 == 1 {
                break;
            }
        }
        match world.left >> n & 1 {
            1 => Ok(()),
            _ => Err(format!("a packet finds no group at {choice}, and begins none")),
        }
    }
}
