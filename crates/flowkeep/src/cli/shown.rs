//! The program takes each command that a page or a help text shows: its words exist.
//!
//! ```text
//!   a line of a block     is parsed as it stands, without prompt, comment, pipe and `&`
//!   `flowkeep …` in text  may leave words out, and has no others than there are
//! ```
//!
//! Not here: the work of commands. `tests/readme.rs` types the pages that are made to be typed.

use super::Cli;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All pages on the present; the changelog and the decisions are on the past.
fn pages() -> Vec<(String, String)> {
    let mut folders = vec![root().join("docs")];
    let mut paths = vec![
        root().join("README.md"),
        root().join("ARCHITECTURE.md"),
        root().join("tools/package/README.Debian"),
    ];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            match entry.path() {
                path if path.is_dir() && !path.ends_with("decisions") => folders.push(path),
                path if path.extension().is_some_and(|of| of == "md") => paths.push(path),
                _ => {}
            }
        }
    }
    let read = |path: PathBuf| (path.display().to_string(), fs::read_to_string(&path).unwrap());
    paths.into_iter().map(read).collect()
}

/// The words of a line as a shell has them; `None` where it has them from other commands.
fn words(line: &str) -> Option<Vec<String>> {
    if line.contains("$(") {
        return None;
    }
    let mut words = Vec::new();
    let (mut word, mut quoted) = (String::new(), false);
    for letter in line.chars().chain([' ']) {
        match letter {
            '\'' => quoted = !quoted,
            ' ' if !quoted => match std::mem::take(&mut word) {
                end if ["|", "||", "&", ">", "&&"].contains(&end.as_str()) => return Some(words),
                empty if empty.is_empty() => {}
                whole => words.push(whole),
            },
            letter => word.push(letter),
        }
    }
    Some(words)
}

/// Commands of blocks, comments cut off: comments stand behind two spaces or more.
fn lines(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let line = line.trim_start();
        let line = line.strip_prefix("$ ").unwrap_or(line);
        if !line.starts_with("flowkeep ") {
            continue;
        }
        let mut command = line.to_owned();
        while let Some(begun) = command.strip_suffix('\\') {
            command = begun.to_owned() + lines.next().unwrap_or_default().trim_start();
        }
        found.push(command.split("  ").next().unwrap_or_default().to_owned());
    }
    found
}

/// Commands in text: between two ticks.
fn inline(text: &str) -> Vec<String> {
    let parts = text.split('`').skip(1).step_by(2);
    let ours = parts.filter(|part| part.starts_with("flowkeep ") && !part.contains('…'));
    ours.map(|part| part.replace('\n', " ")).collect()
}

fn problem(command: &str, is_whole: bool) -> Option<String> {
    let words = words(command)?;
    // Other things begin with this name: keys, and a picture.
    let is_verb = |word: &String| {
        word.chars()
            .all(|letter| letter.is_ascii_lowercase() || letter == '-')
    };
    if !words.get(1).is_some_and(is_verb) {
        return None;
    }
    let error = Cli::try_parse_from(words).err()?;
    let is_good = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => true,
        ErrorKind::InvalidSubcommand | ErrorKind::UnknownArgument | ErrorKind::ArgumentConflict => false,
        // `N`, `WORD`, and words that are left out.
        _ => !is_whole,
    };
    (!is_good).then(|| format!("{command}: {error}"))
}

#[test]
fn the_commands_of_all_pages_are_commands() {
    let (mut problems, mut count) = (Vec::new(), 0);
    for (page, text) in pages() {
        let (blocks, texts): (Vec<_>, Vec<_>) =
            (text.split("```").enumerate()).partition(|(place, _)| place % 2 == 1);
        let is_plain = page.ends_with(".Debian");
        let whole = blocks.iter().chain(texts.iter().filter(|_| is_plain));
        let whole = whole
            .flat_map(|(_, text)| lines(text))
            .map(|command| (command, true));
        let parts = texts.iter().flat_map(|(_, text)| inline(text));
        let parts = parts.map(|command| (command, false));
        for (command, is_whole) in whole.chain(parts) {
            count += 1;
            problems.extend(problem(&command, is_whole).map(|problem| format!("{page}: {problem}")));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(count > 200, "{count} commands were found");
}

#[test]
fn the_examples_of_all_help_texts_are_commands() {
    fn of(command: &clap::Command, found: &mut Vec<String>) {
        let texts = [
            command.get_after_help(),
            command.get_after_long_help(),
            command.get_long_about(),
        ];
        for text in texts.into_iter().flatten() {
            found.extend(lines(&text.to_string()));
        }
        for command in command.get_subcommands() {
            of(command, found);
        }
    }
    let mut found = Vec::new();
    of(&Cli::command(), &mut found);
    assert!(found.len() > 40, "{found:?}");
    let problems: Vec<String> = (found.iter())
        .filter_map(|command| problem(command, true))
        .collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn words_that_there_are_not_are_found() {
    for wrong in [
        "flowkeep flow lst",
        "flowkeep status --jsn",
        "flowkeep runtime list --json --to 3",
    ] {
        assert!(problem(wrong, false).is_some(), "{wrong}");
    }
    assert!(
        problem("flowkeep flow migrate", true).is_some() && problem("flowkeep flow migrate", false).is_none()
    );
    assert_eq!(
        words("flowkeep capture --filter 'tcp port 1' | cat")
            .unwrap()
            .len(),
        4
    );
}
