//! A figure has one word, in a command's text for people and in its JSON: `status`, flows, `flow
//! explain`, receipts of moves, `runtime list`, functions' answers, orders about runtimes and
//! copies, changes of the configuration, lines of `flow events`, a store's content. Other words,
//! and figures of JSON alone, are listed here. (`cluster status`: `cli::clusters`.)

use crate::running::{PATIENCE, Running, text};
use crate::words;
use flowkeep::apply::report::{self, Change};
use flowkeep::explain::Explanation;
use flowkeep::following::FlowLine;
use flowkeep::moving::{Deletion, Receipt};
use flowkeep::report::{Ends, Flow, Status};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt::Display;
use std::time::{Duration, Instant};

const PROFILE: &str = "flows = 20\nrate = { per_flow = 20.0 }\npace = \"clock\"\nsources = [\"10.0.0.0/24\"]\n\
                       destinations = [\"198.51.100.1/32\"]\ndestination_ports = [443]\n\
                       [[classes]]\nshare = 1.0\ntcp = 0.0\n";

/// Two runtimes that keep copies for each other, so that most words are said.
fn config(profile: &str) -> String {
    format!(
        "runtimes = 2\nflows_max = 4096\n\
         [[port]]\nname = \"lan\"\nside = \"inside\"\ninput = \"generate:{profile}\"\n\
         [[port]]\nname = \"wan\"\nside = \"outside\"\noutput = \"reflect:?mode=answer\"\ninput = \"reflect:?mode=answer\"\n\
         [[chain]]\nname = \"all\"\nfunctions = [\"firewall\", \"nat\"]\nreplication = \"commit\"\n\
         [[function.firewall.rules]]\nname = \"out\"\nfrom = \"inside\"\naction = \"allow\"\n\
         [function.nat]\npool = [\"203.0.113.0/28\"]\n"
    )
}

/// Keys whose text is worded otherwise, and how.
const STATUS: &[(&str, &str)] = &[
    ("answered_packets", ""),
    ("absent", ""),
    ("busy_seconds", ""),
    ("costs", "cycles a packet"),
    ("counters", "counter"),
    ("flows_max", ""),
    ("interrupted_calls", ""),
    ("leaving", ""),
    ("name", ""),
    ("ports", "port"),
    ("protection_seconds", "protected after"),
    ("runtimes", "runtime"),
    ("sampled_calls", "sampled"),
    ("standing", ""),
    ("switches", "switch"),
    ("uptime_seconds", "up"),
    ("version", ""),
];
/// Of a flow; its protocol and ends are the first line, without a word.
const FLOW: &[(&str, &str)] = &[
    ("behind_records", "records behind"),
    ("destination", "->"),
    ("expires_in_seconds", "expires in"),
    ("protocol", "udp"),
    ("replica", "copy at runtime"),
    ("source", "->"),
    ("state", ""),
    ("there", ""),
    ("version", ""),
];
/// Zeros are not said: here no figure is zero.
fn something(value: &mut Value) {
    match value {
        Value::Number(number) if number.as_f64() == Some(0.0) => *value = 7.into(),
        Value::Bool(is_so) => *is_so = true,
        Value::Array(all) => all.iter_mut().for_each(something),
        Value::Object(fields) => fields.values_mut().for_each(something),
        _ => {}
    }
}

/// Where all figures are something.
#[track_caller]
fn words_agree<T: DeserializeOwned + Display>(mut json: Value, exceptions: &[(&str, &str)]) {
    something(&mut json);
    let printed = serde_json::from_value::<T>(json.clone()).unwrap().to_string();
    words::agree(&json, &printed, exceptions);
}

/// An object without these fields.
fn without(mut json: Value, fields: &[&str]) -> Value {
    let all = json.as_object_mut().unwrap();
    fields.iter().for_each(|field| drop(all.remove(*field)));
    json
}

#[track_caller]
fn json_of(running: &Running, words: &[&str]) -> Value {
    serde_json::from_str(&shown_of(running, &[words, &["--json"]].concat())).unwrap()
}

#[track_caller]
fn shown_of(running: &Running, words: &[&str]) -> String {
    let said = running.ask(words);
    // 3: flows would be cut.
    let is_said = said.status.success() || said.status.code() == Some(3);
    assert!(is_said, "{words:?}: {}", text(&said.stderr));
    text(&said.stdout)
}

#[test]
fn text_and_json_have_the_same_words() {
    let running = Running::start("worded", PROFILE, config);
    let ask = |words: &[&str]| json_of(&running, words);
    let shown = |words: &[&str]| shown_of(&running, words);
    // Until copies are kept and costs were measured.
    let began = Instant::now();
    let status = loop {
        let status = ask(&["status"]);
        let runtimes = status["runtimes"].as_array().unwrap();
        let is_whole = |runtime: &Value| {
            ["protected_by", "protection_seconds", "busy_seconds"]
                .iter()
                .all(|of| runtime[of].is_number())
                && runtime["costs"].as_array().is_some_and(|costs| costs.len() == 2)
        };
        if runtimes.len() == 2 && runtimes.iter().all(is_whole) {
            break status;
        }
        assert!(began.elapsed() < PATIENCE, "{status:#}");
        std::thread::sleep(Duration::from_millis(50));
    };
    words_agree::<Status>(status, STATUS);

    let list = ask(&["flow", "list", "--limit", "1"]);
    let [protocol, source, destination] =
        ["protocol", "source", "destination"].map(|of| list["flows"][0][of].as_str().unwrap());
    let flow = ask(&["flow", "show", protocol, source, destination]);
    words_agree::<Flow>(flow.clone(), FLOW);
    // And the values of its functions' fields: a word, a number, nothing.
    let shown_flow = serde_json::from_value::<Flow>(flow.clone()).unwrap().to_string();
    let fields = flow["state"].as_object().unwrap().values();
    let fields: Vec<_> = fields.flat_map(|fields| fields.as_object().unwrap()).collect();
    assert!(fields.len() > 5, "{shown_flow}");
    for (name, value) in fields {
        let value = match value {
            Value::String(text) => text.clone(),
            Value::Array(_) | Value::Object(_) => continue,
            other => other.to_string(),
        };
        assert!(
            shown_flow.contains(&format!("    {name} = {value}\n")),
            "{name}: {value}\n{shown_flow}"
        );
    }

    // An order to move that flow's host, and which way its packets take since then.
    let host = source.split(':').next().unwrap();
    let to = (1 - flow["runtime"].as_u64().unwrap()).to_string();
    let moved = ask(&["flow", "migrate", "--address", host, "--to", &to]);
    let mut receipt = without(moved, &["version", "over"]);
    something(&mut receipt);
    for over in [false, true] {
        let mut whole = receipt.clone();
        whole["over"] = over.into();
        let printed = serde_json::from_value::<Receipt>(whole).unwrap().to_string();
        // No groups wait where all is over.
        let waiting: &[(&str, &str)] = &[("groups_waiting", ""), ("groups_under_way", "")];
        words::agree(&receipt, &printed, if over { waiting } else { &[] });
    }
    // Of another flow of that host, which would be new. The sources of knowledge are said in
    // sentences.
    let new = format!("{host}:9999");
    let mut explained = ask(&["flow", "explain", protocol, &new, destination]);
    something(&mut explained);
    let printed = serde_json::from_value::<Explanation>(explained.clone())
        .unwrap()
        .to_string();
    let of_flow = [
        "version",
        "flow",
        "protocol",
        "source",
        "destination",
        "translated",
    ];
    let known = ["by", "side_by", "is_flow_known", "rule", "dropped"];
    words::agree(
        &without(without(explained, &of_flow), &known),
        &printed,
        &[("function", "functions"), ("view", "epoch"), ("count", "epoch")],
    );

    // A function's answer has its columns' names.
    for words in [["function", "firewall", "rules"], ["function", "nat", "pool"]] {
        let said = ask(&words);
        let rows = &said["rows"];
        assert!(!rows.as_array().unwrap().is_empty(), "{said:#}");
        words::agree(rows, &shown(&words), &[]);
    }

    // The list has some of the figures of `status` for each runtime.
    let list = ask(&["runtime", "list"]);
    let shown_of = ["runtime", "standing", "flows", "flows_max", "groups", "received"];
    let runtimes = list["runtimes"].as_array().unwrap().iter();
    let runtimes = runtimes.map(|of| shown_of.map(|key| (key.to_owned(), of[key].clone())));
    let runtimes: Value = runtimes
        .map(|of| Value::Object(of.into_iter().collect()))
        .collect();
    words::agree(&runtimes, &shown(&["runtime", "list"]), &[]);
    let orders = ["order", "list"];
    assert_eq!(ask(&orders)["orders"], Value::Array(Vec::new()));
    assert!(shown(&orders).starts_with("no order"));
    let drained = ask(&["runtime", "drain", "0"]);
    let printed = shown(&["runtime", "drain", "0"]);
    let own = serde_json::json!({
        "runtime": drained["runtime"],
        "leaving": drained["leaving"],
        "flows_left": drained["flows_left"],
    });
    let last = printed.lines().last().unwrap();
    words::agree(&own, last, &[]);
    words_agree::<Deletion>(
        serde_json::json!({ "flows_ended": 3, "flows_busy": 2 }),
        &[("flows_ended", "flows have ended"), ("flows_busy", "go on")],
    );
}

/// Orders about runtimes and copies: the output of `--json`, but for the receipt of moves, which is
/// looked at above, and the printed text of the next one like it.
#[test]
fn orders_and_changes_have_the_same_words() {
    let running = Running::start("ordered", PROFILE, config);
    let ask = |words: &[&str]| json_of(&running, words);
    let shown = |words: &[&str]| shown_of(&running, words);
    let of_receipt = serde_json::to_value(Receipt::default()).unwrap();
    let own = |mut json: Value| {
        let fields = json.as_object_mut().unwrap();
        fields.retain(|key, _| key != "version" && of_receipt.get(key).is_none());
        json
    };
    let is_there: &[(&str, &str)] = &[("absent", "")];
    for (first, next, exceptions) in [
        ("runtime add 2 --rebalance", "runtime add 3 --rebalance", is_there),
        ("runtime remove 3", "runtime remove 2", is_there),
        ("runtime resume 0", "runtime resume 0", &[("leaving", "")]),
        (
            "runtime rebalance --interval 100ms",
            "runtime rebalance --interval 100ms",
            &[("shares", "")],
        ),
        (
            "replication set all none",
            "replication set all snapshot",
            &[("policy", "")],
        ),
        (
            "runtime kill 1 --unprotected",
            "runtime kill 0 --unprotected",
            &[("protected_flows", "had copies at another runtime")],
        ),
    ] {
        let [first, next] = [first, next].map(|line| line.split(' ').collect::<Vec<_>>());
        let json = own(ask(&first));
        if first[1] == "kill" {
            ask(&["runtime", "add", "1"]);
        }
        words::agree(&json, &shown(&next), exceptions);
    }
    ask(&["runtime", "add", "0"]);

    // A configuration that none of the flows goes on with, once they are there again.
    let other = running.path("other.toml");
    let changed = config(&running.path("traffic.toml"));
    let changed = changed.replace("action = \"allow\"", "action = \"allow\"\nprotocol = \"tcp\"");
    std::fs::write(&other, changed).unwrap();
    let began = Instant::now();
    let change = loop {
        let change = ask(&["chain", "diff", &other, "--limit", "1"]);
        if change["flows_cut"].as_u64() > Some(1) {
            break change;
        }
        assert!(began.elapsed() < PATIENCE, "{change:#}");
        std::thread::sleep(Duration::from_millis(50));
    };
    const CHANGE: &[(&str, &str)] = &[
        ("differences", "what differs"),
        ("fixed", ""),
        ("flows_cut", "would be cut"),
        ("flows_kept", "would go on"),
        ("flows_waiting", "wait and are asked afterwards"),
        ("generation", ""),
        ("listed", ""),
        ("new", "->"),
        ("old", "->"),
        ("outcome", ""),
        ("problems", ""),
        ("protocol", "proto"),
        ("reason", ""),
        ("receipt", ""),
        ("refusal", ""),
        ("setting", ""),
        ("unlisted", "more"),
        ("version", ""),
        ("vlan", ""),
    ];
    words_agree::<Change>(change, CHANGE);
    let mut receipt = ask(&["chain", "apply", "--cut", "--confirm", "60s", &other])["receipt"].clone();
    receipt["warning"] = "so".into();
    const RECEIPT: &[(&str, &str)] = &[
        ("commit_seconds", "committed within"),
        ("confirm_seconds", "it is on trial"),
        ("cut_by", ""),
        ("flows_cut", "cut"),
        ("flows_kept", "went on"),
        ("flows_waiting", "still wait"),
        ("function", ""),
        ("prepared_seconds", "ready after"),
        ("reason", ""),
        ("seconds", "done after"),
    ];
    words_agree::<report::Receipt>(receipt, RECEIPT);
    let confirmed = own(ask(&["chain", "confirm"]));
    ask(&["chain", "rollback", "--cut"]);
    shown(&["chain", "apply", "--cut", "--confirm", "60s", &other]);
    words::agree(&confirmed, &shown(&["chain", "confirm"]), &[]);

    let check = |more: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_flowkeep"));
        let command = command.args(["chain", "check", &other]).args(more);
        text(&command.output().unwrap().stdout)
    };
    const CHECK: &[(&str, &str)] = &[
        ("available_bytes", "this machine has"),
        ("chains", "chain"),
        ("count", "×"),
        ("count_max", ""),
        ("functions", "->"),
        ("name", ""),
        ("problems", ""),
        ("program_bytes", ""),
        ("runtimes", "runtime ×"),
        ("runtimes_max", ""),
        ("setting", "grows by"),
        ("table", "memory for"),
        ("tables", "memory for"),
        ("version", ""),
        ("warnings", ""),
        ("workers", "worker"),
    ];
    words::agree(
        &serde_json::from_str(&check(&["--json"])).unwrap(),
        &check(&[]),
        CHECK,
    );

    let ends = |last: u8| Ends {
        source: format!("10.0.0.{last}:1"),
        destination: format!("192.0.2.{last}:2"),
    };
    let line = FlowLine {
        time: "2026-11-23T14:35:07Z".into(),
        event: "opened".into(),
        runtime: 1,
        protocol: "udp".into(),
        vlan: 7,
        source: ends(1).source,
        destination: ends(1).destination,
        translated: Some(ends(2)),
        chain: "all".into(),
        member: Some("left".into()),
    };
    const LINE: &[(&str, &str)] = &[
        ("destination", "->"),
        ("event", "opened"),
        ("member", "(left)"),
        ("protocol", "udp"),
        ("source", "->"),
        ("time", "2026-11-23t14:35:07z"),
    ];
    words::agree(&serde_json::to_value(&line).unwrap(), &line.to_string(), LINE);
}

#[test]
fn a_store_is_listed_in_the_same_words() {
    let running = Running::start("stored", PROFILE, |profile| {
        format!(
            "[[port]]\nname = \"lan\"\nside = \"inside\"\ninput = \"generate:{profile}\"\n\
             [[chain]]\nname = \"all\"\nfunctions = [\"counter\"]\n[store]\nuri = \"memory:\"\n"
        )
    });
    let row = "variable";
    for (more, exceptions) in [
        (
            &[][..],
            &[
                ("function", row),
                ("kind", row),
                ("member", row),
                ("name", row),
                ("runtime", row),
            ][..],
        ),
        (&["--merged"], &[("function", row), ("kind", row), ("name", row)]),
    ] {
        let words = [&["store", "inspect", "memory:"], more].concat();
        let began = Instant::now();
        let json = loop {
            let json = json_of(&running, &words);
            if json["variables"].as_array().is_some_and(|all| !all.is_empty()) {
                break json;
            }
            assert!(began.elapsed() < PATIENCE, "{json:#}");
            std::thread::sleep(Duration::from_millis(50));
        };
        words::agree(
            &json,
            &shown_of(&running, &words),
            &[exceptions, &[("variables", row), ("version", "")]].concat(),
        );
    }
}
