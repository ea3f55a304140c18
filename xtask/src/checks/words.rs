//! A sentence names its actor.
//!
//! The words of [`FORBIDDEN`] leave open which worker, group or member acts. A file has none of
//! them, in code, comments, messages and pages alike; `words.txt` lists the folders that still
//! have some, and how many lines of theirs. A number only falls.

use super::Check;
use crate::workspace::{File, Violation, Workspace};
use std::collections::BTreeMap;

pub const CHECK: Check = Check {
    name: "words",
    rule: "a sentence names its actor; what is left is counted in xtask/src/checks/words.txt",
    run,
};

const LIST: &str = "xtask/src/checks/words.txt";

/// Written in halves, so that this file passes.
const FORBIDDEN: &[&str] = &[
    concat!("who", "ever"),
    concat!("no", "body"),
    concat!("some", "body"),
    concat!("any", "body"),
    concat!("every", "body"),
    concat!("an", "ew"),
];

fn run(workspace: &Workspace) -> Vec<Violation> {
    let list = workspace.files.iter().find(|file| file.path == LIST);
    let listed = list.map(|file| read(&file.text)).unwrap_or_default();
    let mut found: BTreeMap<&str, Vec<(&File, usize)>> = BTreeMap::new();
    for file in workspace.files.iter().filter(|file| is_ours(&file.path)) {
        for (number, line) in file.lines() {
            if has_one(line) {
                found.entry(folder(&file.path)).or_default().push((file, number));
            }
        }
    }
    let mut violations = Vec::new();
    for (folder, lines) in &found {
        let allowed = listed.get(*folder).copied().unwrap_or(0);
        if lines.len() == allowed {
            continue;
        }
        let problem = format!(
            "folder `{folder}` has {} lines that do not name their actor, and {LIST} has {allowed}",
            lines.len()
        );
        let (file, number) = lines[lines.len() - 1];
        violations.push(Violation::at(file, number, problem));
    }
    for folder in listed
        .keys()
        .filter(|folder| !found.contains_key(folder.as_str()))
    {
        violations.push(Violation::of(
            LIST,
            format!("folder `{folder}` has none left: its line goes"),
        ));
    }
    violations
}

/// A changelog tells of the past; a licence is not ours.
fn is_ours(path: &str) -> bool {
    (path.ends_with(".rs") || path.ends_with(".md") || path.ends_with(".toml"))
        && !path.starts_with("CHANGELOG")
}

/// `crates/NAME`, or the first folder of a path.
fn folder(path: &str) -> &str {
    let depth = if path.starts_with("crates/") { 2 } else { 1 };
    match path.match_indices('/').nth(depth - 1) {
        Some((at, _)) => &path[..at],
        None => ".",
    }
}

fn has_one(line: &str) -> bool {
    let is_of_word = |c: char| c.is_alphanumeric() || c == '_';
    line.split(|c: char| !is_of_word(c)).any(|word| {
        FORBIDDEN
            .iter()
            .any(|forbidden| word.eq_ignore_ascii_case(forbidden))
    })
}

/// `folder | lines`, and lines that begin with `#`.
fn read(text: &str) -> BTreeMap<String, usize> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once('|'))
        .filter_map(|(folder, lines)| Some((folder.trim().to_string(), lines.trim().parse().ok()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str, list: &str) -> usize {
        let file = |path: &str, text: &str| File {
            path: path.into(),
            text: text.into(),
        };
        let workspace = Workspace {
            files: vec![file("crates/wire/src/lib.rs", line), file(LIST, list)],
            ..Workspace::default()
        };
        run(&workspace).len()
    }

    #[test]
    fn a_line_without_its_actor_is_found() {
        for word in FORBIDDEN {
            let line = format!("// {word} has the group\n");
            assert_eq!(found(&line, ""), 1, "{word}");
            assert_eq!(found(&line, "crates/wire | 1\n"), 0);
            assert_eq!(found(&line, "crates/wire | 2\n"), 1);
        }
        assert_eq!(found("// the target has the group\n", ""), 0);
        assert_eq!(found("// the target has the group\n", "crates/wire | 1\n"), 1);
    }
}
