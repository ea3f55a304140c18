//! Functions' answers to operators (`flowkeep function NAME WORD…`): of each runtime, and as one.
//!
//! A function's tables say how their figures add up ([`nf::table`]), so that their answers are one
//! table over all runtimes and members. With them come answers of runtimes that are gone: their
//! last counts. Any other answer is text, and each runtime's own.
//!
//! Not here: the content of the tables (the functions), the counts of gone runtimes (`run`).

use nf::table::{self, ROWS_MAX, Value};
use nf::{Adds, Row};
use runtime::worker::asked::TableRows;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A function's answer at one runtime.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct Told {
    /// The runtime.
    pub runtime: u16,
    /// The member that had the runtime, for counts that a coordinator keeps.
    #[serde(default)]
    pub member: Option<String>,
    /// The runtime is not there: the answer has its last counts.
    pub gone: Option<Gone>,
    /// The answer.
    pub said: Said,
}

impl Told {
    /// Of a runtime that is there.
    pub fn there(runtime: u16, said: Said) -> Self {
        Told {
            runtime,
            member: None,
            gone: None,
            said,
        }
    }
}

/// How a runtime went that is not there.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "snake_case")]
pub enum Gone {
    /// The runtime was drained and removed.
    Removed,
    /// The runtime failed; the figures are the last that are known.
    Failed,
    /// Its member's process has ended; the figures are the last that the coordinator has heard.
    Ended,
}

/// An answer.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    /// In words.
    Text(String),
    /// A table.
    Rows(Rows),
    /// In words, and in figures.
    Both(String, Rows),
}

impl Said {
    /// The table, if it has one.
    pub fn rows(&self) -> Option<&Rows> {
        match self {
            Said::Text(_) => None,
            Said::Rows(rows) | Said::Both(_, rows) => Some(rows),
        }
    }

    /// The words, if it has some.
    pub fn words(&self) -> Option<&str> {
        match self {
            Said::Text(words) | Said::Both(words, _) => Some(words),
            Said::Rows(_) => None,
        }
    }
}

/// A table, or a part of it.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct Rows {
    /// The columns' names, and how their cells become one.
    pub columns: Vec<(String, Adds)>,
    /// The rows, with a cell for each column.
    pub rows: Vec<Row>,
    /// How many rows are asked for, those with the greatest figures; 0: all.
    #[serde(default)]
    pub top: usize,
    /// How many were left out by that.
    #[serde(skip)]
    pub left_out: usize,
}

impl From<TableRows> for Rows {
    fn from(of: TableRows) -> Self {
        let columns = of.table.columns.iter();
        Rows {
            columns: columns.map(|(name, adds)| ((*name).to_owned(), *adds)).collect(),
            rows: of.rows,
            top: of.top,
            left_out: 0,
        }
    }
}

impl From<table::Answer> for Rows {
    fn from((columns, rows): table::Answer) -> Self {
        let columns = columns.iter().map(|(name, adds)| ((*name).to_owned(), *adds));
        Rows {
            columns: columns.collect(),
            rows,
            top: 0,
            left_out: 0,
        }
    }
}

impl Rows {
    /// The rows that are asked for.
    #[must_use]
    pub fn top(mut self) -> Self {
        let adds: Vec<Adds> = self.columns.iter().map(|(_, adds)| *adds).collect();
        let all = self.rows.len();
        table::keep_top(&adds, &mut self.rows, self.top);
        self.left_out += all - self.rows.len();
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

/// The answers as one table; `None` if they are in words only. An answer of a gone runtime with
/// other columns is of another function, and in no sum.
pub fn whole(answers: &[Told]) -> Option<Rows> {
    let tables = || (answers.iter()).filter_map(|told| Some((told.said.rows()?, told.gone.is_some())));
    let first = tables().find(|(_, is_gone)| !is_gone)?.0;
    let (columns, top) = (first.columns.clone(), first.top);
    let adds: Vec<Adds> = columns.iter().map(|(_, adds)| *adds).collect();
    let alike = tables().filter(|(rows, _)| rows.columns == columns);
    let (gone, there): (Vec<_>, Vec<_>) = alike.partition(|(_, is_gone)| *is_gone);
    let all = there.into_iter().chain(gone);
    let rows = table::sum(&adds, all.map(|(rows, is_gone)| (&rows.rows[..], is_gone)));
    let all = Rows {
        columns,
        rows,
        top,
        left_out: 0,
    };
    Some(all.top())
}

/// Whether the table of all has more rows than are shown of it. A runtime answers [`ROWS_MAX`] rows
/// of a table that may be long, so that one with so many may have more.
pub fn is_cut(answers: &[Told], whole: &Rows) -> bool {
    let there = answers
        .iter()
        .filter_map(|told| Some(told.said.rows()?.rows.len()));
    whole.top > 0 && (whole.left_out > 0 || there.into_iter().any(|count| count >= ROWS_MAX))
}

/// Which runtimes that are gone are in the table; `None` if none is.
pub fn gone_in_it(answers: &[Told]) -> Option<String> {
    let gone = answers.iter().filter_map(|told| {
        let how = match told.gone? {
            Gone::Removed => "removed",
            Gone::Failed => "failed: as it was last known",
            Gone::Ended => "its process has ended: as the coordinator last heard",
        };
        let whose = told.member.as_ref().map(|member| format!(" of {member}"));
        Some(format!(
            "runtime {}{} ({how})",
            told.runtime,
            whose.unwrap_or_default()
        ))
    });
    let mut gone: Vec<String> = gone.collect();
    gone.dedup();
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
            member: None,
            gone,
            said: Said::Rows(Rows {
                columns,
                rows,
                top: 0,
                left_out: 0,
            }),
        }
    }

    #[test]
    fn a_table_that_is_cut_says_so() {
        let of = |top: usize, rules: usize| {
            let mut told = told(0, None, 1, "0");
            if let Said::Rows(rows) = &mut told.said {
                rows.rows = (0..rules)
                    .map(|rule| row![1u32, rule.to_string().as_str()])
                    .collect();
                rows.top = top;
            }
            let whole = whole(std::slice::from_ref(&told)).unwrap();
            (whole.rows.len(), is_cut(&[told], &whole))
        };
        assert_eq!(of(0, 1200), (1200, false), "all are asked for");
        assert_eq!([of(20, 20), of(20, 21)], [(20, false), (20, true)]);
        assert_eq!(
            [of(ROWS_MAX, 999), of(ROWS_MAX, 1000)],
            [(999, false), (1000, true)]
        );
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
