//! Each function while its settings are taken again before every packet, by new instances, and
//! while a runtime fails before it has asked its flows.

use crate::counter::counter;
use crate::failing::{HOSTS, SIGNATURES, chain, guarded};
use crate::firewall::RULES;
use crate::flow_monitor::monitor;
use crate::forward::forward;
use crate::host_limits::limits;
use crate::ids::{dripping, ids};
use crate::load_balancer::{balancer, clients, config};
use crate::nat::{POOL, nat};
use crate::traffic::{conversations, conversations_in_window};
use flowkeep_functions::counter::By;
use flowkeep_functions::firewall::Firewall;
use flowkeep_functions::forward::Forward;
use flowkeep_functions::host_limits::HostLimits;
use flowkeep_functions::http_parser::{self, HttpParser};
use flowkeep_functions::ids::config::Mode;
use flowkeep_functions::load_balancer::LoadBalancer;
use flowkeep_functions::nat::Nat;
use nf::NetworkFunction;
use testkit::{Migration, Step, Survived, Way};

#[track_caller]
fn survives(migration: Migration, script: Vec<Step>) -> Survived {
    let survived = migration.ways(Way::CHANGES).check(script);
    assert!(survived.moved() > 10, "{}", survived.moved());
    survived
}

/// Questions are let in by one configuration, and denied by the other.
fn denying() -> <Firewall as NetworkFunction>::Config {
    let first = "[[rules]]\nname = \"out\"";
    let dns =
        "[[rules]]\nname = \"dns\"\nprotocol = \"udp\"\ndestination_ports = [\"53\"]\naction = \"drop\"\n";
    testkit::config::<Firewall>(&RULES.replacen(first, &format!("{dns}{first}"), 1))
}

#[test]
fn what_other_rules_deny_ends_as_it_does_where_no_runtime_fails() {
    survives(
        guarded().changing_to::<Firewall>(denying()),
        conversations_in_window(),
    );
}

#[test]
fn a_server_that_is_gone_by_other_settings_loses_its_connections() {
    let gone = config("maglev").replace(
        "    { name = \"c\", endpoint = \"192.0.2.13:8080\", weight = 2 },\n",
        "",
    );
    assert_ne!(gone, config("maglev"));
    let gone = testkit::config::<LoadBalancer>(&gone);
    survives(balancer("maglev").changing_to::<LoadBalancer>(gone), clients());
}

#[test]
fn hosts_are_exempt_by_other_settings() {
    // A host's account is carried over, or counted again.
    for other in ["flows_per_host = 2", "flows_per_host = 3\nhosts_max = 1000"] {
        let other = format!("{other}\nexempt = [\"10.0.0.2/32\"]");
        let other = testkit::config::<HostLimits>(&other);
        survives(
            limits("flows_per_host = 2").changing_to::<HostLimits>(other),
            conversations(),
        );
    }
}

/// Which port a conversation has that begins again is chosen at random, so nothing is compared; but
/// all that is taken is given back once.
fn all_is_given_back(migration: impl Fn() -> Migration, script: impl Fn() -> Vec<Step>) {
    for way in Way::CHANGES {
        let survived = migration().ways([way]).replay(script());
        for (taken, given_back) in [
            ("mappings_created", "mappings_released"),
            ("blocks_claimed", "blocks_released"),
            ("flows_counted", "flows_given_back"),
        ] {
            let [taken, given_back] = [taken, given_back].map(|name| survived.counter(name));
            assert_eq!(taken, given_back, "{way:?}");
        }
    }
}

#[test]
fn hosts_that_are_not_inside_by_other_settings_keep_no_mapping() {
    let other = format!("{POOL}inside = [\"10.0.0.1/32\", \"10.0.0.3/32\", \"10.0.0.4/32\"]\n");
    let nat = || nat(POOL).changing_to::<Nat>(testkit::config::<Nat>(&other));
    all_is_given_back(nat, conversations);
}

#[test]
fn a_chain_gives_back_what_other_settings_deny() {
    let chain = || chain().changing_to::<Firewall>(denying());
    all_is_given_back(chain, conversations_in_window);
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
    let survived = survives(limits("flows_per_host = 2"), conversations());
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
    let script = dripping("GET /attack-at-dawn?evil HTTP/1.1\r\n\r\n", 2);
    let survived = survives(ids(SIGNATURES, Mode::Ids), script);
    assert_eq!(survived.events().matches("\"event\":\"alert\"").count(), 3);
}

#[test]
fn the_http_parser_goes_on() {
    let config = http_parser::Config::default();
    let survived = testkit::survives_change::<HttpParser>(config, conversations());
    assert!(survived.moved() > 10, "{}", survived.moved());
}

#[test]
fn forwarding_goes_on() {
    // New instances look up again.
    let forward = forward(&HOSTS).uncounted::<Forward>("looked_up");
    survives(forward, conversations());
}

#[test]
fn the_counter_goes_on() {
    survives(counter(By::Protocol, false), conversations());
    survives(counter(By::InsideHost, true), conversations());
}
