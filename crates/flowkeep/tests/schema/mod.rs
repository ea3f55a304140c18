//! The output of `--json`, held to the schema that `flowkeep schema` prints: no field that is not
//! there, and none of another kind.

use serde_json::{Value, json};
use std::process::Command;

/// Has each object of a schema refuse fields that it does not name.
fn strict(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else {
        return;
    };
    if let Some(of) = object.get_mut("$defs").and_then(Value::as_object_mut) {
        of.values_mut().for_each(strict);
    }
    if object.contains_key("properties") && !object.contains_key("additionalProperties") {
        object.insert("unevaluatedProperties".to_owned(), json!(false));
    }
}

/// Shapes whose version is 2: a field of theirs means something else than it did, or went.
const CHANGED: &[&str] = &[
    "chain-change",
    "flow",
    "flow-event",
    "flows",
    "function",
    "orders",
    "runtime-rebalance",
    "sim",
    "stop",
];

/// Each of these objects holds to the schema of this name.
#[track_caller]
pub fn holds(name: &str, said: &[u8]) {
    let printed = Command::new(env!("CARGO_BIN_EXE_flowkeep"))
        .args(["schema", name])
        .output()
        .unwrap();
    assert!(printed.status.success(), "{printed:?}");
    let mut schema: Value = serde_json::from_slice(&printed.stdout).unwrap();
    let version = 1 + u64::from(CHANGED.contains(&name));
    assert_eq!(schema["properties"]["version"]["const"], version, "{schema:#}");
    strict(&mut schema);
    let validator = jsonschema::validator_for(&schema).unwrap();
    let lines: Vec<Value> = serde_json::Deserializer::from_slice(said)
        .into_iter()
        .collect::<Result<_, _>>()
        .unwrap();
    assert!(!lines.is_empty(), "{name}: nothing was printed");
    for line in lines {
        let problems: Vec<String> = (validator.iter_errors(&line))
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(problems.is_empty(), "{name}: {problems:#?}\n{line:#}");
        // A schema that lets everything pass is none.
        let mut other = line;
        other["no_such_field"] = json!(1);
        assert!(!validator.is_valid(&other), "{name} takes any field");
    }
}
