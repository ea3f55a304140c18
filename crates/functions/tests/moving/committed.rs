//! A function with all fields of its flow state committed, for an operator whose statistics must
//! survive a failure whole.
//!
//! Not here: a group's lazy fields.

use nf::plain::Plain;
use nf::{
    Affinity, Arrival, ConfigError, Cx, Departure, FlowState, NetworkFunction, Packet, Verdict, WorkerInfo,
};
use serde::{Deserialize, Deserializer};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

/// A state, committed to its last byte.
#[derive(Clone, Copy, Default, Debug)]
#[repr(transparent)]
pub struct Whole<T>(T);

// SAFETY: it is a `T`, transparently, and a `T` is plain data.
unsafe impl<T: Plain> Plain for Whole<T> {
    const LAYOUT: u64 = T::LAYOUT;
    fn is_valid(bytes: &[u8]) -> bool {
        T::is_valid(bytes)
    }
    const HAS_TIMES: bool = T::HAS_TIMES;
    fn rebase(&mut self, by: i64) {
        self.0.rebase(by);
    }
}

impl<T: FlowState> FlowState for Whole<T> {
    const VERSION: u32 = T::VERSION;
    const COMMITTED: usize = size_of::<T>();
    fn each_field(&self, see: &mut dyn FnMut(&'static str, &dyn Debug)) {
        self.0.each_field(see);
    }
}

/// The settings of `F`.
pub struct Settings<F: NetworkFunction>(pub Arc<F::Config>);

impl<'de, F: NetworkFunction> Deserialize<'de> for Settings<F> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Settings(Arc::new(F::Config::deserialize(deserializer)?)))
    }
}

/// The function `F`, with a flow state that is committed whole.
pub struct Committed<F>(F);

impl<F: NetworkFunction> nf::function::Attributed for Committed<F> {}

impl<F: NetworkFunction> NetworkFunction for Committed<F> {
    const NAME: &'static str = F::NAME;
    const AFFINITY: Affinity = F::AFFINITY;
    const COUNTERS: &'static [&'static str] = F::COUNTERS;
    const REASONS: &'static [&'static str] = F::REASONS;
    const EVENTS: &'static [nf::Event] = F::EVENTS;
    const TABLES: &'static [nf::Table] = F::TABLES;
    const ICMP_ERRORS: bool = F::ICMP_ERRORS;
    const LAST: bool = F::LAST;
    const TRANSLATES: bool = F::TRANSLATES;
    const BEGINS_AGAIN: bool = F::BEGINS_AGAIN;
    type Config = Settings<F>;
    type Flow = Whole<F::Flow>;
    type Group = F::Group;

    fn new(config: &Arc<Settings<F>>, worker: &WorkerInfo) -> Result<Self, ConfigError> {
        F::new(&config.0, worker).map(Committed)
    }

    async fn process(&self, packet: &mut Packet, flow: &mut Whole<F::Flow>, cx: &mut Cx<Self>) -> Verdict {
        self.0.process(packet, &mut flow.0, cx.lend()).await
    }

    fn process_now(
        &self,
        packet: &mut Packet,
        flow: &mut Whole<F::Flow>,
        cx: &mut Cx<Self>,
    ) -> Option<Verdict> {
        self.0.process_now(packet, &mut flow.0, cx.lend())
    }

    fn arrived(&self, flow: &mut Whole<F::Flow>, why: Arrival, cx: &mut Cx<Self>) {
        self.0.arrived(&mut flow.0, why, cx.lend());
    }

    fn departed(&self, flow: &Whole<F::Flow>, why: Departure, cx: &mut Cx<Self>) {
        self.0.departed(&flow.0, why, cx.lend());
    }

    fn group_ended(&self, group: &mut F::Group, cx: &mut Cx<Self>) {
        self.0.group_ended(group, cx.lend());
    }

    fn timeout(&self, flow: &Whole<F::Flow>) -> Option<Duration> {
        self.0.timeout(&flow.0)
    }

    fn rows(&self, table: &str, most: usize) -> Vec<nf::Row> {
        self.0.rows(table, most)
    }

    fn command(&self, words: &[&str]) -> Result<String, String> {
        self.0.command(words)
    }
}
