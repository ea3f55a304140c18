//! Functions' answers to operators at a runtime, and the counts of functions at gone runtimes
//! ([`nf::Adds::Counted`]).
//!
//! ```text
//!   remove ─► Removed, until that runtime is added again: its functions go on counting
//!   kill ───► Failed, to the end; the next of its number begins at nothing, but for functions
//!             with a store: they go on with its counts
//! ```
//!
//! Not here: how they are added to the others' counts ([`crate::tables`]).

use super::{Shared, silent};
use crate::control::counted::{Counted, Counts};
use crate::member::Membership;
use crate::tables::{Gone, Said, Told};
use nf::Adds;
use nf::table::ROWS_MAX;
use runtime::worker::asked::TableRows;
use runtime::{Port, Runtime};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

/// Asks a function at each runtime; in front of the answers are the counts of gone runtimes.
pub(super) fn ask(shared: &Shared, function: &str, words: &[&str]) -> Result<Vec<Told>, String> {
    let gone = shared
        .worker_pool
        .as_ref()
        .map(|worker_pool| worker_pool.counted.told(function, words));
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

/// Of its time a runtime spends this part on being asked at most: tables may be long.
const SHARE: u32 = 1000;

/// The counts of functions at a member, in this incarnation of it. They are said when the runtimes
/// have ended, too.
#[derive(Default)]
pub(super) struct Own {
    incarnation: u64,
    left: OnceLock<Vec<Counted>>,
    last: Mutex<Option<Asked>>,
}

/// The answers of the runtimes, and until when they are not asked again.
struct Asked {
    until: Instant,
    counts: Counts,
}

impl Own {
    /// Of a member; otherwise no coordinator asks for it.
    pub fn of(member: Option<&Membership>) -> Self {
        Own {
            incarnation: member.map_or(0, |member| member.incarnation.number()),
            ..Own::default()
        }
    }

    /// The runtimes are about to end.
    pub fn end(&self, shared: &Shared) {
        if self.incarnation > 0 {
            let _ = self.left.set(at_member(shared));
        }
    }

    pub fn counts(&self, shared: &Shared) -> Counts {
        if let Some(left) = self.left.get() {
            return Counts::of(self.incarnation, left.clone());
        }
        let mut said = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = said.as_ref().filter(|last| Instant::now() < last.until) {
            return last.counts.clone();
        }
        let began = Instant::now();
        let counts = Counts::of(self.incarnation, at_member(shared));
        *said = Some(Asked {
            until: Instant::now() + SHARE * began.elapsed(),
            counts: counts.clone(),
        });
        counts
    }
}

/// The counts of functions at the runtimes here, but for functions with a store, which go on with
/// the store's.
fn at_member(shared: &Shared) -> Vec<Counted> {
    let mut all = Vec::new();
    for (index, runtime) in &shared.runtimes() {
        let asked = runtime.runtime(|runtime| {
            let stored = runtime.variables().into_iter().map(|(function, _)| function);
            let stored: Vec<String> = stored.collect();
            (runtime.counted_rows(ROWS_MAX), stored)
        });
        // A runtime that does not answer now is asked again.
        let Ok((tables, stored)) = asked else { continue };
        let kept = tables.into_iter().filter(|of| !stored.contains(&of.function));
        all.extend(kept.map(|of| Counted {
            runtime: *index,
            function: of.function.clone(),
            table: of.table.name.to_owned(),
            rows: of.into(),
        }));
    }
    all
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
            None => {
                let text = runtime.command(&function, &words)?;
                Ok(match runtime.command_rows(&function, &words) {
                    Some(rows) => Said::Both(text, rows.into()),
                    None => Said::Text(text),
                })
            }
        }
    }
}

/// By number and how they went: their functions' tables.
#[derive(Default)]
pub(super) struct Ended(Mutex<BTreeMap<(u16, Gone), Vec<TableRows>>>);

impl Ended {
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

    /// A runtime of this number is there again: a removed one with its functions, any other with
    /// the store's counts (of these functions).
    pub fn is_back(&self, runtime: u16, stored: &[String]) {
        let mut all = self.all();
        all.remove(&(runtime, Gone::Removed));
        if let Some(tables) = all.get_mut(&(runtime, Gone::Failed)) {
            tables.retain(|of| !stored.contains(&of.function));
        }
    }

    /// The answers of gone runtimes if one of a function's tables is asked for.
    pub fn told(&self, function: &str, words: &[&str]) -> Vec<Told> {
        let is_asked = |of: &&TableRows| of.function == function && words.first() == Some(&of.table.name);
        let told = |(&(runtime, gone), tables): (&(u16, Gone), &Vec<TableRows>)| {
            Some(Told {
                runtime,
                member: None,
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

#[cfg(test)]
mod tests {
    use super::*;
    use nf::{Table, row};

    static RULES: Table = Table {
        name: "rules",
        columns: &[("hits", Adds::Counted), ("rule", Adds::Name)],
        top: 0,
        metrics: &[],
    };

    fn counted(function: &str, hits: u32) -> TableRows {
        TableRows {
            function: function.into(),
            table: &RULES,
            rows: vec![row![hits, "web"]],
            top: 0,
            left_out: 0,
        }
    }

    #[test]
    fn what_a_store_has_is_counted_once() {
        let all = Ended::default();
        all.note(
            1,
            Gone::Failed,
            vec![counted("firewall", 7), counted("counter", 7)],
        );
        all.note(1, Gone::Failed, vec![counted("firewall", 3)]);
        all.note(2, Gone::Removed, vec![counted("firewall", 5)]);
        let of = |function: &str| {
            let told = all.told(function, &["rules", "10"]);
            let hits = told.iter().map(|told| match &told.said {
                Said::Rows(rows) => rows.rows[0][0].number(),
                _ => None,
            });
            hits.flatten().collect::<Vec<_>>()
        };
        assert_eq!((of("firewall"), of("counter")), (vec![10, 5], vec![7]));
        all.is_back(1, &["counter".to_owned()]);
        all.is_back(2, &[]);
        assert_eq!((of("firewall"), of("counter")), (vec![10], vec![]));
    }
}
