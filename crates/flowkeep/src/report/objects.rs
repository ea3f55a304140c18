//! Shared objects in `flowkeep status` and in the metrics.

use super::{Table, grouped, human_size};
use crate::cluster::Snapshot;
use crate::metrics::Text;
use runtime::stats::ObjectStats;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A function's shared objects of one kind at one runtime.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectsStatus {
    /// The function.
    pub function: String,
    /// The kind's name within the function.
    pub kind: String,
    /// The runtime.
    pub runtime: u16,
    /// Objects that are there.
    pub objects: u64,
    /// Copies of other runtimes' objects.
    pub copies: u64,
    /// Bytes of both, without their keys.
    pub bytes: u64,
    /// Calls that the function has made there, by how.
    pub calls: BTreeMap<String, u64>,
    /// Calls of them that ended without an answer.
    pub failed: u64,
    /// Requests of that runtime that went to another one.
    pub remote: u64,
    /// Requests of other runtimes that were sent on.
    pub forwards: u64,
    /// Objects that went to another runtime.
    pub moves: u64,
    /// States that were sent to a runtime that keeps a copy.
    pub copied: u64,
    /// Bytes of all messages about such objects that were sent to other runtimes.
    pub sent_bytes: u64,
}

/// Each kind at each runtime.
pub(super) fn of(snapshot: &Snapshot) -> Vec<ObjectsStatus> {
    let all = snapshot.runtimes.iter().enumerate().flat_map(|(place, runtime)| {
        let number = snapshot.runtime_number(place);
        runtime.objects.iter().map(move |kind| status(number, kind))
    });
    all.collect()
}

fn status(runtime: u16, of: &ObjectStats) -> ObjectsStatus {
    let calls = ObjectStats::HOW.iter().zip(of.calls);
    ObjectsStatus {
        function: of.function.clone(),
        kind: of.kind.clone(),
        runtime,
        objects: of.objects,
        copies: of.copies,
        bytes: of.bytes,
        calls: calls.map(|(how, count)| ((*how).to_owned(), count)).collect(),
        failed: of.failed,
        remote: of.remote,
        forwards: of.forwards,
        moves: of.moves,
        copied: of.copied,
        sent_bytes: of.sent_bytes,
    }
}

/// A line for each kind and runtime; `None` where there are none.
pub(super) fn table(objects: &[ObjectsStatus]) -> Option<Table> {
    let heads = [
        "Shared objects",
        ">Runtime",
        ">Objects",
        ">Copies",
        ">Bytes",
        ">Calls",
        ">Failed",
        ">To others",
        ">Sent on",
        ">Moved",
        ">Sent",
    ];
    let mut table = Table::new(&heads);
    for of in objects {
        table.row([
            format!("{}/{}", of.function, of.kind),
            of.runtime.to_string(),
            grouped(of.objects),
            grouped(of.copies),
            human_size(of.bytes),
            grouped(of.calls.values().sum()),
            grouped(of.failed),
            grouped(of.remote),
            grouped(of.forwards),
            grouped(of.moves),
            human_size(of.sent_bytes),
        ]);
    }
    (!objects.is_empty()).then_some(table)
}

/// A figure of each kind: its name, its help, and where it is.
type Figure = (&'static str, &'static str, fn(&ObjectStats) -> u64);

/// Writes them as metrics, if functions share objects.
pub(crate) fn metrics(text: &mut Text, snapshot: &Snapshot) {
    let all: Vec<(String, &ObjectStats)> = snapshot
        .runtimes
        .iter()
        .enumerate()
        .flat_map(|(place, runtime)| {
            let number = snapshot.runtime_number(place).to_string();
            runtime.objects.iter().map(move |kind| (number.clone(), kind))
        })
        .collect();
    if all.is_empty() {
        return;
    }
    let gauges: [Figure; 3] = [
        ("shared_objects", "Shared objects that a runtime has now.", |of| {
            of.objects
        }),
        (
            "shared_object_copies",
            "Copies of other runtimes' shared objects that a runtime has now.",
            |of| of.copies,
        ),
        (
            "shared_object_bytes",
            "Bytes of shared objects and their copies at a runtime now, without their keys.",
            |of| of.bytes,
        ),
    ];
    for (name, help, figure) in gauges {
        let mut metric = text.gauge(name, help);
        for (runtime, of) in &all {
            metric.sample(&labels(runtime, of), figure(of));
        }
    }
    let mut metric = text.counter("shared_object_calls", "Calls of shared objects by functions.");
    for (runtime, of) in &all {
        for (how, count) in ObjectStats::HOW.iter().zip(of.calls) {
            let [function, kind, runtime] = labels(runtime, of);
            metric.sample(&[function, kind, runtime, ("how", *how)], count);
        }
    }
    let counters: [Figure; 6] = [
        (
            "shared_object_failed_calls",
            "Calls of shared objects that ended without an answer.",
            |of| of.failed,
        ),
        (
            "shared_object_remote_requests",
            "Requests for shared objects that a runtime sent to another one: the cost of calls of objects that are elsewhere.",
            |of| of.remote,
        ),
        (
            "shared_object_forwards",
            "Requests for shared objects of other runtimes that a runtime sent on.",
            |of| of.forwards,
        ),
        (
            "shared_object_moves",
            "Shared objects that went from a runtime to another one.",
            |of| of.moves,
        ),
        (
            "shared_object_sent_copies",
            "States of shared objects that a runtime sent to runtimes that keep copies.",
            |of| of.copied,
        ),
        (
            "shared_object_sent_bytes",
            "Bytes of messages about shared objects that a runtime sent to others.",
            |of| of.sent_bytes,
        ),
    ];
    for (name, help, figure) in counters {
        let mut metric = text.counter(name, help);
        for (runtime, of) in &all {
            metric.sample(&labels(runtime, of), figure(of));
        }
    }
    let mut metric = text.counter(
        "shared_object_refused_messages",
        "Messages about shared objects that were not taken: of a runtime that is out of the view, or unknown to the protocol.",
    );
    for (place, runtime) in snapshot.runtimes.iter().enumerate() {
        let number = snapshot.runtime_number(place).to_string();
        metric.sample(&[("runtime", &number)], runtime.object_messages_refused);
    }
}

fn labels<'a>(runtime: &'a str, of: &'a ObjectStats) -> [(&'a str, &'a str); 3] {
    [
        ("function", &of.function),
        ("kind", &of.kind),
        ("runtime", runtime),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::fake;
    use crate::report::Status;

    #[test]
    fn shared_objects_are_in_the_status_and_in_the_metrics() {
        let mut snapshot = fake::snapshot();
        assert!(!crate::metrics::text(&snapshot).contains("shared_object"));
        assert!(!Status::from(&snapshot).to_string().contains("Shared objects"));
        snapshot.runtimes[1].objects = vec![ObjectStats {
            function: "scan_limit".into(),
            kind: "hosts".into(),
            objects: 3,
            copies: 2,
            bytes: 840,
            calls: [1200, 4, 0, 0, 5, 6],
            failed: 7,
            remote: 600,
            forwards: 8,
            moves: 9,
            copied: 10,
            sent_bytes: 123_456,
        }];
        snapshot.runtimes[1].object_messages_refused = 11;
        let text = crate::metrics::text(&snapshot);
        let labels = "{function=\"scan_limit\",kind=\"hosts\",runtime=\"1\"}";
        for line in [
            format!("flowkeep_shared_objects{labels} 3"),
            format!("flowkeep_shared_object_moves_total{labels} 9"),
            "flowkeep_shared_object_calls_total{function=\"scan_limit\",kind=\"hosts\",runtime=\"1\",how=\"send\"} 4".into(),
            "flowkeep_shared_object_refused_messages_total{runtime=\"1\"} 11".into(),
        ] {
            assert!(text.contains(&line), "{line} is not in\n{text}");
        }
        let status = Status::from(&snapshot);
        let table = "\
Shared objects    Runtime  Objects  Copies  Bytes  Calls  Failed  To others  Sent on  Moved      Sent
scan_limit/hosts        1        3       2  840 B  1,215       7        600        8      9  123.5 kB
";
        assert!(status.to_string().contains(table), "{status}");
        let line = serde_json::to_value(&status).unwrap();
        assert_eq!(line["objects"][0]["calls"]["update"], 1200);
        assert_eq!(serde_json::from_value::<Status>(line).unwrap(), status);
    }
}
