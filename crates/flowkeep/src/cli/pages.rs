//! `completions` and `man`: the command line for shells, `man` and the reference.
//!
//! ```text
//!   commands of clap ──► a heading each: what it does, its usage, a row for each word, examples
//! ```
//!
//! The page of reference (`docs/commands.md`) has the words by which a running cluster is reached
//! once, since most commands have them.

use super::reach::Asking;
use super::{Cli, Failure};
use clap::{Arg, Args, Command, CommandFactory};
use std::fmt::Write as _;
use std::path::Path;

/// A shell's completions.
pub fn completions(shell: clap_complete::Shell) -> String {
    let mut command = Cli::command();
    let name = command.get_name().to_owned();
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Writes a manual page for each command.
pub fn manual(directory: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), directory))
        .map_err(|error| {
            Failure::failed(format!(
                "{}: {error}; name a directory that you may write to, or make",
                directory.display()
            ))
        })
}

const OPENING: &str = "\
# Commands

Every command with its words, as `flowkeep man --page` writes it: the sentences are those of
`flowkeep COMMAND --help`. A test makes this page from the code. Uses of the commands:
[looking inside](look-inside.md), [moving flows](moving.md), [configuration](configuration.md),
[coordinator](coordinator.md). Every command has `--help`, and each group of commands has `help`.
";

const REACHED: &str = "
## How a running cluster is reached

Most commands ask a running cluster, over its control socket, or all of its members by their
coordinator. They have these words.

";

/// The reference of all commands.
pub fn page() -> String {
    let mut command = Cli::command();
    command.build();
    let reached = Asking::augment_args(Command::new("asking"));
    let reached: Vec<&Arg> = reached.get_arguments().collect();
    let mut page = OPENING.to_owned() + REACHED;
    rows(&mut page, &reached);
    section(&mut page, &command, &reached);
    page
}

/// A command, and behind it its subcommands.
fn section(page: &mut String, command: &Command, reached: &[&Arg]) {
    let _ = write!(
        page,
        "\n## `{}`\n\n{}.\n\n```text\n{}\n```\n",
        command.get_bin_name().unwrap_or("flowkeep"),
        in_a_line(command.get_about()).trim_end_matches('.'),
        command.clone().render_usage()
    );
    let is_said = |arg: &&Arg| !arg.is_hide_set() && !["help", "version"].contains(&arg.get_id().as_str());
    let all: Vec<&Arg> = command.get_arguments().filter(is_said).collect();
    let is_shared = |arg: &&Arg| reached.iter().any(|of| of.get_id() == arg.get_id());
    let asks = all.iter().filter(|arg| is_shared(arg)).count() == reached.len();
    let own: Vec<&Arg> = all.into_iter().filter(|arg| !asks || !is_shared(arg)).collect();
    if !own.is_empty() {
        page.push('\n');
        rows(page, &own);
    }
    if asks {
        page.push_str("\nAnd [how a running cluster is reached](#how-a-running-cluster-is-reached).\n");
    }
    if let Some(help) = command.get_after_help() {
        behind(page, &help.to_string());
    }
    let parts = command.get_subcommands();
    for part in parts.filter(|part| part.get_name() != "help" && !part.is_hide_set()) {
        section(page, part, reached);
    }
}

/// Words of a command, a row each.
fn rows(page: &mut String, all: &[&Arg]) {
    page.push_str("| word | meaning |\n|---|---|\n");
    for arg in all {
        let short = arg.get_short().map(|short| format!("-{short}"));
        let long = arg.get_long().map(|long| format!("--{long}"));
        let mut word = short.into_iter().chain(long).collect::<Vec<_>>().join(", ");
        let mut what = in_a_line(arg.get_help());
        if arg.get_action().takes_values() {
            let names = arg.get_value_names().unwrap_or_default().join(" ");
            word = format!("{word} {names}").trim_start().to_owned();
            let values = arg.get_possible_values();
            let values = values.iter().map(|value| match in_a_line(value.get_help()) {
                help if help.is_empty() => format!("`{}`", value.get_name()),
                help => format!("`{}` ({help})", value.get_name()),
            });
            let values = values.collect::<Vec<_>>().join(", ");
            if !values.is_empty() {
                let _ = write!(what, ": {values}");
            }
            if let Some(variable) = arg.get_env() {
                let variable = variable.to_string_lossy();
                let _ = write!(what, "; else what the environment variable `{variable}` says");
            }
            let default = arg
                .get_default_values()
                .iter()
                .map(|value| value.to_string_lossy());
            let default = default.collect::<Vec<_>>().join(",");
            if !default.is_empty() {
                let _ = write!(what, ". Default: `{default}`");
            }
        }
        let _ = writeln!(page, "| `{word}` | {}. |", what.trim_end_matches('.'));
    }
}

/// The help behind the words: text, and indented blocks.
fn behind(page: &mut String, text: &str) {
    let mut is_block = false;
    page.push('\n');
    for line in text.lines() {
        let is_indented = line.starts_with("  ");
        if is_indented != is_block {
            page.push_str(if is_block { "```\n\n" } else { "\n```text\n" });
            is_block = is_indented;
        }
        if !(line.is_empty() && page.ends_with("\n\n")) {
            let _ = writeln!(page, "{}", line.strip_prefix("  ").unwrap_or(line));
        }
    }
    if is_block {
        page.push_str("```\n");
    }
}

/// Words as a cell of a table has them.
fn in_a_line(text: Option<&clap::builder::StyledStr>) -> String {
    let text = text.map(ToString::to_string).unwrap_or_default();
    text.split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .replace('|', "\\|")
}
