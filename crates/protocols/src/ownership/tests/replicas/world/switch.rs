//! The switch: as `runtime::switch::directory` and `runtime::switch::recovery` do.

use super::*;

impl World {
    pub(super) fn route(&mut self, n: u8) {
        self.look_at();
        let Some(route) = self.switch.route.map(usize::from) else {
            return self.drop_packet(n);
        };
        let standing = self.standing(route);
        let source = self.switch.source.map(usize::from);
        let waits_for = match (standing.is_suspended, standing.waits_for_source()) {
            (true, _) => Some(route),
            (false, true) => source,
            _ => None,
        };
        let earlier = (0..RUNTIMES).find(|failed| {
            let suspended = self.switch.suspended[*failed].as_ref();
            suspended.is_some_and(|suspension| !suspension.waiting.is_empty())
        });
        match waits_for.or(earlier) {
            Some(failed) => {
                if let Some(suspension) = &mut self.switch.suspended[failed] {
                    suspension.waiting.push(n);
                }
            }
            None => self.send_down(route, Item::Packet(n)),
        }
    }

    pub(super) fn standing(&self, route: usize) -> Standing {
        let source = self.switch.source.map(usize::from);
        Standing {
            is_there: !self.knows(SWITCH, route),
            is_awaited: self.switch.is_awaited,
            has_source: source.is_some_and(|source| !self.knows(SWITCH, source)),
            is_suspended: self.switch.suspended[route].is_some(),
            is_source_suspended: source.is_some_and(|source| self.switch.suspended[source].is_some()),
        }
    }

    /// As `Directory::look_at`.
    pub(super) fn look_at(&mut self) {
        let Some(route) = self.switch.route.map(usize::from) else {
            return;
        };
        match Course::of(self.standing(route)) {
            Course::Stays => return,
            Course::IsAsked => {}
            Course::Returns => self.switch.route = self.switch.source,
            Course::Ends => {
                self.switch.route = None;
                return;
            }
        }
        self.switch.is_awaited = false;
        self.ask();
    }

    pub(super) fn ask(&mut self) {
        if let Some(route) = self.switch.route {
            self.send_down(usize::from(route), Item::Probe);
        }
    }

    pub(super) fn switch_notices(&mut self, gone: usize) {
        self.noticed[gone] |= 1 << SWITCH;
        let lost = core::mem::take(&mut self.up[gone]);
        self.drop_packets(lost);
        for failed in 0..RUNTIMES {
            self.switch.reports[failed][gone] = None;
            if let Some(suspension) = &mut self.switch.suspended[failed]
                && suspension.heir == Some(gone as u8)
            {
                suspension.heir = None;
            }
        }
        self.switch.suspended[gone] = Some(Suspension {
            heir: None,
            is_recovered: false,
            waiting: vec![],
        });
        self.look_at();
        self.decide();
    }

    /// As `Recovery::decide`, with its consequences.
    pub(super) fn decide(&mut self) {
        for failed in 0..RUNTIMES {
            let Some(suspension) = &self.switch.suspended[failed] else {
                continue;
            };
            if suspension.is_recovered {
                self.end_suspension(failed);
                continue;
            }
            if suspension.heir.is_some() {
                continue;
            }
            let there = (0..RUNTIMES).filter(|r| *r != failed && !self.knows(SWITCH, *r));
            let heard = there.map(|r| Heard {
                runtime: r as u16,
                report: self.switch.reports[failed][r].filter(|report| report.is_of(incarnation(failed))),
                must_report: true,
            });
            match heir(heard) {
                Heir::Unknown => {}
                Heir::None => self.end_suspension(failed),
                Heir::Is(heir, _) => {
                    if let Some(suspension) = &mut self.switch.suspended[failed] {
                        suspension.heir = Some(heir as u8);
                    }
                    self.send_down(usize::from(heir), Item::Heir(failed as u8));
                }
            }
        }
    }

    pub(super) fn end_suspension(&mut self, failed: usize) {
        let suspension = self.switch.suspended[failed].take();
        self.switch.reports[failed] = [None; RUNTIMES];
        self.look_at();
        for n in suspension.into_iter().flat_map(|suspension| suspension.waiting) {
            self.route(n);
        }
    }

    pub(super) fn at_switch(&mut self, r: usize, item: Item) -> Check {
        match item {
            Item::Packet(n) => self.leave(r, n)?,
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
                self.look_at();
                let route = self.switch.route.map(usize::from);
                let route = route.map(|route| (id(route), self.standing(route)));
                let taken_back = match is_taken_back {
                    true => TakenBack::of(route, (id(r), from), false),
                    false => TakenBack::Follows,
                };
                match taken_back {
                    TakenBack::Follows => self.reroute(r, from, to, epoch),
                    TakenBack::Waits => {}
                    TakenBack::Fenced => {
                        let fenced = SwitchMessage::Fenced(self.switch.epoch);
                        self.send_down(r, Item::SwitchMessage(fenced));
                    }
                }
            }
            Item::Installed(epoch) => {
                self.look_at();
                if self.switch.route == Some(r as u8) {
                    self.switch.is_awaited &= self.switch.epoch != epoch;
                } else {
                    self.routed(r, false);
                }
            }
            Item::Routed => self.routed(r, true),
            Item::GroupEmpty => {
                self.look_at();
                if self.switch.route == Some(r as u8) && !self.switch.is_awaited {
                    let is_packet = |item: &Item| matches!(item, Item::Packet(_));
                    match self.down[r].iter().any(is_packet) {
                        true => self.ask(),
                        false => self.switch.route = None,
                    }
                }
            }
            Item::Suspect => {
                let is_source = self.switch.source == Some(r as u8);
                if is_source || (self.switch.route == Some(r as u8) && !self.switch.is_awaited) {
                    self.switch.is_awaited &= !is_source;
                    self.ask();
                }
            }
            Item::Keeps(failed, number) => {
                let incarnation = incarnation(usize::from(failed));
                let report = Report { number, incarnation };
                let before = self.switch.reports[usize::from(failed)][r].replace(report);
                if let Some(suspension) = &mut self.switch.suspended[usize::from(failed)]
                    && suspension.heir == Some(r as u8)
                    && before != Some(report)
                {
                    suspension.heir = None;
                }
            }
            Item::Recovered(failed) => {
                if let Some(suspension) = &mut self.switch.suspended[usize::from(failed)]
                    && suspension.heir == Some(r as u8)
                {
                    suspension.is_recovered = true;
                }
            }
            _ => return Err(format!("{item:?} is nothing for a switch")),
        }
        self.decide();
        Ok(())
    }

    /// As `Directory::reroute`.
    pub(super) fn reroute(&mut self, r: usize, from: RuntimeId, to: RuntimeId, epoch: Epoch) {
        self.look_at();
        let switch = &self.switch;
        let by = Some(r as u8);
        let is_anothers = switch.route.is_some()
            && switch.route != by
            && switch.source != by
            && switch.route != Some(to.0 as u8)
            && switch.epoch < epoch;
        let found = switch.route.filter(|_| !is_anothers);
        let mut home = Home {
            route: found.map(|route| RuntimeId(route.into())),
            epoch: found.map_or(Epoch::default(), |_| switch.epoch),
            source: switch
                .source
                .filter(|_| found.is_some())
                .map(|source| RuntimeId(source.into())),
        };
        if home.route == Some(to) && home.source.is_none() {
            home.source = Some(id(r));
        }
        let input = HomeInput::Reroute {
            by: id(r),
            from,
            to,
            epoch,
            is_removed: self.knows(SWITCH, usize::from(to.0)),
        };
        let mut said = vec![];
        home.handle(input, |output| said.push(output));
        for (to, message) in said {
            self.send_down(usize::from(to.0), Item::SwitchMessage(message));
        }
        if let (Some(before), Some(now)) = (found, home.route) {
            let switch = &mut self.switch;
            (switch.source, switch.epoch) = (home.source.map(|source| source.0 as u8), home.epoch);
            if u16::from(before) != now.0 {
                switch.is_awaited = now != id(r);
                switch.route = Some(now.0 as u8);
            }
        }
    }

    /// As `Directory::routed`.
    pub(super) fn routed(&mut self, r: usize, may_be_heir: bool) {
        self.look_at();
        let Some(route) = self.switch.route.map(usize::from) else {
            self.switch.route = Some(r as u8);
            (self.switch.source, self.switch.epoch) = (None, Epoch::default());
            self.switch.is_awaited = false;
            return;
        };
        let is_heir_of = |failed: Option<usize>| {
            let suspension = failed.and_then(|failed| self.switch.suspended[failed].as_ref());
            may_be_heir && suspension.is_some_and(|suspension| suspension.heir == Some(r as u8))
        };
        let source = self.switch.source.map(usize::from);
        let standing = self.standing(route);
        if standing.is_taken_over(is_heir_of(Some(route)), is_heir_of(source)) {
            let source = source.filter(|source| *source != r);
            if let (Some(source), Some(epoch)) = (source, standing.fences_source(self.switch.epoch)) {
                let fenced = SwitchMessage::Fenced(epoch);
                self.send_down(source, Item::SwitchMessage(fenced));
            }
            self.switch.route = Some(r as u8);
            (self.switch.source, self.switch.epoch) = (None, Epoch::default());
            self.switch.is_awaited = false;
        } else if route != r {
            self.send_down(r, Item::Taken);
        }
    }
}
