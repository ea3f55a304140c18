//! From a configuration to workers: ports opened, rings laid, pools and tables in memory.

mod error;
pub(in crate::run) mod memory;

use super::adopting;
use super::driver::{Driver, Worker, WorkerSlot};
use super::handle::Handle;
use super::kernel::{Kernel, PortName};
use super::links::{Links, Sizes, WorkerLink};
use super::neighbours::{self, Neighbours};
use super::objects::{self, Views};
use super::privileges::Privileges;
use super::worker_pool::{Dormant, RuntimeFactory, ThreadInbox, WorkerPool};
use crate::config::layout::{Layout, PortPlace, WorkerId};
use crate::config::{Clock, Config, Idle, Port, Side, Threads};
use crate::member::{Membership, secrets};
use adapters::clock::allowed_cpus;
use adapters::idle::Sleeper;
use adapters::large::at_once;
use adapters::open::{BoxPort, Ports};
use adapters::pages::{Want, map};
use adapters::report::Reports;
use nf::WorkerInfo;
use runtime::Runtime;
use runtime::chain::Plan;
use runtime::env::Port as _;
use runtime::switch::{SideRule, Switch};
use std::collections::BTreeMap;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};
use wire::memory::Region;
use wire::{HashSeed, Pool};

pub use error::RunError;

/// Everything a cluster is made of.
pub(super) struct Built {
    pub threads: Vec<Driver>,
    /// The switches of this process, by their numbers in the cluster.
    pub switches: BTreeMap<u16, Handle>,
    pub runtimes: BTreeMap<u16, Handle>,
    pub ports: Vec<Vec<String>>,
    pub reports: Reports,
    pub kernel: Vec<Kernel>,
    pub packet_clock: bool,
    /// The configuration that it was made of, for changes while it runs.
    pub config: Config,
    pub plan: Plan,
    pub infos: Vec<WorkerInfo>,
    pub sides: Vec<Vec<SideRule>>,
    /// By thread.
    pub inboxes: Vec<ThreadInbox>,
    /// For runtimes that come and go.
    pub worker_pool: Option<WorkerPool>,
    /// Where functions' variables are kept.
    pub stores: crate::store::Opened,
    /// Of a member: makes its links to others.
    pub neighbours: Option<Neighbours>,
}

/// Buffers of each switch: its ports and the runtimes' queues may hold so many together.
pub(in crate::run) const BUFFERS: usize = 8192;
/// Packets that may wait in a runtime's queue: those that come while its thread is without a
/// processor for some slices of the scheduler, and no more than a quarter of the buffers, so that
/// one slow runtime does not have them all.
const QUEUE: usize = BUFFERS / 4;
/// Buffers of each runtime, for messages and for packets that functions emit. For a turn it wants
/// sixteen for each switch, of which there may be 64.
const OWN_BUFFERS: usize = 2048;
/// In a replay with a port that answers: how far, in nanoseconds of the capture, packets may be
/// ahead of answers. Far below the shortest timeout by default, half a minute.
const LEAD: u64 = 100_000_000;
const OWN_FRAME: usize = 2048;
/// Runtimes on their way to a thread at most: as many as there may be.
pub(super) const RUNTIMES_MAX: usize = 64;
/// How long, in nanoseconds, a switch that starts waits for the runtimes of other processes to tell
/// which flows they have.
const TOLD: u64 = 3_000_000_000;
/// The same for runtimes of one process that tell which flows they have out of a store.
const STORED: u64 = 20_000_000_000;
/// After how long, in nanoseconds, a group's move is called back, where workers are in other
/// processes: longer than it takes to miss a switch of another host
/// (`runtime::peer::PeerSettings::dead_after_ns`), whose answer a group that is called back would
/// wait for.
const MOVE: u64 = 4_000_000_000;

struct OpenPort {
    name: String,
    port: BoxPort,
    rule: SideRule,
    /// Where it is.
    place: PortPlace,
}

/// Opens the ports of this process and makes its workers: all of the cluster, or a member's.
pub(super) fn build(
    mut config: Config,
    layout: &Layout,
    member: Option<&Membership>,
    ports: Ports,
    events: &SyncSender<String>,
    privileges: Option<&Privileges>,
) -> Result<Built, RunError> {
    let mut ports = ports.with_generator(crate::generate::open);
    let mut opened = open_ports(&config, layout, &mut ports)?;
    ports.complete().map_err(|source| RunError::Port {
        port: "all".to_owned(),
        source,
    })?;
    let packet_clock = match config.clock {
        // Other processes do not see the times of this one's packets.
        _ if member.is_some() => false,
        Clock::Capture => true,
        Clock::Machine => false,
        Clock::Auto => opened.iter().all(|open| open.port.waits()),
    };
    let timed = member.is_some() || opened.iter().any(|open| !open.port.waits());
    // An answering port takes the time of the packets that it answers, so reading must not run away
    // from it.
    let answering = opened.iter().any(|open| open.port.answers());
    let mut names: Vec<String> = config.functions.keys().cloned().collect();
    if layout.runtimes_here.is_empty() {
        // Switches keep nothing in a store.
        names.clear();
    } else if config.keeps_stored() {
        names.push(runtime::replication::STORED_AS.to_owned());
    }
    let factories = config.take_factories();
    let plan = config.plan(factories)?;
    let others = member.map(|_| neighbours::frame_max(&config));
    let sizes = (others, started(&config, member));
    if packet_clock {
        // A short capture uses a part of each table.
        adapters::large::sparing();
    }
    memory::check(&config, layout, &plan, packet_clock, sizes)?;
    claim(&plan, &mut opened)?;
    // Threads and links are made with fewer rights, before any packet comes by them.
    if let Some(privileges) = privileges {
        privileges.drop().map_err(RunError::Privileges)?;
    }
    ports.follow_addresses().map_err(|source| RunError::Port {
        port: "all".to_owned(),
        source,
    })?;
    let named = member.map_or("", |member| member.name.as_str());
    let joining = member.filter(|member| member.joining.is_some());
    let stores = crate::store::open(
        &config.store,
        &names,
        (named, joining.map(|_| config.cluster.name())),
        packet_clock,
        events,
        ports.reports(),
    )?;
    let words = member.map(|member| member.secrets.agreed);
    let plan = plan
        .keeping(stores.keeper.clone())
        .known_by(words.map_or(0, |words| secrets::number(&words)));
    let kernel = follow_kernel(&config, layout, &plan)?;
    let seed = match (member, config.threads) {
        (Some(member), _) => member.secrets.seed,
        // Equal input shall give equal output.
        (None, Threads::One) => HashSeed::FIXED,
        (None, Threads::Auto) => HashSeed(std::array::from_fn(|_| random())),
    };
    let patient = opened.iter().all(|open| open.port.waits());
    let shape = Shape {
        layout,
        seed,
        draws: draws(timed, seed),
        packet_clock,
        lead_max: if answering { LEAD } else { u64::MAX },
        patient,
        others,
        held_max: config.held_max,
        now: if packet_clock {
            0
        } else {
            adapters::clock::monotonic_ns()
        },
        wall: wall(packet_clock),
        egress: egress(&config, layout),
    };
    let mut per_switch: BTreeMap<usize, Vec<OpenPort>> = layout
        .switches_here
        .clone()
        .map(|switch| (switch, Vec::new()))
        .collect();
    for open in opened {
        let ports = per_switch.get_mut(&open.place.switch);
        ports
            .expect("a port of this process is at a switch of it")
            .push(open);
    }
    let names = each(&per_switch, |open| open.name.clone());
    let sides = each(&per_switch, |open| open.rule.clone());
    let sizes = Sizes {
        buffers: layout.switches_here.len() * shape.switch_buffers()
            + layout.runtimes_here.len() * shape.runtime_buffers(),
        queue: QUEUE,
    };
    let reports = ports.reports().clone();
    let neighbours = member.map(|member| Neighbours::new(&config, member, QUEUE, reports.clone()));
    let mut links = match &neighbours {
        None => Links::lay(layout, sizes, &mut |near, far| {
            unreachable!("{near} and {far} are here")
        })?,
        Some(neighbours) => Links::lay(layout, sizes, &mut |near, far| {
            neighbours.begin(&config, near, far)
        })?,
    };
    // Before any worker looks which peers are there.
    let mut dormant = BTreeMap::new();
    for index in layout.runtimes_here.clone().skip(started(&config, member)) {
        let (ends, peers) = links.park(index);
        let is_planned = index < usize::from(config.planned_runtimes());
        dormant.insert(index as u16, Dormant::new(ends, peers, is_planned));
        links.look(index);
    }
    let mut worker_slots = Vec::new();
    let (mut switches, mut runtimes) = (BTreeMap::new(), BTreeMap::new());
    for (index, ports) in per_switch {
        let switch = shape.switch(index, ports, &config, &plan, &mut links)?;
        let (handle, inbox) = Handle::new();
        switches.insert(index as u16, handle);
        worker_slots.push(worker_slot(Worker::Switch(Box::new(switch)), inbox));
    }
    let here = layout.runtimes_here.clone().take(started(&config, member));
    let is_without = member.is_some_and(|member| member.joining.is_none());
    let made = here.map(|index| {
        let runtime = shape.runtime(index, &config, &plan, &mut links)?;
        objects::check(&runtime, is_without)?;
        Ok((index as u16, runtime))
    });
    let mut made = made.collect::<Result<Vec<_>, RunError>>()?;
    adopting::adopt((&config.store, named), &stores.keeper, &mut made, events)?;
    // At a member the coordinator says which runtimes share objects.
    let own = made.iter_mut().filter(|_| member.is_none());
    let views = Views::begin(own.map(|(number, runtime)| (*number, runtime)));
    for (number, runtime) in made {
        let (handle, inbox) = Handle::new();
        runtimes.insert(number, handle);
        worker_slots.push(worker_slot(Worker::Runtime(Box::new(runtime)), inbox));
    }
    // Memory that workers take from here on, as for another's copies, they begin to use among
    // packets.
    adapters::large::sparing();
    let (threads, inboxes) = spread(
        worker_slots,
        (config.threads, dormant.len()),
        packet_clock,
        timed,
        config.idle,
        events,
    );
    Ok(Built {
        threads,
        switches,
        runtimes,
        ports: names,
        reports,
        kernel,
        packet_clock,
        infos: layout
            .runtimes_here
            .clone()
            .take(started(&config, member))
            .map(|index| shape.info(index, &config))
            .collect(),
        inboxes,
        worker_pool: member.is_none().then(|| {
            let factory = RuntimeFactory {
                settings: shape.runtime_settings(0, &config),
                plan: plan.clone(),
            };
            WorkerPool::new(factory, dormant, views)
        }),
        config,
        plan,
        sides,
        stores,
        neighbours,
    })
}

/// How many of the runtimes that there may be are there from the start.
fn started(config: &Config, member: Option<&Membership>) -> usize {
    match member {
        Some(member) => member.layout.runtimes_here.len(),
        None => usize::from(config.runtimes),
    }
}

/// Something of each port, by the switches of this process.
fn each<T>(per_switch: &BTreeMap<usize, Vec<OpenPort>>, of: impl Fn(&OpenPort) -> T) -> Vec<Vec<T>> {
    let switches = per_switch.values();
    switches.map(|ports| ports.iter().map(&of).collect()).collect()
}

/// Has ports answer for the addresses that functions answer to, each for those of its side.
fn claim(plan: &Plan, opened: &mut [OpenPort]) -> Result<(), RunError> {
    let claims: Vec<nf::Claim> = plan.factories().iter().flat_map(|f| f.claims()).collect();
    for open in opened {
        let addresses = crate::apply::claimed_by(&open.rule, &claims);
        open.port.claim(&addresses).map_err(|error| RunError::Port {
            port: open.name.clone(),
            source: error.into(),
        })?;
    }
    Ok(())
}

/// Has the kernel followed for each function that forwards by its tables.
fn follow_kernel(config: &Config, layout: &Layout, plan: &Plan) -> Result<Vec<Kernel>, RunError> {
    let interface = |port: &crate::config::Port| {
        let uris = [&port.input, &port.output].into_iter().flatten();
        uris.map(crate::config::Uri::as_str).find_map(|uri| {
            let (kind, rest) = uri.split_once(':')?;
            let name = rest.split('?').next()?;
            matches!(kind, "afpacket" | "afxdp").then(|| name.to_string())
        })
    };
    // By their numbers; a number may have no port.
    let mut ports: Vec<PortName> = Vec::new();
    for (port, place) in config.port.iter().zip(&layout.ports) {
        let number = place.number(layout.switches);
        if ports.len() <= number {
            ports.resize_with(number + 1, PortName::default);
        }
        ports[number] = PortName {
            name: port.name.clone(),
            interface: interface(port),
        };
    }
    let feeds = plan.factories().iter().filter_map(|factory| factory.feed());
    feeds
        .filter_map(|feed| feed.downcast::<functions::forward::Supply>().ok())
        .map(|supply| Kernel::follow(&supply, &ports))
        .collect()
}

pub(super) fn worker_slot(worker: Worker, inbox: super::handle::Inbox) -> WorkerSlot {
    WorkerSlot {
        worker,
        place: None,
        inbox,
        end: super::handle::End::None,
        finishing: None,
        lines: String::new(),
        rests: false,
        busy: 0,
        has_worked: false,
        leaves: None,
    }
}

/// How many threads there are: one for each worker that is there, and that may come, as far as
/// there are processors. A thread without a worker waits for one.
fn threads_of(threads: Threads, cpus: usize, workers: usize, room: usize) -> usize {
    match threads {
        Threads::One => 1,
        Threads::Auto => cpus.clamp(1, workers + room),
    }
}

/// A thread per worker as far as there are processors, each on its own. `room`: so many may come.
fn spread(
    worker_slots: Vec<WorkerSlot>,
    (threads, room): (Threads, usize),
    packet_clock: bool,
    timed: bool,
    idle: Idle,
    events: &SyncSender<String>,
) -> (Vec<Driver>, Vec<ThreadInbox>) {
    let cpus = allowed_cpus();
    let count = threads_of(threads, cpus.len(), worker_slots.len(), room);
    // Only where no thread has to look at the machine's clock for its ports' sake.
    let sleepers: Arc<[Sleeper]> = match idle {
        Idle::Block if timed && !packet_clock => (0..count).map_while(|_| Sleeper::new().ok()).collect(),
        _ => Arc::new([]),
    };
    let (inboxes, arrivals): (Vec<_>, Vec<_>) = (0..count)
        .map(|_| std::sync::mpsc::sync_channel(RUNTIMES_MAX))
        .unzip();
    let mut drivers: Vec<Driver> = arrivals
        .into_iter()
        .enumerate()
        .map(|(index, arrivals)| Driver {
            arrivals,
            worker_slots: Vec::new(),
            // A single thread goes where the system likes.
            cpu: (count > 1).then(|| cpus[index]),
            packet_clock,
            events: events.clone(),
            timed,
            idle,
            sleepers: sleepers.clone(),
            index,
        })
        .collect();
    for (index, worker_slot) in worker_slots.into_iter().enumerate() {
        drivers[index % count].worker_slots.push(worker_slot);
    }
    let inbox = |worker_slots| ThreadInbox {
        worker_slots: Mutex::new(Some(worker_slots)),
        workers: Mutex::default(),
    };
    (drivers, inboxes.into_iter().map(inbox).collect())
}

fn open_ports(config: &Config, layout: &Layout, ports: &mut Ports) -> Result<Vec<OpenPort>, RunError> {
    let mut opened = Vec::new();
    let mut inputs = 0;
    for (port, place) in config.port.iter().zip(&layout.ports) {
        inputs += usize::from(port.input.is_some());
        if !layout.switches_here.contains(&place.switch) {
            continue;
        }
        let failed = |source| RunError::Port {
            port: port.name.clone(),
            source,
        };
        let text = |uri: &Option<crate::config::Uri>| uri.as_ref().map(ToString::to_string);
        let open = match (text(&port.input), text(&port.output)) {
            (Some(input), Some(output)) => ports.open(&input, &output),
            (Some(input), None) => ports.open_input(&input),
            (None, Some(output)) => ports.open_output(&output),
            (None, None) => {
                return Err(RunError::EmptyPort {
                    port: port.name.clone(),
                });
            }
        };
        opened.push(OpenPort {
            name: port.name.clone(),
            port: open.map_err(failed)?,
            rule: config.side_rule(port),
            place: *place,
        });
    }
    if inputs == 0 {
        return Err(RunError::NoInput);
    }
    Ok(opened)
}

/// By which switch and which of its ports packets for each side leave.
type Egress = [Option<PortPlace>; 2];

/// The first port of each side that has an output, or failing that the first of the side. A port
/// that is on one side goes before one whose side is told by addresses, and so is on both. Of
/// equals the one of the first switch.
fn egress(config: &Config, layout: &Layout) -> Egress {
    let ports = || config.port.iter().zip(&layout.ports);
    let find = |is_meant: &dyn Fn(&Port) -> bool, with_output: bool| {
        ports()
            .filter(|(port, _)| is_meant(port) && (port.output.is_some() || !with_output))
            .map(|(_, place)| *place)
            .min_by_key(|place| (place.switch, place.place))
    };
    [Side::Inside, Side::Outside].map(|side| {
        let fixed = |port: &Port| port.side == side;
        let both = |port: &Port| port.side == Side::ByAddress;
        let with_output = find(&fixed, true).or_else(|| find(&both, true));
        with_output.or_else(|| find(&fixed, false).or_else(|| find(&both, false)))
    })
}

/// The settings that all workers share.
struct Shape<'l> {
    layout: &'l Layout,
    seed: HashSeed,
    /// See [`draws`].
    draws: u64,
    packet_clock: bool,
    lead_max: u64,
    patient: bool,
    now: u64,
    /// The wall clock's time where the workers' shows 0.
    wall: u64,
    egress: Egress,
    /// The longest frame from other processes, if there are any.
    others: Option<usize>,
    /// Packets that the functions of a runtime hold.
    held_max: u32,
}

impl Shape<'_> {
    /// Buffers of a switch: packets from other processes come into these, too.
    fn switch_buffers(&self) -> usize {
        BUFFERS * if self.others.is_some() { 2 } else { 1 }
    }

    /// Buffers of a runtime: packets from other processes come into its own.
    fn runtime_buffers(&self) -> usize {
        let buffers = if self.others.is_some() {
            BUFFERS
        } else {
            OWN_BUFFERS
        };
        buffers.max(with_copies(self.held_max))
    }

    /// Has links to other processes take their share of a worker's pool.
    fn attach<'l>(
        &self,
        pool: &mut Pool,
        near: WorkerId,
        links: impl IntoIterator<Item = &'l mut WorkerLink>,
    ) -> Result<(), RunError> {
        for link in links {
            link.attach(pool)
                .map_err(|error| RunError::Pool { near, source: error })?;
        }
        Ok(())
    }

    fn switch_settings(&self, index: usize, config: &Config) -> runtime::switch::SwitchSettings {
        runtime::switch::SwitchSettings {
            switch: index as u8,
            switches: self.layout.switches as u8,
            seed: self.seed,
            routes_max: routes_max(config.flows_max, config.planned_runtimes()),
            policy: config.policy.into(),
            fragments_max: 4096,
            egress: self.egress.map(|place| {
                place
                    .filter(|place| place.switch == index)
                    .map(|place| place.place as u8)
            }),
            packet_clock: self.packet_clock,
            lead_max: self.lead_max,
            recovery_max: match config.keeps_copies() || self.awaits_returns(config) {
                true => config.replication.recovery_max.duration().as_nanos() as u64,
                false => 0,
            },
            patient: self.patient,
            now: self.now,
        }
    }

    fn switch(
        &self,
        index: usize,
        mut ports: Vec<OpenPort>,
        config: &Config,
        plan: &Plan,
        links: &mut Links,
    ) -> Result<Switch<BoxPort, WorkerLink>, RunError> {
        let settings = self.switch_settings(index, config);
        let frame_max = ports
            .iter()
            .map(|open| open.port.frame_max())
            .chain(self.others)
            .max();
        let buffers = self.switch_buffers();
        let mut pool = adapters::buffers::pool(buffers, frame_max.unwrap_or(0), index as u8)?;
        for open in &mut ports {
            open.port.attach(&mut pool).map_err(|error| RunError::Port {
                port: open.name.clone(),
                source: error.into(),
            })?;
        }
        let (mut runtimes, mut peers) = links.of_switch(index);
        self.attach(
            &mut pool,
            WorkerId::Switch(index),
            runtimes.iter_mut().chain(peers.iter_mut().flatten()),
        )?;
        let ports = ports.into_iter().map(|open| (open.port, open.rule)).collect();
        let plan = plan.clone();
        // Not touched at once, as `region`'s is: few clusters use much of the room for the routes
        // of all runtimes that there may be.
        let mut switch = Switch::new(settings, plan, ports, runtimes, peers, pool, Region::heap);
        if self.others.is_some() {
            switch.expect_listed(config.runtimes.into());
            // Runtimes that are at work already tell it their groups.
            let began = adapters::clock::monotonic_ns().saturating_sub(self.now);
            let returns = config.replication.return_max.duration().as_nanos() as u64;
            let told = if config.keeps_stored() {
                TOLD.max(returns)
            } else {
                TOLD
            };
            switch.wait_for_resync(began.saturating_add(told));
            if self.awaits_returns(config) {
                switch.expect_returns(config.keeps_copies());
            }
        } else if config.keeps_stored() {
            let began = if self.packet_clock {
                0
            } else {
                adapters::clock::monotonic_ns()
            };
            switch.wait_for_stored(began.saturating_sub(self.now) + STORED);
        }
        Ok(switch)
    }

    /// Whether processes that were killed come back with flows out of a store.
    fn awaits_returns(&self, config: &Config) -> bool {
        self.others.is_some() && config.keeps_stored()
    }

    /// The data on a runtime for its functions.
    fn info(&self, index: usize, config: &Config) -> WorkerInfo {
        WorkerInfo {
            runtime: index as u16,
            // More than there are at the start borrow their parts of pools.
            runtimes: config.runtimes,
            flows_max: config.flows_max,
            seed: self.draws,
        }
    }

    fn runtime_settings(&self, index: usize, config: &Config) -> runtime::Settings {
        runtime::Settings {
            info: self.info(index, config),
            replica_ranks: Layout::replica_ranks(config, index, self.layout.runtimes),
            ..self.sized(config.flows_max, config)
        }
    }

    /// Settings of a runtime for so many flows.
    fn sized(&self, flows_max: u32, config: &Config) -> runtime::Settings {
        let by_address = config
            .port
            .iter()
            .any(|port| matches!(config.side_rule(port), SideRule::BySource(_)));
        let alone = runtime::Settings::alone(flows_max);
        runtime::Settings {
            moves_max: config.migration.moves_max,
            moved_flows_max: config.migration.moved_flows_max,
            kept_max: config.migration.kept_max,
            move_timeout: match (config.migration.move_timeout, self.others) {
                (Some(timeout), _) => timeout.duration().as_nanos() as u64,
                (None, Some(_)) => MOVE,
                (None, None) => alone.move_timeout,
            },
            info: WorkerInfo {
                flows_max,
                ..self.info(0, config)
            },
            seed: self.seed,
            waiting_max: config.waiting_max,
            held_max: config.held_max,
            switches: self.layout.switches as u8,
            egress: self
                .egress
                .map(|place| place.map_or(0, |place| place.switch as u8)),
            inside: if by_address {
                config.inside.clone()
            } else {
                Vec::new()
            },
            replicated: config.keeps_copies(),
            copying: config.replication.copying(),
            storing: config.storing(),
            wall: self.wall,
            packet_clock: self.packet_clock,
            now: self.now,
            ..alone
        }
    }

    fn runtime(
        &self,
        index: usize,
        config: &Config,
        plan: &Plan,
        links: &mut Links,
    ) -> Result<Runtime<WorkerLink>, RunError> {
        let settings = self.runtime_settings(index, config);
        let origin = self.layout.switches + index;
        let mut pool = match self.others {
            Some(frame_max) => adapters::buffers::pool(self.runtime_buffers(), frame_max, origin as u8)?,
            None => own_pool(origin, self.held_max),
        };
        let (mut ends, mut others) = links.of_runtime(index);
        self.attach(
            &mut pool,
            WorkerId::Runtime(index),
            ends.iter_mut().chain(others.iter_mut().flatten()),
        )?;
        let plan = plan.clone();
        // No packet of a capture is late for a page that the kernel finds first.
        let made = match self.packet_clock {
            true => Runtime::new(settings, plan, ends, pool, Region::heap),
            false => at_once(|| Runtime::new(settings, plan, ends, pool, region)),
        };
        let mut runtime = made.map_err(|(function, source)| RunError::Function { function, source })?;
        runtime.join(others);
        // Equal captures shall give equal figures, and no two runs take the same time.
        if !self.packet_clock {
            runtime.sample_costs(adapters::clock::cycles);
        }
        Ok(runtime)
    }
}

/// Routes that a switch has room for, where so many runtimes have so many flows each.
pub(super) fn routes_max(flows_max: u32, runtimes: u16) -> u32 {
    (flows_max.saturating_mul(2))
        .saturating_mul(runtimes.into())
        .min(1 << 26)
}

/// The seed of functions' random numbers, NAT's ports among them: where packets do not say the
/// time, another one at each start. Members have the seed of their hashes from a file. With that
/// one, a runtime that begins again would give the same ports in the same order, while answers to
/// their last owners are on their way.
fn draws(timed: bool, seed: HashSeed) -> u64 {
    match timed {
        true => random(),
        // Equal input shall give equal output.
        false => seed.0[0],
    }
}

/// The wall clock's time where the workers' shows 0, in nanoseconds. Where packets carry the time,
/// theirs is both.
fn wall(packet_clock: bool) -> u64 {
    if packet_clock {
        return 0;
    }
    let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let wall = wall.map_or(0, |wall| u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX));
    wall.saturating_sub(adapters::clock::monotonic_ns())
}

/// A number that no sender can guess: the standard library seeds its hash maps by the system.
fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}

/// Buffers of a runtime's own, where all its links are rings.
pub(super) fn own_pool(origin: usize, held_max: u32) -> Pool {
    pool(OWN_BUFFERS.max(with_copies(held_max)), OWN_FRAME, origin)
}

/// Buffers of which half is room for as many copies as functions may hold.
fn with_copies(held_max: u32) -> usize {
    2 * held_max as usize
}

fn pool(count: usize, frame: usize, origin: usize) -> Pool {
    // Heap: most of a buffer for super-frames is never touched, so it takes no memory.
    Pool::new(
        Region::heap(Pool::region_length(count, frame)),
        count,
        frame,
        origin as u8,
    )
}

/// Large pages for large regions; where they are not to be had, the heap.
pub(super) fn region(length: usize) -> Region {
    if length < 1 << 20 {
        return Region::heap(length);
    }
    map(length, Want::Huge).map_or_else(|_| Region::heap(length), |pages| pages.region)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_that_comes_has_a_thread_of_its_own_where_there_is_a_processor() {
        assert_eq!(threads_of(Threads::Auto, 8, 2, 8), 8);
        assert_eq!(threads_of(Threads::Auto, 64, 2, 8), 10);
        assert_eq!(threads_of(Threads::Auto, 1, 2, 8), 1);
        assert_eq!(threads_of(Threads::One, 8, 2, 0), 1);
    }

    #[test]
    fn a_thread_without_a_worker_takes_no_processor_and_ends_when_none_will_come() {
        let (events, _lines) = std::sync::mpsc::sync_channel(1);
        let (mut drivers, inboxes) = spread(Vec::new(), (Threads::One, 1), false, true, Idle::Spin, &events);
        let driver = drivers.remove(0);
        let (tell, number) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let own = rustix::thread::gettid().as_raw_nonzero().get();
            tell.send(own).unwrap();
            driver.run();
        });
        let number = number.recv().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(200));
        assert!(!thread.is_finished());
        assert!(super::super::threads::cpu_ns(number) < 50_000_000);
        drop(inboxes);
        thread.join().unwrap();
    }

    #[test]
    fn who_begins_anew_draws_anew_but_in_a_replay() {
        let [one, two] = [true; 2].map(|timed| draws(timed, HashSeed::FIXED));
        assert_ne!(one, two);
        let [one, two] = [false; 2].map(|timed| draws(timed, HashSeed::FIXED));
        assert_eq!(one, two);
    }
}
