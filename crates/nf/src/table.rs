//! Tables: what an operator asks a function for by a word (`flowkeep function firewall rules`).
//!
//! A function declares each table once ([`NetworkFunction::TABLES`]), and how the figures of several
//! instances are one. Its instance at each runtime fills in rows ([`NetworkFunction::rows`]).
//!
//! ```text
//!   runtime 0    120  allow  web ─┐          hits  action  rule
//!   runtime 1     30  allow  web ─┼─ sum ─►   157  allow   web
//!   removed        7  allow  web ─┘  (of it, what it had counted: `keep_counts`)
//! ```
//!
//! Rows are of the same thing if all their cells under [`Adds::Name`] are equal.
//!
//! Invariants: a row has a cell for each column; what is counted never falls when a runtime goes.
//!
//! Not here: which runtimes are asked, and what those that are gone had counted.
//!
//! [`NetworkFunction::TABLES`]: crate::NetworkFunction::TABLES
//! [`NetworkFunction::rows`]: crate::NetworkFunction::rows

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// How the cells of a column in rows of the same thing become one.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Adds {
    /// They are equal: with the other columns of this kind they say what the row is of.
    Name,
    /// A number that only grows. It is summed, and what runtimes that are gone had counted stays.
    Counted,
    /// A number of the moment, which is summed.
    Sum,
}

/// A table that a function has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Table {
    /// The word by which it is asked for: lower case, underscores.
    pub name: &'static str,
    /// Its columns, in the order in which they are printed: their names (lower case, underscores),
    /// and how their cells become one.
    pub columns: &'static [(&'static str, Adds)],
}

/// A cell of a row.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Value {
    /// A number.
    Number(u64),
    /// A text.
    Text(String),
}

/// A row: a cell for each column.
pub type Row = Vec<Value>;

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Value::Number(number)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Value::Number(number.into())
    }
}

impl From<u16> for Value {
    fn from(number: u16) -> Self {
        Value::Number(number.into())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::Text(text.into())
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Number(number) => f.pad(&number.to_string()),
            Value::Text(text) => f.pad(text),
        }
    }
}

impl Table {
    /// How each column's cells become one.
    pub fn adds(&self) -> impl Iterator<Item = Adds> {
        self.columns.iter().map(|(_, adds)| *adds)
    }

    /// The rows as text: a line of names, and one for each row.
    pub fn text(&self, rows: &[Row]) -> String {
        let names: Vec<&str> = self.columns.iter().map(|(name, _)| *name).collect();
        text(&names, rows)
    }
}

/// Rows below the names of their columns. Numbers and what stands above them end where the column
/// ends, texts begin where it begins.
pub fn text(names: &[&str], rows: &[Row]) -> String {
    let header: Row = names.iter().map(|name| Value::from(*name)).collect();
    let width = |at: usize| {
        let cells = core::iter::once(&header).chain(rows);
        let wide = cells.filter_map(|row| Some(row.get(at)?.to_string().chars().count()));
        wide.max().unwrap_or(0)
    };
    let is_number = |at: usize| {
        let first = rows.first().and_then(|row| row.get(at));
        matches!(first, Some(Value::Number(_)))
    };
    let columns: Vec<_> = (0..names.len()).map(|at| (width(at), is_number(at))).collect();
    let mut text = String::new();
    for row in core::iter::once(&header).chain(rows) {
        let cells = row
            .iter()
            .zip(&columns)
            .map(|(cell, (width, is_number))| match is_number {
                true => alloc::format!("{cell:>width$}"),
                false => alloc::format!("{cell:<width$}"),
            });
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Rows of several instances as one table: rows of the same thing are one, in the order in which
/// they come first. Where one instance has several of a name, first is added to first, second to
/// second. Those that are gone come last; what they alone have is of another configuration, and in
/// no sum.
pub fn sum<'r>(adds: &[Adds], instances: impl IntoIterator<Item = (&'r [Row], bool)>) -> Vec<Row> {
    let mut places: BTreeMap<(Row, u32), usize> = BTreeMap::new();
    let mut sums: Vec<Row> = Vec::new();
    for (rows, is_gone) in instances {
        let mut seen: BTreeMap<Row, u32> = BTreeMap::new();
        for row in rows {
            let names = adds.iter().zip(row).filter(|(adds, _)| **adds == Adds::Name);
            let name: Row = names.map(|(_, cell)| cell.clone()).collect();
            let count = seen.entry(name.clone()).or_default();
            let place = places.entry((name, *count));
            *count += 1;
            match place {
                Entry::Occupied(place) => {
                    if let Some(whole) = sums.get_mut(*place.get()) {
                        add(adds, whole, row);
                    }
                }
                Entry::Vacant(_) if is_gone => {}
                Entry::Vacant(place) => {
                    place.insert(sums.len());
                    sums.push(row.clone());
                }
            }
        }
    }
    sums
}

fn add(adds: &[Adds], whole: &mut Row, more: &Row) {
    for ((adds, cell), other) in adds.iter().zip(whole).zip(more) {
        if let (Adds::Counted | Adds::Sum, Value::Number(one), Value::Number(other)) = (adds, cell, other) {
            *one = one.saturating_add(*other);
        }
    }
}

/// Of an instance that is gone: what it had counted, and nothing of the moment.
pub fn keep_counts(adds: &[Adds], rows: &mut [Row]) {
    for (adds, cell) in rows.iter_mut().flat_map(|row| adds.iter().zip(row)) {
        if *adds == Adds::Sum {
            *cell = Value::Number(0);
        }
    }
}

/// A row's cells, each a number or a text.
#[macro_export]
macro_rules! row {
    ($($cell:expr),* $(,)?) => { $crate::table::Row::from([$($crate::table::Value::from($cell)),*]) };
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDS: [Adds; 3] = [Adds::Counted, Adds::Name, Adds::Sum];

    #[test]
    fn figures_add_up_as_declared() {
        let of = |hits: u32, name: &str, now: u32| row![hits, name, now];
        let one = [of(1, "web", 2), of(4, "dns", 5)];
        let other = [of(40, "dns", 50), of(6, "new", 7), of(10, "web", 20)];
        let all = sum(&ADDS, [(&one[..], false), (&other[..], false)]);
        assert_eq!(all, [of(11, "web", 22), of(44, "dns", 55), of(6, "new", 7)]);
        let twins = [of(1, "web", 2), of(30, "web", 40)];
        let all = sum(&ADDS, [(&twins[..], false), (&twins[..], true)]);
        assert_eq!(all, [of(2, "web", 4), of(60, "web", 80)]);
        let all = sum(&ADDS, [(&one[..], false), (&other[..], true)]);
        assert_eq!(all.len(), 2, "what only the gone one has is in no sum: {all:?}");
    }

    #[test]
    fn an_instance_that_is_gone_leaves_its_counts() {
        let mut gone = [row![7u32, "web", 3u32], row![0u32, "dns", 4u32]];
        keep_counts(&ADDS, &mut gone);
        assert_eq!(gone, [row![7u32, "web", 0u32], row![0u32, "dns", 0u32]]);
    }

    #[test]
    fn text_stands_left_and_numbers_right() {
        let rows = [row![5u32, "allow", "web server"], row![12345u32, "drop", ""]];
        assert_eq!(
            text(&["hits", "action", "rule"], &rows),
            " hits  action  rule\n    5  allow   web server\n12345  drop\n"
        );
        assert_eq!(text(&["hits", "action"], &[]), "hits  action\n");
    }
}
