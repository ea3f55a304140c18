//! A worker's code does not panic: each form of code that can has its place in a reviewed list.
//!
//! A worker is the sources of six crates, its ports and links are those of a seventh, and its way
//! to its store those of an eighth ([`CRATES`]): a panic on any thread ends the process. A form is
//! found by its text, as rustfmt writes it ([`FORMS`]):
//!
//! ```text
//!   sources, tests excepted ─► (file, form) ─► count ─┐
//!   no_panics.txt: file | form | count | why ─────────┴─► equal, and said why; or a violation
//! ```
//!
//! So a new `expect` or index fails the check until its file's line says why it cannot fail; and a
//! line must go, or its count fall, with the code. A method that panics on bounded vectors and a
//! method that does not share a name (`push`): all are counted.
//!
//! Not covered: overflow of numbers (release builds wrap), a subtraction of times, stack overflow,
//! an allocation that fails, other crates' code, and an author's functions outside this repository.
//! A count is a review of a file, not a proof of each place: the fuzz targets and the random tests
//! run what the lines with `fuzzed` name. Nor the code of `crates/flowkeep/src/run` and
//! `crates/coordinator/src/agent` that runs on a worker's thread: the worker's stepping, its member
//! slot, and commands of the control thread. Their indexing and pushing is not counted.

use super::Check;
use crate::workspace::{File, Violation, Workspace};
use std::collections::BTreeMap;

pub const CHECK: Check = Check {
    name: "no-panics",
    rule: "code of a worker that can panic is in xtask/src/checks/no_panics.txt, with the reason why it does not",
    run,
};

const LIST: &str = "xtask/src/checks/no_panics.txt";

const CRATES: &[&str] = &[
    "crates/wire/src/",
    "crates/nf/src/",
    "crates/variables/src/",
    "crates/protocols/src/",
    "crates/runtime/src/",
    "crates/functions/src/",
    "crates/adapters/src/",
    "crates/stores/src/",
];

/// Sources that no worker runs: frames for tests, by feature.
const NOT_RUN: &[&str] = &["crates/wire/src/testing.rs", "crates/wire/src/hostile"];

/// How a form is found in a line of code.
enum Sign {
    /// Any of these texts.
    Text(&'static [&'static str]),
    /// A macro of this name, and no longer name.
    Macro(&'static [&'static str]),
    /// `a[…]`: rustfmt puts no space there, and one before each other bracket.
    Index,
    /// By something that is no literal and no constant.
    Division,
}

const FORMS: &[(&str, Sign)] = &[
    ("expect", Sign::Text(&[".expect("])),
    ("unwrap", Sign::Text(&[".unwrap()"])),
    (
        "panic",
        Sign::Macro(&["panic!", "unreachable!", "todo!", "unimplemented!"]),
    ),
    ("assert", Sign::Macro(&["assert!", "assert_eq!", "assert_ne!"])),
    ("copy", Sign::Text(&["copy_from_slice(", "clone_from_slice("])),
    (
        "split",
        Sign::Text(&[".split_at(", ".split_at_mut(", ".split_off("]),
    ),
    // `RefCell`.
    ("borrow", Sign::Text(&[".borrow()", ".borrow_mut()"])),
    ("push", Sign::Text(&[".push("])),
    ("insert", Sign::Text(&[".insert("])),
    ("remove", Sign::Text(&[".remove(", ".swap_remove("])),
    ("drain", Sign::Text(&[".drain("])),
    ("extend", Sign::Text(&[".extend("])),
    ("index", Sign::Index),
    ("divide", Sign::Division),
];

type Counts<'a> = BTreeMap<(&'a str, &'a str), usize>;

fn run(workspace: &Workspace) -> Vec<Violation> {
    let mut found = Counts::new();
    let is_run = |file: &&File| {
        file.is_rust()
            && !file.is_of_tests()
            && CRATES.iter().any(|place| file.path.starts_with(place))
            && !NOT_RUN.iter().any(|place| file.path.starts_with(place))
    };
    for file in workspace.files.iter().filter(is_run) {
        for (form, sign) in FORMS {
            let count: usize = code(&file.text).map(|line| sign.count(line)).sum();
            if count > 0 {
                found.insert((&file.path, form), count);
            }
        }
    }
    let list = workspace.files.iter().find(|file| file.path == LIST);
    let (listed, mut violations) = list.map_or_else(Default::default, read);
    for ((path, form), count) in &found {
        let may = listed.get(&(*path, *form)).copied().unwrap_or(0);
        if *count != may {
            violations.push(Violation::of(
                *path,
                format!("has {count} of the form `{form}`, and {may} are in {LIST}: see that none can fail, and say why there"),
            ));
        }
    }
    for ((path, form), _) in listed.iter().filter(|(place, _)| !found.contains_key(*place)) {
        violations.push(Violation::of(
            LIST,
            format!("`{form}` is not in {path}: the line goes"),
        ));
    }
    violations
}

/// The lines of the list: `file | form | count | why`.
fn read(list: &File) -> (Counts<'_>, Vec<Violation>) {
    let (mut counts, mut violations) = (Counts::new(), Vec::new());
    for (number, line) in list.lines() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let parts: Vec<&str> = line.split('|').map(str::trim).collect();
        let entry = match parts[..] {
            [path, form, count, why] if why.len() >= 10 => {
                count.parse().ok().map(|count| (path, form, count))
            }
            _ => None,
        };
        match entry {
            Some((path, form, count)) if counts.insert((path, form), count).is_none() => {}
            _ => violations.push(Violation::at(
                list,
                number,
                "is no `file | form | count | why`, or there twice",
            )),
        }
    }
    (counts, violations)
}

/// Lines of code: no comments, nothing of the unit tests at a file's end, nothing that is judged
/// when the binary is built.
fn code(text: &str) -> impl Iterator<Item = &str> {
    let mut modules = text.match_indices("\n#[cfg(test)]\nmod ").map(|(at, _)| at);
    let opens = |at: &usize| text[*at..].lines().nth(2).is_some_and(|line| line.ends_with('{'));
    let end = modules.find(opens).unwrap_or(text.len());
    text[..end].lines().filter(|line| {
        let line = line.trim_start();
        !line.starts_with("//") && !line.starts_with("const _: () = assert!") && !line.starts_with("#[")
    })
}

impl Sign {
    fn count(&self, line: &str) -> usize {
        let line = line.find(" // ").map_or(line, |at| &line[..at]);
        let before = |at: usize| line[..at].chars().next_back();
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        match self {
            Sign::Text(texts) => texts.iter().map(|text| line.matches(text).count()).sum(),
            Sign::Macro(names) => {
                let all = names.iter().flat_map(|name| line.match_indices(name));
                all.filter(|(at, _)| !before(*at).is_some_and(is_name)).count()
            }
            Sign::Index => {
                let is_indexed = |c: char| is_name(c) || matches!(c, ')' | ']' | '?');
                let all = line.match_indices('[');
                all.filter(|(at, _)| before(*at).is_some_and(is_indexed)).count()
            }
            Sign::Division => {
                let by = |at: usize| line[at..].trim_start().chars().next();
                let all = [" / ", " % ", " /= ", " %= "]
                    .iter()
                    .flat_map(|sign| line.match_indices(sign).map(|(at, sign)| at + sign.len()));
                all.filter(|at| by(*at).is_some_and(|c| c.is_lowercase() || c == '('))
                    .count()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File {
            path: path.into(),
            text: text.into(),
        }
    }

    fn found(source: &str, list: &str) -> Vec<String> {
        let workspace = Workspace {
            files: vec![file("crates/nf/src/a.rs", source), file(LIST, list)],
            ..Workspace::default()
        };
        run(&workspace)
            .into_iter()
            .map(|violation| violation.problem)
            .collect()
    }

    #[test]
    fn each_form_is_found_where_it_is_not_listed() {
        for (line, form) in [
            ("    a.expect(\"b\");", "expect"),
            ("    a.unwrap();", "unwrap"),
            ("        None => unreachable!(),", "panic"),
            ("    assert!(a < b);", "assert"),
            ("    a.copy_from_slice(b);", "copy"),
            ("    let (a, b) = c.split_at(d);", "split"),
            ("    a.borrow_mut();", "borrow"),
            ("    a.push(b);", "push"),
            ("    a.insert(0, b);", "insert"),
            ("    a.swap_remove(0);", "remove"),
            ("    a.drain(..3);", "drain"),
            ("    a.extend(b);", "extend"),
            ("    let a = b.c()[d];", "index"),
            ("    let a = &b[c..];", "index"),
            ("    let a = b % c.d;", "divide"),
        ] {
            let problems = found(&format!("fn a() {{\n{line}\n}}\n"), "");
            assert_eq!(problems.len(), 1, "{line}: {problems:?}");
            assert!(
                problems[0].contains(&format!("1 of the form `{form}`")),
                "{problems:?}"
            );
        }
    }

    #[test]
    fn what_cannot_panic_is_let_alone() {
        let source = "//! a[0].unwrap()\n\
            #[derive(Debug)]\n\
            const _: () = assert!(A == 1);\n\
            fn a(b: &[u8; 4], c: Vec<[u8; 2]>) -> [u8; 2] {\n\
            \x20   debug_assert!(b); // c[0]\n\
            \x20   let [d, e] = vec![1, 2];\n\
            \x20   f / 2 % SIZE\n\
            }\n\
            #[cfg(test)]\nmod tests {\n    fn a() { b.unwrap() }\n}\n";
        assert_eq!(found(source, ""), Vec::<String>::new());
    }

    #[test]
    fn the_list_has_each_place_with_its_reason_and_no_other() {
        let source = "fn a() {\n    b[c] = d[e];\n}\n";
        let line =
            |count: &str, why: &str| format!("# of the list\ncrates/nf/src/a.rs | index | {count} | {why}\n");
        let why = "both are below the length";
        assert_eq!(found(source, &line("2", why)), Vec::<String>::new());
        assert_eq!(found(source, &line("1", why)).len(), 1);
        assert_eq!(found(source, &line("3", why)).len(), 1);
        // Without a reason the line is none.
        assert_eq!(found(source, &line("2", "")).len(), 2);
        assert_eq!(found("fn a() {}\n", &line("2", why)).len(), 1);
    }

    #[test]
    fn tests_and_other_crates_are_let_alone() {
        let files = [
            "crates/nf/src/tests.rs",
            "crates/nf/src/tests/a.rs",
            "crates/sim/src/a.rs",
        ];
        let workspace = Workspace {
            files: files
                .map(|path| file(path, "fn a() {\n    b.unwrap();\n}\n"))
                .into(),
            ..Workspace::default()
        };
        assert_eq!(run(&workspace), Vec::new());
    }
}
