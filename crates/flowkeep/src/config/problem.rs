//! Problems of a configuration, shown where they are.
//!
//! ```text
//! flowkeep.toml:3:1: runtims: there is no such setting
//!   |
//! 3 | runtims = 2
//!   | ^^^^^^^
//!   = write `runtimes`
//! ```
//!
//! Not here: finding problems ([`document`](super::document), [`check`](super::check)).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;
use std::path::Path;

/// A problem of a configuration.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file, as it was named.
    pub file: String,
    /// Line, from 1; 0 if it is about the file as a whole.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// How many characters it is about.
    pub width: usize,
    /// The whole line.
    pub text: String,
    /// The setting, like `chain[0].functions[1]`; empty where there is none.
    pub setting: String,
    /// The problem.
    pub problem: String,
    /// The text to write instead.
    pub remedy: String,
}

impl Problem {
    /// Something at some bytes of the text.
    pub fn at(file: &str, text: &str, span: Range<usize>) -> Self {
        let start = floor(text, span.start);
        let end = floor(text, span.end.max(start));
        let line_start = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let line_end = text[start..]
            .find('\n')
            .map_or(text.len(), |newline| start + newline);
        Problem {
            file: file.to_owned(),
            line: text[..start].matches('\n').count() + 1,
            column: text[line_start..start].chars().count() + 1,
            width: text[start..end.clamp(start, line_end)]
                .trim_end()
                .chars()
                .count()
                .max(1),
            text: text[line_start..line_end].trim_end().replace('\t', " "),
            setting: String::new(),
            problem: String::new(),
            remedy: String::new(),
        }
    }

    /// A file that cannot be read.
    pub fn unreadable(path: &Path, error: &std::io::Error) -> Self {
        let remedy = match error.kind() {
            std::io::ErrorKind::NotFound => "name a file that exists",
            std::io::ErrorKind::PermissionDenied => "see to it that you may read the file",
            std::io::ErrorKind::InvalidData => "write it in UTF-8",
            _ => "name another file",
        };
        Problem::of_file(&path.display().to_string()).saying("", format!("cannot be read: {error}"), remedy)
    }

    /// Something on a line of a file that a setting names.
    pub fn on_line(place: &nf::FilePlace) -> Self {
        let end = place.text.len();
        Problem {
            line: place.line,
            ..Problem::at(&place.file, &place.text, 0..end)
        }
    }

    /// Something about the file as a whole.
    pub fn of_file(file: &str) -> Self {
        Problem {
            file: file.to_owned(),
            line: 0,
            column: 0,
            width: 0,
            text: String::new(),
            setting: String::new(),
            problem: String::new(),
            remedy: String::new(),
        }
    }

    /// The same place, with its problem.
    #[must_use]
    pub fn saying(
        mut self,
        setting: impl Into<String>,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        self.setting = setting.into();
        self.problem = problem.into();
        self.remedy = remedy.into();
        self
    }
}

/// The last boundary between characters that is not behind `index`.
fn floor(text: &str, index: usize) -> usize {
    let index = index.min(text.len());
    (0..=index)
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0)
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.column)?;
        }
        f.write_str(": ")?;
        if !self.setting.is_empty() {
            write!(f, "{}: ", self.setting)?;
        }
        writeln!(f, "{}", self.problem)?;
        let number = self.line.to_string();
        let margin = " ".repeat(number.len());
        if self.line > 0 {
            writeln!(f, "{margin} |")?;
            writeln!(f, "{number} | {}", self.text)?;
            let indent = " ".repeat(self.column - 1);
            writeln!(f, "{margin} | {indent}{}", "^".repeat(self.width))?;
        }
        if self.remedy.is_empty() {
            Ok(())
        } else {
            write!(f, "{margin} = {}", self.remedy)
        }
    }
}

/// Of `known`, the name that was probably meant.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = name.to_lowercase().replace('-', "_");
    known
        .into_iter()
        .map(|candidate| {
            let distance = strsim::damerau_levenshtein(&lower, &candidate.to_lowercase().replace('-', "_"));
            (distance, candidate)
        })
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len().max(name.len()) / 3)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// The nearest of `known`; if none is near, the names of which it is one word: `port` of
/// `source_ports`.
fn near<'a>(name: &str, known: &[&'a str]) -> Vec<&'a str> {
    if let Some(near) = nearest(name, known.iter().copied()) {
        return vec![near];
    }
    let one = |word: &str| word.trim_end_matches('s').to_lowercase();
    let has = |other: &&&str| other.split('_').any(|word| one(word) == one(name));
    known.iter().filter(has).copied().collect()
}

/// "write `near`" if something is near, otherwise all there is.
pub fn write_instead(name: &str, known: &[&str]) -> String {
    let near = near(name, known);
    match (near.is_empty(), known) {
        (false, _) => format!("write `{}`", near.join("` or `")),
        (true, []) => "take it out".to_owned(),
        (true, all) => format!("there are: {}", all.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caret_is_below_the_value() {
        let text = "a = 1\n  größe = \"zwei\"\n";
        let start = text.find("\"zwei\"").unwrap();
        let problem =
            Problem::at("f.toml", text, start..start + 6).saying("größe", "is no number", "write 2");
        let shown = problem.to_string();
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[0], "f.toml:2:11: größe: is no number");
        assert_eq!(lines[2], "2 |   größe = \"zwei\"");
        assert_eq!(lines[3], "  |           ^^^^^^");
        assert_eq!(lines[4], "  = write 2");
    }

    #[test]
    fn a_place_outside_the_text_is_its_end() {
        let problem = Problem::at("f", "ä", 1..900);
        assert_eq!((problem.line, problem.column, problem.width), (1, 1, 1));
        assert_eq!(Problem::at("f", "", 5..9).line, 1);
    }

    #[test]
    fn near_names() {
        assert_eq!(nearest("runtims", ["runtimes", "switches"]), Some("runtimes"));
        assert_eq!(
            nearest("load-balancer", ["nat", "load_balancer"]),
            Some("load_balancer")
        );
        assert_eq!(nearest("zebra", ["runtimes", "switches"]), None);
        assert_eq!(write_instead("q", &["round_robin"]), "there are: round_robin");
        let ports = ["protocol", "source_ports", "destination_ports"];
        assert_eq!(
            write_instead("port", &ports),
            "write `source_ports` or `destination_ports`"
        );
    }
}
