//! Configurations that are good, and most likely not meant.

use super::*;

#[test]
fn chains_that_nothing_reaches_are_a_warning() {
    let of = |matches: &[&str]| {
        let mut text = "[[port]]\nname = \"a\"\ninput = \"pcap:a\"\n".to_owned();
        for (index, matches) in matches.iter().enumerate() {
            text += &format!("[[chain]]\nname = \"c{index}\"\nfunctions = [\"gate\"]\n{matches}\n");
        }
        check::warnings(&parse("f.toml", &text, &registry()).unwrap())
    };
    // Where they are written does not matter: the more specific one wins.
    assert!(of(&["", "match = { source_port = 53 }"]).is_empty());
    let second = "chain `c1` is never reached: `c0` takes all that it matches; make its match more specific, or take it out";
    assert_eq!(of(&["", ""]), [second]);
    assert_eq!(
        of(&["", "match = { protocol = \"tcp\" }", ""]),
        [
            "chain `c2` is never reached: `c0` takes all that it matches; make its match more specific, or take it out"
        ]
    );
    assert_eq!(
        of(&[
            "match = { side = \"inside\" }",
            "",
            "match = { side = \"outside\" }"
        ]),
        [
            "chain `c1` is never reached: `c0` and `c2` take all that it matches; make its match more specific, or take it out"
        ]
    );
}

#[test]
fn a_function_that_no_chain_has_is_a_warning() {
    let warnings = |function: &str| {
        let text = format!(
            "[[port]]\nname = \"a\"\ninput = \"pcap:a\"\n[[chain]]\nname = \"c\"\nfunctions = [\"{function}\"]\n\
             [function.gate]\nidle = \"1s\"\n"
        );
        check::warnings(&parse("f.toml", &text, &registry()).unwrap())
    };
    assert_eq!(warnings("gate"), [""; 0]);
    let [said] = &warnings("hosts")[..] else {
        panic!("one warning");
    };
    assert!(said.starts_with("no chain has the function `gate`; "), "{said}");
}

#[test]
fn copies_that_no_runtime_can_have_are_a_warning() {
    let of = |settings: &str| {
        let port = "[[port]]\nname = \"a\"\ninput = \"pcap:a\"\n";
        let text = format!("{settings}\n{port}{CHAIN}");
        check::warnings(&parse("f.toml", &text, &registry()).unwrap()).len()
    };
    let commit = "[replication]\npolicy = \"commit\"";
    assert_eq!(of(commit), 1);
    assert_eq!(of(&format!("runtimes = 2\n{commit}")), 0);
    assert_eq!(of(""), 0);
}

#[test]
fn what_loses_something_without_a_word_is_a_warning() {
    let of = |input: &str, settings: &str| {
        let text = format!("[[port]]\nname = \"a\"\ninput = \"{input}\"\n{CHAIN}{settings}\n");
        check::warnings(&parse("f.toml", &text, &registry()).unwrap())
    };
    let one = |input: &str, settings: &str, says: &str| {
        let all = of(input, settings);
        assert!(all.len() == 1 && all[0].contains(says), "{says}: {all:?}");
    };
    let log = "[log]\nevents = \"e.jsonl\"\n";
    one(
        "pcap:a",
        &format!("{log}max_size = \"64 MiB\"\nkeep = 0"),
        "; write keep = 1",
    );
    one(
        "pcap:a",
        &format!("{log}max_age = \"24h\"\nkeep = 0"),
        "; write keep = 1",
    );
    // The file grows, and none is renamed.
    assert_eq!(of("pcap:a", &format!("{log}keep = 0")), [""; 0]);
    assert_eq!(of("pcap:a", &format!("{log}max_age = \"24h\"")), [""; 0]);
    one("pcap:a", "[cluster]\nname = \"edge\"", "there is no [[member]]; ");
    assert_eq!(of("pcap:a", "[cluster]"), [""; 0]);
    one("reflect:", "", "every input is a `reflect:`");
    let second = "[[port]]\nname = \"b\"\ninput = \"pcap:a\"\n";
    assert_eq!(of("reflect:", second), [""; 0]);
}

#[test]
fn a_bridge_whose_ports_take_frames_as_a_router_is_a_warning() {
    let of = |input: &str| {
        let text = format!("[[port]]\nname = \"a\"\ninput = \"{input}\"\n{CHAIN}");
        check::warnings(&parse("f.toml", &text, &registry()).unwrap())
    };
    for input in ["afpacket:eth0", "afxdp:eth0", "afxdp:eth0?take=routed"] {
        let [warning] = &of(input)[..] else {
            panic!("one warning")
        };
        assert!(
            warning.contains("`a` takes frames to this host alone"),
            "{warning}"
        );
    }
    assert!(of("afpacket:eth0?take=everything").is_empty() && of("pcap:a").is_empty());
    let routing = "[[port]]\nname = \"a\"\ninput = \"afpacket:eth0\"\n[[chain]]\nname = \"c\"\nfunctions = [\"forward\"]\n";
    let registry = crate::registry![functions::forward::Forward];
    assert!(check::warnings(&parse("f.toml", routing, &registry).unwrap()).is_empty());
}

#[test]
fn a_table_of_stores_without_a_store_is_a_warning() {
    let warnings = |lines: &str| {
        let text = format!(
            "[[port]]\nname = \"a\"\ninput = \"pcap:a\"\n[[chain]]\nname = \"c\"\nfunctions = [\"gate\"]\n[store]\n{lines}"
        );
        check::warnings(&parse("f.toml", &text, &registry()).unwrap())
    };
    assert!(warnings("").is_empty() && warnings("uri = \"memory:\"\ninterval = \"2ms\"\n").is_empty());
    let [warning] = &warnings("interval = \"2ms\"\n")[..] else {
        panic!("one warning")
    };
    assert!(warning.starts_with("[store] names no store"), "{warning}");
}
