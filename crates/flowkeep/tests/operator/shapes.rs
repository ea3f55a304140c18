//! The output of `--json` holds to the schema that `flowkeep schema` prints: no field that is not
//! there, and none of another kind.

use crate::running::{PATIENCE, Running, text};
use crate::schema;
use bench::Report;
use bench::report::{Case, Parameters};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PROFILE: &str = "flows = 100\nrate = { total = 2000.0 }\npace = \"clock\"\nsources = [\"10.0.0.0/26\"]\n\
                       source_ports = [1024, 5000]\ndestinations = [\"198.51.100.1/32\"]\ndestination_ports = [443]\n\
                       [[classes]]\nshare = 1.0\ntcp = 0.0\n";

fn config(profile: &str, ports: &str) -> String {
    format!(
        "clock = \"machine\"\nruntimes = 2\nruntimes_max = 3\n\
         [[port]]\nname = \"lan\"\nside = \"inside\"\ninput = \"generate:{profile}\"\n\
         [[port]]\nname = \"wan\"\nside = \"outside\"\noutput = \"reflect:?mode=answer\"\ninput = \"reflect:?mode=answer\"\n\
         [[chain]]\nname = \"all\"\nfunctions = [\"firewall\", \"nat\"]\nreplication = \"commit\"\n\
         [[function.firewall.rules]]\nname = \"out\"\nfrom = \"inside\"\ndestination_ports = {ports}\naction = \"allow\"\n\
         [function.nat]\npool = [\"203.0.113.0/28\"]\n"
    )
}

fn flowkeep(words: &[&str]) -> Vec<u8> {
    let output = Command::new(env!("CARGO_BIN_EXE_flowkeep"))
        .args(words)
        .output()
        .unwrap();
    assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
    output.stdout
}

/// `bench store` of some cases, with a folder for temporary files of its own.
fn bench_store_in(folder: &Path) -> Command {
    std::fs::create_dir_all(folder).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowkeep"));
    command
        .args(["bench", "store", "--flows", "50", "--runs", "1", "--json"])
        .env("FLOWKEEP_BENCH_ONLY", "nat,balancer,sync protocol,sync nat")
        .env("TMPDIR", folder);
    command
}

/// Whether nothing is left in the folder, at last.
fn is_emptied(folder: &Path) -> bool {
    let began = Instant::now();
    while std::fs::read_dir(folder).unwrap().next().is_some() {
        if began.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    std::fs::remove_dir(folder).unwrap();
    true
}

/// Runs it to its end: each packet that NAT and the load balancer get comes out, and there is no
/// store of which it says nothing.
fn bench_store() -> Vec<u8> {
    let folder = std::env::temp_dir().join(format!("flowkeep-shapes-{}", std::process::id()));
    let output = bench_store_in(&folder).output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(!said.contains("dropped"), "{said}");
    assert!(is_emptied(&folder), "the folder of a measurement is left");
    let printed = text(&output.stdout);
    for case in ["nat, none", "nat, memory", "balancer, none", "balancer, redb"] {
        assert!(printed.contains(&format!("\"{case}\"")), "{case}: {printed}");
    }
    for (server, store) in [("Redis", "redis"), ("Cassandra", "cassandra")] {
        let why = said
            .lines()
            .find(|line| line.starts_with("not run with") && line.contains(server));
        match why {
            Some(why) => println!("{why}"),
            None => {
                for case in ["nat", "balancer", "sync protocol", "sync nat"] {
                    for store in [store, &format!("{store} afar")] {
                        assert!(
                            printed.contains(&format!("\"{case}, {store}\"")),
                            "{case}, {store}: {said}"
                        );
                    }
                }
            }
        }
    }
    output.stdout
}

#[test]
fn a_measurement_that_is_killed_leaves_no_folder_and_no_server() {
    let folder = std::env::temp_dir().join(format!("flowkeep-killed-{}", std::process::id()));
    let mut command = bench_store_in(&folder);
    let mut bench = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let began = Instant::now();
    while std::fs::read_dir(&folder).unwrap().next().is_none() {
        assert!(began.elapsed() < PATIENCE, "it makes no folder");
        std::thread::sleep(Duration::from_millis(5));
    }
    // Until Cassandra is on its way, or the step behind it: a machine may have none.
    let of_node = folder.join(format!("flowkeep-bench-store-{}-cassandra", bench.id()));
    while of_folder(&of_node).is_empty() && began.elapsed() < Duration::from_secs(3) {
        std::thread::sleep(Duration::from_millis(5));
    }
    bench.kill().unwrap();
    bench.wait().unwrap();
    // Each folder goes behind its server.
    assert!(is_emptied(&folder), "the folder of a killed measurement is left");
    while let [first, ..] = &of_folder(&folder)[..] {
        assert!(began.elapsed() < PATIENCE, "a server of it is left: {first}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The processes whose words name this folder.
fn of_folder(folder: &Path) -> Vec<String> {
    let name = folder.to_str().unwrap();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let words = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    let words = words.map(|words| text(&words).replace('\0', " "));
    words.filter(|words| words.contains(name)).collect()
}

#[test]
fn a_measurement_without_cassandras_jars_says_so_and_fetches_none() {
    let folder = std::env::temp_dir().join(format!("flowkeep-no-jars-{}", std::process::id()));
    let cache = folder.join("cache");
    let mut bench = bench_store_in(&folder)
        .env("FLOWKEEP_CACHE", &cache)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(bench.stderr.take().unwrap()).lines();
    let said = lines
        .map_while(Result::ok)
        .find(|line| line.contains("Cassandra"))
        .unwrap();
    bench.kill().unwrap();
    bench.wait().unwrap();
    assert!(said.starts_with("not run with Cassandra: "), "{said}");
    assert!(said.ends_with("install with `./x setup`"), "{said}");
    assert!(!cache.exists());
    assert!(is_emptied(&folder), "the folder of a killed measurement is left");
}

/// The lines that were held against their schemas.
struct Shapes {
    seen: BTreeSet<String>,
}

impl Shapes {
    #[track_caller]
    fn holds(&mut self, name: &str, said: &[u8]) {
        schema::holds(name, said);
        self.seen.insert(name.to_owned());
    }
}

/// The kinds of value that a schema gives each name of a field, with where.
fn kinds(schema: &Value, at: &str, all: &Value, found: &mut BTreeMap<String, BTreeMap<String, String>>) {
    for (name, of) in schema["properties"].as_object().into_iter().flatten() {
        let kind = kind_of(of, all);
        found
            .entry(name.clone())
            .or_default()
            .entry(kind)
            .or_insert_with(|| at.to_owned());
    }
    match schema {
        Value::Object(fields) => fields.values().for_each(|of| kinds(of, at, all, found)),
        Value::Array(of) => of.iter().for_each(|of| kinds(of, at, all, found)),
        _ => {}
    }
}

/// `object`, `array`, `string`, `number` or `boolean`, whether it may be null or not.
fn kind_of(of: &Value, all: &Value) -> String {
    if let Some(name) = of["$ref"].as_str() {
        let name = name.rsplit('/').next().unwrap();
        return kind_of(&all["$defs"][name], all);
    }
    let first = |options: &Value| {
        let mut options = options.as_array().into_iter().flatten();
        options.find(|of| of["type"] != "null").map(|of| kind_of(of, all))
    };
    if let Some(kind) = first(&of["anyOf"]).or_else(|| first(&of["oneOf"])) {
        return kind;
    }
    let one = match &of["type"] {
        Value::Array(kinds) => kinds.iter().find(|kind| *kind != "null").cloned(),
        kind => Some(kind.clone()),
    };
    match one.as_ref().and_then(Value::as_str) {
        Some("integer") => "number".to_owned(),
        Some(kind) => kind.to_owned(),
        None => "anything".to_owned(),
    }
}

/// Names with two shapes: a count within a row of an output, and a list or a table of the counted
/// things.
const COUNTS_TOO: &[&str] = &[
    "dropped", "flows", "in", "members", "objects", "out", "packets", "runtimes",
];
/// Names of other nouns: `from` and `to` name runtimes or, of links, workers, and an order may have
/// several targets; a flow is `waiting`, and a runtime has calls that are.
const APART: &[&str] = &["from", "to", "waiting"];

#[test]
fn a_name_has_one_shape_in_all_outputs() {
    let mut found = BTreeMap::new();
    for name in String::from_utf8(flowkeep(&["schema"])).unwrap().lines() {
        let schema: Value = serde_json::from_slice(&flowkeep(&["schema", name])).unwrap();
        kinds(&schema, name, &schema, &mut found);
        assert!(
            !schema.to_string().contains("prefixItems"),
            "{name} has a list whose places have meanings"
        );
    }
    let several = found
        .iter()
        .filter(|(name, kinds)| kinds.len() > 1 && ![COUNTS_TOO, APART].concat().contains(&name.as_str()));
    let several: Vec<_> = several.collect();
    assert!(several.is_empty(), "{several:#?}");
}

/// A short run of a scenario.
fn bench_of(scenario: &str, flows: u32) -> Report {
    let options = bench::Options {
        flows: vec![flows],
        runs: 1,
        packets: 1 << 14,
        ..bench::Options::default()
    };
    bench::run(scenario, &options).unwrap()
}

/// The cases of a report that a process has printed.
fn cases_of(report: &[u8]) -> Vec<Case> {
    let report: Value = serde_json::from_slice(report).unwrap();
    let case = |case: &Value| {
        let samples = case["samples"].as_array().unwrap().iter();
        let samples = samples.map(|sample| sample.as_f64().unwrap()).collect();
        let name = case["name"].as_str().unwrap();
        Case::new(name, Parameters::default(), "figures", "units as named", samples)
    };
    report["cases"].as_array().unwrap().iter().map(case).collect()
}

/// The output of `bench papers`. Of three scenarios, which have run for that, each figure is there;
/// the others have no case that it shows.
fn bench_papers(shapes: &mut Shapes) -> String {
    // Before the scenarios that pin this thread to a processor.
    let replicate = bench_of("replicate", 50);
    // Its nodes are this program again.
    let bench = "bench recover --flows 2000 --runs 1 --json";
    let said = flowkeep(&bench.split(' ').collect::<Vec<_>>());
    shapes.holds("bench", &said);
    let other = bench_of("stage", 10);
    let recover = Report {
        cases: cases_of(&said),
        ..other.clone()
    };
    let migrate = bench_of("migrate", 1024);
    let figures = bench::papers::of_reports(|scenario, flows| {
        let ran = match scenario {
            "replicate" => &replicate,
            "recover" => &recover,
            "migrate" => &migrate,
            _ => &other,
        };
        let mut report = Report {
            scenario: scenario.to_owned(),
            cases: Vec::new(),
            ..ran.clone()
        };
        for number in flows {
            for case in &ran.cases {
                let mut case = case.clone();
                case.parameters.flows = *number;
                report.cases.push(case);
            }
        }
        Ok(report)
    });
    let object = flowkeep::shape::object(&figures.unwrap());
    let rows = object["figures"].as_array().unwrap();
    let mut measured = BTreeMap::new();
    for row in rows {
        let command = row["command"].as_str().unwrap();
        let scenario = command.split(' ').nth(2).unwrap();
        let has_run = ["replicate", "recover", "migrate"].contains(&scenario);
        let ours = row["ours"].as_f64();
        assert_eq!(ours.is_some_and(|ours| ours > 0.0), has_run, "{row:#}");
        *measured.entry(scenario).or_insert(0) += u32::from(has_run);
    }
    let of = |scenario: &str| measured[scenario];
    assert_eq!((of("replicate"), of("recover"), of("migrate")), (5, 2, 5));
    object.to_string()
}

#[test]
fn what_is_printed_holds_to_its_schema() {
    let mut shapes = Shapes {
        seen: BTreeSet::new(),
    };
    let running = Running::start("shapes", PROFILE, |profile| config(profile, "[443, 80]"));
    let other = running.path("other.toml");
    std::fs::write(&other, config(&running.path("traffic.toml"), "[443]")).unwrap();
    let flows = || -> Value {
        serde_json::from_slice(&running.ask(&["flow", "list", "--limit", "3", "--json"]).stdout).unwrap()
    };
    let began = Instant::now();
    while flows()["flows"].as_array().unwrap().len() < 3 {
        assert!(began.elapsed() < PATIENCE);
    }
    // A flow may end between two commands: another one, then.
    let key = loop {
        let one = flows()["flows"][0].clone();
        let key = ["protocol", "source", "destination"].map(|field| one[field].as_str().map(str::to_owned));
        if let [Some(protocol), Some(source), Some(destination)] = key
            && running
                .ask(&["flow", "show", &protocol, &source, &destination])
                .status
                .success()
        {
            break [protocol, source, destination];
        }
        assert!(began.elapsed() < PATIENCE, "no flow is shown");
    };
    let key = [key[0].as_str(), &key[1], &key[2]];
    let with = |words: &[&'static str], more: &[&str]| -> Vec<u8> {
        let words: Vec<&str> = words.iter().copied().chain(more.iter().copied()).collect();
        let output = running.ask(&[&words[..], &["--json"]].concat());
        assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
        output.stdout
    };
    shapes.holds("status", &with(&["status"], &[]));
    shapes.holds("flows", &with(&["flow", "list", "--limit", "3"], &[]));
    shapes.holds("flow", &with(&["flow", "show"], &key));
    shapes.holds("flow-explain", &with(&["flow", "explain"], &key));
    shapes.holds("flow-trace", &with(&["flow", "trace", "--packets", "2"], &key));
    shapes.holds("runtimes", &with(&["runtime", "list"], &[]));
    shapes.holds(
        "moved",
        &with(&["flow", "migrate", "--all", "--from", "0", "--to", "1"], &[]),
    );
    shapes.holds("orders", &with(&["order", "list"], &[]));
    shapes.holds("runtime-drain", &with(&["runtime", "drain", "0"], &[]));
    shapes.holds("runtime-resume", &with(&["runtime", "resume", "0"], &[]));
    shapes.holds("runtime-change", &with(&["runtime", "add", "--rebalance"], &[]));
    shapes.holds("runtime-change", &with(&["runtime", "remove", "2"], &[]));
    shapes.holds("runtime-rebalance", &with(&["runtime", "rebalance"], &[]));
    shapes.holds(
        "runtime-kill",
        &with(&["runtime", "kill", "1", "--unprotected"], &[]),
    );
    shapes.holds("status", &with(&["status"], &[]));
    shapes.holds(
        "replication-set",
        &with(&["replication", "set", "all", "none"], &[]),
    );
    let rules = with(&["function", "firewall", "rules"], &[]);
    shapes.holds("function", &rules);
    let rules: Value = serde_json::from_slice(&rules).unwrap();
    let of = |answer: &Value| {
        let rows = answer["rows"].as_array().unwrap().iter();
        let out = rows.filter(|row| row["rule"] == "out" && row["action"] == "allow");
        out.map(|row| row["hits"].as_u64().unwrap()).sum::<u64>()
    };
    let each = rules["answers"].as_array().unwrap();
    assert_eq!(of(&rules), each.iter().map(of).sum::<u64>(), "{rules}");
    // Runtimes 2 and 1 were removed and killed.
    let gone: Vec<_> = each.iter().filter_map(|of| of["gone"].as_str()).collect();
    assert_eq!(gone, ["failed", "removed"], "{rules}");
    let rules = running.ask(&["function", "firewall", "rules"]);
    let said = text(&rules.stdout);
    let gone = "What is gone is in it: runtime 1 (failed: as it was last known), runtime 2 (removed)";
    assert!(said.contains("allow   out\n") && said.contains(gone), "{said}");
    shapes.holds("function", &with(&["function", "nat", "pool"], &[]));
    let cleared = with(&["function", "nat", "clear", "10.9.9.9"], &[]);
    shapes.holds("function", &cleared);
    let cleared: Value = serde_json::from_slice(&cleared).unwrap();
    let row = &cleared["rows"][0];
    assert!(
        row["hosts"] == "10.9.9.9" && row["state"] == "ending",
        "{cleared:#}"
    );
    shapes.holds("chain-check", &flowkeep(&["chain", "check", "--json", &other]));
    shapes.holds("chain-change", &with(&["chain", "diff"], &[&other]));
    shapes.holds(
        "chain-change",
        &with(&["chain", "apply", "--cut", "--confirm", "60s"], &[&other]),
    );
    shapes.holds("status", &with(&["status"], &[]));
    shapes.holds("chain-confirm", &with(&["chain", "confirm"], &[]));
    // Flows end, and their packets open them again.
    let mut following = running
        .command(&["flow", "events", "--count", "2", "--json"])
        .spawn()
        .unwrap();
    while following.try_wait().unwrap().is_none() {
        assert!(began.elapsed() < PATIENCE, "no flow ends or opens");
        with(&["flow", "delete", "--all"], &[]);
    }
    shapes.holds("flow-event", &following.wait_with_output().unwrap().stdout);
    shapes.holds("flow-delete", &with(&["flow", "delete", "--all"], &[]));
    shapes.holds("top", &with(&["top", "--once"], &[]));
    let failed = running.ask(&["flow", "show", "tcp", "192.0.2.1:1", "192.0.2.2:2", "--json"]);
    shapes.holds("failed", &failed.stdout);
    shapes.holds("stop", &with(&["stop"], &[]));

    let bench = "bench migrate --flows 50 --runs 1 --json";
    shapes.holds("bench", &flowkeep(&bench.split(' ').collect::<Vec<_>>()));
    let bench = "bench stage --flows 10 --runs 1 --json";
    shapes.holds("bench", &flowkeep(&bench.split(' ').collect::<Vec<_>>()));
    shapes.holds("bench", &bench_store());
    let papers = bench_papers(&mut shapes);
    shapes.holds("bench-papers", papers.as_bytes());
    let bridge = "port bridge memory:a memory:b --for 20ms --json";
    shapes.holds("port-bridge", &flowkeep(&bridge.split(' ').collect::<Vec<_>>()));
    shapes.holds("sim", &flowkeep(&["sim", "--seeds", "2", "--json"]));

    let all = String::from_utf8(flowkeep(&["schema"])).unwrap();
    let left: Vec<&str> = all.lines().filter(|name| !shapes.seen.contains(*name)).collect();
    // These are of several processes (`members`), of a store (`stores`), and of namespaces
    // (`live`); events that are lost need a reader that stands still (`events`).
    assert_eq!(
        left,
        [
            "cluster-drain",
            "cluster-recover",
            "cluster-status",
            "cluster-scale",
            "flow-events-lost",
            "lab-demo",
            "replication-place",
            "store",
            "store-merged"
        ]
    );
}
