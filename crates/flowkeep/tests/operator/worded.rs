//! A figure has one word, in what `status` and `flow show` print for people and in their JSON: each
//! key's own, with blanks for its underscores. What is worded otherwise, and what JSON alone has, is
//! listed here.

use crate::running::{PATIENCE, Running, text};
use flowkeep::report::{Flow, Status};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::time::{Duration, Instant};

const PROFILE: &str = "flows = 20\nrate = { per_flow = 20.0 }\npace = \"clock\"\nsources = [\"10.0.0.0/24\"]\n\
                       destinations = [\"198.51.100.1/32\"]\ndestination_ports = [443]\n\
                       [[classes]]\nshare = 1.0\ntcp = 0.0\n";

/// Two runtimes that keep copies for each other, so that most of what there is to say is said.
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
    ("copies", "copies of others"),
    ("costs", "cycles a packet"),
    ("counters", "counter"),
    ("failed_packets", "failed"),
    ("flows_max", ""),
    ("interrupted_calls", ""),
    ("leaving", ""),
    ("lost_packets", "lost"),
    ("max", "at most"),
    ("name", ""),
    ("passing", "between workers"),
    ("ports", "port"),
    ("protection_seconds", "protected after"),
    ("received_bytes", "received"),
    ("received_packets", "received"),
    ("refused_words", "words of other workers"),
    ("runtimes", "runtime"),
    ("sampled_calls", "sampled"),
    ("sent_bytes", "sent"),
    ("sent_packets", "sent"),
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

/// What is nothing is not said: here all is something.
fn something(value: &mut Value) {
    match value {
        Value::Number(number) if number.as_f64() == Some(0.0) => *value = 7.into(),
        Value::Bool(is_so) => *is_so = true,
        Value::Array(all) => all.iter_mut().for_each(something),
        Value::Object(fields) => fields.values_mut().for_each(something),
        _ => {}
    }
}

fn keys(of: &Value, found: &mut BTreeSet<String>) {
    match of {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| {
            found.insert(key.clone());
            keys(value, found);
        }),
        Value::Array(all) => all.iter().for_each(|of| keys(of, found)),
        _ => {}
    }
}

/// Whether these words stand there, with nothing of a word before or behind them.
fn has(text: &str, words: &str) -> bool {
    let is_of_word = |letter: Option<char>| letter.is_some_and(|of| of.is_alphanumeric() || of == '_');
    text.match_indices(words).any(|(at, _)| {
        let (before, behind) = (&text[..at], &text[at + words.len()..]);
        !is_of_word(before.chars().next_back()) && !is_of_word(behind.chars().next())
    })
}

#[track_caller]
fn words_agree<T: DeserializeOwned + Display>(said: &[u8], exceptions: &[(&str, &str)]) {
    let mut json: Value = serde_json::from_slice(said).unwrap();
    something(&mut json);
    let printed = serde_json::from_value::<T>(json.clone()).unwrap().to_string();
    let shown = printed.to_lowercase();
    let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut found = BTreeSet::new();
    keys(&json, &mut found);
    for key in &found {
        let other = exceptions
            .iter()
            .find(|(of, _)| of == key)
            .map(|(_, words)| *words);
        let own = [key.clone(), key.replace('_', " ")];
        match other {
            Some("") => {}
            Some(words) => assert!(
                has(&shown, words),
                "`{key}` is not shown as `{words}`:\n{printed}"
            ),
            None => assert!(
                own.iter().any(|words| has(&shown, words)),
                "`{key}` is not shown by its word:\n{printed}"
            ),
        }
        // An exception that is none is to go.
        let is_own = own.iter().any(|words| has(&shown, words));
        assert!(other != Some("") || !is_own, "`{key}` is shown:\n{printed}");
    }
    let unused = exceptions.iter().filter(|(key, _)| !found.contains(*key));
    assert_eq!(
        unused.collect::<Vec<_>>(),
        Vec::<&(&str, &str)>::new(),
        "no such key: {json:#}"
    );
}

#[test]
fn text_and_json_have_the_same_words() {
    let running = Running::start("worded", PROFILE, config);
    let ask = |words: &[&str]| {
        let said = running.ask(&[words, &["--json"]].concat());
        assert!(said.status.success(), "{words:?}: {}", text(&said.stderr));
        said.stdout
    };
    // Until copies are kept and costs were measured.
    let began = Instant::now();
    let status = loop {
        let said = ask(&["status"]);
        let status: Value = serde_json::from_slice(&said).unwrap();
        let runtimes = status["runtimes"].as_array().unwrap();
        let is_whole = |runtime: &Value| {
            ["protected_by", "protection_seconds", "busy_seconds"]
                .iter()
                .all(|of| runtime[of].is_number())
                && runtime["costs"].as_array().is_some_and(|costs| costs.len() == 2)
        };
        if runtimes.len() == 2 && runtimes.iter().all(is_whole) {
            break said;
        }
        assert!(began.elapsed() < PATIENCE, "{status:#}");
        std::thread::sleep(Duration::from_millis(50));
    };
    words_agree::<Status>(&status, STATUS);

    let list: Value = serde_json::from_slice(&ask(&["flow", "list", "--limit", "1"])).unwrap();
    let [protocol, source, destination] =
        ["protocol", "source", "destination"].map(|of| list["flows"][0][of].as_str().unwrap());
    let flow = ask(&["flow", "show", protocol, source, destination]);
    words_agree::<Flow>(&flow, FLOW);
    // And the values of its functions' fields: a word, a number, nothing.
    let json: Value = serde_json::from_slice(&flow).unwrap();
    let shown = serde_json::from_slice::<Flow>(&flow).unwrap().to_string();
    let fields = json["state"].as_object().unwrap().values();
    let fields: Vec<_> = fields.flat_map(|fields| fields.as_object().unwrap()).collect();
    assert!(fields.len() > 5, "{shown}");
    for (name, value) in fields {
        let value = match value {
            Value::String(text) => text.clone(),
            Value::Array(_) | Value::Object(_) => continue,
            other => other.to_string(),
        };
        assert!(
            shown.contains(&format!("    {name} = {value}\n")),
            "{name}: {value}\n{shown}"
        );
    }
}
