//! The configurations in README and examples must hold: each is read and checked.

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

/// Files are named from the repository's root, where a reader tries it out.
fn from_here(text: &str) -> String {
    let examples = root().join("examples");
    text.replace("\"examples/", &format!("\"{}/", examples.display()))
}

/// The first block of a page that is marked so.
fn block(page: &str, mark: &str) -> String {
    let text = std::fs::read_to_string(root().join(page)).unwrap();
    let (_, rest) = text.split_once(&format!("```{mark}\n")).expect(mark);
    rest.split("```").next().unwrap().to_owned()
}

#[test]
fn the_reference_of_settings_is_a_good_configuration() {
    good(
        "docs/configuration.md",
        &from_here(&block("docs/configuration.md", "toml")),
    );
}

#[test]
fn the_configurations_of_several_processes_are_good() {
    good(
        "docs/configuration.md",
        &block("docs/configuration.md", "toml cluster"),
    );
    let path = root().join("examples/cluster.toml");
    good(
        "examples/cluster.toml",
        &from_here(&std::fs::read_to_string(path).unwrap().replace(
            "generate:examples",
            &format!("generate:{}/examples", root().display()),
        )),
    );
}

#[test]
fn the_configuration_for_protocols_that_carry_addresses_is_good() {
    let blocks = ["toml rule", "toml services"].map(|mark| block("docs/protocols.md", mark));
    let cluster = "[[port]]\nname = \"a\"\ninput = \"memory:a\"\noutput = \"memory:a\"\n\
                   [[chain]]\nname = \"all\"\nfunctions = [\"firewall\", \"load_balancer\"]\n";
    good("docs/protocols.md", &format!("{cluster}{}", blocks.concat()));
}

#[test]
fn the_reference_of_settings_is_complete() {
    let functions = flowkeep::functions();
    let schema = config::schema::of(&functions);
    let pages = ["toml", "toml cluster"].map(|mark| block("docs/configuration.md", mark));
    let page = pages.concat();
    let mut settings = std::collections::BTreeSet::new();
    collect_properties(schema, &mut settings);
    assert!(settings.len() > 80, "{}", settings.len());
    for name in settings {
        let shown = [format!("{name} = "), format!("{name}]"), format!(".{name}.")];
        assert!(
            shown.iter().any(|form| page.contains(form)),
            "docs/configuration.md does not show `{name}`"
        );
    }
}

fn collect_properties(schema: &serde_json::Value, names: &mut std::collections::BTreeSet<String>) {
    match schema {
        serde_json::Value::Object(fields) => {
            if let Some(properties) = fields.get("properties").and_then(serde_json::Value::as_object) {
                names.extend(properties.keys().filter(|name| *name != "function").cloned());
            }
            fields.values().for_each(|field| collect_properties(field, names));
        }
        serde_json::Value::Array(list) => list.iter().for_each(|item| collect_properties(item, names)),
        _ => {}
    }
}

#[track_caller]
fn good_profile(path: &Path) {
    let uri = format!("generate:{}?packets=1", path.display());
    let opened = adapters::open::Ports::new()
        .with_generator(flowkeep::generate::open)
        .open_input(&uri);
    if let Err(error) = opened {
        panic!("{error}");
    }
}

#[test]
fn the_profiles_of_the_examples() {
    for name in ["demo-traffic.toml", "short-and-long.toml"] {
        good_profile(&root().join("examples").join(name));
    }
}

#[test]
fn the_profile_in_the_reference_is_good() {
    let profile = block("docs/configuration.md", "toml profile");
    let path = std::env::temp_dir().join(format!("flowkeep-profile-{}.toml", std::process::id()));
    std::fs::write(&path, profile).unwrap();
    good_profile(&path);
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn the_demonstration() {
    let path = root().join("examples/demo.toml");
    good("examples/demo.toml", &std::fs::read_to_string(path).unwrap());
    let path = root().join("examples/host-limits.toml");
    good(
        "examples/host-limits.toml",
        &std::fs::read_to_string(path).unwrap(),
    );
    let path = root().join("examples/ids.toml");
    good(
        "examples/ids.toml",
        &from_here(&std::fs::read_to_string(path).unwrap()),
    );
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

/// The functions of all sources of the workspace, tests included.
fn functions_of_all_sources() -> String {
    fn read(folder: &Path, all: &mut String) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                read(&path, all);
            } else if path.extension().is_some_and(|end| end == "rs") {
                all.push_str(&std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    let mut all = String::new();
    for folder in std::fs::read_dir(root().join("crates")).unwrap() {
        for part in ["src", "tests"] {
            let path = folder.as_ref().unwrap().path().join(part);
            if path.is_dir() {
                read(&path, &mut all);
            }
        }
    }
    all
}

/// The part of a page below a heading, up to the next one.
fn section<'t>(page: &'t str, heading: &str) -> &'t str {
    let (_, rest) = page.split_once(heading).expect(heading);
    rest.split("\n## ").next().unwrap()
}

#[test]
fn the_promises_name_tests_that_are_there() {
    let page = std::fs::read_to_string(root().join("docs/design/promises.md")).unwrap();
    let sources = functions_of_all_sources();
    let rows = section(&page, "\n## Invariants")
        .lines()
        .filter(|line| line.starts_with("| "));
    let mut named = 0;
    for row in rows.skip(1) {
        let checked_by = row.trim_end_matches('|').rsplit('|').next().unwrap();
        for name in checked_by.split('`').skip(1).step_by(2) {
            if name.starts_with("cargo ") || name == "undocumented_unsafe_blocks" {
                continue;
            }
            assert!(
                sources.contains(&format!("fn {name}(")),
                "no test `{name}`: {row}"
            );
            named += 1;
        }
    }
    assert!(named > 30, "{named}");
}

/// Requirements of each RFC whose row must be there, by their first column's beginning.
fn requirements() -> Vec<(&'static str, Vec<String>)> {
    let numbered = |last: u32| (1..=last).map(|n| format!("REQ-{n}")).collect();
    let updates = (2..=12).map(|n| n.to_string()).collect();
    vec![
        ("\n## RFC 4787", numbered(14)),
        ("\n## RFC 5382", numbered(10)),
        ("\n## RFC 5508", numbered(11)),
        ("\n## RFC 7857", updates),
    ]
}

#[test]
fn the_table_of_nat_requirements_is_whole_and_names_tests_that_are_there() {
    let page = std::fs::read_to_string(root().join("docs/nat-behaviour.md")).unwrap();
    let sources = functions_of_all_sources();
    let mut named = std::collections::BTreeSet::new();
    for (heading, mut missing) in requirements() {
        let rows = section(&page, heading)
            .lines()
            .filter(|line| line.starts_with("| "));
        for row in rows.skip(1) {
            let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
            let [requirement, asks, verdict, tests] = cells[..] else {
                panic!("four columns: {row}")
            };
            missing.retain(|wanted| requirement != wanted && !requirement.starts_with(&format!("{wanted},")));
            assert!(!asks.is_empty() && !verdict.is_empty(), "{row}");
            let tests: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
            let needs_none = ["not applicable:", "may, and does not"];
            assert!(
                !tests.is_empty() || needs_none.iter().any(|reason| verdict.starts_with(reason)),
                "no test: {row}"
            );
            for test in tests {
                assert!(
                    sources.contains(&format!("fn {test}(")),
                    "no test `{test}`: {row}"
                );
                named.insert(test.to_owned());
            }
        }
        assert!(missing.is_empty(), "no row for {missing:?} below {heading}");
    }
    // The other way round: each test that looks from outside is in the table.
    let looks = sources
        .split("fn nat_")
        .skip(1)
        .filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let looks: Vec<String> = looks
        .filter_map(|rest| Some(format!("nat_{}", rest.split('(').next()?)))
        .collect();
    assert!(looks.len() > 30, "{}", looks.len());
    for test in looks {
        assert!(named.contains(&test), "`{test}` is not in docs/nat-behaviour.md");
    }
}

#[test]
fn the_architectures_code_map_leads_to_files() {
    let page = |name: &str| std::fs::read_to_string(root().join(name)).unwrap();
    let architecture = page("ARCHITECTURE.md");
    let map = page("docs/design/code-map.md");
    let rows = section(&architecture, "\n## To change X")
        .lines()
        .chain(map.lines());
    let mut last = PathBuf::new();
    for row in rows.filter(|line| line.starts_with("| ")) {
        let places = row.trim_end_matches('|').rsplit('|').next().unwrap();
        for name in places.split('`').skip(1).step_by(2) {
            if !name.contains('/') && !name.contains(".rs") {
                continue;
            }
            let name = name.replace("NAME", "nat");
            // A file alone is in the folder of the one before it.
            let mut tried = vec![root().join("crates").join(&name), root().join(&name)];
            tried.extend(last.ancestors().map(|folder| folder.join(&name)));
            let found = tried.into_iter().find(|path| path.exists());
            last = found.unwrap_or_else(|| panic!("no file `{name}`: {row}"));
            if last.is_file() {
                last.pop();
            }
        }
    }
}

/// Files with this end, in a folder of the repository and below it.
fn pages_in(folder: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root().join(folder)).unwrap().flatten() {
        let path = format!("{folder}/{}", entry.file_name().to_str().unwrap());
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(pages_in(&path)),
            false if path.ends_with(".md") => found.push(path),
            false => {}
        }
    }
    found
}

#[test]
fn the_page_of_status_has_nothing_but_what_is_absent_and_limits() {
    let page = std::fs::read_to_string(root().join("docs/status.md")).unwrap();
    let headings: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    assert_eq!(headings, ["Absent", "Limits"]);
}

#[test]
fn the_book_has_every_page() {
    let summary = std::fs::read_to_string(root().join("tools/book/SUMMARY")).unwrap();
    let chapters: Vec<&str> = (summary.split("](").skip(1))
        .filter_map(|rest| rest.split_once(')'))
        .map(|(path, _)| path)
        .collect();
    for path in &chapters {
        assert!(
            root().join(path).is_file(),
            "tools/book/SUMMARY: there is no {path}"
        );
    }
    let pages = pages_in("docs");
    assert!(pages.len() > 30, "{pages:?}");
    for page in pages {
        assert!(
            chapters.contains(&page.as_str()),
            "tools/book/SUMMARY lacks {page}"
        );
    }
}

/// Names of calls in the first column of a table, which begins with this line.
fn calls_of(page: &str, header: &str) -> Vec<String> {
    let (_, rest) = page.split_once(&format!("{header}\n|---|---|\n")).expect(header);
    let rows = rest.lines().take_while(|line| line.starts_with('|'));
    let cells = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
    let names = cells.filter_map(|cell| cell.trim_start_matches('.').split_once('(').map(|(name, _)| name));
    names.map(str::to_owned).collect()
}

#[test]
fn the_guide_lists_calls_that_there_are() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let guide = read("docs/guide/write-a-function.md");
    let wire = ["packet.rs", "tcp.rs", "rewrite.rs"].map(|file| read(&format!("crates/wire/src/{file}")));
    let tables = [
        ("| `packet.` | is |", wire.concat()),
        ("| step | is |", read("crates/testkit/src/step.rs")),
    ];
    for (header, code) in tables {
        let names = calls_of(&guide, header);
        assert!(names.len() >= 15, "{header}: {names:?}");
        for name in names {
            assert!(
                code.contains(&format!("pub fn {name}(")),
                "{header}: there is no `{name}`"
            );
        }
    }
}
