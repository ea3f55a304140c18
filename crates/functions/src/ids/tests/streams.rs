//! Matches in streams, however they are divided, repeated and reordered; and their consequences.

use super::*;
use crate::ids::OutOfOrder;

const PASSWD: &str = r#"alert tcp any any -> any 80 (msg:"passwd"; flow:to_server,established; content:"/etc/passwd"; sid:7;)"#;

#[test]
fn a_content_divided_anywhere_is_found() {
    let text = b"GET /etc/passwd HTTP/1.0\r\n";
    for cut in 0..=text.len() {
        let parts = [&text[..cut], &text[cut..]];
        let segments = parts
            .iter()
            .filter(|part| !part.is_empty())
            .map(|part| web().payload(part));
        assert_eq!(sids(&run(PASSWD, opened(segments))), [7], "divided at {cut}");
    }
    let bytes = text.iter().map(|byte| web().payload([*byte]));
    assert_eq!(sids(&run(PASSWD, opened(bytes))), [7], "byte by byte");
}

#[test]
fn several_contents_divided_anywhere_are_found() {
    let rules = r#"alert tcp any any -> any any (content:"user"; nocase; content:"root"; distance:1; within:8; content:!"guest"; sid:1;)"#;
    let text = b"xx UsEr user  root !";
    for first in 0..=text.len() {
        for second in first..=text.len() {
            let parts = [&text[..first], &text[first..second], &text[second..]];
            let segments = parts
                .iter()
                .filter(|part| !part.is_empty())
                .map(|part| web().payload(part));
            assert_eq!(
                sids(&run(rules, opened(segments))),
                [1],
                "divided at {first} and {second}"
            );
        }
    }
    for text in ["guest user  root", "user root", "user      root", "user"] {
        let expected: &[u64] = if text == "user root" { &[1] } else { &[] };
        let segments = text.as_bytes().chunks(3).map(|part| web().payload(part));
        assert_eq!(sids(&run(rules, opened(segments))), expected, "{text}");
    }
}

#[test]
fn what_was_read_is_not_read_again() {
    let script = opened([
        at(0, "/etc/pas"),
        at(0, "/etc/pas"),
        at(4, "/passwd"),
        at(0, "/etc/passwd"),
        at(3, "c/passwd"),
    ]);
    let outcome = run(PASSWD, script);
    assert_eq!(sids(&outcome), [7]);
    assert_eq!(outcome.counter("segments_repeated"), 3);
}

#[test]
fn early_segments_are_read_in_their_order() {
    let text = b"GET /etc/passwd HTTP/1.0\r\n";
    for cuts in [[3, 9], [6, 7], [1, 25], [9, 14]] {
        let part = |from: usize, to: usize| at(from as u32, &text[from..to]);
        let (first, second, third) = (
            part(0, cuts[0]),
            part(cuts[0], cuts[1]),
            part(cuts[1], text.len()),
        );
        let orders = [
            [third.clone(), second.clone(), first.clone()],
            [third.clone(), first.clone(), second.clone()],
            [second.clone(), third.clone(), first.clone()],
            [second, first, third],
        ];
        for order in orders {
            assert_eq!(sids(&run(PASSWD, opened(order))), [7], "{cuts:?}");
        }
    }
}

#[test]
fn a_pattern_whose_second_half_comes_early_is_found() {
    let rules = r#"drop tcp any any -> any any (msg:"passwd"; content:"/etc/passwd"; sid:7;)"#;
    for ahead in [3_000, 20_000, 60_000] {
        let filler = alloc::vec![b'.'; 1000];
        let fill = (0..ahead / 1000).map(|n| at(1000 * n, &filler));
        let mut script = opened([at(ahead + 5, "passwd")]);
        script.extend(fill);
        script.push(at(ahead, "/etc/"));
        let outcome = run(rules, script);
        assert_eq!(sids(&outcome), [7], "{ahead} bytes early");
        let last = outcome.fates().len() - 1;
        assert_eq!(outcome.fate(last), Dropped("dropped_by_rule"));
    }
}

fn holding(rules: &str, script: Vec<Step>) -> Outcome {
    let config = Config::from(Settings {
        rules: rules.into(),
        out_of_order: OutOfOrder::Hold,
        early_max: 3,
        ..Settings::default()
    });
    testkit::run::<Ids>(config, script)
}

#[test]
fn held_segments_leave_once_they_are_read() {
    let text = "GET /etc/hosts";
    let part = |from: usize, to: usize| at(from as u32, &text[from..to]);
    // Two gaps: bytes behind the second one stay.
    let script = opened([part(2, 4), part(8, 14), part(0, 2), part(4, 8)]);
    let mut outcome = holding(PASSWD, script[..6].to_vec());
    outcome.assert_fates([Forwarded, Forwarded, Forwarded, Forwarded, Fate::Held, Forwarded]);
    outcome = holding(PASSWD, script);
    assert!(outcome.fates().iter().all(|fate| *fate == Forwarded));
    assert!(sids(&outcome).is_empty());
}

#[test]
fn held_segments_of_a_dropped_flow_are_dropped() {
    let rules = r#"drop tcp any any -> any 80 (content:"/etc/passwd"; sid:1;)"#;
    let script = opened([
        at(5, "pass"),
        at(9, "wd"),
        at(900, "."),
        at(0, "/etc/"),
        at(11, "more"),
    ]);
    let outcome = holding(rules, script);
    assert_eq!(outcome.fate(6), Dropped("dropped_by_rule"));
    assert_eq!(outcome.dropped("flow_dropped"), 3 + 1, "{outcome}");
    assert_eq!(sids(&outcome), [1]);
}

#[test]
fn nothing_passes_unread_where_segments_are_held() {
    let script = opened([at(10, "a"), at(20, "b"), at(30, "c"), at(40, "/etc/passwd")]);
    let outcome = holding(PASSWD, script);
    assert_eq!(outcome.fate(6), Dropped("out_of_order"));
    // A new connection on the same ports has nothing of what the old one held.
    let rules = r#"alert tcp any any -> any 80 (content:"/etc/passwd"; sid:1;)"#;
    let script = opened([
        at(5, "passwd"),
        web().rst().sequence(1001),
        web().syn(),
        web().reply().syn_ack(),
        at(0, "/etc/"),
    ]);
    let outcome = holding(rules, script);
    assert_eq!((outcome.dropped("out_of_order"), sids(&outcome).len()), (1, 0));
}

#[test]
fn both_directions_may_wait_at_once() {
    let rules = r#"alert tcp any any -> any any (content:"/etc/passwd"; sid:7;)"#;
    let back = |place: u32, bytes: &str| web().reply().payload(bytes).sequence(5001 + place);
    let script = opened([
        at(5, "passwd"),
        back(5, "passwd"),
        at(0, "/etc/"),
        back(0, "/etc/"),
    ]);
    assert_eq!(sids(&run(rules, script)), [7, 7]);
}

#[test]
fn of_two_bytes_for_one_place_the_first_is_read() {
    let script = opened([at(5, "passwd"), at(5, "xxxxxx"), at(0, "/etc/")]);
    assert_eq!(sids(&run(PASSWD, script)), [7]);
    let script = opened([at(5, "xxxxxx"), at(5, "passwd"), at(0, "/etc/")]);
    assert!(sids(&run(PASSWD, script)).is_empty());
}

#[test]
fn what_comes_too_early_is_read_by_itself_or_dropped() {
    let config = |out_of_order| {
        Config::from(Settings {
            rules: PASSWD.into(),
            out_of_order,
            early_max: 1,
            ..Settings::default()
        })
    };
    let script = || opened([at(9000, "x"), at(4000, "/etc/passwd")]);
    let outcome = testkit::run::<Ids>(config(OutOfOrder::Pass), script());
    assert_eq!(sids(&outcome), [7]);
    assert_eq!(
        (
            outcome.counter("segments_kept"),
            outcome.counter("segments_beyond")
        ),
        (1, 1)
    );
    let outcome = testkit::run::<Ids>(config(OutOfOrder::Drop), script());
    outcome.assert_fates([
        Forwarded,
        Forwarded,
        Forwarded,
        Forwarded,
        Dropped("out_of_order"),
    ]);
    assert!(sids(&outcome).is_empty());
}

#[test]
fn a_gap_that_the_receiver_does_not_know_of_is_passed_over() {
    let acknowledged = web().reply().ack().acknowledgement(1001 + 100);
    let script = opened([
        at(0, "/etc/"),
        acknowledged,
        at(100, "passwd"),
        at(106, " /etc/passwd"),
    ]);
    let outcome = run(PASSWD, script);
    assert_eq!(sids(&outcome), [7], "only the one behind the gap");
    assert_eq!(outcome.counter("gaps"), 1);
}

#[test]
fn what_waits_behind_lost_bytes_is_read_with_the_fin() {
    let acknowledged = |bytes: u32| web().reply().ack().acknowledgement(1001 + bytes);
    let script = |bytes| {
        opened([
            at(10, "/etc/passwd"),
            acknowledged(bytes),
            web().fin().sequence(1001 + 21),
        ])
    };
    let outcome = run(PASSWD, script(21));
    assert_eq!((sids(&outcome).len(), outcome.counter("gaps")), (1, 1));
    // Bytes that the receiver does not have are not lost yet.
    let outcome = run(PASSWD, script(0));
    assert_eq!((sids(&outcome).len(), outcome.counter("gaps")), (0, 0));
}

#[test]
fn a_dropped_stream_stays_dropped() {
    let rules = r#"drop tcp any any -> any 80 (content:"/etc/passwd"; sid:1;)"#;
    let script = opened([
        web().payload("GET /etc/pa"),
        web().payload("sswd"),
        web().payload("more"),
        web().reply().payload("answer"),
    ]);
    let outcome = run(rules, script);
    let flow = Dropped("flow_dropped");
    let expected = [
        Forwarded,
        Forwarded,
        Forwarded,
        Forwarded,
        Dropped("dropped_by_rule"),
        flow,
        flow,
    ];
    outcome.assert_fates(expected);
    assert_eq!(sids(&outcome), [1]);
    let line: serde_json::Value = serde_json::from_str(outcome.events().trim()).unwrap();
    assert_eq!(line["alert"]["action"], "blocked");
    assert_eq!(
        (&line["src_ip"], &line["dest_port"]),
        (&"10.0.0.1".into(), &80.into())
    );
}

#[test]
fn an_ids_lets_everything_pass() {
    let config = Config::from(Settings {
        rules: r#"drop tcp any any -> any 80 (content:"passwd"; sid:1;)"#.into(),
        mode: crate::ids::Mode::Ids,
        ..Settings::default()
    });
    let outcome = testkit::run::<Ids>(config, opened([web().payload("passwd"), web().payload("more")]));
    assert!(outcome.fates().iter().all(|fate| *fate == Forwarded));
    assert!(outcome.events().contains(r#""action":"allowed""#));
}

#[test]
fn a_rejected_segment_is_answered_by_a_reset() {
    let rules = r#"reject tcp any any -> any 80 (content:"passwd"; sid:1;)
        reject udp any any -> any 53 (content:"bad"; sid:2;)"#;
    let script = opened([
        web().payload("passwd"),
        web().payload("x"),
        udp("10.0.0.1:1", "192.0.2.1:53").payload("bad"),
    ]);
    let outcome = run(rules, script);
    assert_eq!(outcome.fate(3), Fate::Answered);
    let reset = outcome.only_sent(3);
    assert_eq!(reset.destination(), "10.0.0.1:1000".parse().unwrap());
    assert_eq!(reset.tcp().unwrap().flags() & flags::RST, flags::RST);
    assert_eq!(outcome.fate(4), Dropped("flow_dropped"));
    assert_eq!(outcome.fate(5), Fate::Answered);
    assert_eq!(outcome.only_sent(5).protocol(), wire::protocol::ICMP);
}

#[test]
fn a_dropped_packet_is_read_again() {
    // A packet that is dropped for its own sake was never received: other bytes may come in its
    // place.
    let rules = r#"drop tcp any any -> any any (ttl:<5; sid:1;)
        alert tcp any any -> any any (content:"/etc/passwd"; sid:2;)"#;
    let script = opened([at(0, "GET /etc/xxxxxx").ttl(4), at(0, "GET /etc/passwd")]);
    assert_eq!(sids(&run(rules, script)), [1, 2]);
    // Early ones, too.
    let script = opened([at(9, "xxxxxx").ttl(4), at(9, "passwd"), at(0, "GET /etc/")]);
    assert_eq!(sids(&run(rules, script)), [1, 2]);
    // A rule about packets that matches in a stream's packet matches once more when it comes again.
    let rules = r#"drop tcp any any -> any any (dsize:6; content:"passwd"; sid:1;)"#;
    let outcome = run(rules, opened([at(0, "passwd"), at(0, "passwd")]));
    assert_eq!(sids(&outcome), [1, 1]);
}

#[test]
fn a_new_connection_on_old_ports_starts_over() {
    let rules = r#"alert tcp any any -> any 80 (content:"one"; sid:1;)
        alert tcp any any -> any 80 (content:"two"; sid:2;)"#;
    let again = web().sequence(90_000);
    let script = opened([
        web().payload("one"),
        web().rst(),
        again.syn(),
        web().reply().syn_ack().sequence(70_000),
        web().payload("two").sequence(90_001),
    ]);
    let outcome = run(rules, script);
    assert_eq!(sids(&outcome), [1, 2]);
    assert_eq!(outcome.counter("streams"), 2);
    // A SYN in the middle of a connection is not believed.
    let script = opened([web().payload("tw"), again.syn(), at(2, "o")]);
    assert_eq!(sids(&run(rules, script)), [2]);
}

#[test]
fn a_dropped_flow_is_not_begun_again() {
    // No end has received the reset and the SYN, so packets behind them would be the old
    // connection's.
    let rules = r#"drop tcp any any -> any 80 (content:"one"; sid:1;)"#;
    let script = opened([
        at(0, "one"),
        web().rst().sequence(1001),
        web().rst().sequence(1004),
        web().reply().rst(),
        web().syn().sequence(1000),
        at(0, "ONE"),
        at(3, "more"),
    ]);
    let outcome = run(rules, script);
    assert_eq!(outcome.dropped("flow_dropped"), 6, "{outcome}");
}

#[test]
fn a_forged_fin_does_not_end_a_stream() {
    let rules = r#"alert tcp any any -> any any (content:"passwd"; sid:1;)"#;
    // The server has closed; the client forges its FIN, ahead or behind, and a SYN, and goes on.
    for forged in [900_000, 1000, 1006] {
        let script = opened([
            at(0, "pass"),
            web().reply().fin(),
            web().fin().sequence(forged),
            web().syn().sequence(500_000),
            at(4, "wd"),
        ]);
        assert_eq!(sids(&run(rules, script)), [1], "{forged}");
    }
}

#[test]
fn a_place_in_an_early_segment_is_found() {
    // As in Suricata a place is counted from the stream's beginning or from the packet's, whenever
    // that comes.
    let rules = r#"drop tcp any any -> any any (content:"EVIL"; depth:4; sid:1;)"#;
    for out_of_order in [OutOfOrder::Pass, OutOfOrder::Drop, OutOfOrder::Hold] {
        for order in [[0, 4], [4, 0]] {
            let config = Config::from(Settings {
                rules: rules.into(),
                out_of_order,
                ..Settings::default()
            });
            let text = |place| if place == 0 { "AAAA" } else { "EVIL" };
            let script = opened(order.map(|place| at(place, text(place))));
            let outcome = testkit::run::<Ids>(config, script);
            assert_eq!(sids(&outcome), [1], "{out_of_order:?} {order:?}");
            assert_eq!(
                outcome.dropped("dropped_by_rule"),
                1,
                "{out_of_order:?} {order:?}"
            );
        }
    }
}

#[test]
fn segments_that_are_part_of_no_stream_are_counted() {
    let rules = r#"alert tcp any any -> any any (content:"passwd"; sid:1;)"#;
    let script = opened([web().reply().rst(), web().payload("pass"), web().payload("wd")]);
    let outcome = run(rules, script);
    assert_eq!(
        (sids(&outcome).len(), outcome.counter("segments_outside")),
        (0, 2)
    );
}

/// A handshake whose SYN brings data, of which the server takes so much.
fn opened_with_data(data: &str, taken: u32, more: impl IntoIterator<Item = Step>) -> Vec<Step> {
    let mut script = Vec::from([
        web().syn().payload(data).sequence(1000),
        web().reply().syn_ack().acknowledgement(1001 + taken),
        web().ack().sequence(1001 + taken),
    ]);
    script.extend(more);
    script
}

#[test]
fn data_on_a_syn_is_the_streams_if_the_server_takes_it() {
    let rules = r#"alert tcp any any -> any 80 (content:"passwd"; sid:1;)"#;
    // Taken: the next segment goes on in the middle of the content.
    assert_eq!(sids(&run(rules, opened_with_data("pass", 4, [at(4, "wd")]))), [1]);
    // Not taken: it comes again behind the handshake, perhaps other bytes (RFC 7413).
    assert_eq!(
        sids(&run(rules, opened_with_data("xxxxxx", 0, [at(0, "passwd")]))),
        [1]
    );
    assert_eq!(
        sids(&run(rules, opened_with_data("pass", 0, [at(0, "wd")]))),
        [0; 0]
    );
    // Whether it is taken is not known where the server is not heard: the two are read apart.
    let script = [web().syn().payload("xxxxxx").sequence(1000), at(0, "passwd")];
    assert_eq!(sids(&run(rules, script)), [1]);
    // The content is found on the SYN itself, and not once more behind the handshake.
    assert_eq!(
        sids(&run(rules, opened_with_data("passwd", 6, [at(6, " more")]))),
        [1]
    );
    // As in Suricata a rule drops the SYN alone: its data are not yet the flow's.
    let rules = r#"drop tcp any any -> any 80 (content:"passwd"; sid:1;)"#;
    let mut script = opened([at(0, "hello")]);
    script.insert(0, web().syn().payload("passwd").sequence(1000));
    script[1] = web().syn().sequence(1000);
    let drop = Dropped("dropped_by_rule");
    run(rules, script).assert_fates([drop, Forwarded, Forwarded, Forwarded, Forwarded]);
}

#[test]
fn the_handshakes_last_acknowledgement_is_not_established() {
    let rules = "alert tcp any any -> any 80 (flow:established; flags:A; dsize:0; sid:1;)
        alert tcp any any -> any 80 (flow:not_established; flags:A; dsize:0; sid:2;)";
    assert_eq!(sids(&run(rules, opened([web().ack()]))), [2, 1]);
    // Data on the last acknowledgement are an established connection's: no later packet shows them.
    let rules = r#"alert tcp any any -> any 80 (flow:established; content:"passwd"; sid:1;)"#;
    let script = [web().syn(), web().reply().syn_ack(), web().payload("passwd")];
    assert_eq!(sids(&run(rules, script)), [1]);
}

#[test]
fn what_a_reset_ends() {
    let rules = r#"alert tcp-stream any any -> any any (content:"passwd"; sid:1;)"#;
    let from = |script: Vec<Step>| sids(&run(rules, opened(script)));
    // The receiver of a reset sends into the void: nothing of it is read as a stream.
    assert_eq!(
        from([web().reply().rst(), web().payload("passwd")].into()),
        [0; 0]
    );
    // A sender that goes on has not meant it, or the other end did not see it.
    assert_eq!(
        from([web().payload("pass"), web().rst(), at(4, "wd")].into()),
        [1]
    );
    // A reset with another number than the next (RFC 5961 3.2) neither ends a stream nor lets a
    // SYN begin a new stream.
    let forged = web().reply().rst().sequence(77_777);
    assert_eq!(
        from([web().payload("pass"), forged.clone(), at(4, "wd")].into()),
        [1]
    );
    let again = web().syn().sequence(500_000);
    assert_eq!(
        from([web().payload("pass"), forged, again, at(4, "wd")].into()),
        [1]
    );
}

#[test]
fn a_flow_whose_first_packet_is_dropped_stays_dropped() {
    // The rule asks for addresses only, so it holds for the flow, and for replies too.
    let rules = "drop udp 10.0.0.1 any -> any 53 (sid:1;)\nalert udp any 53 -> any any (sid:2;)";
    let name = udp("10.0.0.1:1", "192.0.2.1:53").payload("x");
    let outcome = run(rules, [name.clone(), name.clone(), name.reply()]);
    let flow = Dropped("flow_dropped");
    outcome.assert_fates([Dropped("dropped_by_rule"), flow, flow]);
    assert_eq!(sids(&outcome), [1]);
    // A first packet that is dropped for its own sake leaves no flow.
    let rules = "drop udp any any -> any 53 (dsize:1; sid:1;)";
    let outcome = run(rules, [name.clone()]);
    assert_eq!(outcome.flows(), 0);
}

#[test]
fn a_stream_without_beginning_is_read_packet_by_packet_or_picked_up() {
    let rules = r#"alert tcp any any -> any 80 (content:"passwd"; sid:1;)"#;
    let script = [
        web().payload("passwd"),
        web().payload("pass"),
        web().payload("wd"),
    ];
    assert_eq!(sids(&run(rules, script.clone())), [1]);
    let config = Config::from(Settings {
        rules: rules.into(),
        pick_up: true,
        ..Settings::default()
    });
    assert_eq!(sids(&testkit::run::<Ids>(config, script)), [1, 1]);
}

#[test]
fn established_flows_allocate_nothing() {
    let rules = r#"alert tcp any any -> any any (content:"user"; content:"root"; distance:0; threshold: type limit, track by_src, count 1, seconds 60; sid:1;)
        alert udp any any -> any any (content:"x"; dsize:>5; sid:2;)"#;
    let mut script = opened([web().payload("a user"), web().payload("and root")]);
    for round in 0..50 {
        script.push(web().payload(format!("more users and roots {round}")));
        script.push(at(2_000_000, "early user"));
        script.push(udp("10.0.0.1:1", "192.0.2.1:53").payload("xxxxxxxx"));
    }
    let outcome = run(rules, script);
    assert_eq!(outcome.allocations(10..), 0);
}

#[test]
fn a_flood_of_hits_forgets_no_more_than_is_said() {
    // Other contents, each of a rule of several, between the two of the first rule.
    let others = |count: usize| -> String {
        (0..count)
            .map(|n| {
                format!(
                    "alert tcp any any -> any any (content:\"<{n:02}>\"; content:\"never\"; sid:{};)\n",
                    n + 2
                )
            })
            .collect()
    };
    let between: Vec<u8> = (0..40).flat_map(|n| format!("<{n:02}>").into_bytes()).collect();
    let script = || {
        opened([
            web().payload("user"),
            web().payload(&between),
            web().payload("root"),
        ])
    };
    let first = r#"alert tcp any any -> any any (content:"user"; content:"root"; distance:0; sid:1;)"#;
    let found = |count: usize| sids(&run(&format!("{first}\n{}", others(count)), script()));
    assert_eq!(found(HITS_MAX - 1), [1]);
    assert!(found(HITS_MAX).is_empty(), "the bound that `state` tells of");
}
