//! The hits that a flow remembers between packets, and the count of those that it forgets.

use super::*;

fn in_parts(rules: &str, parts: &[&[u8]]) -> Outcome {
    run(rules, opened(parts.iter().map(|part| web().payload(part))))
}

fn is_found(outcome: &Outcome) -> bool {
    !sids(outcome).is_empty()
}

#[test]
fn a_first_content_that_comes_again_is_not_forgotten() {
    let again: &[u8] = b"USER root\r\n";
    let login = r#"alert tcp any any -> any 80 (content:"USER root"; depth:9; content:"PASS x"; sid:1;)"#;
    // The first content has its place at the beginning: the later ones are none.
    let outcome = in_parts(login, &[again, again, again, again, again, b"PASS x\r\n"]);
    assert_eq!((is_found(&outcome), outcome.counter("hits_forgotten")), (true, 0));
    // Nor do they drive it out in one segment, or in thousands.
    let many = again.repeat(100);
    let outcome = in_parts(login, &[again, &many, b"PASS x\r\n"]);
    assert_eq!((is_found(&outcome), outcome.counter("hits_forgotten")), (true, 0));
    let mut parts = Vec::from([again; 3000]);
    parts.push(b"PASS x");
    let outcome = in_parts(login, &parts);
    assert_eq!((is_found(&outcome), outcome.counter("hits_forgotten")), (true, 0));
    // The same where the second content may stand anywhere behind the first.
    let login =
        r#"alert tcp any any -> any 80 (content:"USER root"; depth:9; content:"PASS x"; distance:0; sid:1;)"#;
    let outcome = in_parts(login, &[again, again, again, again, again, b"PASS x\r\n"]);
    assert_eq!((is_found(&outcome), outcome.counter("hits_forgotten")), (true, 0));
}

#[test]
fn a_negated_content_that_comes_again_is_not_forgotten() {
    let rules = r#"alert tcp any any -> any 80 (content:!"USER root"; depth:9; content:"PASS x"; sid:1;)"#;
    let again: &[u8] = b"USER root\r\n";
    let rules = rules.replace("alert tcp ", "alert tcp-stream ");
    assert!(!is_found(&in_parts(
        &rules,
        &[again, again, again, again, b"PASS x"]
    )));
    assert!(is_found(&in_parts(&rules, &[b"x", again, again, b"PASS x"])));
}

#[test]
fn what_is_forgotten_is_counted() {
    // `BB` must begin 40 bytes behind `AA`: of five of them only the first is far enough away.
    let rules = r#"alert tcp any any -> any 80 (content:"AA"; content:"BB"; distance:40; within:2; sid:1;)"#;
    let text = format!("AA.AA.AA.AA.AA{}BB", ".".repeat(28));
    assert!(is_found(&in_parts(rules, &[text.as_bytes()])));
    let parts: Vec<&[u8]> = text.as_bytes().chunks(3).collect();
    let outcome = in_parts(rules, &parts);
    assert!(!is_found(&outcome));
    assert_eq!(outcome.counter("hits_forgotten"), 2);
    // A hit out of reach is no loss: `BB` can follow none of these any more.
    let parts: Vec<Vec<u8>> = (0..20)
        .map(|_| format!("AA{}", ".".repeat(100)).into_bytes())
        .collect();
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    assert_eq!(in_parts(rules, &parts).counter("hits_forgotten"), 0);
}

/// A content of one or two letters, with a place or none; of the first never a relative place.
fn content(first: bool) -> impl Strategy<Value = String> {
    let place = prop_oneof![
        3 => Just(String::new()),
        1 => (0u32..20).prop_map(|offset| format!(" offset:{offset};")),
        1 => (2u32..30).prop_map(|depth| format!(" depth:{depth};")),
        1 => (0u32..10, 2u32..20).prop_map(|(offset, depth)| format!(" offset:{offset}; depth:{depth};")),
    ];
    let relative = prop_oneof![
        2 => (-6i32..8).prop_map(|distance| format!(" distance:{distance};")),
        1 => (2u32..9).prop_map(|within| format!(" within:{within};")),
        2 => (-4i32..8, 2u32..12).prop_map(|(distance, within)| format!(" distance:{distance}; within:{within};")),
    ];
    let place = match first {
        true => place.boxed(),
        false => prop_oneof![place, relative].boxed(),
    };
    ("[ab]{1,2}", place).prop_map(|(text, place)| format!("content:\"{text}\";{place} "))
}

proptest! {
    /// However a text is divided: a match in the whole is a match in its parts, or a forgotten hit
    /// is counted.
    #[test]
    fn what_is_found_in_the_whole_is_found_in_parts(
        first in content(true),
        others in prop::collection::vec(content(false), 1..4),
        text in "[ab.]{1,60}",
        size in 1usize..8,
    ) {
        let rules = format!("alert tcp-stream any any -> any any ({first}{}sid:1;)", others.concat());
        let whole = is_found(&in_parts(&rules, &[text.as_bytes()]));
        let parts: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
        let outcome = in_parts(&rules, &parts);
        let forgotten = outcome.counter("hits_forgotten");
        prop_assert!(!is_found(&outcome) || whole, "{} in {} was found in parts only", rules, text);
        prop_assert!(is_found(&outcome) || !whole || forgotten > 0, "{} in {} by {}", rules, text, size);
    }
}
