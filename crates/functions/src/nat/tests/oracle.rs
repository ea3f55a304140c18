//! Random sequences against an oracle: mappings one to one, everything taken given back once.

extern crate std;

use super::frames::{Tcp, V4, assert_checksums, ends, tcp, udp};
use super::rig::{Out, Rig, pool_of};
use crate::nat::{Config, Filtering, MappingBehavior};
use nf::Addr;
use proptest::prelude::*;
use std::collections::HashMap;
use std::vec::Vec;

#[derive(Clone, Debug)]
enum Step {
    /// Inside host and port to a remote address and port.
    Out {
        host: u8,
        port: u16,
        remote: u8,
        tcp: bool,
    },
    /// Remote address and port to the n-th external endpoint known.
    In {
        remote: u8,
        port: u16,
        nth: usize,
        tcp: bool,
    },
    /// Inside host to the n-th external endpoint known.
    Hairpin {
        host: u8,
        port: u16,
        nth: usize,
    },
    Expire {
        nth: usize,
    },
    Migrate {
        host: u8,
        to: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0u8..6, 1024u16..1064, 0u8..4, any::<bool>())
            .prop_map(|(host, port, remote, tcp)| Step::Out { host, port, remote, tcp }),
        3 => (0u8..5, 80u16..83, 0usize..500, any::<bool>())
            .prop_map(|(remote, port, nth, tcp)| Step::In { remote, port, nth, tcp }),
        1 => (0u8..6, 1024u16..1064, 0usize..500).prop_map(|(host, port, nth)| Step::Hairpin { host, port, nth }),
        6 => (0usize..500).prop_map(|nth| Step::Expire { nth }),
        1 => (0u8..6, 0usize..3).prop_map(|(host, to)| Step::Migrate { host, to }),
    ]
}

fn config() -> impl Strategy<Value = Config> {
    let filtering = prop_oneof![
        Just(Filtering::EndpointIndependent),
        Just(Filtering::AddressDependent),
        Just(Filtering::AddressAndPortDependent),
    ];
    let mapping = prop_oneof![
        Just(MappingBehavior::EndpointIndependent),
        Just(MappingBehavior::AddressAndPortDependent)
    ];
    (filtering, mapping, any::<bool>(), any::<bool>(), 1u32..4).prop_map(
        |(filtering, mapping, ports, parity, blocks)| {
            Config {
                filtering,
                mapping,
                preserve_ports: ports,
                preserve_parity: parity,
                blocks_per_host: blocks,
                block_size: 64,
                // Seven blocks on each of two addresses: hosts run out, and so does the pool.
                ports: (1024, 1024 + 7 * 64 - 1),
                ..pool_of("203.0.113.0/31")
            }
        },
    )
}

/// The knowledge from outside: which inside endpoint (and remote) has which external endpoint, by
/// living flows.
struct Oracle {
    rig: Rig,
    dependent: bool,
}

impl Oracle {
    fn check(&self) {
        let mut by_outside: HashMap<(u8, V4), V4> = HashMap::new();
        let mut by_inside: HashMap<(u8, V4, Option<V4>), V4> = HashMap::new();
        for actor in self.rig.actors.values() {
            let flow = actor.flow;
            if flow.mapping == 0 {
                continue;
            }
            let protocol = u8::from(flow.phase as u8 >= 8);
            let (inside, outside) = (flow.inside.pair(), flow.outside.pair());
            assert_eq!(
                *by_outside.entry((protocol, outside)).or_insert(inside),
                inside,
                "{outside:?} shared"
            );
            if flow.how & 1 == 0 {
                let remote = self.dependent.then(|| flow.remote.pair());
                assert_eq!(
                    *by_inside.entry((protocol, inside, remote)).or_insert(outside),
                    outside
                );
            }
            let block = nf::Block {
                addr: Addr::v4(outside.0),
                first: outside.1 & !63,
                ports: 64,
            };
            assert_eq!(
                self.rig.blocks.get(&block),
                Some(&actor.group),
                "{outside:?} is not in the host's block"
            );
        }
        assert_eq!(
            self.rig.mappings(),
            by_outside.len(),
            "a mapping lives exactly as long as its flows"
        );
        let groups: Vec<Addr> = self.rig.groups().collect();
        let mut blocks = 0;
        for group in groups {
            let host = self.rig.host(group);
            blocks += host.blocks().len();
            let in_use = |first: u16| {
                by_outside
                    .keys()
                    .any(|(_, e)| e.0 == host.outside && e.1 & !63 == first)
            };
            let spare = host.blocks().iter().filter(|first| !in_use(**first)).count();
            assert!(spare <= 1, "{spare} empty blocks are kept");
            for first in host.blocks() {
                let block = nf::Block {
                    addr: Addr::v4(host.outside),
                    first: *first,
                    ports: 64,
                };
                assert_eq!(self.rig.blocks.get(&block), Some(&group));
            }
        }
        assert_eq!(blocks, self.rig.blocks.len());
    }

    fn known(&self, nth: usize) -> Option<V4> {
        let all: Vec<V4> = self
            .rig
            .actors
            .values()
            .filter(|a| a.flow.mapping != 0)
            .map(|a| a.flow.outside.pair())
            .collect();
        (!all.is_empty()).then(|| all[nth % all.len()])
    }

    /// The fate that a packet from outside must have, by the living flows alone.
    fn expected(&self, from: V4, to: V4, tcp: bool) -> &'static str {
        let ours = |actor: &&super::rig::Actor| {
            let flow = actor.flow;
            flow.mapping != 0 && flow.outside.pair() == to && ((flow.phase as u8) < 8) == tcp
        };
        let flows: Vec<_> = self.rig.actors.values().filter(ours).collect();
        let known = |same: &dyn Fn(V4) -> bool| flows.iter().any(|a| same(a.flow.remote.pair()));
        match self.rig.config.filtering {
            _ if flows.is_empty() => "no_mapping",
            _ if known(&|remote| remote == from) => "sent",
            Filtering::EndpointIndependent => "sent",
            Filtering::AddressDependent if known(&|remote| remote.0 == from.0) => "sent",
            _ => "filtered",
        }
    }

    fn run(&mut self, step: &Step) {
        let frame = |from, to, is_tcp| {
            if is_tcp {
                tcp(from, to, Tcp::Syn)
            } else {
                udp(from, to)
            }
        };
        let out = match *step {
            Step::Out {
                host,
                port,
                remote,
                tcp,
            } => {
                let to = ([198, 51, 100, remote], 80);
                self.rig.send_inside(&frame(([10, 0, 0, host], port), to, tcp))
            }
            Step::In {
                remote,
                port,
                nth,
                tcp,
            } => {
                let Some(to) = self.known(nth) else { return };
                let from = ([198, 51, 100, remote], port);
                let expected = self.expected(from, to, tcp);
                let out = self.rig.send_outside(&frame(from, to, tcp));
                assert_eq!(out.clone().reason(), expected, "{from:?} to {to:?}");
                out
            }
            Step::Hairpin { host, port, nth } => {
                let Some(to) = self.known(nth) else { return };
                self.rig.send_inside(&frame(([10, 0, 0, host], port), to, false))
            }
            Step::Expire { nth } => {
                let ids: Vec<usize> = self.rig.actors.keys().copied().collect();
                if !ids.is_empty() {
                    self.rig.expire(ids[nth % ids.len()]);
                }
                return;
            }
            Step::Migrate { host, to } => {
                let group = Addr::v4([10, 0, 0, host]);
                if self.rig.groups().any(|g| g == group) {
                    self.rig.migrate(group, to, nf::Arrival::Migrated);
                }
                return;
            }
        };
        if let Out::Sent(_, frame) = out {
            assert_checksums(&frame);
            let (from, to) = ends(&frame);
            let private = |e: V4| e.0[0] == 10;
            assert!(
                !private(from) || private(to),
                "a private source left: {from:?} to {to:?}"
            );
        }
    }
}

proptest! {

    #[test]
    fn mappings_are_one_to_one_and_everything_is_given_back(
        config in config(),
        steps in proptest::collection::vec(step(), 1..250),
    ) {
        let dependent = config.mapping == MappingBehavior::AddressAndPortDependent;
        let rig = Rig::with(config, 3, 400).unwrap();
        let mut oracle = Oracle { rig, dependent };
        for step in &steps {
            oracle.run(step);
            oracle.check();
        }
        oracle.rig.expire_all();
        oracle.rig.assert_empty();
    }
}
