//! The reference of all settings, as a page: `flowkeep chain schema --page`.
//!
//! ```text
//!   schema (JSON) ──► tables: [function.nat] ──► a heading each, and a row for each setting
//! ```
//!
//! A property that is a table, or a list of tables, becomes a heading of its own behind the rows of
//! the table that has it. All words are the schema's, which are the comments of the settings'
//! types, so the page of a binary with other functions has theirs.
//!
//! Invariant: the page ends, whatever a function's schema says: tables are followed [`DEPTH_MAX`]
//! deep.
//!
//! Not here: how settings work together (`docs/configuration.md`).

use super::schema::resolved;
use serde_json::{Map, Value};
use std::fmt::Write as _;

/// How deep tables may be in each other.
const DEPTH_MAX: usize = 8;

const OPENING: &str = "\
# Settings

Every setting of the configuration, by table, as `flowkeep chain schema --page` writes it: the words
are those of the JSON schema (`flowkeep chain schema`). The description has each default that is no
plain value. How settings work together, with a whole file: [configuration](configuration.md).
";

/// The page of a configuration's schema.
pub fn of(schema: &Value) -> String {
    let mut page = Page {
        root: schema,
        text: OPENING.to_owned(),
    };
    let root = properties(schema);
    page.table("", root, None, DEPTH_MAX);
    let functions = &schema["properties"]["function"]["properties"];
    for (name, function) in functions.as_object().into_iter().flatten() {
        if let Some(Table::One(table)) = page.table_of(function) {
            page.section(&format!("function.{name}"), false, table, None, DEPTH_MAX);
        }
    }
    page.text
}

/// The shape of a property that has settings of its own.
enum Table<'s> {
    One(&'s Value),
    List(&'s Value),
    ByName(&'s Value),
}

struct Page<'s> {
    root: &'s Value,
    text: String,
}

fn properties(schema: &Value) -> Option<&Map<String, Value>> {
    schema["properties"].as_object()
}

impl<'s> Page<'s> {
    /// A table under its heading.
    fn section(&mut self, path: &str, is_list: bool, table: &'s Value, words: Option<&str>, depth: usize) {
        let (open, close) = if is_list { ("[[", "]]") } else { ("[", "]") };
        let _ = write!(self.text, "\n## `{open}{path}{close}`\n");
        self.table(
            path,
            properties(table),
            words.or(table["description"].as_str()),
            depth,
        );
    }

    /// A table's rows, and behind them the tables in it.
    fn table(&mut self, path: &str, all: Option<&'s Map<String, Value>>, words: Option<&str>, depth: usize) {
        if let Some(words) = words {
            let _ = write!(self.text, "\n{}\n", in_a_line(words));
        }
        let Some(depth) = depth.checked_sub(1) else { return };
        let all = all.into_iter().flatten();
        // Functions have a schema each, behind all else.
        let all = all.filter(|(name, _)| !(path.is_empty() && *name == "function"));
        let (tables, rows): (Vec<_>, Vec<_>) = all
            .map(|(name, property)| (name, property, self.table_of(property)))
            .partition(|(.., table)| table.is_some());
        if !rows.is_empty() {
            self.text
                .push_str("\n| setting | what may be written | default | |\n|---|---|---|---|\n");
        }
        for (name, property, _) in rows {
            let kind = self.kind(property, DEPTH_MAX);
            let default = &property["default"];
            let default = match default {
                Value::Null | Value::Object(_) => String::new(),
                plain => format!("`{plain}`"),
            };
            let words = in_a_line(property["description"].as_str().unwrap_or_default());
            let _ = writeln!(
                self.text,
                "| `{name}` | {} | {} | {words} |",
                in_a_line(&kind),
                in_a_line(&default)
            );
        }
        for (name, property, table) in tables {
            let path = match path {
                "" => name.clone(),
                path => format!("{path}.{name}"),
            };
            let words = property["description"].as_str();
            match table {
                Some(Table::One(table)) => self.section(&path, false, table, words, depth),
                Some(Table::List(table)) => self.section(&path, true, table, words, depth),
                Some(Table::ByName(table)) => {
                    self.section(&format!("{path}.NAME"), false, table, words, depth);
                }
                None => {}
            }
        }
    }

    /// The settings that a property has of its own, if it is a table and nothing else.
    fn table_of(&self, property: &'s Value) -> Option<Table<'s>> {
        let schema = self.only(property);
        if properties(schema).is_some() {
            return Some(Table::One(schema));
        }
        let inner = |of: &'s Value| {
            let inner = self.only(of);
            properties(inner).is_some().then_some(inner)
        };
        if let Some(items) = schema.get("items").and_then(inner) {
            return Some(Table::List(items));
        }
        let by_name = schema.get("additionalProperties").and_then(inner);
        by_name.map(Table::ByName)
    }

    /// The target of a schema's reference, or its only part besides `null`.
    fn only(&self, schema: &'s Value) -> &'s Value {
        let mut schema = resolved(self.root, schema);
        for _ in 0..DEPTH_MAX {
            let parts = ["anyOf", "oneOf", "allOf"]
                .iter()
                .find_map(|word| schema[word].as_array());
            let mut parts = parts.into_iter().flatten().filter(|part| part["type"] != "null");
            let (Some(only), None) = (parts.next(), parts.next()) else {
                break;
            };
            schema = resolved(self.root, only);
        }
        schema
    }

    /// The values of a setting, in words.
    fn kind(&self, property: &'s Value, depth: usize) -> String {
        let Some(depth) = depth.checked_sub(1) else {
            return "a value".to_owned();
        };
        let schema = self.only(property);
        if let Some(constant) = schema.get("const") {
            return format!("`{constant}`");
        }
        let parts = ["anyOf", "oneOf", "enum"]
            .iter()
            .find_map(|word| schema[word].as_array());
        if let Some(parts) = parts {
            let is_enum = schema["enum"].is_array();
            let of = |part: &'s Value| match is_enum {
                true => format!("`{part}`"),
                false => self.kind(part, depth),
            };
            let kinds = parts
                .iter()
                .filter(|part| part["type"] != "null" && !part.is_null());
            return kinds.map(of).collect::<Vec<_>>().join(", or ");
        }
        if let Some(all) = properties(schema) {
            let names: Vec<String> = all.keys().map(|name| format!("`{name}`")).collect();
            return format!("a table of {}", names.join(", "));
        }
        let types: Vec<&str> = match &schema["type"] {
            Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
            one => one.as_str().into_iter().collect(),
        };
        let kinds = types.iter().filter(|kind| **kind != "null");
        let kinds: Vec<String> = kinds.map(|kind| self.plain(kind, schema, depth)).collect();
        kinds.join(" or ")
    }

    fn plain(&self, kind: &str, schema: &'s Value, depth: usize) -> String {
        match kind {
            "string" => "text".to_owned(),
            "boolean" => "`true` or `false`".to_owned(),
            "array" => match schema.get("items") {
                Some(items) => format!("a list: {}", self.kind(items, depth)),
                None => "a list".to_owned(),
            },
            "object" => "a table".to_owned(),
            _ => {
                let bound = |word: &str| schema[word].as_u64();
                match (bound("minimum"), bound("maximum")) {
                    (Some(least), Some(most)) => format!("a number, {least} to {most}"),
                    (Some(least), None) if least > 0 => format!("a number from {least} on"),
                    _ => "a number".to_owned(),
                }
            }
        }
    }
}

/// Text as a cell of a table has it.
fn in_a_line(text: &str) -> String {
    text.split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::schema;
    use nf::{ConfigError, Cx, NetworkFunction, Packet, Verdict, WorkerInfo, network_function};
    use std::sync::Arc;

    /// A function of one's own, with settings.
    struct Sieve;

    #[derive(serde::Deserialize, schemars::JsonSchema, Default)]
    #[serde(deny_unknown_fields, default)]
    struct Settings {
        /// Packets that are let through | or not.
        holes: u16,
        /// How it is shaken.
        shaking: Shaking,
    }

    #[derive(serde::Deserialize, schemars::JsonSchema, Default)]
    #[serde(deny_unknown_fields, default)]
    struct Shaking {
        /// Times a second.
        rate: Option<f32>,
    }

    #[network_function]
    impl NetworkFunction for Sieve {
        const NAME: &'static str = "sieve";
        type Config = Settings;
        type Flow = ();
        type Group = ();
        fn new(_: &Arc<Settings>, _: &WorkerInfo) -> Result<Self, ConfigError> {
            Ok(Sieve)
        }
        fn process(&self, _: &mut Packet, _: &mut (), _: &mut Cx<Self>) -> Verdict {
            Verdict::Forward
        }
    }

    #[test]
    fn settings_of_a_function_of_ones_own_are_in_schema_and_page() {
        let registry = crate::functions().and(crate::registry![Sieve]);
        let schema = schema::of(&registry);
        let own = &schema["properties"]["function"]["properties"]["sieve"];
        let table = resolved(schema, &own["anyOf"][0]);
        assert_eq!(table["properties"]["holes"]["maximum"], 65535, "{own:#}");
        let page = of(schema);
        for line in [
            "## `[function.sieve]`",
            "| `holes` | a number, 0 to 65535 | `0` | Packets that are let through \\| or not. |",
            "## `[function.sieve.shaking]`",
            "| `rate` | a number |  | Times a second. |",
        ] {
            assert!(page.lines().any(|of| of == line), "{line}\n{page}");
        }
        let kinds =
            schema["properties"]["function"]["additionalProperties"]["properties"]["kind"].to_string();
        assert!(kinds.contains("\"sieve\""), "{kinds}");
    }

    /// Its settings are a type of the contract's, as those of `flowkeep new --kind limiter`.
    struct Slow;

    #[network_function]
    impl NetworkFunction for Slow {
        const NAME: &'static str = "slow";
        type Config = nf::Rate;
        type Flow = ();
        fn new(_: &Arc<nf::Rate>, _: &WorkerInfo) -> Result<Self, ConfigError> {
            Ok(Slow)
        }
        fn process(&self, _: &mut Packet, _: &mut (), _: &mut Cx<Self>) -> Verdict {
            Verdict::Forward
        }
    }

    #[test]
    fn a_rate_as_settings_is_in_schema_and_page() {
        let registry = crate::functions().and(crate::registry![Slow]);
        let page = of(schema::of(&registry));
        let (_, table) = page.split_once("## `[function.slow]`").expect("the table");
        for row in [
            "| `per_second` | a number |  | Tokens that come in a second. |",
            "| `burst` | a number |  | The most tokens that a bucket holds",
        ] {
            assert!(table.contains(row), "{row}\n{table}");
        }
    }

    #[test]
    fn the_page_is_the_one_that_is_committed() {
        let page = of(schema::of(&crate::functions()));
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/settings.md");
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        let differs = page
            .lines()
            .zip(committed.lines())
            .find(|(made, there)| made != there);
        assert!(
            page == committed,
            "docs/settings.md is not what the schema says; make it with \
             `flowkeep chain schema --page > docs/settings.md`; first: {differs:#?}"
        );
    }

    #[test]
    fn every_setting_has_a_row_and_words() {
        let page = of(schema::of(&crate::functions()));
        let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
        assert!(rows.len() > 150, "{}", rows.len());
        for row in rows {
            let cells: Vec<&str> = row.split(" | ").collect();
            assert!(
                !cells[1].is_empty() && cells[3].trim_end_matches(" |").len() > 3,
                "{row}"
            );
        }
        for table in [
            "[[port]]",
            "[[chain]]",
            "[chain.match]",
            "[store]",
            "[function.nat.timeouts]",
            "[[member]]",
        ] {
            assert!(page.contains(&format!("\n## `{table}`\n")), "{table}");
        }
    }

    #[test]
    fn a_schema_without_end_has_a_page_with_one() {
        let schema = serde_json::json!({
            "properties": { "a": { "$ref": "#/$defs/A" }, "b": { "$ref": "#/$defs/B" } },
            "$defs": {
                "A": { "properties": { "a": { "$ref": "#/$defs/A" } } },
                "B": { "anyOf": [{ "type": "string" }, { "type": "array", "items": { "$ref": "#/$defs/B" } }] },
            },
        });
        let page = of(&schema);
        assert!(page.contains("`[a.a.a]`") && page.contains("a value"), "{page}");
        let _ = of(&serde_json::json!({ "$ref": "#", "anyOf": [{ "$ref": "#" }] }));
    }
}
