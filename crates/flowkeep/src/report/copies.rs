//! Copies and recoveries, as `status` has them.

use super::{RuntimeStatus, Status, Table, grouped};
use runtime::stats::RecoveryReceipt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

impl Status {
    /// Where the runtimes' copies are, where copies are kept.
    pub(super) fn write_copies(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_copies = |runtime: &RuntimeStatus| {
            runtime.protected_by.is_some()
                || runtime.copies + runtime.recovered_flows + runtime.unprotected_packets > 0
        };
        if !self.runtimes.iter().any(has_copies) {
            return Ok(());
        }
        let mut table = Table::new(&[
            ">Runtime",
            "Protected by",
            ">Protected flows",
            ">Protected after",
            ">Copies of others",
            ">Recovered flows",
            ">Unrecovered",
            ">Unprotected packets",
        ]);
        for runtime in &self.runtimes {
            let took = runtime.protection_seconds.map(|seconds| seconds * 1e3);
            let by = runtime.protected_by.map(|by| format!("runtime {by}"));
            table.row([
                runtime.runtime.to_string(),
                by.unwrap_or_else(|| "none yet".to_owned()),
                grouped(runtime.protected_flows),
                took.map_or_else(|| "-".to_owned(), |took| format!("{took:.1} ms")),
                grouped(runtime.copies),
                grouped(runtime.recovered_flows),
                grouped(runtime.unrecovered_flows),
                grouped(runtime.unprotected_packets),
            ]);
        }
        write!(f, "\n{table}")?;
        for runtime in self
            .runtimes
            .iter()
            .filter(|runtime| runtime.copies_without_room > 0)
        {
            writeln!(
                f,
                "runtime {} has no room for {} of its copies: as many flows would end with the runtimes they are of. Raise `flows_max`, or add a runtime",
                runtime.runtime,
                grouped(runtime.copies_without_room)
            )?;
        }
        let recoveries = self.runtimes.iter().flat_map(|runtime| {
            let receipts = runtime.recoveries.iter();
            receipts.map(move |receipt| (runtime.runtime, receipt))
        });
        for (runtime, recovery) in recoveries {
            match recovery.failed == runtime {
                true => writeln!(f, "runtime {runtime} went on with {}", recovery.of_store())?,
                false => writeln!(f, "runtime {runtime} recovered {recovery}")?,
            }
        }
        Ok(())
    }
}

/// The recovery of the flows of a runtime that failed.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq)]
pub struct Recovery {
    /// The runtime that failed.
    pub failed: u16,
    /// Flows that went on.
    pub flows: u64,
    /// Flows whose copies were no flows, or had no room.
    pub lost: u64,
    /// Milliseconds from the notice of the failure until all switches had let the runtime go.
    pub waited_ms: f64,
    /// Milliseconds from then on until all flows were installed and announced.
    pub installed_ms: f64,
}

impl From<&RecoveryReceipt> for Recovery {
    fn from(receipt: &RecoveryReceipt) -> Self {
        Recovery {
            failed: receipt.failed,
            flows: receipt.flows,
            lost: receipt.lost,
            waited_ms: receipt.waited as f64 / 1e6,
            installed_ms: receipt.installed as f64 / 1e6,
        }
    }
}

impl Recovery {
    /// The text on a runtime's own flows out of a store.
    fn of_store(&self) -> String {
        let (flows, lost) = (grouped(self.flows), grouped(self.lost));
        format!("{flows} flows out of the store, {lost} lost")
    }
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} flows of runtime {}, {} lost: switches let it go after {:.1} ms, flows were installed {:.1} ms later",
            grouped(self.flows),
            self.failed,
            grouped(self.lost),
            self.waited_ms,
            self.installed_ms
        )
    }
}
