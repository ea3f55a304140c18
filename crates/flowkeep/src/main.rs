//! The `flowkeep` command: the tool with the functions that come with it.

use flowkeep::registry;
use functions::firewall::Firewall;
use functions::flow_monitor::FlowMonitor;
use functions::load_balancer::LoadBalancer;
use functions::nat::Nat;
use std::process::ExitCode;

fn main() -> ExitCode {
    flowkeep::main(registry![Firewall, FlowMonitor, LoadBalancer, Nat])
}
