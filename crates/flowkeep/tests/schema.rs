//! The schema that `flowkeep chain schema` prints: each configuration in the examples and pages
//! holds to it, as editors hold them.

use std::path::{Path, PathBuf};

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

#[test]
fn configurations_of_examples_and_pages_hold_to_the_schema() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_flowkeep"))
        .args(["chain", "schema"])
        .output()
        .unwrap();
    let schema: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
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
        // What is no configuration of this program: profiles of traffic, manifests, parts of lines,
        // functions that a reader writes.
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
        // A page may show a part: what every configuration has is added.
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
