//! What functions answer operators (`flowkeep function NAME WORD…`): of each runtime, and as one.
//!
//! A function's tables say how their figures add up ([`nf::table`]), so that their answers are one
//! table over all runtimes and members. With them come answers of runtimes that are gone: what they
//! had counted. Any other answer is text, and each runtime's own.
//!
//! Not here: what is in the tables (the functions), what those that are gone had counted (`run`).

use nf::table::{self, Value};
use nf::{Adds, Row};
use runtime::worker::asked::TableRows;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a function answers at one runtime.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct Told {
    /// The runtime.
    pub runtime: u16,
    /// It is not there: the answer is what it had counted.
    pub gone: Option<Gone>,
    /// The answer.
    pub said: Said,
}

impl Told {
    /// Of a runtime that is there.
    pub fn there(runtime: u16, said: Said) -> Self {
        let gone = None;
        Told { runtime, gone, said }
    }
}

/// How a runtime went that is not there.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "snake_case")]
pub enum Gone {
    /// It was drained and removed.
    Removed,
    /// It failed; the figures are the last that are known.
    Failed,
}

/// An answer.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    /// In words.
    Text(String),
    /// A table.
    Rows(Rows),
}

/// A table, or a part of it.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct Rows {
    /// The columns' names, and how their cells become one.
    pub columns: Vec<(String, Adds)>,
    /// The rows, with a cell for each column.
    pub rows: Vec<Row>,
    /// How many are asked for, those with the greatest figures; 0: all.
    #[serde(default)]
    pub top: usize,
}

impl From<TableRows> for Rows {
    fn from(of: TableRows) -> Self {
        let columns = of.table.columns.iter();
        Rows {
            columns: columns.map(|(name, adds)| ((*name).to_owned(), *adds)).collect(),
            rows: of.rows,
            top: of.top,
        }
    }
}

impl Rows {
    /// Those rows that are asked for.
    #[must_use]
    pub fn top(mut self) -> Self {
        let adds: Vec<Adds> = self.columns.iter().map(|(_, adds)| *adds).collect();
        table::keep_top(&adds, &mut self.rows, self.top);
        self
    }

    /// A row's cells by the names of their columns.
    pub fn objects(&self) -> Vec<BTreeMap<String, Value>> {
        let names = || self.columns.iter().map(|(name, _)| name.clone());
        let object = |row: &Row| names().zip(row.iter().cloned()).collect();
        self.rows.iter().map(object).collect()
    }
}

impl std::fmt::Display for Rows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.columns.iter().map(|(name, _)| name.as_str()).collect();
        f.write_str(&table::text(&names, &self.rows))
    }
}

/// The answers as one table; none if they are in words. What is gone and had other columns is of
/// another function, and in no sum.
pub fn whole(answers: &[Told]) -> Option<Rows> {
    let tables = || {
        answers.iter().filter_map(|told| match &told.said {
            Said::Rows(rows) => Some((rows, told.gone.is_some())),
            Said::Text(_) => None,
        })
    };
    let first = tables().find(|(_, is_gone)| !is_gone)?.0;
    let (columns, top) = (first.columns.clone(), first.top);
    let adds: Vec<Adds> = columns.iter().map(|(_, adds)| *adds).collect();
    let alike = tables().filter(|(rows, _)| rows.columns == columns);
    let (gone, there): (Vec<_>, Vec<_>) = alike.partition(|(_, is_gone)| *is_gone);
    let all = there.into_iter().chain(gone);
    let rows = table::sum(&adds, all.map(|(rows, is_gone)| (&rows.rows[..], is_gone)));
    Some(Rows { columns, rows, top }.top())
}

/// Which runtimes that are gone are in the table; `None` if none is.
pub fn gone_in_it(answers: &[Told]) -> Option<String> {
    let gone = answers.iter().filter_map(|told| {
        let how = match told.gone? {
            Gone::Removed => "removed",
            Gone::Failed => "failed: as it was last known",
        };
        Some(format!("runtime {} ({how})", told.runtime))
    });
    let gone: Vec<String> = gone.collect();
    (!gone.is_empty()).then(|| format!("What is gone is in it: {}", gone.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nf::row;

    fn told(runtime: u16, gone: Option<Gone>, hits: u32, rule: &str) -> Told {
        let columns = vec![
            ("hits".to_owned(), Adds::Counted),
            ("rule".to_owned(), Adds::Name),
        ];
        let rows = vec![row![hits, rule]];
        Told {
            runtime,
            gone,
            said: Said::Rows(Rows {
                columns,
                rows,
                top: 0,
            }),
        }
    }

    #[test]
    fn answers_are_one_table_with_what_is_gone() {
        let mut all = vec![
            told(1, Some(Gone::Failed), 7, "web"),
            told(0, None, 100, "web"),
            told(1, None, 30, "web"),
            told(2, Some(Gone::Removed), 9, "rule of before"),
        ];
        let sum = whole(&all).unwrap();
        assert_eq!(sum.rows, [row![137u32, "web"]]);
        assert_eq!(sum.to_string(), "hits  rule\n 137  web\n");
        assert_eq!(
            gone_in_it(&all).unwrap(),
            "What is gone is in it: runtime 1 (failed: as it was last known), runtime 2 (removed)"
        );
        let line = serde_json::to_string(&all).unwrap();
        assert_eq!(serde_json::from_str::<Vec<Told>>(&line).unwrap(), all);
        assert_eq!(sum.objects()[0]["hits"], 137u32.into());
        all.retain(|told| told.gone.is_none());
        assert_eq!(gone_in_it(&all), None);
        all[0].said = Said::Text("up".into());
        all.truncate(1);
        assert_eq!(whole(&all), None);
    }
}
