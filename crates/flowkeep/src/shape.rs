//! Shapes: the objects that `--json` prints, one for each noun, with its version and its JSON
//! schema.
//!
//! ```text
//!   a report ──(serde)──► object ──► + "version" ──► one line
//!   its type ──(schemars)─────────► schema ────────► `flowkeep schema NAME`
//! ```
//!
//! A shape's version grows when a field goes, or when its meaning or its unit changes. Fields are
//! added without that, so readers pass over fields that they do not know. Numbers are in base
//! units: seconds, bytes, packets; a name ends with another unit where it has one.
//!
//! Not here: the content of reports ([`crate::report`]), and how they are printed (`cli`).

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde_json::{Value, json};

/// The object that `--json` prints of a noun.
pub trait Shape: Serialize + JsonSchema {
    /// By which `flowkeep schema` knows it.
    const NAME: &'static str;
    /// Grows when a field goes or means something else.
    const VERSION: u32 = 1;
}

/// A report as it is printed.
pub fn object<T: Shape>(report: &T) -> Value {
    let mut value = json!(report);
    if let Some(object) = value.as_object_mut() {
        object.insert("version".to_owned(), json!(T::VERSION));
    }
    value
}

/// A shape's schema (JSON Schema 2020-12).
pub fn schema<T: Shape>() -> Schema {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut schema = SchemaGenerator::new(settings).into_root_schema_for::<T>();
    schema.insert("title".to_owned(), json!(T::NAME));
    let properties = schema.ensure_object().entry("properties");
    if let Some(properties) = properties.or_insert_with(|| json!({})).as_object_mut() {
        properties.insert(
            "version".to_owned(),
            json!({ "description": "Of this shape.", "type": "integer", "const": T::VERSION }),
        );
        properties.insert(
            "missing".to_owned(),
            json!({
                "description": "Asked over the cluster: members that have not answered, and why.",
                "type": "object",
                "additionalProperties": { "type": "string" },
            }),
        );
    }
    let required = schema.ensure_object().entry("required");
    if let Some(required) = required.or_insert_with(|| json!([])).as_array_mut() {
        required.push(json!("version"));
    }
    schema
}

/// A shape's name and how its schema is made.
pub type Named = (&'static str, fn() -> Schema);

/// A row of a table of shapes.
pub const fn named<T: Shape>() -> Named {
    (T::NAME, schema::<T>)
}
