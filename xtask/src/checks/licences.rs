//! Everything we build with may be used under a licence that goes with "Apache-2.0 OR MIT".
//!
//! A package's licence field is an SPDX expression: `MIT OR Apache-2.0`,
//! `(MIT OR Apache-2.0) AND Unicode-3.0`. An expression passes when the licences in the list
//! suffice to satisfy it. Old packages write `MIT/Apache-2.0`, which means `OR`.
//!
//! Not here: the licences of captures and other data; none of them is in the repository.

use super::Check;
use crate::workspace::{Violation, Workspace};

pub const CHECK: Check = Check {
    name: "licences",
    rule: "every dependency may be used under a licence of the list",
    run,
};

const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-1-Clause",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unicode-DFS-2016",
    "Unlicense",
    "Zlib",
];

fn run(workspace: &Workspace) -> Vec<Violation> {
    let mut found = Vec::new();
    for package in &workspace.foreign {
        let place = format!("{} {}", package.name, package.version);
        match &package.licence {
            None => found.push(Violation::of(place, "names no licence: use another package")),
            Some(expression) if !satisfied(expression) => {
                let problem = format!("`{expression}` is not in the list of xtask/src/checks/licences.rs");
                found.push(Violation::of(place, problem));
            }
            Some(_) => {}
        }
    }
    found
}

/// Whether the allowed licences satisfy an SPDX expression. An unreadable expression is not
/// satisfied.
fn satisfied(expression: &str) -> bool {
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    any(&mut rest).is_some_and(|good| good && rest.is_empty())
}

/// `all OR all …`
fn any(rest: &mut &[&str]) -> Option<bool> {
    let mut good = all(rest)?;
    while let ["OR", tail @ ..] = *rest {
        *rest = tail;
        good |= all(rest)?;
    }
    Some(good)
}

/// `one AND one …`
fn all(rest: &mut &[&str]) -> Option<bool> {
    let mut good = one(rest)?;
    while let ["AND", tail @ ..] = *rest {
        *rest = tail;
        good &= one(rest)?;
    }
    Some(good)
}

/// A licence, perhaps `WITH` an exception (exceptions only give more), or an expression in
/// brackets.
fn one(rest: &mut &[&str]) -> Option<bool> {
    match **rest {
        ["(", ref tail @ ..] => {
            *rest = tail;
            let good = any(rest)?;
            *rest = rest.strip_prefix(&[")"])?;
            Some(good)
        }
        [name, "WITH", _, ref tail @ ..] | [name, ref tail @ ..] => {
            *rest = tail;
            Some(ALLOWED.contains(&name))
        }
        [] => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Foreign;

    #[test]
    fn expressions() {
        for good in [
            "MIT",
            "MIT OR Apache-2.0",
            "MIT/Apache-2.0",
            "GPL-3.0 OR MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-2.0",
        ] {
            assert!(satisfied(good), "{good}");
        }
        for bad in [
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "(MIT",
            "MIT OR",
            "",
            "AGPL-3.0 OR MPL-2.0",
            "MIT )",
        ] {
            assert!(!satisfied(bad), "{bad}");
        }
    }

    #[test]
    fn a_copyleft_package_and_one_without_licence_are_found() {
        let package = |licence: Option<&str>| Foreign {
            name: "p".into(),
            version: "1.0.0".into(),
            licence: licence.map(str::to_owned),
        };
        let workspace = Workspace {
            foreign: vec![package(Some("GPL-3.0-only")), package(None), package(Some("ISC"))],
            ..Workspace::default()
        };
        assert_eq!(run(&workspace).len(), 2);
    }
}
