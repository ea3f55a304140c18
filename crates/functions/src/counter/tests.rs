use super::{By, Config, Counter};
use alloc::vec::Vec;
use testkit::{Fate, Step, tcp, udp};

fn mixed(rounds: u16) -> Vec<Step> {
    let round = |n: u16| {
        let udp = udp("10.0.0.1:1000", "192.0.2.1:53");
        let tcp = tcp("10.0.0.2:2000", "192.0.2.1:80");
        // The first packet of a connection opens its flow; all count alike.
        let first = if n == 0 { tcp.syn() } else { tcp.ack() };
        [udp.clone(), udp.reply(), first]
    };
    (0..rounds).flat_map(round).collect()
}

#[test]
fn every_packet_is_counted_once() {
    for by in [By::Protocol, By::InsideHost] {
        for wait in [false, true] {
            let config = Config {
                by,
                wait,
                ..Config::default()
            };
            let outcome = testkit::run::<Counter>(config, mixed(5));
            assert!(outcome.fates().iter().all(|fate| *fate == Fate::Forwarded));
            assert_eq!(
                (outcome.counter("packets"), outcome.counter("uncounted")),
                (15, 0)
            );
        }
    }
}

#[test]
fn what_has_no_room_is_told() {
    let config = Config {
        most: 1,
        ..Config::default()
    };
    let outcome = testkit::run::<Counter>(config, mixed(5));
    assert_eq!(outcome.counter("packets"), 15);
    // The first protocol has the room.
    assert_eq!(outcome.counter("uncounted"), 5);
}

#[test]
fn counting_allocates_nothing() {
    let outcome = testkit::run::<Counter>(Config::default(), mixed(100));
    assert_eq!(outcome.allocations(30..), 0);
}

#[test]
fn a_number_of_keys_that_cannot_be_is_refused() {
    use nf::NetworkFunction;
    let refused = |most| {
        let config = alloc::sync::Arc::new(Config {
            most,
            ..Config::default()
        });
        let worker = nf::WorkerInfo {
            runtime: 0,
            runtimes: 1,
            flows_max: 1,
            seed: 0,
        };
        Counter::new(&config, &worker).err()
    };
    for most in [0, super::config::MOST + 1] {
        let error = refused(most).expect("it is refused");
        assert!(error.remedy.contains("write 1 to"), "{error}");
    }
    assert!(refused(1).is_none());
}
