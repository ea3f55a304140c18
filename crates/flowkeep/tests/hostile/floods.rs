//! Floods, while a thousand connections go on: each packet of theirs is passed, each refused one is
//! a counted drop, nothing grows, and afterwards there is room again.

use crate::frames::{self, SERVICE, Says};
use crate::rig::{ALL, Alone, Books, Established, Rig, WEB_ONLY, establish};
use nf::Side;
use std::time::Instant;
use wire::hostile::Random;

const FLOWS_MAX: u32 = 100_000;
const SERVED: u32 = 1000;

/// Packets of the flood of SYNs, five million unless `FLOWKEEP_FLOOD` says otherwise; the other
/// floods have a fifth.
fn flood_size() -> u32 {
    let asked = std::env::var("FLOWKEEP_FLOOD").ok();
    asked.map_or(5_000_000, |count| {
        count.parse().expect("FLOWKEEP_FLOOD is a number")
    })
}

/// Bytes of memory in use by this process.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("Linux tells");
    let pages: u64 = pages.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// A chain that serves, and a flood's effect on it.
struct Scene {
    rig: Alone,
    flows: Vec<Established>,
    asked: u64,
    started: Instant,
    /// Allocations and growth of memory while the flood went on.
    allocations: u64,
    grown: u64,
}

impl Scene {
    fn new(rules: &str) -> Self {
        let mut rig = Alone::new(rules, FLOWS_MAX);
        let flows = (0..SERVED).map(|n| establish(&mut rig, n)).collect();
        assert_eq!(rig.books().flows, u64::from(SERVED));
        rig.world().served = 0;
        Scene {
            rig,
            flows,
            asked: 0,
            started: Instant::now(),
            allocations: 0,
            grown: 0,
        }
    }

    /// `count` frames made by `make`, and after every 25 of them one of a served connection, either
    /// way in turn.
    fn flood<F: AsRef<[u8]>>(&mut self, count: u32, side: Side, mut make: impl FnMut(u32) -> F) {
        let before = resident();
        self.allocations += testkit::allocations(|| {
            for n in 0..count {
                self.rig.offer(side, make(n).as_ref());
                if n % 25 == 0 {
                    let flow = &self.flows[(self.asked / 2 % u64::from(SERVED)) as usize];
                    match self.asked % 2 {
                        0 => self.rig.offer(Side::Inside, &flow.forward),
                        _ => self.rig.offer(Side::Outside, &flow.back),
                    }
                    self.asked += 1;
                }
            }
            self.rig.run_until_quiet();
        });
        self.grown += resident().saturating_sub(before);
    }

    /// Checks the invariants after every flood.
    #[track_caller]
    fn check(&mut self, name: &str) -> Books {
        let books = self.rig.books();
        println!(
            "{name}: {} packets in {:.1} s, {} of {} served, {} allocations, memory grown by {} KiB, {} flows, {:?}",
            books.received,
            self.started.elapsed().as_secs_f64(),
            self.rig.world().served,
            self.asked,
            self.allocations,
            self.grown / 1024,
            books.flows,
            books.dropped
        );
        books.check();
        assert_eq!(books.held, 0);
        assert_eq!(
            self.rig.world().served,
            self.asked,
            "packets of established flows were lost"
        );
        assert_eq!(self.allocations, 0, "a flood allocates nothing");
        books
    }

    /// Time ends the flows that the flood left, and there is room for others.
    #[track_caller]
    fn check_recovery(&mut self) {
        // ICMP errors and UDP are forgotten in minutes, half-open connections in four.
        self.rig.pass(310);
        self.rig.pass(10);
        assert_eq!(self.rig.books().flows, u64::from(SERVED));
        for n in 0..1000 {
            establish(&mut self.rig, SERVED + n);
        }
        self.rig.books().check();
    }
}

/// The `n`-th flooding host's endpoint: 32 connections each.
fn flooder(n: u32) -> frames::V4 {
    (0x0a00_0000 + n / 32, 10_000 + (n % 32) as u16)
}

#[test]
fn syns_beyond_what_the_table_holds() {
    let _turn = crate::turn();
    let (count, room) = (flood_size(), FLOWS_MAX - SERVED);
    let mut scene = Scene::new(WEB_ONLY);
    let syn = |n| frames::tcp(flooder(n), SERVICE, frames::SYN, false);
    scene.flood(room, Side::Inside, syn);
    assert_eq!(scene.rig.books().flows, u64::from(FLOWS_MAX));
    // All memory that flows can take is taken by now.
    scene.grown = 0;
    scene.flood(count - room, Side::Inside, |n| syn(room + n));
    let books = scene.check("SYNs");
    assert_eq!(books.drops(".flows_full"), u64::from(count - room));
    assert_eq!(books.dropped.len(), 1, "{:?}", books.dropped);
    assert_eq!(books.flows, u64::from(FLOWS_MAX));
    assert!(scene.grown < 4 << 20, "{} bytes", scene.grown);
    scene.check_recovery();
}

#[test]
fn packets_that_no_rule_allows() {
    let _turn = crate::turn();
    let count = flood_size() / 5;
    let mut scene = Scene::new(WEB_ONLY);
    scene.flood(count, Side::Inside, |n| {
        frames::tcp(flooder(n), (SERVICE.0, 25), frames::SYN, false)
    });
    let books = scene.check("refused");
    let refused: u64 = books.dropped.values().sum();
    assert_eq!(refused, u64::from(count), "{:?}", books.dropped);
    assert!(books.dropped.keys().all(|reason| reason.starts_with("firewall.")));
    assert_eq!(books.flows, u64::from(SERVED), "what is refused takes no room");
    assert!(scene.grown < 4 << 20, "{} bytes", scene.grown);
    scene.check_recovery();
}

#[test]
fn packets_from_outside_that_nobody_asked_for() {
    let _turn = crate::turn();
    let count = flood_size() / 5;
    let mut scene = Scene::new(ALL);
    let mut random = Random::new(3);
    scene.flood(count, Side::Outside, |_| {
        let stranger = (
            random.next_u64() as u32 & 0x3fff_ffff | 0x4000_0000,
            random.next_u64() as u16,
        );
        let ours = (0xcb00_7100 | random.below(256) as u32, random.next_u64() as u16);
        let says = [frames::SYN, frames::SYN_ACK, frames::ACK, Says(4, 1, 0)];
        frames::tcp(stranger, ours, random.of(&says), false)
    });
    let books = scene.check("unsolicited");
    assert_eq!(books.dropped.values().sum::<u64>(), u64::from(count));
    assert_eq!(books.flows, u64::from(SERVED), "what is refused takes no room");
    assert!(scene.grown < 4 << 20, "{} bytes", scene.grown);
    scene.check_recovery();
}

#[test]
fn fragments_never_completed() {
    let _turn = crate::turn();
    let count = flood_size() / 5;
    let mut scene = Scene::new(ALL);
    let name_server = (0xc633_6435, 53);
    // Two in three are first fragments, of a thousand flows; the others belong to no datagram that
    // was ever seen.
    let piece = |n| match n % 3 {
        0 => frames::fragment((0x0af0_0000 + n, 1), name_server, n as u16, false),
        _ => frames::fragment((0x0a00_0000 + n % 1000, 5000), name_server, n as u16, true),
    };
    // The thousand flows take their memory first.
    let first = 3000.min(count);
    scene.flood(first, Side::Inside, piece);
    scene.grown = 0;
    scene.flood(count - first, Side::Inside, |n| piece(first + n));
    let held = scene.rig.books().held;
    assert!(
        (1..=1024 / 4).contains(&held),
        "{held} fragments wait for their first one"
    );
    // Until their time is over.
    scene.rig.pass(6);
    let books = scene.check("fragments");
    assert_eq!(books.drops(".fragment_unknown"), held);
    assert_eq!(
        books.drops(".fragments_full") + held,
        u64::from(count.div_ceil(3))
    );
    assert!(books.flows <= u64::from(SERVED) + 1000);
    assert!(scene.grown < 4 << 20, "{} bytes", scene.grown);
    scene.check_recovery();
}

#[test]
fn icmp_errors_about_flows_that_never_were() {
    let _turn = crate::turn();
    let count = flood_size() / 5;
    let mut scene = Scene::new(ALL);
    let mut random = Random::new(5);
    scene.flood(count, Side::Outside, |_| {
        let ours = (0xcb00_7100 | random.below(256) as u32, random.next_u64() as u16);
        let far = (
            random.next_u64() as u32 & 0x3fff_ffff | 0x4000_0000,
            random.next_u64() as u16,
        );
        let quoted = frames::tcp(ours, far, frames::ACK, false);
        frames::unreachable(0xc612_0001, &quoted)
    });
    let books = scene.check("ICMP errors");
    assert_eq!(books.dropped.values().sum::<u64>(), u64::from(count));
    assert_eq!(books.flows, u64::from(SERVED), "what is refused takes no room");
    assert!(scene.grown < 4 << 20, "{} bytes", scene.grown);
    scene.check_recovery();
}
