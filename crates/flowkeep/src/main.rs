//! The `flowkeep` command: the tool with the functions that come with it.

fn main() -> std::process::ExitCode {
    flowkeep::main(flowkeep::shipped())
}
