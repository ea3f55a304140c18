//! The repository as the checks see it: packages with their dependencies, and text files.
//!
//! Everything is read once into memory. A check is then a function from a [`Workspace`] to a list
//! of violations, and its unit test hands it a workspace with a planted one.
//!
//! Not here: any judgement.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The sources that the checks look at.
#[derive(Default, Debug)]
pub struct Workspace {
    /// The packages of this repository.
    pub members: Vec<Member>,
    /// Every package that a build or a test of this repository uses, its own left out.
    pub foreign: Vec<Foreign>,
    /// The text files of the repository.
    pub files: Vec<File>,
}

/// A package of this repository.
#[derive(Default, Debug, Clone)]
pub struct Member {
    pub name: String,
    /// Its directory, relative to the repository.
    pub directory: String,
    pub dependencies: Vec<Dependency>,
}

/// A dependency of a package.
#[derive(Default, Debug, Clone)]
pub struct Dependency {
    /// The package's name.
    pub package: String,
    /// The name by which sources call it.
    pub called: String,
    /// In tests, examples and benchmarks only.
    pub for_development: bool,
}

/// A package that is not of this workspace.
#[derive(Default, Debug, Clone)]
pub struct Foreign {
    pub name: String,
    pub version: String,
    /// Its licence expression, as its author wrote it.
    pub licence: Option<String>,
}

/// A text file of the repository.
#[derive(Default, Debug, Clone)]
pub struct File {
    /// Relative to the repository, with `/`.
    pub path: String,
    pub text: String,
}

impl File {
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether the whole file is tests.
    pub fn is_of_tests(&self) -> bool {
        self.path.ends_with("/tests.rs") || self.path.contains("/tests/")
    }

    /// The lines before the file's unit tests, numbered from 1.
    pub fn lines_before_tests(&self) -> impl Iterator<Item = (usize, &str)> {
        // A module that is a file of its own is declared anywhere.
        let is_whole = |(at, _): &(usize, &str)| {
            let module = self.text[*at..].lines().nth(1);
            module.is_some_and(|line| line.ends_with('{'))
        };
        let begins = self.text.match_indices("#[cfg(test)]\nmod ");
        let begin = begins.filter(is_whole).map(|(at, _)| at).next();
        let before = self.text[..begin.unwrap_or(self.text.len())].lines().count();
        self.lines().take(before)
    }

    /// All lines, numbered from 1.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text
            .lines()
            .enumerate()
            .map(|(index, line)| (index + 1, line))
    }
}

/// Something that a check does not let pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// File and line, or package.
    pub place: String,
    /// The problem, and the remedy.
    pub problem: String,
}

impl Violation {
    pub fn at(file: &File, line: usize, problem: impl Into<String>) -> Self {
        Violation {
            place: format!("{}:{line}", file.path),
            problem: problem.into(),
        }
    }

    pub fn of(place: impl Into<String>, problem: impl Into<String>) -> Self {
        Violation {
            place: place.into(),
            problem: problem.into(),
        }
    }
}

/// The repository's root directory.
pub fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask
        .parent()
        .expect("xtask lies in the repository")
        .to_path_buf()
}

impl Workspace {
    /// Reads the repository that this program was built from.
    pub fn read() -> Result<Self, String> {
        let root = root();
        let (members, foreign) = packages(&root)?;
        let mut files = Vec::new();
        read_files(&root, &root, &mut files)?;
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Workspace {
            members,
            foreign,
            files,
        })
    }

    /// The Rust files of a member.
    pub fn sources_of(&self, member: &Member) -> impl Iterator<Item = &File> {
        let directory = format!("{}/", member.directory);
        self.files
            .iter()
            .filter(move |file| file.is_rust() && file.path.starts_with(&directory))
    }
}

/// Asks cargo for the packages, on Linux: dependencies of other systems are never built here.
fn packages(root: &Path) -> Result<(Vec<Member>, Vec<Foreign>), String> {
    let output = Command::new("cargo")
        .args(["metadata", "--format-version=1", "--locked"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(root)
        .output()
        .map_err(|error| format!("cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let metadata: Value =
        serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))?;
    Ok(sort_out(&metadata, root))
}

/// Takes the checks' facts from cargo's answer.
fn sort_out(metadata: &Value, root: &Path) -> (Vec<Member>, Vec<Foreign>) {
    let ours = |id: &Value| list(metadata, "workspace_members").contains(id);
    let mut members = Vec::new();
    let mut foreign = Vec::new();
    for package in list(metadata, "packages") {
        if !ours(&package["id"]) {
            foreign.push(Foreign {
                name: text(package, "name"),
                version: text(package, "version"),
                licence: package["license"].as_str().map(str::to_owned),
            });
            continue;
        }
        let manifest = text(package, "manifest_path");
        let directory = Path::new(&manifest).parent().unwrap_or(root);
        members.push(Member {
            name: text(package, "name"),
            directory: directory
                .strip_prefix(root)
                .unwrap_or(directory)
                .display()
                .to_string(),
            dependencies: list(package, "dependencies")
                .iter()
                .map(|dependency| Dependency {
                    called: called(metadata, dependency),
                    package: text(dependency, "name"),
                    for_development: dependency["kind"] == "dev",
                })
                .collect(),
        });
    }
    (members, foreign)
}

/// The name under which sources use a dependency: the name it is given here, or else its library's
/// own.
fn called(metadata: &Value, dependency: &Value) -> String {
    if let Some(rename) = dependency["rename"].as_str() {
        return rename.replace('-', "_");
    }
    let package = list(metadata, "packages")
        .iter()
        .find(|package| package["name"] == dependency["name"]);
    let library = package.and_then(|package| {
        list(package, "targets").iter().find(|target| {
            list(target, "kind")
                .iter()
                .any(|kind| kind == "lib" || kind == "rlib" || kind == "proc-macro")
        })
    });
    match library {
        Some(library) => text(library, "name").replace('-', "_"),
        None => text(dependency, "name").replace('-', "_"),
    }
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

/// Text files below `directory`, build output and git's own left out.
fn read_files(root: &Path, directory: &Path, files: &mut Vec<File>) -> Result<(), String> {
    let says = |error| format!("{}: {error}", directory.display());
    for entry in fs::read_dir(directory).map_err(says)? {
        let path = entry.map_err(says)?.path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if path.is_symlink() || matches!(name, "target" | ".git" | "Cargo.lock") {
            continue;
        }
        if path.is_dir() {
            read_files(root, &path, files)?;
        } else if let Ok(text) = fs::read_to_string(&path) {
            let path = path
                .strip_prefix(root)
                .expect("below the root")
                .display()
                .to_string();
            files.push(File { path, text });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renamed_dependency_is_called_by_its_new_name() {
        let metadata = serde_json::json!({
            "workspace_members": ["a"],
            "packages": [
                {"id": "a", "name": "a", "manifest_path": "/r/crates/a/Cargo.toml", "dependencies": [
                    {"name": "flowkeep-wire", "rename": "wire", "kind": null},
                    {"name": "proc-macro2", "rename": null, "kind": null},
                    {"name": "odd", "rename": null, "kind": "dev"},
                ]},
                {"id": "b", "name": "odd", "version": "1.0.0", "license": "MIT", "targets": [
                    {"name": "even", "kind": ["lib"]},
                ]},
            ],
        });
        let (members, foreign) = sort_out(&metadata, Path::new("/r"));
        assert_eq!(members[0].directory, "crates/a");
        let called: Vec<&str> = members[0]
            .dependencies
            .iter()
            .map(|d| d.called.as_str())
            .collect();
        assert_eq!(called, ["wire", "proc_macro2", "even"]);
        assert!(members[0].dependencies[2].for_development);
        assert_eq!(foreign.len(), 1);
        assert_eq!(foreign[0].licence.as_deref(), Some("MIT"));
    }

    #[test]
    fn this_repository_is_read() {
        let workspace = Workspace::read().unwrap();
        assert!(
            workspace
                .members
                .iter()
                .any(|member| member.name == "flowkeep-wire")
        );
        assert!(
            workspace
                .files
                .iter()
                .any(|file| file.path == "xtask/src/main.rs")
        );
        assert!(
            workspace
                .files
                .iter()
                .all(|file| !file.path.starts_with("target/"))
        );
    }
}
