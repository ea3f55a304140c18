//! The firewall: its state of a connection goes along, and its timers go on.

use crate::captures::over_captures;
use crate::traffic::conversations;
use flowkeep_functions::firewall::Firewall;
use std::time::Duration;
use testkit::{Migration, migration, tcp, udp, wait};

pub const RULES: &str = r#"
tcp_loose = false
[[rules]]
name = "out"
from = "inside"
action = "allow"
[[rules]]
name = "no"
destination_ports = ["9"]
protocol = "udp"
action = "reject"
[timeouts]
tcp_opening = "20s"
udp_unreplied = "10s"
udp_replied = "30s"
udp_stream = "30s"
"#;

pub fn firewall(config: &str) -> Migration {
    migration().function::<Firewall>(testkit::config::<Firewall>(config))
}

#[test]
fn conversations_go_on() {
    let survived = firewall(RULES).check(conversations());
    assert!(survived.moved() > 1000, "{}", survived.moved());
    assert!(survived.left() > 100);
}

/// A timer that began again with a move would keep a flow for ever when it moves before each step,
/// or end it early.
#[test]
fn timers_go_on() {
    let query = udp("10.0.0.1:5000", "192.0.2.53:53");
    let web = tcp("10.0.0.1:1000", "192.0.2.1:80");
    let pause = |seconds| wait(Duration::from_secs(seconds));
    let script = [
        query.payload("what?"),
        web.syn(),
        pause(4),
        pause(4),
        // Eight seconds of ten: it is still known, and has thirty from here.
        query.reply().payload("that"),
        pause(9),
        // Seventeen of twenty.
        web.reply().syn_ack(),
        web.ack(),
        pause(14),
        // 23 of thirty.
        query.reply().payload("more"),
        pause(16),
        pause(15),
        // 31 of thirty: a packet from outside that opens a flow.
        query.reply().payload("late"),
        web.payload("established: two hours"),
    ];
    let survived = firewall(RULES).check(script);
    assert_eq!(survived.dropped("not_allowed"), 1);
    assert_eq!(survived.left(), 7);
}

#[test]
fn captures_are_judged_alike() {
    let rules = "[[rules]]\nname = \"out\"\nfrom = \"inside\"\naction = \"allow\"\n";
    over_captures(0, |_| firewall(rules).flows_max(512));
    over_captures(5, |_| {
        firewall("[[rules]]\nname = \"all\"\naction = \"allow\"\n").flows_max(512)
    });
}
