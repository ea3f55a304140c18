//! Every checker finds a bug that is planted in production code (`wire::planted`), and its finding
//! is made small.

use flowkeep_sim::{self as sim, Scenario};
use std::collections::BTreeMap;
use wire::planted;

/// A bug's name, which is where it stands in the code; the scenario that has that code; the checker
/// that must fire first; a seed that showed it, which is tried first. Another that does is looked
/// for where scripts have changed.
const BUGS: [(&str, Scenario, &str, u64); 78] = [
    ("route_over_too_early", Scenario::Bridge, "one_actor", 298),
    ("second_packet_overtakes", Scenario::Nat, "order", 0),
    ("drop_not_counted", Scenario::Bridge, "conservation", 12),
    ("ring_room_ignored", Scenario::Bridge, "conservation", 1495),
    ("payload_touched", Scenario::Nat, "delivered", 0),
    ("full_table_lets_pass", Scenario::Bridge, "enforced", 21),
    ("answer_to_neighbour", Scenario::Nat, "delivered", 0),
    ("filter_forgotten", Scenario::Nat, "enforced", 3),
    ("port_given_twice", Scenario::Nat, "endpoints", 1),
    ("mapping_not_found", Scenario::Nat, "endpoints", 98),
    ("connection_not_returned", Scenario::Balance, "returned", 0),
    ("idle_not_told", Scenario::Gateway, "converged", 0),
    ("buffers_not_fetched_home", Scenario::Nat, "converged", 18),
    ("choice_by_history", Scenario::Nat, "same_run", 32),
    ("left_unheard", Scenario::Balance, "delivered", 1941),
    // Copies, and runtimes that fail.
    ("copy_not_waited_for", Scenario::Bridge, "kept", 386),
    ("change_not_kept", Scenario::Nat, "kept", 27),
    ("flow_not_recovered", Scenario::Balance, "kept", 101),
    ("told_before_recovered", Scenario::Nat, "converged", 3857),
    ("end_not_kept", Scenario::Nat, "one_actor", 376),
    // The state that a recovery takes over, and for how long.
    ("recovered_group_empty", Scenario::Nat, "converged", 27),
    ("recovered_arrives_twice", Scenario::Balance, "returned", 2),
    ("recovered_for_ever", Scenario::Nat, "converged", 67),
    ("recovered_port_free", Scenario::Nat, "endpoints", 279),
    ("recovered_is_reset", Scenario::Bridge, "kept", 1),
    ("heir_announces_early", Scenario::Nat, "announced", 32),
    ("heir_claims_anothers", Scenario::Nat, "converged", 406),
    // Workers that are given up and live.
    ("taken_given_back", Scenario::Nat, "returned", 32),
    ("heir_without_word", Scenario::Nat, "converged", 2128),
    ("left_before_known", Scenario::Slow, "kept", 1469),
    ("same_incarnation_forgotten", Scenario::Nat, "one_actor", 309),
    // Leases, views and their coordinator.
    ("runtime_without_lease", Scenario::Nat, "fenced", 215),
    ("switch_without_lease", Scenario::Nat, "fenced", 35),
    ("suspect_is_granted", Scenario::Nat, "fenced", 35),
    ("lease_withdrawn_at_once", Scenario::Nat, "fenced", 120),
    ("lease_counts_from_grant", Scenario::Nat, "fenced", 1291),
    ("one_switch_is_enough", Scenario::Nat, "fenced", 120),
    ("few_are_enough", Scenario::Nat, "fenced", 435),
    ("fenced_for_good", Scenario::Nat, "fenced", 284),
    ("acts_before_log", Scenario::Nat, "views", 183),
    ("earlier_incarnation_forgotten", Scenario::Nat, "converged", 184),
    // A runtime that a view is without, as above where a link says that it is gone.
    ("flow_not_recovered", Scenario::Balance, "kept", 98200023),
    // Several coordinators, of which one is elected.
    ("writer_not_compared", Scenario::Nat, "elected", 49),
    ("elected_for_ever", Scenario::Nat, "elected", 164),
    ("first_page_is_all", Scenario::Nat, "elected", 274),
    ("writes_not_counted", Scenario::Nat, "elected", 49),
    // Processes of several workers.
    ("first_worker_joins", Scenario::Members, "converged", 2),
    ("copies_in_own_process", Scenario::Members, "kept", 33),
    ("first_clock_is_all", Scenario::Members, "converged", 52),
    // IPv6, ICMP errors, fragments.
    ("answer_over_v6_elsewhere", Scenario::Edge, "moved", 0),
    ("error_goes_by_its_own_ends", Scenario::Edge, "moved", 7),
    ("quoted_port_left", Scenario::Edge, "delivered", 3),
    ("held_fragment_without_ports", Scenario::Dual, "moved", 1),
    ("fragments_not_taken_home", Scenario::Dual, "converged", 7),
    // A router, and its neighbours.
    ("way_taken_along", Scenario::Forward, "addressed", 13),
    ("tables_kept", Scenario::Forward, "addressed", 0),
    // Configurations that change, and copies from time to time.
    ("flow_not_asked", Scenario::Apply, "asserted", 0),
    ("chain_not_found_again", Scenario::Apply, "changed", 0),
    ("snapshot_without_group", Scenario::Apply, "conservation", 27),
    // Groups that move.
    ("announced_before_state", Scenario::Nat, "announced", 1),
    ("kept_packet_lost", Scenario::Nat, "moved", 113),
    ("second_flow_not_sent", Scenario::Nat, "moved", 1),
    ("flows_counted_twice", Scenario::Nat, "moved", 54),
    ("goes_on_after_state", Scenario::Nat, "one_actor", 1),
    ("route_only_answered", Scenario::Nat, "one_actor", 62),
    ("flow_begins_while_moving", Scenario::Nat, "one_actor", 665),
    ("kept_in_wrong_class", Scenario::Nat, "order", 1394),
    ("handed_not_first", Scenario::Nat, "order", 1394),
    ("group_state_lost", Scenario::Nat, "converged", 1),
    ("times_not_rebased", Scenario::Nat, "moved", 111),
    ("departs_as_expired", Scenario::Nat, "returned", 1),
    ("departed_not_called", Scenario::Nat, "returned", 1),
    ("arrived_not_called", Scenario::Balance, "asserted", 2),
    ("kept_packet_not_turned", Scenario::Edge, "converged", 883),
    ("long_state_cut", Scenario::Inspect, "read", 0),
    ("flow_arrives_uncounted", Scenario::Inspect, "limited", 0),
    ("call_not_waited_for", Scenario::Slow, "asserted", 2),
    ("queued_packet_kept_late", Scenario::Slow, "order", 1134),
];

/// Bugs that show only by features of these scenarios alone.
const ONLY: [&str; 18] = [
    "flow_not_asked",
    "chain_not_found_again",
    "snapshot_without_group",
    "way_taken_along",
    "tables_kept",
    "first_worker_joins",
    "copies_in_own_process",
    "first_clock_is_all",
    "answer_over_v6_elsewhere",
    "error_goes_by_its_own_ends",
    "quoted_port_left",
    "held_fragment_without_ports",
    "fragments_not_taken_home",
    "kept_packet_not_turned",
    "long_state_cut",
    "flow_arrives_uncounted",
    "call_not_waited_for",
    "queued_packet_kept_late",
];

/// Seeds within which each is found.
const SEEDS: u64 = 5000;

#[test]
fn every_checker_finds_the_bug_planted_for_it() {
    let registry = flowkeep::functions();
    let mut planner = flowkeep::sim::planner(&registry);
    let mut wrong = Vec::new();
    let only = std::env::var("FLOWKEEP_PLANTED").unwrap_or_default();
    for (bug, scenario, checker, known) in BUGS.into_iter().filter(|(bug, ..)| bug.contains(&only)) {
        planted::choose(bug);
        let mut others = BTreeMap::new();
        let found = [known].into_iter().chain(0..SEEDS).find_map(|seed| {
            // The bug may show in other ways, too: then another seed is for this checker.
            let violation = sim::run(scenario, seed, &mut planner).unwrap().violation?;
            if violation.checker != checker {
                *others.entry(violation.checker).or_insert(0) += 1;
                return None;
            }
            Some((seed, violation))
        });
        let Some((seed, violation)) = found else {
            wrong.push(format!(
                "{bug}: {checker} found nothing in {SEEDS} seeds; others: {others:?}"
            ));
            continue;
        };
        println!("{bug}: seed {seed}, {}: {}", violation.checker, violation.what);
        // Without the bug the seed is clean: it was the bug that was found.
        planted::choose("");
        let outcome = sim::run(scenario, seed, &mut planner).unwrap();
        assert_eq!(outcome.violation, None, "{bug}");
    }
    planted::choose("");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The four scenarios without them see none of the bugs that are there for processes of several
/// workers, IPv6, errors, fragments, hairpins, streams, limits and calls that wait.
#[test]
fn other_scenarios_do_not_find_them() {
    const SEEDS: u64 = 20;
    let registry = flowkeep::functions();
    let mut planner = flowkeep::sim::planner(&registry);
    let others = [
        Scenario::Bridge,
        Scenario::Balance,
        Scenario::Nat,
        Scenario::Gateway,
    ];
    for bug in ONLY {
        assert!(BUGS.iter().any(|(listed, ..)| *listed == bug), "{bug}");
        planted::choose(bug);
        for (scenario, seed) in others
            .into_iter()
            .flat_map(|s| (0..SEEDS).map(move |seed| (s, seed)))
        {
            let outcome = sim::run(scenario, seed, &mut planner).unwrap();
            assert_eq!(outcome.violation, None, "{bug}: {scenario} {seed}");
        }
    }
    planted::choose("");
}

/// How often runs come to where each of the bugs of moving would be, which says how much of moving
/// they see. All of one scenario are watched in the same runs.
#[test]
fn runs_come_to_where_groups_move() {
    const SEEDS: u64 = 300;
    let registry = flowkeep::functions();
    let mut planner = flowkeep::sim::planner(&registry);
    let of_moving = BUGS
        .iter()
        .position(|(bug, ..)| *bug == "kept_packet_lost")
        .unwrap();
    let of_moving = &BUGS[of_moving..];
    let mut watched = 0;
    for scenario in Scenario::ALL {
        let bugs = of_moving.iter().filter(|(_, of, ..)| *of == scenario);
        let bugs: Vec<&'static str> = bugs.map(|(bug, ..)| *bug).collect();
        if bugs.is_empty() {
            continue;
        }
        watched += bugs.len();
        planted::watch(&bugs);
        let mut reached: Vec<(u64, u64)> = vec![(0, 0); bugs.len()];
        for seed in 0..SEEDS {
            sim::run(scenario, seed, &mut planner).unwrap();
            for (bug, (times, seeds)) in bugs.iter().zip(&mut reached) {
                *seeds += u64::from(planted::reached(bug) > *times);
                *times = planted::reached(bug);
            }
        }
        for (bug, (times, seeds)) in bugs.iter().zip(&reached) {
            println!("{bug}: {times} times, in {seeds} of {SEEDS} seeds");
            assert!(*seeds >= 2, "{bug}");
        }
    }
    assert_eq!(watched, of_moving.len());
    planted::choose("");
}

#[test]
fn a_failure_is_made_small_and_told() {
    let registry = flowkeep::functions();
    let mut planner = flowkeep::sim::planner(&registry);
    planted::choose("second_packet_overtakes");
    let seed = (0..SEEDS).find(|seed| {
        sim::run(Scenario::Nat, *seed, &mut planner)
            .unwrap()
            .violation
            .is_some()
    });
    let explain = |planner: &mut _| {
        sim::explain(Scenario::Nat, seed.unwrap(), planner)
            .unwrap()
            .unwrap()
    };
    let (failure, again) = (explain(&mut planner), explain(&mut planner));
    planted::choose("");
    assert_eq!(failure, again, "the same seed is made small in the same way");
    assert_eq!(failure.shrunk.checker, "order");
    // Two requests of one talk are enough, and no fault.
    let talks = failure
        .script
        .iter()
        .filter(|line| line.starts_with("talk "))
        .count();
    let faults = failure
        .script
        .iter()
        .filter(|line| line.starts_with("fault "))
        .count();
    assert_eq!((talks, faults), (1, 0), "{:#?}", failure.script);
    let last = failure.timeline.last().unwrap();
    assert!(last.contains("out port"), "the violation is the end: {last}");
    assert!(failure.timeline.len() < 40, "{:#?}", failure.timeline);
}
