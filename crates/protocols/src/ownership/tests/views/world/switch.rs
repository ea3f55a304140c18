//! The switch: as `runtime::switch::directory` does, without copies.

use super::*;

impl World {
    /// Where the next packet may go: where its route leads, or to any member.
    pub(super) fn choices(&self) -> Vec<usize> {
        match self.switch.home.route {
            Some(RuntimeId(r)) => vec![usize::from(r)],
            None => (0..RUNTIMES).filter(|r| self.has_at(SWITCH, *r)).collect(),
        }
    }

    pub(super) fn route(&mut self, choice: usize) {
        let n = self.came;
        self.came += 1;
        if self.switch.home.route.is_none() {
            self.lead_to(choice);
        }
        self.send_down(choice, Item::Packet(n));
    }

    fn lead_to(&mut self, r: usize) {
        self.switch.home = Home::chosen(id(r));
        self.switch.is_awaited = false;
    }

    fn end_route(&mut self) {
        self.switch.home = Home {
            route: None,
            ..Home::chosen(id(0))
        };
        self.switch.is_awaited = false;
    }

    fn standing(&self, route: RuntimeId) -> recovery::Standing {
        let is_there = |RuntimeId(r): RuntimeId| self.has_at(SWITCH, usize::from(r));
        recovery::Standing {
            is_there: is_there(route),
            is_awaited: self.switch.is_awaited,
            has_source: self.switch.home.source.is_some_and(is_there),
            is_suspended: false,
            is_source_suspended: false,
        }
    }

    /// A view has removed a runtime: its words are dropped, and the route goes on or ends.
    pub(super) fn switch_learns(&mut self, gone: usize, bounds: &Bounds) {
        if bounds.broken != Some(Broken::ReadsRemoved) {
            let unread = core::mem::take(&mut self.up[gone]);
            self.drop_packets(&unread);
        }
        // Words on their way to it are for an incarnation that is over. It may read them.
        let unread = self.down[gone].clone();
        self.drop_packets(&unread);
        let Some(route) = self.switch.home.route else {
            return;
        };
        match Course::of(self.standing(route)) {
            Course::Stays => return,
            Course::IsAsked => {}
            Course::Returns => self.switch.home.route = self.switch.home.source,
            Course::Ends => return self.end_route(),
        }
        self.switch.is_awaited = false;
        self.ask_holder();
    }

    fn ask_holder(&mut self) {
        if let Some(RuntimeId(r)) = self.switch.home.route {
            self.send_down(usize::from(r), Item::Probe);
        }
    }

    pub(super) fn at_switch(&mut self, r: usize, item: Item) -> Check {
        let is_its = self.switch.home.route == Some(id(r));
        match item {
            Item::Packet(n) => return self.leave(r, n),
            Item::Tell(TellSwitch::DrainMarker { to, epoch }) => {
                self.send_down(
                    usize::from(to.0),
                    Item::SwitchMessage(SwitchMessage::Drained(epoch)),
                );
            }
            Item::Tell(TellSwitch::Reroute {
                from,
                to,
                epoch,
                is_taken_back,
            }) => {
                let route = self.switch.home.route;
                let route = route.map(|route| (route, self.standing(route)));
                let verdict = match is_taken_back {
                    true => TakenBack::of(route, (id(r), from), false),
                    false => TakenBack::Follows,
                };
                match verdict {
                    TakenBack::Follows => self.reroute(r, from, to, epoch),
                    TakenBack::Waits => {}
                    TakenBack::Fenced => {
                        let fenced = SwitchMessage::Fenced(self.switch.home.epoch);
                        self.send_down(r, Item::SwitchMessage(fenced));
                    }
                }
            }
            Item::Installed(epoch) if is_its => self.switch.is_awaited &= self.switch.home.epoch != epoch,
            Item::Installed(_) | Item::Routed => match self.switch.home.route {
                None => self.lead_to(r),
                Some(_) if is_its => {}
                Some(_) => self.send_down(r, Item::Taken),
            },
            // A packet sent since may begin the group.
            Item::GroupEmpty(consumed) if is_its && !self.switch.is_awaited => {
                match consumed < self.switch.sent[r] {
                    true => self.ask_holder(),
                    false => self.end_route(),
                }
            }
            Item::GroupEmpty(_) => {}
            Item::Suspect => {
                let is_source = self.switch.home.source == Some(id(r));
                if is_source || (is_its && !self.switch.is_awaited) {
                    self.switch.is_awaited &= !is_source;
                    self.ask_holder();
                }
            }
            _ => return Err(format!("{item:?} is nothing for a switch")),
        }
        Ok(())
    }

    fn reroute(&mut self, r: usize, from: RuntimeId, to: RuntimeId, epoch: Epoch) {
        let (before, mut home) = (self.switch.home.route, self.switch.home);
        if home.route == Some(to) && home.source.is_none() {
            home.source = Some(id(r));
        }
        let input = HomeInput::Reroute {
            by: id(r),
            from,
            to,
            epoch,
            is_removed: !self.has_at(SWITCH, usize::from(to.0)),
        };
        let mut said = vec![];
        home.handle(input, |output| said.push(output));
        for (RuntimeId(to), message) in said {
            self.send_down(usize::from(to), Item::SwitchMessage(message));
        }
        if before.is_some() {
            self.switch.home = home;
            if home.route != before {
                self.switch.is_awaited = home.route != Some(id(r));
            }
        }
    }

    /// Checker: packets leave in the order in which they came, but for those of a runtime that was
    /// removed then: no packet has waited for them.
    fn leave(&mut self, r: usize, n: u8) -> Check {
        if self.left >> n != 0 && self.is_member(r) {
            return Err(format!("packet {n} leaves behind a later one"));
        }
        if !self.has_at(SWITCH, r) {
            return Err(format!(
                "packet {n} of {r} leaves by a switch whose view has removed it"
            ));
        }
        self.left |= 1 << n;
        Ok(())
    }
}
