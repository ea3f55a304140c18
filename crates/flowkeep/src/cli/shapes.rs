//! `schema`: the objects that `--json` prints, by noun.

use super::{Failure, asking, balancing, chains, clusters, failed, moving, orders, print, runtimes, scaling};
use crate::shape::{Named, named};
use crate::{apply, bridge, explain, following, lab, report, sim, store, top, trace};
use std::io::Write;

/// Each noun's shape, by name.
const SHAPES: &[Named] = &[
    named::<::bench::report::Report>(),
    named::<::bench::papers::Figures>(),
    named::<chains::Checked>(),
    named::<apply::report::Change>(),
    named::<asking::Confirmed>(),
    named::<clusters::ClusterDrained>(),
    named::<clusters::ClusterRecovered>(),
    named::<clusters::ClusterReport>(),
    named::<scaling::Scaled>(),
    named::<failed::Failed>(),
    named::<report::Flow>(),
    named::<crate::moving::Deletion>(),
    named::<following::FlowLine>(),
    named::<following::LostLine>(),
    named::<explain::Explanation>(),
    named::<trace::Step>(),
    named::<report::FlowList>(),
    named::<asking::FunctionAnswers>(),
    named::<crate::moving::Receipt>(),
    named::<lab::Demo>(),
    named::<orders::Orders>(),
    named::<bridge::Bridged>(),
    named::<runtimes::Placed>(),
    named::<runtimes::Set>(),
    named::<runtimes::Changed>(),
    named::<moving::Drained>(),
    named::<runtimes::Gone>(),
    named::<balancing::Balanced>(),
    named::<moving::Resumed>(),
    named::<moving::Runtimes>(),
    named::<sim::Simulated>(),
    named::<report::Status>(),
    named::<asking::Stopping>(),
    named::<store::job::Stored>(),
    named::<store::job::StoredMerged>(),
    named::<top::Rates>(),
];

/// Prints the names of all shapes, or the JSON schema of one.
pub fn schema(name: Option<&str>, out: &mut dyn Write) -> Result<(), Failure> {
    let names: Vec<&str> = SHAPES.iter().map(|(name, _)| *name).collect();
    let Some(name) = name else {
        return print(out, names.join("\n"));
    };
    match SHAPES.iter().find(|(of, _)| *of == name) {
        Some((_, schema)) => print(out, format!("{:#}", schema().as_value())),
        None => Err(Failure::usage(format!(
            "`{name}` is no shape; there are: {}",
            names.join(", ")
        ))),
    }
}
