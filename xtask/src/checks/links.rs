//! The target of each link of the documentation is there.
//!
//! Looks at `[text](path)` in Markdown files, where the path is neither an address nor a place in
//! the same page.

use super::Check;
use crate::workspace::{File, Violation, Workspace, root};
use std::path::Path;

pub const CHECK: Check = Check {
    name: "links",
    rule: "what a page links to is there",
    run,
};

fn run(workspace: &Workspace) -> Vec<Violation> {
    let root = root();
    workspace
        .files
        .iter()
        .filter(|file| file.path.ends_with(".md"))
        .flat_map(|file| judge(file, &|path| root.join(path).exists()))
        .collect()
}

fn judge(file: &File, exists: &dyn Fn(&Path) -> bool) -> Vec<Violation> {
    let folder = Path::new(&file.path).parent().unwrap_or(Path::new(""));
    let mut found = Vec::new();
    let mut in_code = false;
    for (number, line) in file.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        for target in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = target.split('#').next().unwrap_or_default();
            if path.is_empty() || path.contains("://") || path.starts_with("mailto:") {
                continue;
            }
            if !exists(&folder.join(path)) {
                found.push(Violation::at(
                    file,
                    number,
                    format!("links to `{path}`, which is not there"),
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
    fn a_dead_link_is_found() {
        let file = File {
            path: "docs/a.md".into(),
            text: "[b](b.md#part) [c](https://example.org) [d](#here)\n```\n[x](y)\n```\n[e](e.md)\n".into(),
        };
        let found = judge(&file, &|path| path == Path::new("docs/b.md"));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].place, "docs/a.md:5");
    }
}
