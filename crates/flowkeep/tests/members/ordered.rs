//! The coordinator's own orders to members: flows that move by its order, copies that are kept
//! otherwise, a runtime that is removed though it lives. And flows that go where there is least to
//! do.

use super::joined::{COPIES, Site, flowkeep, flows, passes, recovered, runs};
use super::more::wait_for_word;
use super::rig::{Member, PATIENCE};
use super::schema;
use super::wide::wide;
use coordinator::identity::Identity;
use coordinator::operator::{Line, Operator};
use coordinator::proto::MemberAnswer;
use flowkeep::control::{Answer, Reply};
use std::path::Path;
use std::time::{Duration, Instant};

fn line(site: &Site) -> Line {
    let operator = Operator {
        addresses: vec![site.coordinator.address.clone()],
        identity: Identity::read(Path::new(&site.coordinator.folder), "operate").expect("it is there"),
    };
    operator.connect().expect("it answers")
}

fn said(answer: &MemberAnswer) -> Reply {
    serde_json::from_slice(&answer.answer).expect("it is an answer")
}

fn protected(member: &Member, by: u16) {
    member.wait_until("all its flows have copies", |status| {
        let mut runtimes = status.runtimes.iter();
        runtimes.all(|runtime| runtime.protected_by == Some(by))
    });
}

#[test]
fn the_coordinator_orders_what_members_do() {
    let site = Site::with("ordered", false, COPIES);
    let [front, left, right] = site.all();
    passes(&front, 4000);
    protected(&left, 1);
    protected(&right, 0);
    let mut line = line(&site);

    // So many flows go, by the same request as an operator's.
    let (first, at_right) = (left.status(), flows(&right.status()));
    let order = line.migrate(0, 1, 20).expect("it is given");
    assert_eq!(order.member, "left");
    assert!(
        matches!(said(&order), Reply::Ok(Answer::Ordered(parts)) if parts.len() == 1),
        "{:?}",
        said(&order)
    );
    // Traffic may open flows meanwhile.
    right.wait_until("20 have come", |status| flows(status) >= at_right + 20);
    let last = left.status();
    let opened = last.flows.opened - first.flows.opened;
    assert_eq!(flows(&last), flows(&first) + opened - 20);

    // Copies of a chain, and a member's refusal.
    let answers = line.copies("all", "snapshot").expect("it is given");
    let whose: Vec<_> = answers.iter().map(|answer| answer.member.as_str()).collect();
    assert_eq!(whose, ["left", "right"]);
    assert!(
        answers
            .iter()
            .all(|answer| said(answer) == Reply::Ok(Answer::Replication))
    );
    let answers = line.copies("none-such", "snapshot").expect("it is given");
    assert!(matches!(said(&answers[0]), Reply::Error(why) if why.contains("no chain `none-such`")));
    line.copies("all", "").expect("it is given");

    // The replica of a runtime: the member refuses a runtime that would fail with it.
    let answers = line.replica(0, Some(1)).expect("it is given");
    assert_eq!(said(&answers[0]), Reply::Ok(Answer::Replication));
    let answers = line.replica(0, Some(0)).expect("it is given");
    assert!(matches!(said(&answers[0]), Reply::Error(why) if why.contains("another process")));
    let placed = wide(&site, "operate", &["replication", "place", "0", "--at", "1"]);
    assert_eq!(placed.code, 0, "{}", placed.err);
    let refused = wide(&site, "operate", &["replication", "place", "0", "--at", "9"]);
    refused.refused(1, &["no member has runtime 9"]);
    wide(&site, "read", &["replication", "place", "0", "--at", "1"]).refused(1, &["role-without-right"]);
    // By load: of other members' runtimes, here the only one.
    let by_load = ["replication", "place", "0", "--least-loaded", "--json"];
    let placed = wide(&site, "operate", &by_load);
    assert_eq!(
        (placed.code, &placed.json()["replica"]),
        (0, &1.into()),
        "{}",
        placed.err
    );
    schema::holds("replication-place", placed.out.as_bytes());
    let view = site.coordinator.view().expect("it answers");
    schema::holds("cluster-status", view.to_string().as_bytes());

    a_runtime_is_recovered(&site, &left, &right);
    some_go_where_there_is_least_to_do(&site, &left);
    passes(&front, 2000);
    for member in [front, left, right] {
        member.stop(&site.folder);
    }
}

fn a_runtime_is_recovered(site: &Site, left: &Member, right: &Member) {
    protected(left, 1);
    protected(right, 0);
    let coordinator = &site.coordinator;
    let recover = |number: &str, name: &str| {
        let words = [
            "cluster",
            "recover",
            number,
            "--json",
            "--at",
            &coordinator.address,
        ];
        let as_whom = ["--identity", &coordinator.folder, "--name", name];
        flowkeep(&[&words[..], &as_whom].concat())
    };
    let (is_good, why) = recover("1", "read");
    assert!(!is_good && why.contains("role-without-right"), "{why}");
    let (is_good, why) = recover("9", "operate");
    assert!(
        !is_good && why.contains("no member in view has runtime 9"),
        "{why}"
    );
    let of_right = flows(&right.status());
    let incarnation = runs(&coordinator.view().expect("it answers"), "right").expect("it runs");
    let (is_good, says) = recover("1", "operate");
    assert!(is_good, "{says}");
    schema::holds("cluster-recover", says.as_bytes());
    let status = left.wait_until("all flows are here", |status| flows(status) == 400);
    assert_eq!(recovered(&status), [of_right, 0]);
    wait_for_word(&site.folder, "right", "it begins again, as another incarnation");
    coordinator.wait_until("another incarnation of it runs", |view| {
        runs(view, "right").is_some_and(|later| later > incarnation)
    });
}

/// Without a target, flows of a count go to the runtime with the least load: here the one that has
/// begun again.
fn some_go_where_there_is_least_to_do(site: &Site, left: &Member) {
    let words = [
        "flow", "migrate", "--all", "--from", "0", "--count", "30", "--json",
    ];
    let began = Instant::now();
    loop {
        // The runtime takes no flow before it is met.
        let moved = wide(site, "operate", &words);
        if moved.code == 0 && moved.json()["flows_moved"] == 30 {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{} {}", moved.out, moved.err);
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(flows(&left.status()) <= 370);
}
