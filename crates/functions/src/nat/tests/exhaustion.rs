//! A pool that is used up: spoofed sources do not lock new hosts out, live flows lose nothing, and
//! an alarm says how long the rest lasts.

extern crate std;

use super::frames::{Tcp, V4, ends, tcp, udp};
use super::rig::{Rig, pool_of};
use crate::nat::Config;
use nf::NetworkFunction;
use std::vec::Vec;

const SECOND: u64 = 1_000_000_000;
const SERVER: V4 = ([198, 51, 100, 7], 443);

/// 32 blocks.
fn small() -> Config {
    Config {
        ports: (1024, 1024 + 32 * 256 - 1),
        ..pool_of("203.0.113.1/32")
    }
}

fn host(n: u16) -> V4 {
    let [high, low] = n.to_be_bytes();
    ([10, 1, high, low], 4000)
}

/// A whole handshake; the external endpoint, or why it failed.
fn connect(rig: &mut Rig, from: V4) -> Result<V4, &'static str> {
    let out = rig.send_inside(&tcp(from, SERVER, Tcp::Syn));
    if out.clone().reason() != "sent" {
        return Err(out.reason());
    }
    let outside = ends(&out.sent()).0;
    match rig.send_outside(&tcp(SERVER, outside, Tcp::SynAck)).reason() {
        "sent" => {}
        other => return Err(other),
    }
    match rig.send_inside(&tcp(from, SERVER, Tcp::Ack)).reason() {
        "sent" => Ok(outside),
        other => Err(other),
    }
}

#[test]
fn spoofed_sources_do_not_lock_new_hosts_out() {
    let mut rig = Rig::new(small());
    let kept: Vec<V4> = (0..4).map(|n| connect(&mut rig, host(n)).unwrap()).collect();
    for n in 100..100 + 200 {
        rig.send_inside(&tcp(host(n), SERVER, Tcp::Syn));
        rig.now += SECOND / 1000;
    }
    rig.now += SECOND;
    for n in 10..20 {
        // A client whose first SYN is lost sends it again.
        let tries = (0..2).map(|_| connect(&mut rig, host(n)));
        let result: Vec<_> = tries.collect();
        assert!(result.iter().any(Result::is_ok), "host {n}: {result:?}");
    }
    for (n, outside) in (0..4).zip(kept) {
        assert_eq!(rig.send_inside(&tcp(host(n), SERVER, Tcp::Ack)).reason(), "sent");
        assert_eq!(
            ends(&rig.send_outside(&tcp(SERVER, outside, Tcp::Ack)).sent()).1,
            host(n)
        );
    }
    rig.expire_all();
    rig.assert_empty();
}

#[test]
fn datagrams_that_nothing_answered_make_room_too() {
    let mut rig = Rig::new(small());
    for n in 100..100 + 200 {
        rig.send_inside(&udp(host(n), SERVER));
    }
    rig.now += SECOND;
    let outs: Vec<_> = (0..2)
        .map(|_| rig.send_inside(&udp(host(1), SERVER)).reason())
        .collect();
    assert!(outs.contains(&"sent"), "{outs:?}");
}

#[test]
fn nothing_is_taken_from_a_host_that_has_proven_itself() {
    let mut rig = Rig::new(small());
    for n in 0..32 {
        assert!(connect(&mut rig, host(n)).is_ok());
    }
    rig.now += SECOND;
    for n in 100..110 {
        assert_eq!(
            rig.send_inside(&tcp(host(n), SERVER, Tcp::Syn)).reason(),
            "ports_exhausted"
        );
    }
    assert_eq!((rig.flow_count(), rig.count("flows_reclaimed")), (32, 0));
}

#[test]
fn what_has_just_begun_is_left_alone() {
    let mut rig = Rig::new(small());
    for n in 0..32 {
        assert_eq!(rig.send_inside(&tcp(host(n), SERVER, Tcp::Syn)).reason(), "sent");
    }
    assert_eq!(
        rig.send_inside(&tcp(host(40), SERVER, Tcp::Syn)).reason(),
        "ports_exhausted"
    );
    assert_eq!(rig.count("flows_reclaimed"), 0);
    rig.now += SECOND;
    assert_eq!(
        rig.send_inside(&tcp(host(40), SERVER, Tcp::Syn)).reason(),
        "ports_exhausted"
    );
    assert_eq!(rig.count("flows_reclaimed"), 1, "for the next try");
    assert_eq!(rig.send_inside(&tcp(host(40), SERVER, Tcp::Syn)).reason(), "sent");
}

/// A reset is what the host sends whose address another has used; and an answer alone is no proof,
/// though the flow counts as established.
#[test]
fn neither_an_answer_nor_a_reset_proves_a_host() {
    let mut rig = Rig::new(small());
    for n in 0..32 {
        let outside = ends(&rig.send_inside(&tcp(host(n), SERVER, Tcp::Syn)).sent()).0;
        rig.send_outside(&tcp(SERVER, outside, Tcp::SynAck)).sent();
        if n % 2 == 0 {
            rig.send_inside(&tcp(host(n), SERVER, Tcp::Rst)).sent();
        }
    }
    rig.now += SECOND;
    rig.send_inside(&tcp(host(40), SERVER, Tcp::Syn));
    assert!(connect(&mut rig, host(40)).is_ok());
}

/// Many flows in a block do not save it, whether they have a mapping each or one for all.
#[test]
fn a_block_comes_back_with_all_of_its_flows() {
    for mappings in [1, 40] {
        let mut rig = Rig::new(small());
        for n in 0..32 {
            for flow in 0..40 {
                let from = (host(n).0, 4000 + flow % mappings);
                rig.send_inside(&udp(from, (SERVER.0, 1000 + flow))).sent();
            }
        }
        rig.now += SECOND;
        rig.send_inside(&udp(host(40), SERVER));
        assert_eq!(rig.count("flows_reclaimed"), 40);
        assert_eq!(rig.send_inside(&udp(host(40), SERVER)).reason(), "sent");
        rig.expire_all();
        rig.assert_empty();
    }
}

#[test]
fn an_alarm_says_how_long_the_rest_lasts() {
    let mut rig = Rig::new(small());
    for n in 0..32 {
        // Two blocks a second.
        connect(&mut rig, host(n)).unwrap();
        rig.now += SECOND / 2;
    }
    let events = rig.events();
    let said: Vec<&str> = events.lines().filter(|line| line.contains("pool_low")).collect();
    assert_eq!(said.len(), 1, "{events}");
    assert!(
        said[0].contains("\"free_blocks\":4,\"blocks\":32,\"lasts_seconds\":2"),
        "{said:?}"
    );
    rig.now += 10 * SECOND;
    assert_eq!(connect(&mut rig, host(50)), Err("ports_exhausted"));
    let events = rig.events();
    assert!(
        events.contains("\"free_blocks\":0,\"blocks\":32,\"lasts_seconds\":0"),
        "{events}"
    );
    assert_eq!(rig.count("pool_alarms"), 2);
}

#[test]
fn an_operator_clears_flows() {
    let mut rig = Rig::new(small());
    for n in 0..4 {
        connect(&mut rig, host(n)).unwrap();
        rig.send_inside(&udp(host(n), SERVER)).sent();
    }
    let clear = |rig: &mut Rig, words: &[&str]| rig.nats[0].command(words);
    for wrong in [
        &["clear"][..],
        &["clear", "10.1"],
        &["clear", "fd00::/8"],
        &["clean", "all"],
    ] {
        assert!(clear(&mut rig, wrong).is_err(), "{wrong:?}");
    }
    clear(&mut rig, &["clear", "10.1.0.2"]).unwrap();
    assert!(clear(&mut rig, &["clear", "all"]).is_err(), "one at a time");
    rig.recall();
    assert_eq!((rig.flow_count(), rig.count("flows_cleared")), (6, 2));
    assert!(!rig.groups().any(|group| group == nf::Addr::v4([10, 1, 0, 2])));
    clear(&mut rig, &["clear", "10.1.0.0/31"]).unwrap();
    // A flow that begins behind the command stays.
    rig.recall();
    connect(&mut rig, host(0)).unwrap();
    assert_eq!(rig.flow_count(), 3);
    clear(&mut rig, &["clear", "all"]).unwrap();
    rig.recall();
    rig.assert_empty();
    assert_eq!(
        rig.nats[0].rows("pool", usize::MAX)[0][..2],
        nf::row![32u32, 32u32]
    );
}
