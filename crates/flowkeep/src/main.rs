//! The tool with the functions that come with it.

/// Functions' tables in 2 MiB pages.
#[global_allocator]
static MEMORY: adapters::large::LargePages = adapters::large::LargePages;

fn main() -> std::process::ExitCode {
    flowkeep::main(flowkeep::functions())
}
