//! The tool with the functions that come with it.

fn main() -> std::process::ExitCode {
    flowkeep::main(flowkeep::functions())
}
