//! Pages of reference that are made from the code: docs/metrics.md, docs/reasons.md, docs/events.md
//! and docs/commands.md.
//!
//! The page of metrics is made of the text that Prometheus would read of a cluster that has one of
//! everything, the page of events of the declarations of functions, runtimes and the process.
//! `FLOWKEEP_PAGES=write cargo test -p flowkeep --test pages` writes them.

use flowkeep::cluster::{LinkStats, PortStats, Snapshot};
use flowkeep::config::layout::WorkerId;
use flowkeep::health::stats::BackendStatus;
use functions::firewall::Firewall;
use functions::load_balancer::LoadBalancer;
use nf::{Adds, Event, NetworkFunction, Table};
use runtime::stats::{DropReason, FunctionCost, Named, ObjectStats, PoolStats, RuntimeStats, SwitchStats};
use runtime::worker::asked::TableRows;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const OPENING: &str = "\
# Metrics

Every figure at `[metrics] listen`, with its labels, as OpenMetrics text has it (and Prometheus'
text format, for a client that takes no OpenMetrics); the words are those of the text itself. A test
makes this page from the code. Seconds, bytes and packets are the units; counters only grow, and
their samples end with `_total`. A histogram has `_bucket` with `le`, `_sum` and `_count`. How to
watch a cluster with them: [Prometheus](how-to/prometheus.md). The reasons of drops are a
[page](reasons.md) of their own.

| metric | kind | labels | meaning |
|---|---|---|---|
";

fn named() -> Vec<Named> {
    vec![Named {
        function: "nat".into(),
        name: "mappings",
        count: 1,
    }]
}

/// A table with one row.
fn row_of(table: &'static Table) -> TableRows {
    let cell = |adds| match adds {
        Adds::Name | Adds::Each => nf::table::Value::from("a"),
        Adds::Counted | Adds::Sum | Adds::Greatest => 1_u64.into(),
    };
    TableRows {
        function: "one".into(),
        table,
        rows: vec![table.adds().map(cell).collect()],
        top: 0,
        left_out: 0,
    }
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
            costs: vec![FunctionCost::default()],
            tables: [Firewall::TABLES, LoadBalancer::TABLES]
                .into_iter()
                .flatten()
                .map(row_of)
                .collect(),
            objects: vec![ObjectStats::default()],
            protection_took: 1,
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

/// Compares a page of docs/ with the page made from the code, or writes it.
fn hold(name: &str, page: &str) {
    let path = format!("{}/../../docs/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("FLOWKEEP_PAGES").is_some_and(|word| word == "write") {
        std::fs::write(&path, page).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    let mut differs = page
        .lines()
        .zip(there.lines())
        .filter(|(one, other)| one != other);
    assert!(
        page == there,
        "docs/{name} is not what the code says; make it with \
         `FLOWKEEP_PAGES=write cargo test -p flowkeep --test pages`; first: {:#?}",
        differs.next()
    );
}

/// The counters of the functions that come with the tool, each with the sentence that its code has.
fn counters() -> String {
    use functions::{counter, flow_monitor, forward, host_limits, http_parser, ids, nat};
    fn of<F: NetworkFunction>() -> String {
        let mut section = format!("\n### `{}`\n\n| counter | meaning |\n|---|---|\n", F::NAME);
        assert_eq!(
            F::COUNTERS.len(),
            F::COUNTERS_HELP.len(),
            "{}: a counter has no comment that says what it counts",
            F::NAME
        );
        for (name, help) in F::COUNTERS.iter().zip(F::COUNTERS_HELP) {
            assert!(
                help.ends_with('.'),
                "{}: {name} needs a sentence: {help:?}",
                F::NAME
            );
            let _ = writeln!(section, "| `{name}` | {help} |");
        }
        section
    }
    let all = [
        of::<Firewall>(),
        of::<nat::Nat>(),
        of::<LoadBalancer>(),
        of::<forward::Forward>(),
        of::<ids::Ids>(),
        of::<http_parser::HttpParser>(),
        of::<flow_monitor::FlowMonitor>(),
        of::<host_limits::HostLimits>(),
        of::<counter::Counter>(),
    ];
    COUNTERS_OPENING.to_owned() + &all.concat()
}

const COUNTERS_OPENING: &str = "
## Counters of the functions

Each is a sample of `flowkeep_function_events_total`: `function` is the function's name in chains,
`reason` the counter. `status` has them as `function/counter`. The sentences are comments in each
function's code.
";

#[test]
fn the_page_of_metrics_is_what_the_code_says() {
    let page = page(&flowkeep::metrics::text(&of_everything())) + &counters();
    hold("metrics.md", &page);
}

const REASONS_OPENING: &str = "\
# Why packets are dropped

Each packet that is dropped is counted for one reason: in `status` and `run` by `function/reason`,
or by the reason alone where Flowkeep itself drops, and in
`flowkeep_dropped_packets_total{function,reason}`. A [capture of drops](how-to/find-a-drop.md) has
the reason in each packet's comment. Flows that a change of configuration or a function ends are
counted by such reasons, too.

A test makes this page from the code: the sentences are comments there.
";

/// A section of reasons: a row for each.
fn reasons_of(heading: &str, rows: impl Iterator<Item = (&'static str, &'static str)>) -> String {
    let mut section = format!("\n## {heading}\n\n| reason | the packet |\n|---|---|\n");
    for (name, help) in rows {
        let help = help.trim();
        assert!(
            help.ends_with('.'),
            "{heading}: {name} has no comment that says of the packet why: {help:?}"
        );
        let _ = writeln!(section, "| `{name}` | {help} |");
    }
    section
}

/// Each reason, of Flowkeep itself and of the functions.
fn reasons() -> String {
    use functions::{counter, flow_monitor, forward, host_limits, http_parser, ids, nat};
    fn of<F: NetworkFunction>() -> String {
        assert_eq!(F::REASONS.len(), F::REASONS_HELP.len(), "{}", F::NAME);
        reasons_of(
            F::NAME,
            F::REASONS.iter().copied().zip(F::REASONS_HELP.iter().copied()),
        )
    }
    let own = DropReason::ALL
        .iter()
        .map(|reason| (reason.name(), reason.help()));
    let all = [
        reasons_of("Flowkeep itself", own),
        of::<Firewall>(),
        of::<nat::Nat>(),
        of::<LoadBalancer>(),
        of::<forward::Forward>(),
        of::<ids::Ids>(),
        of::<host_limits::HostLimits>(),
    ];
    let none = [
        flow_monitor::FlowMonitor::REASONS,
        http_parser::HttpParser::REASONS,
        counter::Counter::REASONS,
    ];
    assert!(
        none.iter().all(|reasons| reasons.is_empty()),
        "the page's last line"
    );
    let last = "\nThe flow monitor, the HTTP parser and `counter` drop nothing.\n";
    REASONS_OPENING.to_owned() + &all.concat() + last
}

#[test]
fn the_page_of_reasons_is_what_the_code_says() {
    hold("reasons.md", &reasons());
}

/// All sources below a folder.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => sources(&path, found),
            false => found.push(path),
        }
    }
}

/// Metrics are named in the call that begins them, or in a list of names with their words.
#[test]
fn every_metric_in_the_sources_is_on_the_page() {
    let page = page(&flowkeep::metrics::text(&of_everything()));
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    let (mut found, mut with_metrics) = (0, Vec::new());
    for file in files {
        let source = std::fs::read_to_string(&file).unwrap();
        let source = source.split("#[cfg(test)]").next().unwrap();
        let kinds = ["gauge", "counter", "histogram", "metric"];
        if !kinds.iter().any(|kind| source.contains(&format!("text.{kind}("))) {
            continue;
        }
        let parts: Vec<_> = source.split('"').collect();
        let names = parts.windows(3).filter_map(|of| {
            let is_name = !of[0].is_empty() && of[0].bytes().all(|of| of.is_ascii_lowercase() || of == b'_');
            (is_name && of[1].trim() == "," && of[2].ends_with('.')).then_some(of[0])
        });
        let begun = source.split("text.metric(\"").skip(1);
        let begun = begun.filter_map(|of| Some(of.split_once('"')?.0));
        for name in names.chain(begun) {
            assert!(page.contains(&format!("`flowkeep_{name}")), "{name} of {file:?}");
            found += 1;
        }
        with_metrics.push(file.file_stem().unwrap().to_str().unwrap().to_owned());
    }
    for file in [
        "metrics", "pools", "copies", "costs", "busy", "tables", "stats", "objects",
    ] {
        assert!(
            with_metrics.iter().any(|of| of == file),
            "{file}: {with_metrics:?}"
        );
    }
    assert!(found > 80, "{found}");
}

/// Every command, as the program itself prints them.
#[test]
fn the_page_of_commands_is_what_the_program_takes() {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_flowkeep"));
    let output = command.args(["man", "--page"]).output().unwrap();
    let page = String::from_utf8(output.stdout).unwrap();
    for line in [
        "## `flowkeep flow migrate`",
        "| `--limit N` | The most flows. Default: `1000`. |",
        // The variable that may say it in its place.
        "| `--identity DIRECTORY` | The directory with ca.pem, and the certificate and its key; else what the environment variable `FLOWKEEP_IDENTITY` says. |",
        "flowkeep runtime drain 1",
    ] {
        assert!(page.lines().any(|of| of == line), "{line}\n{page}");
    }
    hold("commands.md", &page);
}

const EVENTS_OPENING: &str = "\
# Events

Every line of the event log (`[log] events`), which is JSON. A test makes this page from the code:
only declared events are written. Where the log goes and when it is rotated:
[configuration](configuration.md). `flowkeep flow events` has the flows' own changes.

Each line has `time` (of day, in UTC, RFC 3339; in a replay the capture's) and `event`. Lines of
functions and runtimes have `runtime`, its number, and `function`, the function's kind or `runtime`.
A number's unit stands in brackets.
";

/// The section of events of one origin.
fn section<'e>(page: &mut String, heading: &str, events: impl IntoIterator<Item = &'e Event>) {
    let _ = write!(page, "\n## {heading}\n");
    for event in events {
        assert!(
            event.when.ends_with('.'),
            "{}: when it is written is a sentence",
            event.name
        );
        let _ = write!(
            page,
            "\n### `{}`\n\n{}\n\n| field | meaning |\n|---|---|\n",
            event.name, event.when
        );
        for field in event.fields {
            let unit = match field.unit {
                "" => String::new(),
                unit => format!(" [{unit}]"),
            };
            assert!(field.what.ends_with('.'), "{}: {}", event.name, field.name);
            let _ = writeln!(page, "| `{}`{unit} | {} |", field.name, field.what);
        }
    }
}

/// Functions that come with the tool, with their events.
fn functions() -> [(&'static str, &'static [Event]); 9] {
    use functions::{counter, flow_monitor, forward, host_limits, http_parser, ids, nat};
    fn of<F: NetworkFunction>() -> (&'static str, &'static [Event]) {
        (F::NAME, F::EVENTS)
    }
    [
        of::<Firewall>(),
        of::<nat::Nat>(),
        of::<LoadBalancer>(),
        of::<forward::Forward>(),
        of::<ids::Ids>(),
        of::<http_parser::HttpParser>(),
        of::<flow_monitor::FlowMonitor>(),
        of::<host_limits::HostLimits>(),
        of::<counter::Counter>(),
    ]
}

/// A function that the tool has, and that these tests do not name, would be on no page.
#[test]
fn every_function_of_the_tool_is_on_the_pages() {
    let registry = flowkeep::functions();
    let mut known: Vec<_> = registry.names();
    let mut listed: Vec<_> = functions().map(|(name, _)| name).to_vec();
    known.sort_unstable();
    listed.sort_unstable();
    assert_eq!(known, listed);
    // The page's last line names those without a reason.
    let names = ["flow_monitor", "http_parser", "counter"];
    let (counters, reasons) = (counters(), reasons());
    for name in known {
        assert!(counters.contains(&format!("\n### `{name}`\n")), "{name}");
        let has_reasons = reasons.contains(&format!("\n## {name}\n"));
        assert!(has_reasons != names.contains(&name), "{name}");
    }
}

#[test]
fn the_page_of_events_is_what_the_code_says() {
    let mut page = EVENTS_OPENING.to_owned();
    section(
        &mut page,
        "The process",
        flowkeep::events::PROCESS.iter().map(|of| of.event()),
    );
    section(
        &mut page,
        "Stores",
        flowkeep::events::STORES.iter().map(|of| of.event()),
    );
    section(&mut page, "Runtimes", runtime::stats::EVENTS);
    let (with, without): (Vec<_>, Vec<_>) = functions().into_iter().partition(|(_, of)| !of.is_empty());
    for (name, events) in with {
        section(&mut page, &format!("`{name}`"), events);
    }
    let names: Vec<String> = without.iter().map(|(name, _)| format!("`{name}`")).collect();
    let _ = write!(page, "\nThese functions write none: {}.\n", names.join(", "));
    hold("events.md", &page);
}
