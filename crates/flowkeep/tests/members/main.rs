//! A cluster of several processes: one switch and two nodes, started in any order, moved between,
//! stopped, killed.
//!
//! Each test is a folder with a configuration, keys and a process per member (`rig.rs`). The
//! packets that left, and the records, are compared with those that the generator made.
//!
//! Not here: links by themselves (their crates' tests); live traffic
//! (`tests/live/moving/members.rs`).

mod changed;
mod dying;
mod gone;
mod joined;
mod loaded;
mod loads;
mod logs;
#[path = "../live/machine.rs"]
mod machine;
mod more;
mod ordered;
mod ready;
mod rig;
mod scaled;
#[path = "../schema/mod.rs"]
mod schema;
#[path = "../../../stores/tests/servers/redis.rs"]
mod server;
mod shared;
mod stored;
mod terminal;
mod tried;
mod unlisted;
mod watched;
mod wide;

use flowkeep::report::Status;
use more::{finished, refused, wait_for_word};
use rig::{Folder, Member, PATIENCE};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Datagrams of so many flows that last, at a pace.
fn steady(flows: u32, rate: u32, packets: u64) -> String {
    format!(
        "flows = {flows}\nrate = {{ total = {rate}.0 }}\npace = \"clock\"\npackets_max = {packets}\nsources = [\"10.0.0.0/24\"]\n\
         source_ports = [1024, 60000]\ndestinations = [\"198.51.100.0/28\"]\ndestination_ports = [443, 80]\nseed = 3\n\
         [[classes]]\nshare = 1.0\ntcp = 0.0\n"
    )
}

/// The same, each flow of some packets only, so that new ones begin all the time.
fn brief(flows: u32, rate: u32, seconds: u32) -> String {
    steady(flows, rate, u64::from(rate) * u64::from(seconds)) + "life = { packets = { fixed = 20.0 } }\n"
}

const MONITOR: &str = "[[chain]]\nname = \"all\"\nfunctions = [\"flow_monitor\"]\n";

/// The sum of all records: by flow its packets and its records, and how many packets there are.
fn records(folder: &Folder, members: &[&str]) -> (BTreeMap<String, (u64, u32)>, u64) {
    let mut flows: BTreeMap<String, (u64, u32)> = BTreeMap::new();
    let mut packets = 0;
    for line in members.iter().flat_map(|member| {
        let text = folder.read(&format!("{member}.jsonl"));
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    }) {
        let value: serde_json::Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        if value["event"] != "flow" {
            continue;
        }
        let count = value["orig_packets"].as_u64().unwrap() + value["resp_packets"].as_u64().unwrap();
        let key = ["orig", "orig_port", "resp", "resp_port"]
            .map(|name| value[name].to_string())
            .join(" ");
        let flow = flows.entry(key).or_default();
        *flow = (flow.0 + count, flow.1 + 1);
        packets += count;
    }
    (flows, packets)
}

/// Over all processes: each packet that came in or was made is out, dropped or held.
#[track_caller]
fn adds_up(all: &[&Status]) {
    let sum = |of: &dyn Fn(&Status) -> u64| all.iter().map(|status| of(status)).sum::<u64>();
    let came = sum(&|status| status.packets.r#in + status.packets.made);
    let dropped = sum(&|status| status.packets.dropped.values().sum());
    let went = sum(&|status| status.packets.out + status.packets.held) + dropped;
    let shown: Vec<String> = all.iter().map(ToString::to_string).collect();
    assert_eq!(came, went, "{}", shown.join("\n"));
    for status in all {
        assert_eq!(status.packets.passing, 0, "{status}");
        assert_eq!(status.packets.held, 0, "{status}");
    }
}

/// Traffic at a pace through three processes, all flows moved from one to the other and back: each
/// packet comes out, each is in one record of its flow, and there is one record for each flow.
fn moved_back_and_forth(name: &str, has_hosts: bool) {
    const PACKETS: u64 = 120_000;
    const FLOWS: usize = 400;
    let folder = Folder::new(name);
    let hosts = [1, 2, 3].map(|number| match has_hosts {
        true => folder.host(number),
        false => "here".to_owned(),
    });
    let config = folder.members(&[
        ("front", "switches", &hosts[0]),
        ("left", "runtimes", &hosts[1]),
        ("right", "runtimes", &hosts[2]),
    ]) + &folder.generated(&steady(FLOWS as u32, 20_000, PACKETS))
        + MONITOR;
    let config = folder.write("cluster.toml", &config);
    // In this order on purpose: the last one to start is the first in the file.
    let right = Member::start(&folder, &config, "node", "right");
    let left = Member::start(&folder, &config, "node", "left");
    right.wait_until("the other node is to be there", |status| {
        status.links.iter().any(|link| link.is_there)
    });
    let mut front = Member::start(&folder, &config, "switch", "front");
    front.wait_for_all();
    front.wait_until("traffic is to flow", |status| status.packets.r#in > 5_000);
    let mut moved = 0;
    for _ in 0..10 {
        for (from, to) in [(&left, 1), (&right, 0)] {
            let receipt = from.migrate(to);
            assert_eq!(
                (
                    receipt.flows_refused,
                    receipt.flows_failed,
                    receipt.packets_dropped
                ),
                (0, 0, 0),
                "{receipt}"
            );
            moved += receipt.flows_moved;
        }
    }
    assert!(moved >= 10 * FLOWS as u64, "{moved} moves");
    let front = front.ended(&folder);
    // Packets without room on a machine that does other things are lost at the switch, before any
    // runtime has seen them; no others are.
    let busy = front.packets.dropped.get("runtime_busy").copied().unwrap_or(0);
    let passed = PACKETS - busy;
    assert_eq!(
        (front.packets.r#in, front.packets.out),
        (PACKETS, passed),
        "{front}"
    );
    assert!(passed > PACKETS / 2, "{front}");
    // A switch on another host is missed when it has been silent for a while; a move that waits for
    // its answer would not go on (docs/status.md).
    for node in [&left, &right] {
        node.wait_until("the switch is to be missed", |status| {
            status
                .links
                .iter()
                .any(|link| link.to == "switch 0" && !link.is_there)
        });
    }
    // Flows that one of them leaves would go to the other: the last one ends all.
    let left = left.stop(&folder);
    let right = right.stop(&folder);
    adds_up(&[&front, &left, &right]);
    let (flows, packets) = records(&folder, &["left", "right"]);
    assert_eq!(packets, passed);
    assert_eq!(flows.len(), FLOWS);
    assert!(flows.values().all(|(_, records)| *records == 1), "{flows:?}");
    println!(
        "{name}: {passed} packets of {FLOWS} flows, {moved} moves, nothing lost; for {busy} there was no room"
    );
}

#[test]
fn three_processes_of_one_host_are_a_cluster() {
    moved_back_and_forth("memory", false);
}

/// The same over Geneve and UDP, encrypted, each process on a host of its own.
#[test]
fn three_processes_of_three_hosts_are_a_cluster() {
    moved_back_and_forth("channel", true);
}

/// A switch and a node of two hosts, the node with keys of its own.
fn two_hosts(folder: &Folder, chain: &str) -> (std::path::PathBuf, std::path::PathBuf) {
    let text = folder.members(&[
        ("front", "switches", &folder.host(1)),
        ("left", "runtimes", &folder.host(2)),
    ]) + chain;
    let other = text.replace("edge.key", "other.key");
    // The seed is the first key's in both, so only the keys of the links differ.
    let seed = format!("[cluster]\nseed = \"{}\"\n", folder.0.join("edge.key").display());
    let with_seed = |text: &str| text.replacen("[cluster]\n", &seed, 1);
    (
        folder.write("cluster.toml", &with_seed(&text)),
        folder.write("other.toml", &with_seed(&other)),
    )
}

/// A member with another key has no session: its frames are counted, and `status` tells of them.
/// Keys are changed one member after the other without a gap.
#[test]
fn a_wrong_key_is_refused_and_keys_are_changed_without_a_gap() {
    let folder = Folder::new("keys");
    folder.key("other.key", 2);
    let traffic = folder.generated(&steady(50, 2000, 60_000)) + MONITOR;
    let (config, other) = two_hosts(&folder, &traffic);
    let front = Member::start(&folder, &config, "switch", "front");
    let mut left = Member::start(&folder, &other, "node", "left");
    let status = left.wait_until("frames with another key are to be counted", |status| {
        status
            .links
            .iter()
            .any(|link| link.refused.contains_key("unknown_key"))
    });
    assert!(status.links.iter().all(|link| !link.is_there), "{status}");
    assert!(status.to_string().contains("(unknown_key)"), "{status}");
    for (member, other) in [("front", "left"), ("left", "front")] {
        let word = format!("member `{other}` is not met: its frames have a key of a number that is in none");
        wait_for_word(&folder, member, &word);
    }
    assert!(
        status
            .to_string()
            .contains("member front is not met: its frames have a key"),
        "{status}"
    );
    assert_eq!(status.packets.from_others, 0);
    left.kill();

    // Both accept both, then both send with the new one, then both forget the old one.
    let text = folder.read("cluster.toml");
    let left = Member::start(&folder, &config, "node", "left");
    left.wait_for_all();
    let before = left.wait_until("traffic", |status| status.packets.from_others > 1000);
    let keys = |names: &[&str]| {
        let names: Vec<String> = names
            .iter()
            .map(|name| format!("\"{}\"", folder.0.join(name).display()))
            .collect();
        let line = text.lines().find(|line| line.starts_with("keys = ")).unwrap();
        folder.write(
            "cluster.toml",
            &text.replace(line, &format!("keys = [{}]", names.join(", "))),
        );
    };
    let mut steps = 0_usize;
    for names in [
        &["edge.key", "other.key"][..],
        &["other.key", "edge.key"],
        &["other.key"],
    ] {
        keys(names);
        for member in [&front, &left] {
            member.signal("-HUP");
            let told = Instant::now();
            steps += 1;
            while folder
                .read(&format!("{}.err", member.name))
                .matches("SIGHUP: links have the keys")
                .count()
                < steps.div_ceil(2)
            {
                assert!(
                    told.elapsed() < PATIENCE,
                    "{}",
                    folder.read(&format!("{}.err", member.name))
                );
                std::thread::sleep(Duration::from_millis(10));
            }
            let count = left.status().packets.from_others;
            left.wait_until("traffic goes on", |status| {
                status.packets.from_others > count + 200
            });
        }
    }
    // Other keys than the seed's without saying so.
    folder.write(
        "cluster.toml",
        &text
            .replace("seed = ", "# seed = ")
            .replace("edge.key", "other.key"),
    );
    front.signal("-HUP");
    let told = Instant::now();
    while !folder.read("front.err").contains("another seed for the hashes") {
        assert!(told.elapsed() < PATIENCE, "{}", folder.read("front.err"));
        std::thread::sleep(Duration::from_millis(10));
    }
    // The switch refused frames of the wrong key at the beginning. Frames that came twice had been
    // sent again.
    for (status, unknown) in [(front.status(), true), (left.status(), false)] {
        for link in &status.links {
            assert!(link.is_there && link.lost_packets == 0, "{status}");
            assert!(
                !link.refused.contains_key("tag") && !link.refused.contains_key("protection"),
                "{status}"
            );
            assert_eq!(link.refused.contains_key("unknown_key"), unknown, "{status}");
        }
    }
    assert!(left.status().packets.from_others > before.packets.from_others);
    let (front, left) = (front.stop(&folder), left.stop(&folder));
    adds_up(&[&front, &left]);
    // Before there was a node, the switch had no runtime to send to; and a busy machine may have
    // had no room for some packets.
    let reasons = ["no_runtime", "runtime_busy"];
    assert!(
        front
            .packets
            .dropped
            .keys()
            .all(|reason| reasons.contains(&reason.as_str())),
        "{front}"
    );
}

/// A node that comes late is used; a killed node takes its flows with it, and no others'; when it
/// is started again it is used again; a node that is told to end loses nothing.
#[test]
fn nodes_come_late_are_killed_and_come_again() {
    const SECONDS: u32 = 900;
    let folder = Folder::new("late");
    let config = folder.members(&[
        ("front", "switches", "here"),
        ("left", "runtimes", "here"),
        ("right", "runtimes", "here"),
    ]) + &folder.generated(&brief(300, 10_000, SECONDS))
        + MONITOR;
    let config = folder.write("cluster.toml", &config);
    let began = Instant::now();
    let front = Member::start(&folder, &config, "switch", "front");
    let mut left = Member::start(&folder, &config, "node", "left");
    left.wait_until("flows at the only node", |status| status.runtimes[0].flows > 100);
    let right = Member::start(&folder, &config, "node", "right");
    let status = right.wait_until("the late node is to be used", |status| {
        status.runtimes[0].opened > 1000
    });
    assert_eq!(status.runtimes[0].runtime, 1);
    // All but packets without room on a machine that does other things, before any runtime had seen
    // them.
    let dropped = |status: &Status| -> u64 {
        let reasons = status.packets.dropped.iter();
        let lost = reasons.filter(|(reason, _)| reason.as_str() != "runtime_busy");
        lost.map(|(_, count)| *count).sum()
    };
    let before = front.status();
    assert_eq!(dropped(&right.status()), 0);

    left.kill();
    let gone = front.wait_until("the switch is to notice", |status| {
        status
            .links
            .iter()
            .any(|link| link.to == "runtime 0" && !link.is_there)
    });
    // The other goes on, and takes new flows.
    let opened = right.status().runtimes[0].opened;
    right.wait_until("new flows go to the other", |status| {
        status.runtimes[0].opened > opened + 2000
    });
    let later = front.status();
    assert!(later.packets.out > gone.packets.out, "{later}");

    let left = Member::start(&folder, &config, "node", "left");
    left.wait_until("it is to be used again", |status| {
        status.runtimes[0].opened > 1000
    });
    let after = front.status();
    let lost = dropped(&after) - dropped(&before);
    println!("killed: {lost} packets of its own lost of {}", after.packets.r#in);
    // Packets on their way to it are lost, at most as many as its queue holds.
    assert!(lost < 4096, "{after}");

    // Told to end, it moves its flows first.
    let before = front.status();
    let left = left.stop(&folder);
    assert_eq!(left.flows.active, 0);
    let right_has = right.wait_until("new flows", |status| status.runtimes[0].opened > 0);
    assert!(right_has.runtimes[0].flows > 0);
    let after = front.status();
    assert_eq!(dropped(&after), dropped(&before), "{after}");
    assert!(
        began.elapsed() < Duration::from_secs(SECONDS.into()),
        "the traffic was over before the test was: {:?}",
        began.elapsed()
    );
    front.stop(&folder);
    right.stop(&folder);
}

/// Members whose files differ have no session, and both say which member differs and in what; with
/// the same file they meet.
fn who_has_another_file_is_told_so(name: &str, has_hosts: bool) {
    let folder = Folder::new(name);
    let hosts = [1, 2].map(|number| match has_hosts {
        true => folder.host(number),
        false => "here".to_owned(),
    });
    let text = folder.members(&[("front", "switches", &hosts[0]), ("left", "runtimes", &hosts[1])])
        + &folder.generated(&steady(10, 1000, 600_000));
    let config = folder.write("cluster.toml", &(text.clone() + MONITOR));
    let other = folder.write(
        "other.toml",
        &(text.clone() + &MONITOR.replace("[\"flow", "[\"firewall\", \"flow")),
    );
    let front = Member::start(&folder, &config, "switch", "front");
    let mut left = Member::start(&folder, &other, "node", "left");
    let word = "it differs from this one: [[chain]] or [function]";
    for (member, its_own, others) in [(&front, "front", "left"), (&left, "left", "front")] {
        let status = member.wait_until("it is to say who differs", |status| {
            status
                .links
                .iter()
                .any(|link| link.member == others && link.why.starts_with(word))
        });
        assert!(status.links.iter().all(|link| !link.is_there), "{status}");
        assert!(
            status
                .to_string()
                .contains(&format!("member {others} is not met: {word}")),
            "{status}"
        );
        wait_for_word(&folder, its_own, &format!("member `{others}` is not met: {word}"));
    }
    left.kill();
    let left = Member::start(&folder, &config, "node", "left");
    front.wait_for_all();
    let status = left.wait_for_all();
    assert!(status.links.iter().all(|link| link.why.is_empty()), "{status}");
    // Each says one word, however often the two have tried.
    assert_eq!(folder.read("front.err").matches("is not met").count(), 1);
    front.stop(&folder);
    left.stop(&folder);
}

#[test]
fn who_has_another_file_is_told_so_in_memory() {
    who_has_another_file_is_told_so("apart", false);
}

#[test]
fn who_has_another_file_is_told_so_on_a_channel() {
    who_has_another_file_is_told_so("apart-hosts", true);
}

/// A member says which orders it cannot do itself, and which member to ask.
#[test]
fn orders_for_others_say_whom_to_ask() {
    let folder = Folder::new("whom");
    let config = folder.members(&[
        ("front", "switches", "here"),
        ("left", "runtimes", "here"),
        ("right", "runtimes", "here"),
    ]) + &folder.generated(&steady(10, 1000, 600_000))
        + MONITOR;
    let config = folder.write("cluster.toml", &config);
    let front = Member::start(&folder, &config, "switch", "front");
    let left = Member::start(&folder, &config, "node", "left");
    left.wait_for(&["switch 0"]);
    let socket = |member: &str| folder.0.join(format!("{member}.sock")).display().to_string();
    let said = |member: &str, words: &[&str]| {
        let (code, said) = refused(&[words, &["--socket", &socket(member)]].concat());
        assert_eq!(code, 1, "{words:?}: {said}");
        assert!(!said.contains("runtime add"), "{said}");
        said
    };
    let migrate =
        |member: &str, words: &[&str]| said(member, &[&["flow", "migrate", "--all"], words].concat());
    let (of_left, of_right) = (
        format!("runtime 0: --socket {} (member `left`)", socket("left")),
        format!("runtime 1: --socket {} (member `right`)", socket("right")),
    );
    // The flows that are to go there are elsewhere.
    let word = migrate("left", &["--to", "0"]);
    assert!(word.contains(&of_right) && !word.contains(&of_left), "{word}");
    // A switch has none.
    let word = migrate("front", &["--to", "0"]);
    assert!(word.contains(&of_right) && !word.contains(&of_left), "{word}");
    // Another's.
    let word = migrate("left", &["--from", "1"]);
    assert!(
        word.contains(&format!("ask that one: --socket {}", socket("right"))),
        "{word}"
    );
    // The runtime that is to take them is not there.
    let word = migrate("left", &["--to", "1"]);
    assert!(
        word.contains("runtime 1 is not there: member `right` does not run")
            && word.contains(&format!("flowkeep node {} --member right", config.display())),
        "{word}"
    );
    // A number that waits for a member that no file lists, and a number that there cannot be.
    let word = migrate("left", &["--to", "7"]);
    assert!(
        word.contains("runtime 7 is not there") && word.contains("none has joined"),
        "{word}"
    );
    let word = migrate("left", &["--to", "77"]);
    assert!(word.contains("there is no runtime 77"), "{word}");
    let word = said(
        "left",
        &["flow", "migrate", "udp", "10.9.9.9:1", "10.9.9.8:2", "--to", "1"],
    );
    assert!(
        word.contains("of member `left` alone") && word.contains(&socket("front")),
        "{word}"
    );
    let word = said("left", &["chain", "apply", &config.display().to_string()]);
    assert!(
        word.contains("stop all members, change the file, and start them again"),
        "{word}"
    );

    let right = Member::start(&folder, &config, "node", "right");
    left.wait_for_all();
    assert!(left.wait_until_moved(1) > 0);
    // A runtime that is not removed is not drained either.
    let word = said("left", &["runtime", "remove", "0"]);
    assert!(word.contains("come and go with its process"), "{word}");
    assert!(right.wait_until_moved(0) > 0);
    let shown = left.status().to_string();
    assert!(
        shown.contains("member left alone") && shown.contains(&format!("--socket {}", socket("right"))),
        "{shown}"
    );
    for member in [front, left, right] {
        member.stop(&folder);
    }
}

/// A switch without an input of its own has none that could be over: it is there for the others
/// until it is asked to end.
#[test]
fn a_switch_without_inputs_stays_until_it_is_asked_to_end() {
    let folder = Folder::new("no-input");
    let hosts = [
        ("front", "switches", "here"),
        ("back", "switches", "here"),
        ("out", "switches", "here"),
        ("left", "runtimes", "here"),
    ];
    let config = folder.members(&hosts)
        + &folder
            .generated(&steady(20, 1000, 600_000))
            .replace("name = \"lan\"", "member = \"front\"\nname = \"lan\"")
            .replace("name = \"wan\"", "member = \"out\"\nname = \"wan\"")
        + "[[port]]\nname = \"mirror\"\nmember = \"back\"\nside = \"outside\"\ninput = \"reflect:\"\n"
        + MONITOR;
    let config = folder.write("cluster.toml", &config);
    let idle = ["back", "out"].map(|name| Member::start(&folder, &config, "switch", name));
    for member in &idle {
        member.status();
    }
    // Nothing comes for long.
    std::thread::sleep(Duration::from_secs(3));
    for member in &idle {
        member.status();
    }
    for member in idle {
        member.stop(&folder);
    }
}

/// A switch and two nodes with so many flows, all of them at runtime 0 of `left`. Flows begin no
/// more.
fn all_at_left(folder: &Folder, flows: u64) -> [Member; 3] {
    let config = folder.members(&[
        ("front", "switches", "here"),
        ("left", "runtimes", "here"),
        ("right", "runtimes", "here"),
    ]) + &folder.generated(&steady(flows as u32, 10_000, 10_000_000))
        + MONITOR;
    let config = folder.write("cluster.toml", &config);
    let front = Member::start(folder, &config, "switch", "front");
    let left = Member::start(folder, &config, "node", "left");
    let right = Member::start(folder, &config, "node", "right");
    left.wait_for_all();
    right.wait_for_all();
    let of = |member: &Member| member.status().runtimes.iter().map(|of| of.flows).sum::<u64>();
    left.wait_until("all flows are to be there", |_| of(&left) + of(&right) == flows);
    right.migrate(0);
    left.wait_until("all flows are to be here", |_| of(&left) == flows);
    [front, left, right]
}

/// An order to a node that is stopped waits, and the tool that gave it is gone. It is found again
/// and taken back.
#[test]
fn orders_that_are_broken_off_are_taken_back() {
    const FLOWS: u64 = 1000;
    let folder = Folder::new("taken-back");
    let [front, left, right] = all_at_left(&folder, FLOWS);
    let number = |value: &serde_json::Value, name: &str| {
        value[name].as_u64().unwrap_or_else(|| panic!("{name}: {value}"))
    };
    for is_drain in [false, true] {
        right.signal("-STOP");
        let words: &[&str] = match is_drain {
            true => &["runtime", "drain", "0"],
            false => &["flow", "migrate", "--all", "--from", "0", "--to", "1"],
        };
        let mut ordering = left.tool(words);
        let under_way = || -> serde_json::Value {
            let (code, out, err) = finished(left.tool(&["order", "list", "--json"]));
            assert_eq!(code, 0, "{err}");
            schema::holds("orders", out.as_bytes());
            serde_json::from_str(&out).unwrap()
        };
        let began = Instant::now();
        let order = loop {
            let list = under_way();
            let begun = list["orders"].as_array().unwrap().first().cloned();
            match begun {
                Some(order) if number(&order["receipt"], "groups_under_way") > 0 => break order,
                _ => assert!(began.elapsed() < PATIENCE, "{list}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let waiting = number(&order["receipt"], "groups_waiting");
        assert!(waiting > 0 && waiting < FLOWS, "{order}");
        let (_, shown, _) = finished(left.tool(&["order", "list"]));
        assert!(
            shown.contains("under way") && shown.lines().count() == 2,
            "{shown}"
        );
        // Broken off: the order is there all the same.
        ordering.kill().unwrap();
        ordering.wait().unwrap();
        let name = number(&order, "number").to_string();
        assert_eq!(number(&under_way()["orders"][0], "number").to_string(), name);

        let taking = match is_drain {
            true => left.tool(&["runtime", "resume", "0", "--json"]),
            false => left.tool(&["order", "cancel", &name, "--json"]),
        };
        // Moves under way end when that node goes on.
        left.wait_until("nothing is to wait", |_| {
            let list = under_way();
            list["orders"]
                .as_array()
                .unwrap()
                .iter()
                .all(|order| number(&order["receipt"], "groups_waiting") == 0)
        });
        right.signal("-CONT");
        let (code, out, err) = finished(taking);
        assert_eq!(code, 0, "{out}{err}");
        schema::holds(if is_drain { "runtime-resume" } else { "moved" }, out.as_bytes());
        let receipt: serde_json::Value = serde_json::from_str(&out).unwrap();
        let [asked, canceled] = ["flows_asked", "groups_canceled"].map(|name| number(&receipt, name));
        assert_eq!(asked + canceled, FLOWS, "{receipt}");
        assert!(canceled > 0 && asked > 0 && receipt["over"] == true, "{receipt}");
        let ends = ["flows_moved", "flows_refused", "flows_failed"].map(|name| number(&receipt, name));
        assert_eq!(ends.iter().sum::<u64>(), asked, "{receipt}");
        assert_eq!(under_way()["orders"].as_array().unwrap().len(), 0);
        let flows = |member: &Member| member.status().runtimes[0].flows;
        assert_eq!(
            [flows(&left), flows(&right)],
            [FLOWS - ends[0], ends[0]],
            "{receipt}"
        );
        assert!(!left.status().runtimes[0].leaving);
        right.migrate(0);
    }
    for member in [front, left, right] {
        member.stop(&folder);
    }
}

/// Nodes tell each other whether they take flows, also a node that starts again.
#[test]
fn a_member_does_not_drain_the_last_that_takes_flows() {
    let folder = Folder::new("last");
    let [front, left, right] = all_at_left(&folder, 50);
    let (code, _, said) = finished(right.tool(&["runtime", "drain", "1"]));
    assert_eq!(code, 0, "{said}");
    // Heard some milliseconds later.
    let began = Instant::now();
    let said = loop {
        let (code, _, said) = finished(left.tool(&["runtime", "drain", "0"]));
        if code == 1 && said.starts_with("no other runtime takes the flows of runtime 0") {
            break said;
        }
        assert!(began.elapsed() < PATIENCE, "{code}: {said}");
        finished(left.tool(&["runtime", "resume", "0"]));
    };
    for words in [
        "(1 is drained, or just beginning); nothing has changed",
        "flowkeep runtime resume N",
        "to its own member's --socket",
        "flowkeep runtime drain 0 --force",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(!left.status().runtimes[0].leaving);
    let (code, _, said) = finished(left.tool(&["runtime", "drain", "0", "--force"]));
    assert!(
        code == 1
            && said.contains(
                "runtime 0 is drained all the same, as `--force` has it, and keeps what it has (50 flows)"
            ),
        "{said}"
    );
    let status = left.status();
    assert!(
        status.runtimes[0].leaving && status.runtimes[0].flows == 50,
        "{status}"
    );
    // There is another runtime that takes flows again.
    let (code, _, said) = finished(right.tool(&["runtime", "resume", "1"]));
    assert_eq!(code, 0, "{said}");
    let began = Instant::now();
    while finished(left.tool(&["runtime", "drain", "0"])).0 != 0 {
        assert!(began.elapsed() < PATIENCE);
    }
    assert_eq!(right.status().runtimes[0].flows, 50);
    for member in [front, left, right] {
        member.stop(&folder);
    }
}

#[test]
fn who_is_no_member_is_told_so() {
    let folder = Folder::new("refused");
    let text = folder.members(&[("front", "switches", "here"), ("left", "runtimes", "here")])
        + &folder.generated(&steady(10, 1000, 1000))
        + MONITOR;
    let config = folder.write("cluster.toml", &text);
    let path = config.display().to_string();

    let (code, said) = refused(&["node", &path, "--member", "lfet"]);
    assert_eq!(code, 2, "{said}");
    assert!(
        said.contains("there is no member `lfet`") && said.contains("front, left"),
        "{said}"
    );
    assert!(said.contains("cluster.toml:"), "{said}");

    let (code, said) = refused(&["node", &path, "--member", "front"]);
    assert_eq!(code, 2, "{said}");
    assert!(
        said.contains("member `front` has switches") && said.contains("flowkeep switch "),
        "{said}"
    );

    // Twice.
    let left = Member::start(&folder, &config, "node", "left");
    left.status();
    let (code, said) = refused(&["node", &path, "--member", "left"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("member `left` runs already"), "{said}");
    left.stop(&folder);

    // Keys that are none.
    let key = folder.0.join("edge.key");
    for (content, what) in [
        ("1 abc", "not 64 digits long"),
        ("no key at all", "not two words"),
    ] {
        std::fs::write(&key, content).unwrap();
        let (code, said) = refused(&["node", &path, "--member", "left"]);
        assert_eq!(code, 1, "{said}");
        assert!(
            said.contains(what) && said.contains("openssl rand -hex 32") && said.contains("keys = ["),
            "{said}"
        );
    }
    std::fs::remove_file(&key).unwrap();
    let (code, said) = refused(&["switch", &path, "--member", "front"]);
    assert_eq!(code, 1, "{said}");
    assert!(
        said.contains("No such file") && said.contains("keys = ["),
        "{said}"
    );

    // A replay by the capture's own time.
    folder.key("edge.key", 1);
    let config = folder.write("capture.toml", &format!("clock = \"capture\"\n{text}"));
    let (code, said) = refused(&["switch", &config.display().to_string(), "--member", "front"]);
    assert_eq!(code, 2, "{said}");
    assert!(
        said.contains("is for one process") && said.contains("clock = \"capture\""),
        "{said}"
    );
    // A file that no member starts with is not good.
    let (code, check) = refused(&["chain", "check", &config.display().to_string()]);
    assert_eq!((code, check), (2, said));
}
