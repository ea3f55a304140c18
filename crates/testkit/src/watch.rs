//! The function under test, with every verdict written down.
//!
//! # Theory of operation
//! [`Watched`] is a network function that calls another one and notes what it says, under the
//! packet's time of reception, which is the packet's name in a script. It looks like the function
//! it wraps: same name, counters, reasons and states.
//!
//! Not here: holding the notes against the runtime's work (`play`).

use crate::life::{Life, group_of};
use crate::moving;
use nf::objects::Objects;
use nf::plain::bytes_of;
use nf::variables::Variables;
use nf::{
    Addr, Affinity, Arrival, ConfigError, Cx, Departure, Keep, NetworkFunction, Packet, Verdict, WorkerInfo,
};
use serde::{Deserialize, Deserializer};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The function's verdicts, and the calls to it.
#[derive(Default)]
pub struct Notes {
    /// Time of reception of the packet, and the verdict on it.
    pub verdicts: Vec<(u64, Verdict)>,
    /// Begun, moved here, and recovered here.
    arrived: [u64; 3],
    /// Over, and moved away.
    departed: [u64; 2],
    /// Notes on groups.
    pub life: Life,
    /// The notes when all workers had come to rest last.
    at_rest: (usize, [u64; 3], [u64; 2], Life),
}

impl Notes {
    /// How many flows have begun, and how many are over.
    pub fn flows(&self) -> (u64, u64) {
        (self.arrived[0], self.departed[0])
    }

    /// How many flows have come from another worker, and how many have gone to one.
    pub fn moved(&self) -> (u64, u64) {
        (self.arrived[1], self.departed[1])
    }

    /// All workers have come to rest.
    pub fn come_to_rest(&mut self) {
        let life = self.life.clone();
        self.at_rest = (self.verdicts.len(), self.arrived, self.departed, life);
    }

    /// Forgets notes since then: they were of a worker that has failed.
    pub fn go_back(&mut self) {
        let (verdicts, arrived, departed, ref life) = self.at_rest;
        self.verdicts.truncate(verdicts);
        (self.arrived, self.departed, self.life) = (arrived, departed, life.clone());
    }

    /// Makes room, so that writing down allocates nothing while the runtime works.
    pub fn make_room(&mut self) {
        self.verdicts.reserve(256);
        self.life.make_room();
    }
}

/// A function's configuration, and where its watcher writes.
pub struct WatchedConfig<F: NetworkFunction> {
    pub config: Arc<F::Config>,
    pub notes: Arc<Mutex<Notes>>,
}

impl<'de, F: NetworkFunction> Deserialize<'de> for WatchedConfig<F> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let config = Arc::new(F::Config::deserialize(deserializer)?);
        Ok(WatchedConfig {
            config,
            notes: Arc::default(),
        })
    }
}

/// The function `F`, watched.
pub struct Watched<F> {
    function: F,
    notes: Arc<Mutex<Notes>>,
    /// By how much the worker's clock is ahead of the script's.
    ahead: u64,
}

impl<F: NetworkFunction> Watched<F> {
    fn note(&self, change: impl FnOnce(&mut Notes)) {
        change(
            &mut self
                .notes
                .lock()
                .expect("a thread that panicked has ended the test"),
        );
    }

    /// Holds the group of a call that begins against the last note of it; the address that it is
    /// known by.
    fn begin_group(&self, packet: &Packet, cx: &mut Cx<Self>) -> Option<(Addr, u16)> {
        let mut warns = false;
        self.note(|notes| warns = notes.life.warns);
        let key = group_of::<Self>(Some(packet), cx).filter(|_| Self::OUTLIVES || warns)?;
        let (at, group) = (self.script_time(cx), *cx.group());
        self.note(|notes| notes.life.begin::<Self>(key, at, &group));
        Some(key)
    }

    /// Notes the group of a call that has ended.
    fn end_group(&self, key: Option<(Addr, u16)>, cx: &mut Cx<Self>) {
        if let Some(key) = key {
            let (at, group) = (self.script_time(cx), *cx.group());
            let lives = self.function.group_timeout(&group);
            self.note(|notes| notes.life.end(key, at, &group, lives));
        }
    }

    fn script_time(&self, cx: &Cx<Self>) -> u64 {
        cx.now().nanoseconds().cast_unsigned().wrapping_sub(self.ahead)
    }

    /// Writes a verdict down. A function that makes an answer of the packet forgets when it came
    /// in: its name is put back.
    fn verdict(&self, packet: &mut Packet, name: u64, verdict: Verdict) -> Verdict {
        packet.set_timestamp(name);
        self.note(|notes| notes.verdicts.push((name, verdict)));
        verdict
    }
}

impl<F: NetworkFunction> nf::function::Attributed for Watched<F> {}

impl<F: NetworkFunction> NetworkFunction for Watched<F> {
    const NAME: &'static str = F::NAME;
    const AFFINITY: Affinity = F::AFFINITY;
    const COUNTERS: &'static [&'static str] = F::COUNTERS;
    const COUNTERS_HELP: &'static [&'static str] = F::COUNTERS_HELP;
    const REASONS: &'static [&'static str] = F::REASONS;
    const REASONS_HELP: &'static [&'static str] = F::REASONS_HELP;
    const EVENTS: &'static [nf::Event] = F::EVENTS;
    const TABLES: &'static [nf::Table] = F::TABLES;
    const ICMP_ERRORS: bool = F::ICMP_ERRORS;
    const FILES: &'static [&'static str] = F::FILES;
    const LAST: bool = F::LAST;
    const TRANSLATES: bool = F::TRANSLATES;
    const BEGINS_AGAIN: bool = F::BEGINS_AGAIN;
    const OUTLIVES: bool = F::OUTLIVES;
    const TIMED: bool = F::TIMED;
    type Config = WatchedConfig<F>;
    type Flow = F::Flow;
    type Group = F::Group;

    fn new(config: &Arc<WatchedConfig<F>>, worker: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Watched {
            function: F::new(&config.config, worker)?,
            notes: config.notes.clone(),
            ahead: moving::ahead(worker.runtime),
        })
    }

    fn with_objects(
        config: &Arc<WatchedConfig<F>>,
        worker: &WorkerInfo,
        variables: &mut Variables,
        objects: &mut Objects<'_>,
    ) -> Result<Self, ConfigError> {
        Ok(Watched {
            function: F::with_objects(&config.config, worker, variables, objects)?,
            notes: config.notes.clone(),
            ahead: moving::ahead(worker.runtime),
        })
    }

    async fn process(&self, packet: &mut Packet, flow: &mut F::Flow, cx: &mut Cx<Self>) -> Verdict {
        let name = packet.timestamp();
        let group = self.begin_group(packet, cx);
        let verdict = self.function.process(packet, flow, cx.lend()).await;
        self.end_group(group, cx);
        self.verdict(packet, name, verdict)
    }

    fn process_now(&self, packet: &mut Packet, flow: &mut F::Flow, cx: &mut Cx<Self>) -> Option<Verdict> {
        let (name, before) = (packet.timestamp(), *flow);
        let group = self.begin_group(packet, cx);
        match self.function.process_now(packet, flow, cx.lend()) {
            Some(verdict) => {
                self.end_group(group, cx);
                Some(self.verdict(packet, name, verdict))
            }
            None => {
                assert!(
                    bytes_of(flow) == bytes_of(&before),
                    "`process_now` of `{}` declined a packet after it had changed the flow's state, so `process` \
                     would see it changed: decline first",
                    F::NAME
                );
                None
            }
        }
    }

    fn prefetch(&self, packet: &Packet) {
        self.function.prefetch(packet);
    }

    fn arrived(&self, flow: &mut F::Flow, why: Arrival, cx: &mut Cx<Self>) {
        let how = match why {
            Arrival::New => 0,
            Arrival::Migrated => 1,
            Arrival::Recovered => 2,
        };
        self.note(|notes| notes.arrived[how] += 1);
        self.function.arrived(flow, why, cx.lend());
    }

    fn departed(&self, flow: &F::Flow, why: Departure, cx: &mut Cx<Self>) {
        let moved = usize::from(why == Departure::Migrated);
        self.note(|notes| notes.departed[moved] += 1);
        self.function.departed(flow, why, cx.lend());
        if why == Departure::Expired {
            self.end_group(group_of::<Self>(None, cx), cx);
        }
    }

    fn group_ended(&self, group: &mut F::Group, cx: &mut Cx<Self>) {
        self.function.group_ended(group, cx.lend());
    }

    fn group_timeout(&self, group: &F::Group) -> Duration {
        self.function.group_timeout(group)
    }

    fn block_returned(&self, block: nf::Block) {
        self.function.block_returned(block);
    }

    fn block_in_use(&self, block: nf::Block) -> nf::BlockWas {
        self.function.block_in_use(block)
    }

    fn pool(&self) -> Option<nf::PoolState> {
        self.function.pool()
    }

    fn lend_blocks(&self, loan: &nf::Loan, lend: &mut dyn FnMut(nf::Block)) {
        self.function.lend_blocks(loan, lend);
    }

    fn borrow_block(&self, block: nf::Block, home: u16) -> bool {
        self.function.borrow_block(block, home)
    }

    fn forsake_block(&self, block: nf::Block) {
        self.function.forsake_block(block);
    }

    fn pools_heard(&self, others: Option<(u32, u32)>) {
        self.function.pools_heard(others);
    }

    fn timeout(&self, flow: &F::Flow) -> Option<Duration> {
        self.function.timeout(flow)
    }

    fn succeed(config: &mut WatchedConfig<F>, before: &WatchedConfig<F>) -> Result<(), ConfigError> {
        match Arc::get_mut(&mut config.config) {
            Some(config) => F::succeed(config, &before.config),
            None => unreachable!("there is no instance of it yet"),
        }
    }

    fn take_over(&self, before: &Self) {
        self.function.take_over(&before.function);
    }

    fn configured(&self, flow: &mut F::Flow, cx: &mut Cx<Self>) -> Keep {
        self.function.configured(flow, cx.lend())
    }

    fn recovered_of_before(&self, flow: &mut F::Flow, cx: &mut Cx<Self>) -> Keep {
        self.note(|notes| notes.arrived[2] += 1);
        self.function.recovered_of_before(flow, cx.lend())
    }

    fn rows(&self, table: &str, most: usize) -> Vec<nf::Row> {
        self.function.rows(table, most)
    }

    fn object_rows(&self, table: &str, most: usize, here: nf::objects::ObjectsHere<'_>) -> Vec<nf::Row> {
        self.function.object_rows(table, most, here)
    }

    fn command(&self, words: &[&str]) -> Result<String, String> {
        self.function.command(words)
    }

    fn generation(&self) -> u32 {
        self.function.generation()
    }

    fn next_timer(&self) -> Option<u64> {
        self.function.next_timer()
    }

    fn timer_due(&self, cx: &mut nf::TimerCx<'_, Self>) {
        self.function.timer_due(&mut cx.lend());
    }

    fn recall(&self) -> nf::Recall {
        self.function.recall()
    }

    fn feed(config: &WatchedConfig<F>) -> Option<Arc<dyn std::any::Any + Send + Sync>> {
        F::feed(&config.config)
    }

    fn owner_of(config: &WatchedConfig<F>, outside: nf::Endpoint, protocol: u8) -> Option<nf::Endpoint> {
        F::owner_of(&config.config, outside, protocol)
    }

    fn claims(config: &WatchedConfig<F>) -> Vec<nf::Claim> {
        F::claims(&config.config)
    }
}
