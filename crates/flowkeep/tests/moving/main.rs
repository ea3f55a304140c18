//! The commands that move flows, as a person types them: their effects, their output, and their
//! refusals.

mod added;
mod billed;
#[path = "../running/mod.rs"]
mod running;

use running::{Running, text};
use serde_json::Value;
use std::process::Output;
use std::time::{Duration, Instant};

/// So many flows, each of which says something all the time.
fn profile(flows: u32) -> String {
    format!(
        "seed = 1\nflows = {flows}\nrate = {{ total = 10000.0 }}\npace = \"clock\"\nsources = [\"10.0.0.0/24\"]\n\
         source_ports = [1024, 5000]\ndestinations = [\"192.0.2.1/32\"]\ndestination_ports = [53]\n[[classes]]\nshare = 1.0\ntcp = 0.0\n"
    )
}

/// Flows that have nothing to do with each other: each is a group.
fn cluster(name: &str, runtimes: u32, flows: u32, flows_max: u32) -> Running {
    let running = starting(name, runtimes, flows, flows_max);
    let began = Instant::now();
    while flows_of(&running).iter().sum::<u64>() < u64::from(flows.min(flows_max * runtimes)) {
        assert!(began.elapsed() < running::PATIENCE, "{:?}", flows_of(&running));
        std::thread::sleep(Duration::from_millis(20));
    }
    running
}

/// The same, before its flows have begun.
fn starting(name: &str, runtimes: u32, flows: u32, flows_max: u32) -> Running {
    Running::start(name, &profile(flows), |profile| {
        format!(
            "runtimes = {runtimes}\nflows_max = {flows_max}\n\
             [[port]]\nname = \"lan\"\nside = \"inside\"\ninput = \"generate:{profile}\"\n\
             [[port]]\nname = \"world\"\nside = \"outside\"\noutput = \"pcap:/dev/null\"\n\
             [[chain]]\nname = \"watched\"\nfunctions = [\"flow_monitor\"]\n[log]\nevents = \"{profile}.events\"\n"
        )
    })
}

fn list(running: &Running) -> Vec<Value> {
    let (code, list, said) = json(&running.ask(&["runtime", "list", "--json"]));
    assert_eq!(code, 0, "{said}");
    list["runtimes"].as_array().unwrap().clone()
}

/// The flows of each runtime.
fn flows_of(running: &Running) -> Vec<u64> {
    list(running)
        .iter()
        .map(|runtime| runtime["flows"].as_u64().unwrap())
        .collect()
}

/// Exit code, standard output as JSON, and all of it as text.
fn json(output: &Output) -> (i32, Value, String) {
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    let value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (output.status.code().unwrap_or(-1), value, said)
}

/// The receipt of a command that does all of it with `--json`; nothing else is printed.
#[track_caller]
fn receipt(running: &Running, words: &str) -> Value {
    let words: Vec<&str> = words.split(' ').chain(["--json"]).collect();
    let output = running.ask(&words);
    let (code, receipt, said) = json(&output);
    assert_eq!(
        (code, text(&output.stderr).as_str()),
        (0, ""),
        "{words:?}: {said}"
    );
    assert_eq!(receipt["over"], true, "{said}");
    receipt
}

/// Text and code of a command that cannot do it; nothing is on standard output but a receipt.
#[track_caller]
fn refused(running: &Running, words: &str, code: i32, says: &[&str]) -> String {
    let words: Vec<&str> = words.split_whitespace().collect();
    let output = running.ask(&words);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
    for part in says {
        assert!(said.contains(part), "{words:?}: no {part:?} in: {said}");
    }
    text(&output.stdout)
}

#[test]
fn flows_are_moved_by_command() {
    let running = cluster("migrate", 3, 300, 1000);
    let before = flows_of(&running);
    assert!(before.iter().all(|flows| *flows > 50), "{before:?}");

    // All flows go to one runtime: the receipt counts the others' flows.
    let to = receipt(&running, "flow migrate --all --to 1");
    assert_eq!(flows_of(&running), [0, 300, 0]);
    assert_eq!(to["flows_moved"].as_u64(), Some(300 - before[1]), "{to}");
    assert_eq!(
        (&to["flows_refused"], &to["flows_failed"]),
        (&Value::from(0), &Value::from(0)),
        "{to}"
    );
    assert!(
        to["bytes"].as_u64() > Some(0) && to["pause_longest_ns"].as_u64() > Some(0),
        "{to}"
    );
    // Again: there is nothing to move.
    let again = receipt(&running, "flow migrate --all --to 1");
    assert_eq!(again["flows_asked"], 0, "{again}");

    // To several, in turn; and to all others, where the order names no target.
    receipt(&running, "flow migrate --all --to 0 --to 2");
    assert_eq!(flows_of(&running), [150, 0, 150]);
    receipt(&running, "flow migrate --all --from 0");
    assert_eq!(flows_of(&running), [0, 75, 225]);

    // By their address, before translation.
    receipt(&running, "flow migrate --all --to 0");
    let some = receipt(&running, "flow migrate --address 10.0.0.0/25 --to 2");
    let some = some["flows_moved"].as_u64().unwrap();
    assert!((1..300).contains(&some), "{some}");
    let list = running.ask(&["flow", "list", "--json"]);
    let list: Value = serde_json::from_slice(&list.stdout).unwrap();
    for flow in list["flows"].as_array().unwrap() {
        let host: u8 = flow["source"]
            .as_str()
            .unwrap()
            .split(['.', ':'])
            .nth(3)
            .unwrap()
            .parse()
            .unwrap();
        assert_eq!(flow["runtime"], if host < 128 { 2 } else { 0 }, "{flow}");
    }
    let none = running.ask(&["flow", "migrate", "--address", "172.16.0.0/12", "--to", "1"]);
    let said = text(&none.stdout);
    assert!(
        none.status.success() && said.contains("no flow was meant, so none has moved"),
        "{said}"
    );
}

#[test]
fn one_flow_is_moved_by_command() {
    let running = cluster("one", 2, 50, 1000);
    receipt(&running, "flow migrate --all --to 0");
    let flow = running.ask(&["flow", "list", "--limit", "1", "--json"]);
    let flow: Value = serde_json::from_slice(&flow.stdout).unwrap();
    let (source, destination) = (&flow["flows"][0]["source"], &flow["flows"][0]["destination"]);
    let (source, destination) = (source.as_str().unwrap(), destination.as_str().unwrap());
    let moved = receipt(
        &running,
        &format!("flow migrate udp {source} {destination} --to 1"),
    );
    assert_eq!(
        (&moved["flows_asked"], &moved["flows_moved"]),
        (&Value::from(1), &Value::from(1)),
        "{moved}"
    );
    assert_eq!(flows_of(&running), [49, 1]);
    // By the other direction's key, without a target; and by number.
    receipt(&running, &format!("flow migrate 17 {destination} {source}"));
    assert_eq!(flows_of(&running), [50, 0]);

    // The flow is where it is to go, or is not where it should be, or is not there: nothing moves,
    // and that is a failure.
    let flow = format!("flow migrate udp {source} {destination}");
    refused(
        &running,
        &format!("{flow} --to 0"),
        1,
        &["is at runtime 0 already; it has not moved"],
    );
    refused(
        &running,
        &format!("{flow} --from 1 --to 0"),
        1,
        &["is at runtime 0; nothing has been done"],
    );
    let other = format!("flow migrate tcp {source} {destination} --to 1");
    refused(
        &running,
        &other,
        1,
        &["there is no flow tcp", "`flowkeep flow list` shows which"],
    );
    let other = format!("flow migrate udp {source} {destination} --vlan 7 --to 1");
    refused(&running, &other, 1, &["there is no flow udp"]);
    refused(
        &running,
        "flow migrate icmp 10.9.9.9:0 10.9.9.8:0 --to 1",
        1,
        &["there is no flow icmp"],
    );
    assert_eq!(flows_of(&running), [50, 0]);
}

#[test]
fn runtimes_are_drained_and_resumed_by_command() {
    let running = cluster("drain", 3, 300, 1000);
    let before = flows_of(&running);
    let drained = receipt(&running, "runtime drain 1");
    assert_eq!(
        (&drained["runtime"], &drained["leaving"]),
        (&Value::from(1), &Value::from(true)),
        "{drained}"
    );
    assert_eq!(
        (drained["flows_moved"].as_u64(), &drained["flows_left"]),
        (Some(before[1]), &Value::from(0))
    );
    let after = flows_of(&running);
    assert_eq!((after[1], after[0] + after[2]), (0, 300), "{after:?}");
    // The next one's flows go to the runtime that is left, not to the drained one.
    let drained = receipt(&running, "runtime drain 2");
    assert_eq!(
        (&drained["flows_refused"], flows_of(&running)),
        (&Value::from(0), vec![300, 0, 0]),
        "{drained}"
    );
    let shown = text(&running.ask(&["runtime", "list"]).stdout);
    let states: Vec<&str> = shown
        .lines()
        .filter_map(|line| line.split_whitespace().nth(1))
        .collect();
    assert_eq!(states, ["standing", "active", "drained", "drained"], "{shown}");

    // No runtime would take the last one's flows: it stays as it is.
    for (words, state) in [
        ("runtime drain 0", "nothing has changed"),
        ("flow migrate --all --from 0", "none has moved"),
    ] {
        let says =
            format!("no other runtime takes the flows of runtime 0 (1 is drained, 2 is drained); {state}");
        refused(&running, words, 1, &[&says, "flowkeep runtime resume N"]);
    }
    refused(
        &running,
        "flow migrate --all --to 2",
        1,
        &[
            "runtime 2 is drained",
            "nothing has moved",
            "flowkeep runtime resume 2",
        ],
    );
    assert_eq!(list(&running)[0]["leaving"], false);
    assert_eq!(flows_of(&running), [300, 0, 0]);

    let resumed = running.ask(&["runtime", "resume", "2"]);
    assert_eq!(text(&resumed.stdout), "runtime 2 takes new flows again\n");
    // Where flows were moved from they do not come back by themselves.
    assert_eq!(flows_of(&running), [300, 0, 0]);
    let (code, resumed, _) = json(&running.ask(&["runtime", "resume", "1", "--json"]));
    assert_eq!((code, &resumed["leaving"]), (0, &Value::from(false)), "{resumed}");
    receipt(&running, "flow migrate --all --from 0");
    assert_eq!(flows_of(&running), [0, 150, 150]);
}

#[test]
fn what_a_full_runtime_refuses_stays_and_is_told() {
    // Both have more than half of their most flows.
    let running = cluster("full", 2, 200, 120);
    let before = flows_of(&running);
    let room = 120 - before[0];
    assert!(room > 0 && before[1] > room, "{before:?}");
    let output = running.ask(&["runtime", "drain", "1", "--json"]);
    let (code, drained, said) = json(&output);
    let left = before[1] - room;
    assert_eq!(code, 1, "{said}");
    assert_eq!(drained["flows_moved"].as_u64(), Some(room), "{drained}");
    assert_eq!(drained["flows_left"].as_u64(), Some(left), "{drained}");
    assert_eq!(drained["flows_refused"].as_u64(), Some(left), "{drained}");
    let said = text(&output.stderr);
    for part in [
        &format!(
            "runtime 1 takes no flows any more, and goes on with {left} flows: {left} refused by a runtime that is full or drained"
        ),
        "Say `flowkeep runtime drain 1` again to move them, or `flowkeep runtime resume 1`",
    ] {
        assert!(said.contains(part), "no {part:?} in: {said}");
    }
    let shown = text(&running.ask(&["runtime", "list"]).stdout);
    assert!(shown.contains("draining"), "{shown}");
    assert_eq!(flows_of(&running), [120, left]);
    // The full one, when it is named: each flow is refused there, and the receipt says so.
    let printed = refused(
        &running,
        "flow migrate --all --from 1 --to 0",
        1,
        &["All of them go on where they are"],
    );
    assert!(printed.contains(&format!("moved 0, refused {left}")), "{printed}");
    assert_eq!(flows_of(&running), [120, left]);
}

#[test]
fn what_one_runtime_refuses_is_offered_to_another() {
    // Room for 120 each. Runtime 0 has little left when runtime 2 is drained, in turn to both, and
    // runtime 1 has much.
    let running = cluster("again", 3, 200, 120);
    receipt(&running, "flow migrate --address 10.0.0.0/25 --from 1 --to 0");
    let before = flows_of(&running);
    let room = [120 - before[0], 120 - before[1]];
    assert!(
        room[0] + 1 < before[2] / 2 && room[1] > before[2],
        "so it is no test: {before:?}"
    );
    let drained = receipt(&running, "runtime drain 2");
    let half = before[2] / 2;
    let again = drained["flows_offered_again"].as_u64().unwrap();
    assert!(
        (half - room[0]..=half + 1 - room[0]).contains(&again),
        "{before:?}: {drained}"
    );
    for (name, count) in [
        ("flows_asked", before[2]),
        ("flows_moved", before[2]),
        ("flows_refused", 0),
        ("flows_left", 0),
    ] {
        assert_eq!(drained[name].as_u64(), Some(count), "{name}: {drained}");
    }
    assert_eq!(flows_of(&running), [120, 80, 0]);
}

#[test]
fn the_last_that_takes_flows_is_drained_where_that_is_forced() {
    let running = cluster("last", 2, 50, 1000);
    receipt(&running, "runtime drain 1");
    refused(
        &running,
        "runtime drain 0",
        1,
        &[
            "no other runtime takes the flows of runtime 0 (1 is drained); nothing has changed",
            "With `flowkeep runtime drain 0 --force` it is drained all the same: its flows stay there",
        ],
    );
    assert_eq!(list(&running)[0]["leaving"], false);
    let output = running.ask(&["runtime", "drain", "0", "--force", "--json"]);
    let (code, drained, said) = json(&output);
    assert_eq!(code, 1, "{said}");
    let told = (
        &drained["leaving"],
        drained["flows_left"].as_u64(),
        &drained["flows_moved"],
    );
    assert_eq!(told, (&Value::from(true), Some(50), &Value::from(0)), "{said}");
    for part in [
        "no other runtime takes the flows of runtime 0 (1 is drained); none has moved",
        "runtime 0 is drained all the same, as `--force` has it, and keeps what it has (50 flows): that stays there and goes on",
        "as long as all are drained, they go to all of them",
        "say `flowkeep runtime drain 0` to move them there, or `flowkeep runtime resume 0`",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains("nothing has changed"), "{said}");
    assert_eq!(list(&running)[0]["leaving"], true);
    // The list's objects say the same as its words.
    let state = list(&running)[0]["standing"].clone();
    let words = running.ask(&["runtime", "list"]);
    assert!(
        text(&words.stdout).contains(&format!(" {} ", state.as_str().unwrap())),
        "{state}"
    );
    assert!(
        ["drained", "draining"].contains(&state.as_str().unwrap()),
        "{state}"
    );
    assert_eq!(flows_of(&running), [50, 0]);
    // As it says: when another takes flows again, it has to be said again.
    assert!(running.ask(&["runtime", "resume", "1"]).status.success());
    assert_eq!(flows_of(&running), [50, 0]);
    receipt(&running, "runtime drain 0");
    assert_eq!(flows_of(&running), [0, 50]);
    // A runtime without flows is drained, and that is all.
    receipt(&running, "flow migrate --all --to 1");
    assert!(running.ask(&["runtime", "resume", "0"]).status.success());
    receipt(&running, "runtime drain 0");
    let output = running.ask(&["runtime", "drain", "1", "--force"]);
    assert_eq!(output.status.code(), Some(1));
    receipt(&running, "runtime drain 0 --force");
    assert_eq!(flows_of(&running), [0, 50]);
    assert!(running.ask(&["runtime", "resume", "0"]).status.success());
}

/// The words about new flows when all are drained are true.
#[test]
fn while_all_are_drained_new_flows_go_to_them() {
    // Nearly each packet begins a flow.
    let running = starting("all-drained", 2, 200_000, 200_000);
    let until = |is_so: &dyn Fn(&[u64]) -> bool| {
        let began = Instant::now();
        loop {
            let flows = flows_of(&running);
            if is_so(&flows) {
                return flows;
            }
            assert!(began.elapsed() < running::PATIENCE, "{flows:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    receipt(&running, "runtime drain 1");
    let output = running.ask(&["runtime", "drain", "0", "--force"]);
    assert_eq!(output.status.code(), Some(1));
    let before: u64 = flows_of(&running).iter().sum();
    until(&|flows| flows.iter().sum::<u64>() > before + 500);
    assert!(list(&running).iter().all(|runtime| runtime["leaving"] == true));
    // One runtime takes flows again: from then on new flows go to it.
    assert!(running.ask(&["runtime", "resume", "1"]).status.success());
    let before = flows_of(&running);
    let after = until(&|flows| flows[1] > before[1] + 1000);
    assert!(
        2 * (after[0] - before[0]) < after[1] - before[1],
        "{before:?}: {after:?}"
    );
}

#[test]
fn orders_that_are_over_are_not_under_way() {
    let running = cluster("over", 2, 50, 1000);
    receipt(&running, "flow migrate --all --to 1");
    let list = running.ask(&["order", "list"]);
    assert_eq!(text(&list.stdout), "no order to move flows is under way\n");
    let (code, list, said) = json(&running.ask(&["order", "list", "--json"]));
    assert_eq!(
        (code, list["orders"].as_array().map(Vec::len)),
        (0, Some(0)),
        "{said}"
    );
    refused(
        &running,
        "order cancel 0",
        1,
        &[
            "no order 0 is under way: it is over, or there was none",
            "`flowkeep order list`",
        ],
    );
}

/// Flows end by command; those whose packets go on begin again.
#[test]
fn flows_are_deleted_by_command() {
    let running = cluster("delete", 2, 300, 1000);
    let ended = || -> u64 {
        let (_, status, _) = json(&running.ask(&["status", "--json"]));
        status["flows"]["ended"].as_u64().unwrap()
    };
    let deleted = |words: &str| -> u64 {
        let before = ended();
        let words: Vec<&str> = words.split(' ').chain(["--json"]).collect();
        let (code, done, said) = json(&running.ask(&words));
        assert_eq!((code, &done["flows_busy"]), (0, &Value::from(0)), "{said}");
        let count = done["flows_ended"].as_u64().unwrap();
        assert_eq!(ended() - before, count, "no flow of these ends by itself");
        count
    };
    let half = deleted("flow delete --address 10.0.0.0/25");
    assert!((50..=250).contains(&half), "{half}");
    let here = deleted("flow delete --all --from 1");
    assert!((1..300).contains(&here), "{here}");
    assert!((100..=300).contains(&deleted("flow delete --all")));

    let flows = running.ask(&["flow", "list", "--limit", "1", "--json"]);
    let (_, list, said) = json(&flows);
    let flow = list["flows"][0].clone();
    let key = ["source", "destination"]
        .map(|end| flow[end].as_str().unwrap_or_else(|| panic!("{said}")).to_owned());
    let output = running.ask(&["flow", "delete", "udp", &key[1], &key[0]]);
    // The runtimes are asked one behind the other: the flow's next packet may have begun it at the
    // second one.
    let ended = text(&output.stdout);
    assert!(
        ["1 flow has ended\n", "2 flows have ended\n"].contains(&ended.as_str()),
        "{ended}{}",
        text(&output.stderr)
    );
    let none = "flow delete tcp 10.9.9.9:1 10.9.9.8:2";
    refused(&running, none, 1, &["there is no flow", "`flowkeep flow list`"]);
    refused(
        &running,
        "flow delete --all --from 9",
        1,
        &["there is no runtime"],
    );
    refused(&running, "flow delete", 2, &["required", "--all"]);
    refused(
        &running,
        "flow delete --all --address 10.0.0.0/8",
        2,
        &["cannot be used with"],
    );
}

fn killed(running: &Running, words: &[&str]) -> Value {
    let output = running.ask(&[&["runtime", "kill"], words, &["--json"]].concat());
    let (code, killed, said) = json(&output);
    assert_eq!(code, 0, "{said}");
    killed
}

/// Of a runtime's flows one is shown: its copy is at the other.
fn shown_with_its_copy(running: &Running, runtime: usize) {
    let (_, list, said) = json(&running.ask(&["flow", "list", "--limit", "300", "--json"]));
    let flows = list["flows"].as_array().unwrap_or_else(|| panic!("{said}"));
    let flow = flows.iter().find(|flow| flow["runtime"] == runtime);
    let flow = flow.unwrap_or_else(|| panic!("{said}"));
    let [source, destination] = ["source", "destination"].map(|end| flow[end].as_str().unwrap());
    let (code, flow, said) = json(&running.ask(&["flow", "show", "udp", source, destination, "--json"]));
    assert_eq!((code, &flow["runtime"]), (0, &runtime.into()), "{said}");
    assert_eq!(flow["copy"]["replica"], 1 - runtime, "{said}");
    assert_eq!(flow["copy"]["there"], true, "{said}");
    assert!(flow["copy"]["behind_records"].is_u64(), "{said}");
}

/// Checks the receipt of a recovery: its flows, and its time, `most` at most.
fn has_receipt(heir: &Value, failed: usize, flows: u64, most: Duration) {
    let receipt = heir["recoveries"].as_array().and_then(|all| all.last()).unwrap();
    assert_eq!(
        (&receipt["failed"], &receipt["flows"], &receipt["lost"]),
        (&failed.into(), &flows.into(), &0.into())
    );
    let [waited, installed] = ["waited_ms", "installed_ms"].map(|part| receipt[part].as_f64().unwrap());
    let most = most.as_secs_f64() * 1e3;
    assert!(
        waited > 0.0 && installed > 0.0 && waited + installed < most,
        "{receipt}, {most} ms"
    );
}

/// In one process, while each of its flows says something all the time.
#[test]
fn a_runtime_is_killed_by_command_and_its_flows_go_on() {
    let running = Running::start("kill", &profile(300), |profile| {
        format!(
            "runtimes = 2\nflows_max = 1000\n[replication]\npolicy = \"commit\"\n\
             [[port]]\nname = \"lan\"\nside = \"inside\"\ninput = \"generate:{profile}\"\n\
             [[port]]\nname = \"world\"\nside = \"outside\"\noutput = \"pcap:/dev/null\"\n\
             [[chain]]\nname = \"out\"\nfunctions = [\"nat\"]\n[function.nat]\npool = [\"203.0.113.0/28\"]\n"
        )
    });
    let opened = || {
        list(&running)
            .iter()
            .map(|of| of["opened"].as_u64().unwrap())
            .sum::<u64>()
    };
    let until = |what: &str, is_so: &dyn Fn() -> bool| {
        let began = Instant::now();
        while !is_so() {
            assert!(
                began.elapsed() < running::PATIENCE,
                "{what}: {:?}",
                list(&running)
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let protected = || {
        list(&running)
            .iter()
            .all(|of| of["absent"] == true || of["protected_by"].is_u64())
    };
    until("all flows", &|| {
        flows_of(&running).iter().sum::<u64>() == 300 && protected()
    });
    for number in [1, 0] {
        let (before, other) = (flows_of(&running)[number], 1 - number);
        assert!(before > 0 && opened() == 300, "{:?}", list(&running));
        shown_with_its_copy(&running, number);
        let began = Instant::now();
        let gone = killed(&running, &[&number.to_string()]);
        assert_eq!(
            (&gone["flows"], &gone["protected_flows"]),
            (&before.into(), &before.into())
        );
        let recovered = || list(&running)[other]["recovered_flows"].as_u64() == Some(before);
        until("flows that go on", &recovered);
        has_receipt(&list(&running)[other], number, before, began.elapsed());
        assert_eq!(list(&running)[number]["absent"], true);
        assert_eq!((flows_of(&running)[number], flows_of(&running)[other]), (0, 300));
        refused(
            &running,
            &format!("runtime kill {number}"),
            1,
            &["is not in this process"],
        );
        let received = || list(&running)[other]["received"].as_u64().unwrap();
        let so_far = received();
        until("packets", &|| received() > so_far + 1000);
        // No flow has begun again.
        assert_eq!(opened(), 300);
        let began = Instant::now();
        let added = running.ask(&["runtime", "add", &number.to_string()]);
        assert!(added.status.success(), "{}", text(&added.stderr));
        until("copies", &protected);
        // The runtime that has the flows has had a replica for no longer than that.
        let took = list(&running)[other]["protection_seconds"].as_f64().unwrap();
        let most = began.elapsed().as_secs_f64();
        assert!(took > 0.0 && took < most, "{took}, {most}");
    }
    // Without a copy they end, and begin again where a runtime is.
    let set = running.ask(&["replication", "set", "out", "none"]);
    assert!(set.status.success(), "{}", text(&set.stderr));
    refused(
        &running,
        "runtime kill 1",
        1,
        &["300 flows, and 300 of them have no copy"],
    );
    let gone = killed(&running, &["1", "--unprotected"]);
    assert_eq!(
        (&gone["flows"], &gone["protected_flows"]),
        (&300.into(), &0.into())
    );
    until("flows that begin again", &|| flows_of(&running) == [300, 0]);
    assert_eq!(opened(), 600);
    // Copies are wanted again, while packets pass: each flow gets one, and goes on.
    let added = running.ask(&["runtime", "add", "1"]);
    assert!(added.status.success(), "{}", text(&added.stderr));
    let set = running.ask(&["replication", "set", "out", "commit"]);
    assert!(set.status.success(), "{}", text(&set.stderr));
    until("copies again", &|| {
        let first = &list(&running)[0];
        first["protected_by"] == 1 && first["protected_flows"] == 300
    });
    shown_with_its_copy(&running, 0);
    let began = Instant::now();
    let gone = killed(&running, &["0"]);
    assert_eq!(gone["protected_flows"], 300);
    until("flows that go on again", &|| flows_of(&running) == [0, 300]);
    has_receipt(&list(&running)[1], 0, 300, began.elapsed());
    assert_eq!(opened(), 600);
    let flows = json(&running.ask(&["status", "--json"])).1["flows"].clone();
    let count = |name: &str| flows[name].as_u64().unwrap();
    assert!(count("recovered") > 600, "{flows}");
    assert_eq!(
        count("opened") + count("recovered"),
        count("active") + count("ended"),
        "{flows}"
    );
}

#[test]
fn wrong_words_are_refused_with_what_to_write() {
    let running = cluster("words", 2, 20, 100);
    let key = "udp 10.0.0.1:1024 192.0.2.1:53";
    for (words, says) in [
        ("flow migrate".to_owned(), vec!["required", "--all"]),
        ("flow migrate --to 1".to_owned(), vec!["required", "--all"]),
        ("flow migrate --all".to_owned(), vec!["--to 1", "--from 0"]),
        (
            "flow migrate --address 10.0.0.0/24".to_owned(),
            vec!["--to 1", "--from 0"],
        ),
        (
            "flow migrate udp --to 1".to_owned(),
            vec!["<SOURCE>", "<DESTINATION>"],
        ),
        (
            "flow migrate udp 10.0.0.1 192.0.2.1:53".to_owned(),
            vec!["it has no port; write 10.0.0.1:443"],
        ),
        (
            "flow migrate uddp 10.0.0.1:1 192.0.2.1:53".to_owned(),
            vec!["uddp"],
        ),
        (format!("flow migrate {key} --all"), vec!["cannot be used with"]),
        (
            format!("flow migrate {key} --address 10.0.0.0/8"),
            vec!["cannot be used with"],
        ),
        (
            "flow migrate --all --address 10.0.0.0/8".to_owned(),
            vec!["cannot be used with"],
        ),
        (
            "flow migrate --address 10.0.0.0/33 --to 1".to_owned(),
            vec!["10.0.0.0/33"],
        ),
        ("flow migrate --all --to one".to_owned(), vec!["'one'", "--to"]),
        ("flow migrate --all --to 65536".to_owned(), vec!["65536"]),
        ("flow migrate --all --vlan 3".to_owned(), vec!["<PROTOCOL>"]),
        ("runtime drain".to_owned(), vec!["<RUNTIME>"]),
        ("runtime drain -1".to_owned(), vec!["-1"]),
        ("runtime resume one".to_owned(), vec!["'one'"]),
        ("runtime lst".to_owned(), vec!["list"]),
        ("runtime kill".to_owned(), vec!["<RUNTIME>"]),
        ("runtime kill one".to_owned(), vec!["'one'"]),
        ("runtime kill 1 --force".to_owned(), vec!["--force"]),
        ("order cancel".to_owned(), vec!["<ORDER>"]),
        ("order cancel one".to_owned(), vec!["'one'"]),
    ] {
        refused(&running, &words, 2, &says);
    }
    for words in [
        "flow migrate --all --to 12",
        "flow migrate --all --from 12",
        "runtime drain 12",
        "runtime resume 12",
    ] {
        refused(
            &running,
            words,
            1,
            &[
                "there is no runtime",
                "`flowkeep runtime list` shows which there are",
            ],
        );
    }
    refused(
        &running,
        "runtime kill 2",
        1,
        &[
            "runtime 2 is not in this process, which has runtimes 0, 1",
            "Nothing was killed",
        ],
    );
    let said = [
        "no copy at another runtime",
        "Nothing was killed",
        "runtime kill 1 --unprotected",
    ];
    refused(&running, "runtime kill 1", 1, &said);
    refused(
        &running,
        "flow migrate --all --from 1 --to 1",
        1,
        &["runtime 1 is where these flows are and where they are to go"],
    );
    assert!(list(&running).iter().all(|runtime| runtime["leaving"] == false));
}

#[test]
fn no_cluster_is_there_to_be_asked() {
    let mut running = cluster("absent", 2, 20, 100);
    running.cluster.kill().unwrap();
    running.cluster.wait().unwrap();
    for words in [
        "flow migrate --all --to 1",
        "runtime list",
        "runtime drain 1",
        "runtime resume 1",
        "order list",
        "order cancel 1",
    ] {
        refused(&running, words, 1, &["no Flowkeep answers at", "--socket"]);
    }
}
