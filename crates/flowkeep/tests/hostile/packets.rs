//! Packets that lie, through a switch and two runtimes, while a hundred connections go on.

use crate::rig::{ALL, Cluster, Established, Rig, WEB_ONLY, establish};
use nf::Side;

const PACKETS: usize = 100_000;

fn lies(rules: &str, seed: u64) {
    let mut rig = Cluster::new(rules, 10_000);
    let flows: Vec<Established> = (0..100).map(|n| establish(&mut rig, n)).collect();
    let (before, mut asked) = (rig.world().served, 0);
    for (n, (link, frame)) in wire::hostile::packets(seed, PACKETS).enumerate() {
        rig.offer_on(link, Side::Inside, &frame);
        if n % 10 == 0 {
            let flow = &flows[n / 20 % flows.len()];
            match n % 20 {
                0 => rig.offer(Side::Inside, &flow.forward),
                _ => rig.offer(Side::Outside, &flow.back),
            }
            asked += 1;
        }
    }
    rig.run_until_quiet();
    let books = rig.books();
    println!("{books:?}");
    books.check();
    assert_eq!(
        rig.world().served - before,
        asked,
        "packets of established flows were lost"
    );
    // Later fragments wait some seconds for their first ones.
    rig.pass(10);
    let books = rig.books();
    books.check();
    assert_eq!(books.held, 0);
    // Long after, nothing is left of any flow.
    for _ in 0..5 {
        rig.pass(10_000);
    }
    let books = rig.books();
    books.check();
    assert_eq!(books.flows, 0);
    assert!(rig.is_empty());
}

#[test]
fn packets_that_lie_do_no_harm_behind_a_firewall() {
    let _turn = crate::turn();
    lies(WEB_ONLY, 11);
}

#[test]
fn packets_that_lie_do_no_harm_where_all_is_allowed() {
    let _turn = crate::turn();
    lies(ALL, 12);
}
