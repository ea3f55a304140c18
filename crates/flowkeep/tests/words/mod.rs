//! Whether text printed for people has the words of its JSON: each key's own, with blanks for its
//! underscores.
//!
//! ```text
//!   flows_refused     "flows    asked 3, moved 3, refused 0"     a line's noun, and a word of that line
//!   pause_median_ns   "pause    longest 3 ms, median 1 ms"       without the unit, which the value has
//! ```
//!
//! Each test lists the keys with other words, and the keys that only JSON has.

use serde_json::Value;
use std::collections::BTreeSet;

/// Units that a key ends with and that are with the value in the text.
const UNITS: [&str; 5] = ["_seconds", "_ns", "_ms", "_packets", "_bytes"];

fn keys(of: &Value, found: &mut BTreeSet<String>) {
    match of {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| {
            found.insert(key.clone());
            keys(value, found);
        }),
        Value::Array(all) => all.iter().for_each(|of| keys(of, found)),
        _ => {}
    }
}

/// Whether these words stand there, with nothing of a word before or behind them.
fn has(text: &str, words: &str) -> bool {
    let is_of_word = |letter: Option<char>| letter.is_some_and(|of| of.is_alphanumeric() || of == '_');
    text.match_indices(words).any(|(at, _)| {
        let (before, behind) = (&text[..at], &text[at + words.len()..]);
        !is_of_word(before.chars().next_back()) && !is_of_word(behind.chars().next())
    })
}

/// Whether a key is shown by its words: together, or its noun before a line and the rest in it.
fn is_shown(text: &str, lines: &[String], key: &str) -> bool {
    let in_line = |words: &str| {
        words.match_indices(' ').any(|(at, _)| {
            let (noun, rest) = (&words[..at], &words[at + 1..]);
            let mut of_noun = lines.iter().filter_map(|line| line.strip_prefix(noun));
            of_noun.any(|line| line.starts_with(' ') && has(line, rest))
        })
    };
    let without = UNITS.iter().filter_map(|unit| key.strip_suffix(unit));
    let mut all = [key].into_iter().chain(without);
    all.any(|key| {
        let words = key.replace('_', " ");
        has(text, key) || has(text, &words) || in_line(&words)
    })
}

/// Each key's words are in the text, or those of its exception; no words are, where the exception
/// has none.
#[track_caller]
pub fn agree(json: &Value, printed: &str, exceptions: &[(&str, &str)]) {
    let shown = printed.to_lowercase();
    let lines = shown
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    let lines: Vec<_> = lines.collect();
    let text = lines.join(" ");
    let mut found = BTreeSet::new();
    keys(json, &mut found);
    for key in &found {
        let other = exceptions.iter().find(|(of, _)| of == key);
        let is_own = is_shown(&text, &lines, key);
        match other.map(|(_, words)| *words) {
            None => assert!(is_own, "`{key}` is not shown by its word:\n{printed}"),
            // An exception that is not needed is to go.
            Some("") => assert!(!is_own, "`{key}` is shown:\n{printed}"),
            Some(words) => assert!(has(&text, words), "`{key}` is not shown as `{words}`:\n{printed}"),
        }
    }
    let unused: Vec<_> = exceptions
        .iter()
        .filter(|(key, _)| !found.contains(*key))
        .collect();
    assert!(unused.is_empty(), "no such keys: {unused:?} in {json:#}");
}
