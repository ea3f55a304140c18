//! How many files of a kind the shared data have, by their list `MANIFEST.tsv`: missing files are
//! noticed.

use std::path::Path;

/// Files with an extension in a folder of the data, and below it.
///
/// # Panics
/// If the list cannot be read, or names none: a comparison with nothing would be equal.
pub fn count(data: &Path, folder: &str, extension: &str) -> usize {
    let list = std::fs::read_to_string(data.join("MANIFEST.tsv")).expect("the data have a list");
    let paths = list
        .lines()
        .filter_map(|line| Some(Path::new(line.split('\t').next()?)));
    let is_meant =
        |path: &&Path| path.starts_with(folder) && path.extension().is_some_and(|e| e == extension);
    let count = paths.filter(is_meant).count();
    assert!(count > 0, "{folder} has no *.{extension} in the list");
    count
}
