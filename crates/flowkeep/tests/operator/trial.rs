//! A configuration on trial, as a person tries one: the command ends, the process remembers, and it
//! goes back by itself.

use crate::running::{PATIENCE, Running, text};
use serde_json::Value;
use std::fs;
use std::time::{Duration, Instant};

const PROFILE: &str = "flows = 200\nrate = { total = 4000.0 }\npace = \"clock\"\nsources = [\"10.0.0.0/24\"]\n\
                       source_ports = [1024, 5000]\ndestinations = [\"198.51.100.1/32\"]\ndestination_ports = [443, 80]\n\
                       [[classes]]\nshare = 1.0\ntcp = 0.0\n";

/// Lets these ports out.
fn config(profile: &str, events: &str, ports: &str) -> String {
    format!(
        "clock = \"machine\"\n[log]\nevents = \"{events}\"\n\
         [[port]]\nname = \"lan\"\nside = \"inside\"\ninput = \"generate:{profile}\"\n\
         [[port]]\nname = \"wan\"\nside = \"outside\"\noutput = \"pcap:/dev/null\"\n\
         [[chain]]\nname = \"all\"\nfunctions = [\"firewall\"]\n\
         [[function.firewall.rules]]\nname = \"out\"\nfrom = \"inside\"\ndestination_ports = {ports}\naction = \"allow\"\n"
    )
}

fn status(running: &Running) -> Value {
    serde_json::from_slice(&running.ask(&["status", "--json"]).stdout).unwrap()
}

/// A cluster that lets out one port, and a file that lets out another: going there and back both
/// cut flows.
fn cluster(name: &str) -> (Running, String, String) {
    let events = std::env::temp_dir().join(format!("flowkeep-trial-{}-{name}.jsonl", std::process::id()));
    let events = events.display().to_string();
    let running = Running::start(name, PROFILE, |profile| config(profile, &events, "[443]"));
    let other = running.path("other.toml");
    fs::write(&other, config(&running.path("traffic.toml"), &events, "[80]")).unwrap();
    let began = Instant::now();
    while status(&running)["flows"]["active"].as_u64().unwrap() < 50 {
        assert!(began.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(20));
    }
    (running, other, events)
}

#[test]
fn a_configuration_on_trial_goes_back_when_it_is_not_confirmed() {
    let (running, other, events) = cluster("back");
    let said = running.ask(&["chain", "apply", "--cut", "--confirm", "3s", &other]);
    assert!(said.status.success(), "{}", text(&said.stderr));
    assert!(
        text(&said.stdout).contains("goes back in 3 s"),
        "{}",
        text(&said.stdout)
    );
    let now = status(&running);
    assert_eq!(now["generation"], 2, "{now:#}");
    let left = now["trial"]["seconds_left"].as_f64().unwrap();
    assert!(
        left > 0.0 && left <= 3.0 && now["trial"]["file"] == other.as_str(),
        "{now:#}"
    );
    let shown = text(&running.ask(&["status"]).stdout);
    assert!(shown.contains("is on trial: it goes back in"), "{shown}");
    let refused = running.ask(&["chain", "apply", "--cut", &running.path("config.toml")]);
    assert_eq!(refused.status.code(), Some(1));
    let why = text(&refused.stderr);
    assert!(
        why.contains(&other) && why.contains("flowkeep chain confirm"),
        "{why}"
    );

    let began = Instant::now();
    let went = loop {
        let now = status(&running);
        if now["went_back"].is_object() {
            break now;
        }
        assert!(began.elapsed() < PATIENCE, "{now:#}");
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(went["generation"], 3, "{went:#}");
    assert!(went["trial"].is_null(), "{went:#}");
    let cut = went["went_back"]["flows_cut"].as_u64().unwrap();
    assert!(cut > 0, "flows to port 80 end: {went:#}");
    let late = running.ask(&["chain", "confirm"]);
    assert_eq!(late.status.code(), Some(1));
    assert!(text(&late.stderr).contains("no configuration is on trial"));
    // The event says the same, with the time of day.
    let line = loop {
        let lines = fs::read_to_string(&events).unwrap();
        if let Some(line) = lines
            .lines()
            .find(|line| line.contains("configuration_went_back"))
        {
            break serde_json::from_str::<Value>(line).unwrap();
        }
        assert!(began.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(
        (&line["flows_cut"], &line["now"]),
        (&cut.into(), &3.into()),
        "{line}"
    );
    assert!(line["time"].as_str().unwrap().starts_with("20"), "{line}");
    // The trial's end is no news any more behind another change.
    let said = running.ask(&["chain", "apply", "--cut", &other]);
    assert!(said.status.success(), "{}", text(&said.stderr));
    let now = status(&running);
    assert!(now["went_back"].is_null() && now["generation"] == 4, "{now:#}");
    let _ = fs::remove_file(&events);
}

#[test]
fn a_confirmed_configuration_stays_and_can_be_rolled_back_by_hand() {
    let (running, other, events) = cluster("stays");
    let said = running.ask(&["chain", "apply", "--cut", "--confirm", "2s", &other]);
    assert!(said.status.success(), "{}", text(&said.stderr));
    let said = running.ask(&["chain", "confirm"]);
    assert_eq!(
        text(&said.stdout),
        "generation 2 stays\n",
        "{}",
        text(&said.stderr)
    );
    std::thread::sleep(Duration::from_millis(2500));
    let now = status(&running);
    assert!(
        now["generation"] == 2 && now["trial"].is_null() && now["went_back"].is_null(),
        "{now:#}"
    );
    let refused = running.ask(&["chain", "rollback"]);
    let why = text(&refused.stdout);
    assert_eq!(refused.status.code(), Some(3), "{why}{}", text(&refused.stderr));
    assert!(why.contains("`flowkeep chain rollback` with --cut cuts"), "{why}");
    assert_eq!(status(&running)["generation"], 2);
    let back = running.ask(&["chain", "rollback", "--cut"]);
    assert!(back.status.success(), "{}", text(&back.stderr));
    assert_eq!(status(&running)["generation"], 3);
    for time in ["0s", "2d"] {
        let refused = running.ask(&["chain", "apply", "--confirm", time, &other]);
        assert!(
            text(&refused.stderr).contains("write 1s to 24h"),
            "{}",
            text(&refused.stderr)
        );
    }
    assert_eq!(status(&running)["generation"], 3);
    // Each of them is in the event log, as are the flows that it cost.
    let lines = told(&events, &["applied", "confirmed", "rolled_back"]);
    let [applied, confirmed, back] = &lines[..] else {
        panic!("{lines:#?}");
    };
    assert_eq!(
        (&applied["event"], &applied["generation"], &applied["file"]),
        (&"configuration_applied".into(), &2.into(), &other.as_str().into())
    );
    assert_eq!(applied["confirm_seconds"], 2.0, "{applied}");
    assert!(applied["flows_cut"].as_u64() > Some(0), "{applied}");
    assert_eq!(
        (&confirmed["event"], &confirmed["generation"]),
        (&"configuration_confirmed".into(), &2.into())
    );
    assert_eq!(
        (&back["event"], &back["generation"]),
        (&"configuration_rolled_back".into(), &3.into())
    );
    assert!(back["flows_cut"].as_u64() > Some(0), "{back}");
    assert_eq!(back["file"], running.path("config.toml").as_str());
    let _ = fs::remove_file(&events);
}

#[test]
fn a_process_that_ends_says_that_its_trial_ends_with_it() {
    let (mut running, other, events) = cluster("ends");
    let applied = running.ask(&["chain", "apply", "--cut", "--confirm", "60s", &other]);
    assert!(applied.status.success(), "{}", text(&applied.stderr));
    let stopped = running.ask(&["stop"]);
    let said = text(&stopped.stdout);
    assert!(stopped.status.success(), "{}", text(&stopped.stderr));
    assert!(
        said.starts_with(&format!(
            "generation 2 ({other}) was on trial, and nothing has confirmed it"
        )) && said.ends_with("stopped\n"),
        "{said}"
    );
    running.cluster.wait().unwrap();
    let _ = fs::remove_file(&events);
}

/// The events of configurations by hand, by the log, once the last of these is there.
fn told(events: &str, names: &[&str]) -> Vec<Value> {
    let began = Instant::now();
    loop {
        let lines = fs::read_to_string(events).unwrap();
        let lines = lines
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        let has_name = |line: &Value| {
            let name = line["event"].as_str().unwrap_or_default();
            let name = name.strip_prefix("configuration_");
            name.is_some_and(|name| names.contains(&name))
        };
        let found: Vec<Value> = lines.filter(has_name).collect();
        if found.len() >= names.len() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "{found:#?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
