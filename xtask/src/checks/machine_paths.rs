//! No file names a directory of the machine on which it was written.

use super::Check;
use crate::workspace::{File, Violation, Workspace};

pub const CHECK: Check = Check {
    name: "machine-paths",
    rule: "no file names a directory of a developer's machine",
    run,
};

/// Written in halves, so that this file passes.
const FORBIDDEN: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("/Us", "ers/"),
    concat!("bash_", "jobs"),
];

fn run(workspace: &Workspace) -> Vec<Violation> {
    workspace.files.iter().flat_map(judge).collect()
}

fn judge(file: &File) -> Vec<Violation> {
    let mut found = Vec::new();
    for (number, line) in file.lines() {
        for forbidden in FORBIDDEN {
            // Part of a longer path or an address is something else.
            let begins_there = line
                .match_indices(forbidden)
                .any(|(at, _)| !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '.' || c == '-'));
            if begins_there {
                found.push(Violation::at(
                    file,
                    number,
                    format!("names `{forbidden}`, which is one machine's"),
                ));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_found_and_an_address_is_not() {
        let file = |text: String| File {
            path: "README.md".into(),
            text,
        };
        for forbidden in FORBIDDEN {
            assert_eq!(
                judge(&file(format!("see {forbidden}x\n"))).len(),
                1,
                "{forbidden}"
            );
        }
        assert!(judge(&file(format!("https://example.org{}x\n", FORBIDDEN[0]))).is_empty());
    }
}
