//! The tool with one function more: a scan limit over all runtimes, which shares objects.
//!
//! ```text
//! cargo run -p flowkeep --example scan_limit -- run scan-limit.toml
//! ```

#[path = "../../../examples/functions/scan_limit.rs"]
mod scan_limit;

use scan_limit::ScanLimit;

fn main() -> std::process::ExitCode {
    flowkeep::main(flowkeep::registry![ScanLimit])
}
