//! What README and examples show must hold: every configuration in them is read and checked.

use flowkeep::config;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

#[track_caller]
fn good(name: &str, text: &str) {
    if let Err(problems) = config::parse(name, text, &flowkeep::functions()) {
        let shown: Vec<String> = problems.iter().map(ToString::to_string).collect();
        panic!("{}", shown.join("\n\n"));
    }
}

#[test]
fn configurations_in_the_readme() {
    let text = std::fs::read_to_string(root().join("README.md")).unwrap();
    let blocks: Vec<&str> = text
        .split("```toml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .collect();
    assert!(!blocks.is_empty(), "the README shows a configuration");
    for block in blocks {
        good("README.md", block);
    }
}

#[test]
fn the_demonstration() {
    let path = root().join("examples/demo.toml");
    good("examples/demo.toml", &std::fs::read_to_string(path).unwrap());
}

#[test]
fn the_readme_opens_with_its_two_commands() {
    let text = std::fs::read_to_string(root().join("README.md")).unwrap();
    let first: Vec<&str> = text.lines().filter(|line| !line.is_empty()).take(4).collect();
    assert!(
        first[2].starts_with("./x demo") && first[3].starts_with("./x test"),
        "{first:?}"
    );
}
