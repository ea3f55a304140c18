//! The checks that read the repository and judge it; one rule, one file.
//!
//! A check is a function from the [`Workspace`] to violations. Each file has a test that plants a
//! violation and sees it found, so that no check passes because it looks at nothing.
//!
//! Not here: rules that an outside tool judges (formatting, clippy); those are
//! [`steps`](crate::steps).

mod arrows;
mod file_length;
mod licences;
mod links;
mod machine_paths;
mod names;
mod no_panics;
mod one_direction;
mod openings;
mod silenced;
mod stubs;
mod unsafe_places;
mod unused_dependencies;
mod words;

use crate::workspace::{Violation, Workspace};

/// A rule of the house.
pub struct Check {
    pub name: &'static str,
    /// The rule of the check, in one line.
    pub rule: &'static str,
    pub run: fn(&Workspace) -> Vec<Violation>,
}

/// All of them, in the order in which they run.
pub const ALL: &[Check] = &[
    arrows::CHECK,
    licences::CHECK,
    unused_dependencies::CHECK,
    file_length::CHECK,
    stubs::CHECK,
    silenced::CHECK,
    unsafe_places::CHECK,
    no_panics::CHECK,
    names::CHECK,
    openings::CHECK,
    one_direction::CHECK,
    machine_paths::CHECK,
    links::CHECK,
    words::CHECK,
];

/// The check of that name.
pub fn named(name: &str) -> Option<&'static Check> {
    ALL.iter().find(|check| check.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_repository_passes() {
        let workspace = Workspace::read().unwrap();
        for check in ALL {
            let found = (check.run)(&workspace);
            assert!(found.is_empty(), "{}: {found:#?}", check.name);
        }
    }

    #[test]
    fn names_are_distinct() {
        for (index, check) in ALL.iter().enumerate() {
            assert!(
                ALL[..index].iter().all(|other| other.name != check.name),
                "{}",
                check.name
            );
        }
    }
}
