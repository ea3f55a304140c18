//! The readers of streams, IDS and HTTP parser: their state goes along, in the middle of a word.

use crate::captures::{data, every_capture, files, over_captures, script};
use crate::traffic::conversations;
use flowkeep_functions::http_parser::{self, HttpParser};
use flowkeep_functions::ids::config::OutOfOrder;
use flowkeep_functions::ids::config::{Mode, Settings, variables};
use flowkeep_functions::ids::{Config, Ids, parse};
use testkit::{Migration, Step, Survived, migration, tcp};

pub fn ids(rules: &str, mode: Mode) -> Migration {
    let settings = Settings {
        rules: rules.into(),
        mode,
        ..Settings::default()
    };
    migration().function::<Ids>(Config::from(settings))
}

pub fn http() -> Migration {
    migration().function::<HttpParser>(http_parser::Config::default())
}

/// A connection whose client's words come a few bytes at a time, `every` of them in a segment.
pub fn dripping(words: &str, every: usize) -> Vec<Step> {
    let web = tcp("10.0.0.1:1000", "192.0.2.1:80");
    let mut script = vec![web.syn(), web.reply().syn_ack(), web.ack()];
    for part in words.as_bytes().chunks(every) {
        script.push(web.payload(part));
    }
    script.push(
        web.reply()
            .payload("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    );
    script
}

fn alerts(survived: &Survived) -> usize {
    survived.events().matches("\"event\":\"alert\"").count()
}

/// Flows move between the bytes of a signature: the automaton's state goes along, and the hits of
/// several contents.
#[test]
fn a_signature_goes_on_between_its_bytes() {
    let rules = "alert tcp any any -> any 80 (msg:\"one\"; content:\"attack-at-dawn\"; sid:1;)\n\
                 alert tcp any any -> any 80 (msg:\"two\"; content:\"GET\"; content:\"dawn\"; distance:0; content:\"evil\"; distance:0; sid:2;)\n\
                 alert tcp any any -> any 80 (msg:\"bit\"; content:\"GET\"; flowbits:set,seen; flowbits:noalert; sid:3;)\n\
                 alert tcp any 80 -> any any (msg:\"after\"; content:\"200\"; flowbits:isset,seen; sid:4;)\n";
    for every in [1, 2, 3, 5] {
        let survived =
            ids(rules, Mode::Ids).check(dripping("GET /attack-at-dawn?evil HTTP/1.1\r\n\r\n", every));
        assert_eq!(alerts(&survived), 3, "{every}: {}", survived.events());
    }
}

/// Segments of both directions that come kilobytes early, in reverse, with gaps between them, held
/// or as copies: none is lost or read twice wherever the flow goes meanwhile.
#[test]
fn many_early_segments_go_along() {
    let web = tcp("10.0.0.1:1000", "192.0.2.1:80");
    let mut text = vec![b'.'; 9000];
    text[895..905].copy_from_slice(b"first-mark");
    text[8096..8105].copy_from_slice(b"last-mark");
    let mut script = vec![web.syn(), web.reply().syn_ack(), web.ack()];
    for (start, block) in (0..).step_by(4500).zip(text.chunks(4500)) {
        let parts: Vec<(u32, &[u8])> = (start..).step_by(900).zip(block.chunks(900)).collect();
        for (at, part) in parts.into_iter().rev() {
            // Neither end has more than what came in order.
            let there = web.sequence(1001 + at).acknowledgement(5001 + start);
            let back = web.reply().sequence(5001 + at).acknowledgement(1001 + start);
            script.extend([there.payload(part), back.payload(part)]);
        }
    }
    let rules =
        "alert tcp any any -> any any (content:\"first-mark\"; content:\"last-mark\"; distance:0; sid:1;)\n";
    for out_of_order in [OutOfOrder::Pass, OutOfOrder::Hold] {
        let settings = Settings {
            rules: rules.into(),
            mode: Mode::Ips,
            out_of_order,
            ..Settings::default()
        };
        let survived = migration()
            .function::<Ids>(Config::from(settings))
            .check(script.clone());
        assert_eq!(alerts(&survived), 2, "{}", survived.events());
        assert_eq!(survived.counter("segments_kept"), 2 * 8, "{out_of_order:?}");
        assert_eq!(survived.counter("gaps"), 0);
    }
}

/// A segment that came early waits with the flow for the one before it.
#[test]
fn early_segments_go_along() {
    let web = tcp("10.0.0.1:1000", "192.0.2.1:80");
    let script = [
        web.syn(),
        web.reply().syn_ack(),
        web.sequence(1001 + 9).payload("dawn"),
        web.sequence(1001 + 5).payload("-at-"),
        web.sequence(1001).payload("at"),
        web.sequence(1001 + 2).payload("tac"),
        web.sequence(1001 + 13).payload("!"),
    ];
    let rules = "drop tcp any any -> any 80 (msg:\"one\"; content:\"attac-at-dawn\"; sid:1;)\n";
    let survived = ids(rules, Mode::Ips).check(script);
    assert_eq!(alerts(&survived), 1, "{}", survived.events());
    assert!(survived.dropped("dropped_by_rule") + survived.dropped("flow_dropped") > 0);
}

#[test]
fn conversations_are_read_on() {
    let rules = "alert tcp any any -> any 80 (msg:\"host\"; content:\"Host: www.example\"; sid:1;)\n\
                 alert icmp any any -> any any (msg:\"ping\"; itype:8; sid:2;)\n";
    let survived = ids(rules, Mode::Ids).check(conversations());
    assert!(alerts(&survived) > 10);
}

/// Suricata's own rules and captures, as far as the rules are in the subset.
#[test]
fn alerts_on_suricatas_captures_are_the_same() {
    let Some(folder) = data("ids/suricata-verify") else {
        return;
    };
    let mut directories: Vec<_> = std::fs::read_dir(folder)
        .expect("the folder is part of the data")
        .map(|entry| entry.expect("readable").path())
        .collect();
    directories.sort();
    let (mut compared, mut found) = (0, 0);
    for directory in directories {
        let rules = std::fs::read_to_string(directory.join("test.rules")).expect("the rules read");
        let is_known = parse::rules(&rules, &variables(&Default::default()))
            .iter()
            .all(Result::is_ok);
        if !is_known {
            continue;
        }
        let mut script = script(&directory.join("input.pcap"));
        if !every_capture() {
            script.steps.truncate(300);
        }
        for mode in [Mode::Ids, Mode::Ips] {
            // A flow whose first packet is dropped for its own sake is none, and moves nowhere.
            let migration = ids(&rules, mode).flows_max(256).may_stay();
            println!("{}", directory.display());
            let survived = migration.begins_at(script.begins_at).check(script.steps.clone());
            found += alerts(&survived);
        }
        compared += 1;
    }
    println!("{compared} directories, {found} alerts");
    assert!(compared > 10 && found > 20);
}

#[test]
fn a_request_goes_on_between_its_bytes() {
    let words = "POST /a/b?c=d HTTP/1.1\r\nHost: www.example.org\r\nContent-Length: 5\r\n\r\nhelloGET / HTTP/1.1\r\nHost: x\r\n\r\n";
    for every in [1, 2, 7] {
        let survived = http().check(dripping(words, every));
        assert!(survived.events().contains("/a/b?c=d"), "{}", survived.events());
        assert!(
            survived.events().contains("www.example.org"),
            "{}",
            survived.events()
        );
    }
    let survived = http().check(conversations());
    assert!(survived.events().contains("www.example.org"));
}

#[test]
fn requests_of_captures_are_the_same() {
    let Some(folder) = data("http/zeek/traces") else {
        return;
    };
    let mut records = 0;
    for path in files(&folder, "pcap") {
        let mut script = script(&path);
        if !every_capture() {
            script.steps.truncate(300);
        }
        let survived = http()
            .flows_max(256)
            .begins_at(script.begins_at)
            .check(script.steps);
        records += survived.events().lines().count();
    }
    println!("{records} records");
    assert!(records > 15);
    over_captures(3, |_| http().flows_max(512));
}
