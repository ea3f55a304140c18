//! Pages of reference that are made from the code: docs/metrics.md is what the code says.
//!
//! The page is made of the text that Prometheus would read of a cluster that has one of everything.
//! `FLOWKEEP_PAGES=write cargo test -p flowkeep --test pages` writes it.

use flowkeep::cluster::{LinkStats, PortStats, Snapshot};
use flowkeep::config::layout::WorkerId;
use flowkeep::health::figures::BackendStatus;
use runtime::stats::{Named, ObjectStats, PoolStats, RuntimeStats, SwitchStats};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

const OPENING: &str = "\
# Metrics

Every figure at `[metrics] listen`, with its labels, as OpenMetrics text has it; the words are those of the text itself. A test makes this page from
the code. Seconds, bytes and packets are the units; counters only grow, and their samples end with `_total`. A histogram has `_bucket` with `le`, `_sum` and `_count`.
How to watch a cluster with them: [Prometheus](how-to/prometheus.md). The reasons of drops are a [page](reasons.md) of their own.

| metric | kind | labels | what |
|---|---|---|---|
";

fn named() -> Vec<Named> {
    vec![Named {
        function: "nat".into(),
        name: "mappings",
        count: 1,
    }]
}

/// A cluster that has one of everything that has figures.
fn of_everything() -> Snapshot {
    let mut snapshot = Snapshot {
        switches: vec![SwitchStats {
            dropped: named(),
            sent_to: vec![1],
            ..SwitchStats::default()
        }],
        runtimes: vec![RuntimeStats {
            dropped: named(),
            counters: named(),
            pools: vec![PoolStats {
                lasts_seconds: Some(1.0),
                ..PoolStats::default()
            }],
            objects: vec![ObjectStats::default()],
            ..RuntimeStats::default()
        }],
        ports: vec![PortStats::default()],
        links: vec![LinkStats {
            from: WorkerId::Switch(0),
            to: WorkerId::Runtime(0),
            kind: "channel",
            session: 1,
            counters: runtime::PortCounters::default(),
            refused: BTreeMap::from([("forged", 1)]),
            repeated: 0,
            meetings: 1,
            member: String::new(),
            differs: Default::default(),
            functions: [].into(),
            not_met_for: None,
        }],
        stores: vec![Default::default()],
        variables: vec![Default::default()],
        backends: vec![BackendStatus {
            up: Some(true),
            ..BackendStatus::default()
        }],
        ..Snapshot::default()
    };
    snapshot.stores[0].mirrored = vec![Default::default()];
    snapshot
}

/// The labels of a sample's line, without those that the kind of metric has by itself.
fn labels_of(line: &str) -> impl Iterator<Item = &str> {
    let inside = line.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    let all = inside.map(|(labels, _)| labels).unwrap_or_default().split(',');
    all.filter_map(|label| Some(label.split_once('=')?.0))
        .filter(|name| *name != "le")
}

/// The page of a text for Prometheus.
fn page(text: &str) -> String {
    let mut page = OPENING.to_owned();
    let mut lines = text.lines().peekable();
    let mut seen = BTreeSet::new();
    while let Some(line) = lines.next() {
        let Some(help) = line.strip_prefix("# HELP ") else {
            assert_eq!(line, "# EOF");
            continue;
        };
        let (name, help) = help.split_once(' ').unwrap();
        let kind = lines.next().and_then(|line| line.strip_prefix("# TYPE "));
        let kind = kind.and_then(|of| of.strip_prefix(name)).unwrap().trim();
        let (mut labels, mut samples) = (BTreeSet::new(), 0);
        while let Some(sample) = lines.next_if(|line| !line.starts_with('#')) {
            labels.extend(labels_of(sample));
            samples += 1;
        }
        assert!(samples > 0, "{name}: the cluster of everything has nothing of it");
        assert!(seen.insert(name), "{name} is there twice");
        let suffix = if kind == "counter" { "_total" } else { "" };
        let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
        let _ = writeln!(
            page,
            "| `{name}{suffix}` | {kind} | {} | {help} |",
            labels.join(", ")
        );
    }
    page
}

#[test]
fn the_page_of_metrics_is_what_the_code_says() {
    let page = page(&flowkeep::metrics::text(&of_everything()));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    if std::env::var_os("FLOWKEEP_PAGES").is_some_and(|word| word == "write") {
        std::fs::write(path, &page).unwrap();
    }
    let there = std::fs::read_to_string(path).unwrap_or_default();
    let mut differs = page
        .lines()
        .zip(there.lines())
        .filter(|(one, other)| one != other);
    assert!(
        page == there,
        "docs/metrics.md is not what the code says; make it with \
         `FLOWKEEP_PAGES=write cargo test -p flowkeep --test pages`; first: {:#?}",
        differs.next()
    );
}

#[test]
fn every_metric_in_the_sources_is_on_the_page() {
    let page = page(&flowkeep::metrics::text(&of_everything()));
    let sources = [
        include_str!("../src/metrics.rs"),
        include_str!("../src/metrics/pools.rs"),
        include_str!("../src/health/figures.rs"),
        include_str!("../src/store/figures.rs"),
        include_str!("../src/report/objects.rs"),
    ];
    let mut found = 0;
    for source in sources {
        let source = source.split("#[cfg(test)]").next().unwrap();
        for call in ["text.gauge(", "text.counter(", "text.histogram("] {
            for behind in source.split(call).skip(1) {
                if let Some((name, _)) = behind
                    .trim_start()
                    .strip_prefix('"')
                    .and_then(|of| of.split_once('"'))
                {
                    assert!(page.contains(&format!("`flowkeep_{name}")), "{name}");
                    found += 1;
                }
            }
        }
    }
    assert!(found > 20, "{found}");
}
