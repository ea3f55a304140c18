//! Commands over the whole cluster: asked by the coordinator, with certificates of each right and
//! with none.

use super::joined::{COPIES, Coordinator, Site, flowkeep, flows, passes};
use super::rig::{Member, PATIENCE};
use coordinator::agent::{CallError, Serving};
use coordinator::identity::Identity;
use coordinator::operator::Operator;
use coordinator::refusal::{self, Refusal};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The outcome of a command.
pub struct Done {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Done {
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {} {}", self.out, self.err))
    }

    /// Checks that the command has failed, with these words.
    #[track_caller]
    pub fn refused(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, code, "{} {}", self.out, self.err);
        for word in words {
            assert!(self.err.contains(word), "no {word:?} in: {}", self.err);
        }
    }
}

/// Runs a command over the cluster.
pub fn wide(site: &Site, name: &str, words: &[&str]) -> Done {
    ask(&site.coordinator, name, words)
}

/// The same, by the coordinator.
pub fn ask(coordinator: &Coordinator, name: &str, words: &[&str]) -> Done {
    shown_with(coordinator, &coordinator.folder, name, words)
}

fn shown_with(coordinator: &Coordinator, identity: &str, name: &str, words: &[&str]) -> Done {
    let output = Command::new(env!("CARGO_BIN_EXE_flowkeep"))
        .args(words)
        .env_remove("FLOWKEEP_SOCKET")
        .env("FLOWKEEP_CLUSTER", &coordinator.address)
        .args(["--identity", identity, "--name", name])
        .output()
        .expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Done {
        code: output.status.code().unwrap_or(-1),
        out: text(&output.stdout),
        err: text(&output.stderr),
    }
}

/// Waits until all members answer.
#[track_caller]
pub fn until_all_answer(site: &Site) -> Value {
    let began = Instant::now();
    loop {
        let done = wide(site, "read", &["status", "--json"]);
        let all = ["front", "left", "right"];
        if done.code == 0 && members(&done.json()) == all {
            return done.json();
        }
        assert!(began.elapsed() < PATIENCE, "{} {}", done.out, done.err);
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Members that are in the figures.
fn members(status: &Value) -> Vec<&str> {
    let members = status["members"].as_array().expect("a list").iter();
    let there = members.filter(|of| of.get("problem").is_none());
    there.filter_map(|of| of["member"].as_str()).collect()
}

/// Flows by member, as `runtime list` has them.
fn at(site: &Site) -> [u64; 2] {
    let list = wide(site, "read", &["runtime", "list", "--json"]).json();
    ["left", "right"].map(|member| {
        let runtimes = list["runtimes"].as_array().expect("a list");
        let of = runtimes.iter().find(|of| of["member"] == member);
        of.and_then(|of| of["flows"].as_u64()).expect("it is listed")
    })
}

/// A flow as words of a command.
fn words_of(flow: &Value) -> [&str; 3] {
    ["protocol", "source", "destination"].map(|name| flow[name].as_str().expect("a word"))
}

#[test]
fn commands_over_the_cluster_reach_all_members_as_certificates_allow() {
    let site = Site::of("wide", false, FLOWS, COUNTED);
    let [front, left, right] = site.all();
    let began = Instant::now();
    let status = loop {
        // Each flow has had its first packet after some thousands.
        let status = until_all_answer(&site);
        if status["flows"]["active"] == FLOWS {
            break status;
        }
        assert!(began.elapsed() < PATIENCE, "{status}");
    };
    figures_are_all_members(&site, &status, &front);
    let flow = flows_are_all_members(&site);
    rights_are_the_certificates(&site);
    flows_move(&site, &flow);
    what_does_not_fit_is_refused(&site);
    one_member_ends(&site, right);
    for member in [front, left] {
        member.stop(&site.folder);
    }
}

const FLOWS: u32 = 1500;
/// A function that answers words.
const COUNTED: &str =
    "[[chain]]\nname = \"icmp\"\nmatch = { protocol = \"icmp\" }\nfunctions = [\"counter\"]\n";

fn figures_are_all_members(site: &Site, status: &Value, front: &Member) {
    let whose = |what: &str, number: &str| -> Vec<(u64, String)> {
        let all = status[what].as_array().expect("a list").iter();
        let of = |of: &Value| (of[number].as_u64(), of["member"].as_str().map(str::to_owned));
        all.filter_map(|one| Some((of(one).0?, of(one).1?))).collect()
    };
    let named = |number: u64, member: &str| (number, member.to_owned());
    assert_eq!(
        whose("runtimes", "runtime"),
        [named(0, "left"), named(1, "right")]
    );
    assert_eq!(whose("switches", "switch"), [named(0, "front")]);
    assert!(status["packets"]["in"].as_u64() <= Some(front.status().packets.r#in));
    assert!(status["packets"]["in"].as_u64() > Some(0));
    let text = wide(site, "read", &["status"]);
    assert_eq!(text.code, 0, "{}", text.err);
    assert!(
        text.out.contains("Member") && text.out.contains("right"),
        "{}",
        text.out
    );
    let top = wide(site, "read", &["top", "--once", "--interval", "200ms", "--json"]);
    assert_eq!(top.code, 0, "{}", top.err);
    assert_eq!(top.json()["runtimes"].as_array().map(Vec::len), Some(2));
    let one = wide(site, "read", &["status", "--member", "left", "--json"]).json();
    assert_eq!(
        (&one["member"], one["runtimes"].as_array().map(Vec::len)),
        (&"left".into(), Some(1))
    );
}

/// All are listed, with their members; and one of them is answered.
fn flows_are_all_members(site: &Site) -> Value {
    let done = wide(site, "read", &["flow", "list", "--json", "--limit", "10000"]);
    assert_eq!(done.code, 0, "{}", done.err);
    let list = done.json();
    let all = list["flows"].as_array().expect("a list");
    assert_eq!(all.len(), FLOWS as usize);
    assert_eq!(list["cut"], false);
    let of = |member: &str| all.iter().filter(|flow| flow["member"] == member).count() as u64;
    assert_eq!([of("left"), of("right")], at(site));
    let cut = wide(site, "read", &["flow", "list", "--json", "--limit", "10"]);
    assert_eq!((cut.code, &cut.json()["cut"]), (0, &Value::Bool(true)));
    assert!(
        cut.err.contains("there are more flows than are listed (10)"),
        "{}",
        cut.err
    );
    pages_have_all(site, all);
    let mut of_right = all.iter().filter(|flow| flow["member"] == "right");
    let flow = of_right.next().expect("it has some").clone();
    let [protocol, source, destination] = words_of(&flow);
    let shown = wide(
        site,
        "read",
        &["flow", "show", protocol, source, destination, "--json"],
    );
    assert_eq!(shown.code, 0, "{}", shown.err);
    assert_eq!(shown.json()["member"], "right");
    // The switch is one process's, and the flow another's.
    let words = ["flow", "explain", protocol, source, destination, "--json"];
    let told = wide(site, "read", &words).json();
    assert_eq!(
        (&told["by"], &told["runtime"]),
        (&"flow".into(), &1.into()),
        "{told}"
    );
    assert_eq!(told["flow"]["member"], "right", "{told}");
    assert!(told["switch"].is_u64(), "{told}");
    let front = wide(site, "read", &[&words[..], &["--member", "front"]].concat()).json();
    assert_eq!(
        (&front["flow"], &front["is_flow_known"]),
        (&Value::Null, &false.into()),
        "{front}"
    );
    let new = ["flow", "explain", protocol, "10.9.9.9:1", "10.9.9.8:2", "--json"];
    assert_eq!(wide(site, "read", &new).json()["is_flow_known"], true);
    let none = wide(site, "read", &["flow", "show", "tcp", "10.9.9.9:1", "10.9.9.9:2"]);
    none.refused(1, &["there is no flow"]);
    flow
}

/// Page by page, each flow once, to the end.
fn pages_have_all(site: &Site, all: &[Value]) {
    let (mut seen, mut after, mut pages) = (Vec::new(), "0:0".to_owned(), 0);
    loop {
        let words = ["flow", "list", "--json", "--limit", "400", "--after", &after];
        let page = wide(site, "read", &words);
        assert_eq!(page.code, 0, "{}", page.err);
        let page = page.json();
        seen.extend(
            page["flows"]
                .as_array()
                .expect("a list")
                .iter()
                .map(words_in_full),
        );
        pages += 1;
        match page["next"].as_str() {
            Some(next) => after = next.to_owned(),
            None => break,
        }
    }
    let mut whole: Vec<_> = all.iter().map(words_in_full).collect();
    seen.sort_unstable();
    whole.sort_unstable();
    assert_eq!((seen, pages), (whole, FLOWS / 400 + 1));
}

fn words_in_full(flow: &Value) -> String {
    words_of(flow).join(" ")
}

fn rights_are_the_certificates(site: &Site) {
    let before = at(site);
    let drain = ["runtime", "drain", "1"];
    wide(site, "read", &drain).refused(1, &["role-without-right", "`operate`", "--name operate"]);
    wide(site, "read", &["flow", "delete", "--all"]).refused(1, &["role-without-right"]);
    wide(site, "operate", &["stop", "--member", "left"]).refused(1, &["role-without-right", "`admin`"]);
    wide(site, "read", &["runtime", "kill", "1", "--unprotected"]).refused(1, &["role-without-right"]);
    wide(site, "stranger", &drain).refused(2, &["has no certificate `stranger`"]);
    // Another cluster's certificate, and one of that cluster with this one's authority.
    let other = site.folder.0.join("other").display().to_string();
    assert!(flowkeep(&["cluster", "init", &other]).0);
    shown_with(&site.coordinator, &other, "admin", &drain).refused(1, &["no connection"]);
    let authority = Path::new(&site.coordinator.folder).join("ca.pem");
    std::fs::copy(authority, Path::new(&other).join("ca.pem")).expect("it is copied");
    assert_eq!(shown_with(&site.coordinator, &other, "admin", &drain).code, 1);
    assert_eq!(at(site), before, "nothing has changed");
    let list = wide(site, "read", &["runtime", "list", "--json"]).json();
    let runtimes = list["runtimes"].as_array().expect("a list");
    assert!(runtimes.iter().all(|of| of["leaving"] == false), "{list}");
    let view = site.coordinator.view().expect("it answers");
    for name in ["role-without-right", "certificate-unknown"] {
        assert!(view["refused"][name].as_u64() > Some(0), "{name}: {view}");
    }
}

/// A drain, a resume, orders to move and to end flows: each goes to the member that it concerns.
fn flows_move(site: &Site, flow: &Value) {
    let drained = wide(site, "operate", &["runtime", "drain", "1", "--json"]);
    assert_eq!(drained.code, 0, "{}", drained.err);
    assert_eq!(drained.json()["flows_left"], 0);
    assert_eq!(at(site), [u64::from(FLOWS), 0]);
    an_answer_has_a_bound(site);
    let resumed = wide(site, "operate", &["runtime", "resume", "1"]);
    assert_eq!(resumed.code, 0, "{}", resumed.err);
    let some = [
        "flow", "migrate", "--all", "--from", "0", "--to", "1", "--count", "100", "--json",
    ];
    let some = wide(site, "operate", &some);
    assert_eq!(some.code, 0, "{}", some.err);
    assert_eq!(some.json()["flows_moved"], 100);
    assert_eq!(at(site), [u64::from(FLOWS) - 100, 100]);
    let all = wide(
        site,
        "operate",
        &["flow", "migrate", "--all", "--to", "0", "--json"],
    );
    assert_eq!(
        (all.code, &all.json()["flows_moved"]),
        (0, &100.into()),
        "{}",
        all.err
    );
    let one: Vec<&str> = ["flow", "migrate"].into_iter().chain(words_of(flow)).collect();
    let moved = wide(site, "operate", &[&one[..], &["--to", "1", "--json"]].concat());
    assert_eq!(
        (moved.code, &moved.json()["flows_moved"]),
        (0, &1.into()),
        "{}",
        moved.err
    );
    wide(site, "operate", &[&one[..], &["--to", "1"]].concat()).refused(1, &["is at runtime 1 already"]);
    let none = wide(site, "operate", &["runtime", "drain", "7"]);
    none.refused(1, &["no member has runtime 7", "0 (left), 1 (right)"]);
    // Deleted flows begin again with their next packets.
    let ended = wide(site, "operate", &["flow", "delete", "--all", "--json"]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(
        ended.json()["flows_ended"].as_u64() >= Some(u64::from(FLOWS) / 2),
        "{}",
        ended.out
    );
    let said = wide(site, "operate", &["function", "counter", "counts", "--json"]);
    assert_eq!(said.code, 0, "{}", said.err);
    let said = said.json();
    let answers = said["answers"].as_array().expect("a list").iter();
    let whose: Vec<_> = answers
        .map(|of| (of["runtime"].as_u64(), of["member"].as_str()))
        .collect();
    assert_eq!(whose, [(Some(0), Some("left")), (Some(1), Some("right"))]);
    let none = wide(site, "operate", &["function", "flow_monitor", "help"]);
    none.refused(1, &["member `left`", "member `right`", "takes no commands"]);
}

/// More flows than an answer may have are refused by name, and the tool asks for fewer.
fn an_answer_has_a_bound(site: &Site) {
    let request = br#"{"ask":"flows","from":"0:0","limit":1000}"#;
    assert!(is_refused(relay(site, "left", request), Refusal::TooLong));
    let list = wide(site, "read", &["flow", "list", "--json", "--limit", "10000"]).json();
    assert_eq!(list["flows"].as_array().map(Vec::len), Some(FLOWS as usize));
}

/// Bytes to a member, with a certificate to read.
fn relay(site: &Site, member: &str, request: &[u8]) -> Result<Vec<u8>, CallError> {
    let operator = Operator {
        addresses: vec![site.coordinator.address.clone()],
        identity: Identity::read(Path::new(&site.coordinator.folder), "read").expect("it is there"),
    };
    let mut line = operator.connect().expect("it answers");
    let mut answers = line.relay(vec![(member.to_owned(), request.to_vec())]);
    answers.remove(0)
}

/// Whether this was refused, by this name.
fn is_refused(answer: Result<Vec<u8>, CallError>, by: Refusal) -> bool {
    matches!(&answer, Err(CallError::Refused(status)) if refusal::is(status, by))
}

fn what_does_not_fit_is_refused(site: &Site) {
    wide(site, "admin", &["stop"]).refused(1, &["--member", "front, left, right"]);
    wide(site, "admin", &["order", "list"]).refused(1, &["--member"]);
    let orders = wide(site, "read", &["order", "list", "--member", "left"]);
    assert_eq!(orders.code, 0, "{}", orders.err);
    wide(site, "admin", &["chain", "rollback", "--member", "left"])
        .refused(1, &["in all members or in none"]);
    wide(site, "admin", &["chain", "rollback"]).refused(1, &["no configuration to go back to"]);
    wide(site, "admin", &["chain", "confirm", "--member", "left"]).refused(1, &["in all members or in none"]);
    wide(site, "admin", &["chain", "confirm"]).refused(1, &["not-on-trial"]);
    wide(site, "operate", &["runtime", "kill", "7"]).refused(1, &["runtime 7", "Nothing was killed"]);
    wide(site, "admin", &["runtime", "remove", "1"]).refused(1, &["come and go with its process"]);
    // A watch of one connection is a socket's.
    let watch = br#"{"ask":"watch","flows":{}}"#;
    assert!(is_refused(relay(site, "left", watch), Refusal::OneProcess));
    // Words and environment that leave open the place that is asked, or the operator that asks.
    let environment = |words: &[&str], set: &[(&str, &str)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowkeep"));
        command
            .args(words)
            .env_remove("FLOWKEEP_SOCKET")
            .envs(set.iter().copied());
        let output = command.output().expect("it runs");
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        Done {
            code: output.status.code().unwrap_or(-1),
            out: String::new(),
            err,
        }
    };
    let cluster = ("FLOWKEEP_CLUSTER", site.coordinator.address.as_str());
    let both = [cluster, ("FLOWKEEP_SOCKET", "left.sock")];
    environment(&["status"], &both).refused(2, &["say --cluster or --socket"]);
    environment(&["status"], &[cluster]).refused(2, &["--identity"]);
    environment(&["status", "--member", "left"], &[]).refused(2, &["--cluster"]);
    let identity = ("FLOWKEEP_IDENTITY", site.coordinator.folder.as_str());
    assert_eq!(
        environment(&["capture", "--count", "1"], &[cluster, identity]).code,
        0
    );
    assert_eq!(environment(&["status"], &[cluster, identity]).code, 0);
    // Bytes that are no request are refused, and members do not hear them.
    for wrong in ["", "{}", "\u{0}\u{1}\u{2}", "{\"ask\":\"everything\"}"] {
        let answer = relay(site, "left", wrong.as_bytes());
        assert!(is_refused(answer, Refusal::Malformed), "{wrong}");
    }
    assert!(is_refused(
        relay(site, "left", &[b' '; 70_000]),
        Refusal::Malformed
    ));
    let watch = relay(site, "left", br#"{"ask":"observed"}"#);
    assert!(is_refused(watch, Refusal::OneProcess));
    let away = relay(site, "elsewhere", br#"{"ask":"status"}"#);
    assert!(is_refused(away, Refusal::MemberAway));
    until_all_answer(site);
}

fn one_member_ends(site: &Site, mut right: Member) {
    let stopped = wide(site, "admin", &["stop", "--member", "right"]);
    assert_eq!(stopped.code, 0, "{}", stopped.err);
    right.ended(&site.folder);
    let began = Instant::now();
    loop {
        let done = wide(site, "read", &["status", "--json"]);
        if done.code == 0 && members(&done.json()) == ["front", "left"] {
            let status = done.json();
            let of = status["members"]
                .as_array()
                .expect("a list")
                .iter()
                .find(|of| of["member"] == "right");
            let why = of.and_then(|of| of["problem"].as_str()).expect("it is named");
            assert!(why.contains("not in the coordinator's view"), "{why}");
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{} {}", done.out, done.err);
    }
}

#[test]
fn a_member_that_does_not_answer_is_named_and_the_others_are_given() {
    let site = Site::of("wide-silent", false, 400, COPIES);
    let [front, left, right] = site.all();
    passes(&front, 2000);
    until_all_answer(&site);
    let set = wide(&site, "operate", &["replication", "set", "all", "snapshot"]);
    assert_eq!(set.code, 0, "{}", set.err);
    answers_that_are_none(&site, &left);
    until_all_answer(&site);
    let of_left = flows(&left.status());
    right.signal("-STOP");
    let began = Instant::now();
    let done = wide(&site, "read", &["status", "--json"]);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    done.refused(1, &["without right", "member-silent"]);
    let status = done.json();
    assert_eq!(members(&status), ["front", "left"]);
    assert!(
        status["missing"]["right"]
            .as_str()
            .is_some_and(|why| why.contains("member-silent")),
        "{status}"
    );
    assert!(status["flows"]["active"].as_u64() >= Some(of_left), "{status}");
    right.signal("-CONT");
    until_all_answer(&site);
    for member in [front, left, right] {
        member.stop(&site.folder);
    }
}

/// Another process that has a member's certificate answers in its place: a malformed answer is
/// named, and the others are given.
fn answers_that_are_none(site: &Site, left: &Member) {
    let state = site.folder.0.join("state").join("right.identity");
    let identity = Identity::read(&state, "right").expect("it has joined");
    let longer = coordinator::relay::ANSWER_MAX + 1;
    for (answer, says) in [
        (b"\xff\x00noise".to_vec(), "this answer cannot be read"),
        (b"{\"ok\":{\"status\":{}}}".to_vec(), "this answer cannot be read"),
        (Vec::new(), "this answer cannot be read"),
        (vec![b'x'; longer], "answer-too-long"),
    ] {
        let answerer = Arc::new(move |_: &[u8]| answer.clone());
        let at = vec![site.coordinator.address.clone()];
        let _serving = Serving::start(at, identity.clone(), answerer).expect("it starts");
        let began = Instant::now();
        loop {
            let done = wide(site, "read", &["status", "--json"]);
            if done.err.contains(says) {
                done.refused(1, &["without right"]);
                assert_eq!(members(&done.json()), ["front", "left"]);
                break;
            }
            assert!(began.elapsed() < PATIENCE, "{says}: {} {}", done.out, done.err);
        }
    }
    assert!(flows(&left.status()) > 0);
}
