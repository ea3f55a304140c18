//! A sentence names its actor.
//!
//! The words of [`FORBIDDEN`] leave open which worker, group or member acts. A file has none of
//! them, in code, comments, messages and pages alike. A sentence of a comment or a page that begins
//! with one of [`OPENINGS`] has a clause in the place of its subject. `words.txt` lists the folders
//! that still have such lines, and how many. A number only falls.
//!
//! Excused are headings, since links lead to them, and sentences with a question mark on their
//! line. Code and diagrams between fences have no sentences.
//!
//! Not here: sentences in messages, help and names of tests; subjects of other kinds (*those that*,
//! *it* without a noun).

use super::Check;
use crate::workspace::{File, Violation, Workspace};
use std::collections::BTreeMap;

pub const CHECK: Check = Check {
    name: "words",
    rule: "a sentence names its actor; other lines are counted in xtask/src/checks/words.txt",
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

/// The beginnings of sentences whose subject is no noun.
const OPENINGS: &[&str] = &["What ", "Who ", "Whom ", "One that ", "One who ", "That which "];

/// Behind these a sentence begins; behind the last two with a small letter, too.
const ENDS: &[&str] = &[". ", "? ", "! ", "| ", "** ", ": ", "; "];

fn run(workspace: &Workspace) -> Vec<Violation> {
    let list = workspace.files.iter().find(|file| file.path == LIST);
    let listed = list.map(|file| read(&file.text)).unwrap_or_default();
    let mut found: BTreeMap<&str, Vec<(&File, usize)>> = BTreeMap::new();
    for file in workspace.files.iter().filter(|file| is_ours(&file.path)) {
        let sentences = sentences(file);
        for ((number, line), sentences) in file.lines().zip(sentences) {
            if has_one(line) || sentences.is_some_and(lacks_subject) {
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

/// The sentences of each line: of Rust a comment, of a page each line; `None` within fences.
fn sentences(file: &File) -> impl Iterator<Item = Option<&str>> {
    let is_page = file.path.ends_with(".md");
    let mut is_fenced = false;
    file.lines().map(move |(_, line)| {
        let text = match (file.is_rust(), is_page) {
            (true, _) => comment(line)?,
            (_, true) => line.trim_start(),
            _ => return None,
        };
        let is_fence = text.starts_with("```");
        is_fenced ^= is_fence;
        (!is_fenced && !is_fence).then_some(text)
    })
}

/// The text of a line's comment.
fn comment(line: &str) -> Option<&str> {
    let line = line.trim_start();
    match line.strip_prefix("//") {
        Some(text) => Some(text.trim_start_matches(['/', '!']).trim_start()),
        None => line.split_once(" // ").map(|(_, text)| text),
    }
}

/// Whether a sentence of these begins with one of [`OPENINGS`].
fn lacks_subject(text: &str) -> bool {
    if text.starts_with('#') {
        return false;
    }
    let is_mark = |c: char| "-*>|. ".contains(c) || c.is_ascii_digit();
    let behind_marks = text.trim_start_matches(is_mark);
    let begins = |sentence: &str, may_be_small: bool| {
        let sentence = sentence.trim_start_matches('*');
        let fits = |opening: &&str| match may_be_small {
            true => sentence
                .get(..opening.len())
                .is_some_and(|begin| begin.eq_ignore_ascii_case(opening)),
            false => sentence.starts_with(*opening),
        };
        OPENINGS.iter().any(fits) && !sentence.contains('?')
    };
    begins(behind_marks, false)
        || ENDS.iter().any(|end| {
            let may_be_small = [": ", "; "].contains(end);
            text.match_indices(end)
                .any(|(at, _)| begins(&text[at + end.len()..], may_be_small))
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

    fn found_in(path: &str, text: &str, list: &str) -> usize {
        let file = |path: &str, text: &str| File {
            path: path.into(),
            text: text.into(),
        };
        let workspace = Workspace {
            files: vec![file(path, text), file(LIST, list)],
            ..Workspace::default()
        };
        run(&workspace).len()
    }

    fn found(line: &str, list: &str) -> usize {
        found_in("crates/wire/src/lib.rs", line, list)
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

    #[test]
    fn a_sentence_without_a_subject_is_found() {
        for opening in OPENINGS {
            for begin in [
                "//! ",
                "    /// ",
                "// ",
                "let a = 1; // ",
                "// It ends. ",
                "// Not here: ",
                "/// - ",
            ] {
                let line = format!("{begin}{opening}is held is lost.\n");
                assert_eq!(found(&line, ""), 1, "{line}");
                assert_eq!(found(&line, "crates/wire | 1\n"), 0, "{line}");
            }
            for begin in ["", "- ", "3. ", "**", "> ", "| a | ", "It ends; "] {
                let line = format!("{begin}{opening}is held is lost.\n");
                assert_eq!(found_in("docs/a.md", &line, ""), 1, "{line}");
            }
        }
        assert_eq!(found("// It ends: what is held is lost.\n", ""), 1);
    }

    #[test]
    fn headings_questions_fences_and_code_are_excused() {
        for text in [
            "## What is held\n",
            "What is held?\n",
            "It says what is held.\n",
            "```text\nWhat is held\n```\nHeld packets.\n",
            "| figure | what |\n",
        ] {
            assert_eq!(found_in("docs/a.md", text, ""), 0, "{text}");
        }
        for text in [
            "//! # What is held\n",
            "//! ```text\n//! What is held\n//! ```\n",
            "let a = \"What is held\";\n",
            "// Whose packets these are.\n",
        ] {
            assert_eq!(found(text, ""), 0, "{text}");
        }
        // Behind a fence there are sentences again.
        assert_eq!(found_in("docs/a.md", "```\n```\nWhat is held is lost.\n", ""), 1);
    }
}
