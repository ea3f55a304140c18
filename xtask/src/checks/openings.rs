//! Every file of code opens by saying what it is; `tests.rs` beside a module needs no introduction.

use super::Check;
use crate::workspace::{File, Violation, Workspace};

pub const CHECK: Check = Check {
    name: "openings",
    rule: "every module opens with `//!`",
    run,
};

fn run(workspace: &Workspace) -> Vec<Violation> {
    workspace
        .files
        .iter()
        .filter(|file| file.is_rust())
        .filter_map(judge)
        .collect()
}

fn judge(file: &File) -> Option<Violation> {
    // The cases of compile-fail tests are shown to readers as an author would write them.
    if file.path.ends_with("/tests.rs")
        || file.path.contains("/tests/ui/")
        || file.path.contains("/tests/compile_fail/")
    {
        return None;
    }
    let first = file.text.lines().find(|line| !line.trim().is_empty());
    let opens = first.is_some_and(|line| line.starts_with("//!"));
    (!opens).then(|| Violation::at(file, 1, "does not open with `//!` and a sentence on what it is"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_before_the_sentence_is_found() {
        let file = |text: &str| File {
            path: "src/a.rs".into(),
            text: text.into(),
        };
        assert!(judge(&file("//! A thing.\n")).is_none());
        assert!(judge(&file("use core::fmt;\n//! A thing.\n")).is_some());
        assert!(judge(&file("")).is_some());
    }
}
