//! How stores and the variables in them do, for `flowkeep status` and the metrics.

use super::Named;
use crate::metrics::Text;
use nf::variables::PartitionStats;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stores::mirror::SideHealth;

/// A store.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreStatus {
    /// Its URI, without a password.
    pub store: String,
    /// Whether the last call failed.
    pub failing: bool,
    /// Calls that failed so far.
    pub failures: u64,
    /// Batches that it has taken.
    pub batches: u64,
    /// The text of the last failure, while it lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Where it has a mirror: how each of the two does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mirrored: Vec<SideStatus>,
}

/// One of two stores that mirror each other.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
pub struct SideStatus {
    /// Its URI, without a password.
    pub store: String,
    /// Whether the last call failed.
    pub failing: bool,
    /// Calls that failed so far.
    pub failures: u64,
    /// Partitions of which it lacks something.
    pub behind: u64,
    /// Bytes of changes that wait for it, about.
    pub waiting_bytes: u64,
    /// Copies of whole partitions that it was given.
    pub copies: u64,
    /// The text of the last failure, while it lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl SideStatus {
    fn of(side: SideHealth) -> Self {
        SideStatus {
            store: side.store,
            failing: side.failing,
            failures: side.failures,
            behind: side.behind,
            waiting_bytes: side.waiting_bytes,
            copies: side.copies,
            problem: side
                .last_failure
                .filter(|_| side.failing)
                .map(|failure| failure.to_string()),
        }
    }
}

impl StoreStatus {
    /// How a store does now.
    pub fn of((name, store, watch): &Named) -> Self {
        let health = store.health();
        StoreStatus {
            store: name.clone(),
            failing: health.failing,
            failures: health.failures,
            batches: health.batches,
            problem: health
                .last_failure
                .filter(|_| health.failing)
                .map(|failure| failure.to_string()),
            mirrored: watch.as_ref().map_or_else(Vec::new, |watch| {
                watch.sides().map(SideStatus::of).into_iter().collect()
            }),
        }
    }
}

/// A function's variables on one runtime.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
pub struct VariablesStatus {
    /// The function.
    pub function: String,
    /// The runtime.
    pub runtime: u16,
    /// Changes that went to the store.
    pub changes: u64,
    /// Batches of them.
    pub batches: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Times that everything was written again.
    pub rewritten: u64,
    /// Elements that are not at the store, since they became too long.
    pub unwritable: u64,
    /// The ages at which changes reached the store, in seconds: the median.
    pub age_p50_seconds: f64,
    /// The age that 99 of 100 were not above.
    pub age_p99_seconds: f64,
    /// The longest.
    pub age_max_seconds: f64,
    /// How old changes may become, in seconds: the shortest bound of these variables.
    #[serde(default)]
    pub bound_seconds: f64,
    /// How old the oldest change is that the store does not have.
    #[serde(default)]
    pub waiting_seconds: f64,
    /// How long changes are collected: the interval, or more where the store cannot keep up.
    #[serde(default)]
    pub interval_seconds: f64,
    /// How long they are to be collected.
    #[serde(default)]
    pub interval_set_seconds: f64,
    /// Whether some change is older than the bound, and not at the store.
    pub late: bool,
    /// Whether another process has claimed them.
    pub fenced: bool,
}

impl VariablesStatus {
    /// The figures of a runtime on a function's variables.
    pub fn of(runtime: u16, function: String, figures: &PartitionStats) -> Self {
        let seconds = |nanoseconds: u64| std::time::Duration::from_nanos(nanoseconds).as_secs_f64();
        VariablesStatus {
            function,
            runtime,
            changes: figures.changes,
            batches: figures.batches,
            bytes: figures.bytes,
            rewritten: figures.rewritten,
            unwritable: figures.unwritable,
            age_p50_seconds: seconds(figures.ages.percentile_ns(50)),
            age_p99_seconds: seconds(figures.ages.percentile_ns(99)),
            age_max_seconds: seconds(figures.ages.max_ns()),
            bound_seconds: seconds(figures.bound_ns),
            waiting_seconds: seconds(figures.oldest_ns),
            interval_seconds: seconds(figures.interval_ns),
            interval_set_seconds: seconds(figures.interval_set_ns),
            late: figures.late,
            fenced: figures.fenced,
        }
    }
}

/// Writes them as metrics, if there are any.
pub(crate) fn metrics(text: &mut Text, stores: &[StoreStatus], variables: &[VariablesStatus]) {
    if stores.is_empty() {
        return;
    }
    let mut metric = text.gauge("store_failing", "Whether the last call of a store failed.");
    for store in stores {
        metric.sample(&[("store", &store.store)], u8::from(store.failing));
    }
    let mut metric = text.counter("store_failures", "Calls of a store that failed.");
    for store in stores {
        metric.sample(&[("store", &store.store)], store.failures);
    }
    let mut metric = text.counter("store_batches", "Batches that a store has taken.");
    for store in stores {
        metric.sample(&[("store", &store.store)], store.batches);
    }
    mirror_metrics(text, stores);
    type Count = fn(&VariablesStatus) -> u64;
    let counts: [(&'static str, &str, Count); 4] = [
        (
            "variable_changes",
            "Changes of variables that went to a store.",
            |v| v.changes,
        ),
        (
            "variable_batches",
            "Batches of changes that went to a store.",
            |v| v.batches,
        ),
        ("variable_bytes", "Bytes of changes that went to a store.", |v| {
            v.bytes
        }),
        (
            "variable_rewrites",
            "Times that a store had lost variables, which were written again.",
            |v| v.rewritten,
        ),
    ];
    for (name, help, count) in counts {
        let mut metric = text.counter(name, help);
        each(variables, |labels, of| metric.sample(labels, count(of)));
    }
    let mut metric = text.gauge(
        "variable_age_seconds",
        "How old changes of variables were when a store had them.",
    );
    for of in variables {
        let ages = [
            ("0.5", of.age_p50_seconds),
            ("0.99", of.age_p99_seconds),
            ("1", of.age_max_seconds),
        ];
        for (quantile, age) in ages {
            let runtime = of.runtime.to_string();
            let labels = [
                ("function", of.function.as_str()),
                ("runtime", &runtime),
                ("quantile", quantile),
            ];
            metric.sample(&labels, age);
        }
    }
    type Seconds = fn(&VariablesStatus) -> f64;
    let times: [(&'static str, &str, Seconds); 4] = [
        (
            "variable_waiting_seconds",
            "How old the oldest change is that a store does not have.",
            |v| v.waiting_seconds,
        ),
        (
            "variable_bound_seconds",
            "How old changes of variables may become.",
            |v| v.bound_seconds,
        ),
        (
            "variable_interval_seconds",
            "How long changes are collected; longer than set where a store cannot keep up.",
            |v| v.interval_seconds,
        ),
        (
            "variable_interval_set_seconds",
            "How long changes are to be collected.",
            |v| v.interval_set_seconds,
        ),
    ];
    for (name, help, time) in times {
        let mut metric = text.gauge(name, help);
        each(variables, |labels, of| metric.sample(labels, time(of)));
    }
    let mut metric = text.gauge("variables_late", "Whether a change is older than its bound.");
    each(variables, |labels, of| metric.sample(labels, u8::from(of.late)));
    let mut metric = text.gauge("variables_fenced", "Whether another process has claimed them.");
    each(variables, |labels, of| metric.sample(labels, u8::from(of.fenced)));
}

/// Of stores that mirror each other, each by itself.
fn mirror_metrics(text: &mut Text, stores: &[StoreStatus]) {
    if stores.iter().all(|store| store.mirrored.is_empty()) {
        return;
    }
    let sides: Vec<&SideStatus> = stores.iter().flat_map(|store| &store.mirrored).collect();
    type Figure = (&'static str, &'static str, fn(&SideStatus) -> u64);
    let gauges: [Figure; 3] = [
        (
            "mirror_failing",
            "Whether the last call of one of two stores failed.",
            |side| u64::from(side.failing),
        ),
        (
            "mirror_behind",
            "Partitions of which one of two stores lacks something.",
            |side| side.behind,
        ),
        (
            "mirror_waiting_bytes",
            "Bytes of changes that wait for one of two stores.",
            |side| side.waiting_bytes,
        ),
    ];
    for (name, help, figure) in gauges {
        let mut metric = text.gauge(name, help);
        sides
            .iter()
            .for_each(|side| metric.sample(&[("store", &side.store)], figure(side)));
    }
    let mut metric = text.counter(
        "mirror_copies",
        "Copies of partitions that one of two stores was given.",
    );
    sides
        .iter()
        .for_each(|side| metric.sample(&[("store", &side.store)], side.copies));
}

fn each(variables: &[VariablesStatus], mut sample: impl FnMut(&[(&str, &str)], &VariablesStatus)) {
    for of in variables {
        let runtime = of.runtime.to_string();
        sample(&[("function", &of.function), ("runtime", &runtime)], of);
    }
}
