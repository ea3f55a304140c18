//! Variables of a function while its configuration changes: each instance sees the values that the
//! one before left, and the old one ends at the worker.

use super::{QueuePort, udp};
use crate::chain::{ChainRule, Match, Plan};
use crate::stage::Configured;
use crate::worker::change::Prepared;
use crate::worker::{Runtime, Settings};
use nf::variables::{CounterMap, Options, Variables};
use nf::{ConfigError, Cx, Generation, NetworkFunction, Packet, Verdict, WorkerInfo, network_function};
use std::sync::Arc;

/// Under which name a configuration counts, and which it is.
type Settled = (std::string::String, usize);

std::thread_local! {
    /// By configuration: a reference that is held as long as an instance of it lives.
    static ALIVE: [Arc<()>; 5] = Default::default();
}

fn alive(configuration: usize) -> Arc<()> {
    ALIVE.with(|alive| alive[configuration].clone())
}

struct Seen {
    counts: CounterMap<u8>,
    _alive: Arc<()>,
}

#[network_function]
impl NetworkFunction for Seen {
    const NAME: &'static str = "seen";
    type Config = Settled;
    type Flow = ();
    type Group = ();

    fn new(config: &Arc<Settled>, worker: &WorkerInfo) -> Result<Self, ConfigError> {
        Self::with_variables(config, worker, &mut Variables::local())
    }

    fn with_variables(
        config: &Arc<Settled>,
        _: &WorkerInfo,
        variables: &mut Variables,
    ) -> Result<Self, ConfigError> {
        Ok(Seen {
            counts: variables.counter_map(&config.0, Options::default())?,
            _alive: alive(config.1),
        })
    }

    fn process(&self, _: &mut Packet, (): &mut (), _: &mut Cx<Self>) -> Verdict {
        let _ = self.counts.add(&0, 1);
        Verdict::Forward
    }

    fn command(&self, _: &[&str]) -> Result<std::string::String, std::string::String> {
        Ok(std::format!("{}", self.counts.get(&0)))
    }
}

fn plan(name: &str, configuration: usize) -> Plan {
    let rule = ChainRule {
        name: "test".into(),
        matching: Match::default(),
        functions: std::vec!["seen".into()],
        replication: None,
    };
    let factory = Configured::<Seen>::new("seen", (name.into(), configuration));
    Plan::new(std::vec![rule], std::vec![std::boxed::Box::new(factory)]).unwrap()
}

#[test]
fn a_changed_configuration_counts_on_and_the_old_instance_ends_here() {
    let settings = Settings::alone(16);
    let info = settings.info;
    let first = plan("a", 0);
    let port = std::vec![QueuePort::default()];
    let pool = super::pool(64, 0);
    let made = Runtime::new(settings, first.clone(), port, pool, wire::memory::Region::heap);
    let mut runtime = made.unwrap_or_else(|error| panic!("{error:?}"));
    let (mut now, mut before) = (0, first);
    let mut pass = |runtime: &mut Runtime<QueuePort>, packets: usize| {
        for _ in 0..packets {
            let frame = udp(1, 1, 1, 1, false, &[0; 4]);
            runtime.links_mut()[0].input.push_back(frame);
        }
        for _ in 0..20 {
            now += 1000;
            runtime.step(now);
        }
    };
    let count = |runtime: &mut Runtime<QueuePort>| runtime.command("seen", &[]).unwrap();
    pass(&mut runtime, 3);
    // To another variable and back: the first is still there.
    for (at, (name, expected)) in (1u64..).zip([("a", "5"), ("b", "2"), ("a", "7")]) {
        let next = plan(name, at as usize).keeping(before.keeper().clone());
        let prepared = Prepared::new(Generation(at + 1), next.clone(), &before, &info, 0).unwrap();
        // A change that is given up takes nothing with it.
        let given_up = Prepared::new(Generation(at + 1), next.clone(), &before, &info, 0).unwrap();
        assert!(runtime.prepare_change(given_up).is_ok());
        drop(runtime.abandon_change());
        assert!(runtime.prepare_change(prepared).is_ok());
        assert!(runtime.commit_change());
        pass(&mut runtime, 2);
        assert_eq!(count(&mut runtime), expected);
        let mut old = None;
        for _ in 0..100 {
            old = runtime.take_before();
            if old.is_some() {
                break;
            }
            pass(&mut runtime, 0);
        }
        let old = old.expect("no flow is of it any more");
        // No instance is left in it: those would take handles to another thread. One reference is
        // here, one in the table.
        assert_eq!(Arc::strong_count(&alive(at as usize - 1)), 2);
        drop(old);
        before = next;
    }
}
