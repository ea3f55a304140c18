//! The chain that is measured: firewall → NAT → load balancer, with settings for any number of
//! flows.

use functions::firewall::Firewall;
use functions::load_balancer::LoadBalancer;
use functions::nat::Nat;
use nf::NetworkFunction;
use runtime::chain::{ChainRule, Match, Plan};
use runtime::fused::Fused;
use runtime::stage::{Configured, Factory};

/// Everything to the service is allowed, established flows are tracked with windows.
pub(super) const FIREWALL: &str = r#"
[[rules]]
name = "bench"
from = "inside"
protocol = "tcp"
destination = "198.51.100.10"
destination_ports = 80
action = "allow"
"#;

/// Sixteen million ports, 64 at a time; no log line per mapping.
pub(super) const NAT: &str = r#"
pool = ["198.18.0.0/24"]
block_size = 64
log = "none"
"#;

/// Eight servers behind one address.
pub(super) const LOAD_BALANCER: &str = r#"
[[services]]
name = "bench"
addresses = ["198.51.100.10"]
ports = 80
protocol = "tcp"
policy = "round_robin"
backends = [
    { name = "b1", endpoint = "192.0.2.1:8080" },
    { name = "b2", endpoint = "192.0.2.2:8080" },
    { name = "b3", endpoint = "192.0.2.3:8080" },
    { name = "b4", endpoint = "192.0.2.4:8080" },
    { name = "b5", endpoint = "192.0.2.5:8080" },
    { name = "b6", endpoint = "192.0.2.6:8080" },
    { name = "b7", endpoint = "192.0.2.7:8080" },
    { name = "b8", endpoint = "192.0.2.8:8080" },
]
"#;

fn config<F: NetworkFunction>(text: &str) -> F::Config {
    toml::from_str(text).expect("the benchmark's settings are good")
}

/// The settings of the three functions.
pub(super) fn configs() -> (
    <Firewall as NetworkFunction>::Config,
    <Nat as NetworkFunction>::Config,
    <LoadBalancer as NetworkFunction>::Config,
) {
    (
        config::<Firewall>(FIREWALL),
        config::<Nat>(NAT),
        config::<LoadBalancer>(LOAD_BALANCER),
    )
}

/// Bytes of a flow's states of the three.
pub(super) fn state_length() -> usize {
    size_of::<<Firewall as NetworkFunction>::Flow>()
        + size_of::<<Nat as NetworkFunction>::Flow>()
        + size_of::<<LoadBalancer as NetworkFunction>::Flow>()
}

/// The three as a chain, in one piece as the tool has it.
pub(super) fn plan() -> Plan {
    plan_by_function().fusing(&[Fused::of::<(Firewall, Nat, LoadBalancer)>()])
}

/// The three as a chain, each function called through its pointer.
pub(super) fn plan_by_function() -> Plan {
    let (firewall, nat, load_balancer) = configs();
    let factories: Vec<Box<dyn Factory>> = vec![
        Box::new(Configured::<Firewall>::new("firewall", firewall)),
        Box::new(Configured::<Nat>::new("nat", nat)),
        Box::new(Configured::<LoadBalancer>::new("load_balancer", load_balancer)),
    ];
    let functions = factories
        .iter()
        .map(|factory| factory.name().to_string())
        .collect();
    let rule = ChainRule {
        name: "gateway".into(),
        matching: Match::default(),
        functions,
        replication: None,
    };
    Plan::new(vec![rule], factories).expect("the three make a chain")
}
