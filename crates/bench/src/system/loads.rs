//! The loads: the shipped functions and the papers' chains, as a plan for a runtime and as a loop
//! by hand.

use super::super::lookup::{Keyed, Lookup};
use super::super::traffic::{BenchPort, Segment, Traffic};
use super::super::{Memory, gateway};
use super::site::Writer;
use adapters::clock::cycles;
use functions::firewall::Firewall;
use functions::flow_monitor::FlowMonitor;
use functions::http_parser::HttpParser;
use functions::ids::Ids;
use functions::load_balancer::LoadBalancer;
use functions::nat::Nat;
use nf::by_hand::ByHand;
use nf::{Arrival, Direction, NetworkFunction, Packet, Side, Verdict, WorkerInfo};
use runtime::BURST;
use runtime::chain::{ChainRule, Match, Plan};
use runtime::stage::{Configured, Factory};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use wire::{FlowKey, Orientation};

/// A chain that is measured.
pub struct Load {
    pub name: &'static str,
    pub plan: fn() -> Plan,
    pub plain: fn(u32, &Memory) -> Box<dyn Loop>,
}

const fn load<F: Functions + 'static>(name: &'static str) -> Load {
    Load {
        name,
        plan: plan::<F>,
        plain: |flows, memory| Box::new(Plain::<F>::new(flows, memory)),
    }
}

/// Functions by themselves, and the chains of NFVactor VII-A and NFActor 6.
pub const LOADS: [Load; 9] = [
    load::<(ByHand<Firewall>,)>("firewall"),
    load::<(ByHand<Nat>,)>("NAT"),
    load::<(ByHand<LoadBalancer>,)>("load balancer"),
    load::<(ByHand<Ids>,)>("IDS"),
    load::<(ByHand<FlowMonitor>,)>("monitor"),
    load::<(ByHand<HttpParser>,)>("HTTP"),
    load::<(ByHand<Firewall>, ByHand<Nat>, ByHand<LoadBalancer>)>("firewall, NAT, load balancer"),
    load::<(ByHand<Firewall>, ByHand<Nat>, ByHand<Ids>)>("firewall, NAT, IDS"),
    load::<(ByHand<FlowMonitor>, ByHand<Firewall>, ByHand<HttpParser>)>("monitor, firewall, HTTP"),
];

/// A function with the settings that it is measured with.
trait Measured: NetworkFunction {
    const SETTINGS: &'static str;

    fn config() -> Self::Config {
        toml::from_str(Self::SETTINGS).expect("the benchmark's settings are good")
    }
}

impl Measured for Firewall {
    const SETTINGS: &'static str = gateway::FIREWALL;
}
impl Measured for Nat {
    const SETTINGS: &'static str = gateway::NAT;
}
impl Measured for LoadBalancer {
    const SETTINGS: &'static str = gateway::LOAD_BALANCER;
}
impl Measured for FlowMonitor {
    const SETTINGS: &'static str = "";
}
impl Measured for HttpParser {
    const SETTINGS: &'static str = "";
}
impl Measured for Ids {
    /// Contents of streams, none of which occurs.
    const SETTINGS: &'static str = r#"
rules = '''
alert tcp any any -> any any (msg:"a"; flow:established,to_server; content:"/etc/passwd"; sid:1;)
alert tcp any any -> any any (msg:"b"; flow:established,to_server; content:"cmd.exe"; nocase; sid:2;)
alert tcp any any -> any 80 (msg:"c"; flow:established,to_server; content:"SELECT"; content:"UNION"; distance:0; sid:3;)
alert tcp any any -> any 80 (msg:"d"; flow:established,to_server; content:"<script"; nocase; sid:4;)
alert tcp any any -> any any (msg:"e"; flow:established,to_server; content:"|90 90 90 90 90 90|"; sid:5;)
alert tcp any any -> any any (msg:"f"; flow:established,to_server; content:"powershell"; nocase; sid:6;)
alert tcp any any -> any 80 (msg:"g"; flow:established,to_server; content:"../../"; sid:7;)
alert tcp any any -> any any (msg:"h"; flow:established,to_server; content:"xp_cmdshell"; sid:8;)
'''
"#;
}

/// Functions that stand one behind the other, called by hand.
pub trait Functions: Sized {
    type States: Copy + Default;
    type Groups: Default;

    fn new(worker: &WorkerInfo) -> Self;
    /// As a runtime takes them.
    fn factories() -> Vec<Box<dyn Factory>>;
    fn facts(&mut self, now: u64, side: Side, direction: Direction);
    fn key(&mut self, key: FlowKey, opening: Orientation);
    fn exchange(&mut self, groups: &mut Self::Groups);
    fn arrived(&mut self, states: &mut Self::States);
    /// Whether all forward it.
    fn pass(&mut self, packet: &mut Packet, states: &mut Self::States) -> bool;
    /// The same of a reply, from the last function to the first.
    fn pass_back(&mut self, packet: &mut Packet, states: &mut Self::States) -> bool;
    /// The longest that one asks for.
    fn timeout(&self, states: &Self::States) -> Option<Duration>;
    fn forget(&mut self);
}

macro_rules! functions {
    ($($function:ident $at:tt),+; $($last:tt),+) => {
        impl<$($function: Measured),+> Functions for ($(ByHand<$function>,)+) {
            type States = ($($function::Flow,)+);
            type Groups = ($($function::Group,)+);

            fn new(worker: &WorkerInfo) -> Self {
                ($(ByHand::new($function::new(&Arc::new($function::config()), worker).expect("good settings")),)+)
            }
            fn factories() -> Vec<Box<dyn Factory>> {
                vec![$(Box::new(Configured::<$function>::new($function::NAME, $function::config()))),+]
            }
            #[inline(always)]
            fn facts(&mut self, now: u64, side: Side, direction: Direction) {
                $(self.$at.raw().set(now, side, direction);)+
            }
            fn key(&mut self, key: FlowKey, opening: Orientation) {
                $(self.$at.set_key(key, opening);)+
            }
            fn exchange(&mut self, groups: &mut Self::Groups) {
                $(std::mem::swap(self.$at.group(), &mut groups.$at);)+
            }
            fn arrived(&mut self, states: &mut Self::States) {
                $(self.$at.arrived(&mut states.$at, Arrival::New);)+
            }
            #[inline(always)]
            fn pass(&mut self, packet: &mut Packet, states: &mut Self::States) -> bool {
                $(self.$at.process_now(packet, &mut states.$at) == Some(Verdict::Forward))&&+
            }
            fn pass_back(&mut self, packet: &mut Packet, states: &mut Self::States) -> bool {
                $(self.$last.process_now(packet, &mut states.$last) == Some(Verdict::Forward))&&+
            }
            #[inline(always)]
            fn timeout(&self, states: &Self::States) -> Option<Duration> {
                None$(.max(self.$at.function.timeout(&states.$at)))+
            }
            fn forget(&mut self) {
                $(self.$at.forget_effects();)+
            }
        }
    };
}
functions!(A 0; 0);
functions!(A 0, B 1, C 2; 2, 1, 0);

/// The functions as a runtime's only chain.
fn plan<F: Functions>() -> Plan {
    let factories = F::factories();
    let functions = factories.iter().map(|factory| factory.name().to_owned());
    let rule = ChainRule {
        name: "bench".into(),
        matching: Match::default(),
        functions: functions.collect(),
        replication: None,
    };
    Plan::new(vec![rule], factories).expect("the functions make a chain")
}

/// A loop that can be sent packets of an order of flows.
pub trait Loop {
    /// Opens all flows: SYN, SYN and ACK, the head of a request.
    fn open(&mut self, flows: u32);
    /// Answers the cycles that it took.
    fn send(&mut self, order: &[u32]) -> u64;
}

#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
struct Slot<S: Copy + Default> {
    key: FlowKey,
    deadline: u64,
    states: S,
}

impl<S: Copy + Default> Keyed for Slot<S> {
    #[inline(always)]
    fn key(&self) -> &FlowKey {
        &self.key
    }
}

/// A loop over packets: look up, call each function, keep a deadline.
struct Plain<F: Functions> {
    lookup: Lookup<Slot<F::States>>,
    functions: F,
    port: BenchPort,
    traffic: Traffic,
    writer: Writer,
    now: u64,
}

impl<F: Functions> Plain<F> {
    fn new(flows: u32, memory: &Memory) -> Self {
        let worker = WorkerInfo {
            runtime: 0,
            runtimes: 1,
            flows_max: flows,
            seed: 1,
        };
        Plain {
            lookup: Lookup::new(flows, Slot::default(), memory),
            functions: F::new(&worker),
            port: BenchPort::default(),
            traffic: Traffic::default(),
            writer: Writer::new(flows),
            now: 1,
        }
    }

    fn handshake(&mut self, flow: u32) {
        self.traffic.fill(&mut self.port, &[flow], Segment::Syn);
        let mut packet = self.port.ready.pop().expect("just filled");
        wire::parse(&mut packet).expect("a good packet");
        let (key, opening) = FlowKey::of(&packet).expect("a good packet");
        let slot = Slot {
            key,
            ..Slot::default()
        };
        self.lookup.put(flow, slot);
        self.now += 1000;
        let mut states = F::States::default();
        self.functions.key(key, opening);
        self.functions.facts(self.now, Side::Inside, Direction::Opening);
        self.functions.arrived(&mut states);
        assert!(self.functions.pass(&mut packet, &mut states), "the SYN passes");
        packet.set_exit(Side::Outside);
        Traffic::accept(&mut packet);
        wire::parse(&mut packet).expect("a good packet");
        self.functions.facts(self.now, Side::Outside, Direction::Reply);
        assert!(
            self.functions.pass_back(&mut packet, &mut states),
            "the answer passes"
        );
        self.functions.facts(self.now, Side::Inside, Direction::Opening);
        self.writer.head(&mut packet, flow);
        wire::parse(&mut packet).expect("a good packet");
        assert!(
            self.functions.pass(&mut packet, &mut states),
            "the request passes"
        );
        self.functions.forget();
        self.lookup.at(flow).states = states;
        self.port.spent.push(packet);
    }
}

impl<F: Functions> Loop for Plain<F> {
    fn open(&mut self, flows: u32) {
        let mut groups: HashMap<u32, F::Groups> = HashMap::new();
        for flow in 0..flows {
            let host = Traffic::source(flow).0;
            self.functions.exchange(groups.entry(host).or_default());
            self.handshake(flow);
            self.functions.exchange(groups.entry(host).or_default());
        }
    }

    fn send(&mut self, order: &[u32]) -> u64 {
        let began = cycles();
        for burst in order.chunks(BURST) {
            self.traffic.idle.append(&mut self.port.spent);
            for flow in burst {
                let mut packet = self.traffic.idle.pop().expect("more buffers than a burst");
                self.writer.write(&mut packet, *flow);
                self.port.ready.push(packet);
            }
            self.now += 1000;
            let (now, functions) = (self.now, &mut self.functions);
            functions.facts(now, Side::Inside, Direction::Opening);
            let mut packets = std::mem::take(&mut self.port.ready);
            self.lookup.each(&mut packets, |packet, slot| {
                let passed = functions.pass(packet, &mut slot.states);
                assert!(passed, "a benchmark that drops measures something else");
                let timeout = functions.timeout(&slot.states);
                slot.deadline = now + timeout.map_or(0, |timeout| timeout.as_nanos() as u64);
            });
            self.port.spent.extend(packets);
            // Events, which the runtime hands to a writer with each burst.
            self.functions.forget();
        }
        cycles() - began
    }
}
