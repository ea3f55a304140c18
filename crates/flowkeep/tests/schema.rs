//! The schema that `flowkeep chain schema` prints: each configuration in the examples and pages
//! holds to it, as editors hold them.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn files(folder: &str, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(root().join(folder)).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(
                path.strip_prefix(root()).unwrap().to_str().unwrap(),
                extension,
                found,
            );
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
}

/// Configurations that a page shows, by the line where each begins.
fn shown(page: &str) -> Vec<(usize, String)> {
    let mut blocks = Vec::new();
    let mut lines = page.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        if line.trim_start().starts_with("```toml") {
            let inside = lines
                .by_ref()
                .take_while(|(_, line)| !line.trim_start().starts_with("```"));
            let text: Vec<&str> = inside.map(|(_, line)| line.trim_end()).collect();
            blocks.push((at + 1, text.join("\n")));
        }
    }
    blocks
}

fn flowkeep(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowkeep"));
    command.args(words).output().unwrap()
}

/// The schema that the program prints.
fn printed() -> Value {
    serde_json::from_slice(&flowkeep(&["chain", "schema"]).stdout).unwrap()
}

#[test]
fn configurations_of_examples_and_pages_hold_to_the_schema() {
    let schema = printed();
    let known = schema["properties"].as_object().unwrap();
    let functions = known["function"]["properties"].as_object().unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let mut texts = Vec::new();
    let (mut tomls, mut pages) = (Vec::new(), vec![root().join("README.md")]);
    files("examples", "toml", &mut tomls);
    files("docs", "md", &mut pages);
    // Functions that a reader of the guide writes have the names of shipped ones.
    pages.retain(|page| !page.ends_with("guide/write-a-function.md"));
    for path in tomls {
        texts.push((
            format!("{}", path.display()),
            std::fs::read_to_string(path).unwrap(),
        ));
    }
    for path in pages {
        for (line, text) in shown(&std::fs::read_to_string(&path).unwrap()) {
            texts.push((format!("{}:{line}", path.display()), text));
        }
    }
    let (mut held, mut wrong) = (0, Vec::new());
    for (at, text) in texts {
        // Texts that are no configuration of this program: profiles of traffic, manifests, parts of
        // lines, functions that a reader writes.
        let Ok(table) = text.parse::<toml::Table>() else {
            continue;
        };
        let is_its = |name: &String| known.contains_key(name);
        let mut own = table
            .get("function")
            .and_then(toml::Value::as_table)
            .into_iter()
            .flatten();
        let of_others = own.any(|(name, _)| !functions.contains_key(name) && table.get("chain").is_none());
        if table.is_empty() || !table.keys().all(is_its) || of_others || table.contains_key("seed") {
            continue;
        }
        held += 1;
        let mut value = serde_json::to_value(&table).unwrap();
        // A page may show a part: the tables that every configuration has are added.
        let chain = serde_json::json!([{ "functions": ["firewall"], "name": "c" }]);
        let whole = value.as_object_mut().unwrap();
        whole.entry("chain").or_insert(chain);
        for error in validator.iter_errors(&value) {
            wrong.push(format!("{at}: {}: {error}", error.instance_path()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(held > 20, "{held}: the pages were not found");
}

/// The settings below a place of the schema that have a default, with their paths; lists are not
/// entered.
fn with_defaults<'s>(root: &'s Value, place: &'s Value, path: &str, found: &mut Vec<(String, &'s Value)>) {
    let target = place["$ref"].as_str().and_then(|to| to.strip_prefix('#'));
    let place = target.and_then(|to| root.pointer(to)).unwrap_or(place);
    let parts = ["anyOf", "allOf", "oneOf"]
        .iter()
        .filter_map(|word| place[word].as_array());
    for part in parts.flatten() {
        with_defaults(root, part, path, found);
    }
    for (name, property) in place["properties"].as_object().into_iter().flatten() {
        let path = match path {
            "" => name.clone(),
            path => format!("{path}.{name}"),
        };
        if property.get("default").is_some_and(|default| !default.is_null()) {
            found.push((path.clone(), property));
        }
        with_defaults(root, property, &path, found);
    }
}

/// A default as a reader of the schema writes it.
fn written(default: &Value) -> String {
    match default {
        Value::Object(table) => {
            let entries = table
                .iter()
                .map(|(name, value)| format!("{name} = {}", written(value)));
            format!("{{ {} }}", entries.collect::<Vec<_>>().join(", "))
        }
        plain => plain.to_string(),
    }
}

#[test]
fn a_default_that_is_shown_may_be_written() {
    let schema = printed();
    let profile = root().join("examples/tutorial-traffic.toml");
    let file = std::env::temp_dir().join(format!("flowkeep-default-{}.toml", std::process::id()));
    let (mut seen, mut wrong) = (0, Vec::new());
    let mut found = Vec::new();
    let root = serde_json::json!({ "properties": schema["properties"], "$defs": schema["$defs"] });
    with_defaults(&root, &root, "", &mut found);
    for (path, property) in found {
        let default = &property["default"];
        let mut alone = property.clone();
        alone["$defs"] = schema["$defs"].clone();
        if !jsonschema::validator_for(&alone).unwrap().is_valid(default) {
            wrong.push(format!("{path}: {default} is not what the schema allows"));
        }
        // A list of rules that is empty is as none, and an IDS needs some.
        if path == "function.ids.rules" {
            continue;
        }
        seen += 1;
        let of_function = path
            .strip_prefix("function.")
            .and_then(|path| path.split_once('.'));
        let function = of_function.map_or("firewall", |(name, _)| name);
        // The settings that the function cannot do without.
        let needed = match function {
            "nat" => "function.nat.pool = [\"203.0.113.0/28\"]\n",
            "ids" => {
                "function.ids.rules = 'alert tcp any any -> any any (msg:\"a\"; content:\"a\"; sid:1;)'\n"
            }
            "load_balancer" => {
                "function.load_balancer.services = [{ name = \"a\", addresses = [\"192.0.2.1\"], ports = 80, protocol = \"tcp\", \
                 backends = [{ name = \"b\", endpoint = \"10.0.0.1:80\" }] }]\n"
            }
            // Without another runtime there is nothing to scale.
            _ if path.starts_with("scaling.") => "runtimes_max = 2\n",
            _ => "",
        };
        let config = format!(
            "{path} = {}\n{needed}[[port]]\nname = \"a\"\nside = \"inside\"\ninput = \"generate:{}\"\n\
             [[chain]]\nname = \"c\"\nfunctions = [\"{function}\"]\n",
            written(default),
            profile.display()
        );
        std::fs::write(&file, &config).unwrap();
        let output = flowkeep(&["chain", "check", file.to_str().unwrap()]);
        if !output.status.success() {
            wrong.push(format!("{path}: {}", String::from_utf8_lossy(&output.stderr)));
        }
    }
    std::fs::remove_file(&file).unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 50, "{seen}: the defaults were not found");
}
