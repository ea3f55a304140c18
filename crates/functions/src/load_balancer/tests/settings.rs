//! The configuration complains where it hurts.

use super::*;

#[test]
fn the_configuration_complains_where_it_hurts() {
    type Spoil = fn(&mut LoadBalancerConfig);
    let cases: &[(&str, Spoil)] = &[
        ("services", |c| c.services.clear()),
        ("services[0].addresses", |c| c.services[0].addresses.clear()),
        ("services[0].addresses[0]", |c| {
            c.services[0].addresses[0] = "203.0.113.0/24".into()
        }),
        ("services[0].addresses[1]", |c| {
            c.services[0].addresses.push("2001:db8::1".into())
        }),
        ("services[0].ports", |c| c.services[0].ports = PortsConfig::One(0)),
        ("services[0].ports", |c| {
            c.services[0].ports = PortsConfig::Range("90-80".into())
        }),
        ("services[0].table_size", |c| {
            c.services[0].policy = PolicyConfig::Maglev;
            c.services[0].table_size = 65_536;
        }),
        ("services[0].table_size", |c| {
            c.services[0].policy = PolicyConfig::Maglev;
            c.services[0].table_size = u32::MAX;
        }),
        // A flow's number of its address has 16 bits; pairs of addresses and backends take memory.
        ("services[0].addresses", |c| {
            let many = (0..65_536u32).map(|n| std::net::Ipv4Addr::from(0x0b00_0000 + n).to_string());
            c.services[0].addresses = many.collect();
        }),
        ("services[0].addresses", |c| {
            let many = (0..30_000u32).map(|n| std::net::Ipv4Addr::from(0x0b00_0000 + n).to_string());
            c.services[0].addresses = many.collect();
            let backends = (0..40).map(|n| BackendConfig {
                name: n.to_string(),
                ..c.services[0].backends[0].clone()
            });
            c.services[0].backends = backends.collect();
        }),
        ("services[0].backends", |c| c.services[0].backends.clear()),
        ("services[0].backends[1].name", |c| {
            c.services[0].backends[1].name = "a".into()
        }),
        ("services[0].backends[2].weight", |c| {
            c.services[0].backends[2].weight = 0
        }),
        ("services[0].backends[0].endpoint", |c| {
            c.services[0].backends[0].endpoint = "web:80".into()
        }),
        ("services[0].backends[0].endpoint", |c| {
            c.services[0].backends[0].endpoint = "[2001:db8::1]:80".into()
        }),
        ("services[1]", |c| {
            let mut again = c.services[0].clone();
            again.ports = PortsConfig::Range("89-95".into());
            c.services.push(again);
        }),
    ];
    for (at, spoil) in cases {
        let mut settings = three(PolicyConfig::RoundRobin);
        spoil(&mut settings);
        let error = LoadBalancer::compile(&settings).err().map(|e| e.at);
        assert_eq!(error.as_deref(), Some(*at));
    }
}

#[test]
fn settings_have_defaults_and_unknown_ones_are_refused() {
    let text = r#"{"services": [{"name": "web", "addresses": ["203.0.113.10"], "ports": 443, "protocol": "tcp",
        "backends": [{"name": "a", "endpoint": "10.1.0.1:8443"}]}]}"#;
    let settings: LoadBalancerConfig = serde_json::from_str(text).unwrap();
    let service = &settings.services[0];
    assert_eq!(service.policy, PolicyConfig::LeastConnections);
    assert_eq!(service.table_size, 65_537);
    assert_eq!(service.when_down, WhenDownConfig::Keep);
    assert_eq!(
        (service.backends[0].weight, service.backends[0].state),
        (1, Health::Up)
    );
    assert!(LoadBalancer::compile(&settings).is_ok());
    let misspelt = text.replace("endpoint", "endpiont");
    assert!(serde_json::from_str::<LoadBalancerConfig>(&misspelt).is_err());
    let range = text.replace("443,", "\"440-449\", \"policy\": \"maglev\",");
    assert!(LoadBalancer::compile(&serde_json::from_str(&range).unwrap()).is_ok());
}
