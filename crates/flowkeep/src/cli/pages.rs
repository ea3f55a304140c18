//! `completions` and `man`: what shells and `man` show of the command line.

use super::{Cli, Failure};
use clap::CommandFactory;
use std::io::Write;
use std::path::Path;

/// Prints a shell's completions.
pub fn completions(shell: clap_complete::Shell, out: &mut dyn Write) {
    let mut command = Cli::command();
    let name = command.get_name().to_owned();
    // What makes them panics where a pipe is broken.
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut text);
    let _ = out.write_all(&text);
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
