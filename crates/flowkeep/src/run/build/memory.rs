//! The memory that a configuration needs: at the start, and at most.
//!
//! # Theory of operation
//!
//! There is no list of tables with their sizes, which would have to be kept like the tables. A
//! worker of each kind is made as `run` makes it, without ports, and the memory that it asks for is
//! counted ([`adapters::large::counted`]); then it is dropped. Tables and queues are bounded and
//! made at the start, so the memory asked for then is the most. The part of it that is *taken* at
//! the start:
//!
//! ```text
//!   a runtime, live            all of it: it is touched while it is made (`at_once`)
//!   a runtime of a capture     the pages that the kernel has found for it when it is made
//!   a switch                   the same; its tables are found as routes come
//!   packet buffers             the first 16 MiB where ports have frames of an MTU, else none
//! ```
//!
//! For more than [`TRIED_MAX`] flows (routes) two smaller workers are made, and the memory of more
//! flows follows from the two: tables grow in proportion with the flows that they have room for.
//! Pieces are whole pages of 2 MiB, by which that is a few parts in a hundred off.
//!
//! The rings of `afpacket:` ports in the kernel are counted where no port is open yet: `run` has it
//! in its own pages by then.
//!
//! Not counted: copies of other runtimes' flows and entries of a store (they grow with the flows
//! that have any), the memory that threads and questions take for a moment.

use super::error::Shortage;
use super::{BUFFERS, Egress, OWN_FRAME, QUEUE, RunError, Shape};
use crate::config::layout::Layout;
use crate::config::{Clock, Config};
use crate::report::human_size;
use crate::run::links::WorkerLink;
use crate::run::neighbours;
use crate::run::refusals::{Reach, Refusal};
use adapters::large::counted;
use adapters::ring::RingPort;
use adapters::uri::{PortUri, Role};
use runtime::Runtime;
use runtime::chain::{Plan, Stages};
use runtime::switch::Switch;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use wire::memory::Region;
use wire::{HashSeed, Pool};

/// Room for so many flows or routes is made to see how much it takes.
const TRIED_MAX: u32 = 1 << 20;
/// The same where address space is limited: there is to be room for the trial.
const TRIED_IN_LITTLE: u32 = 1 << 16;
/// How often fewer flows are tried, a fifth fewer each time.
const TRIALS: usize = 12;
/// Threads beside the workers' own: of the event log, sockets, addresses, stores and the like.
const THREADS: u64 = 12;
/// Address space of a thread: its stack, and the first region of its allocator.
const STACK: u64 = 3 << 20;

/// A remedy names so much more: the space that a process has mapped differs a little from start to
/// start.
const SPARE: u64 = 4 << 20;

/// Memory that a configuration needs, of all its processes together.
#[derive(Serialize, JsonSchema, Clone, Debug)]
pub struct Memory {
    /// By kind of worker.
    pub workers: Vec<WorkerMemory>,
    /// The program itself.
    pub program_bytes: u64,
    /// The memory taken at the start.
    pub start_bytes: u64,
    /// The most that it becomes.
    pub most_bytes: u64,
    /// The memory that this machine has to give, swap included.
    pub available_bytes: u64,
    /// The space that this process may map, if that is limited (`ulimit -v`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub space_bytes: Option<u64>,
    /// The space that this process has mapped before it has any worker.
    #[serde(skip)]
    mapped_bytes: u64,
    /// The setting.
    #[serde(skip)]
    flows_max: u32,
    /// Where there is too little: a setting with which it was tried that there is enough; 0 if
    /// there is none.
    #[serde(skip)]
    fitting: Option<u32>,
}

/// Memory of workers of a kind, or of the links between them.
#[derive(Serialize, JsonSchema, Clone, Debug)]
pub struct WorkerMemory {
    /// `switch`, `runtime`, `link` or `port`.
    pub worker: &'static str,
    /// How many there are at the start.
    pub count: u64,
    /// As many as there may be.
    pub count_max: u64,
    /// The tables of each.
    pub tables: Vec<TableMemory>,
}

/// Memory of one worker for one purpose.
#[derive(Serialize, JsonSchema, Clone, Debug)]
pub struct TableMemory {
    /// The table's purpose.
    pub table: String,
    /// The setting by which it grows, if there is one.
    pub setting: Option<String>,
    /// The memory taken at the start.
    pub start_bytes: u64,
    /// The most that it becomes.
    pub most_bytes: u64,
}

impl Memory {
    /// Rings of ports that receive, one of each size.
    fn add_ports(&mut self, config: &Config) {
        let mut counts = BTreeMap::<u64, u64>::new();
        for uri in config.port.iter().flat_map(|port| &port.input) {
            if let Ok(PortUri::Packet { interface, .. }) = PortUri::parse(uri.as_str(), Role::Input) {
                *counts
                    .entry(adapters::afpacket::ring_bytes(&interface))
                    .or_default() += 1;
            }
        }
        for (bytes, count) in counts {
            self.start_bytes += bytes * count;
            self.most_bytes += bytes * count;
            self.workers.push(WorkerMemory {
                worker: "port",
                count,
                count_max: count,
                tables: vec![TableMemory {
                    table: "the kernel's ring".to_owned(),
                    setting: None,
                    start_bytes: bytes,
                    most_bytes: bytes,
                }],
            });
        }
    }
    /// As people read it.
    pub fn text(&self) -> String {
        let mut table =
            crate::report::Table::new(&["Worker", "Memory for", "Grows by", ">At the start", ">At most"]);
        for worker in &self.workers {
            let count = match (worker.count, worker.count_max) {
                (count, most) if count == most => count.to_string(),
                (count, most) => format!("{count} to {most}"),
            };
            for of in &worker.tables {
                table.row([
                    format!("{} × {count}", worker.worker),
                    of.table.clone(),
                    of.setting.clone().unwrap_or_else(|| "-".to_owned()),
                    human_size(of.start_bytes),
                    human_size(of.most_bytes),
                ]);
            }
        }
        format!(
            "memory: {} at the start, {} at most; this machine has {}\n\n{table}",
            human_size(self.start_bytes),
            human_size(self.most_bytes),
            human_size(self.available_bytes)
        )
    }

    /// The refusal of `run` on this machine; the file may be for another one.
    pub fn refused(&self) -> Option<Refusal> {
        let refused = self.held_against_what_there_is().err()?;
        let at = match &refused {
            RunError::TooLittle(of) | RunError::TooLittleSpace(of) => of.setting.as_str(),
            _ => "",
        };
        Some(Refusal::saying(
            at.to_owned(),
            &refused.to_string(),
            Reach::Machine,
        ))
    }

    /// Refuses a start for which memory is short: the process would be killed, or the machine would
    /// stand still.
    fn held_against_what_there_is(&self) -> Result<(), RunError> {
        if self.start_bytes > self.available_bytes {
            let largest = self.largest(|table| table.start_bytes);
            let shortage = self.shortage(self.start_bytes, self.available_bytes, largest);
            return Err(RunError::TooLittle(Box::new(shortage)));
        }
        // Tables are mapped whole when they are made, and found as they are used.
        let each = self.workers.iter();
        let mapped =
            each.map(|worker| worker.count * worker.tables.iter().map(|of| of.most_bytes).sum::<u64>());
        let threads = THREADS + self.workers.iter().map(|worker| worker.count).sum::<u64>();
        let mapped = self.mapped_bytes + threads * STACK + mapped.sum::<u64>();
        match self.space_bytes {
            Some(space) if mapped > space => {
                let largest = self.largest(|table| table.most_bytes);
                let shortage = self.shortage(mapped, space, largest);
                Err(RunError::TooLittleSpace(Box::new(shortage)))
            }
            _ => Ok(()),
        }
    }

    /// The shortage by the memory needed and there, and by the setting that takes most.
    fn shortage(&self, needed: u64, has: u64, (setting, takes): (String, u64)) -> Shortage {
        Shortage {
            needs: human_size(needed),
            kilobytes: (needed + SPARE).div_ceil(1 << 10),
            has: human_size(has),
            to: self.lowered(&setting, takes, needed, has),
            takes: human_size(takes),
            flows: self.estimated(takes, needed, has),
            setting,
        }
    }

    /// How low a setting that takes so many bytes of those that are needed must be, where it is the
    /// one whose bytes grow in proportion, and is enough.
    fn lowered(&self, setting: &str, takes: u64, needed: u64, has: u64) -> String {
        if setting != "flows_max" {
            return String::new();
        }
        let to = self.fitting;
        match to.unwrap_or_else(|| self.estimated(takes, needed, has)) {
            0 => " (alone that is not enough)".to_owned(),
            to => format!(" to {to}"),
        }
    }

    /// The same as a number, by proportion.
    fn estimated(&self, takes: u64, needed: u64, has: u64) -> u32 {
        let room = has.saturating_sub(needed.saturating_sub(takes)) as f64;
        // Tables are whole large pages: they do not shrink by as little as is asked.
        let to = 0.9 * f64::from(self.flows_max) * room / takes.max(1) as f64;
        (to as u32) / 1000 * 1000
    }

    /// Where there is too little for the flows: finds out how many there is enough for, by trying,
    /// so that a tenth of the memory stays free. Some tables have sizes that are powers of two, and
    /// a machine's free memory differs from look to look.
    fn try_fewer(&mut self, mut measure: impl FnMut(u32) -> Option<Memory>) {
        let (Err(RunError::TooLittle(of)) | Err(RunError::TooLittleSpace(of))) =
            self.held_against_what_there_is()
        else {
            return;
        };
        if of.setting != "flows_max" {
            return;
        }
        let leaves_room = |mut few: Memory| {
            // All but the workers is as it was before the trials.
            few.start_bytes = few.start_bytes - few.program_bytes + self.program_bytes;
            few.mapped_bytes = self.mapped_bytes;
            few.available_bytes = self.available_bytes / 10 * 9;
            few.space_bytes = self.space_bytes.map(|space| space / 10 * 9);
            few.held_against_what_there_is().is_ok()
        };
        let mut to = of.flows.min(self.flows_max / 10 * 9);
        for _ in 0..TRIALS {
            if to == 0 || measure(to).is_some_and(leaves_room) {
                break;
            }
            to = to / 5000 * 4000;
        }
        self.fitting = Some(to);
    }

    /// The setting by which most is taken at the start, and how much.
    fn largest(&self, of: fn(&TableMemory) -> u64) -> (String, u64) {
        let mut by_setting: BTreeMap<&str, u64> = BTreeMap::new();
        for worker in &self.workers {
            for table in &worker.tables {
                if let Some(setting) = &table.setting {
                    *by_setting.entry(setting).or_default() += worker.count * of(table);
                }
            }
        }
        let largest = by_setting.into_iter().max_by_key(|(_, bytes)| *bytes);
        let (setting, bytes) = largest.unwrap_or(("runtimes", 0));
        (setting.to_owned(), bytes)
    }
}

/// The memory that a configuration needs on this machine; `None` if this program's allocator counts
/// nothing. An error is one with which `run` ends, too. Takes the functions.
pub(in crate::run) fn of(config: &mut Config) -> Result<Option<Memory>, RunError> {
    let plan = Plan::new(config.rules(), config.take_factories())?;
    let layout = Layout::whole(config);
    let is_apart = !config.member.is_empty();
    let others = is_apart.then(|| neighbours::frame_max(config));
    let is_replay = is_replay(config);
    if is_replay {
        adapters::large::sparing();
    }
    let shape = plain(config, &layout, is_replay, others);
    let mut memory = measured(&shape, config, &plan, config.runtimes.into())?;
    if let Some(memory) = &mut memory {
        memory.add_ports(config);
    }
    Ok(memory)
}

/// Refuses a configuration for which this machine has too little memory.
pub(super) fn check(
    config: &Config,
    layout: &Layout,
    plan: &Plan,
    packet_clock: bool,
    (others, started): (Option<usize>, usize),
) -> Result<(), RunError> {
    let shape = plain(config, layout, packet_clock, others);
    match measured(&shape, config, plan, started)? {
        Some(memory) => memory.held_against_what_there_is(),
        None => Ok(()),
    }
}

/// The memory needed, and if that is too much, with how many flows it would not be.
fn measured(
    shape: &Shape<'_>,
    config: &Config,
    plan: &Plan,
    started: usize,
) -> Result<Option<Memory>, RunError> {
    let frame_max = neighbours::longest(config);
    let mut memory = measure(shape, config, plan, frame_max, started)?;
    if let Some(memory) = &mut memory {
        let mut fewer = config.without_functions();
        memory.try_fewer(|flows_max| {
            fewer.flows_max = flows_max;
            measure(shape, &fewer, plan, frame_max, started).ok().flatten()
        });
    }
    Ok(memory)
}

/// The settings that workers share, as far as their sizes depend on them.
fn plain<'l>(config: &Config, layout: &'l Layout, packet_clock: bool, others: Option<usize>) -> Shape<'l> {
    Shape {
        layout,
        seed: HashSeed::FIXED,
        draws: 1,
        packet_clock,
        lead_max: u64::MAX,
        patient: true,
        others,
        held_max: config.held_max,
        now: 0,
        wall: 0,
        egress: Egress::default(),
    }
}

/// Whether packets carry the time, as far as that can be told without opening ports.
fn is_replay(config: &Config) -> bool {
    let waits = |uri: &crate::config::Uri, role| match PortUri::parse(uri.as_str(), role) {
        Ok(PortUri::PcapInput { settings, .. }) => settings.timing == adapters::pcap::Timing::Fast,
        Ok(PortUri::Packet { .. } | PortUri::Xdp { .. } | PortUri::Generate(_)) | Err(_) => false,
        Ok(PortUri::PcapOutput { .. } | PortUri::Memory { .. } | PortUri::Reflect { .. }) => true,
    };
    match config.clock {
        _ if !config.member.is_empty() => false,
        Clock::Capture => true,
        Clock::Machine => false,
        Clock::Auto => config.port.iter().all(|port| {
            port.input.iter().all(|uri| waits(uri, Role::Input))
                && port.output.iter().all(|uri| waits(uri, Role::Output))
        }),
    }
}

/// Bytes at the start and at most.
#[derive(Clone, Copy, Default)]
struct Need {
    start: usize,
    most: usize,
}

impl Need {
    /// This of a size, and that of a smaller one, carried on to a larger one.
    fn carried_on(self, smaller: Need, share: f64) -> Need {
        let on = |this: usize, less: usize| this + (this.saturating_sub(less) as f64 * share) as usize;
        Need {
            start: on(self.start, smaller.start),
            most: on(self.most, smaller.most),
        }
        .bounded()
    }

    /// The memory taken at the start is never more than the most. The kernel's figure counts pages
    /// that were there before, so a difference of two such figures may be off by more than a small
    /// table has.
    fn bounded(self) -> Need {
        Need {
            start: self.start.min(self.most),
            ..self
        }
    }

    fn less(self, other: Need) -> Need {
        Need {
            start: self.start.saturating_sub(other.start),
            most: self.most.saturating_sub(other.most),
        }
        .bounded()
    }

    fn table(self, table: &str, setting: Option<&str>) -> TableMemory {
        TableMemory {
            table: table.to_owned(),
            setting: setting.map(str::to_owned),
            start_bytes: self.start as u64,
            most_bytes: self.most as u64,
        }
    }
}

/// A value, and the memory that making it takes.
fn taken<T>(make: impl FnOnce() -> T) -> (T, Need) {
    let before = resident();
    let (made, most) = counted(make);
    let start = resident().saturating_sub(before).min(most);
    (made, Need { start, most })
}

/// The memory for `size` entries; for many it follows from the memory for fewer, in proportion.
fn of_size(size: u32, take: impl Fn(u32) -> Result<Need, RunError>) -> Result<Need, RunError> {
    let tried_max = match adapters::pages::space_max() {
        Some(_) => TRIED_IN_LITTLE,
        None => TRIED_MAX,
    };
    let mut part = size.max(1);
    while part > tried_max {
        part /= 2;
    }
    let one = take(part)?;
    if part == size {
        return Ok(one);
    }
    let half = take(part / 2)?;
    Ok(one.carried_on(half, f64::from(size - part) / f64::from(part - part / 2)))
}

fn measure(
    shape: &Shape<'_>,
    config: &Config,
    plan: &Plan,
    frame_max: usize,
    started: usize,
) -> Result<Option<Memory>, RunError> {
    if counted(|| Box::new([0_u8; 64])).1 == 0 {
        return Ok(None);
    }
    let (program_bytes, mapped_bytes) = (resident() as u64, pages_of_process(0) as u64);
    let layout = shape.layout;
    let (switches, laid) = (layout.switches_here.len(), layout.runtimes_here.len());
    // Others come by an operator's word alone, and each takes the memory of one.
    let runtimes = laid.min(config.planned_runtimes().into());
    let mut workers = Vec::new();
    let mut add = |worker, count: usize, count_max: usize, tables: Vec<TableMemory>| {
        if count_max > 0 {
            workers.push(WorkerMemory {
                worker,
                count: count as u64,
                count_max: count_max as u64,
                tables,
            });
        }
    };
    if switches > 0 {
        add(
            "switch",
            switches,
            switches,
            switch(shape, config, plan, frame_max)?,
        );
    }
    if runtimes > 0 {
        add("runtime", started, runtimes, runtime(shape, config, plan)?);
    }
    let pairs = |of: usize| of * of.saturating_sub(1) / 2;
    let links = |runtimes: usize| switches * runtimes + pairs(switches) + pairs(runtimes);
    let ring = link(shape, switches, laid);
    // Links to runtimes on which no setting counts take address space, and no memory.
    let mapped_bytes = mapped_bytes + (links(laid) - links(runtimes)) as u64 * ring.most_bytes;
    add("link", links(runtimes), links(runtimes), vec![ring]);
    let all = |of: fn(&TableMemory) -> u64, count: fn(&WorkerMemory) -> u64| {
        let each = workers
            .iter()
            .map(|worker| count(worker) * worker.tables.iter().map(of).sum::<u64>());
        program_bytes + each.sum::<u64>()
    };
    Ok(Some(Memory {
        start_bytes: all(|table| table.start_bytes, |worker| worker.count),
        most_bytes: all(|table| table.most_bytes, |worker| worker.count_max),
        available_bytes: available(),
        space_bytes: adapters::pages::space_max(),
        mapped_bytes,
        flows_max: config.flows_max,
        fitting: None,
        program_bytes,
        workers,
    }))
}

/// A link that is a ring; a link between processes is as large, near enough, or a channel, which is
/// smaller.
fn link(shape: &Shape<'_>, switches: usize, runtimes: usize) -> TableMemory {
    let buffers = switches * shape.switch_buffers() + runtimes * shape.runtime_buffers();
    let (_, need) = taken(|| RingPort::pair_with_limit(buffers, QUEUE));
    need.table("rings", None)
}

/// Ends of links that nothing passes.
fn ends(count: usize) -> Vec<WorkerLink> {
    (0..count)
        .map(|_| WorkerLink::Ring(RingPort::pair(1).0))
        .collect()
}

/// Buffers that a worker which is made to be measured does without.
fn no_pool() -> Pool {
    Pool::new(Region::heap(Pool::region_length(1, OWN_FRAME)), 1, OWN_FRAME, 0)
}

fn switch(
    shape: &Shape<'_>,
    config: &Config,
    plan: &Plan,
    frame_max: usize,
) -> Result<Vec<TableMemory>, RunError> {
    let settings = || shape.switch_settings(0, config);
    let routes = of_size(settings().routes_max, |routes_max| {
        let settings = runtime::switch::SwitchSettings {
            routes_max,
            ..settings()
        };
        let (links, peers) = (ends(shape.layout.runtimes), vec![None]);
        let (plan, pool) = (plan.clone(), no_pool());
        let make = || {
            Switch::<adapters::open::BoxPort, _>::new(
                settings,
                plan,
                Vec::new(),
                links,
                peers,
                pool,
                Region::heap,
            )
        };
        Ok(taken(make).1)
    })?;
    let (start, most) =
        adapters::buffers::bytes(shape.switch_buffers(), frame_max.max(shape.others.unwrap_or(0)));
    Ok(vec![
        Need { start, most }.table("packet buffers", None),
        routes.table("routes", Some("flows_max")),
    ])
}

fn runtime(shape: &Shape<'_>, config: &Config, plan: &Plan) -> Result<Vec<TableMemory>, RunError> {
    // A runtime's memory is touched while it is made, but in a replay.
    let at_once = |need: Need| match shape.packet_clock {
        true => need,
        false => Need {
            start: need.most,
            ..need
        },
    };
    let (start, most) = match shape.others {
        Some(frame_max) => adapters::buffers::bytes(shape.runtime_buffers(), frame_max),
        None => (0, Pool::region_length(shape.runtime_buffers(), OWN_FRAME)),
    };
    // Where there are more of them than a runtime has anyhow.
    let by_held = shape.runtime_buffers() > BUFFERS
        || (shape.others.is_none() && shape.runtime_buffers() > super::OWN_BUFFERS);
    let mut tables = vec![Need { start, most }.table("packet buffers", by_held.then_some("held_max"))];
    let settings = |flows_max| runtime::Settings {
        switches: 1,
        storing: None,
        ..shape.sized(flows_max, config)
    };
    let failed = |function: &str| {
        let function = function.to_owned();
        move |source| RunError::Function { function, source }
    };
    for factory in plan.factories() {
        let take = |flows_max| {
            let info = settings(flows_max).info;
            let mut objects = nf::objects::WorkerObjects::default();
            let mut variables = nf::variables::Variables::local();
            let mut objects = objects.of(factory.name());
            let (made, need) = taken(|| factory.instantiate(&info, &mut variables, &mut objects));
            made.map(|_| need).map_err(failed(factory.name()))
        };
        let need = of_size(config.flows_max, take)?;
        // Memory that one flow takes as well grows by the function's own settings.
        let own = format!("function.{}", factory.name());
        let setting = match take(1)?.most > need.most / 2 {
            true => own.as_str(),
            false => "flows_max",
        };
        tables.push(at_once(need).table(&format!("function {}", factory.name()), Some(setting)));
    }
    let make = |settings: runtime::Settings, stages| {
        let (plan, links, pool) = (plan.clone(), ends(1), no_pool());
        taken(|| Runtime::with_stages(settings, plan, stages, links, pool, Region::heap)).1
    };
    let few = |of: fn(&mut runtime::Settings)| {
        let mut settings = settings(1);
        of(&mut settings);
        make(settings, Stages::none())
    };
    let fixed = few(|_| ());
    let waiting = fixed.less(few(|settings| settings.waiting_max = 1));
    let held = fixed.less(few(|settings| settings.held_max = 1));
    let whole = of_size(config.flows_max, |flows_max| {
        let settings = settings(flows_max);
        let stages = Stages::detached(plan, &settings.info);
        let stages = stages.map_err(|(function, source)| RunError::Function { function, source })?;
        Ok(make(settings, stages))
    })?;
    tables.push(at_once(whole.less(waiting).less(held)).table("flows, groups, timers", Some("flows_max")));
    tables.push(at_once(waiting).table("calls that wait", Some("waiting_max")));
    tables.push(at_once(held).table("packets held", Some("held_max")));
    Ok(tables)
}

/// Bytes of this process that are in memory.
fn resident() -> usize {
    pages_of_process(1)
}

/// Bytes of this process: column 0 is mapped, column 1 is in memory.
fn pages_of_process(column: usize) -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = pages
        .split_whitespace()
        .nth(column)
        .and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0) * rustix::param::page_size()
}

/// The memory that this process can have: of the machine, and of its control group.
fn available() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kilobytes.map(|kilobytes| kilobytes << 10)
    };
    let machine = field("MemAvailable:").map_or(u64::MAX, |bytes| bytes + field("SwapFree:").unwrap_or(0));
    let group = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = group.lines().find_map(|line| line.strip_prefix("0::/"));
    let limits = group.into_iter().flat_map(|group| {
        let mut path = std::path::Path::new("/sys/fs/cgroup").join(group);
        let mut limits = Vec::new();
        while path.starts_with("/sys/fs/cgroup") {
            let limit = std::fs::read_to_string(path.join("memory.max")).unwrap_or_default();
            limits.extend(limit.trim().parse::<u64>().ok());
            path.pop();
        }
        limits
    });
    limits.fold(machine, u64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_more_take_follows_from_what_few_take() {
        // 100 each and 7 beside them.
        let take = |count: u32| {
            assert!(count <= TRIED_MAX);
            Ok(Need {
                start: 7,
                most: 7 + 100 * count as usize,
            })
        };
        for size in [1, 2, 3, TRIED_MAX, TRIED_MAX + 1, 1_000_000, 268_435_456] {
            let need = of_size(size, take).unwrap();
            assert_eq!((need.start, need.most), (7, 7 + 100 * size as usize), "{size}");
        }
    }

    #[test]
    fn a_start_takes_no_more_than_the_most() {
        // Pages of the smaller one were there already; the larger one found its own.
        let (large, small) = (
            Need {
                start: 90_000,
                most: 90_000,
            },
            Need {
                start: 0,
                most: 89_000,
            },
        );
        let difference = large.less(small);
        assert!(
            difference.start <= difference.most,
            "{} of {}",
            difference.start,
            difference.most
        );
        let on = large.carried_on(small, 1000.0);
        assert!(on.start <= on.most, "{} of {}", on.start, on.most);
    }

    #[test]
    fn too_little_memory_names_the_setting_that_takes_most() {
        let table = |setting, start_bytes| TableMemory {
            table: "t".to_owned(),
            setting: Option::map(setting, str::to_owned),
            start_bytes,
            most_bytes: start_bytes,
        };
        let memory = |available_bytes| Memory {
            workers: vec![WorkerMemory {
                worker: "runtime",
                count: 2,
                count_max: 4,
                tables: vec![
                    table(None, 9 << 30),
                    table(Some("waiting_max"), 1 << 30),
                    table(Some("flows_max"), 3 << 30),
                ],
            }],
            program_bytes: 0,
            start_bytes: 26 << 30,
            most_bytes: 52 << 30,
            available_bytes,
            space_bytes: None,
            mapped_bytes: 0,
            flows_max: 1_000_000,
            fitting: None,
        };
        assert!(memory(26 << 30).held_against_what_there_is().is_ok());
        let error = memory((26 << 30) - 1).held_against_what_there_is().unwrap_err();
        assert!(!error.is_of_configuration());
        let text = error.to_string();
        assert!(
            text.contains("`flows_max` takes 6.4 GB") && text.contains("27.9 GB"),
            "{text}"
        );
        // Enough of it, and too little room to map it in.
        let mut limited = memory(26 << 30);
        let threads = (THREADS + 2) * STACK;
        limited.space_bytes = Some((26 << 30) + threads);
        assert!(limited.held_against_what_there_is().is_ok());
        limited.space_bytes = Some((26 << 30) + threads - 1);
        let error = limited.held_against_what_there_is().unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("(`ulimit -v 27310080`;")
                && text.ends_with("lower `flows_max` to 899000; it takes 6.4 GB"),
            "{text}"
        );
        // Half of its need is there.
        limited.space_bytes = Some((23 << 30) + threads);
        let text = limited.held_against_what_there_is().unwrap_err().to_string();
        assert!(
            text.ends_with("lower `flows_max` to 450000; it takes 6.4 GB"),
            "{text}"
        );
        // The need of the others is not.
        limited.space_bytes = Some(20 << 30);
        let text = limited.held_against_what_there_is().unwrap_err().to_string();
        assert!(text.contains("`flows_max` (alone that is not enough)"), "{text}");
        assert!(!error.is_of_configuration());
    }

    #[test]
    fn the_machine_says_what_it_has() {
        assert!(resident() > 1 << 20 && available() > resident() as u64);
    }
}
