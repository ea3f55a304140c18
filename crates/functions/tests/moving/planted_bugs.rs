//! That the tests of this folder can fail: each function with a bug in how its flows move.
//!
//! [`Forgetful`] is a function that finds some bytes of its state, or of its group's, zero when a
//! flow arrives from elsewhere, as if their field were kept in the instance; or that treats a move
//! as the flow's end; or that is not told of arrivals. Every four bytes that the script puts to use
//! are left behind once, and must be missed but for those that are named here, with the reason:
//! when flows move, and when they come from copies.

use crate::host_limits;
use crate::traffic::conversations;
use flowkeep_functions::firewall::Firewall;
use flowkeep_functions::flow_monitor::{self, FlowMonitor};
use flowkeep_functions::forward::Forward;
use flowkeep_functions::host_limits::HostLimits;
use flowkeep_functions::http_parser::{self, HttpParser};
use flowkeep_functions::ids::config::Settings;
use flowkeep_functions::ids::{self, Ids};
use flowkeep_functions::load_balancer::LoadBalancer;
use flowkeep_functions::nat::Nat;
use nf::plain::{Plain, bytes_of, from_bytes};
use nf::{Affinity, Arrival, ConfigError, Cx, Departure, NetworkFunction, Packet, Verdict, WorkerInfo};
use serde::{Deserialize, Deserializer};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use testkit::{Migration, Step, Way, migration, tcp};

/// The bug.
#[derive(Clone, Debug, PartialEq)]
pub enum Bug {
    None,
    /// These bytes of a flow's state are left behind.
    Flow(Range<usize>),
    /// These of its group's.
    Group(Range<usize>),
    /// A flow that moves away is over.
    EndsWithTheMove,
    /// The function is not told that a flow has arrived.
    ArrivesUnheard,
}

pub struct ForgetfulConfig<F: NetworkFunction> {
    pub config: Arc<F::Config>,
    pub bug: Bug,
    /// With which arrivals it is there.
    pub with: Arrival,
    /// Whether there was anything to leave behind.
    pub mattered: Arc<AtomicBool>,
}

impl<F: NetworkFunction> Clone for ForgetfulConfig<F> {
    fn clone(&self) -> Self {
        ForgetfulConfig {
            config: Arc::clone(&self.config),
            mattered: Arc::clone(&self.mattered),
            bug: self.bug.clone(),
            with: self.with,
        }
    }
}

impl<F: NetworkFunction> ForgetfulConfig<F> {
    pub fn new(config: impl Into<Arc<F::Config>>, bug: Bug) -> Self {
        ForgetfulConfig {
            config: config.into(),
            bug,
            with: Arrival::Migrated,
            mattered: Arc::default(),
        }
    }
}

impl<'de, F: NetworkFunction> Deserialize<'de> for ForgetfulConfig<F> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let config = F::Config::deserialize(deserializer)?;
        Ok(ForgetfulConfig::new(config, Bug::None))
    }
}

/// The function `F`, forgetful.
pub struct Forgetful<F> {
    function: F,
    bug: Bug,
    with: Arrival,
    mattered: Arc<AtomicBool>,
}

/// Whether there was anything.
fn lose<T: Plain>(state: &mut T, lost: &Range<usize>) -> bool {
    let mut bytes = bytes_of(state).to_vec();
    let Some(lost) = bytes.get_mut(lost.clone()) else {
        return false;
    };
    let mattered = lost.iter().any(|byte| *byte != 0);
    lost.fill(0);
    match from_bytes(&bytes) {
        Some(left) => *state = left,
        None => return false,
    }
    mattered
}

impl<F: NetworkFunction> nf::function::Attributed for Forgetful<F> {}

impl<F: NetworkFunction> NetworkFunction for Forgetful<F> {
    const NAME: &'static str = F::NAME;
    const AFFINITY: Affinity = F::AFFINITY;
    const COUNTERS: &'static [&'static str] = F::COUNTERS;
    const REASONS: &'static [&'static str] = F::REASONS;
    const EVENTS: &'static [nf::Event] = F::EVENTS;
    const TABLES: &'static [nf::Table] = F::TABLES;
    const ICMP_ERRORS: bool = F::ICMP_ERRORS;
    const LAST: bool = F::LAST;
    const TRANSLATES: bool = F::TRANSLATES;
    const BEGINS_AGAIN: bool = F::BEGINS_AGAIN;
    type Config = ForgetfulConfig<F>;
    type Flow = F::Flow;
    type Group = F::Group;

    fn new(config: &Arc<ForgetfulConfig<F>>, worker: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Forgetful {
            function: F::new(&config.config, worker)?,
            bug: config.bug.clone(),
            with: config.with,
            mattered: Arc::clone(&config.mattered),
        })
    }

    async fn process(&self, packet: &mut Packet, flow: &mut F::Flow, cx: &mut Cx<Self>) -> Verdict {
        self.function.process(packet, flow, cx.lend()).await
    }

    fn process_now(&self, packet: &mut Packet, flow: &mut F::Flow, cx: &mut Cx<Self>) -> Option<Verdict> {
        self.function.process_now(packet, flow, cx.lend())
    }

    fn arrived(&self, flow: &mut F::Flow, why: Arrival, cx: &mut Cx<Self>) {
        if why == self.with {
            let mattered = match &self.bug {
                Bug::Flow(lost) => lose(flow, lost),
                Bug::Group(lost) => lose(cx.group(), lost),
                Bug::ArrivesUnheard => return,
                Bug::None | Bug::EndsWithTheMove => false,
            };
            self.mattered.fetch_or(mattered, Ordering::Relaxed);
        }
        self.function.arrived(flow, why, cx.lend());
    }

    fn departed(&self, flow: &F::Flow, why: Departure, cx: &mut Cx<Self>) {
        let why = match self.bug {
            Bug::EndsWithTheMove => Departure::Expired,
            _ => why,
        };
        self.function.departed(flow, why, cx.lend());
    }

    fn group_ended(&self, group: &mut F::Group, cx: &mut Cx<Self>) {
        self.function.group_ended(group, cx.lend());
    }

    fn block_returned(&self, block: nf::Block) {
        self.function.block_returned(block);
    }

    fn block_in_use(&self, block: nf::Block) -> nf::BlockWas {
        self.function.block_in_use(block)
    }

    fn pool(&self) -> Option<nf::PoolState> {
        self.function.pool()
    }

    fn lend_blocks(&self, loan: &nf::Loan, lend: &mut dyn FnMut(nf::Block)) {
        self.function.lend_blocks(loan, lend);
    }

    fn borrow_block(&self, block: nf::Block, home: u16) -> bool {
        self.function.borrow_block(block, home)
    }

    fn forsake_block(&self, block: nf::Block) {
        self.function.forsake_block(block);
    }

    fn pools_heard(&self, others: Option<(u32, u32)>) {
        self.function.pools_heard(others);
    }

    fn timeout(&self, flow: &F::Flow) -> Option<Duration> {
        self.function.timeout(flow)
    }

    fn generation(&self) -> u32 {
        self.function.generation()
    }

    fn rows(&self, table: &str, most: usize) -> Vec<nf::Row> {
        self.function.rows(table, most)
    }

    fn command(&self, words: &[&str]) -> Result<String, String> {
        self.function.command(words)
    }

    fn owner_of(config: &ForgetfulConfig<F>, outside: nf::Endpoint, protocol: u8) -> Option<nf::Endpoint> {
        F::owner_of(&config.config, outside, protocol)
    }
}

/// Bytes left behind at once.
const PART: usize = 4;

/// A function, its settings and its description, and traffic.
struct Subject<F: NetworkFunction> {
    config: Arc<F::Config>,
    describe: fn(Migration) -> Migration,
    script: Vec<Step>,
}

impl<F: NetworkFunction> Subject<F> {
    fn new(config: F::Config, describe: fn(Migration) -> Migration, script: Vec<Step>) -> Self {
        Subject {
            config: Arc::new(config),
            describe,
            script,
        }
    }

    /// With a bug: the migration, and whether the bug mattered.
    fn with(&self, bug: &Bug) -> (Migration, Arc<AtomicBool>) {
        self.with_at(bug, Arrival::Migrated)
    }

    /// With a bug that is there with these arrivals.
    fn with_at(&self, bug: &Bug, with: Arrival) -> (Migration, Arc<AtomicBool>) {
        let mut config = ForgetfulConfig::new(Arc::clone(&self.config), bug.clone());
        config.with = with;
        let mattered = Arc::clone(&config.mattered);
        (
            (self.describe)(migration().function::<Forgetful<F>>(config)),
            mattered,
        )
    }

    #[track_caller]
    fn is_noticed(&self, bug: &Bug) -> bool {
        let (migration, _) = self.with(bug);
        migration.difference(self.script.clone()).is_some()
    }

    /// Leaves each part behind once: all that matter are missed, but for those `let_go`.
    #[track_caller]
    fn parts_are_missed(&self, let_go: &[Bug]) {
        // With no bug there is nothing to notice.
        self.with(&Bug::None).0.check(self.script.clone());
        let first = |bug: &Bug| {
            let (migration, mattered) = self.with(bug);
            (migration.ways([Way::ThereAndBack]), mattered)
        };
        self.missed("moves", let_go, first, |bug| self.is_noticed(bug));
    }

    /// The same where flows come from copies, lazy fields and all.
    #[track_caller]
    fn copied_parts_are_missed(&self, let_go: &[Bug]) {
        let with = |bug: &Bug| {
            let (migration, mattered) = self.with_at(bug, Arrival::Recovered);
            (migration.committing_lazy(), mattered)
        };
        let failing = |bug: &Bug, ways: &[Way]| with(bug).0.ways(ways.iter().copied());
        failing(&Bug::None, &Way::FAILURES).check(self.script.clone());
        let first = |bug: &Bug| {
            let (migration, mattered) = with(bug);
            (migration.ways([Way::Fail]), mattered)
        };
        let is_noticed = |bug: &Bug| {
            let rest = failing(bug, &Way::FAILURES[1..]);
            rest.difference(self.script.clone()).is_some()
        };
        self.missed("failures", let_go, first, is_noticed);
    }

    #[track_caller]
    fn missed(
        &self,
        of: &str,
        let_go: &[Bug],
        first: impl Fn(&Bug) -> (Migration, Arc<AtomicBool>),
        is_noticed: impl Fn(&Bug) -> bool,
    ) {
        let parts = |length: usize| {
            (0..length)
                .step_by(PART)
                .map(move |at| at..(at + PART).min(length))
        };
        let flows = parts(size_of::<F::Flow>()).map(Bug::Flow);
        let groups = parts(size_of::<F::Group>()).map(Bug::Group);
        let (mut missed, mut unused, mut unnoticed) = (0, 0, Vec::new());
        for bug in flows.chain(groups) {
            let (migration, mattered) = first(&bug);
            if migration.difference(self.script.clone()).is_some() {
                missed += 1;
            } else if !mattered.load(Ordering::Relaxed) {
                unused += 1;
            } else if is_noticed(&bug) {
                missed += 1;
            } else {
                unnoticed.push(bug);
            }
        }
        println!(
            "{}, {of}: {missed} parts are missed, {unused} not in use, not missed: {unnoticed:?}",
            F::NAME
        );
        assert!(missed > 0);
        assert_eq!(unnoticed, let_go, "{}", F::NAME);
    }
}

#[test]
fn of_the_firewall() {
    let config = testkit::config::<Firewall>(crate::firewall::RULES);
    let subject = Subject::<Firewall>::new(config, |migration| migration, conversations());
    subject.parts_are_missed(&[]);
    subject.copied_parts_are_missed(&[]);
}

#[test]
fn of_nat() {
    let config = testkit::config::<Nat>(crate::nat::POOL);
    let describe = |migration: Migration| migration.choosing(&["203.0.113.0/29"]).local::<Nat>("mapping");
    let subject = Subject::<Nat>::new(config, describe, conversations());
    // The inside address is for the log of blocks, which is off; the number of mappings is not
    // read.
    let let_go = [Bug::Group(4..8), Bug::Group(8..12)];
    subject.parts_are_missed(&let_go);
    subject.copied_parts_are_missed(&let_go);
    assert!(
        subject.is_noticed(&Bug::EndsWithTheMove),
        "ports are returned twice"
    );
    assert!(subject.is_noticed(&Bug::ArrivesUnheard), "mappings are not there");
}

#[test]
fn of_the_load_balancer() {
    let config = testkit::config::<LoadBalancer>(&crate::load_balancer::config("maglev"));
    let describe = |migration: Migration| migration.asking::<LoadBalancer>(&["backends"]);
    let subject = Subject::<LoadBalancer>::new(config, describe, crate::load_balancer::clients());
    // Which server and service it is by number follows from its identity.
    subject.parts_are_missed(&[Bug::Flow(4..8)]);
    subject.copied_parts_are_missed(&[Bug::Flow(4..8)]);
    assert!(
        subject.is_noticed(&Bug::ArrivesUnheard),
        "connections are returned that are not counted"
    );
}

#[test]
fn of_the_flow_monitor() {
    let config = flow_monitor::Config::default();
    let subject = Subject::<FlowMonitor>::new(config, |migration| migration, conversations());
    subject.parts_are_missed(&[]);
    subject.copied_parts_are_missed(&[]);
    assert!(subject.is_noticed(&Bug::EndsWithTheMove), "records are doubled");
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
    let mut script = crate::ids::dripping("GET /attack-at-dawn?evil HTTP/1.1\r\n\r\n", 3);
    // The bytes that the other end has taken, and that the connection is established, are learned
    // again from each acknowledgement. The last segment, a late copy of the first, has none.
    script.push(tcp("10.0.0.1:1000", "192.0.2.1:80").syn());
    let subject = Subject::<Ids>::new(config, |migration| migration.flows_max(16), script);
    subject.parts_are_missed(&[]);
    subject.copied_parts_are_missed(&[]);
}

#[test]
fn of_the_http_parser() {
    let config = http_parser::Config::default();
    let script = crate::ids::dripping("GET /a/b HTTP/1.1\r\nHost: www.example.org\r\n\r\n", 3);
    let subject = Subject::<HttpParser>::new(config, |migration| migration.flows_max(16), script);
    subject.parts_are_missed(&[]);
    // Of the stream: how many of the client's bytes the server has taken, and that the connection
    // is established. The last segment brings both again; where it does not (`of_the_ids`), they
    // are missed.
    subject.copied_parts_are_missed(&[Bug::Flow(1684..1688), Bug::Flow(1720..1724)]);
    assert!(subject.is_noticed(&Bug::EndsWithTheMove), "records are doubled");
}

#[test]
fn of_the_limits() {
    let config = testkit::config::<HostLimits>(host_limits::RATE);
    let mut script = host_limits::spending(host_limits::from_inside);
    script.extend(host_limits::spending(host_limits::from_outside));
    let subject = Subject::<HostLimits>::new(config, |migration| migration, script);
    // The upper half of a few seconds' credit is 0 or 1.
    subject.parts_are_missed(&[Bug::Group(52..56)]);
    subject.copied_parts_are_missed(&[Bug::Group(52..56)]);
    assert!(subject.is_noticed(&Bug::ArrivesUnheard), "flows are not counted");
}

#[test]
fn of_forward() {
    // Its state is a copy of what the tables say, and is looked up again where it is not there.
    let script = crate::forward::waits();
    let subject = Subject::<Forward>::new(
        crate::forward::router(&[(3, "203.0.113.254")]),
        |migration| migration,
        script,
    );
    // Not of copies: a packet that waits for a neighbour is lost with its runtime.
    subject.parts_are_missed(&[]);
}
