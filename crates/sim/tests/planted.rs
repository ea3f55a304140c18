//! Every checker finds a bug that is planted in production code (`wire::planted`), and what it
//! finds is made small.

use flowkeep_sim::{self as sim, Scenario};
use std::collections::BTreeMap;
use wire::planted;

/// A bug's name, which is where it stands in the code; the scenario that has that code; the checker
/// that must fire first.
const BUGS: [(&str, Scenario, &str); 77] = [
    ("route_over_too_early", Scenario::Bridge, "one_actor"),
    ("second_packet_overtakes", Scenario::Nat, "order"),
    ("drop_not_counted", Scenario::Bridge, "conservation"),
    ("ring_room_ignored", Scenario::Bridge, "conservation"),
    ("payload_touched", Scenario::Nat, "delivered"),
    ("full_table_lets_pass", Scenario::Bridge, "enforced"),
    ("answer_to_neighbour", Scenario::Nat, "delivered"),
    ("filter_forgotten", Scenario::Nat, "enforced"),
    ("port_given_twice", Scenario::Nat, "endpoints"),
    ("mapping_not_found", Scenario::Nat, "endpoints"),
    ("connection_not_returned", Scenario::Balance, "returned"),
    ("idle_not_told", Scenario::Gateway, "converged"),
    ("buffers_not_fetched_home", Scenario::Nat, "converged"),
    ("choice_by_history", Scenario::Nat, "same_run"),
    ("left_unheard", Scenario::Balance, "delivered"),
    // Copies, and runtimes that fail.
    ("copy_not_waited_for", Scenario::Bridge, "kept"),
    ("change_not_kept", Scenario::Nat, "kept"),
    ("flow_not_recovered", Scenario::Balance, "kept"),
    ("told_before_recovered", Scenario::Nat, "converged"),
    ("end_not_kept", Scenario::Nat, "one_actor"),
    // What a recovery takes over, and for how long.
    ("recovered_group_empty", Scenario::Nat, "converged"),
    ("recovered_arrives_twice", Scenario::Balance, "returned"),
    ("recovered_for_ever", Scenario::Nat, "converged"),
    ("recovered_port_free", Scenario::Nat, "endpoints"),
    ("recovered_is_reset", Scenario::Bridge, "kept"),
    ("heir_announces_early", Scenario::Nat, "announced"),
    ("heir_claims_anothers", Scenario::Nat, "converged"),
    // Workers that are given up and live.
    ("taken_given_back", Scenario::Nat, "returned"),
    ("heir_without_word", Scenario::Nat, "kept"),
    ("left_before_known", Scenario::Slow, "kept"),
    ("same_life_forgotten", Scenario::Nat, "one_actor"),
    // Leases, views and their coordinator.
    ("runtime_without_lease", Scenario::Nat, "fenced"),
    ("switch_without_lease", Scenario::Nat, "fenced"),
    ("suspect_is_granted", Scenario::Nat, "fenced"),
    ("lease_withdrawn_at_once", Scenario::Nat, "fenced"),
    ("lease_counts_from_grant", Scenario::Nat, "fenced"),
    ("one_switch_is_enough", Scenario::Nat, "fenced"),
    ("few_are_enough", Scenario::Nat, "fenced"),
    ("fenced_for_good", Scenario::Nat, "fenced"),
    ("acts_before_log", Scenario::Nat, "views"),
    ("earlier_life_forgotten", Scenario::Nat, "converged"),
    // Several coordinators, of which one is elected.
    ("writer_not_compared", Scenario::Nat, "elected"),
    ("elected_for_ever", Scenario::Nat, "elected"),
    ("first_page_is_all", Scenario::Nat, "elected"),
    ("writes_not_counted", Scenario::Nat, "elected"),
    // Processes of several workers.
    ("first_worker_joins", Scenario::Members, "converged"),
    ("copies_in_own_process", Scenario::Members, "kept"),
    ("first_clock_is_all", Scenario::Members, "converged"),
    // IPv6, ICMP errors, fragments.
    ("answer_over_v6_elsewhere", Scenario::Edge, "moved"),
    ("error_goes_by_its_own_ends", Scenario::Edge, "moved"),
    ("quoted_port_left", Scenario::Edge, "delivered"),
    ("held_fragment_without_ports", Scenario::Dual, "moved"),
    ("fragments_not_taken_home", Scenario::Dual, "converged"),
    // A router, and its neighbours.
    ("way_taken_along", Scenario::Forward, "addressed"),
    ("tables_kept", Scenario::Forward, "addressed"),
    // Configurations that change, and copies from time to time.
    ("flow_not_asked", Scenario::Apply, "asserted"),
    ("chain_not_found_again", Scenario::Apply, "changed"),
    ("snapshot_without_group", Scenario::Apply, "converged"),
    // Groups that move.
    ("announced_before_state", Scenario::Nat, "announced"),
    ("kept_packet_lost", Scenario::Nat, "moved"),
    ("second_flow_not_sent", Scenario::Nat, "moved"),
    ("flows_counted_twice", Scenario::Nat, "moved"),
    ("goes_on_after_state", Scenario::Nat, "one_actor"),
    ("route_only_answered", Scenario::Nat, "one_actor"),
    ("flow_begins_while_moving", Scenario::Nat, "one_actor"),
    ("kept_in_wrong_class", Scenario::Nat, "order"),
    ("handed_not_first", Scenario::Nat, "order"),
    ("group_state_lost", Scenario::Nat, "converged"),
    ("times_not_rebased", Scenario::Nat, "moved"),
    ("departs_as_expired", Scenario::Nat, "returned"),
    ("departed_not_called", Scenario::Nat, "returned"),
    ("arrived_not_called", Scenario::Balance, "asserted"),
    ("kept_packet_not_turned", Scenario::Edge, "converged"),
    ("long_state_cut", Scenario::Inspect, "read"),
    ("flow_arrives_uncounted", Scenario::Inspect, "limited"),
    ("call_not_waited_for", Scenario::Slow, "asserted"),
    ("queued_packet_kept_late", Scenario::Slow, "order"),
];

/// Those that nothing shows but what only these scenarios have.
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
    for (bug, scenario, checker) in BUGS.into_iter().filter(|(bug, ..)| bug.contains(&only)) {
        planted::choose(bug);
        let mut others = BTreeMap::new();
        let found = (0..SEEDS).find_map(|seed| {
            // It may show in other ways, too: then another seed is for this checker.
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

/// What the four scenarios without them see of the bugs that are there for processes of several
/// workers, IPv6, errors, fragments, hairpins, streams, limits and calls that wait: nothing.
#[test]
fn other_scenarios_do_not_find_them() {
    const SEEDS: u64 = 60;
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
/// they see.
#[test]
fn runs_come_to_where_groups_move() {
    const SEEDS: u64 = 300;
    let registry = flowkeep::functions();
    let mut planner = flowkeep::sim::planner(&registry);
    let of_moving = BUGS
        .iter()
        .position(|(bug, ..)| *bug == "kept_packet_lost")
        .unwrap();
    for (bug, scenario, _) in &BUGS[of_moving..] {
        planted::watch(bug);
        let mut seeds = 0;
        let mut times = 0;
        for seed in 0..SEEDS {
            sim::run(*scenario, seed, &mut planner).unwrap();
            seeds += u64::from(planted::reached() > times);
            times = planted::reached();
        }
        println!("{bug}: {times} times, in {seeds} of {SEEDS} seeds");
        assert!(seeds >= 2, "{bug}");
    }
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
