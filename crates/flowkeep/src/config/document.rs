//! The configuration's text as a tree in which everything knows where it stands.
//!
//! Errors come from three sources, and each names its place differently: the TOML parser and serde
//! give bytes, a function gives a path (`rules[3].ports`), a check of ours gives a path from the
//! top. This is where all of them become [`Problem`]s, and where serde's words become an
//! operator's: "invalid type: string "two", expected u16" is "expected a whole number from 0 to
//! 65535, found "two"", with an example from the setting's schema.
//!
//! Not here: the settings themselves ([`config`](super)).

use super::problem::{Problem, write_instead};
use super::{Config, Function, schema};
use crate::registry::{Entry, Registry};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A configuration on its way from text to values.
#[derive(Debug)]
pub struct Document<'t, 'r> {
    file: String,
    text: &'t str,
    /// Whole, to look places up in.
    tree: Spanned<DeTable<'t>>,
    /// The part of it that has not been read yet.
    rest: Spanned<DeTable<'t>>,
    /// The functions there are; its schema has the examples for messages.
    registry: &'r Registry,
    /// The problems found so far.
    pub problems: Vec<Problem>,
}

/// The parser's message on a name that stands twice.
const DUPLICATE: &str = "duplicate key";

/// A table `[function.NAME]`.
#[derive(Debug)]
pub struct FunctionTable<'t, 'r> {
    name: String,
    entry: &'r Entry,
    table: Spanned<DeTable<'t>>,
}

/// The last setting in front of a place whose line opens more arrays than it closes.
fn array_before(text: &str, place: usize) -> Range<usize> {
    let mut found = place.min(text.len())..place.min(text.len());
    let mut begin = 0;
    for line in text.split_inclusive('\n') {
        if begin > place {
            break;
        }
        let count = |what: char| line.matches(what).count();
        if let Some(equals) = line.find('=')
            && let Some(open) = line[equals..].find('[')
            && count('[') > count(']')
        {
            let at = begin + equals + open;
            found = at..at + 1;
        }
        begin += line.len();
    }
    found
}

/// Said of an array's value behind another one.
const NO_COMMA: &str = "missing comma between array elements";

/// Whether it is a `:` behind the name of a setting, where a `=` is to be.
fn stands_for_equals(text: &str, at: usize) -> bool {
    let line = text.get(..at).and_then(|before| before.rsplit('\n').next());
    let is_name = |name: &str| {
        !name.is_empty()
            && name
                .chars()
                .all(|of| of.is_ascii_alphanumeric() || "-_.\"".contains(of))
    };
    text.get(at..).is_some_and(|rest| rest.starts_with(':')) && line.is_some_and(|name| is_name(name.trim()))
}

/// Whether these are several values, which are no text.
fn is_list_without_commas(words: &str) -> bool {
    let is_value = |word: &str| word.parse::<f64>().is_ok() || word.parse::<bool>().is_ok();
    words.split_whitespace().count() > 1 && words.split_whitespace().all(is_value)
}

impl<'t, 'r> Document<'t, 'r> {
    /// Parses TOML. If the text is no TOML, nothing else is checked.
    pub fn parse(file: &str, text: &'t str, registry: &'r Registry) -> Result<Self, Vec<Problem>> {
        let (tree, errors) = DeTable::parse_recoverable(text);
        let rest = if errors.is_empty() {
            tree.clone()
        } else {
            Spanned::new(0..0, DeTable::new())
        };
        let mut document = Document {
            file: file.to_owned(),
            text,
            tree,
            rest,
            registry,
            problems: Vec::new(),
        };
        if errors.is_empty() {
            return Ok(document);
        }
        // All text behind an array that is not closed is read as its values.
        let unclosed = errors
            .iter()
            .find(|error| error.message().starts_with("unclosed array"));
        if unclosed.is_some() {
            let first = errors.iter().filter_map(|error| Some(error.span()?.start)).min();
            let place = array_before(text, first.unwrap_or(text.len()));
            let place = Problem::at(file, text, place);
            let remedy = "write the `]` that closes it";
            return Err(vec![place.saying("", "this is no TOML: unclosed array", remedy)]);
        }
        // The settings of a table that stands twice stand twice, too.
        let mut twice = 0..0;
        // The rest of a line behind a `:` in the place of a `=` is not what it seems.
        let places = errors.iter().filter_map(|error| Some(error.span()?.start));
        let colons = places.filter(|at| stands_for_equals(text, *at));
        let behind = |at: usize| at + 1..text[at..].find('\n').map_or(text.len(), |length| at + length + 1);
        let misread: Vec<Range<usize>> = colons.map(behind).collect();
        for error in errors {
            let at = error.span().map_or(text.len(), |span| span.start);
            if misread.iter().any(|rest| rest.contains(&at)) {
                continue;
            }
            let is_duplicate = error.message() == DUPLICATE;
            if is_duplicate && twice.contains(&at) {
                continue;
            }
            if is_duplicate && text[..at].ends_with('[') {
                let end = text[at..].find("\n[").map_or(text.len(), |length| at + length);
                twice = at..end;
            }
            document.not_toml(&error);
        }
        Err(document.problems_in_order())
    }

    /// The problems, from the top of the file to its end.
    pub fn problems_in_order(self) -> Vec<Problem> {
        let mut problems = self.problems;
        problems.sort_by_key(|problem| (problem.line, problem.column));
        problems.dedup();
        problems
    }

    /// Takes the tables `[function.NAME]` out, and finds which registered function each is.
    pub fn take_functions(&mut self) -> Vec<FunctionTable<'t, 'r>> {
        let Some(all) = self.rest.get_mut().remove("function") else {
            return Vec::new();
        };
        let DeValue::Table(all) = all.into_inner() else {
            let remedy = "write a table for each function: [function.firewall]";
            self.problem_at("function", "is no table", remedy);
            return Vec::new();
        };
        let mut tables = Vec::new();
        for (name, value) in all {
            let name = name.into_inner().into_owned();
            let path = format!("function.{}", quoted(&name));
            let span = value.span();
            let DeValue::Table(mut table) = value.into_inner() else {
                self.problem_at(
                    &path,
                    "is no table",
                    &format!("write [{path}] and its settings below it"),
                );
                continue;
            };
            let kind = match table.remove("kind").map(Spanned::into_inner) {
                None => name.clone(),
                Some(DeValue::String(kind)) => kind.into_owned(),
                Some(_) => {
                    let remedy = "write the name of a function in quotes";
                    self.problem_at(&format!("{path}.kind"), "is no text", remedy);
                    continue;
                }
            };
            let has_kind = self.find(&format!("{path}.kind")).is_some();
            match self.registry.entry(&kind) {
                Some(entry) => tables.push(FunctionTable {
                    name,
                    entry,
                    table: Spanned::new(span, table),
                }),
                None => {
                    let at = if has_kind { format!("{path}.kind") } else { path };
                    let remedy = write_instead(&kind, &self.registry.names());
                    self.problem_at(&at, &format!("there is no function `{kind}`"), &remedy);
                }
            }
        }
        tables
    }

    /// Reads each function's own settings.
    pub fn read_functions(&mut self, tables: Vec<FunctionTable<'t, '_>>) -> BTreeMap<String, Function> {
        let mut functions = BTreeMap::new();
        for FunctionTable {
            name,
            entry,
            mut table,
        } in tables
        {
            let path = format!("function.{}", quoted(&name));
            let whole = table.span();
            if !self.read_files(&path, entry, table.get_mut()) {
                continue;
            }
            match (entry.read)(&name, table) {
                Ok(factory) => {
                    let function = Function {
                        kind: entry.name,
                        factory,
                    };
                    functions.insert(name, function);
                }
                Err(error) => {
                    // The schema has functions by kind; a table may go by another name.
                    let error_path = error.span().map(|span| self.path_at(&span)).unwrap_or_default();
                    let described = error_path
                        .strip_prefix(&path)
                        .map(|rest| format!("function.{}{rest}", entry.name));
                    self.not_readable(&error, whole, &described.unwrap_or_default());
                }
            }
        }
        functions
    }

    /// Puts the text of the files that settings name beside their paths (`nf::TextFile`); whether
    /// all could be read.
    fn read_files(&mut self, path: &str, entry: &Entry, table: &mut DeTable<'t>) -> bool {
        let mut all = true;
        for setting in entry.files {
            let Some(value) = table.get_mut(*setting) else {
                continue;
            };
            // A value that is no text serde refuses in its own words.
            let DeValue::String(file) = value.get_ref() else {
                continue;
            };
            let file = file.clone();
            match read_text(std::path::Path::new(&*file)) {
                Ok(text) => {
                    let mut both = DeTable::new();
                    let spanned = |text| Spanned::new(value.span(), DeValue::String(text));
                    both.insert(Spanned::new(value.span(), "path".into()), spanned(file));
                    both.insert(Spanned::new(value.span(), "text".into()), spanned(text.into()));
                    *value.get_mut() = DeValue::Table(both);
                }
                Err(error) => {
                    let remedy = Problem::unreadable(std::path::Path::new(&*file), &error).remedy;
                    let problem = format!("`{file}` cannot be read: {error}");
                    self.problem_at(&format!("{path}.{setting}"), &problem, &remedy);
                    all = false;
                }
            }
        }
        all
    }

    /// Reads all tables that are not a function's.
    pub fn read_rest<T: DeserializeOwned>(&mut self) -> Option<T> {
        let rest = std::mem::replace(&mut self.rest, Spanned::new(0..0, DeTable::new()));
        match T::deserialize(toml::de::Deserializer::from(rest)) {
            Ok(value) => Some(value),
            Err(error) => {
                let path = error.span().map(|span| self.path_at(&span)).unwrap_or_default();
                self.not_readable(&error, 0..0, &path);
                None
            }
        }
    }

    /// Notes a problem at a setting, given by its path; empty for the whole file. Where the path
    /// leads further than the text, the last place on it counts; the whole file where there is
    /// none.
    pub fn problem_at(&mut self, path: &str, problem: &str, remedy: &str) {
        let place = match self.find_nearest(path) {
            None => Problem::of_file(&self.file),
            Some(place) => Problem::at(&self.file, self.text, place),
        };
        self.problems.push(place.saying(path, problem, remedy));
    }

    /// The bytes of the value at a path.
    pub fn find(&self, path: &str) -> Option<Range<usize>> {
        let steps = steps(path);
        let (found, span) = self.follow(&steps);
        (found == steps.len()).then_some(span)
    }

    fn find_nearest(&self, path: &str) -> Option<Range<usize>> {
        let (found, span) = self.follow(&steps(path));
        (found > 0).then_some(span)
    }

    /// Follows a path as far as it goes: how many steps that were, and the place.
    fn follow(&self, steps: &[Step]) -> (usize, Range<usize>) {
        let mut span = 0..0;
        let mut table: Option<&DeTable<'t>> = Some(self.tree.get_ref());
        let mut list: Option<&[Spanned<DeValue<'t>>]> = None;
        for (index, step) in steps.iter().enumerate() {
            let next = match step {
                Step::Key(key) => {
                    table
                        .and_then(|table| table.get_key_value(key.as_str()))
                        .map(|(key, value)| {
                            // A table's own place may be all its lines: its name says it better.
                            let place = if value.get_ref().is_table() {
                                key.span()
                            } else {
                                value.span()
                            };
                            (place, value)
                        })
                }
                Step::Index(at) => list
                    .and_then(|list| list.get(*at))
                    .map(|value| (value.span(), value)),
            };
            let Some((place, value)) = next else {
                return (index, span);
            };
            span = place;
            table = value.get_ref().as_table();
            list = value.get_ref().as_array().map(|array| &array[..]);
        }
        (steps.len(), span)
    }

    /// The path of the innermost setting that holds the bytes.
    fn path_at(&self, span: &Range<usize>) -> String {
        let mut path = String::new();
        inner_path(self.tree.get_ref(), span, &mut path);
        path
    }

    /// Notes a problem of the TOML parser.
    fn not_toml(&mut self, error: &toml::de::Error) {
        let span = error.span().unwrap_or(self.text.len()..self.text.len());
        let (problem, expected) = match error.message().split_once(", expected ") {
            Some((problem, expected)) => (problem, format!("expected {expected}")),
            None => (error.message(), String::new()),
        };
        let is_header = self.text[..span.start.min(self.text.len())].ends_with('[');
        let unquoted = "string values must be quoted";
        let (problem, expected) = match self.text.get(span.clone()) {
            Some("") if problem == unquoted => ("there is no value", "write one behind the `=`".to_owned()),
            _ if stands_for_equals(self.text, span.start) => (
                "a `:` stands where a `=` is to be",
                "write `=` in place of the `:`".to_owned(),
            ),
            Some(words) if problem == unquoted && is_list_without_commas(words) => {
                let all: Vec<&str> = words.split_whitespace().collect();
                (NO_COMMA, format!("write {}", all.join(", ")))
            }
            _ if problem == NO_COMMA => (problem, "write a `,` before it".to_owned()),
            _ if expected == "expected nothing" => (problem, "take it out".to_owned()),
            _ => (problem, expected),
        };
        let remedy = match self.text.get(span.clone()) {
            Some(list @ ("port" | "chain" | "member")) if is_header && problem == DUPLICATE => {
                format!("write [[{list}]], each time: there may be several")
            }
            Some(word) if problem == unquoted => format!("write \"{word}\""),
            Some(_) if problem == DUPLICATE => {
                "it stands further up already: take one of the two out".to_owned()
            }
            _ => expected,
        };
        let place = Problem::at(&self.file, self.text, span);
        self.problems
            .push(place.saying("", format!("this is no TOML: {problem}"), remedy));
    }

    /// Notes serde's message on a setting, which the schema has at the path `described`.
    fn not_readable(&mut self, error: &toml::de::Error, otherwise: Range<usize>, described: &str) {
        let span = error.span().unwrap_or(otherwise);
        let path = self.path_at(&span);
        let value = self.text.get(span.clone()).unwrap_or_default();
        let known = Known::of(schema::of(self.registry), described, error.message());
        let (problem, mut remedy) = in_words(error.message(), value, &known);
        if let Some((name, known)) = names_in(error.message()).split_first()
            && error.message().starts_with("unknown field")
            && let Some(table) = path.strip_suffix(quoted(name).as_str())
        {
            // A near name that stands there already was not meant: it would stand there twice.
            let is_absent = |other: &&str| self.find(&format!("{table}{}", quoted(other))).is_none();
            let absent: Vec<&str> = known.iter().copied().filter(is_absent).collect();
            remedy = match self.is_of_the_file(&path, name) {
                true => format!("`{name}` is a setting of the whole file: write it above the first table"),
                false => write_instead(name, &absent),
            };
        }
        // A function's table at the top: its name is no setting, nor near to one.
        if error.message().starts_with("unknown field") && self.registry.entry(&path).is_some() {
            // As its header is written: one bracket or two, and the text behind the name.
            let line = self.text[..span.start].rfind('\n').map_or(0, |at| at + 1);
            let line = self.text[line..].lines().next().unwrap_or_default().trim();
            let inner = line.trim_start_matches('[').split(']').next().unwrap_or_default();
            let header = match (line.starts_with("[["), line.starts_with('[')) {
                (true, _) => format!("[[function.{inner}]]"),
                (false, true) => format!("[function.{inner}]"),
                (false, false) => format!("[function.{path}]"),
            };
            remedy = format!("a function's settings stand below its name: write {header}");
        }
        if error.message().starts_with("unknown field") && path == "functions" {
            remedy = "write [function.NAME], with the function's name in a chain".to_owned();
        }
        let place = if error.message().starts_with("missing field") {
            // serde points at the whole table; its name, or its first line, says it better.
            self.find(&path).unwrap_or(span.start..span.start)
        } else {
            span
        };
        let place = Problem::at(&self.file, self.text, place);
        self.problems.push(place.saying(path, problem, remedy));
    }
}

impl Document<'_, '_> {
    /// Whether the value at a path would be good as a setting of the whole file.
    fn is_of_the_file(&self, path: &str, name: &str) -> bool {
        let value = self.find(path).and_then(|value| self.text.get(value));
        let read = value.map(|value| toml::from_str::<Config>(&format!("{name} = {value}")));
        path != name && self.find(name).is_none() && read.is_some_and(|read| read.is_ok())
    }
}

/// The schema's words on a setting.
#[derive(Default)]
struct Known {
    /// A line to write.
    example: Option<String>,
    /// All its values, where they can be listed.
    values: Option<String>,
    /// The numbers that it may be.
    range: Option<String>,
}

impl Known {
    /// Of the setting at the path, or of the one below it that a message says is missing.
    fn of(schema: &serde_json::Value, path: &str, message: &str) -> Self {
        let missing = message.strip_prefix("missing field `");
        let path = match missing.and_then(|rest| rest.strip_suffix('`')) {
            Some(name) => format!("{path}.{name}"),
            None => path.to_owned(),
        };
        Known {
            example: schema::example(schema, &path),
            values: schema::values(schema, &path),
            range: schema::range(schema, &path),
        }
    }
}

/// The longest file that a setting names.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The text of a file that a setting names.
fn read_text(path: &std::path::Path) -> std::io::Result<String> {
    let metadata = std::fs::metadata(path)?;
    if !metadata.is_file() || metadata.len() > FILE_BYTES_MAX {
        return Err(std::io::Error::other("it is no file of at most 64 MiB"));
    }
    std::fs::read_to_string(path)
}

/// A step of a path.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Key(String),
    Index(usize),
}

/// `rules[3].ports` → rules, 3, ports. Keys with dots stand in quotes.
fn steps(path: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(index) = rest.strip_prefix('[') {
            let (digits, tail) = index.split_once(']').unwrap_or((index, ""));
            if let Ok(index) = digits.parse() {
                steps.push(Step::Index(index));
            }
            rest = tail;
        } else if let Some(key) = rest.strip_prefix('"') {
            let (key, tail) = key.split_once('"').unwrap_or((key, ""));
            steps.push(Step::Key(key.to_owned()));
            rest = tail;
        } else if let Some(tail) = rest.strip_prefix('.') {
            rest = tail;
        } else {
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            steps.push(Step::Key(rest[..end].to_owned()));
            rest = &rest[end..];
        }
    }
    steps
}

/// A key as it stands in a path.
pub(super) fn quoted(key: &str) -> String {
    if key.contains(['.', '[', '"']) {
        format!("\"{key}\"")
    } else {
        key.to_owned()
    }
}

/// Appends the path of the innermost entry of `table` whose key or value holds the bytes.
fn inner_path(table: &DeTable<'_>, span: &Range<usize>, path: &mut String) {
    let holds =
        |outer: &Range<usize>| outer.start <= span.start && span.end <= outer.end && !outer.is_empty();
    for (key, value) in table {
        let length = path.len();
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(&quoted(key.get_ref()));
        if holds(&key.span()) {
            return;
        }
        if inner_path_of_value(value, span, path) || holds(&value.span()) {
            return;
        }
        path.truncate(length);
    }
}

fn inner_path_of_value(value: &Spanned<DeValue<'_>>, span: &Range<usize>, path: &mut String) -> bool {
    let length = path.len();
    match value.get_ref() {
        // Parts of a table may stand far from its head, so its own place does not tell.
        DeValue::Table(table) => inner_path(table, span, path),
        DeValue::Array(array) => {
            for (index, element) in array.iter().enumerate() {
                path.push_str(&format!("[{index}]"));
                let outer = element.span();
                let holds = outer.start <= span.start && span.end <= outer.end && !outer.is_empty();
                if inner_path_of_value(element, span, path) || holds {
                    return true;
                }
                path.truncate(length);
            }
        }
        _ => {}
    }
    path.len() > length
}

/// serde's message in an operator's words: the problem, and the remedy.
fn in_words(message: &str, value: &str, known: &Known) -> (String, String) {
    let names = names_in(message);
    let Known {
        example,
        values,
        range,
    } = known;
    let for_example = example
        .as_ref()
        .map(|example| format!("write for example {example}"));
    if message.starts_with("unknown field") || message.starts_with("unknown variant") {
        let (name, known) = names
            .split_first()
            .map_or(("", &[][..]), |(name, known)| (*name, known));
        let what = if message.starts_with("unknown field") {
            "there is no such setting".to_owned()
        } else {
            format!("`{name}` is not one of its values")
        };
        return (what, write_instead(name, known));
    }
    if message.starts_with("missing field") {
        let name = names.first().unwrap_or(&"");
        let values = values.as_ref().map(|values| format!(": {values}"));
        let remedy = format!("add a line `{name} = …`{}", values.unwrap_or_default());
        return (format!("`{name}` is missing"), remedy);
    }
    // As the TOML reader says it of an enumeration.
    let message = match message {
        "wanted string or table" => "invalid type: another, expected string",
        message => message,
    };
    let wrong_kind = ["invalid type: ", "invalid value: ", "invalid length "]
        .iter()
        .find_map(|start| message.strip_prefix(start));
    if let Some((_, expected)) = wrong_kind.and_then(|rest| rest.split_once(", expected ")) {
        let number = range.clone().filter(|_| is_number(expected));
        let listed = values.clone().or(number);
        let expected = listed.unwrap_or_else(|| plain(expected));
        if expected == LIST && value.starts_with('[') {
            let problem = format!("expected one of several, found {value}");
            return (problem, format!("write [{value}]: there may be several"));
        }
        let shown = if value.contains('\n') || value.is_empty() {
            "something else"
        } else {
            value
        };
        let remedy = match values {
            Some(values) => format!("write {values}"),
            None => for_example.unwrap_or_else(|| format!("write {expected}")),
        };
        return (format!("expected {expected}, found {shown}"), remedy);
    }
    // A type's own words: the remedy stands behind the semicolon.
    match message.split_once("; ") {
        Some((problem, remedy)) => (problem.to_owned(), remedy.to_owned()),
        None if message == "invalid socket address syntax" => (
            format!("{value} is no address with a port"),
            "write for example \"203.0.113.1:8080\"; ports go up to 65535".to_owned(),
        ),
        None => (message.to_owned(), for_example.unwrap_or_default()),
    }
}

/// The names between backticks.
fn names_in(message: &str) -> Vec<&str> {
    message.split('`').skip(1).step_by(2).collect()
}

/// The term for a list.
const LIST: &str = "a list in brackets";

/// Whether it is Rust's name for whole numbers.
fn is_number(expected: &str) -> bool {
    let bits = expected.strip_prefix(['u', 'i']);
    bits.is_some_and(|bits| bits == "size" || bits.parse::<u8>().is_ok())
}

/// Rust's names for kinds of values in an operator's words.
fn plain(expected: &str) -> String {
    let number = |most: &str| format!("a whole number from 0 to {most}");
    match expected {
        "u8" => number("255"),
        "u16" => number("65535"),
        "u32" => number("4294967295"),
        "u64" | "usize" => "a whole number, 0 or more".to_owned(),
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a string" | "string" => "text in quotes".to_owned(),
        "a sequence" => LIST.to_owned(),
        "a map" => "a table".to_owned(),
        other if other.starts_with("struct ") => "a table".to_owned(),
        other if other.starts_with("enum ") => "one of its names in quotes".to_owned(),
        other => other.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_taken_apart() {
        let key = |key: &str| Step::Key(key.to_owned());
        assert_eq!(
            steps("rules[3].ports"),
            [key("rules"), Step::Index(3), key("ports")]
        );
        assert_eq!(
            steps("function.\"a.b\".x"),
            [key("function"), key("a.b"), key("x")]
        );
        assert_eq!(steps(""), []);
    }

    #[test]
    fn places_have_paths_and_paths_have_places() {
        let text = "a = 1\n[[list]]\nb = [10, 20]\n[[list]]\nc = { d = \"x\" }\n[t.\"u.v\"]\nw = 5\n";
        let registry = Registry::default();
        let document = Document::parse("f", text, &registry).unwrap();
        for (path, value) in [
            ("a", "1"),
            ("list[0].b[1]", "20"),
            ("list[1].c.d", "\"x\""),
            ("t.\"u.v\".w", "5"),
        ] {
            let span = document.find(path).unwrap();
            assert_eq!(&text[span.clone()], value, "{path}");
            assert_eq!(document.path_at(&span), path);
        }
        assert_eq!(document.find("list[1].c.e"), None);
        assert_eq!(&text[document.find_nearest("list[1].c.e").unwrap()], "c");
    }

    #[test]
    fn kinds_in_plain_words() {
        let (problem, remedy) = in_words(
            "invalid type: string \"two\", expected u16",
            "\"two\"",
            &Known {
                example: Some("runtimes = 2".to_owned()),
                range: Some("a whole number from 1 to 64".to_owned()),
                values: None,
            },
        );
        assert_eq!(problem, "expected a whole number from 1 to 64, found \"two\"");
        assert_eq!(remedy, "write for example runtimes = 2");
        let (problem, remedy) = in_words("missing field `name`", "", &Known::default());
        assert_eq!(
            (problem.as_str(), remedy.as_str()),
            ("`name` is missing", "add a line `name = …`")
        );
        let known = Known {
            values: Some("\"allow\" or \"drop\"".to_owned()),
            ..Known::default()
        };
        let said = |message, value| in_words(message, value, &known);
        let (problem, remedy) = said("wanted string or table", "[\"drop\"]");
        assert_eq!(problem, "expected \"allow\" or \"drop\", found [\"drop\"]");
        assert_eq!(remedy, "write \"allow\" or \"drop\"");
        let (_, remedy) = said("missing field `action`", "");
        assert_eq!(remedy, "add a line `action = …`: \"allow\" or \"drop\"");
    }
}
