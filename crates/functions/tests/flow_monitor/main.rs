//! The flow monitor against flow tables that others made, and its promises to the runtime.

mod against_arkime;
mod against_ndpi;
mod against_zeek;
mod capture;
mod contract;
mod manifest;
mod replay;
mod tables;

use std::path::{Path, PathBuf};

/// Where the shared captures are, or `None` (and a word about it) where they are not.
fn data() -> Option<PathBuf> {
    let root = std::env::var_os("FLOWKEEP_DATA").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    if root.join("flow").is_dir() {
        Some(root)
    } else {
        println!("not run: needs the shared captures (FLOWKEEP_DATA)");
        None
    }
}

/// The files of a folder with an extension, by name.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found: Vec<_> = std::fs::read_dir(folder)
        .expect("the folder is part of the data")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|e| e == extension))
        .collect();
    found.sort();
    found
}
