//! `unsafe` stands only where the architecture puts it.
//!
//! Clippy sees to it that each block has its proof beside it (`undocumented_unsafe_blocks`); this
//! check sees to it that there are few places to read. Tests may have it: they call unsafe
//! functions, and count allocations.

use super::Check;
use crate::workspace::{File, Violation, Workspace};

pub const CHECK: Check = Check {
    name: "unsafe-places",
    rule: "`unsafe` stands only in the places of the list",
    run,
};

/// Directories and files that may have unsafe code.
const PLACES: &[&str] = &[
    "crates/wire/",
    "crates/adapters/",
    // Writes it out in the author's crate, after having checked what it promises.
    "crates/nf-macros/",
    "crates/nf/src/cx.rs",
    "crates/nf/src/by_hand.rs",
    "crates/nf/src/plain.rs",
    "crates/nf/src/timer.rs",
    // An allocator that counts.
    "crates/testkit/src/allocations.rs",
    // The memory of actors, groups and tables.
    "crates/runtime/src/flows/actor.rs",
    "crates/runtime/src/flows/group.rs",
    "crates/runtime/src/flows/table.rs",
    // Functions with their types erased, the microthreads' slots, and their callers.
    "crates/runtime/src/stage.rs",
    "crates/runtime/src/stage/through.rs",
    "crates/runtime/src/fused.rs",
    "crates/runtime/src/microthread.rs",
    "crates/runtime/src/chain.rs",
    "crates/runtime/src/chain/step.rs",
    "crates/runtime/src/runner/",
    "crates/runtime/src/worker/data.rs",
];

fn run(workspace: &Workspace) -> Vec<Violation> {
    workspace
        .files
        .iter()
        .filter(|file| file.is_rust() && file.path.starts_with("crates/"))
        .filter(|file| !PLACES.iter().any(|place| file.path.starts_with(place)))
        .filter(|file| !file.is_of_tests())
        .flat_map(judge)
        .collect()
}

fn judge(file: &File) -> Vec<Violation> {
    file.lines_before_tests()
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
        .filter(|(_, line)| {
            [
                "unsafe {",
                "unsafe fn",
                "unsafe impl",
                "unsafe trait",
                "unsafe extern",
            ]
            .iter()
            .any(|form| line.contains(form))
        })
        .map(|(number, _)| {
            let problem = "unsafe code outside the places of xtask/src/checks/unsafe_places.rs";
            Violation::at(file, number, problem)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_outside_the_places_is_found() {
        let file = |path: &str| File {
            path: path.into(),
            text: "fn a() {\n    unsafe { b() }\n}\n".into(),
        };
        let workspace = Workspace {
            files: vec![
                file("crates/wire/src/packet.rs"),
                file("crates/functions/src/nat.rs"),
            ],
            ..Workspace::default()
        };
        let found = run(&workspace);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].place, "crates/functions/src/nat.rs:2");
    }
}
