//! Each dependency of a `Cargo.toml` is used in that crate's sources.
//!
//! A dependency counts as used when its name stands as a word somewhere in the crate's Rust files,
//! comments left out. That misses a name that is also an ordinary word; it finds a dependency that
//! was simply left behind.

use super::Check;
use crate::workspace::{Violation, Workspace};

pub const CHECK: Check = Check {
    name: "unused-dependencies",
    rule: "every dependency is named in its crate's sources",
    run,
};

fn run(workspace: &Workspace) -> Vec<Violation> {
    let mut found = Vec::new();
    for member in &workspace.members {
        for dependency in &member.dependencies {
            let used = workspace.sources_of(member).any(|file| {
                file.lines()
                    .filter(|(_, line)| !line.trim_start().starts_with("//"))
                    .any(|(_, line)| has_word(line, &dependency.called))
            });
            if !used {
                found.push(Violation::of(
                    format!("{}/Cargo.toml", member.directory),
                    format!(
                        "`{}` is used nowhere in the crate: take it out",
                        dependency.package
                    ),
                ));
            }
        }
    }
    found
}

/// Whether `word` stands in `line` with no letter, digit or underscore beside it.
fn has_word(line: &str, word: &str) -> bool {
    let part_of_name = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        !line[..at].ends_with(part_of_name) && !line[at + word.len()..].starts_with(part_of_name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::{Dependency, File, Member};

    #[test]
    fn words() {
        assert!(has_word("use wire::Packet;", "wire"));
        assert!(has_word("(nf)", "nf"));
        assert!(!has_word("let wired = my_wire;", "wire"));
    }

    #[test]
    fn a_dependency_named_only_in_a_comment_or_elsewhere_is_found() {
        let dependency = |called: &str| Dependency {
            package: called.into(),
            called: called.into(),
            for_development: false,
        };
        let file = |path: &str, text: &str| File {
            path: path.into(),
            text: text.into(),
        };
        let workspace = Workspace {
            members: vec![Member {
                name: "a".into(),
                directory: "crates/a".into(),
                dependencies: vec![dependency("used"), dependency("commented"), dependency("absent")],
            }],
            files: vec![
                file(
                    "crates/a/src/lib.rs",
                    "use used::Thing;\n    // commented::Thing\n",
                ),
                file("crates/ab/src/lib.rs", "use absent::Thing;\n"),
            ],
            ..Workspace::default()
        };
        let found = run(&workspace);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].problem.contains("`commented`"));
        assert!(found[1].problem.contains("`absent`"));
    }
}
