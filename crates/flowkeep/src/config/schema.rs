//! The configuration's JSON schema, for editors and for the examples in messages.
//!
//! Editors that know TOML (Taplo, Even Better TOML) complete and check a file that begins with
//! `#:schema flowkeep.schema.json`, where the file was made by `flowkeep chain schema`.

use super::Config;
use crate::registry::Registry;
use serde_json::{Map, Value, json};

/// The schema of a configuration with these functions. It is made when it is first asked for, which
/// takes some milliseconds; a configuration without mistakes needs none.
pub fn of(registry: &Registry) -> &Value {
    registry.schema.get_or_init(|| make(registry))
}

fn make(registry: &Registry) -> Value {
    let mut generator = schemars::SchemaGenerator::default();
    let mut functions = Map::new();
    for entry in registry.entries() {
        let mut schema = serde_json::to_value((entry.schema)(&mut generator)).unwrap_or_default();
        if let Some(reference) = schema["$ref"].as_str() {
            let reference = reference.to_owned();
            schema = json!({ "anyOf": [{ "$ref": reference }] });
        }
        functions.insert(entry.name.to_owned(), schema);
    }
    let mut root = serde_json::to_value(generator.into_root_schema_for::<Config>()).unwrap_or_default();
    root["title"] = json!("Flowkeep configuration");
    root["properties"]["function"] = json!({
        "description": "Each function's own settings, by the name that chains use. `kind` says which function it is, where the name does not.",
        "type": "object",
        "properties": functions,
        "additionalProperties": {
            "type": "object",
            "properties": { "kind": { "enum": registry.names() } },
            "required": ["kind"],
        },
    });
    root
}

/// The schema of the setting at a path, and the setting's name.
fn setting<'s>(schema: &'s Value, path: &str) -> Option<(String, &'s Value)> {
    let mut place = schema;
    let mut last = String::new();
    for step in path.split('.') {
        let (name, indexed) = match step.split_once('[') {
            Some((name, _)) => (name, true),
            None => (step, false),
        };
        place = property(schema, place, name)?;
        name.clone_into(&mut last);
        // An example of a whole list serves for its elements too, where they have none.
        if indexed && let Some(items) = items(schema, place) {
            place = items;
        }
    }
    Some((last, place))
}

/// An example of the setting at a path, as a line to write.
pub fn example(schema: &Value, path: &str) -> Option<String> {
    let (name, place) = setting(schema, path)?;
    let value = place["examples"].as_array()?.first()?;
    Some(format!("{name} = {}", in_toml(value)))
}

/// The values that the setting at a path has, where they are words of a list: `"allow", "drop" or
/// "reject"`.
pub fn values(schema: &Value, path: &str) -> Option<String> {
    let (_, place) = setting(schema, path)?;
    let all: Vec<String> = words(schema, place)?.iter().map(in_toml).collect();
    let (last, others) = all.split_last()?;
    Some(match others {
        [] => last.clone(),
        others => format!("{} or {last}", others.join(", ")),
    })
}

/// All values of an enumeration; `None` where others may stand.
fn words(root: &Value, place: &Value) -> Option<Vec<Value>> {
    let place = resolved(root, place);
    if let Some(constant) = place.get("const") {
        return Some(vec![constant.clone()]);
    }
    if let Some(all) = place["enum"].as_array() {
        return Some(all.clone());
    }
    let parts = ["anyOf", "oneOf", "allOf"]
        .iter()
        .find_map(|word| place[word].as_array())?;
    // Null stands for a setting that may be left out.
    let parts = parts.iter().filter(|part| part["type"] != "null");
    let all: Option<Vec<_>> = parts.map(|part| words(root, part)).collect();
    Some(all?.concat())
}

/// The least and the most of a number, where its schema says both: `from 1 to 24`.
pub fn range(schema: &Value, path: &str) -> Option<String> {
    let (_, place) = setting(schema, path)?;
    let place = resolved(schema, place);
    let (least, most) = (place["minimum"].as_u64()?, place["maximum"].as_u64()?);
    Some(format!("a whole number from {least} to {most}"))
}

/// The schema of a table's entry.
fn property<'s>(root: &'s Value, place: &'s Value, name: &str) -> Option<&'s Value> {
    let place = resolved(root, place);
    if let Some(found) = place["properties"].get(name) {
        return Some(found);
    }
    ["anyOf", "allOf", "oneOf"]
        .iter()
        .filter_map(|word| place[word].as_array())
        .flatten()
        .find_map(|part| property(root, part, name))
}

/// The schema of a list's elements, if they are tables of their own.
fn items<'s>(root: &'s Value, place: &'s Value) -> Option<&'s Value> {
    let items = &resolved(root, place)["items"];
    resolved(root, items).get("properties").map(|_| items)
}

/// Follows a reference into the schema's definitions.
pub(super) fn resolved<'s>(root: &'s Value, place: &'s Value) -> &'s Value {
    match place["$ref"]
        .as_str()
        .and_then(|reference| reference.strip_prefix('#'))
    {
        Some(pointer) => root.pointer(pointer).unwrap_or(place),
        None => place,
    }
}

/// A JSON value as TOML writes it.
fn in_toml(value: &Value) -> String {
    match value {
        Value::Array(list) => format!("[{}]", list.iter().map(in_toml).collect::<Vec<_>>().join(", ")),
        Value::Object(table) => {
            let entries: Vec<String> = table
                .iter()
                .map(|(key, value)| format!("{key} = {}", in_toml(value)))
                .collect();
            format!("{{ {} }}", entries.join(", "))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;

    #[test]
    fn examples_are_found_by_path() {
        let registry = Registry::default();
        let schema = of(&registry);
        assert_eq!(example(schema, "runtimes").as_deref(), Some("runtimes = 2"));
        assert_eq!(
            example(schema, "metrics.listen").as_deref(),
            Some("listen = \"127.0.0.1:9464\"")
        );
        assert_eq!(
            example(schema, "chain[0].match.destination_port").as_deref(),
            Some("destination_port = [\"80\", \"8000-8100\"]")
        );
        assert_eq!(
            example(schema, "port[1].side").as_deref(),
            Some("side = \"inside\"")
        );
        assert_eq!(
            example(schema, "chain[0].functions[1]").as_deref(),
            Some("functions = [\"firewall\", \"nat\"]")
        );
        assert_eq!(example(schema, "nothing.like.it"), None);
        assert_eq!(
            values(schema, "chain[0].match.side").as_deref(),
            Some("\"inside\" or \"outside\"")
        );
        assert_eq!(values(schema, "port[0].name"), None);
        assert_eq!(
            range(schema, "runtimes_max").as_deref(),
            Some("a whole number from 1 to 64")
        );
    }

    #[test]
    fn every_setting_of_a_configuration_is_described() {
        let registry = Registry::default();
        let schema = of(&registry);
        for (name, setting) in schema["properties"].as_object().unwrap() {
            assert!(
                setting["description"].is_string() || setting["$ref"].is_string(),
                "{name}"
            );
        }
    }
}
