//! Tables of functions over two runtimes, which add up while runtimes come and go, and functions'
//! costs.

use crate::running::{PATIENCE, Running, text};
use serde_json::Value;
use std::time::{Duration, Instant};

const PROFILE: &str = "flows = 200\nrate = { total = 4000.0 }\npace = \"clock\"\nsources = [\"10.0.0.0/24\"]\n\
                       source_ports = [1024, 5000]\ndestinations = [\"198.51.100.1/32\"]\ndestination_ports = [443, 80]\n\
                       [[classes]]\nshare = 1.0\ntcp = 0.0\n";

fn config(profile: &str) -> String {
    let service = |name: &str, port: u16| {
        format!(
            "[[function.load_balancer.services]]\nname = \"{name}\"\naddresses = [\"198.51.100.1\"]\nports = {port}\n\
             protocol = \"udp\"\nbackends = [{{ name = \"a\", endpoint = \"192.0.2.1\" }}, {{ name = \"b\", endpoint = \"192.0.2.2\" }}]\n"
        )
    };
    format!(
        "runtimes = 2\nclock = \"machine\"\n\
         [[port]]\nname = \"lan\"\nside = \"inside\"\ninput = \"generate:{profile}\"\n\
         [[port]]\nname = \"wan\"\nside = \"outside\"\noutput = \"pcap:/dev/null\"\n\
         [[chain]]\nname = \"all\"\nfunctions = [\"counter\", \"host_limits\", \"firewall\", \"load_balancer\"]\n\
         [function.counter]\nby = \"protocol\"\n\
         [function.host_limits]\nflows_per_host = 1000\nnew_flows_per_second = \"none\"\n\
         [[function.firewall.rules]]\nname = \"out\"\nfrom = \"inside\"\naction = \"allow\"\n{}{}",
        service("web", 80),
        service("tls", 443)
    )
}

fn ask(running: &Running, words: &[&str]) -> Value {
    let words = [words, &["--json"]].concat();
    let said = running.ask(&words);
    assert!(said.status.success(), "{words:?}: {}", text(&said.stderr));
    serde_json::from_slice(&said.stdout).unwrap()
}

/// The sum of a column, and of the same over the answers of each runtime.
fn sums(running: &Running, words: &[&str], column: &str) -> (u64, u64, usize) {
    let said = ask(running, &[&["function"], words].concat());
    let sum = |rows: &Value| -> u64 {
        let rows = rows.as_array().unwrap_or_else(|| panic!("rows: {said:#}"));
        let figures = rows.iter().map(|row| row[column].as_u64());
        figures.map(|figure| figure.expect("a number")).sum()
    };
    let answers = said["answers"].as_array().unwrap();
    let each = answers.iter().map(|answer| sum(&answer["rows"])).sum();
    (sum(&said["rows"]), each, answers.len())
}

#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what} does not come");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn tables_add_up_over_runtimes_that_come_and_go() {
    let running = Running::start("tables", PROFILE, config);
    for (words, column) in [
        (["counter", "counts"], "packets"),
        (["host_limits", "hosts"], "from_inside"),
        (["load_balancer", "backends"], "opened"),
        (["firewall", "rules"], "hits"),
    ] {
        until(column, || sums(&running, &words, column).0 > 10);
        let (sum, each, answers) = sums(&running, &words, column);
        assert_eq!(answers, 2, "{words:?}");
        match words[1] {
            // The lists have the hosts with the greatest figures, of all and of each.
            "hosts" => assert!(sum > 0 && sum <= each, "{sum} of {each}"),
            _ => assert_eq!(sum, each, "{words:?}"),
        }
    }
    let listed = |words: &[&str]| {
        let said = ask(&running, &[&["function"], words].concat());
        said["rows"].as_array().unwrap().len()
    };
    assert_eq!(listed(&["load_balancer", "backends"]), 4);
    assert_eq!(listed(&["load_balancer", "backends", "3"]), 3);
    assert_eq!(listed(&["host_limits", "hosts", "5"]), 5);
    assert_eq!(listed(&["host_limits", "hosts"]), 20);
    // A table that is cut says so, and the words for more.
    let is_cut = |words: &[&str]| ask(&running, &[&["function"], words].concat())["cut"] == true;
    assert!(is_cut(&["host_limits", "hosts", "5"]) && !is_cut(&["host_limits", "hosts", "1000"]));
    assert!(!is_cut(&["load_balancer", "backends"]));
    // And JSON has the words that show the most.
    let next = |words: &[&str]| ask(&running, &[&["function"], words].concat())["next"].clone();
    assert_eq!(next(&["host_limits", "hosts", "5"]), "hosts 1000");
    assert_eq!(next(&["host_limits", "hosts", "1000"]), Value::Null);
    let shown = text(&running.ask(&["function", "host_limits", "hosts", "5"]).stdout);
    let more = "There are more rows than these 5: say how many, `hosts 1000` at most";
    assert!(shown.contains(more), "{shown}");
    let wrong = running.ask(&["function", "load_balancer", "backends", "many"]);
    let said = text(&wrong.stderr);
    assert!(
        !wrong.status.success() && said.contains("write 1 to 1000"),
        "{said}"
    );

    // A command's effect is in rows, too, beside its words.
    let drained = ask(
        &running,
        &["function", "load_balancer", "backend", "tls/a", "drain"],
    );
    let rows = drained["rows"].as_array().unwrap();
    assert!(
        rows.len() == 1 && rows[0]["service"] == "tls" && rows[0]["state"] == "draining",
        "{drained:#}"
    );
    assert_eq!(drained["answers"][1]["answer"], "tls/a is draining");

    // The counts of a runtime that goes stay, and count once when it is back.
    let packets = || sums(&running, &["counter", "counts"], "packets").0;
    let opened = || sums(&running, &["load_balancer", "backends"], "opened").0;
    // A flow that came to the runtime in between has no copy, and `--unprotected` asks for its end.
    let changes = [
        &["remove", "1"][..],
        &["add", "1"],
        &["kill", "1", "--unprotected"],
    ];
    for change in changes {
        let before = (packets(), opened());
        let done = running.ask(&[&["runtime"], change].concat());
        assert!(done.status.success(), "{change:?}: {}", text(&done.stderr));
        let in_all = || {
            let status = ask(&running, &["status"]);
            status["packets"]["in"].as_u64().unwrap()
        };
        let after = (packets(), opened());
        assert!(
            after.0 >= before.0 && after.1 >= before.1,
            "{change:?}: {before:?}, {after:?}"
        );
        assert!(packets() <= in_all(), "{change:?}: no packet is counted twice");
    }
    let shown = text(&running.ask(&["function", "counter", "counts"]).stdout);
    assert!(
        shown.contains("runtime 1 (failed: as it was last known)"),
        "{shown}"
    );
}

#[test]
fn status_says_what_functions_cost() {
    let running = Running::start("costs", PROFILE, config);
    let names = ["counter", "firewall", "host_limits", "load_balancer"];
    let costs = |status: &Value| -> Vec<(String, f64)> {
        let runtimes = status["runtimes"].as_array().unwrap();
        let all = runtimes.iter().filter_map(|runtime| runtime["costs"].as_array());
        let sampled = all
            .flatten()
            .filter(|cost| cost["sampled_calls"].as_u64() > Some(0));
        let cost = |of: &Value| {
            (
                of["function"].as_str().unwrap().to_owned(),
                of["cycles"].as_f64().unwrap(),
            )
        };
        sampled.map(cost).collect()
    };
    until("costs of each function", || {
        let costs = costs(&ask(&running, &["status"]));
        names
            .iter()
            .all(|name| costs.iter().any(|(function, _)| function == name))
    });
    // A call takes cycles, and fewer than the bound of interrupted calls.
    let all = costs(&ask(&running, &["status"]));
    assert!(all.iter().any(|(_, cycles)| *cycles > 0.0), "{all:?}");
    assert!(all.iter().all(|(_, cycles)| *cycles < 131_072.0), "{all:?}");
    let shown = text(&running.ask(&["status"]).stdout);
    let mut lines = shown.lines().skip_while(|line| !line.starts_with("Function  "));
    assert!(
        lines.next().is_some_and(|line| line.contains("Cycles a packet")),
        "{shown}"
    );
    for (line, name) in lines.zip(names) {
        assert!(line.starts_with(name), "{shown}");
    }
}
