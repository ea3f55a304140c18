//! No file is longer than 800 lines, its unit tests apart; nor is a file of tests.
//!
//! About 250 lines are comfortable to read and 500 ask for a reason; at 800 a file is two files.

use super::Check;
use crate::workspace::{File, Violation, Workspace};

pub const CHECK: Check = Check {
    name: "file-length",
    rule: "no file is longer than 800 lines before its tests, nor is a file of tests",
    run,
};

const LINES_MAX: usize = 800;

fn run(workspace: &Workspace) -> Vec<Violation> {
    workspace
        .files
        .iter()
        .filter(|file| file.is_rust())
        .filter_map(judge)
        .collect()
}

fn judge(file: &File) -> Option<Violation> {
    let (lines, what) = if file.is_of_tests() {
        (file.text.lines().count(), "of tests")
    } else {
        (file.lines_before_tests().count(), "before its tests")
    };
    (lines > LINES_MAX).then(|| {
        Violation::of(
            &file.path,
            format!("{lines} lines {what}; {LINES_MAX} is the end: find the two things in it"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, lines: usize, test_lines: usize) -> File {
        let tests =
            "#[cfg(test)]\nmod tests {\n".to_owned() + &"    assert!(true);\n".repeat(test_lines) + "}\n";
        File {
            path: path.into(),
            text: "let a = 1;\n".repeat(lines) + &tests,
        }
    }

    #[test]
    fn only_what_comes_before_the_tests_counts() {
        assert!(judge(&file("src/a.rs", 800, 500)).is_none());
        assert!(judge(&file("src/a.rs", 801, 0)).is_some());
        assert!(judge(&file("src/a/tests.rs", 700, 0)).is_none());
        assert!(judge(&file("src/a/tests.rs", 400, 500)).is_some());
        let mut declared = file("src/a.rs", 800, 0);
        declared.text.insert_str(0, "#[cfg(test)]\nmod tests;\n");
        assert!(judge(&declared).is_some());
    }
}
