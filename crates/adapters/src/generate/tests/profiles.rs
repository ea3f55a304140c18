//! Profiles are read, and complain where it hurts.

use super::*;

#[test]
fn a_profile_is_read_from_toml() {
    let profile: Profile = toml::from_str(
        r#"
        flows = 10
        seed = 9
        rate = { total = 1e6 }
        popularity = { zipf = 1.1 }
        packets_max = 1000
        pace = "clock"
        shares_of = "new_flows"
        sources = ["10.0.0.0/24"]
        source_ports = [2000, 2999]
        [[classes]]
        share = 2
        tcp = 0.5
        size = "imix"
        life = "endless"
        [[classes]]
        size = { uniform = [64, 128] }
        life = { bytes = { pareto = { shape = 1.1, least = 100 } } }
        [[classes]]
        size = { table = [[64, 1], [1518, 2.5]] }
        life = { packets = { cdf = [[1, 0.5], [10, 1]] } }
        [[classes]]
        life = { seconds = { exponential = 2.5 } }
        "#,
    )
    .unwrap();
    assert_eq!(profile.popularity, Popularity::Zipf(1.1));
    assert_eq!(profile.classes.len(), 4);
    assert_eq!(run(&profile, BURST).len(), 1000);
    assert!(toml::from_str::<Profile>("flow = 10").is_err());
}

#[test]
fn a_profile_complains_where_it_hurts() {
    type Spoil = fn(&mut Profile);
    let cases: &[(&str, Spoil)] = &[
        ("flows", |p| p.flows = 0),
        ("rate.per_flow", |p| p.rate = Rate::PerFlow(f64::NAN)),
        ("rate.total", |p| p.rate = Rate::Total(0.0)),
        ("popularity.zipf", |p| p.popularity = Popularity::Zipf(-1.0)),
        ("ipv6_share", |p| p.ipv6_share = 1.5),
        ("replies", |p| p.replies = f64::INFINITY),
        ("round_trip", |p| p.round_trip = -1.0),
        ("round_trip", |p| (p.round_trip, p.rate) = (0.1, Rate::Total(1.0))),
        ("emit", |p| p.emit = Emit::Server),
        ("seconds_max", |p| p.seconds_max = Some(f64::NAN)),
        ("sources[1]", |p| p.sources[1] = "10.0.0.1/8".into()),
        ("sources", |p| {
            (p.sources, p.ipv6_share) = (vec!["10.0.0.0/8".into()], 0.1)
        }),
        ("source_ports", |p| p.source_ports = (2, 1)),
        ("destination_ports", |p| p.destination_ports.clear()),
        ("classes", |p| p.classes[0].share = 0.0),
        ("classes[0].share", |p| p.classes[0].share = -1.0),
        ("classes[0].tcp", |p| p.classes[0].tcp = 2.0),
        ("classes[0].rate", |p| p.classes[0].rate = Some(1e12)),
        ("classes[0].size", |p| p.classes[0].size = Size::Fixed(63)),
        ("classes[0].size", |p| p.classes[0].size = Size::Table(vec![])),
        ("classes[0].life.packets", |p| {
            p.classes[0].life = Life::Packets(Distribution::Fixed(0.0))
        }),
        ("classes[0].life.bytes", |p| {
            p.classes[0].life = Life::Bytes(Distribution::File("no-such-file".into()))
        }),
        ("classes[0].life.seconds", |p| {
            p.classes[0].life = Life::Seconds(Distribution::Cdf(vec![(1.0, 0.5)]))
        }),
    ];
    for (at, spoil) in cases {
        let mut profile = with_class(Profile::default(), Class::default());
        spoil(&mut profile);
        let error = Generator::new(&profile).err().map(|e| e.at);
        assert_eq!(error.as_deref(), Some(*at));
    }
    for text in ["1 x", "1", "1 2 3", "2 0.5\n1 1", "1 0.5\n2 0.9", "1 nan", ""] {
        assert!(cdf_text("life", text).is_err(), "{text}");
    }
    for text in [
        "",
        "{}",
        r#"{"mix": []}"#,
        r#"{"mix": [[1, "gamma", [1, 2, 3]]]}"#,
        r#"{"mix": [[-1, "uniform", [0, 1]]]}"#,
    ] {
        assert!(mixture("life", text).is_err(), "{text}");
    }
}
