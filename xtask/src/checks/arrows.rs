//! The crates use each other only as the architecture says.
//!
//! The table below *is* the architecture's, by package name. Dependencies of a crate and of its
//! tests are judged apart, since a test may look at more; but `functions` and `runtime` never see
//! each other, not even in tests.

use super::Check;
use crate::workspace::{Member, Violation, Workspace};

pub const CHECK: Check = Check {
    name: "arrows",
    rule: "crates use each other only as the architecture's table says",
    run,
};

struct Row {
    crate_name: &'static str,
    may_use: &'static [&'static str],
    /// In tests, benchmarks and examples, besides `may_use`.
    tests_may_use: &'static [&'static str],
}

const TABLE: &[Row] = &[
    row("flowkeep-wire", &[], &[]),
    row("flowkeep-nf-macros", &[], &["flowkeep-nf"]),
    row("flowkeep-variables", &[], &[]),
    row(
        "flowkeep-nf",
        &["flowkeep-wire", "flowkeep-nf-macros", "flowkeep-variables"],
        &[],
    ),
    row(
        "flowkeep-functions",
        &["flowkeep-wire", "flowkeep-nf"],
        &["flowkeep-testkit", "flowkeep-adapters"],
    ),
    row("flowkeep-protocols", &["flowkeep-wire"], &["flowkeep-testkit"]),
    row(
        "flowkeep-runtime",
        &["flowkeep-wire", "flowkeep-nf", "flowkeep-protocols"],
        &[],
    ),
    row(
        "flowkeep-adapters",
        &["flowkeep-wire", "flowkeep-runtime", "flowkeep-protocols"],
        &["flowkeep-nf", "flowkeep-testkit"],
    ),
    row("flowkeep-stores", &["flowkeep-variables"], &["flowkeep-testkit"]),
    row(
        "flowkeep-testkit",
        &["flowkeep-wire", "flowkeep-nf", "flowkeep-runtime"],
        &["flowkeep-functions", "flowkeep-adapters"],
    ),
    row(
        "flowkeep-sim",
        &[
            "flowkeep-wire",
            "flowkeep-nf",
            "flowkeep-protocols",
            "flowkeep-runtime",
        ],
        // The tool knows how to make plans of configurations.
        &["flowkeep"],
    ),
    row("flowkeep-coordinator", &["flowkeep-protocols"], &[]),
    row("flowkeep-lab", &[], &[]),
    row(
        "flowkeep-bench",
        &[
            "flowkeep-wire",
            "flowkeep-nf",
            "flowkeep-protocols",
            "flowkeep-functions",
            "flowkeep-runtime",
            "flowkeep-adapters",
            "flowkeep-stores",
            "flowkeep-lab",
        ],
        &[],
    ),
    row(
        "flowkeep",
        &[
            "flowkeep-wire",
            "flowkeep-nf",
            "flowkeep-protocols",
            "flowkeep-functions",
            "flowkeep-runtime",
            "flowkeep-adapters",
            "flowkeep-testkit",
            "flowkeep-sim",
            "flowkeep-coordinator",
            "flowkeep-stores",
            "flowkeep-lab",
            "flowkeep-bench",
        ],
        &[],
    ),
    row("xtask", &[], &[]),
];

const fn row(
    crate_name: &'static str,
    may_use: &'static [&'static str],
    tests_may_use: &'static [&'static str],
) -> Row {
    Row {
        crate_name,
        may_use,
        tests_may_use,
    }
}

fn run(workspace: &Workspace) -> Vec<Violation> {
    workspace
        .members
        .iter()
        .flat_map(|member| judge(member, &workspace.members))
        .collect()
}

fn judge(member: &Member, members: &[Member]) -> Vec<Violation> {
    let Some(row) = TABLE.iter().find(|row| row.crate_name == member.name) else {
        let problem = "is not in the table of xtask/src/checks/arrows.rs: say there what it may use";
        return vec![Violation::of(&member.name, problem)];
    };
    let ours = |name: &str| members.iter().any(|member| member.name == name);
    let mut found = Vec::new();
    for dependency in member
        .dependencies
        .iter()
        .filter(|dependency| ours(&dependency.package))
    {
        let name = dependency.package.as_str();
        let allowed = row.may_use.contains(&name)
            || (dependency.for_development && (row.tests_may_use.contains(&name) || name == member.name));
        if !allowed {
            let where_used = if dependency.for_development {
                " in tests"
            } else {
                ""
            };
            found.push(Violation::of(
                &member.name,
                format!("uses {name}{where_used}, which the architecture does not allow"),
            ));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Dependency;

    fn members(edges: &[(&str, &str, bool)]) -> Vec<Member> {
        TABLE
            .iter()
            .map(|row| Member {
                name: row.crate_name.into(),
                dependencies: edges
                    .iter()
                    .filter(|(from, ..)| *from == row.crate_name)
                    .map(|(_, to, for_development)| Dependency {
                        package: (*to).into(),
                        called: (*to).into(),
                        for_development: *for_development,
                    })
                    .collect(),
                ..Member::default()
            })
            .collect()
    }

    fn found(edges: &[(&str, &str, bool)]) -> usize {
        run(&Workspace {
            members: members(edges),
            ..Workspace::default()
        })
        .len()
    }

    #[test]
    fn what_the_table_allows_passes() {
        assert_eq!(found(&[("flowkeep-nf", "flowkeep-wire", false)]), 0);
        assert_eq!(found(&[("flowkeep-functions", "flowkeep-testkit", true)]), 0);
    }

    #[test]
    fn functions_and_runtime_never_see_each_other() {
        for for_development in [false, true] {
            assert_eq!(
                found(&[("flowkeep-functions", "flowkeep-runtime", for_development)]),
                1
            );
            assert_eq!(
                found(&[("flowkeep-runtime", "flowkeep-functions", for_development)]),
                1
            );
        }
    }

    #[test]
    fn what_only_tests_may_use_is_not_for_the_crate() {
        assert_eq!(found(&[("flowkeep-functions", "flowkeep-testkit", false)]), 1);
        assert_eq!(found(&[("flowkeep-wire", "flowkeep-nf", true)]), 1);
    }

    #[test]
    fn a_crate_outside_the_table_is_found() {
        let member = Member {
            name: "flowkeep-drawer".into(),
            ..Member::default()
        };
        assert_eq!(judge(&member, &[]).len(), 1);
    }
}
