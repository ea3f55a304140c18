//! No crate and no module has a name that says nothing.
//!
//! A drawer fills: a module called `utils` has no reason not to hold the next thing too.

use super::Check;
use crate::workspace::{Violation, Workspace};

pub const CHECK: Check = Check {
    name: "names",
    rule: "no crate or module is called core, common, utils, helpers or manager",
    run,
};

const DRAWERS: &[&str] = &[
    "core", "common", "util", "utils", "helper", "helpers", "manager", "managers", "misc",
];

fn run(workspace: &Workspace) -> Vec<Violation> {
    let mut found = Vec::new();
    for member in &workspace.members {
        let drawer = member.name.split('-').find(|part| DRAWERS.contains(part));
        if let Some(drawer) = drawer {
            found.push(Violation::of(&member.name, refusal(drawer)));
        }
    }
    for file in workspace.files.iter().filter(|file| file.is_rust()) {
        for part in file.path.trim_end_matches(".rs").split('/') {
            if DRAWERS.contains(&part) {
                found.push(Violation::of(&file.path, refusal(part)));
            }
        }
        for (number, line) in file.lines() {
            let module = line
                .trim_start()
                .trim_start_matches("pub ")
                .trim_start_matches("pub(crate) ");
            let name = module
                .strip_prefix("mod ")
                .map(|name| name.trim_end_matches([' ', '{', ';', '}']));
            if let Some(name) = name.filter(|name| DRAWERS.contains(name)) {
                found.push(Violation::at(file, number, refusal(name)));
            }
        }
    }
    found
}

fn refusal(name: &str) -> String {
    format!("`{name}` says nothing: name what is in it")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::{File, Member};

    #[test]
    fn drawers_are_found_as_crate_file_folder_and_module() {
        let file = |path: &str, text: &str| File {
            path: path.into(),
            text: text.into(),
        };
        let workspace = Workspace {
            members: vec![Member {
                name: "flowkeep-core".into(),
                ..Member::default()
            }],
            files: vec![
                file("crates/a/src/utils.rs", ""),
                file("crates/a/src/common/thing.rs", ""),
                file("crates/a/src/lib.rs", "use core::fmt;\npub mod helpers {\n}\n"),
            ],
            ..Workspace::default()
        };
        let places: Vec<String> = run(&workspace)
            .into_iter()
            .map(|violation| violation.place)
            .collect();
        assert_eq!(
            places,
            [
                "flowkeep-core",
                "crates/a/src/utils.rs",
                "crates/a/src/common/thing.rs",
                "crates/a/src/lib.rs:2"
            ]
        );
    }
}
