//! What operators ask functions for and say to them.
//!
//! Not here: how the answers of several runtimes are one ([`nf::table`]).

use super::Runtime;
use crate::env::Port;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// A function's table, as one runtime has it.
#[derive(Clone, Debug, PartialEq)]
pub struct TableRows {
    /// The function, as configured.
    pub function: String,
    /// Which table.
    pub table: &'static nf::Table,
    /// Its rows.
    pub rows: Vec<nf::Row>,
}

impl<P: Port> Runtime<P> {
    /// Gives an operator's words to a function, by the name the configuration calls it. A table is
    /// answered as text.
    pub fn command(&mut self, function: &str, words: &[&str]) -> Result<String, String> {
        if let Some(answer) = self.table(function, words)? {
            return Ok(answer.table.text(&answer.rows));
        }
        let index = self.place_of(function)?;
        // The command may be one that ends flows.
        self.core.runner.note_recalls();
        self.core.runner.stages().functions[index].command(words)
    }

    /// One of a function's tables, if the only word is its name.
    pub fn table(&self, function: &str, words: &[&str]) -> Result<Option<TableRows>, String> {
        let stage = &self.core.runner.stages().functions[self.place_of(function)?];
        let [word] = words else { return Ok(None) };
        let named = stage.tables().iter().find(|table| table.name == *word);
        Ok(named.map(|table| TableRows {
            function: function.into(),
            table,
            rows: stage.rows(table.name),
        }))
    }

    /// What this runtime's functions have counted: what is left of it when it goes.
    pub fn counted_rows(&self) -> Vec<TableRows> {
        let stages = self.core.runner.stages();
        let mut all = Vec::new();
        for (name, stage) in stages.names.iter().zip(&stages.functions) {
            for table in stage.tables() {
                let adds: Vec<nf::Adds> = table.adds().collect();
                if adds.contains(&nf::Adds::Counted) {
                    let (function, mut rows) = (name.clone(), stage.rows(table.name));
                    nf::table::keep_counts(&adds, &mut rows);
                    all.push(TableRows {
                        function,
                        table,
                        rows,
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

    /// What operators have said to functions that another runtime is to hear, too: the function's
    /// name, and words for [`Runtime::command`].
    pub fn said(&self) -> Vec<(String, Vec<String>)> {
        let stages = self.core.runner.stages();
        let each = stages.names.iter().zip(&stages.functions);
        each.flat_map(|(name, function)| function.said().into_iter().map(|words| (name.clone(), words)))
            .collect()
    }
}
