//! The meaning of rules, and refusals.

use super::*;
use testkit::ping;

/// Whether a rule matches a datagram.
fn matches(words: &str, payload: &[u8]) -> bool {
    let rules = format!("alert udp any any -> any any ({words} sid:1;)");
    let outcome = run(&rules, [udp("10.0.0.1:1", "192.0.2.1:53").payload(payload)]);
    !sids(&outcome).is_empty()
}

#[test]
fn places_of_contents() {
    for (words, payload, expected) in [
        (r#"content:"abc";"#, "xxabc", true),
        (r#"content:"abc";"#, "xxABC", false),
        (r#"content:"aBc"; nocase;"#, "xxAbC", true),
        (r#"content:"abc"; offset:2;"#, "xxabc", true),
        (r#"content:"abc"; offset:3;"#, "xxabc", false),
        (r#"content:"abc"; depth:5;"#, "xxabc", true),
        (r#"content:"abc"; depth:4;"#, "xxabc", false),
        (r#"content:"abc"; offset:2; depth:3;"#, "xxabc", true),
        (r#"content:"abc"; offset:1; depth:3;"#, "xxabc", false),
        (r#"content:"abc"; startswith;"#, "abcx", true),
        (r#"content:"abc"; startswith;"#, "xabc", false),
        (r#"content:"abc"; endswith;"#, "xabc", true),
        (r#"content:"abc"; endswith;"#, "abcabcx", false),
        (r#"content:!"abc";"#, "xyz", true),
        (r#"content:!"abc";"#, "xabc", false),
        (r#"content:"x"; content:!"abc"; offset:4;"#, "xabc", true),
        (r#"content:"ab"; content:"cd"; distance:1;"#, "ab-cd", true),
        (r#"content:"ab"; content:"cd"; distance:1;"#, "abcd", false),
        (r#"content:"ab"; content:"cd"; within:2;"#, "ab-cd", false),
        (r#"content:"ab"; content:"cd"; within:3;"#, "abxxabcd", true),
        (
            r#"content:"ab"; content:"cd"; distance:2; within:2;"#,
            "ab--cd",
            true,
        ),
        (
            r#"content:"ab"; content:"cd"; distance:2; within:2;"#,
            "ab---cd",
            false,
        ),
        (
            r#"content:"cd"; content:"ab"; distance:-4; within:2;"#,
            "abcd",
            true,
        ),
        (r#"content:"cd"; content:"ab";"#, "abcd", true),
        (r#"content:"ab"; content:!"cd"; within:4;"#, "ab--cd", false),
        (r#"content:"ab"; content:!"cd"; within:3;"#, "ab--cd", true),
        (
            r#"content:"a"; content:"b"; within:1; content:"c"; within:1;"#,
            "ac ab abc",
            true,
        ),
        (r#"content:"|00 01|a|02|";"#, "x\0\u{1}a\u{2}", true),
        (r#"content:"aa"; content:"aa"; distance:0;"#, "aaa", false),
        (r#"content:"aa"; content:"aa"; distance:0;"#, "aaaa", true),
        ("dsize:3;", "abc", true),
        ("dsize:<3;", "abc", false),
        ("dsize:2<>4;", "abc", true),
        ("dsize:3<>5;", "abc", false),
        ("dsize:!3;", "abc", false),
        ("ttl:64;", "", true),
        ("ttl:>64;", "", false),
        ("ip_proto:17;", "", true),
        ("ip_proto:!udp;", "", false),
    ] {
        assert_eq!(
            matches(words, payload.as_bytes()),
            expected,
            "{words} {payload:?}"
        );
    }
}

#[test]
fn flags_and_directions() {
    let rules = "alert tcp any any -> any 80 (flags:S; sid:1;)
        alert tcp any any -> any any (flags:SA; sid:2;)
        alert tcp any any -> any any (flags:+S; sid:3;)
        alert tcp any any -> any any (flags:*FR; sid:4;)
        alert tcp any any -> any any (flags:!A; sid:5;)
        alert tcp any any -> any any (flags:S,CE; sid:6;)
        alert tcp any 80 <> any any (flags:A; flow:to_client; sid:7;)";
    let script = [
        web().syn(),
        web().reply().syn_ack(),
        web().ack(),
        web().reply().ack(),
        web().flags(flags::SYN | flags::ECE | flags::CWR),
        web().rst(),
    ];
    let outcome = run(rules, script);
    let mut by_packet: Vec<Vec<u64>> = Vec::new();
    let mut last = None;
    for line in outcome.events().lines() {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        let sid = event["alert"]["signature_id"].as_u64().unwrap();
        if last != Some(event["time"].to_string()) {
            by_packet.push(Vec::new());
        }
        last = Some(event["time"].to_string());
        by_packet.last_mut().unwrap().push(sid);
    }
    let expected: [&[u64]; 5] = [&[1, 3, 5, 6], &[2, 3], &[7], &[3, 5, 6], &[4]];
    assert_eq!(by_packet, expected);
}

#[test]
fn icmp_and_its_queries() {
    let rules = "alert icmp any any -> any any (itype:8; icode:0; icmp_id:77; icmp_seq:1; sid:1;)
        alert icmp any any -> any any (itype:0; icmp_id:77; sid:2;)
        alert icmpv6 any any -> any any (itype:>127; sid:3;)
        alert icmpv4 any any -> any any (icode:<1; flow:to_client; sid:4;)";
    let four = ping("10.0.0.1", "192.0.2.1", 77);
    let six = ping("2001:db8::1", "2001:db8::2", 77);
    let outcome = run(rules, [four.clone(), four.reply(), six]);
    assert_eq!(sids(&outcome), [1, 2, 4, 3]);
    assert!(
        outcome
            .events()
            .contains(r#""proto":"IPv6-ICMP","icmp_type":128,"icmp_code":0"#)
    );
}

#[test]
fn flow_bits_in_suricatas_order() {
    // The order in which rules are asked is not that of the lines.
    let rules = r#"alert udp any any -> any any (flowbits:isset,b|c; sid:1;)
        alert udp any any -> any any (content:"set"; flowbits:set,a; flowbits:noalert; sid:2;)
        alert udp any any -> any any (flowbits:isset,a; flowbits:unset,a; flowbits:toggle,b; sid:3;)
        alert udp any any -> any any (flowbits:isnotset,a; content:"end"; sid:4;)"#;
    let name = udp("10.0.0.1:1", "192.0.2.1:53");
    assert_eq!(sids(&run(rules, [name.payload("set")])), [3, 1]);
    assert_eq!(
        sids(&run(rules, [name.payload("set"), name.payload("end")])),
        [3, 1, 1, 4]
    );
    let other = udp("10.0.0.2:1", "192.0.2.1:53");
    assert_eq!(
        sids(&run(rules, [name.payload("set"), other.payload("x")])),
        [3, 1]
    );
}

#[test]
fn a_pass_comes_first_and_reaches_the_flow() {
    let rules = r#"alert tcp any any -> any any (content:"bad"; sid:1;)
        pass tcp 10.0.0.1 any -> any 80 (sid:2;)"#;
    assert!(
        sids(&run(
            rules,
            opened([web().payload("bad"), web().reply().payload("bad")])
        ))
        .is_empty()
    );
    let other = tcp("10.0.0.2:1000", "192.0.2.1:80");
    let script = [other.syn(), other.reply().syn_ack(), other.payload("bad")];
    assert_eq!(sids(&run(rules, script)), [1]);
}

#[test]
fn rules_about_flows_are_asked_once_each_way() {
    let rules = "alert ip any any -> any any (sid:1;)
        alert tcp any any -> any 80 (flow:stateless; sid:2;)";
    let outcome = run(rules, opened([web().payload("x")]));
    assert_eq!(sids(&outcome).iter().filter(|sid| **sid == 1).count(), 2);
    assert_eq!(sids(&outcome).iter().filter(|sid| **sid == 2).count(), 3);
}

#[test]
fn established_flows_of_every_protocol() {
    let rules = "alert udp any any -> any any (flow:established; sid:1;)
        alert udp any any -> any any (flow:not_established; sid:2;)";
    let name = udp("10.0.0.1:1", "192.0.2.1:53");
    let script = [name.clone(), name.clone(), name.reply(), name.clone()];
    assert_eq!(sids(&run(rules, script)), [2, 2, 1, 1]);
}

#[test]
fn thresholds_hold_alerts_back() {
    let rules = r#"alert udp any any -> any any (dsize:1; threshold: type limit, track by_src, count 2, seconds 60; sid:1;)
        drop udp any any -> any any (dsize:2; threshold: type both, track by_dst, count 3, seconds 60; sid:2;)"#;
    let from = |host: u8, payload: &str| udp(&format!("10.0.0.{host}:1"), "192.0.2.1:53").payload(payload);
    let script = [
        from(1, "a"),
        from(1, "a"),
        from(1, "a"),
        from(2, "a"),
        from(1, "bb"),
        from(2, "bb"),
        from(3, "bb"),
        from(4, "bb"),
    ];
    let outcome = run(rules, script);
    assert_eq!(sids(&outcome), [1, 1, 1, 2]);
    // As in Suricata a rule does nothing below its count, and drops without an alert past it.
    assert_eq!(outcome.dropped("dropped_by_rule"), 2);
    outcome.assert_fates([
        Forwarded,
        Forwarded,
        Forwarded,
        Forwarded,
        Forwarded,
        Forwarded,
        Dropped("dropped_by_rule"),
        Dropped("dropped_by_rule"),
    ]);
}

#[test]
fn unknown_words_are_refused_by_name_and_line() {
    let refused = |rules: &str| {
        let error = config(rules).rules().unwrap_err();
        (error.problem, error.remedy)
    };
    let ok = "alert ip any any -> any any (sid:1;)";
    for (rules, line, word) in [
        (
            format!("{ok}\n\n# x\nalert tcp any any -> any any (pcre:\"/a/\"; sid:2;)"),
            4,
            "keyword `pcre`",
        ),
        (
            format!("alert http any any -> any any (sid:2;)\n{ok}"),
            1,
            "protocol `http`",
        ),
        (
            format!("{ok}\nalert tcp any any \\\n -> any any \\\n (http.uri; sid:2;)"),
            2,
            "keyword `http.uri`",
        ),
        (
            format!("{ok}\nlog tcp any any -> any any (sid:2;)"),
            2,
            "action `log`",
        ),
        (
            format!("{ok}\nalert tcp any any -> any any (flow:only_stream; sid:2;)"),
            2,
            "keyword `flow:only_stream`",
        ),
    ] {
        let (problem, remedy) = refused(&rules);
        assert!(
            problem.starts_with(&format!("line {line} of the rules:")),
            "{problem}"
        );
        assert!(problem.contains(word), "{problem}");
        assert!(!remedy.is_empty());
    }
    for (words, says) in [
        ("sid:1", "semicolon"),
        ("", "no sid"),
        ("sid:0;", "no value of `sid`"),
        ("sid:1; nocase;", "before any content"),
        (r#"content:"abc"; distance:-1; within:3; sid:1;"#, "within fewer"),
        (r#"content:"abc"; depth:2; sid:1;"#, "within fewer"),
        (r#"content:"a"; offset:1; offset:2; sid:1;"#, "again"),
        (
            r#"content:"a"; content:"b"; offset:1; distance:2; sid:1;"#,
            "from the beginning",
        ),
        (r#"content:"a"; offset:-1; sid:1;"#, "no value of `offset`"),
        ("flow:to_server,to_client; sid:1;", "exclude each other"),
        ("dsize:5<>6; sid:1;", "no value of `dsize`"),
        ("ttl:256; sid:1;", "no value of `ttl`"),
        ("flags:X; sid:1;", "no value of `flags`"),
        ("flowbits:set; sid:1;", "no value of `flowbits`"),
        ("flowbits:set,a|b; sid:1;", "no value of `flowbits`"),
        (
            "threshold:type limit, track by_src, count 1; sid:1;",
            "no value of `threshold`",
        ),
    ] {
        let (problem, remedy) = refused(&format!("alert tcp any any -> any any ({words})"));
        assert!(problem.contains(says), "{words}: {problem}");
        assert!(!remedy.is_empty(), "{words}");
    }
    assert!(
        refused(&format!("{ok}\n{ok}"))
            .0
            .contains("sid 1 is also that of the rule on line 1")
    );
    assert!(refused("").0.contains("there is no rule"));
}

#[test]
fn rules_can_be_left_out() {
    let config = Config::from(Settings {
        rules: "alert tcp any any -> any any (pcre:\"/a/\"; sid:2;)\nalert ip any any -> any any (sid:1;)"
            .into(),
        unsupported: crate::ids::config::Unsupported::Skip,
        ..Settings::default()
    });
    let loaded = config.rules().unwrap();
    assert_eq!(loaded.rules.len(), 1);
    assert_eq!(loaded.skipped[0].error.fault.unknown.as_deref(), Some("pcre"));
}

#[test]
fn the_only_rule_is_not_said_to_be_left_out() {
    let remedy = |rules: &str| {
        let settings = Settings {
            rules: rules.into(),
            ..Settings::default()
        };
        Config::from(settings).rules().unwrap_err().remedy
    };
    let unknown = "alert tcp any any -> any any (pcre:\"/a/\"; sid:2;)";
    assert!(remedy(unknown).starts_with("write it with words that are known"));
    let beside = remedy(&format!("{unknown}\nalert ip any any -> any any (sid:1;)"));
    assert!(beside.starts_with("take the rule out"), "{beside}");
}

#[test]
fn a_file_of_rules_is_named_with_its_line() {
    let settings = |text: &str| Settings {
        rules_file: Some(nf::TextFile::new("site.rules", text)),
        rules: "alert ip any any -> any any (sid:1;)".into(),
        ..Settings::default()
    };
    let error = Config::from(settings("\n\nalert tcp any any -> any any (sid:x;)\n"))
        .rules()
        .unwrap_err();
    let place = error.place.clone().unwrap();
    assert_eq!((place.file.as_str(), place.line), ("site.rules", 3));
    assert!(
        error
            .to_string()
            .starts_with("site.rules:3: rules_file: `x` is no value of `sid`")
    );
    // A mistake that only shows when all are put together has its file, too.
    let error = Config::from(settings(
        "alert ip any any -> any any (sid:2;)\nalert ip any any -> any any (sid:2;)",
    ));
    assert_eq!(error.rules().unwrap_err().place.unwrap().line, 2);
}

#[test]
fn hashes_tell_rule_sets_apart() {
    let one = "alert tcp any any -> any any (content:\"a\"; sid:1;)";
    let hash = |text: &str| rule_set(text).hash();
    assert_eq!(hash(one), hash(&format!("# moved\n{one}")));
    for other in [
        "alert tcp any any -> any any (content:\"b\"; sid:1;)",
        "alert tcp any any -> any any (content:\"a\"; nocase; sid:1;)",
        "alert tcp any any -> any 80 (content:\"a\"; sid:1;)",
    ] {
        assert_ne!(hash(one), hash(other), "{other}");
    }
}

/// The flags of segments that a `flags` matches, of some that show every mode and mask.
fn flags_matched(value: &str) -> Vec<u8> {
    let rules = format!("alert tcp any any -> any any (flags:{value}; sid:1;)");
    let all = [
        0,
        flags::SYN,
        flags::ACK,
        flags::SYN | flags::ACK,
        flags::PSH | flags::ACK,
        flags::RST | flags::ACK,
        flags::CWR,
        flags::SYN | flags::ECE | flags::CWR,
        flags::URG | flags::ACK,
    ];
    let is_matched = |flags: &u8| !sids(&run(&rules, [web().flags(*flags)])).is_empty();
    all.into_iter().filter(is_matched).collect()
}

#[test]
fn flags_as_suricata_compares_them() {
    let (s, a, p, r, u) = (flags::SYN, flags::ACK, flags::PSH, flags::RST, flags::URG);
    let (c, ec) = (flags::CWR, flags::ECE | flags::CWR);
    for (value, expected) in [
        // A modifier stands before, behind or between the flags.
        ("A+", &[a, s | a, p | a, r | a, u | a][..]),
        ("+A", &[a, s | a, p | a, r | a, u | a]),
        ("U+", &[u | a]),
        ("RSF*", &[s, s | a, r | a, s | ec]),
        ("R*SF", &[s, s | a, r | a, s | ec]),
        ("SA!", &[0, s, a, p | a, r | a, c, s | ec, u | a]),
        ("S", &[s]),
        // Behind the comma: flags that are not looked at.
        ("S,12", &[s, s | ec]),
        ("S,CE", &[s, s | ec]),
        ("A,PU", &[a, p | a, u | a]),
        ("+SA,12", &[s | a]),
        // 0 is no flag at all, the ignored ones counted; `!0` is any.
        ("0", &[0]),
        ("0,12", &[0]),
        ("!0", &[s, a, s | a, p | a, r | a, c, s | ec, u | a]),
        ("s", &[s]),
    ] {
        assert_eq!(flags_matched(value), expected, "flags:{value}");
    }
    for value in ["+", "A++", "+A*", "S,", "S,0", "S A", ",S", "SX", ""] {
        let rules = format!("alert tcp any any -> any any (flags:{value}; sid:1;)");
        assert!(config(&rules).rules().is_err(), "flags:{value}");
    }
}

#[test]
fn how_a_rule_is_found_changes_nothing() {
    for (words, payload, expected) in [
        (
            r#"content:"abc"; fast_pattern:only; content:"x"; depth:1;"#,
            "x..abc",
            true,
        ),
        (
            r#"content:"x"; depth:1; content:"aBc"; fast_pattern:only; nocase;"#,
            "x..abc",
            true,
        ),
        (
            r#"content:"abc"; fast_pattern:only; content:"x"; depth:1;"#,
            "x..ab.c",
            false,
        ),
        (r#"content:"abcdefg"; fast_pattern:2,5;"#, "..abcdefg", true),
        (r#"content:"abcdefg"; fast_pattern:2,5;"#, "..cdefg", false),
        (
            r#"content:"abc"; content:"x"; fast_pattern; depth:1;"#,
            "x..abc",
            true,
        ),
    ] {
        assert_eq!(matches(words, payload.as_bytes()), expected, "{words} {payload}");
    }
    // Suricata refuses these.
    for words in [
        r#"content:"abc"; fast_pattern:only; offset:1;"#,
        r#"content:!"abc"; fast_pattern:only;"#,
        r#"content:"abc"; fast_pattern:only; content:"x"; distance:0;"#,
        r#"content:"x"; content:"abc"; within:9; fast_pattern:only;"#,
        r#"content:"abcdefg"; fast_pattern:3,5;"#,
        r#"content:"abcdefg"; fast_pattern:3,0;"#,
        r#"content:"abcdefg"; fast_pattern:3;"#,
        r#"content:"abcdefg"; fast_pattern:all;"#,
    ] {
        let rules = format!("alert tcp any any -> any any ({words} sid:1;)");
        assert!(config(&rules).rules().is_err(), "{words}");
    }
}

#[test]
fn a_first_content_is_relative_to_the_beginning() {
    for (words, payload, expected) in [
        (r#"content:"abc"; distance:2;"#, "..abc", true),
        (r#"content:"abc"; distance:3;"#, "..abc", false),
        (r#"content:"abc"; within:5;"#, "..abc", true),
        (r#"content:"abc"; within:4;"#, "..abc", false),
        (r#"content:"abc"; distance:2; within:3;"#, "..abc", true),
        (r#"content:"abc"; distance:1; within:3;"#, "..abc", false),
        (r#"content:"abc"; distance:-2; within:7;"#, "..abc", true),
        (r#"content:"abc"; distance:-2; within:6;"#, "..abc", false),
        (r#"content:"abc"; distance:-9;"#, "abc", true),
        // A negated content has no place that could be counted from.
        (r#"content:!"x"; content:"abc"; within:4;"#, "..abc", false),
        (r#"content:!"x"; content:"abc"; within:5;"#, "..abc", true),
        (r#"content:!"abc"; within:5;"#, "..abc", false),
        (r#"content:!"abc"; within:4;"#, "..abc", true),
        (
            r#"content:"b"; within:4; content:"c"; distance:0; within:1;"#,
            "..abc",
            true,
        ),
    ] {
        assert_eq!(matches(words, payload.as_bytes()), expected, "{words} {payload}");
    }
}

#[test]
fn a_detection_filter_holds_till_there_are_more() {
    let rules =
        "drop udp any any -> any any (dsize:1; detection_filter:track by_src, count 2, seconds 60; sid:1;)";
    let one = udp("10.0.0.1:1", "192.0.2.1:53").payload("a");
    let after = |seconds: u64| one.after(core::time::Duration::from_secs(seconds));
    let outcome = run(
        rules,
        [
            one.clone(),
            one.clone(),
            one.clone(),
            one.clone(),
            after(70),
            one.clone(),
            one,
        ],
    );
    assert_eq!(sids(&outcome), [1, 1, 1]);
    let drop = Dropped("dropped_by_rule");
    outcome.assert_fates([Forwarded, Forwarded, drop, drop, Forwarded, Forwarded, drop]);
}

#[test]
fn numbers_of_segments() {
    let rules = "alert tcp any any -> any any (seq:1958810375; sid:1;)
        alert tcp any any -> any any (flags:S; ack:0; sid:2;)";
    let script = [
        web().syn().sequence(1_958_810_375),
        web().syn().acknowledgement(7).sequence(5),
    ];
    assert_eq!(sids(&run(rules, script)), [1, 2]);
}
