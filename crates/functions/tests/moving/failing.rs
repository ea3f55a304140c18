//! Each function while runtimes fail at every packet, in every way: its flows go on from copies.

use crate::captures::over_captures;
use crate::counter::counter;
use crate::firewall::{RULES, firewall};
use crate::flow_monitor::monitor;
use crate::forward::{forward, waits};
use crate::host_limits::limits;
use crate::ids::{dripping, http, ids};
use crate::load_balancer::{balancer, clients};
use crate::nat::{POOL, nat};
use crate::tables::records;
use crate::traffic::{conversations, conversations_in_window};
use flowkeep_functions::counter::By;
use flowkeep_functions::firewall::Firewall;
use flowkeep_functions::flow_monitor::{self, FlowMonitor};
use flowkeep_functions::host_limits::HostLimits;
use flowkeep_functions::ids::config::Mode;
use flowkeep_functions::nat::Nat;
use std::time::Duration;
use testkit::{Migration, Policy, Step, Survived, Way, migration, tcp, wait};

/// The firewall learns windows again behind a failure, and notes that in its options and marks: a
/// segment out of the window may pass then. Where lazy fields are committed, both are compared.
pub fn guarded() -> Migration {
    relearning(firewall(RULES))
}

fn relearning(migration: Migration) -> Migration {
    migration.local::<Firewall>("options").local::<Firewall>("marks")
}

/// Signatures over one segment, over several, and over both directions.
pub const SIGNATURES: &str = "alert tcp any any -> any 80 (msg:\"one\"; content:\"attack-at-dawn\"; sid:1;)\n\
     alert tcp any any -> any 80 (msg:\"two\"; content:\"GET\"; content:\"dawn\"; distance:0; content:\"evil\"; distance:0; sid:2;)\n\
     alert tcp any any -> any 80 (msg:\"bit\"; content:\"GET\"; flowbits:set,seen; flowbits:noalert; sid:3;)\n\
     alert tcp any 80 -> any any (msg:\"after\"; content:\"200\"; flowbits:isset,seen; sid:4;)\n";

/// Hosts that answer when they are asked for.
pub const HOSTS: [(u32, &str); 5] = [
    (2, "10.0.0.1"),
    (2, "10.0.0.2"),
    (2, "10.0.0.3"),
    (2, "10.0.0.4"),
    (3, "203.0.113.254"),
];

/// Four functions in a row.
pub fn chain() -> Migration {
    let config = testkit::config::<HostLimits>("flows_per_host = 100\nnew_flows_per_second = \"none\"");
    let chain = migration()
        .function::<HostLimits>(config)
        .function::<Firewall>(testkit::config::<Firewall>(RULES))
        .function::<Nat>(testkit::config::<Nat>(POOL))
        .function::<FlowMonitor>(flow_monitor::Config::default())
        .choosing(&["203.0.113.0/29"])
        .local::<Nat>("mapping");
    relearning(chain)
}

#[track_caller]
fn survives(migration: Migration, script: Vec<Step>) -> Survived {
    let survived = migration.ways(Way::FAILURES).check(script);
    assert!(survived.moved() > 10, "{}", survived.moved());
    survived
}

#[test]
fn the_firewall_goes_on() {
    survives(guarded(), conversations_in_window());
}

#[test]
fn nat_goes_on() {
    survives(nat(POOL), conversations());
}

#[test]
fn nat_goes_on_through_two_switches() {
    survives(nat(POOL).switches(2), conversations());
}

#[test]
fn a_chain_goes_on() {
    survives(chain(), conversations_in_window());
}

#[test]
fn the_load_balancer_goes_on() {
    survives(balancer("maglev"), clients());
}

#[test]
fn limits_go_on() {
    // Which rate is left is lazy: of that a host may get some again.
    let survived = survives(limits("flows_per_host = 2"), conversations());
    assert!(survived.dropped("too_many_flows") > 0);
    assert_eq!(
        survived.counter("flows_counted"),
        survived.counter("flows_given_back")
    );
}

#[test]
fn the_flow_monitor_goes_on() {
    survives(monitor(60), conversations());
}

#[test]
fn the_ids_goes_on() {
    for mode in [Mode::Ids, Mode::Ips] {
        let script = dripping("GET /attack-at-dawn?evil HTTP/1.1\r\n\r\n", 2);
        let survived = survives(ids(SIGNATURES, mode), script);
        assert_eq!(survived.events().matches("\"event\":\"alert\"").count(), 3);
    }
    let rules = "alert tcp any any -> any 80 (msg:\"host\"; content:\"Host: www.example\"; sid:1;)\n\
                 alert icmp any any -> any any (msg:\"ping\"; itype:8; sid:2;)\n";
    survives(ids(rules, Mode::Ids), conversations());
}

#[test]
fn the_http_parser_goes_on() {
    let words = "POST /a/b?c=d HTTP/1.1\r\nHost: www.example.org\r\nContent-Length: 5\r\n\r\nhelloGET / HTTP/1.1\r\nHost: x\r\n\r\n";
    survives(http(), dripping(words, 2));
    survives(http(), conversations());
}

#[test]
fn forwarding_goes_on() {
    survives(forward(&HOSTS), conversations());
    survives(forward(&[(3, "203.0.113.254")]), waits());
}

#[test]
fn the_counter_goes_on() {
    survives(counter(By::Protocol, false), conversations());
    survives(counter(By::InsideHost, true), conversations());
}

/// With lazy fields committed, records have each packet that left; without, they lack some.
#[test]
fn counts_are_exact_where_lazy_fields_are_committed() {
    let lacks = |monitor: Migration, way: Way| {
        let survived = monitor.ways([way]).replay(conversations());
        let found = records::read(survived.events());
        let counted: u64 = found
            .iter()
            .map(|record| record.packets[0] + record.packets[1])
            .sum();
        survived.left() as i64 - counted as i64
    };
    for way in Way::FAILURES {
        assert_eq!(lacks(monitor(60).committing_lazy(), way), 0, "{way:?}");
        assert!(lacks(monitor(60), way) > 0, "{way:?}");
    }
}

/// So many packets are between two at which copies are kept, and a runtime fails.
const UNCOPIED: usize = 4;

/// A chain has another policy until `commit` is set, before every packet of a script once, and then
/// a runtime fails.
#[track_caller]
fn goes_on_from(before: Policy, migration: impl Fn() -> Migration, script: &[Step]) {
    let mut moved = 0;
    for first in 0..UNCOPIED {
        let at = (first..script.len()).step_by(UNCOPIED);
        let failing = migration().replicated_by(before).ways(Way::FAILURES).at(at);
        moved += failing.check(script.to_vec()).moved();
    }
    assert!(moved > 10, "{moved}");
}

#[test]
fn flows_of_before_go_on_when_commit_is_set_while_traffic_passes() {
    for before in [Policy::None, Policy::Snapshot] {
        goes_on_from(before, guarded, &conversations_in_window());
        goes_on_from(before, || nat(POOL), &conversations());
        goes_on_from(before, || limits("flows_per_host = 2"), &conversations());
    }
}

/// Before every packet of a script all flows are over once, and then a runtime fails: flows that
/// are over are in no copy.
fn each_ends(migration: impl Fn() -> Migration, script: &[Step]) {
    for first in 0..APART {
        let at = (first..script.len()).step_by(APART);
        let ending = migration().ways([Way::Expire]).at(at).may_stay();
        ending.check(script.to_vec());
    }
}

/// So many packets are between two at which all flows are over: a flow gets that far.
const APART: usize = 8;

#[test]
fn what_is_over_does_not_come_back() {
    each_ends(guarded, &conversations());
    each_ends(|| balancer("maglev"), &clients());
    each_ends(|| limits("flows_per_host = 2"), &conversations());
    each_ends(|| monitor(60), &conversations());
    each_ends(|| counter(By::InsideHost, true), &conversations());
    each_ends(|| forward(&HOSTS), &conversations());
}

#[test]
fn what_is_over_of_streams_does_not_come_back() {
    let script = dripping("GET /attack-at-dawn?evil HTTP/1.1\r\n\r\n", 2);
    each_ends(|| ids(SIGNATURES, Mode::Ids), &script);
    each_ends(http, &script);
    each_ends(http, &conversations());
}

/// Which port a conversation has that begins again is chosen at random: only the counts of things
/// taken and given back are compared.
#[test]
fn what_is_over_is_given_back_once() {
    let script = conversations();
    let migrations: [fn() -> Migration; 2] = [|| nat(POOL), chain];
    for (migration, first) in migrations
        .iter()
        .flat_map(|of| (0..APART).map(move |first| (of, first)))
    {
        let at = (first..script.len()).step_by(APART);
        let survived = migration().ways([Way::Expire]).at(at).replay(script.clone());
        for (taken, given_back) in [
            ("mappings_created", "mappings_released"),
            ("blocks_claimed", "blocks_released"),
        ] {
            assert!(survived.counter(taken) > 0);
            assert_eq!(survived.counter(taken), survived.counter(given_back));
        }
    }
}

/// A connection that is open may be silent for two hours, whatever its time was as it began: a
/// runtime fails at each step, and the answer comes five minutes later.
#[test]
fn a_silent_connection_lives_as_long_as_it_would_have() {
    let web = tcp("10.0.0.1:1000", "192.0.2.1:80");
    let script = [
        web.syn(),
        web.reply().syn_ack(),
        web.ack(),
        wait(Duration::from_secs(1)),
        wait(Duration::from_secs(300)),
        web.reply().payload("late"),
        web.payload("still there"),
    ];
    let survived = guarded().ways(Way::FAILURES).check(script);
    assert_eq!(survived.left(), 5);
}

/// Verdicts on the packets of the captures, a runtime failing at every second, seventh and 31st.
/// Windows are committed: some captures have segments out of them, which would pass while windows
/// are learned again.
#[test]
fn captures_are_judged_alike() {
    let rules = "[[rules]]\nname = \"out\"\nfrom = \"inside\"\naction = \"allow\"\n";
    for every in [2, 7, 31] {
        over_captures(3, |_| {
            let guarded = firewall(rules).committing_lazy().flows_max(512);
            guarded.ways(Way::FAILURES).every(every)
        });
    }
}
