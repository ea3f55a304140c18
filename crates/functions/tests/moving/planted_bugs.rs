//! That the tests of this folder can fail: each function with a part of its state left behind when a flow moves.
//!
//! [`Forgetful`] is a function that, when a flow arrives from elsewhere, finds some bytes of its state, or of its group's, zero: as if their field were not part
//! of the state but kept in the instance. Every word that is in use is left out once; what nobody misses is counted, and that few do is
//! not noticed: statistics that no script looks at, numbers that are made anew on arrival.

use nf::plain::{Plain, bytes_of, from_bytes};
use nf::{Affinity, Arrival, ConfigError, Cx, Departure, NetworkFunction, Packet, Verdict, WorkerInfo};
use serde::{Deserialize, Deserializer};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use testkit::{Migration, Step, Way, migration};

/// Which bytes are left behind, of a flow's state or its group's.
#[derive(Clone, Debug)]
pub enum Lost {
    Flow(Range<usize>),
    Group(Range<usize>),
}

pub struct ForgetfulConfig<F: NetworkFunction> {
    pub config: Arc<F::Config>,
    pub lost: Lost,
}

impl<'de, F: NetworkFunction> Deserialize<'de> for ForgetfulConfig<F> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let config = Arc::new(F::Config::deserialize(deserializer)?);
        Ok(ForgetfulConfig {
            config,
            lost: Lost::Flow(0..0),
        })
    }
}

/// The function `F`, forgetful.
pub struct Forgetful<F> {
    function: F,
    lost: Lost,
}

fn lose<T: Plain>(state: &mut T, lost: &Range<usize>) {
    let mut bytes = bytes_of(state).to_vec();
    if let Some(lost) = bytes.get_mut(lost.clone()) {
        lost.fill(0);
    }
    if let Some(left) = from_bytes(&bytes) {
        *state = left;
    }
}

impl<F: NetworkFunction> NetworkFunction for Forgetful<F> {
    const NAME: &'static str = F::NAME;
    const AFFINITY: Affinity = F::AFFINITY;
    const COUNTERS: &'static [&'static str] = F::COUNTERS;
    const REASONS: &'static [&'static str] = F::REASONS;
    const ICMP_ERRORS: bool = F::ICMP_ERRORS;
    const LAST: bool = F::LAST;
    const TRANSLATES: bool = F::TRANSLATES;
    type Config = ForgetfulConfig<F>;
    type Flow = F::Flow;
    type Group = F::Group;

    fn new(config: &Arc<ForgetfulConfig<F>>, worker: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Forgetful {
            function: F::new(&config.config, worker)?,
            lost: config.lost.clone(),
        })
    }

    async fn process(&self, packet: &mut Packet, flow: &mut F::Flow, cx: &mut Cx<Self>) -> Verdict {
        self.function.process(packet, flow, cx.lend()).await
    }

    fn process_now(&self, packet: &mut Packet, flow: &mut F::Flow, cx: &mut Cx<Self>) -> Option<Verdict> {
        self.function.process_now(packet, flow, cx.lend())
    }

    fn arrived(&self, flow: &mut F::Flow, why: Arrival, cx: &mut Cx<Self>) {
        if why == Arrival::Migrated {
            match &self.lost {
                Lost::Flow(lost) => lose(flow, lost),
                Lost::Group(lost) => lose(cx.group(), lost),
            }
        }
        self.function.arrived(flow, why, cx.lend());
    }

    fn departed(&self, flow: &F::Flow, why: Departure, cx: &mut Cx<Self>) {
        self.function.departed(flow, why, cx.lend());
    }

    fn group_ended(&self, group: &mut F::Group, cx: &mut Cx<Self>) {
        self.function.group_ended(group, cx.lend());
    }

    fn block_returned(&self, block: nf::Block) {
        self.function.block_returned(block);
    }

    fn timeout(&self, flow: &F::Flow) -> Option<Duration> {
        self.function.timeout(flow)
    }

    fn command(&self, words: &[&str]) -> Result<String, String> {
        self.function.command(words)
    }

    fn owner_of(
        config: &ForgetfulConfig<F>,
        outside: nf::Endpoint,
        protocol: u8,
    ) -> Option<nf::Endpoint> {
        F::owner_of(&config.config, outside, protocol)
    }
}

/// Leaves each part of `size` bytes behind once, and sees how many are missed.
#[track_caller]
fn missed<F: NetworkFunction>(
    config: F::Config,
    describe: fn(Migration) -> Migration,
    script: &[Step],
    size: usize,
    at_least: [usize; 2],
) {
    let config = Arc::new(config);
    let lengths = [size_of::<F::Flow>(), size_of::<F::Group>()];
    let parts = |length: usize| (0..length.div_ceil(size)).map(move |part| part * size..((part + 1) * size).min(length));
    let flows: Vec<Lost> = parts(lengths[0]).map(Lost::Flow).collect();
    let groups: Vec<Lost> = parts(lengths[1]).map(Lost::Group).collect();
    let whole = [flows.len(), groups.len()];
    let noticed = [flows, groups].map(|all| {
        let is_noticed = |lost: &Lost| {
            let forgetful = migration().function::<Forgetful<F>>(ForgetfulConfig {
                config: Arc::clone(&config),
                lost: lost.clone(),
            });
            let migration = describe(forgetful.ways([Way::ThereAndBack]));
            let found = migration.difference(script.to_vec());
            if found.is_none() {
                println!("{}: nobody misses {lost:?}", F::NAME);
            }
            found.is_some()
        };
        all.into_iter().filter(is_noticed).count()
    });
    println!("{}: of {whole:?} parts of {size} bytes (flow, group), {noticed:?} are missed", F::NAME);
    assert!(
        noticed[0] >= at_least[0] && noticed[1] >= at_least[1],
        "{}: of {whole:?} parts only {noticed:?} are missed",
        F::NAME
    );
    // And with nothing left behind nothing is.
    let whole = migration().function::<Forgetful<F>>(ForgetfulConfig {
        config,
        lost: Lost::Flow(0..0),
    });
    describe(whole).check(script.to_vec());
}

use crate::traffic::conversations;
use flowkeep_functions::firewall::Firewall;
use flowkeep_functions::flow_monitor::{self, FlowMonitor};
use flowkeep_functions::host_limits::HostLimits;
use flowkeep_functions::http_parser::{self, HttpParser};
use flowkeep_functions::ids::config::Settings;
use flowkeep_functions::ids::{self, Ids};
use flowkeep_functions::load_balancer::LoadBalancer;
use flowkeep_functions::nat::Nat;

#[test]
fn of_the_firewall() {
    let config = testkit::config::<Firewall>(crate::firewall::RULES);
    missed::<Firewall>(config, |migration| migration, &conversations(), 4, [1, 0]);
}

#[test]
fn of_nat() {
    let config = testkit::config::<Nat>(crate::nat::POOL);
    let describe = |migration: Migration| {
        migration
            .choosing(&["203.0.113.0/29"])
            .local::<Nat>("mapping")
    };
    missed::<Nat>(config, describe, &conversations(), 4, [1, 1]);
}

#[test]
fn of_the_load_balancer() {
    let config = testkit::config::<LoadBalancer>(&crate::load_balancer::config("maglev"));
    let describe = |migration: Migration| migration.asking::<LoadBalancer>(&["backends"]);
    missed::<LoadBalancer>(config, describe, &crate::load_balancer::clients(), 2, [1, 0]);
}

#[test]
fn of_the_flow_monitor() {
    let config = flow_monitor::Config::default();
    missed::<FlowMonitor>(config, |migration| migration, &conversations(), 4, [1, 0]);
}

#[test]
fn of_the_ids() {
    let rules = "alert tcp any any -> any 80 (msg:\"two\"; content:\"GET\"; content:\"evil\"; distance:0; sid:2;)\n\
                 alert tcp any any -> any 80 (msg:\"bit\"; content:\"GET\"; flowbits:set,seen; flowbits:noalert; sid:3;)\n\
                 alert tcp any 80 -> any any (msg:\"after\"; content:\"200\"; flowbits:isset,seen; sid:4;)\n";
    let config = ids::Config::from(Settings {
        rules: rules.into(),
        ..Settings::default()
    });
    let script = crate::ids::dripping("GET /attack-at-dawn?evil HTTP/1.1\r\n\r\n", 3);
    missed::<Ids>(config, |migration| migration.flows_max(16), &script, 8, [5, 0]);
}

#[test]
fn of_the_http_parser() {
    let config = http_parser::Config::default();
    let script = crate::ids::dripping("GET /a/b HTTP/1.1\r\nHost: www.example.org\r\n\r\n", 3);
    missed::<HttpParser>(config, |migration| migration.flows_max(16), &script, 8, [5, 0]);
}

#[test]
fn of_the_limits() {
    let config = testkit::config::<HostLimits>("flows_per_host = 2\nnew_flows_per_second = 2\nburst = 3");
    missed::<HostLimits>(config, |migration| migration, &conversations(), 1, [2, 1]);
}
