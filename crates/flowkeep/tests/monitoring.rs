//! The dashboard and the alert rules ask for figures that there are: a cluster answers every name
//! in them. Some of the alerts are seen to come, of series that are made up.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(120);

/// Ended however the test ends.
struct Cluster(Child);

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Names of figures in a text, as Prometheus has them.
fn names(text: &str) -> BTreeSet<String> {
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let words = text.split(|letter: char| !is_name(letter));
    let ours = words.filter(|word| word.starts_with("flowkeep_"));
    ours.map(str::to_owned).collect()
}

fn figures(at: &str) -> Option<String> {
    let mut stream = TcpStream::connect(at).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    write!(
        stream,
        "GET /metrics HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n"
    )
    .ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    text.contains("# EOF").then_some(text)
}

/// The figures of a cluster with the demonstration's functions, and these settings, once they are
/// so; `None` if another process has taken its port.
fn answered(root: &Path, name: &str, settings: &str, is_so: impl Fn(&str) -> bool) -> Option<String> {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = free.local_addr().unwrap().to_string();
    drop(free);
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("monitoring-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let config = folder.join("c.toml");
    let demo = std::fs::read_to_string(root.join("examples/demo-live.toml")).unwrap();
    std::fs::write(
        &config,
        format!("{demo}\n{settings}\n[metrics]\nlisten = \"{at}\"\n"),
    )
    .unwrap();
    let mut cluster = Cluster(
        Command::new(env!("CARGO_BIN_EXE_flowkeep"))
            .arg("run")
            .arg(&config)
            .args(["--for", "5m", "--socket"])
            .arg(folder.join("s.sock"))
            .current_dir(root)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let began = Instant::now();
    let text = loop {
        if let Some(text) = figures(&at).filter(|text| is_so(text)) {
            break Some(text);
        }
        if cluster.0.try_wait().unwrap().is_some() {
            break None;
        }
        assert!(began.elapsed() < PATIENCE, "it does not answer");
        std::thread::sleep(Duration::from_millis(50));
    };
    drop(cluster);
    std::fs::remove_dir_all(&folder).unwrap();
    text
}

#[test]
fn every_figure_that_is_asked_for_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = (0..5)
        .find_map(|_| answered(&root, "all", "", |_| true))
        .expect("a cluster answers");
    let mut there = names(&text);
    let counters = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"));
    there.extend(counters.map(|name| format!("{name}_total")));

    for file in ["alerts.yml", "dashboard.json"] {
        let text = std::fs::read_to_string(root.join("tools/monitoring").join(file)).unwrap();
        let asked = names(&text);
        assert!(asked.len() >= 8, "{file} asks for {asked:?}");
        let missing: Vec<&String> = asked.difference(&there).collect();
        assert!(
            missing.is_empty(),
            "{file} asks for {missing:?}, which no cluster has"
        );
    }
    let text = std::fs::read_to_string(root.join("tools/monitoring/dashboard.json")).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(dashboard["panels"].as_array().unwrap().len() >= 8);
}

/// All expressions in a dashboard, with Grafana's values for its variables put in.
fn expressions(of: &serde_json::Value, found: &mut Vec<String>) {
    match of {
        serde_json::Value::Object(fields) => {
            if let Some(expression) = fields.get("expr").and_then(|of| of.as_str()) {
                let expression = expression.replace("$__rate_interval", "1m");
                found.push(expression.replace("$instance", ".*"));
            }
            fields.values().for_each(|of| expressions(of, found));
        }
        serde_json::Value::Array(all) => all.iter().for_each(|of| expressions(of, found)),
        _ => {}
    }
}

#[test]
fn promtool_takes_the_dashboards_expressions() {
    let dashboard = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/monitoring/dashboard.json");
    let dashboard = std::fs::read_to_string(dashboard).unwrap();
    let mut all = Vec::new();
    expressions(&serde_json::from_str(&dashboard).unwrap(), &mut all);
    assert_eq!(all.len(), dashboard.matches("\"expr\":").count());
    assert!(all.len() >= 8, "{all:?}");
    assert!(all.iter().all(|expression| !expression.contains('$')), "{all:#?}");
    let check = |all: &[String], name: &str| {
        let rule = |(number, expression): (usize, &String)| {
            // A string of JSON is one of YAML.
            let expression = serde_json::to_string(expression).unwrap();
            format!("  - record: dashboard:expression_{number}\n    expr: {expression}\n")
        };
        let rules: String = all.iter().enumerate().map(rule).collect();
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::write(&file, format!("groups:\n- name: dashboard\n  rules:\n{rules}")).unwrap();
        Command::new("promtool")
            .args(["check", "rules"])
            .arg(file)
            .output()
    };
    let Ok(said) = check(&all, "dashboard.yml") else {
        println!("not run: needs promtool (package prometheus)");
        return;
    };
    let text = String::from_utf8_lossy(&said.stdout);
    let found = format!("{} rules found", all.len());
    assert!(said.status.success() && text.contains(&found), "{said:?}");
    // The check works: each expression is refused when it ends too early.
    for (number, expression) in all.iter().enumerate() {
        let mut wrong = all.clone();
        wrong[number] = format!("({expression}");
        let said = check(&wrong, "no-dashboard.yml").unwrap();
        assert!(!said.status.success(), "{expression}");
    }
}

#[test]
fn rows_that_are_in_no_metric_are_counted() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let rule =
        |number: u32| format!("[[function.firewall.rules]]\nname = \"rule {number}\"\naction = \"drop\"\n");
    let rules: String = (0..300).map(rule).collect();
    let text = (0..5)
        .find_map(|_| answered(&root, "rows", &rules, |_| true))
        .expect("a cluster answers");
    let of = |runtime: u32, function: &str, table: &str| {
        let labels = format!("runtime=\"{runtime}\",function=\"{function}\",table=\"{table}\"");
        let name = format!("flowkeep_function_rows_left_out{{{labels}}} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&name));
        line.unwrap_or_else(|| panic!("{name}: {text}"))
            .parse::<u32>()
            .unwrap()
    };
    // The demonstration has a rule of its own, and there is a row for flows that no rule matched.
    let hits = |runtime: u32| {
        let name = format!("flowkeep_function_rule_hits_total{{runtime=\"{runtime}\"");
        text.lines().filter(|line| line.starts_with(&name)).count()
    };
    for runtime in 0..2 {
        assert_eq!((hits(runtime), of(runtime, "firewall", "rules")), (256, 46));
        assert_eq!(of(runtime, "load_balancer", "backends"), 0);
    }
}

/// Each of the two runtimes has copies of the other's flows.
#[test]
fn flows_with_copies_and_the_time_until_all_had_one_are_figures() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let of = |text: &str, name: &str, runtime: u32| -> Option<f64> {
        let name = format!("{name}{{runtime=\"{runtime}\"}} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&name))?;
        line.parse().ok()
    };
    let both = |text: &str, name: &str| [0, 1].map(|runtime| of(text, name, runtime));
    let is_protected = |text: &str| {
        let flows = both(text, "flowkeep_protected_flows");
        let took = both(text, "flowkeep_protection_seconds");
        flows.iter().all(|flows| *flows > Some(0.0)) && took.iter().all(Option::is_some)
    };
    let text = (0..5)
        .find_map(|_| answered(&root, "copies", "", is_protected))
        .expect("a cluster answers");
    // The time may have begun as the runtimes were built, before the cluster was up.
    for took in both(&text, "flowkeep_protection_seconds").into_iter().flatten() {
        assert!(took > 0.0 && took < 10.0, "{took}");
    }
}

#[test]
fn promtool_takes_the_rules() {
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/monitoring/alerts.yml");
    let check = |rules: &Path| {
        Command::new("promtool")
            .args(["check", "rules"])
            .arg(rules)
            .output()
    };
    let Ok(said) = check(&rules) else {
        println!("not run: needs promtool (package prometheus)");
        return;
    };
    let text = String::from_utf8_lossy(&said.stdout);
    assert!(said.status.success() && text.contains("rules found"), "{said:?}");
    // The check works: a malformed expression is refused.
    let wrong = Path::new(env!("CARGO_TARGET_TMPDIR")).join("no-rules.yml");
    let text = std::fs::read_to_string(&rules)
        .unwrap()
        .replacen("expr: ", "expr: (", 1);
    std::fs::write(&wrong, text).unwrap();
    assert!(!check(&wrong).unwrap().status.success());
}

/// Some alerts come when they are to and not before, with their words, of series that are made up.
#[test]
fn alerts_come_when_they_are_to() {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/monitoring");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("alerts-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let [rules, tests] =
        ["alerts.yml", "alerts-test.yml"].map(|name| std::fs::read_to_string(from.join(name)).unwrap());
    std::fs::write(folder.join("alerts-test.yml"), tests).unwrap();
    let tried = |rules: &str| {
        std::fs::write(folder.join("alerts.yml"), rules).unwrap();
        let mut command = Command::new("promtool");
        command
            .args(["test", "rules", "alerts-test.yml"])
            .current_dir(&folder);
        command.output()
    };
    let Ok(said) = tried(&rules) else {
        println!("not run: needs promtool (package prometheus)");
        return;
    };
    assert!(said.status.success(), "{said:?}");
    // The check works: each of these rules, said otherwise, comes at other times.
    for (old, new) in [
        ("up{job=\"flowkeep\"} == 0", "up == 0"),
        ("flowkeep_uptime_seconds < 300", "flowkeep_uptime_seconds < 3"),
        ("flowkeep_flows_max > 0.9", "flowkeep_flows_max > 0.95"),
        ("for: 10m", "for: 30m"),
        (" > 0.2", " > 0.4"),
    ] {
        assert_eq!(rules.matches(old).count(), 1, "{old}");
        let said = tried(&rules.replace(old, new)).unwrap();
        assert!(!said.status.success(), "{new}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
