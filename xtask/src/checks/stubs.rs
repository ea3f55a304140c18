//! Nothing is left for later: no stubs, no notes to oneself, no tests that never run.

use super::Check;
use crate::workspace::{File, Violation, Workspace};

pub const CHECK: Check = Check {
    name: "stubs",
    rule: "no stub, no note for later, no ignored test",
    run,
};

/// Words that must not stand in a source file, and the remedy. Written in halves, so that this file
/// passes.
const FORBIDDEN: &[(&str, &str)] = &[
    (concat!("to", "do!("), "a stub: write it, or leave the item out"),
    (
        concat!("unimple", "mented!("),
        "a stub: write it, or leave the item out",
    ),
    (
        concat!("#[ig", "nore"),
        "a test that never runs: make it run, or take it out",
    ),
    (
        concat!("```ig", "nore"),
        "an example that is not compiled: write `no_run`, or make it run",
    ),
    (concat!("TO", "DO"), "a note for later: do it, or open an issue"),
    (concat!("FIX", "ME"), "a note for later: do it, or open an issue"),
    (concat!("XX", "X"), "a note for later: do it, or open an issue"),
];

fn run(workspace: &Workspace) -> Vec<Violation> {
    workspace
        .files
        .iter()
        .filter(|file| file.is_rust())
        .flat_map(judge)
        .collect()
}

fn judge(file: &File) -> Vec<Violation> {
    let mut found = Vec::new();
    for (number, line) in file.lines() {
        for (forbidden, remedy) in FORBIDDEN {
            if line.contains(forbidden) {
                found.push(Violation::at(file, number, format!("`{forbidden}` is {remedy}")));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_found_with_its_line() {
        for (forbidden, _) in FORBIDDEN {
            let file = File {
                path: "src/a.rs".into(),
                text: format!("fn a() {{\n    {forbidden}\n}}\n"),
            };
            let found = judge(&file);
            assert!(!found.is_empty(), "{forbidden}");
            assert_eq!(found[0].place, "src/a.rs:2");
        }
    }
}
