use super::config::{Config, Settings, variables};
use super::rule::Rule;
use super::ruleset::RuleSet;
use super::state::{HITS_MAX, Inspection};
use super::{Ids, parse};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use proptest::prelude::*;
use testkit::{Fate, Fate::*, Outcome, Step, tcp, udp};
use wire::tcp::flags;

mod hostile;
mod language;
mod memory;
mod moved;
mod protocols;
mod streams;

fn config(rules: &str) -> Config {
    Config::from(Settings {
        rules: rules.into(),
        ..Settings::default()
    })
}

fn run(rules: &str, script: impl IntoIterator<Item = Step>) -> Outcome {
    testkit::run::<Ids>(config(rules), script)
}

/// The sids that alerted, in order.
fn sids(outcome: &Outcome) -> Vec<u64> {
    outcome
        .events()
        .lines()
        .map(|line| {
            let event: serde_json::Value = serde_json::from_str(line).expect("a line is JSON");
            assert_eq!(event["event_type"], "alert");
            event["alert"]["signature_id"].as_u64().expect("a number")
        })
        .collect()
}

fn web() -> Step {
    tcp("10.0.0.1:1000", "192.0.2.1:80")
}

/// A handshake and what follows.
fn opened(more: impl IntoIterator<Item = Step>) -> Vec<Step> {
    let mut script = Vec::from([web().syn(), web().reply().syn_ack(), web().ack()]);
    script.extend(more);
    script
}

/// A segment of the client's, at a place in its stream.
fn at(place: u32, bytes: impl AsRef<[u8]>) -> Step {
    web().payload(bytes).sequence(1001 + place)
}

fn rule_set(text: &str) -> RuleSet {
    let rules: Result<Vec<Rule>, _> = parse::rules(text, &variables(&Default::default()))
        .into_iter()
        .collect();
    RuleSet::new(rules.expect("rules")).expect("a rule set")
}
