//! The counts of functions at members whose processes have ended.
//!
//! # Theory of operation
//!
//! ```text
//!   coordinator ── Request::Counted ─► member: its incarnation, and its runtimes' counts
//!               ◄──────────────────────┘
//!   kept of a member = its newest incarnation's tables, and the sum of the incarnations before   ([`KEEPER`])
//!   operator ── Counted(member) ─► the kept counts, without the incarnation that the view has ([`Counts::gone`])
//! ```
//!
//! An incarnation is an incarnation of the member. It counts from nothing, but for functions with a
//! store, which go on with the store's counts: these are not in it.
//!
//! Bounds: of each table [`ROWS_MAX`] rows, fewer where [`BYTES_MAX`] have no more. Rows that have
//! counted nothing go first, then the rows with the smallest figures.
//!
//! Not here: when members are asked (`coordinator::kept`), the counts of runtimes that a process
//! has ended by itself (`run`).

use super::{Answer, Reply, Request};
use crate::tables::{Gone, Rows, Said, Told};
use coordinator::kept::Keeper;
use nf::Adds;
use nf::table::{ROWS_MAX, Value, keep_top, sum};
use serde::{Deserialize, Serialize};

/// Bytes of the tables of a member's newest incarnation, and of those before.
const BYTES_MAX: usize = 100 << 10;

/// For a coordinator: asks members for their counts, and adds them up.
pub const KEEPER: Keeper = Keeper { question, add };

/// The counts of a member, in this incarnation and in those before.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// The newest incarnation: the member's incarnation.
    pub incarnation: u64,
    /// Its tables.
    pub tables: Vec<Counted>,
    /// Of all incarnations before.
    #[serde(default)]
    pub before: Vec<Counted>,
}

/// The counts of one runtime, of one table.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct Counted {
    /// The runtime.
    pub runtime: u16,
    /// The function, as chains name it.
    pub function: String,
    /// The table.
    pub table: String,
    /// Its rows.
    pub rows: Rows,
}

impl Counts {
    /// Of an incarnation, within the bounds.
    pub fn of(incarnation: u64, tables: Vec<Counted>) -> Self {
        Counts {
            incarnation,
            tables: within_bounds(tables),
            before: Vec::new(),
        }
    }

    /// The counts that are kept, once this was said.
    fn followed_by(mut self, said: Counts) -> Counts {
        if said.incarnation != self.incarnation {
            for more in self.tables {
                let is_same = |of: &&mut Counted| {
                    (of.runtime, &of.function, &of.table) == (more.runtime, &more.function, &more.table)
                        && of.rows.columns == more.rows.columns
                };
                match self.before.iter_mut().find(is_same) {
                    Some(same) => {
                        let adds = adds_of(&more.rows);
                        let both = [(&same.rows.rows[..], false), (&more.rows.rows[..], false)];
                        same.rows.rows = sum(&adds, both);
                    }
                    None => self.before.push(more),
                }
            }
            self.before = within_bounds(self.before);
        }
        Counts {
            before: self.before,
            ..said
        }
    }

    /// The counts of ended incarnations of a member, of a function's table; `living` is the
    /// incarnation that goes on.
    pub fn gone(self, living: Option<u64>, member: &str, function: &str, table: &str) -> Vec<Told> {
        let ended = match living == Some(self.incarnation) {
            true => Vec::new(),
            false => self.tables,
        };
        let all = self.before.into_iter().chain(ended);
        let asked = all.filter(|of| of.function == function && of.table == table);
        let told = asked.map(|of| Told {
            runtime: of.runtime,
            member: Some(member.to_owned()),
            gone: Some(Gone::Ended),
            said: Said::Rows(of.rows),
        });
        told.collect()
    }
}

fn question() -> Vec<u8> {
    serde_json::to_vec(&Request::Counted).unwrap_or_default()
}

fn add(kept: &[u8], said: &[u8]) -> Option<Vec<u8>> {
    let Ok(Reply::Ok(Answer::Counted(said))) = serde_json::from_slice(said) else {
        return None;
    };
    // A member says its own counts; counts from before its incarnation are not its to say.
    let said = Counts::of(said.incarnation, said.tables);
    let kept: Counts = match kept {
        [] => Counts {
            incarnation: said.incarnation,
            ..Counts::default()
        },
        kept => serde_json::from_slice(kept).ok()?,
    };
    serde_json::to_vec(&kept.followed_by(said)).ok()
}

fn adds_of(rows: &Rows) -> Vec<Adds> {
    rows.columns.iter().map(|(_, adds)| *adds).collect()
}

fn within_bounds(mut tables: Vec<Counted>) -> Vec<Counted> {
    let is_long = |tables: &Vec<Counted>| {
        let bytes = serde_json::to_vec(tables).map_or(usize::MAX, |bytes| bytes.len());
        bytes > BYTES_MAX || tables.iter().any(|of| of.rows.rows.len() > ROWS_MAX)
    };
    if !is_long(&tables) {
        return tables;
    }
    for of in &mut tables {
        let adds = adds_of(&of.rows);
        let has_counted = |row: &nf::Row| {
            let mut cells = adds.iter().zip(row);
            cells.any(|(adds, cell)| {
                *adds == Adds::Counted && !matches!(cell, Value::Number(0) | Value::Text(_))
            })
        };
        of.rows.rows.retain(has_counted);
    }
    let mut most = ROWS_MAX;
    while is_long(&tables) && most > 0 {
        for of in &mut tables {
            let adds = adds_of(&of.rows);
            keep_top(&adds, &mut of.rows.rows, most);
        }
        most /= 2;
    }
    if is_long(&tables) {
        tables.clear();
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;
    use nf::row;

    fn counted(runtime: u16, rows: Vec<nf::Row>) -> Counted {
        Counted {
            runtime,
            function: "firewall".to_owned(),
            table: "rules".to_owned(),
            rows: Rows {
                columns: vec![
                    ("hits".to_owned(), Adds::Counted),
                    ("rule".to_owned(), Adds::Name),
                ],
                rows,
                top: 0,
                left_out: 0,
            },
        }
    }

    fn says(incarnation: u64, hits: u32) -> Vec<u8> {
        let tables = vec![counted(1, vec![row![hits, "web"]])];
        let counts = Counts::of(incarnation, tables);
        serde_json::to_vec(&Reply::Ok(Answer::Counted(counts))).unwrap()
    }

    /// The hits that are of incarnations that have ended.
    fn gone(kept: &[u8], living: Option<u64>) -> u64 {
        let counts: Counts = serde_json::from_slice(kept).unwrap();
        let told = counts.gone(living, "left", "firewall", "rules");
        let hits = told.iter().map(|told| match &told.said {
            Said::Rows(rows) => rows.rows[0][0].number().unwrap(),
            other => panic!("{other:?}"),
        });
        hits.sum()
    }

    #[test]
    fn each_incarnation_is_counted_once() {
        let kept = add(&[], &says(7, 10)).unwrap();
        let kept = add(&kept, &says(7, 15)).unwrap();
        assert_eq!([gone(&kept, Some(7)), gone(&kept, None)], [0, 15]);
        // The member has begun again, and the coordinator has not heard that incarnation yet.
        assert_eq!(gone(&kept, Some(8)), 15);
        let kept = add(&kept, &says(8, 3)).unwrap();
        assert_eq!([gone(&kept, Some(8)), gone(&kept, None)], [15, 18]);
        let kept = add(&kept, &says(9, 1)).unwrap();
        assert_eq!([gone(&kept, Some(9)), gone(&kept, None)], [18, 19]);
        assert!(
            serde_json::from_slice::<Counts>(&kept)
                .unwrap()
                .gone(None, "left", "nat", "rules")
                .is_empty()
        );
    }

    #[test]
    fn what_is_no_answer_or_says_of_other_incarnations_changes_nothing() {
        let kept = add(&[], &says(7, 10)).unwrap();
        for said in [&b""[..], b"\xff", b"{\"ok\":\"stopping\"}", br#"{"error":"no"}"#] {
            assert_eq!(add(&kept, said), None);
        }
        let mut counts = Counts::of(7, vec![counted(1, vec![row![11u32, "web"]])]);
        counts.before = vec![counted(1, vec![row![1_000_000u32, "web"]])];
        let said = serde_json::to_vec(&Reply::Ok(Answer::Counted(counts))).unwrap();
        assert_eq!(gone(&add(&kept, &said).unwrap(), None), 11);
    }

    #[test]
    fn the_greatest_figures_stay_where_there_are_too_many() {
        let rows = |count: u32| {
            (0..count).map(|hits| row![hits, format!("rule {hits} {}", "x".repeat(40)).as_str()])
        };
        let kept = Counts::of(
            1,
            vec![counted(0, rows(5000).collect()), counted(1, rows(10).collect())],
        );
        let bytes = serde_json::to_vec(&kept).unwrap().len();
        assert!(bytes <= BYTES_MAX + 1000, "{bytes}");
        let [many, few] = &kept.tables[..] else { panic!() };
        assert_eq!(many.rows.rows[0][0].number(), Some(4999));
        assert!(many.rows.rows.len() >= 250, "{}", many.rows.rows.len());
        assert_eq!(few.rows.rows.len(), 9, "the one without a hit went first");
        let long = vec![counted(0, vec![row![1u32, "x".repeat(BYTES_MAX).as_str()]])];
        assert!(Counts::of(1, long).tables.is_empty());
    }
}
