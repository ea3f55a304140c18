//! Switches that go and begin again, at random.

use super::*;
use std::collections::HashSet;

proptest! {
    /// Switches go and begin again at any time, while groups move: a group is at one runtime, every
    /// packet is accounted for, every move ends, and nothing stays.
    #[test]
    fn switches_begin_anew_while_groups_move(
        events in proptest::collection::vec((0u8..5, 0u8..2, 0u64..8, 0u8..9, 0u8..30, proptest::collection::vec(packets(), 0..3)), 1..150),
        by_host in any::<bool>(),
        late in any::<bool>(),
    ) {
        let functions = match by_host {
            true => vec![factory::<Leaser>(), factory::<Service>()],
            false => vec![factory::<Meter>(), factory::<Service>()],
        };
        let mut members = Members::all(2, 3, Policy::RoundRobin, plan(functions));
        if late {
            (0..3).for_each(|runtime| members.runtime(runtime).set_move_timeout(0));
        }
        for (what, switch, pass, order, goes, packets) in events {
            let switch = usize::from(switch);
            if goes < 4 {
                let goes = usize::from(goes);
                if goes < 2 { members.stop(goes) } else { members.start(goes - 2); members.switch(goes - 2).wait_for_resync(WAIT); }
            }
            if let Some(switch) = &mut members.switches[switch] {
                switch.port_mut(0).input.extend(packets);
            }
            if order < 3 {
                let from = usize::from(order);
                members.runtime(from).order(everywhere(from, 3)).unwrap();
            }
            members.now += pass * SECOND / 4;
            members.step(usize::from(what));
            if by_host {
                let mut groups = HashSet::new();
                for runtime in members.runtimes.iter().flatten() {
                    for group in runtime.group_keys() {
                        prop_assert!(groups.insert(group), "{group:?} is at two runtimes");
                    }
                }
            }
        }
        for switch in 0..2 {
            if members.switches[switch].is_none() {
                members.start(switch);
                members.switch(switch).wait_for_resync(WAIT);
            }
        }
        members.run_until_quiet();
        // Timeouts of moves, which are looked for at every 64th step.
        members.now += 2 * SECOND;
        for _ in 0..64 {
            for worker in 0..5 {
                members.step(worker);
            }
        }
        members.run_until_quiet();
        members.check();
        members.assert_nothing_stays();
        for runtime in members.runtimes.iter().flatten() {
            prop_assert_eq!((runtime.stats().held, runtime.moves_under_way()), (0, vec![]));
        }
    }
}
