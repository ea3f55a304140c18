//! Questions and commands of operators to functions.
//!
//! Not here: how the answers of several runtimes are one ([`nf::table`]).

use super::Runtime;
use crate::env::Port;
use crate::stage::Stage;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use nf::objects::ObjectsHere;

/// A function's table, as one runtime has it.
#[derive(Clone, Debug, PartialEq)]
pub struct TableRows {
    /// The function, as configured.
    pub function: String,
    /// Which table.
    pub table: &'static nf::Table,
    /// Its rows.
    pub rows: Vec<nf::Row>,
    /// How many are asked for, those with the greatest figures; 0: all.
    pub top: usize,
    /// For the metrics: rows that the function has besides.
    pub left_out: usize,
}

impl TableRows {
    /// The rows that are asked for.
    fn top_rows(&self) -> Vec<nf::Row> {
        let adds: Vec<nf::Adds> = self.table.adds().collect();
        let mut rows = self.rows.clone();
        nf::table::keep_top(&adds, &mut rows, self.top);
        rows
    }
}

/// How many rows a runtime answers at most.
fn most_of(table: &nf::Table) -> usize {
    match table.top {
        0 => usize::MAX,
        _ => nf::table::ROWS_MAX,
    }
}

/// A table's rows; the greatest, if the function has more than so many.
fn rows_of(stage: &dyn Stage, table: &nf::Table, most: usize, here: ObjectsHere<'_>) -> Vec<nf::Row> {
    let mut rows = stage.rows(table.name, most, here);
    if rows.len() > most {
        let adds: Vec<nf::Adds> = table.adds().collect();
        nf::table::keep_top(&adds, &mut rows, most);
    }
    rows
}

impl<P: Port> Runtime<P> {
    /// Gives an operator's words to a function, by the name the configuration calls it. A table is
    /// answered as text.
    pub fn command(&mut self, function: &str, words: &[&str]) -> Result<String, String> {
        if let Some(answer) = self.table(function, words)? {
            return Ok(answer.table.text(&answer.top_rows()));
        }
        let index = self.place_of(function)?;
        // The command may end flows.
        self.core.runner.note_recalls();
        self.core.runner.stages().functions[index].command(words)
    }

    /// The figures in the answer of a command that was carried out, if it has any.
    pub fn command_rows(&self, function: &str, words: &[&str]) -> Option<nf::table::Answer> {
        let index = self.place_of(function).ok()?;
        self.core
            .runner
            .stages()
            .functions
            .get(index)?
            .command_rows(words)
    }

    /// One of a function's tables, if the words ask for it. A table that may be long has more rows
    /// than are asked for: which are the greatest is known of all runtimes' sums.
    pub fn table(&self, function: &str, words: &[&str]) -> Result<Option<TableRows>, String> {
        let stage = &self.core.runner.stages().functions[self.place_of(function)?];
        let here = self.objects_here();
        let asked = nf::Table::asked(stage.tables(), words)?;
        Ok(asked.map(|(table, top)| TableRows {
            function: function.into(),
            table,
            rows: rows_of(&**stage, table, most_of(table), here),
            top,
            left_out: 0,
        }))
    }

    /// The tables that are in the metrics.
    pub fn figures(&self) -> Vec<TableRows> {
        let (stages, here) = (self.core.runner.stages(), self.objects_here());
        let each = stages.names.iter().zip(&stages.functions);
        let tables = each.flat_map(|(name, stage)| {
            let shown = stage.tables().iter().filter(|table| !table.metrics.is_empty());
            shown.map(move |table| {
                let rows = rows_of(&**stage, table, nf::table::FIGURES_MAX, here);
                let all = match rows.len() < nf::table::FIGURES_MAX {
                    true => rows.len(),
                    false => stage.row_count(table.name, here),
                };
                TableRows {
                    function: name.clone(),
                    table,
                    left_out: all.saturating_sub(rows.len()),
                    rows,
                    top: 0,
                }
            })
        });
        tables.collect()
    }

    /// The figures that this runtime's functions have counted, so many rows of each table at most:
    /// they remain when it goes.
    pub fn counted_rows(&self, most: usize) -> Vec<TableRows> {
        let (stages, here) = (self.core.runner.stages(), self.objects_here());
        let mut all = Vec::new();
        for (name, stage) in stages.names.iter().zip(&stages.functions) {
            for table in stage.tables() {
                let adds: Vec<nf::Adds> = table.adds().collect();
                if adds.contains(&nf::Adds::Counted) {
                    let most = most.min(most_of(table));
                    let (function, mut rows) = (name.clone(), rows_of(&**stage, table, most, here));
                    nf::table::keep_counts(&adds, &mut rows);
                    all.push(TableRows {
                        function,
                        table,
                        rows,
                        top: 0,
                        left_out: 0,
                    });
                }
            }
        }
        all
    }

    fn place_of(&self, function: &str) -> Result<usize, String> {
        let names = &self.core.runner.stages().names;
        let place = names.iter().position(|name| name == function);
        place.ok_or_else(|| {
            let names = names.join(", ");
            format!("there is no function `{function}`; there are: {names}")
        })
    }

    /// Commands of operators to functions that another runtime is to hear, too: the function's
    /// name, and words for [`Runtime::command`].
    pub fn said(&self) -> Vec<(String, Vec<String>)> {
        let stages = self.core.runner.stages();
        let each = stages.names.iter().zip(&stages.functions);
        each.flat_map(|(name, function)| function.said().into_iter().map(|words| (name.clone(), words)))
            .collect()
    }
}
