//! A run's parts: talks among faults, healing, talks that must be answered, the end of all flows.
//!
//! ```text
//!   faults ─► heal ─► rest ─► [roomy: early talks ─► rest] ─► leap ─► empty ─► late talks ─► rest ─► leap ─► empty
//! ```
//!
//! *Rest*: no talk open, no frame in the network, none on a ring, at a port or hairpinned at a
//! switch. All adds up then, and all buffers are home. *Empty*: all clocks leap by more than any
//! flow's time, and some turns later there is no flow, group, route or block.

use super::apart::Past;
use super::{Cluster, Due, World};
use crate::apart::DEAD_AFTER;
use crate::checkers::conservation::{self, ClusterStats};
use crate::checkers::{Violation, converged, moved, returned};
use crate::frame::PREFIX;
use crate::network::Noise;
use crate::run::Moved;
use crate::scenario::TIMEOUT_MS_MAX;
use crate::script::{Fate, Fault, Part, Whence, Who, Whom, Why};
use crate::timeline::Event;
use crate::witness::Account;
use nf::table::Value;
use runtime::mobility::{MoveOrder, OrderError, Selector};
use runtime::worker::asked::TableRows;
use wire::Prefix;

/// How long all may take to come to rest: the longest wait of a talk that is given up, and more.
const REST_MAX: u64 = 5_000_000_000;
/// By how much clocks leap so that all flows end.
const LEAP: u64 = (TIMEOUT_MS_MAX + 1000) * 1_000_000;
/// How often a crash that waits until all is copied looks again.
const COPYING: u64 = 200_000;
/// How long ending may then take.
const ENDING_MAX: u64 = 1_000_000_000;

impl World<'_> {
    /// Plays the whole run.
    pub fn play(&mut self) -> Result<(), Violation> {
        Account::clear();
        self.begin_members();
        self.have_kernels(|kernels, script, _| kernels.begin(script));
        for worker in 0..self.turns.len() as u8 {
            self.rouse(worker, 0);
        }
        self.begin_talks(Part::Faults);
        for (index, timed) in self.script.faults.iter().enumerate() {
            self.plan_for(timed.at, Due::Begin(index as u16));
        }
        for (index, going) in self.script.goings.iter().enumerate() {
            self.open_goings += 1;
            self.plan_for(going.at, Due::Going(index as u16));
        }
        self.pass(self.script.heals_at, false)?;
        if self.heal() && self.script.is_copied() && self.members.is_none() {
            // To those that have not heard a worker, a leap is silence: its flows would go on
            // elsewhere behind it, with the time that they had left.
            self.pass(self.now() + DEAD_AFTER, false)?;
        }
        self.rest()?;
        if self.script.is_calm {
            self.demand_answers(Part::Faults)?;
        }
        if self.script.shape.is_roomy {
            self.begin_talks(Part::Early);
            self.rest()?;
            self.demand_answers(Part::Early)?;
        }
        self.let_flows_end()?;
        self.begin_talks(Part::Late);
        self.rest()?;
        self.demand_answers(Part::Late)?;
        self.let_flows_end()
    }

    fn begin_talks(&mut self, part: Part) {
        let script = self.script;
        for (index, talk) in script
            .talks
            .iter()
            .enumerate()
            .filter(|(_, talk)| talk.part == part)
        {
            self.open_talks += 1;
            self.plan_for(self.now() + talk.start, Due::Wake(index as u16, 0));
        }
        for (at, due) in self.changing.begin(script, part, self.now()) {
            self.plan_for(at, due);
        }
        let moves = script.moves.iter().enumerate();
        for (index, order) in moves.filter(|(_, order)| order.part == part) {
            self.open_orders += 1;
            self.plan_for(self.now() + order.at, Due::Order(index as u16));
        }
    }

    fn demand_answers(&self, part: Part) -> Result<(), Violation> {
        let talks = self.script.talks.iter().enumerate();
        let mut demanded = talks.filter(|(_, talk)| talk.part == part && talk.fate == Fate::Answered);
        match demanded.find(|(index, _)| self.clients[*index].stage != super::hosts::Stage::Done) {
            Some((index, talk)) => Err(converged::unanswered(index, talk, &self.figures())),
            None => Ok(()),
        }
    }

    /// Lets everything come to rest, and sees whether it adds up.
    fn rest(&mut self) -> Result<(), Violation> {
        let until = self.now() + REST_MAX;
        if !self.pass(until, true)? {
            let moves = self.moves_in_words();
            return Err(converged::restless(&format!(
                "{} talks are open, {} frames in the network, moves {}, {}{}",
                self.open_talks,
                self.flying,
                moves,
                self.cluster.in_words(),
                self.members_in_words()
            )));
        }
        self.look_at_flows();
        let figures = self.figures();
        self.fail(conservation::at_rest(&figures));
        self.fail(moved::no_drops(&self.script.shape, &figures));
        if self.past.sessions == 0 && !self.script.loses_workers() {
            self.fail(moved::adds_up(&figures));
        }
        if self.script.loses_nothing() {
            self.fail(moved::nothing_lost(self.script, &self.packets, &figures));
        }
        let runtimes = &mut self.cluster.runtimes;
        let receipts = self.orders.iter().map(|(from, number)| {
            let receipt = runtimes[usize::from(*from)].receipt(*number);
            (*from, receipt)
        });
        let found = moved::receipts(receipts);
        self.fail(found);
        self.violation.take().map_or(Ok(()), Err)
    }

    /// Which orders are not over, and whose words wait for buffers.
    fn moves_in_words(&mut self) -> String {
        let runtimes = &mut self.cluster.runtimes;
        let mut words = Vec::new();
        for (from, number) in &self.orders {
            let receipt = runtimes[usize::from(*from)].receipt(*number);
            if let Some(receipt) = receipt.filter(|receipt| !receipt.is_over) {
                words.push(format!("order {number} of runtime {from}: {receipt:?}"));
            }
        }
        for (index, runtime) in runtimes.iter().enumerate() {
            if !runtime.finished() {
                let (unsaid, stats) = (runtime.words_unsaid(), runtime.stats());
                words.push(format!(
                    "runtime {index} is at it, {unsaid} words unsaid, {} flows, {:?} moved, {} packets held",
                    stats.flows, stats.flows_moved, stats.held
                ));
            }
        }
        if words.is_empty() {
            words.push("over".to_owned());
        }
        words.join(", ")
    }

    fn let_flows_end(&mut self) -> Result<(), Violation> {
        self.timeline.note(self.now(), Event::Leapt(LEAP));
        self.order.cut();
        for turns in &mut self.turns {
            turns.ahead += LEAP;
        }
        let until = self.now() + ENDING_MAX;
        while self.now() < until {
            self.pass(self.now() + 50_000_000, false)?;
            if self.is_at_rest() && converged::empty(&self.figures()).is_ok() {
                break;
            }
        }
        self.rest()?;
        let figures = self.figures();
        converged::empty(&figures)?;
        let connections = self.connections();
        let is_all = !self.script.loses_workers();
        let ends_twice = self.script.has_silence() && self.script.has_jumps();
        let ended_again = Account::look(|account| account.ended_again);
        let is_done = |talk: usize| self.clients[talk].stage == super::hosts::Stage::Done;
        self.read.check(self.script, &figures, is_done)?;
        returned::check(
            &figures.runtimes,
            &figures.past_runtimes,
            &connections,
            (is_all, ends_twice),
            ended_again,
        )
    }

    /// The moves since the run began, or all crashed.
    pub fn moved(&mut self) -> Moved {
        let mut moved = Moved {
            orders: self.orders.len() as u64,
            changes: self.changing.decisions,
            ..Moved::default()
        };
        for runtime in &self.cluster.runtimes {
            let stats = runtime.stats();
            moved.flows += stats.flows_moved[0];
            moved.handed += stats.packets_moved[0];
        }
        for (from, number) in &self.orders {
            let runtime = &mut self.cluster.runtimes[usize::from(*from)];
            if let Some(receipt) = runtime.receipt(*number) {
                moved.called_back += receipt.failed;
                moved.refused += receipt.refused;
                moved.kept += receipt.buffered;
            }
        }
        moved
    }

    pub(super) fn figures(&self) -> ClusterStats {
        let cluster = &self.cluster;
        ClusterStats {
            switches: cluster.switches.iter().map(|switch| switch.stats()).collect(),
            runtimes: cluster.runtimes.iter().map(|runtime| runtime.stats()).collect(),
            past_switches: self.past.switches.clone(),
            past_runtimes: self.past.runtimes.clone(),
            losses: self.past.losses,
            unsent: self.past.unsent + cluster.unsent(),
            entered: cluster.entered,
            left: cluster.left,
            own: cluster.own,
            damaged_errors: cluster.damaged_errors,
            pools: cluster
                .switches
                .iter()
                .map(|s| (s.pool().free(), s.pool().total()))
                .collect(),
        }
    }

    /// By runtime: its servers' connections, as its load balancer has them, if it has one.
    fn connections(&mut self) -> Vec<u64> {
        let tables = self
            .cluster
            .runtimes
            .iter_mut()
            .map(|runtime| runtime.table("load_balancer", &["backends"]).ok().flatten());
        let count = |table: TableRows| -> u64 {
            let names = table.table.columns.iter();
            let at = names.take_while(|(name, _)| *name != "connections").count();
            let cells = table.rows.iter().filter_map(|row| row.get(at));
            cells.filter_map(Value::number).sum()
        };
        tables.map(|table| table.map_or(0, count)).collect()
    }

    /// All faults are over, and the network is as good as can be. Whether some worker could not be
    /// heard until now.
    fn heal(&mut self) -> bool {
        let now = self.now();
        let is_away = self
            .turns
            .iter()
            .any(|turns| turns.stalled_until.max(turns.down_until) > now);
        let was_silent = is_away || self.ways.values().any(|path| path.is_cut);
        self.timeline.note(now, Event::Healed);
        for host in &mut self.hosts {
            for path in [&mut host.to, &mut host.from] {
                path.noise = Noise::default();
                path.is_cut = false;
            }
        }
        for path in self.ways.values_mut() {
            path.noise = Noise::default();
            path.is_cut = false;
        }
        self.heal_members();
        if let Some(neighbours) = &mut self.neighbours {
            neighbours.heal();
        }
        for worker in 0..self.turns.len() as u8 {
            self.turns[usize::from(worker)].stalled_until = 0;
            self.turns[usize::from(worker)].down_until = 0;
            // Leases are asked for and granted all the time: with a slow worker there may be no
            // moment at which none of those words is on its way.
            self.turns[usize::from(worker)].pace = self.script.shape.pace;
            self.rouse(worker, now);
        }
        was_silent
    }

    /// An operator has groups move.
    pub(super) fn order_move(&mut self, index: u16) {
        self.open_orders -= 1;
        let order = self.script.moves[usize::from(index)];
        let runtimes = self.script.shape.runtimes;
        self.timeline.note(self.now(), Event::Ordered(index));
        let selector = match order.whom {
            Whom::All => Selector::All,
            Whom::Host(host) => {
                let addr = super::address_of(usize::from(host));
                let prefix = Prefix::new(std::net::IpAddr::V4(addr).into(), 32);
                Selector::Ends(prefix.expect("an address has 32 bits"))
            }
            Whom::HostOverV6(host) => {
                let mut bytes = [0; 16];
                bytes[..12].copy_from_slice(&PREFIX);
                bytes[12..].copy_from_slice(&super::address_of(usize::from(host)).octets());
                let prefix = Prefix::new(std::net::IpAddr::V6(bytes.into()).into(), 128);
                Selector::Ends(prefix.expect("an address has 128 bits"))
            }
        };
        let others = (0..runtimes).filter(|to| *to != order.from);
        let to = order.to.map_or_else(|| others.collect(), |to| vec![to]);
        let given = self.cluster.runtimes[usize::from(order.from)].order(MoveOrder { selector, to });
        match given {
            Ok(number) => self.orders.push((order.from, number)),
            // A runtime of another process may not be there.
            Err(OrderError::NoSuchRuntime(_)) if self.script.shape.apart.is_some() => {}
            // As many as may be are under way: the caller is told so.
            Err(OrderError::TooMany) => {}
            Err(error) => self.fail(Err(moved::not_taken(&error))),
        }
        self.rouse(self.script.shape.switches + order.from as u8, self.now());
    }

    /// Whether all orders are over.
    pub(super) fn orders_are_over(&mut self) -> bool {
        let runtimes = &mut self.cluster.runtimes;
        self.orders.iter().all(|(from, number)| {
            let receipt = runtimes[usize::from(*from)].receipt(*number);
            receipt.is_none_or(|receipt| receipt.is_over)
        })
    }

    pub(super) fn begin_fault(&mut self, index: u16) {
        let now = self.now();
        let waits_for_copies = match self.script.faults[usize::from(index)].fault {
            Fault::Crash { who } => matches!(who, Who::Copied(..)),
            Fault::Silence { why, .. } => why.is_copied(),
            _ => false,
        };
        if waits_for_copies && !self.is_all_copied() {
            if now + COPYING < self.script.heals_at {
                self.plan_for(now + COPYING, Due::Begin(index));
            }
            return;
        }
        self.timeline.note(now, Event::Began(index));
        let time = match self.script.faults[usize::from(index)].fault {
            Fault::Stall { worker, time } => return self.stand_still(worker, time),
            Fault::Stop { worker, time } => return self.stop(worker, time),
            Fault::Silence { worker, why, time } => {
                match why.is_copied() {
                    true => self.silent_until = now + time,
                    false => self.order.cut(),
                }
                if matches!(why, Why::Stands(_)) {
                    return self.stop(worker, time);
                }
                self.cut_off(worker, true);
                for worker in self.script.shape.process_of(worker) {
                    self.cut_until[usize::from(worker)] = now + time;
                }
                time
            }
            Fault::Jump { worker, by } => {
                self.order.cut();
                match worker {
                    Some(worker) => {
                        for worker in self.script.shape.process_of(worker) {
                            self.turns[usize::from(worker)].ahead += by;
                        }
                    }
                    None => self.turns.iter_mut().for_each(|turns| turns.ahead += by),
                }
                return;
            }
            Fault::Crash { who } => return self.crash(who),
            Fault::Forgotten { host } => {
                return self.have_tables(|kernels, script, now| kernels.forget(script, host, (now, 0)));
            }
            Fault::Mute { host, time } => {
                return self.have_tables(|kernels, script, now| kernels.forget(script, host, (now, time)));
            }
            Fault::Replaced { host } => {
                return self.have_kernels(|kernels, _, now| kernels.replace(host, now));
            }
            Fault::Storm { noise, time } => {
                for host in &mut self.hosts {
                    (host.to.noise, host.from.noise) = (noise, noise);
                }
                time
            }
            Fault::Partition { from, to, back, time } => {
                self.cut(from, to, back, true);
                time
            }
            Fault::Isolated {
                worker,
                whom,
                to,
                from,
                time,
            } => {
                self.isolate(worker, whom, (to, from), true);
                time
            }
            Fault::OfficeCrash { office, time } => return self.crash_office(office, time),
            Fault::OfficeStall { office, time } => return self.stall_office(office, time),
            Fault::StoreStall { time } => return self.stall_store(time),
            Fault::OfficeCut {
                office,
                whom,
                to,
                from,
                time,
            } => {
                self.cut_office_off(office, whom, (to, from), true);
                time
            }
            Fault::Cut { host, to, from, time } => {
                let host = &mut self.hosts[usize::from(host)];
                host.to.is_cut |= to;
                host.from.is_cut |= from;
                time
            }
        };
        let end = (now + time).min(self.script.heals_at);
        self.plan_for(end, Due::End(index));
    }

    pub(super) fn end_fault(&mut self, index: u16) {
        if self.now() >= self.script.heals_at {
            // Healing ends them all.
            return;
        }
        self.timeline.note(self.now(), Event::Ended(index));
        match self.script.faults[usize::from(index)].fault {
            Fault::Storm { .. } => {
                for host in &mut self.hosts {
                    (host.to.noise, host.from.noise) = (self.script.noise, self.script.noise);
                }
            }
            Fault::Cut { host, to, from, .. } => {
                let host = &mut self.hosts[usize::from(host)];
                host.to.is_cut &= !to;
                host.from.is_cut &= !from;
            }
            Fault::Partition { from, to, back, .. } => {
                let is_cut_off = |worker: u8| self.cut_until[usize::from(worker)] > self.now();
                if !is_cut_off(from) && !is_cut_off(to) {
                    self.cut(from, to, back, false);
                }
            }
            Fault::Silence { worker, .. } => self.cut_off(worker, false),
            Fault::Isolated {
                worker,
                whom,
                to,
                from,
                ..
            } => {
                self.isolate(worker, whom, (to, from), false);
            }
            Fault::OfficeCut {
                office,
                whom,
                to,
                from,
                ..
            } => self.cut_office_off(office, whom, (to, from), false),
            Fault::Stall { .. }
            | Fault::Stop { .. }
            | Fault::Jump { .. }
            | Fault::Crash { .. }
            | Fault::Forgotten { .. }
            | Fault::Mute { .. }
            | Fault::Replaced { .. }
            | Fault::StoreStall { .. }
            | Fault::OfficeCrash { .. }
            | Fault::OfficeStall { .. } => {}
        }
    }

    fn stand_still(&mut self, worker: u8, time: u64) {
        let until = self.now() + time;
        let turns = &mut self.turns[usize::from(worker)];
        turns.stalled_until = turns.stalled_until.max(until);
        let at = turns.stalled_until;
        if self.has_member_slot(worker) && !self.is_gone(usize::from(worker)) {
            self.set_turn(worker, at);
        }
        self.ask_no_order_if_late();
    }

    /// A switch stands still while a runtime that has crashed is away.
    pub(super) fn ask_no_order_if_late(&mut self) {
        let now = self.now();
        let switches = usize::from(self.script.shape.switches);
        let (of_switches, of_runtimes) = self.turns.split_at(switches);
        let is_late = of_switches.iter().any(|turns| turns.stalled_until > now)
            && of_runtimes.iter().any(|turns| turns.down_until > now);
        if is_late && self.members.is_none() {
            self.order.ask_no_more();
        }
    }

    /// The process of a worker does nothing.
    fn stop(&mut self, worker: u8, time: u64) {
        for worker in self.script.shape.process_of(worker) {
            self.stand_still(worker, time);
        }
    }

    /// Cuts all links of a worker's process, or joins them again.
    fn cut_off(&mut self, worker: u8, is_cut: bool) {
        self.isolate(worker, Whence::Workers, (true, true), is_cut);
    }

    /// Cuts a worker's process off from those that are said, one way or both, or joins them again.
    fn isolate(&mut self, worker: u8, whom: Whence, (to, from): (bool, bool), is_cut: bool) {
        if whom != Whence::Coordinator {
            let workers = self.turns.len() as u8;
            let process = self.script.shape.process_of(worker);
            for (worker, other) in process.iter().flat_map(|w| (0..workers).map(move |o| (*w, o))) {
                if from {
                    self.cut(other, worker, false, is_cut);
                }
                if to {
                    self.cut(worker, other, false, is_cut);
                }
            }
        }
        if whom != Whence::Workers {
            self.cut_office(worker, to, from, is_cut);
        }
    }

    fn cut(&mut self, from: u8, to: u8, back: bool, is_cut: bool) {
        let (from, to) = (usize::from(from), usize::from(to));
        for (index, (from, to)) in [(from, to), (to, from)].into_iter().enumerate() {
            if (index == 0 || back)
                && let Some(path) = self.ways.get_mut(&(from, to))
            {
                path.is_cut = is_cut;
            }
        }
    }

    fn crash(&mut self, who: Who) {
        if let Who::Worker(worker, time) | Who::Copied(worker, time) = who {
            return self.crash_one(worker, time);
        }
        let now = self.now();
        let clocks: Vec<u64> = self.turns.iter().map(|turns| turns.now(now)).collect();
        let incarnations = self
            .cluster
            .incarnations
            .iter()
            .map(|incarnation| incarnation + 1)
            .collect();
        let Ok(next) = Cluster::new(self.script, &self.plans, &self.clock, &clocks, incarnations) else {
            return;
        };
        self.order.cut();
        self.orders.clear();
        self.changing.crash();
        self.past = Past::default();
        self.sessions.clear();
        let before = std::mem::replace(&mut self.cluster, next);
        Account::unseen(|| before.scrap(&self.clock));
        // No runtime has a copy.
        Account::clear();
        for worker in 0..self.turns.len() as u8 {
            self.turns[usize::from(worker)].next = crate::Time::MAX;
            self.turns[usize::from(worker)].down_until = 0;
            self.rouse(worker, now);
        }
    }
}
