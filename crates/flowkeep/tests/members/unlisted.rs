//! Members that no configuration lists: they join while traffic passes, get flows, leave, are
//! killed, and join again.

use super::joined::{COPIES, Site, flowkeep, flows, is_listed, passes, runs};
use super::rig::{Member, PATIENCE};
use super::wide::wide;
use super::{adds_up, brief, records};
use flowkeep::report::Status;
use serde_json::Value;
use std::time::{Duration, Instant};

/// The words of a member that no configuration lists, beside its token: its events go to a file for
/// each incarnation.
fn words(site: &Site, name: &str, host: &str, incarnation: u32) -> Vec<String> {
    let file = |end: &str| site.folder.0.join(format!("{name}{end}")).display().to_string();
    let (socket, events) = (file(".sock"), file(&format!("-{incarnation}.jsonl")));
    let mut words = vec!["--runtimes", "1", "--host", host];
    if host.parse::<std::net::IpAddr>().is_ok() {
        words.extend(["--address", host]);
    }
    words.extend([
        "--join",
        &site.coordinator.address,
        "--socket",
        &socket,
        "--events",
        &events,
    ]);
    words.into_iter().map(str::to_owned).collect()
}

fn join(site: &Site, name: &str, host: &str, incarnation: u32) -> Member {
    let token = site.coordinator.token(name);
    let mut words = words(site, name, host, incarnation);
    words.extend(["--token".to_owned(), token]);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let member = Member::start_with(&site.folder, &site.config, "node", name, &words);
    site.coordinator
        .wait_until("the newcomer runs", |view| runs(view, name).is_some());
    member
}

/// Another host than those of the members, or theirs.
fn host_of(site: &Site, has_hosts: bool, number: u8) -> String {
    match has_hosts {
        true => site.folder.host(number),
        false => "here".to_owned(),
    }
}

/// Waits until these have a link to a runtime, or none has.
#[track_caller]
fn linked(all: &[&Member], runtime: &str, is_linked: bool) {
    for member in all {
        member.wait_until("links are laid, or taken down", |status| {
            let mut links = status.links.iter().filter(|link| link.to == runtime);
            match is_linked {
                true => links.any(|link| link.is_there && link.member == "d"),
                false => links.next().is_none(),
            }
        });
    }
}

/// The number of a member's runtime, by the view.
fn number(site: &Site, member: &str) -> Option<u64> {
    let view = site.coordinator.view()?;
    let workers = view["workers"].as_array()?.iter();
    let mut its = workers.filter(|worker| worker["name"] == member);
    its.next()?["number"].as_u64()
}

fn dropped(status: &Status) -> u64 {
    status.packets.dropped.values().sum()
}

/// An unlisted member joins while new flows begin all the time, gets some, is drained, leaves, and
/// comes again: each packet is out or counted, and in one record.
fn comes_and_goes(name: &str, has_hosts: bool) {
    let endless = brief(200, 1000, 1_000_000);
    let site = Site::made(name, has_hosts, &endless, "");
    let host = host_of(&site, has_hosts, 4);
    let [front, left, right] = site.all();
    passes(&front, 2000);
    linked(&[&front, &left, &right], "runtime 2", false);
    let d = join(&site, "d", &host, 1);
    assert_eq!(number(&site, "d"), Some(2));
    linked(&[&front, &left, &right], "runtime 2", true);
    d.wait_until("new groups begin there", |status| flows(status) > 10);
    passes(&front, 2000);
    let moved = wide(
        &site,
        "operate",
        &["flow", "migrate", "--all", "--to", "2", "--json"],
    );
    assert_eq!(moved.code, 0, "{} {}", moved.out, moved.err);
    assert!(moved.json()["flows_moved"].as_u64() > Some(0), "{}", moved.out);
    let balanced = wide(
        &site,
        "operate",
        &[
            "flow", "migrate", "--all", "--from", "2", "--to", "0", "--count", "5",
        ],
    );
    assert_eq!(balanced.code, 0, "{} {}", balanced.out, balanced.err);
    let drained = wide(&site, "operate", &["runtime", "drain", "2", "--json"]);
    assert_eq!(drained.code, 0, "{} {}", drained.out, drained.err);
    assert_eq!(drained.json()["flows_left"], 0, "{}", drained.out);
    let resumed = wide(&site, "operate", &["runtime", "resume", "2"]);
    assert_eq!(resumed.code, 0, "{} {}", resumed.out, resumed.err);
    d.wait_until("new groups begin there again", |status| flows(status) > 10);
    let incarnation = runs(&site.coordinator.view().expect("it answers"), "d");
    let first = d.stop(&site.folder);
    site.coordinator
        .wait_until("it is no member", |view| !is_listed(view, "d"));
    linked(&[&front, &left, &right], "runtime 2", false);
    passes(&front, 2000);
    let d = join(&site, "d", &host, 2);
    assert_eq!(number(&site, "d"), Some(2), "the number is its own");
    assert!(runs(&site.coordinator.view().expect("it answers"), "d") > incarnation);
    linked(&[&front, &left, &right], "runtime 2", true);
    d.wait_until("new groups begin at its next incarnation", |status| {
        flows(status) > 10
    });
    passes(&front, 2000);
    let front = front.stop(&site.folder);
    let rest = [d, left, right].map(|member| member.stop(&site.folder));
    let [second, left, right] = &rest;
    adds_up(&[&front, &first, second, left, right]);
    let (_, packets) = records(&site.folder, &["left", "right", "d-1", "d-2"]);
    assert_eq!(packets, front.packets.out, "each packet that left is in a record");
    let lost: u64 = [&first, second, left, right].into_iter().map(dropped).sum();
    assert_eq!(
        lost, 0,
        "what is dropped is dropped at the switch, for want of room"
    );
    let busy = front.packets.dropped.get("runtime_busy").copied().unwrap_or(0);
    assert_eq!(dropped(&front), busy, "{front}");
    println!(
        "{name}: {} packets, {} of them at the newcomer's two incarnations, {busy} found no room",
        front.packets.out,
        [&first, second]
            .iter()
            .flat_map(|status| &status.runtimes)
            .map(|runtime| runtime.passed)
            .sum::<u64>()
    );
}

#[test]
fn a_member_that_is_not_listed_comes_and_goes() {
    comes_and_goes("unlisted", false);
}

#[test]
fn so_does_one_of_another_host() {
    comes_and_goes("unlisted-far", true);
}

fn recovered(all: &[&Member]) -> [u64; 2] {
    let runtimes = all.iter().flat_map(|member| member.status().runtimes);
    runtimes.fold([0, 0], |sum, of| {
        [sum[0] + of.recovered_flows, sum[1] + of.unrecovered_flows]
    })
}

/// An unlisted member is killed with flows that have copies: a view removes it, all its flows go on
/// elsewhere, and it comes again.
fn is_killed(name: &str, has_hosts: bool) {
    let site = Site::with(name, has_hosts, COPIES);
    let host = host_of(&site, has_hosts, 4);
    let [front, left, right] = site.all();
    passes(&front, 4000);
    let mut d = join(&site, "d", &host, 1);
    linked(&[&front, &left, &right], "runtime 2", true);
    assert!(left.wait_until_moved(2) > 0);
    let status = d.wait_until("all its flows have copies", |status| {
        let mut all = status.runtimes.iter();
        flows(status) > 0 && all.all(|runtime| runtime.protected_flows == runtime.flows)
    });
    let of_d = flows(&status);
    let keeper = status.runtimes[0].protected_by;
    assert!(matches!(keeper, Some(0 | 1)), "{keeper:?}");
    d.kill();
    site.coordinator
        .wait_until("it is removed", |view| !is_listed(view, "d"));
    linked(&[&front, &left, &right], "runtime 2", false);
    let began = Instant::now();
    while flows(&left.status()) + flows(&right.status()) != 400 {
        assert!(began.elapsed() < PATIENCE, "{} {}", left.status(), right.status());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(recovered(&[&left, &right]), [of_d, 0]);
    passes(&front, 2000);
    let d = join(&site, "d", &host, 2);
    assert_eq!(number(&site, "d"), Some(2));
    linked(&[&front, &left, &right], "runtime 2", true);
    let giver = if flows(&left.status()) > 0 { &left } else { &right };
    assert!(giver.wait_until_moved(2) > 0);
    passes(&front, 2000);
    println!("{name}: {of_d} flows of the newcomer went on at runtime {keeper:?}");
    for member in [front, d, left, right] {
        member.stop(&site.folder);
    }
}

#[test]
fn flows_of_a_member_that_is_not_listed_go_on() {
    is_killed("unlisted-killed", false);
}

#[test]
fn so_do_those_of_one_that_is_not_listed_on_another_host() {
    is_killed("unlisted-killed-far", true);
}

/// A newcomer with wrong words is refused with the value and a remedy, and the cluster goes on.
#[test]
fn what_a_newcomer_cannot_be_is_refused_by_name() {
    let site = Site::made("unlisted-refused", true, &brief(200, 1000, 1_000_000), "");
    let text = std::fs::read_to_string(&site.config).expect("it is there");
    let text = format!("runtimes_max = 3\n{text}");
    std::fs::write(&site.config, &text).expect("it is written");
    let [front, left, right] = site.all();
    let refused_at = |config: &str, name: &str, host: &str, address: &str, says: &[&str]| {
        let token = site.coordinator.token(name);
        let mut all = vec![
            "node".to_owned(),
            config.to_owned(),
            "--member".to_owned(),
            name.to_owned(),
        ];
        all.extend(words(&site, name, address, 1));
        let at = all.iter().position(|word| word == "--host").expect("it is said");
        host.clone_into(&mut all[at + 1]);
        all.extend(["--token".to_owned(), token]);
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let (is_good, said) = flowkeep(&all);
        assert!(
            !is_good && says.iter().all(|word| said.contains(word)),
            "{name}: {said}"
        );
    };
    let refused = |config: &str, name: &str, host: &str, says: &[&str]| {
        refused_at(config, name, host, host, says);
    };
    let config = site.config.display().to_string();
    let far = |number| site.folder.host(number);
    refused(
        &config,
        "left",
        &far(4),
        &["`left` is listed", "without --runtimes"],
    );
    refused_at(&config, "d", "other", &far(2), &["is that of", "`left`"]);
    let unnamed = flowkeep(&["node", &config, "--member", "d"]);
    assert!(!unnamed.0 && unnamed.1.contains("--runtimes"), "{}", unnamed.1);
    // Another file: another number of runtimes, other sizes.
    let other = site.folder.write(
        "other.toml",
        &text.replace("runtimes_max = 3", "runtimes_max = 4"),
    );
    refused(
        &other.display().to_string(),
        "d",
        &far(4),
        &["settings-differ", "2 runtimes of 4", "2 of 3"],
    );
    let other = site
        .folder
        .write("sizes.toml", &format!("flows_max = 7777\n{text}"));
    refused(
        &other.display().to_string(),
        "d",
        &far(4),
        &["settings outside of them"],
    );
    let d = join(&site, "d", &far(4), 1);
    refused(
        &config,
        "e",
        &far(5),
        &["no-free-number", "2 (d)", "runtimes_max"],
    );
    refused_at(&config, "e", "other", &far(4), &["address-taken", "`d`"]);
    // Another process with its name, elsewhere.
    let moved = site.folder.0.join("elsewhere").display().to_string();
    let elsewhere = site.folder.write(
        "elsewhere.toml",
        &text.replace(&site.folder.0.join("state").display().to_string(), &moved),
    );
    refused(
        &elsewhere.display().to_string(),
        "d",
        &far(6),
        &["name-taken", "`d` is in view"],
    );
    passes(&front, 2000);
    for member in [front, d, left, right] {
        member.stop(&site.folder);
    }
}

/// The numbers of a member's workers, each with its incarnation.
fn workers(view: &Value, member: &str) -> Vec<(u64, u64)> {
    let all = view["workers"].as_array().expect("a list").iter();
    let its = all.filter(|worker| worker["name"] == member);
    let number = |worker: &Value, name: &str| worker[name].as_u64().expect("a number");
    its.map(|worker| (number(worker, "number"), number(worker, "incarnation")))
        .collect()
}

/// All workers of one process come in one view, and none is suspected before it can be heard.
#[track_caller]
fn stay(site: &Site, members: &[&str]) {
    let incarnations =
        |view: &Value| -> Vec<_> { members.iter().map(|member| workers(view, member)).collect() };
    let is_one_incarnation = |all: &Vec<(u64, u64)>| all.len() == 3 && all.iter().all(|of| of.1 == all[0].1);
    let began = site.coordinator.wait_until("all workers are there", |view| {
        incarnations(view).iter().all(is_one_incarnation)
    });
    // Longer than a suspicion.
    std::thread::sleep(Duration::from_millis(2500));
    let now = site.coordinator.view().expect("it answers");
    assert_eq!(incarnations(&now), incarnations(&began));
    for member in members {
        let said = site.folder.read(&format!("{member}.err"));
        assert!(!said.contains("without this member"), "{said}");
    }
}

#[test]
fn members_of_three_runtimes_join_before_any_other_and_none_begins_again() {
    let site = Site::made("several", false, &brief(200, 1000, 1_000_000), "");
    let text = std::fs::read_to_string(&site.config).expect("it is there");
    let text = text.replace("name = \"left\"\nruntimes = 1", "name = \"left\"\nruntimes = 3");
    std::fs::write(&site.config, text).expect("it is written");
    let left = site.start("node", "left");
    stay(&site, &["left"]);
    // One view has brought all its runtimes in.
    assert_eq!(site.coordinator.view().expect("it answers")["view"], 2);
    let token = site.coordinator.token("d");
    let mut its = words(&site, "d", "here", 1);
    its[1] = "3".to_owned();
    its.extend(["--token".to_owned(), token]);
    let its: Vec<&str> = its.iter().map(String::as_str).collect();
    let d = Member::start_with(&site.folder, &site.config, "node", "d", &its);
    stay(&site, &["left", "d"]);
    let front = site.start("switch", "front");
    d.wait_until("new groups begin there", |status| flows(status) > 10);
    passes(&front, 2000);
    stay(&site, &["left", "d"]);
    for member in [front, left, d] {
        member.stop(&site.folder);
    }
}
