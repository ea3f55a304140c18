//! Tables: rows that an operator asks a function for by a word (`flowkeep function firewall
//! rules`).
//!
//! A function declares each table once ([`NetworkFunction::TABLES`]), and how the figures of
//! several instances are one. Its instance at each runtime fills in rows
//! ([`NetworkFunction::rows`]).
//!
//! ```text
//!   runtime 0    120  allow  web ─┐          hits  action  rule
//!   runtime 1     30  allow  web ─┼─ sum ─►   157  allow   web
//!   removed        7  allow  web ─┘  (of it, what it had counted: `keep_counts`)
//! ```
//!
//! Rows are of the same thing if all their cells under [`Adds::Name`] are equal.
//!
//! Invariants: a row has a cell for each column; a count never falls when a runtime goes; no table
//! is longer than [`ROWS_MAX`] rows where it has a bound.
//!
//! Not here: which runtimes are asked, and the counts of runtimes that are gone.
//!
//! [`NetworkFunction::TABLES`]: crate::NetworkFunction::TABLES
//! [`NetworkFunction::rows`]: crate::NetworkFunction::rows

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cmp::Reverse;
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
    /// A number that goes along with what the row is of, so that several runtimes have copies of
    /// it: the greatest is the figure.
    Greatest,
    /// A cell of the moment. Where runtimes differ, each cell is named: `failing, up`.
    Each,
}

/// A table that a function has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Table {
    /// The word by which it is asked for: lower case, underscores.
    pub name: &'static str,
    /// Its columns, in the order in which they are printed: their names (lower case, underscores),
    /// and how their cells become one.
    pub columns: &'static [(&'static str, Adds)],
    /// Of a table that may be long: how many rows are printed unless a count is asked for
    /// (`flowkeep function NAME TABLE COUNT`), those with the greatest figures. 0: all, in order.
    pub top: usize,
    /// Its columns that are metrics, too.
    pub metrics: &'static [Figure],
}

/// A column that is a metric: a sample for each row, with the [names](Adds::Name) as labels. Of the
/// first [`FIGURES_MAX`] rows: those of the same names are one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Figure {
    /// The column.
    pub column: &'static str,
    /// The metric, behind `flowkeep_function_`; with `_total`, if the column is counted.
    pub name: &'static str,
    /// Its meaning, a sentence.
    pub help: &'static str,
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

/// The most rows of a table that is not asked for as a whole.
pub const ROWS_MAX: usize = 1000;

/// The most rows of one table and runtime that are in the metrics.
pub const FIGURES_MAX: usize = 256;

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

impl Value {
    /// The number, if it is one.
    pub fn number(&self) -> Option<u64> {
        match self {
            Value::Number(number) => Some(*number),
            Value::Text(_) => None,
        }
    }

    /// Names another cell behind this one, if it is not named yet.
    fn name_too(&mut self, other: &Value) {
        let (mut all, more) = (self.to_string(), other.to_string());
        if all.is_empty() {
            self.clone_from(other);
        } else if !more.is_empty() && all.split(", ").all(|one| one != more) {
            all.push_str(", ");
            all.push_str(&more);
            *self = Value::Text(all);
        }
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

/// A command's answer, as a table: its columns, and its rows.
pub type Answer = (&'static [(&'static str, Adds)], Vec<Row>);

impl Table {
    /// How each column's cells become one.
    pub fn adds(&self) -> impl Iterator<Item = Adds> {
        self.columns.iter().map(|(_, adds)| *adds)
    }

    /// A function's table, if the words ask for one, and how many rows: 0 for all.
    pub fn asked<'t>(tables: &'t [Table], words: &[&str]) -> Result<Option<(&'t Table, usize)>, String> {
        let Some((name, rest)) = words.split_first() else {
            return Ok(None);
        };
        let Some(table) = tables.iter().find(|table| table.name == *name) else {
            return Ok(None);
        };
        match rest {
            [] => Ok(Some((table, table.top))),
            [count] => match count.parse() {
                Ok(count) if (1..=ROWS_MAX).contains(&count) => Ok(Some((table, count))),
                _ => Err(alloc::format!(
                    "`{count}` is no number of rows: write 1 to {ROWS_MAX} behind `{name}`, or nothing"
                )),
            },
            _ => Err(alloc::format!(
                "`{name}` takes at most a number of rows: {name} COUNT"
            )),
        }
    }

    /// The rows as text: a line of names, and one for each row.
    pub fn text(&self, rows: &[Row]) -> String {
        let names: Vec<&str> = self.columns.iter().map(|(name, _)| *name).collect();
        text(&names, rows)
    }
}

/// Rows below the names of their columns. Numbers and the names above them end where the column
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
/// second. Instances that are gone come last; rows that they alone have are of another
/// configuration, and in no sum.
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
        match (adds, cell, other) {
            (Adds::Counted | Adds::Sum, Value::Number(one), Value::Number(other)) => {
                *one = one.saturating_add(*other);
            }
            (Adds::Greatest, Value::Number(one), Value::Number(other)) => *one = (*one).max(*other),
            (Adds::Each, one, other) if one != other => one.name_too(other),
            _ => {}
        }
    }
}

/// Leaves so many rows: those with the greatest figures, of the moment first. 0 leaves all.
pub fn keep_top(adds: &[Adds], rows: &mut Vec<Row>, count: usize) {
    if count == 0 {
        return;
    }
    let figures = |row: &Row, wanted: &[Adds]| -> u64 {
        let cells = adds.iter().zip(row).filter(|(adds, _)| wanted.contains(adds));
        cells.fold(0, |sum, (_, cell)| match cell {
            Value::Number(number) => sum.saturating_add(*number),
            Value::Text(_) => sum,
        })
    };
    rows.sort_by_cached_key(|row| {
        let now = figures(row, &[Adds::Sum]);
        Reverse((now, figures(row, &[Adds::Counted, Adds::Greatest])))
    });
    rows.truncate(count);
}

/// Of an instance that is gone: its counts, and nothing of the moment.
pub fn keep_counts(adds: &[Adds], rows: &mut [Row]) {
    for (adds, cell) in rows.iter_mut().flat_map(|row| adds.iter().zip(row)) {
        match adds {
            Adds::Sum => *cell = Value::Number(0),
            Adds::Each => *cell = Value::Text(String::new()),
            Adds::Name | Adds::Counted | Adds::Greatest => {}
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
    fn copies_and_differing_cells_are_one() {
        let adds = [Adds::Name, Adds::Greatest, Adds::Each, Adds::Each];
        let of = |refused: u32, state: &str| [row!["a", refused, state, 3u32]];
        let (one, other, third) = (of(7, "up"), of(9, "failing"), of(3, "up"));
        let mut gone = of(20, "down");
        keep_counts(&adds, &mut gone);
        let there = [&one, &other, &third].map(|rows| (&rows[..], false));
        let all = sum(&adds, there.into_iter().chain([(&gone[..], true)]));
        assert_eq!(all, [row!["a", 20u32, "up, failing", 3u32]], "a number stays one");
    }

    #[test]
    fn the_greatest_rows_are_kept() {
        let rows = [
            of_host("a", 0, 9),
            of_host("b", 4, 0),
            of_host("c", 4, 1),
            of_host("d", 0, 0),
        ];
        let adds = [Adds::Name, Adds::Sum, Adds::Counted];
        let top = |count| {
            let mut rows = rows.to_vec();
            keep_top(&adds, &mut rows, count);
            rows.into_iter().map(|row| row[0].to_string()).collect::<Vec<_>>()
        };
        assert_eq!(top(3), ["c", "b", "a"]);
        assert_eq!(top(0), ["a", "b", "c", "d"], "all, in order");
    }

    fn of_host(name: &str, now: u32, counted: u32) -> Row {
        row![name, now, counted]
    }

    #[test]
    fn a_table_is_asked_for_by_its_name_and_a_count() {
        let table = |name, top| Table {
            name,
            columns: &[],
            top,
            metrics: &[],
        };
        let tables = [table("rules", 0), table("hosts", 20)];
        let asked = |words: &[&str]| Table::asked(&tables, words).map(|found| found.map(|(_, count)| count));
        assert_eq!(asked(&["rules"]), Ok(Some(0)));
        assert_eq!(asked(&["hosts"]), Ok(Some(20)));
        assert_eq!(asked(&["hosts", "5"]), Ok(Some(5)));
        assert_eq!(asked(&["clear", "5"]), Ok(None));
        assert_eq!(asked(&[]), Ok(None));
        for wrong in ["0", "many", "1001"] {
            assert!(asked(&["hosts", wrong]).is_err_and(|said| said.contains("1 to 1000")));
        }
        assert!(asked(&["hosts", "5", "5"]).is_err());
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
