//! Two runtimes behind a switch or two, on one thread, between which groups move when the player
//! says so.
//!
//! # Theory of operation
//! The workers are the real ones, and so is everything between them but the wires: links and ports
//! are queues in memory. The player steps the workers in turn until none has anything to do, always
//! at the same instant: a move takes no time by the clock, so a packet is processed at the same
//! time whether flows moved before it or not, and its result can be compared bit by bit.
//!
//! New groups begin at runtime 0, moved or not (the switch takes runtime 1 for a runtime that is
//! leaving): a function's decisions by its runtime, as NAT's blocks of ports, are alike.
//!
//! ```text
//!   inside  ◄──► port 0 ┐                ┌─► runtime 0 ─┐
//!                       ├─ switch ───────┤              │ groups
//!   outside ◄──► port 1 ┘                └─► runtime 1 ─┘
//! ```
//!
//! Where runtimes fail, each worker is a process of its own (`failing`), and each runtime keeps
//! copies of the other's flows.
//!
//! With two switches the inside port is at one and the outside port at the other, and each has the
//! routes of half the groups.
//!
//! Runtime 1 is at another host: its clock is [`clock::AHEAD`] of all others'. Its times are told
//! by theirs.
//!
//! Not here: the script (`mod`), its result (`story`).

use super::cables::Cables;
use super::clock;
use crate::build::Last;
use crate::sent::Copied;
use nf::cx::EMITTED_MAX;
use nf::{Endpoint, Generation, Side, WorkerInfo};
use runtime::chain::Plan;
use runtime::mobility::{MoveOrder, Receipt, Selector};
use runtime::objects::Members;
use runtime::replication::{Copying, Policy as Replication};
use runtime::stats::{Named, RuntimeStats};
use runtime::switch::{self, Policy, SideRule, Switch};
use runtime::worker::change::{ChangeError, Prepared};
use runtime::{Burst, Port, PortCounters, Runtime, Settings};
use wire::memory::Region;
use wire::{HashSeed, LinkType, Pool};

/// The words of a recovery's receipt in the event log.
const RECEIPT: &str = "\"function\":\"runtime\",\"event\":\"recovered\"";

/// A frame that left.
pub struct Left {
    pub side: Side,
    pub link: LinkType,
    pub bytes: Vec<u8>,
    /// Its time of reception, which is its name.
    pub stamp: u64,
}

/// A frame that comes in.
#[derive(Clone)]
pub struct Coming {
    pub bytes: Vec<u8>,
    pub link: LinkType,
    pub wire_length: Option<u32>,
    pub stamp: u64,
}

/// A port to the world.
#[derive(Default)]
struct World {
    next: Option<Coming>,
    left: Vec<Left>,
    /// The packet that left last, with its notes.
    last: Option<Copied>,
}

impl Port for World {
    fn receive(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) {
        let Some(coming) = self.next.take() else { return };
        let Some(mut packet) = pool.take() else {
            self.next = Some(coming);
            return;
        };
        let fits = packet.set_frame(&coming.bytes, coming.link);
        assert!(fits, "the buffers were made long enough for the script's frames");
        if let Some(length) = coming.wire_length {
            packet.set_wire_length(length);
        }
        packet.set_timestamp(coming.stamp);
        burst.push(packet);
    }

    fn transmit(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) {
        for packet in burst.iter() {
            self.left.push(Left {
                side: packet.exit(),
                link: packet.link(),
                bytes: packet.frame().to_vec(),
                stamp: packet.timestamp(),
            });
        }
        if let Some(packet) = burst.last() {
            self.last = Some(Copied::of(packet));
        }
        runtime::env::dispose(pool, burst);
    }

    fn counters(&self) -> PortCounters {
        PortCounters::default()
    }
}

/// Buffers of each worker; fewer where runtimes fail, since each that does takes its own with it.
const BUFFERS: usize = 1024;
const BUFFERS_APART: usize = 256;
/// Workers that have had this many turns without coming to rest never will.
const TURNS_MAX: usize = 100_000;
/// The chain's name.
pub const CHAIN: &str = "test";
/// The runtimes' number.
const RUNTIMES: u16 = 2;
/// How long, in nanoseconds, packets wait for a recovery: it takes no time by the clock.
const RECOVERY_MAX: u64 = 1_000_000_000;

/// Which switch has the port of a side, and where.
fn port_of(side: Side, switches: u8) -> (usize, usize) {
    match switches {
        1 => (0, side as usize),
        _ => (side as usize, 0),
    }
}

/// The settings of the workers.
#[derive(Clone)]
pub struct Shape {
    /// One or two.
    pub switches: u8,
    pub flows_max: u32,
    pub frame_max: usize,
    pub now: u64,
    /// Whether lazy fields are copied as committed ones.
    pub commits_lazy: bool,
    /// The policy by which flows are copied.
    pub replication: Replication,
    /// Whether each worker is a process of its own, with copies at the other runtime.
    pub is_apart: bool,
}

impl Shape {
    fn pool(&self, worker: usize) -> Pool {
        let buffers = match self.is_apart {
            true => BUFFERS_APART,
            false => BUFFERS,
        };
        let region = Region::heap(Pool::region_length(buffers, self.frame_max));
        Pool::new(region, buffers, self.frame_max, worker as u8)
    }

    fn info(&self, number: u16) -> WorkerInfo {
        WorkerInfo {
            runtime: number,
            runtimes: RUNTIMES,
            flows_max: self.flows_max,
            seed: 1,
        }
    }

    fn runtime(&self, number: u16, now: u64, plan: &Plan, cables: &mut Cables) -> Result<Worker, String> {
        let (switches, worker) = (
            usize::from(self.switches),
            usize::from(self.switches) + usize::from(number),
        );
        let settings = Settings {
            info: self.info(number),
            switches: self.switches,
            egress: [0, self.switches - 1],
            replicated: self.is_apart,
            now: now + clock::ahead(number),
            copying: Copying {
                policy: self.replication,
                has_lazy: self.commits_lazy,
                drops_alone: false,
                ..Copying::default()
            },
            ..Settings::alone(self.flows_max)
        };
        let links = (0..switches).map(|switch| cables.end(worker, switch)).collect();
        let runtime = Runtime::new(settings, plan.clone(), links, self.pool(worker), Region::heap);
        let mut runtime = runtime
            .map_err(|(function, error)| format!("the configuration of `{function}` is refused: {error}"))?;
        let peers = (switches..switches + usize::from(RUNTIMES))
            .map(|peer| (peer != worker).then(|| cables.end(worker, peer)));
        runtime.join(peers.collect());
        if self.is_apart
            && let [kind, ..] = runtime.object_kinds()
        {
            return Err(format!(
                "`{}` shares objects, which the kit does not follow when runtimes fail; leave `survives_failure` out for it",
                kind.function
            ));
        }
        runtime.share_objects(1, Members((1 << RUNTIMES) - 1), 1);
        Ok(runtime)
    }

    fn switch(&self, number: u8, plan: &Plan, cables: &mut Cables) -> Switch<World, Box<dyn Port>> {
        let (count, worker) = (usize::from(self.switches), usize::from(number));
        let has = |side: Side| port_of(side, self.switches).0 == worker;
        let ports = [Side::Inside, Side::Outside]
            .into_iter()
            .filter(|side| has(*side))
            .map(|side| (World::default(), SideRule::Fixed(side)));
        let settings = switch::SwitchSettings {
            switch: number,
            switches: self.switches,
            seed: HashSeed::FIXED,
            // A flow may have two keys, at each runtime.
            routes_max: 4 * self.flows_max,
            policy: Policy::RoundRobin,
            fragments_max: 1024,
            egress: [Side::Inside, Side::Outside]
                .map(|side| has(side).then(|| port_of(side, self.switches).1 as u8)),
            packet_clock: false,
            lead_max: u64::MAX,
            recovery_max: u64::from(self.is_apart) * RECOVERY_MAX,
            patient: false,
            now: self.now,
        };
        let links = (count..count + usize::from(RUNTIMES)).map(|runtime| cables.end(worker, runtime));
        let links = links.collect();
        let peers = (0..count).map(|peer| (peer != worker).then(|| cables.end(worker, peer)));
        let peers = peers.collect();
        let pool = self.pool(worker);
        Switch::new(
            settings,
            plan.clone(),
            ports.collect(),
            links,
            peers,
            pool,
            Region::heap,
        )
    }
}

type Worker = Runtime<Box<dyn Port>>;

/// See the module's page.
pub struct Rig {
    pub(super) shape: Shape,
    plan: Plan,
    pub(super) cables: Cables,
    switches: Vec<Switch<World, Box<dyn Port>>>,
    /// Of each runtime: the number of its configuration.
    generations: [u64; 2],
    /// None while one has failed.
    pub(super) runtimes: Vec<Option<Worker>>,
    pub now: u64,
    pub events: String,
    /// Flows that have moved, and groups without; or flows that were recovered; and flows that had
    /// to stay (a call of theirs waits, or the target is full), or could not be recovered.
    pub moved: u64,
    pub refused: u64,
    orders: Vec<(usize, u32)>,
    /// The counts of runtimes that have failed.
    pub(super) gone: RuntimeStats,
}

impl Rig {
    pub fn new(shape: &Shape, plan: Plan) -> Result<Rig, String> {
        let mut cables = Cables::new(usize::from(shape.switches), shape.is_apart);
        let runtimes =
            (0..RUNTIMES).map(|number| shape.runtime(number, shape.now, &plan, &mut cables).map(Some));
        let runtimes = runtimes.collect::<Result<Vec<_>, String>>()?;
        let switches = (0..shape.switches).map(|number| shape.switch(number, &plan, &mut cables));
        let switches = switches.collect();
        let mut rig = Rig {
            shape: shape.clone(),
            plan,
            cables,
            switches,
            generations: [1; 2],
            runtimes,
            now: shape.now,
            events: String::new(),
            moved: 0,
            refused: 0,
            orders: Vec::new(),
            gone: RuntimeStats::default(),
        };
        rig.run_until_quiet()?;
        // A runtime that has begun says that it takes groups.
        rig.prefer_first();
        Ok(rig)
    }

    /// New groups begin at the first runtime, if that is there.
    pub(super) fn prefer_first(&mut self) {
        for switch in &mut self.switches {
            switch.set_leaving(1, true);
        }
    }

    /// A runtime in the place of a failed one.
    pub(super) fn make(&mut self, number: usize) -> Result<(), String> {
        let made = self
            .shape
            .runtime(number as u16, self.now, &self.plan, &mut self.cables)?;
        self.runtimes[number] = Some(made);
        self.generations[number] = 1;
        Ok(())
    }

    /// Each runtime prepares a plan that follows the one in force; `false` if one cannot yet, since
    /// a call waits that began under the one before.
    pub fn prepare_change(&mut self, plan: Plan) -> Result<bool, String> {
        let mut is_prepared = true;
        for (number, runtime) in self.runtimes.iter_mut().enumerate() {
            let Some(runtime) = runtime else { continue };
            let info = self.shape.info(number as u16);
            let generation = Generation(self.generations[number] + 1);
            let prepared = Prepared::new(generation, plan.clone(), &self.plan, &info, 0);
            let prepared = prepared.map_err(|error| error.to_string())?;
            match runtime.prepare_change(prepared) {
                Ok(()) => {}
                Err((ChangeError::Unsettled { .. } | ChangeError::Moving, _)) => is_prepared = false,
                Err((error, _)) => return Err(error.to_string()),
            }
        }
        if is_prepared {
            self.plan = plan;
        } else {
            self.runtimes.iter_mut().flatten().for_each(|runtime| {
                let _ = runtime.abandon_change();
            });
        }
        Ok(is_prepared)
    }

    /// Puts a runtime's prepared change in force there, if it has one.
    pub fn commit_change(&mut self, number: usize) {
        if let Some(runtime) = &mut self.runtimes[number]
            && runtime.commit_change()
        {
            self.generations[number] += 1;
        }
    }

    /// Flows are copied by this policy from now on, at runtimes that come back, too; answers
    /// whether it is another one.
    pub fn set_replication(&mut self, replication: Replication) -> Result<bool, String> {
        let before = std::mem::replace(&mut self.shape.replication, replication);
        if before == replication {
            return Ok(false);
        }
        let mut runtimes = self.runtimes.iter_mut().flatten();
        runtimes.try_for_each(|runtime| runtime.set_replication(CHAIN, Some(replication)))?;
        Ok(true)
    }

    fn there(&self) -> impl Iterator<Item = &Worker> {
        self.runtimes.iter().flatten()
    }

    /// A frame that the next turn receives.
    pub fn bring(&mut self, side: Side, coming: Coming) {
        self.port(side).next = Some(coming);
    }

    fn port(&mut self, side: Side) -> &mut World {
        let (switch, port) = port_of(side, self.switches.len() as u8);
        self.switches[switch].port_mut(port)
    }

    /// Has all groups of one runtime move to the other, beginning with the next turn.
    pub fn order(&mut self, from: usize) -> Result<(), String> {
        let order = MoveOrder {
            selector: Selector::All,
            to: vec![1 - from as u16],
        };
        if let Some(runtime) = &mut self.runtimes[from] {
            let number = runtime.order(order).map_err(|error| error.to_string())?;
            self.orders.push((from, number));
        }
        Ok(())
    }

    /// Lets the workers take turns, at one instant, until none has anything to do.
    pub fn run_until_quiet(&mut self) -> Result<(), String> {
        let mut idle = 0;
        for _ in 0..TURNS_MAX {
            idle = if self.turn() == 0 { idle + 1 } else { 0 };
            if idle == 3 {
                return self.rest();
            }
        }
        Err("the workers do not come to rest: does a function sleep for no time?".into())
    }

    /// One step of each worker; answers how much was done.
    pub(super) fn turn(&mut self) -> usize {
        let mut work: usize = self.switches.iter_mut().map(|switch| switch.step(self.now)).sum();
        for (number, runtime) in (0..).zip(&mut self.runtimes) {
            let Some(runtime) = runtime else { continue };
            let done = runtime.step(self.now + clock::ahead(number));
            work += done.packets + done.other;
        }
        work
    }

    /// Takes the lines that a runtime has written.
    pub(super) fn take_events(&mut self, number: usize) {
        if let Some(runtime) = &mut self.runtimes[number] {
            let mut lines = String::new();
            runtime.take_events(&mut lines);
            // A recovery's receipt is no function's line.
            let of_functions = lines.lines().filter(|line| !line.contains(RECEIPT));
            let of_functions: String = of_functions.flat_map(|line| [line, "\n"]).collect();
            self.events.push_str(&clock::told(number as u16, &of_functions));
        }
    }

    fn rest(&mut self) -> Result<(), String> {
        for number in 0..self.runtimes.len() {
            self.take_events(number);
            if let Some(runtime) = &mut self.runtimes[number] {
                let _ = runtime.take_before();
            }
        }
        let runtimes = &mut self.runtimes;
        let (moved, refused) = (&mut self.moved, &mut self.refused);
        let mut receipt =
            |at: usize, number| runtimes[at].as_mut().and_then(|runtime| runtime.receipt(number));
        self.orders.retain(|(at, number)| match receipt(*at, *number) {
            Some(Receipt {
                is_over: true,
                moved: flows,
                resting,
                refused: full,
                ..
            }) => {
                *moved += flows + resting;
                *refused += full;
                false
            }
            receipt => receipt.is_some(),
        });
        match self.port(Side::Inside).next.is_some() || self.port(Side::Outside).next.is_some() {
            true => Err(format!(
                "a packet found no buffer: {BUFFERS} packets are held already"
            )),
            false => Ok(()),
        }
    }

    /// When a call that waits, or a fragment, is due.
    pub fn next_at(&self) -> Option<u64> {
        let runtimes = (0..).zip(&self.runtimes).filter_map(|(number, runtime)| {
            let at = runtime.as_ref()?.next_at()?;
            Some(at.saturating_sub(clock::ahead(number)))
        });
        let switches = self.switches.iter().filter_map(Switch::next_at);
        runtimes.chain(switches).min()
    }

    pub fn has_waiting(&self) -> bool {
        self.there().any(Runtime::has_waiting)
    }

    /// Packets that left since this was last asked, from inside ports and outside ones in turn.
    pub fn take_left(&mut self) -> Vec<Left> {
        let mut left = std::mem::take(&mut self.port(Side::Inside).left);
        left.append(&mut self.port(Side::Outside).left);
        left
    }

    /// The last packet that left since this was last asked, as the answering end sees it.
    pub fn take_last(&mut self, known_as: impl Fn(u64) -> Option<(Endpoint, Endpoint)>) -> Option<Last> {
        let ports = [Side::Inside, Side::Outside].map(|side| self.port(side).last.take());
        let last = ports.into_iter().flatten().last()?;
        let ends = known_as(last.timestamp()).unwrap_or((last.source(), last.destination()));
        Some(Last::of(&last, ends))
    }

    pub fn stats(&self) -> Vec<RuntimeStats> {
        let mut stats: Vec<_> = self.there().map(Runtime::stats).collect();
        stats.push(self.gone.clone());
        stats
    }

    /// How many packets wait in some way or are held, at a runtime that is there.
    pub fn in_hand(&self, runtime: usize) -> u64 {
        let there = self.runtimes.get(runtime).and_then(Option::as_ref);
        there
            .map(Runtime::stats)
            .map_or(0, |stats| stats.held + stats.waiting)
    }

    /// How many packets a runtime has received.
    pub fn received(&self, runtime: usize) -> u64 {
        let there = self.runtimes.get(runtime).and_then(Option::as_ref);
        there.map_or(0, |runtime| runtime.stats().received)
    }

    /// Drops of the switches.
    pub fn drops(&self) -> Vec<Named> {
        self.switches
            .iter()
            .flat_map(|switch| switch.stats().dropped)
            .collect()
    }

    pub fn flows(&self) -> Vec<runtime::worker::FlowView> {
        let mut flows = Vec::new();
        for runtime in self.there() {
            let mut cursor = Some(0);
            while let Some(from) = cursor {
                let (some, next) = runtime.flows(from, 1024);
                flows.extend(some.into_iter().map(clock::flow));
                cursor = next;
            }
        }
        flows
    }

    /// A function's table over both runtimes, or its answer at each. The counts of a failed runtime
    /// are gone, so where one fails counts are left out.
    pub fn answers(&mut self, function: &str, words: &[&str], fails: bool) -> Vec<String> {
        let there = || self.runtimes.iter().flatten();
        let tables = there().map(|runtime| runtime.table(function, words).ok().flatten());
        let Some(tables) = tables.collect::<Option<Vec<_>>>().filter(|all| !all.is_empty()) else {
            let asked = self.runtimes.iter_mut().flatten();
            let said = asked.map(|runtime| runtime.command(function, words));
            return said.map(|answer| format!("{answer:?}")).collect();
        };
        let table = tables[0].table;
        let adds: Vec<nf::Adds> = table.adds().collect();
        let mut rows = nf::table::sum(&adds, tables.iter().map(|of| (&of.rows[..], false)));
        if fails {
            let is_counted = |adds: &nf::Adds| matches!(adds, nf::Adds::Counted | nf::Adds::Greatest);
            let cells = rows.iter_mut().flat_map(|row| adds.iter().zip(row));
            let counted = cells.filter(|(adds, _)| is_counted(adds));
            counted.for_each(|(_, cell)| *cell = nf::table::Value::Number(0));
        }
        rows.sort();
        vec![table.text(&rows)]
    }

    /// Ends every flow.
    pub fn finish(&mut self) -> Result<(), String> {
        for _ in 0..TURNS_MAX {
            let mut is_done = true;
            for runtime in self.runtimes.iter_mut().flatten() {
                is_done &= runtime.finish(1024);
            }
            self.run_until_quiet()?;
            if is_done {
                return Ok(());
            }
        }
        Err("flows are left that cannot be ended".into())
    }

    /// Leftovers that should not be there, when all flows are over.
    pub fn left_over(&mut self) -> Option<String> {
        for (number, switch) in self.switches.iter().enumerate() {
            let stats = switch.stats();
            for (count, what) in [
                (stats.routes, "routes"),
                (stats.reply_keys, "reply keys"),
                (stats.blocks, "blocks of ports"),
                (stats.held, "fragments"),
            ] {
                if count > 0 {
                    return Some(format!(
                        "all flows are over, but switch {number} has {count} {what}"
                    ));
                }
            }
        }
        for (number, runtime) in self.there().enumerate() {
            let stats = runtime.stats();
            for (count, what) in [
                (stats.flows, "flows"),
                (stats.groups, "groups"),
                (stats.held, "packets"),
                (stats.waiting, "calls that wait"),
                (stats.copies, "copies"),
            ] {
                if count > 0 {
                    return Some(format!(
                        "all flows are over, but runtime {number} has {count} {what}"
                    ));
                }
            }
        }
        let pools = self.there().map(|runtime| runtime.pool());
        let away = pools
            .chain(self.switches.iter().map(Switch::pool))
            .map(|pool| pool.total() - pool.free());
        // Each runtime has some ready for `Cx::emit`, and a message or two begun.
        away.max()
            .filter(|away| *away > EMITTED_MAX + 2)
            .map(|away| format!("all flows are over, but {away} buffers of one worker have not come back"))
    }
}
