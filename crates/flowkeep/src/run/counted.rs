//! What functions answer operators at a runtime, and what those at runtimes that are gone had counted ([`nf::Adds::Counted`]).
//!
//! ```text
//!   remove ─► Removed, until that runtime is added again: its functions go on counting
//!   kill ───► Failed, to the end; the next of its number begins at nothing
//! ```
//!
//! Not here: how it is added to what the others have ([`crate::tables`]).

use super::{Shared, silent};
use crate::tables::{Gone, Said, Told};
use nf::Adds;
use runtime::worker::asked::TableRows;
use runtime::{Port, Runtime};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Asks a function at each runtime; in front of the answers is what those that are gone had counted.
pub(super) fn ask(shared: &Shared, function: &str, words: &[&str]) -> Result<Vec<Told>, String> {
    let gone = shared
        .staff
        .as_ref()
        .map(|staff| staff.counted.told(function, words));
    let mut answers = gone.unwrap_or_default();
    for (index, runtime) in &shared.runtimes() {
        let asked = runtime.runtime(asking(function, words));
        match asked {
            Ok(said) => answers.push(Told::there(*index, said?)),
            other => return Err(silent(*index, &other, "the others before it have done it")),
        }
    }
    Ok(answers)
}

/// The question to one runtime.
fn asking<P: Port>(
    function: &str,
    words: &[&str],
) -> impl FnOnce(&mut Runtime<P>) -> Result<Said, String> + Send + use<P> {
    let function = function.to_owned();
    let words: Vec<String> = words.iter().map(ToString::to_string).collect();
    move |runtime| {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match runtime.table(&function, &words)? {
            Some(table) => Ok(Said::Rows(table.into())),
            None => runtime.command(&function, &words).map(Said::Text),
        }
    }
}

/// By number and how they went: their functions' tables.
#[derive(Default)]
pub(super) struct Counted(Mutex<BTreeMap<(u16, Gone), Vec<TableRows>>>);

impl Counted {
    /// The runtime is gone, and had counted this.
    pub fn note(&self, runtime: u16, gone: Gone, tables: Vec<TableRows>) {
        let mut all = self.all();
        let known = all.entry((runtime, gone)).or_default();
        for more in tables {
            let is_same = |of: &&mut TableRows| (&of.function, of.table) == (&more.function, more.table);
            match known.iter_mut().find(is_same) {
                Some(same) => {
                    let adds: Vec<Adds> = more.table.adds().collect();
                    same.rows = nf::table::sum(&adds, [(&more.rows[..], false), (&same.rows[..], true)]);
                }
                None => known.push(more),
            }
        }
    }

    /// One that was removed is there again, with its functions.
    pub fn is_back(&self, runtime: u16) {
        self.all().remove(&(runtime, Gone::Removed));
    }

    /// What those that are gone answer if one of a function's tables is asked for.
    pub fn told(&self, function: &str, words: &[&str]) -> Vec<Told> {
        let is_asked = |of: &&TableRows| of.function == function && words == [of.table.name];
        let told = |(&(runtime, gone), tables): (&(u16, Gone), &Vec<TableRows>)| {
            Some(Told {
                runtime,
                gone: Some(gone),
                said: Said::Rows(tables.iter().find(is_asked)?.clone().into()),
            })
        };
        self.all().iter().filter_map(told).collect()
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<(u16, Gone), Vec<TableRows>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
