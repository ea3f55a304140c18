//! Other settings while flows live, in random order with what flows do: mappings stay one to one,
//! no host has what the new settings have not, and every port and block comes back once.

extern crate std;

use super::frames::{V4, ends, udp};
use super::rig::{Out, Rig, pool_of};
use crate::nat::config::Plan;
use crate::nat::ports::{Ports, Wish, space_of};
use crate::nat::state::{Host, V4Endpoint};
use crate::nat::{Config, StaticMapping, StaticMappings, StaticProtocol};
use nf::{Addr, Block, BlockWas, Prefix};
use proptest::prelude::*;
use std::collections::HashMap;
use std::vec;
use std::vec::Vec;

#[derive(Clone, Debug)]
enum Step {
    Out {
        host: u8,
        port: u16,
        remote: u8,
    },
    Back {
        nth: usize,
    },
    Expire {
        nth: usize,
    },
    /// Asks a few of those that were not asked.
    Ask {
        count: usize,
    },
    Change {
        settings: Settings,
    },
}

#[derive(Clone, Debug)]
struct Settings {
    pool: Vec<&'static str>,
    ports: (u16, u16),
    has_static: bool,
    blocks: u32,
}

const FIRST: u16 = 1024;

fn settings() -> impl Strategy<Value = Settings> {
    let pool = prop_oneof![
        Just(vec!["203.0.113.0/31"]),
        Just(vec!["203.0.113.1/32"]),
        Just(vec!["203.0.113.0/32"]),
        Just(vec!["203.0.113.0/30"]),
        Just(vec!["198.51.100.9/32", "203.0.113.1/32"]),
    ];
    let ports = prop_oneof![
        Just((FIRST, FIRST + 7 * 64 - 1)),
        Just((FIRST + 2 * 64, FIRST + 7 * 64 - 1)),
        Just((FIRST, FIRST + 4 * 64 - 1)),
    ];
    (pool, ports, any::<bool>(), 1u32..4).prop_map(|(pool, ports, has_static, blocks)| Settings {
        pool,
        ports,
        has_static,
        blocks,
    })
}

impl Settings {
    fn config(&self) -> Config {
        let all: Vec<Prefix> = self.pool.iter().map(|text| text.parse().unwrap()).collect();
        let mapping = StaticMapping {
            inside: "10.0.0.200:80".parse().unwrap(),
            outside: "203.0.113.1:1290".parse().unwrap(),
            protocol: StaticProtocol::Udp,
        };
        Config {
            pool: all,
            ports: self.ports,
            block_size: 64,
            blocks_per_host: self.blocks,
            static_mappings: StaticMappings::from(if self.has_static {
                vec![mapping]
            } else {
                Vec::new()
            }),
            ..pool_of("203.0.113.0/31")
        }
    }

    /// Whether a host may have this endpoint by these settings.
    fn has(&self, (addr, port): V4) -> bool {
        let in_pool = self
            .config()
            .pool
            .iter()
            .any(|prefix| prefix.contains(nf::Addr::v4(addr)));
        let kept = self.has_static && addr == [203, 0, 113, 1] && port & !63 == 1290 & !63;
        in_pool && (self.ports.0..=self.ports.1).contains(&port) && !kept
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        10 => (0u8..6, 1024u16..1064, 0u8..4).prop_map(|(host, port, remote)| Step::Out { host, port, remote }),
        3 => (0usize..500).prop_map(|nth| Step::Back { nth }),
        4 => (0usize..500).prop_map(|nth| Step::Expire { nth }),
        2 => (0usize..6).prop_map(|count| Step::Ask { count }),
        1 => settings().prop_map(|settings| Step::Change { settings }),
    ];
    proptest::collection::vec(step, 1..250)
}

fn check(rig: &Rig, settings: &Settings) {
    let mut by_outside: HashMap<V4, V4> = HashMap::new();
    let mut by_inside: HashMap<V4, V4> = HashMap::new();
    for (id, actor) in &rig.actors {
        let flow = actor.flow;
        if flow.mapping == 0 {
            continue;
        }
        let (inside, outside) = (flow.inside.pair(), flow.outside.pair());
        assert_eq!(
            *by_outside.entry(outside).or_insert(inside),
            inside,
            "{outside:?} shared"
        );
        let block = nf::Block {
            addr: nf::Addr::v4(outside.0),
            first: outside.1 & !63,
            ports: 64,
        };
        assert_eq!(
            rig.blocks.get(&block),
            Some(&actor.group),
            "{outside:?} is not in the host's block"
        );
        if !rig.unasked.contains(id) {
            assert!(settings.has(outside), "{outside:?} is not in {settings:?}");
            assert_eq!(
                *by_inside.entry(inside).or_insert(outside),
                outside,
                "{inside:?} has two"
            );
        }
    }
    assert!(
        rig.mappings() == by_outside.len(),
        "a mapping lives exactly as long as its flows"
    );
}

fn run(first: &Settings, steps: Vec<Step>) {
    let Ok(mut rig) = Rig::with(first.config(), 3, 400) else {
        return;
    };
    let mut settings = first.clone();
    for step in steps {
        match step {
            Step::Out { host, port, remote } => {
                let to = ([198, 51, 99, remote], 80);
                if let Out::Sent(_, frame) = rig.send_inside(&udp(([10, 0, 0, host], port), to)) {
                    assert!(
                        settings.has(ends(&frame).0),
                        "{:?} of {settings:?}",
                        ends(&frame).0
                    );
                }
            }
            Step::Back { nth } => {
                let all: Vec<(V4, V4)> = rig
                    .actors
                    .values()
                    .filter(|actor| actor.flow.mapping != 0)
                    .map(|actor| (actor.flow.remote.pair(), actor.flow.outside.pair()))
                    // An endpoint that is a static mapping's now is for its host, as soon as no
                    // other host has the block.
                    .filter(|(_, to)| !settings.has_static || *to != ([203, 0, 113, 1], 1290))
                    .collect();
                if !all.is_empty() {
                    let (from, to) = all[nth % all.len()];
                    let is_sent = matches!(rig.send_outside(&udp(from, to)), Out::Sent(_, frame) if ends(&frame).1.0[0] == 10);
                    assert_eq!(is_sent, settings.has(to), "{to:?} by {settings:?}");
                }
            }
            Step::Expire { nth } => {
                let ids: Vec<usize> = rig.actors.keys().copied().collect();
                if !ids.is_empty() {
                    rig.expire(ids[nth % ids.len()]);
                }
            }
            Step::Ask { count } => {
                let ids: Vec<usize> = rig.unasked.iter().copied().take(count).collect();
                ids.into_iter().for_each(|id| {
                    rig.ask(id);
                });
            }
            Step::Change { settings: new } => {
                match rig.configure(new.config()) {
                    Ok(()) => settings = new,
                    // So few blocks that a runtime has none: nothing changes.
                    Err(error) => assert_eq!(error.at, "pool"),
                }
            }
        }
        check(&rig, &settings);
    }
    rig.ask_all();
    check(&rig, &settings);
    rig.expire_all();
    rig.assert_empty();
}

proptest! {

    #[test]
    fn mappings_stay_one_to_one_and_everything_is_given_back_through_changes(first in settings(), steps in steps()) {
        run(&first, steps);
    }
}

#[test]
fn what_mappings_are_made_of_cannot_change() {
    let mut rig = Rig::new(pool_of("203.0.113.0/31"));
    let other = Config {
        block_size: 128,
        ..pool_of("203.0.113.0/31")
    };
    let error = rig.configure(other).unwrap_err();
    assert_eq!(
        (error.at.as_str(), error.remedy.as_str()),
        ("block_size", "leave it as it was, or restart")
    );
}

#[test]
fn a_pool_that_grows_and_shrinks_again_cuts_only_what_is_gone() {
    let mut rig = Rig::new(pool_of("203.0.113.1/32"));
    let send = |rig: &mut Rig, host: u8| {
        let out = rig.send_inside(&udp(([10, 0, 0, host], 5000), ([198, 51, 100, 7], 53)));
        ends(&out.sent()).0
    };
    let old: Vec<V4> = (0..20).map(|host| send(&mut rig, host)).collect();
    rig.configure(pool_of("203.0.113.0/30")).unwrap();
    rig.ask_all();
    assert_eq!(rig.flow_count(), 20);
    let new: Vec<V4> = (20..60).map(|host| send(&mut rig, host)).collect();
    let elsewhere = new.iter().filter(|end| end.0 != [203, 0, 113, 1]).count();
    assert!(elsewhere > 0);
    for (host, end) in (0..20).zip(&old) {
        assert_eq!(send(&mut rig, host), *end);
    }
    rig.configure(pool_of("203.0.113.1/32")).unwrap();
    rig.ask_all();
    assert_eq!(rig.flow_count(), 60 - elsewhere);
    for (host, end) in (0..20).zip(&old) {
        assert_eq!(send(&mut rig, host), *end);
    }
    rig.expire_all();
    rig.assert_empty();
}

const LAST: u16 = FIRST + 8 * 64 - 1;

/// A plan of one address, of which these ports are given.
fn of_ports(first: u16, last: u16) -> Plan {
    let config = Config {
        ports: (first, last),
        block_size: 64,
        ..pool_of("203.0.113.1/32")
    };
    Plan::new(&config).unwrap()
}

/// A plan with all ports, and a static mapping of one.
fn reserving(port: u16) -> Plan {
    let outside = std::format!("203.0.113.1:{port}");
    let mapping = StaticMapping {
        inside: "10.0.0.200:80".parse().unwrap(),
        outside: outside.parse().unwrap(),
        protocol: StaticProtocol::Udp,
    };
    let config = Config {
        ports: (FIRST, LAST),
        block_size: 64,
        static_mappings: vec![mapping].into(),
        ..pool_of("203.0.113.1/32")
    };
    Plan::new(&config).unwrap()
}

#[test]
fn a_block_that_is_lent_out_is_not_given_again_through_changes() {
    [false, true].into_iter().for_each(lend_and_change);
}

/// The change takes the block's ports from the pool, or reserves the block.
fn lend_and_change(reserves: bool) {
    let space = space_of(wire::protocol::UDP).unwrap();
    let all = of_ports(FIRST, LAST);
    let mut homes: Vec<Ports> = (0..2)
        .map(|runtime| Ports::new(&all, runtime, 2, 1000, 7))
        .collect();
    // A host of the first runtime takes a block of its and moves to the second.
    let mut host = Host::default();
    let wish = Wish {
        port: Some(FIRST),
        odd: None,
    };
    let inside = V4Endpoint::new([10, 0, 0, 1], FIRST);
    let (outside, block) = homes[0]
        .take(&mut host, inside, space, wish)
        .or_else(|_| homes[1].take(&mut host, inside, space, wish))
        .unwrap();
    let block = block.unwrap();
    let home = usize::from(homes[0].elsewhere(block).is_some());
    let away = 1 - home;
    homes[home].forget(&host, outside, space);
    assert!(homes[away].adopt(&host, outside, space));
    assert_eq!(homes[away].elsewhere(block), Some(home as u16));
    // The ports go from the pool and come again while it is away.
    let without = match block.first {
        FIRST => (FIRST + 64, LAST),
        first => (FIRST, first - 1),
    };
    let change = match reserves {
        true => reserving(block.first),
        false => of_ports(without.0, without.1),
    };
    for plan in [change, of_ports(FIRST, LAST)] {
        homes = homes
            .into_iter()
            .zip(0..)
            .map(|(mut old, runtime)| {
                let mut new = Ports::new(&plan, runtime, 2, 1000, 7);
                new.succeed(&mut old, &plan);
                new
            })
            .collect();
    }
    let takes_all = |ports: &mut Ports| {
        let claims = (0..64u8).map_while(|n| {
            let inside = V4Endpoint::new([10, 0, 1, n], 5000);
            ports
                .take(&mut Host::default(), inside, space, Wish::default())
                .ok()
        });
        claims.filter_map(|(_, claimed)| claimed).collect::<Vec<_>>()
    };
    let given = takes_all(&mut homes[home]);
    assert!(given.len() >= 3 && !given.contains(&block), "{given:?}");
    // Used no more, it goes home, and is given again.
    let returned = match homes[away].give(&mut host, outside, space) {
        Some(block) => block,
        None => homes[away].end(&mut host).unwrap(),
    };
    assert_eq!(
        (returned, homes[away].elsewhere(returned)),
        (block, Some(home as u16))
    );
    homes[home].take_back(block);
    // A block that was gone comes back with the next change.
    let mut new = Ports::new(&all, home as u16, 2, 1000, 7);
    new.succeed(&mut homes[home], &all);
    assert_eq!(takes_all(&mut new), [block]);
}

#[test]
fn blocks_that_were_gone_are_free_when_the_pool_has_them_again() {
    let settings = |ports: (u16, u16), has_static: bool| Settings {
        pool: vec!["203.0.113.1/32"],
        ports,
        has_static,
        blocks: 2,
    };
    let whole = (FIRST, FIRST + 7 * 64 - 1);
    let changes = [
        settings(whole, true),
        settings((FIRST, FIRST + 4 * 64 - 1), false),
    ];
    for change in changes {
        let mut rig = Rig::new(settings(whole, false).config());
        let free = |rig: &Rig| rig.nats[0].tables.borrow().ports.free_blocks();
        for host in 0..7 {
            let from = ([10, 0, 0, host], FIRST + u16::from(host) * 64);
            rig.send_inside(&udp(from, ([198, 51, 100, 7], 53))).sent();
        }
        for settings in [&change, &settings(whole, true), &settings(whole, false)] {
            rig.configure(settings.config()).unwrap();
            rig.ask_all();
        }
        rig.expire_all();
        rig.assert_empty();
        assert_eq!(free(&rig), 7, "{change:?}");
    }
}

#[test]
fn a_block_that_an_earlier_instance_had_lent_is_given_when_it_has_come_home() {
    let space = space_of(wire::protocol::UDP).unwrap();
    let plan = of_ports(FIRST, LAST);
    let all_of = |ports: &mut Ports| {
        let claims = (0..64u8).map_while(|n| {
            let inside = V4Endpoint::new([10, 0, 1, n], 5000);
            ports
                .take(&mut Host::default(), inside, space, Wish::default())
                .ok()
        });
        let mut blocks: Vec<_> = claims.filter_map(|(_, claimed)| claimed).collect();
        blocks.sort_unstable_by_key(|block| block.first);
        blocks
    };
    let shares = [0, 1].map(|runtime| all_of(&mut Ports::new(&plan, runtime, 2, 1000, 7)));
    for runtime in [0, 1] {
        let (own, other) = (&shares[usize::from(runtime)], &shares[1 - usize::from(runtime)]);
        let mut ports = Ports::new(&plan, runtime, 2, 1000, 7);
        assert!(own.len() > 1);
        assert_eq!(
            [(); 2].map(|()| ports.lend(own[0])),
            [BlockWas::Free, BlockWas::Out]
        );
        // A block of another runtime's, of no pool, and of another size.
        let wild = Block {
            first: LAST & !63,
            addr: Addr::v4([203, 0, 113, 77]),
            ports: 64,
        };
        let small = Block { ports: 32, ..own[1] };
        for block in [other[0], wild, small] {
            assert_eq!(ports.lend(block), BlockWas::Anothers, "{block:?}");
        }
        let mut given = all_of(&mut ports);
        assert_eq!(given, own[1..]);
        // A block in use here is not lent.
        assert_eq!(ports.lend(own[1]), BlockWas::Out);
        ports.take_back(own[0]);
        given = all_of(&mut ports);
        assert_eq!(given, own[..1]);
    }
}
