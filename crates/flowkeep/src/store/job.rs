//! `flowkeep store`: the content of a store, and its way into another.
//!
//! Not here: drivers, and their use (`stores`).

use super::copy::Source;
use crate::shape::{self, Shape};
use schemars::JsonSchema;
use serde::Serialize;
use std::io::Write;
use std::path::Path;
use std::time::Duration;
use stores::Failure;
use stores::migrate::{Follower, Found, Whole, inspect, inspect_merged, migrate};

/// How long between two copies of changes.
const AGAIN: Duration = Duration::from_secs(1);

#[derive(Serialize, JsonSchema)]
struct Row {
    function: String,
    member: String,
    runtime: u32,
    kind: String,
    name: String,
    elements: u64,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    sum: Option<i64>,
}

/// The content of a store.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Stored {
    /// Each variable.
    variables: Vec<Row>,
}

impl Shape for Stored {
    const NAME: &'static str = "store";
}

impl From<Found> for Row {
    fn from(found: Found) -> Self {
        let partition = found.variable.partition();
        Row {
            function: partition.function().to_owned(),
            member: partition.member().to_owned(),
            runtime: partition.runtime(),
            kind: found.variable.kind().to_string(),
            name: found.variable.name().to_owned(),
            elements: found.elements,
            bytes: found.bytes,
            sum: found.sum,
        }
    }
}

#[derive(Serialize, JsonSchema)]
struct MergedRow {
    function: String,
    kind: String,
    name: String,
    /// How many runtimes and members have a part of it, or had when they ended.
    parts: u64,
    elements: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    sum: Option<i64>,
}

/// The content of a store, each variable over all runtimes and members.
#[derive(Serialize, JsonSchema)]
pub(crate) struct StoredMerged {
    /// Each variable of each function.
    variables: Vec<MergedRow>,
}

impl Shape for StoredMerged {
    const NAME: &'static str = "store-merged";
}

impl From<Whole> for MergedRow {
    fn from(whole: Whole) -> Self {
        MergedRow {
            function: whole.function,
            kind: whole.kind.to_string(),
            name: whole.name,
            parts: whole.parts,
            elements: whole.elements,
            sum: whole.sum,
        }
    }
}

/// Prints the content of a store, a line for each variable, or JSON.
pub fn show(uri: &str, socket: &Path, merged: bool, json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let mut driver = Source::open(uri, socket)?;
    let text = match merged {
        true => {
            let found = inspect_merged(&mut driver)?;
            let rows: Vec<MergedRow> = found.into_iter().map(MergedRow::from).collect();
            match json {
                true => shape::object(&StoredMerged { variables: rows }).to_string(),
                false => merged_table(&rows),
            }
        }
        false => {
            let found = inspect(&mut driver)?;
            let rows: Vec<Row> = found.into_iter().map(Row::from).collect();
            match json {
                true => shape::object(&Stored { variables: rows }).to_string(),
                false => table(&rows),
            }
        }
    };
    writeln!(out, "{}", text.trim_end()).map_err(|error| Failure::new(uri, error.to_string(), ""))
}

fn table(rows: &[Row]) -> String {
    let line = |row: &Row| {
        let Row {
            function,
            member,
            runtime,
            kind,
            name,
            ..
        } = row;
        [
            format!("{function}@{member}@{runtime}@{kind}@{name}"),
            row.elements.to_string(),
            row.bytes.to_string(),
            row.sum.map_or_else(String::new, |sum| sum.to_string()),
        ]
    };
    aligned(["VARIABLE", "ELEMENTS", "BYTES", "SUM"], rows.iter().map(line))
}

fn merged_table(rows: &[MergedRow]) -> String {
    let line = |row: &MergedRow| {
        [
            format!("{}@{}@{}", row.function, row.kind, row.name),
            row.parts.to_string(),
            row.elements.to_string(),
            row.sum.map_or_else(String::new, |sum| sum.to_string()),
        ]
    };
    aligned(["VARIABLE", "PARTS", "ELEMENTS", "SUM"], rows.iter().map(line))
}

fn aligned(heads: [&str; 4], rows: impl ExactSizeIterator<Item = [String; 4]>) -> String {
    if rows.len() == 0 {
        return "the store has no variables".to_owned();
    }
    let mut all = vec![heads.map(str::to_owned)];
    all.extend(rows);
    let width = |at: usize| all.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: [usize; 4] = std::array::from_fn(width);
    let mut text = String::new();
    for [name, second, third, sum] in &all {
        let line = format!(
            "{name:<0$}  {second:>1$}  {third:>2$}  {sum:>3$}",
            widths[0], widths[1], widths[2], widths[3]
        );
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// Writes all variables of a store into another; `follow`: again and again, until another process
/// has them there.
pub fn take_over(
    from: &str,
    socket: &Path,
    to: &str,
    follow: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    if from == to {
        return Err(Failure::new(
            &stores::without_secret(from),
            "it is both source and target",
            "name two stores",
        ));
    }
    let (mut source, mut target) = (Source::open(from, socket)?, target(to)?);
    if follow {
        return keep_up(Follower::new(&mut source, target.as_mut()), to, out);
    }
    let migrated = migrate(&mut source, target.as_mut())?;
    let said = format!(
        "{} variables of {} partitions, with {} elements, are in {}",
        migrated.variables,
        migrated.partitions,
        migrated.elements,
        stores::without_secret(to)
    );
    writeln!(out, "{said}").map_err(|error| Failure::new(to, error.to_string(), ""))
}

/// Copies every second; says each change of its state.
fn keep_up(mut follower: Follower<'_>, to: &str, out: &mut dyn Write) -> Result<(), Failure> {
    let shown = stores::without_secret(to);
    let mut last = String::new();
    loop {
        let pass = follower.pass()?;
        let said = match (pass.taken.len(), pass.behind.len()) {
            (0, 0) => {
                format!("{shown} has all of it; begin Flowkeep with it, once it has ended with the other")
            }
            (0, behind) => format!("{behind} partitions are written meanwhile; they are copied again"),
            (taken, _) => {
                format!("{taken} partitions are written in {shown} by another process: this ends here")
            }
        };
        if said != last {
            let written = writeln!(out, "{said}").and_then(|()| out.flush());
            written.map_err(|error| Failure::new(to, error.to_string(), ""))?;
        }
        if !pass.taken.is_empty() {
            return Ok(());
        }
        last = said;
        std::thread::sleep(AGAIN);
    }
}

/// The driver, of a store that outlasts a process.
fn target(uri: &str) -> Result<Box<dyn stores::Driver>, Failure> {
    if uri == "memory:" {
        return Err(Failure::new(
            uri,
            "a store in memory is in its process alone",
            "name a store that outlasts it: redb:PATH or redis://HOST",
        ));
    }
    stores::driver_of(uri)
}
