//! Flows as a person lists them: by runtime, by state, and page by page to the end; and a
//! comparison's list of the flows that it would cut.

use crate::running::{PATIENCE, Running, text};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

const FLOWS: usize = 60;
/// Endless flows of both protocols, so that they stay while they are listed.
const PROFILE: &str = "flows = 60\nrate = { per_flow = 20.0 }\npace = \"clock\"\nsources = [\"10.0.0.0/24\"]\n\
                       destinations = [\"198.51.100.1/32\"]\ndestination_ports = [443]\n\
                       [[classes]]\nshare = 0.5\n[[classes]]\nshare = 0.5\ntcp = 0.0\n";

/// Lets this port out.
fn config(profile: &str, port: u16) -> String {
    format!(
        "runtimes = 2\nflows_max = 4096\n\
         [[port]]\nname = \"lan\"\nside = \"inside\"\ninput = \"generate:{profile}\"\n\
         [[port]]\nname = \"wan\"\nside = \"outside\"\noutput = \"reflect:?mode=answer\"\ninput = \"reflect:?mode=answer\"\n\
         [[chain]]\nname = \"all\"\nfunctions = [\"firewall\"]\n\
         [[function.firewall.rules]]\nname = \"out\"\nfrom = \"inside\"\ndestination_ports = {port}\naction = \"allow\"\n"
    )
}

fn list(running: &Running, words: &[&str]) -> Value {
    let said = running.ask(&[&["flow", "list", "--json"], words].concat());
    assert!(said.status.success(), "{words:?}: {}", text(&said.stderr));
    serde_json::from_slice(&said.stdout).unwrap()
}

fn key(flow: &Value) -> String {
    format!("{} {} {}", flow["protocol"], flow["source"], flow["destination"])
}

fn keys(list: &Value) -> Vec<String> {
    list["flows"].as_array().unwrap().iter().map(key).collect()
}

/// A cluster with all its flows, at both of its runtimes.
fn cluster(name: &str) -> Running {
    let running = Running::start(name, PROFILE, |profile| config(profile, 443));
    let began = Instant::now();
    while keys(&list(&running, &[])).len() < FLOWS {
        assert!(began.elapsed() < PATIENCE, "{}", list(&running, &[]));
        std::thread::sleep(Duration::from_millis(50));
    }
    running
}

/// Pages until there is none behind: their flows, in order.
fn pages(running: &Running, words: &[&str]) -> Vec<String> {
    let (mut all, mut after) = (Vec::new(), None::<String>);
    loop {
        let go_on: Vec<&str> = after.iter().flat_map(|after| ["--after", after]).collect();
        let page = list(running, &[words, &["--limit", "7"], &go_on].concat());
        let flows = keys(&page);
        assert_eq!(page["cut"], !page["next"].is_null(), "{page}");
        all.extend(flows.iter().cloned());
        assert!(all.len() <= FLOWS, "more than there are: {all:#?}");
        match page["next"].as_str() {
            Some(next) => {
                assert_eq!(flows.len(), 7, "a page that is cut is full");
                after = Some(next.to_owned());
            }
            None => return all,
        }
    }
}

#[test]
fn flows_are_listed_by_runtime_and_page_by_page_each_once() {
    let running = cluster("paged");
    let all = list(&running, &[]);
    let mut whole = keys(&all);
    whole.sort_unstable();
    assert_eq!(whole.len(), FLOWS, "{all}");
    let mut paged = pages(&running, &[]);
    paged.sort_unstable();
    assert_eq!(paged, whole);
    // Each runtime has flows of its own, and both together have all.
    let mut of_both = Vec::new();
    for runtime in [0_u64, 1] {
        let number = runtime.to_string();
        let own = list(&running, &["--runtime", &number]);
        let flows = own["flows"].as_array().unwrap();
        assert!(
            !flows.is_empty() && flows.iter().all(|flow| flow["runtime"] == runtime),
            "{own}"
        );
        let mut paged = pages(&running, &["--runtime", &number]);
        paged.sort_unstable();
        let mut own = keys(&own);
        own.sort_unstable();
        assert_eq!(paged, own, "runtime {runtime}");
        of_both.extend(own);
    }
    of_both.sort_unstable();
    assert_eq!(of_both, whole);
    let beyond = running.ask(&["flow", "list", "--after", "2:0"]);
    assert_eq!(beyond.status.code(), Some(1));
    assert!(
        text(&beyond.stderr).contains("there is no runtime 2"),
        "{}",
        text(&beyond.stderr)
    );
    // A filter's pages have the flows that it lets pass, and no more.
    let udp = pages(&running, &["--protocol", "udp"]);
    let expected = whole.iter().filter(|key| key.starts_with("\"udp\""));
    assert_eq!(udp.len(), expected.count());
    assert!(
        udp.iter().all(|key| key.starts_with("\"udp\"")) && !udp.is_empty(),
        "{udp:?}"
    );
}

/// Each row of the list for people: the second word is the state.
fn states(running: &Running, words: &[&str]) -> BTreeMap<String, BTreeSet<String>> {
    let said = running.ask(&[&["flow", "list"], words].concat());
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for row in text(&said.stdout).lines().skip(1) {
        let [protocol, state, source, destination] = row.split_whitespace().collect::<Vec<_>>()[..4] else {
            panic!("{row}");
        };
        let flow = format!("{protocol} {source} {destination}");
        found.entry(state.to_owned()).or_default().insert(flow);
    }
    found
}

#[test]
fn flows_are_listed_by_their_state() {
    let running = cluster("states");
    // Answers change the states, until all flows are in a state that stays.
    let began = Instant::now();
    let agrees = || {
        let all = states(&running, &[]);
        let each = all.iter().all(|(state, flows)| {
            let short = state.split_once('_').map_or(state.as_str(), |(_, short)| short);
            let of_state = states(&running, &["--state", &state.to_ascii_uppercase()]);
            let of_short = states(&running, &["--state", short]);
            let others = of_state.keys().filter(|other| *other != state).count();
            assert_eq!(others, 0, "--state {state} lists {of_state:?}");
            of_state.get(state) == Some(flows) && of_short.get(state) == Some(flows)
        });
        each && all.len() >= 2
    };
    while !agrees() {
        assert!(began.elapsed() < PATIENCE, "{:#?}", states(&running, &[]));
        std::thread::sleep(Duration::from_millis(100));
    }
    // The message on a state without flows names the states that there are.
    let none = running.ask(&["flow", "list", "--state", "fin_wait"]);
    let said = text(&none.stderr);
    let there: Vec<String> = states(&running, &[]).into_keys().collect();
    assert!(none.status.success(), "{said}");
    for state in there {
        assert!(said.contains(&state), "{state}: {said}");
    }
    println!("{said}");
}

#[test]
fn a_comparison_says_how_many_it_does_not_list() {
    let running = cluster("unlisted");
    let other = running.path("other.toml");
    std::fs::write(&other, config(&running.path("traffic.toml"), 80)).unwrap();
    let said = running.ask(&["chain", "diff", &other, "--json"]);
    let change: Value = serde_json::from_slice(&said.stdout).unwrap();
    assert_eq!(change["flows_cut"], FLOWS, "{change}");
    let listed = change["listed"].as_array().unwrap().len();
    assert_eq!((listed, &change["unlisted"]), (FLOWS, &0.into()), "{change}");
    let said = text(&running.ask(&["chain", "diff", &other, "--limit", "9"]).stdout);
    assert!(said.contains("… and 51 more: say --limit N"), "{said}");
}
