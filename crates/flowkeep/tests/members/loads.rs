//! Flows that are placed by members' loads, as heartbeats say them: new flows, and flows that are
//! moved for balance.
//!
//! ```text
//!   few flows, many packets ──► left      many flows, few packets ──► either: to the node with the least load
//! ```

use super::joined::{Site, flows, passes};
use super::rig::Member;
use super::wide::{until_all_answer, wide};

/// At once, each for ever: as many packets as are many for a few flows.
const HEAVY: &str = "flows = 20\nrate = { per_flow = 150.0 }\npace = \"clock\"\nsources = [\"10.0.0.0/24\"]\n\
     destinations = [\"198.51.100.0/28\"]\nseed = 3\n[[classes]]\nshare = 1.0\ntcp = 0.0\n";
/// A hundred new ones a second, of six packets each.
const LIGHT: &str = "flows = 200\nrate = { per_flow = 3.0 }\npace = \"clock\"\nsources = [\"10.1.0.0/24\"]\n\
     destinations = [\"203.0.113.0/28\"]\nseed = 5\n[[classes]]\nshare = 1.0\ntcp = 0.0\nlife = { packets = { fixed = 6.0 } }\n";

/// Traffic of two kinds, which their addresses tell apart. `policy`: how switches pick runtimes of
/// new groups.
fn two_kinds(name: &str, policy: &str, light: &str, heavy: &str) -> Site {
    let site = Site::made(name, false, heavy, "");
    let light = site.folder.write("light.toml", light);
    let text = format!(
        "policy = \"{policy}\"\n{}[[port]]\nname = \"lan2\"\nside = \"inside\"\ninput = \"generate:{}\"\n",
        site.folder.read("cluster.toml"),
        light.display()
    );
    site.folder.write("cluster.toml", &text);
    site
}

/// Flows of these addresses go to a runtime.
fn place(site: &Site, prefix: &str, to: &str) {
    let words = ["flow", "migrate", "--address", prefix, "--to", to];
    let placed = wide(site, "operate", &words);
    assert_eq!(placed.code, 0, "{} {}", placed.out, placed.err);
}

fn opened(nodes: [&Member; 2]) -> [u64; 2] {
    nodes.map(|node| node.status().runtimes[0].opened)
}

/// Of so many new flows, the share that the second of two nodes gets, in percent.
fn share_of_new(nodes: [&Member; 2], count: u64) -> u64 {
    let before = opened(nodes);
    let since = || {
        let now = opened(nodes);
        [now[0] - before[0], now[1] - before[1]]
    };
    nodes[0].wait_until("new flows begin", |_| since().iter().sum::<u64>() >= count);
    let since = since();
    let share = 100 * since[1] / since.iter().sum::<u64>();
    println!("{since:?} new flows, {share} % at the second");
    share
}

/// With as many flows, and most packets at the first: where new flows go.
fn new_flows_go(name: &str, policy: &str, is_there: impl Fn(u64) -> bool) {
    let site = two_kinds(name, policy, LIGHT, HEAVY);
    let [front, left, right] = site.all();
    passes(&front, 2000);
    until_all_answer(&site);
    place(&site, "10.0.0.0/24", "0");
    // Flows of before end meanwhile, and the coordinator hears the load of each.
    let nodes = [&left, &right];
    let mut shares = Vec::new();
    for _ in 0..20 {
        shares.push(share_of_new(nodes, 300));
        if let [.., one, two] = shares[..]
            && is_there(one)
            && is_there(two)
        {
            break;
        }
    }
    let [.., one, two] = shares[..] else {
        panic!("two at least")
    };
    assert!(is_there(one) && is_there(two), "{policy}: {shares:?}");
    for member in [front, left, right] {
        member.stop(&site.folder);
    }
}

/// Half of them would go there by their number.
#[test]
fn new_flows_of_a_cluster_go_where_there_is_least_to_do() {
    new_flows_go("by-load", "least_loaded", |share| share >= 75);
}

/// The same traffic, and no load is asked for.
#[test]
fn by_turns_new_flows_of_a_cluster_go_to_all_alike() {
    new_flows_go("by-turns", "round_robin", |share| (45..=55).contains(&share));
}

#[test]
fn a_cluster_is_balanced_by_load_and_not_by_the_number_of_flows() {
    let heavy = HEAVY
        .replace("flows = 20", "flows = 100")
        .replace("150.0", "20.0");
    let light = heavy
        .replace("20.0", "1.0")
        .replace("10.0.0.0", "10.1.0.0")
        .replace("198.51.100.0", "203.0.113.0");
    let site = two_kinds("balanced", "round_robin", &light, &heavy);
    let [front, left, right] = site.all();
    until_all_answer(&site);
    let at = || [flows(&left.status()), flows(&right.status())];
    front.wait_until("all flows have begun", |_| at().iter().sum::<u64>() == 200);
    place(&site, "10.0.0.0/24", "0");
    place(&site, "10.1.0.0/24", "1");
    assert_eq!(at(), [100, 100]);
    let rebalance = ["runtime", "rebalance", "--interval", "2s", "--json"];
    let done = wide(&site, "operate", &rebalance);
    assert_eq!(done.code, 0, "{} {}", done.out, done.err);
    println!("{}", done.out);
    let said = done.json();
    let share = |at: usize| said["shares"][at]["of_the_average"].as_f64().expect("a share");
    assert!(share(0) > 1.1 && share(1) < 0.9, "{said}");
    let [left_has, right_has] = at();
    assert_eq!(left_has + right_has, 200);
    assert!(
        left_has <= 90,
        "{left_has} flows at the one with most to do: {said}"
    );
    assert_eq!(said["flows_moved"], 100 - left_has, "{said}");
    for member in [front, left, right] {
        member.stop(&site.folder);
    }
}
