//! Exit codes: one table, whichever command is said.

use crate::running::text;
use std::path::{Path, PathBuf};
use std::process::Command;

fn folder() -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("codes-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// The exit code, and what was said on standard error.
pub fn code(folder: &Path, words: &str) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowkeep"));
    let output = command
        .args(words.split_whitespace())
        .current_dir(folder)
        .output()
        .unwrap();
    (output.status.code(), text(&output.stderr))
}

const CHAIN: &str = "[[chain]]\nname = \"c\"\nfunctions = [\"flow_monitor\"]\n";
pub const PROFILE: &str =
    "flows = 1\npackets_max = 1\nsources = [\"10.0.0.0/26\"]\ndestinations = [\"198.51.100.1/32\"]\n";

pub fn port(input: &str) -> String {
    format!("[[port]]\nname = \"lan\"\nside = \"inside\"\ninput = \"{input}\"\n{CHAIN}")
}

/// Configurations, and the codes of `chain check` and of `run`: what the one calls an error ends
/// the other with 2, too.
#[test]
fn what_the_check_calls_an_error_ends_a_start_with_the_same_code() {
    let folder = folder();
    std::fs::write(folder.join("good.toml"), PROFILE).unwrap();
    std::fs::write(folder.join("wrong.toml"), "flws = 3\n").unwrap();
    std::fs::write(folder.join("text.pcap"), "no capture").unwrap();
    let good = || port("generate:good.toml");
    let stored = format!(
        "{}[store]\nuri = \"redis://127.0.0.1:1\"\n",
        good().replace("flow_monitor", "counter")
    );
    let table = [
        (good(), 0, 0, ""),
        (port("pcap:nosuch.pcap"), 2, 2, "name a file that is there"),
        (port("pcap:text.pcap"), 2, 2, "neither pcap nor pcapng"),
        (
            port("generate:wrong.toml"),
            2,
            2,
            "wrong.toml:1:1: unknown field `flws`",
        ),
        (port("generate:nosuch.toml"), 2, 2, "cannot be read"),
        (port("afpaket:lo"), 2, 2, "afpaket"),
        (format!("runtims = 2\n{}", good()), 2, 2, "write `runtimes`"),
        (
            good().replace("flow_monitor", "flow_monitr"),
            2,
            2,
            "write `flow_monitor`",
        ),
        // What another machine may have is a warning, and a failure of the start.
        (port("afxdp:lo"), 0, 1, "carries no Ethernet frames"),
        (port("afpacket:nosuch0"), 0, 1, "nosuch0"),
        (
            format!("user = \"no-such-user\"\n{}", good()),
            0,
            1,
            "no-such-user",
        ),
        (
            format!("{}[log]\nevents = \"no/such/folder/e\"\n", good()),
            0,
            1,
            "no/such/folder",
        ),
        (stored, 0, 1, "see that the server runs"),
    ];
    for (config, checked, ran, said) in table {
        std::fs::write(folder.join("f.toml"), &config).unwrap();
        let check = code(&folder, "chain check f.toml");
        assert_eq!(check.0, Some(checked), "{config}\n{}", check.1);
        let run = code(&folder, "run f.toml --for 10s --socket s");
        assert_eq!(run.0, Some(ran), "{config}\n{}", run.1);
        assert!(run.1.contains(said), "{said} is not in {}", run.1);
        if checked == 2 {
            assert!(check.1.contains(said), "{said} is not in {}", check.1);
        }
    }
    let members = port("generate:good.toml")
        + "member = \"a\"\n[[member]]\nname = \"a\"\nhost = \"h\"\nswitches = 1\n[[member]]\nname = \"b\"\nhost = \"h\"\nruntimes = 1\n\
           [cluster]\nkeys = [\"text.pcap\"]\n";
    let members = members.replace(
        &format!("{CHAIN}member = \"a\"\n"),
        &format!("member = \"a\"\n{CHAIN}"),
    );
    std::fs::write(folder.join("f.toml"), members).unwrap();
    let check = code(&folder, "chain check f.toml");
    assert_eq!(check.0, Some(0), "{}", check.1);
    for (words, expected) in [
        ("node f.toml --member b", 1),
        ("node f.toml --member z", 2),
        ("switch f.toml --member b", 2),
    ] {
        let member = code(&folder, words);
        assert_eq!(member.0, Some(expected), "{words}: {}", member.1);
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Wrong words are 2, and what cannot be done is 1, of whichever noun.
#[test]
fn wrong_words_and_failures_have_one_code_each() {
    let folder = folder().join("words");
    std::fs::create_dir_all(&folder).unwrap();
    for words in [
        "",
        "flwo list",
        "flow lst",
        "flow list --limit many",
        "flow list --address 10.0.0.0/99",
        "flow show tpc 10.0.0.1:1 10.0.0.2:2",
        "flow show tcp 10.0.0.1 10.0.0.2:2",
        "flow migrate",
        "runtime drain x",
        "run",
        "run nosuch.toml",
        "run --input pcpa:x",
        "chain check nosuch.toml",
        "schema nosuch",
        "capture --filter",
        "bench nosuch",
        "new",
        "node",
        "replication set c nosuch",
    ] {
        let said = code(&folder, words);
        assert_eq!(said.0, Some(2), "{words}: {}", said.1);
        assert!(!said.1.is_empty(), "{words}");
    }
    for words in [
        "status --socket nosuch",
        "flow list --socket nosuch",
        "flow show tcp 10.0.0.1:1 10.0.0.2:2 --socket nosuch",
        "flow events --socket nosuch",
        "capture --socket nosuch",
        "top --once --socket nosuch",
        "stop --socket nosuch",
        "runtime list --socket nosuch",
        "order list --socket nosuch",
        "function nat pool --socket nosuch",
        "chain confirm --socket nosuch",
    ] {
        let said = code(&folder, words);
        assert_eq!(said.0, Some(1), "{words}: {}", said.1);
        assert!(said.1.contains("nosuch"), "{words}: {}", said.1);
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
