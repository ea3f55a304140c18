//! The checks that a service asks for, and the effect of a check's result beside an operator's
//! word.

use super::*;
use nf::{Check, Period, Probe};

fn checked(check: &str) -> LoadBalancerConfig {
    let mut settings = three(PolicyConfig::RoundRobin);
    settings.services[0].check = Some(check.into());
    settings.services[0].backends[2].endpoint = "10.1.0.3:8080".into();
    settings
}

fn period(text: &str) -> Option<Period> {
    Some(text.parse().unwrap())
}

#[test]
fn a_service_says_what_is_to_be_checked_with_defaults() {
    assert!(LoadBalancer::checks(&three(PolicyConfig::RoundRobin)).is_empty());
    let all = LoadBalancer::checks(&checked("http:/health?deep=1"));
    assert_eq!(all.len(), 3);
    let expected = Check {
        service: "web".into(),
        backend: "a".into(),
        at: end("10.1.0.1:8080"),
        probe: Probe::Http("/health?deep=1".into()),
        interval: Duration::from_secs(2),
        timeout: Duration::from_secs(1),
        rise: 2,
        fall: 3,
    };
    let mut first = all[0].clone();
    first.at = expected.at;
    assert_eq!(first, expected);
    let mut quick = checked("tcp");
    quick.services[0].interval = period("200ms");
    let all = LoadBalancer::checks(&quick);
    assert_eq!(
        (all[0].probe.clone(), all[0].timeout),
        (Probe::Tcp, Duration::from_millis(200))
    );
    // A server without a port has the service's, if that is one.
    let mut bare = checked("tcp");
    bare.services[0].backends[0].endpoint = "10.1.0.1".into();
    bare.services[0].ports = PortsConfig::One(443);
    LoadBalancer::compile(&bare).unwrap();
    assert_eq!(LoadBalancer::checks(&bare)[0].at, end("10.1.0.1:443"));
}

#[test]
fn a_check_that_means_nothing_is_refused_where_it_stands() {
    type Spoil = fn(&mut config::ServiceConfig);
    let cases: &[(&str, Spoil)] = &[
        ("services[0].check", |s| s.check = Some("ping".into())),
        ("services[0].check", |s| s.check = Some("http:health".into())),
        ("services[0].check", |s| {
            s.check = Some("http://h.example/health".into())
        }),
        ("services[0].check", |s| s.check = Some("http:/a b".into())),
        ("services[0].check", |s| s.check = Some("http:/a\r\nX: y".into())),
        ("services[0].check", |s| {
            s.check = Some(format!("http:/{}", "a".repeat(1024)))
        }),
        ("services[0].interval", |s| s.interval = period("99ms")),
        ("services[0].interval", |s| s.interval = period("61m")),
        ("services[0].timeout", |s| s.timeout = period("3s")),
        ("services[0].timeout", |s| s.timeout = period("1ms")),
        ("services[0].rise", |s| s.rise = Some(0)),
        ("services[0].fall", |s| s.fall = Some(101)),
        ("services[0].fall", |s| (s.check, s.fall) = (None, Some(3))),
        ("services[0].interval", |s| {
            (s.check, s.interval) = (None, period("1s"))
        }),
        ("services[0].backends[1].endpoint", |s| {
            s.backends[1].endpoint = "10.1.0.2".into()
        }),
    ];
    for (at, spoil) in cases {
        let mut settings = checked("tcp");
        spoil(&mut settings.services[0]);
        let error = LoadBalancer::compile(&settings).err().expect(at);
        assert_eq!(error.at, *at, "{}", error.problem);
        assert!(!error.remedy.is_empty());
    }
    let mut many = checked("tcp");
    let first = many.services[0].backends[0].clone();
    many.services[0].backends = (0..4097)
        .map(|number| BackendConfig {
            name: format!("b{number}"),
            ..first.clone()
        })
        .collect();
    let error = LoadBalancer::compile(&many).err().unwrap();
    assert!(error.problem.contains("4097"), "{}", error.problem);
}

#[test]
fn an_operators_word_stays_above_checks() {
    for policy in [
        PolicyConfig::LeastConnections,
        PolicyConfig::RoundRobin,
        PolicyConfig::Maglev,
    ] {
        let mut settings = checked("tcp");
        settings.services[0].policy = policy;
        let mut bench = Bench::new(settings);
        assert_eq!(bench.command("check web a down"), Ok("web/a is failing".into()));
        assert_eq!(bench.shares(99, false)[0], 0, "{policy:?}");
        assert!(bench.command("backends").unwrap().contains("failing"));
        // `up` leaves it to the check.
        assert!(bench.command("backend a up").is_ok());
        assert_eq!(bench.shares(99, false)[0], 0);
        assert_eq!(bench.command("check web a up"), Ok("web/a is up".into()));
        assert!(bench.shares(99, false)[0] > 0);
        for word in ["down", "drain"] {
            bench.command(&format!("backend a {word}")).unwrap();
            bench.command("check web a down").unwrap();
            bench.command("check web a up").unwrap();
            assert_eq!(bench.shares(99, false)[0], 0, "{word}");
        }
        bench.command("backend a up").unwrap();
        assert!(bench.shares(99, false)[0] > 0);
    }
}

#[test]
fn results_of_other_servers_are_refused() {
    let bench = Bench::new(checked("tcp"));
    for words in ["check web x down", "check tls a down", "check web a draining"] {
        assert!(bench.command(words).is_err(), "{words}");
    }
    let unchecked = Bench::new(three(PolicyConfig::RoundRobin));
    let refused = unchecked.command("check web a down").unwrap_err();
    assert_eq!(refused, "no backend `web/a` is checked");
}

#[test]
fn a_failing_server_cuts_by_when_down_and_its_result_outlasts_a_change() {
    let mut settings = checked("tcp");
    settings.services[0].when_down = WhenDownConfig::Drop;
    let mut bench = Bench::new(settings.clone());
    let mut old = flow("198.51.100.7:4000", "203.0.113.10:80", protocol::TCP);
    bench.open(&mut old, SYN).unwrap();
    bench.command("check web a down").unwrap();
    assert_eq!(bench.open(&mut old, ACK), Err("backend_down"));
    // Another configuration with checks knows it; a configuration without checks has all servers
    // up.
    let next = Bench::new(settings.clone());
    next.balancer.take_over(&bench.balancer);
    assert!(next.command("backends").unwrap().contains("failing"));
    settings.services[0].check = None;
    let last = Bench::new(settings);
    last.balancer.take_over(&bench.balancer);
    assert!(!last.command("backends").unwrap().contains("failing"));
}
