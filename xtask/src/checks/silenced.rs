//! A silenced warning says why.
//!
//! `#[allow(lint, reason = "…")]` passes. An `allow` without a reason does not, and a blanket one
//! (`dead_code`, `unused`, a whole group of clippy's) does not even with one.

use super::Check;
use crate::workspace::{File, Violation, Workspace};

pub const CHECK: Check = Check {
    name: "silenced",
    rule: "a silenced warning says why, and none is silenced wholesale",
    run,
};

const BLANKET: &[&str] = &[
    "dead_code",
    "unused",
    "warnings",
    "clippy::all",
    "clippy::pedantic",
    "clippy::correctness",
    "clippy::suspicious",
    "clippy::complexity",
    "clippy::perf",
    "clippy::style",
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
    for (at, opening) in attributes(&file.text) {
        let rest = &file.text[at + opening.len()..];
        let inside = &rest[..rest.find(")]").unwrap_or(rest.len())];
        let line = file.text[..at].matches('\n').count() + 1;
        let silenced = inside.split("reason").next().unwrap_or(inside);
        if let Some(blanket) = BLANKET
            .iter()
            .find(|blanket| silenced.split(',').any(|lint| lint.trim() == **blanket))
        {
            found.push(Violation::at(
                file,
                line,
                format!("silences `{blanket}` wholesale: mend the cause"),
            ));
        } else if !inside.contains("reason") {
            found.push(Violation::at(
                file,
                line,
                "silences a warning without `reason = \"…\"`",
            ));
        }
    }
    found
}

/// Where `allow` and `expect` attributes open. Attributes in comments and strings do not begin a
/// line.
fn attributes(text: &str) -> impl Iterator<Item = (usize, &'static str)> {
    ["#[allow(", "#![allow(", "#[expect(", "#![expect("]
        .into_iter()
        .flat_map(move |opening| text.match_indices(opening).map(move |(at, _)| (at, opening)))
        .filter(move |(at, _)| {
            let line = &text[text[..*at].rfind('\n').map_or(0, |end| end + 1)..*at];
            line.trim().is_empty()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<Violation> {
        judge(&File {
            path: "src/a.rs".into(),
            text: text.into(),
        })
    }

    #[test]
    fn a_reason_passes() {
        assert!(
            found("#[allow(\n    clippy::too_many_arguments,\n    reason = \"the paper's signature\"\n)]\n")
                .is_empty()
        );
        assert!(found("// write #[allow(dead_code)]\n").is_empty());
    }

    #[test]
    fn no_reason_and_blankets_are_found() {
        assert_eq!(
            found("\n#[allow(clippy::too_many_arguments)]\n")[0].place,
            "src/a.rs:2"
        );
        assert_eq!(found("#![allow(dead_code, reason = \"later\")]\n").len(), 1);
        assert_eq!(found("    #[expect(unused)]\n").len(), 1);
    }
}
