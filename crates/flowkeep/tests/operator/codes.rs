//! Exit codes: one table for all commands.

use crate::running::{Running, text};
use std::path::{Path, PathBuf};
use std::process::Command;

fn folder() -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("codes-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// The exit code, and the command's words.
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

/// The bytes that a pcapng file begins with.
const SECTION: [u8; 28] = [
    0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff,
    0xff, 0xff, 0xff, 28, 0, 0, 0,
];

/// Configurations, and the codes of `chain check` and of `run`: an error of the check ends `run`
/// with 2, too.
#[test]
fn what_the_check_calls_an_error_ends_a_start_with_the_same_code() {
    let folder = folder();
    std::fs::write(folder.join("good.toml"), PROFILE).unwrap();
    std::fs::write(folder.join("wrong.toml"), "flws = 3\n").unwrap();
    std::fs::write(folder.join("text.pcap"), "no capture").unwrap();
    for (name, section) in [
        (
            "magic.pcapng",
            &SECTION.map(|byte| byte ^ u8::from(byte == 0x4d))[..],
        ),
        (
            "version.pcapng",
            &SECTION.map(|byte| byte * if byte == 1 { 2 } else { 1 })[..],
        ),
        ("cut.pcapng", &SECTION[..20]),
    ] {
        std::fs::write(folder.join(name), section).unwrap();
    }
    let with = |more: &str| format!("{}{more}\n", port("generate:good.toml"));
    const BROKEN: &str = "no packet of it can be read: ";
    const EMPTY: &str = "the name is empty";
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
        // A setting that may be good on another machine is a warning, and a failure of the start.
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
        (port("pcap:/dev/null"), 2, 2, "it begins with nothing"),
        (port("pcap:magic.pcapng"), 2, 2, BROKEN),
        (port("pcap:version.pcapng"), 2, 2, BROKEN),
        (port("pcap:cut.pcapng"), 2, 2, BROKEN),
        (with("[log]\nevents = \"\""), 2, 2, "the name is empty"),
        (with("[control]\nsocket = \"\""), 2, 2, "the name is empty"),
        (
            with("[log]\nevents = \"a\\u0000b\""),
            2,
            2,
            "a character that cannot be shown (\\u{0})",
        ),
        (with("[log]\nmax_size = \"0B\""), 2, 2, "no file is that small"),
        (with("[log]\nmax_age = \"0s\""), 2, 2, "no file is that young"),
        (
            with("[log]\nsyslog = \"192.0.2.9\""),
            2,
            2,
            "write \"192.0.2.9:514\"",
        ),
        (
            with("[log]\nipfix = \"udp://[2001:db8::9]\""),
            2,
            2,
            "write \"[2001:db8::9]:4739\"",
        ),
        (
            with("[log]\nsyslog = \"collector:1514\""),
            2,
            2,
            "names are not looked up: write an address, for example \"192.0.2.9:1514\"",
        ),
        (
            with("[log]\nsyslog = \"192.0.2.9:0\""),
            2,
            2,
            "write for example \"192.0.2.9:514\"",
        ),
        (
            with("[log]\nipfix = \"0.0.0.0:4739\""),
            2,
            2,
            "is no address of one host",
        ),
        (
            with("[log]\nevents = \"x\"\n[store]\nuri = \"redb:./x\""),
            2,
            2,
            "this run reads or writes it already",
        ),
        (
            with("[store]\nuri = \"redb:x\"\nmirror = \"redb:./x\""),
            2,
            2,
            "this run reads or writes it already",
        ),
        (format!("user = \"\"\n{}", good()), 2, 2, "the name is empty"),
        (
            format!("runtimes = 3\nruntimes_max = 2\n{}", good()),
            2,
            2,
            "write runtimes_max = 3, or more",
        ),
        (good().replace("\"lan\"", "\"\""), 2, 2, EMPTY),
        (good().replace("\"c\"", "\"a\\nb\""), 2, 2, "cannot be shown"),
        (
            format!("{}match = {{ source = [] }}\n", good()),
            2,
            2,
            "take the line out to match all of them",
        ),
        (
            format!("{}match = {{ source_port = [] }}\n", good()),
            2,
            2,
            "take the line out to match all of them",
        ),
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

/// Wrong words are 2, and failed actions are 1, of whichever noun.
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
        "chain apply c.toml --confirm soon",
    ] {
        let said = code(&folder, words);
        assert_eq!(said.0, Some(2), "{words}: {}", said.1);
        assert!(!said.1.is_empty(), "{words}");
    }
    // An empty name is wrong, of whichever option.
    std::fs::write(folder.join("f.toml"), port("pcap:/dev/null")).unwrap();
    for option in ["--events", "--socket"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowkeep"));
        let ran = command
            .args(["run", "f.toml", option, ""])
            .current_dir(&folder)
            .output();
        let ran = ran.unwrap();
        let said = text(&ran.stderr);
        assert!(
            ran.status.code() == Some(2) && said.contains(option),
            "{option}: {said}"
        );
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

/// A completion that is cut off would be installed as if it were whole.
#[test]
fn what_a_full_disk_does_not_take_is_a_failure() {
    for words in [
        "completions bash",
        "help",
        "run --help",
        "--version",
        "man --page",
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowkeep"));
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let ran = command.args(words.split(' ')).stdout(full).output().unwrap();
        let said = text(&ran.stderr);
        assert_eq!(ran.status.code(), Some(1), "{words}: {said}");
        assert!(said.contains("standard output: No space left"), "{words}: {said}");
    }
}

/// Another process has the socket that the environment names, or the event log: the message names
/// the setting to write.
#[test]
fn a_second_process_is_told_what_the_first_has() {
    let profile = "flows = 1\nrate = { total = 10.0 }\npace = \"clock\"\nsources = [\"10.0.0.0/26\"]\n\
                   destinations = [\"198.51.100.1/32\"]\n";
    let mut events = String::new();
    let running = Running::start("second", profile, |profile| {
        events = format!("{profile}.jsonl");
        format!(
            "clock = \"machine\"\n[log]\nevents = \"{events}\"\n{}",
            port(&format!("generate:{profile}"))
        )
    });
    let again = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowkeep"));
        let command = command.args(words).arg(running.path("config.toml"));
        let ran = command.env("FLOWKEEP_SOCKET", running.path("s.sock")).output();
        let ran = ran.unwrap();
        (ran.status.code(), text(&ran.stdout) + &text(&ran.stderr))
    };
    for words in [&["run", "--events", "-"][..], &["chain", "check", "--strict"]] {
        let (code, said) = again(words);
        assert_eq!(code, Some(1), "{words:?}: {said}");
        assert!(
            said.contains("another Flowkeep answers here")
                && said.contains("--socket counts first, then FLOWKEEP_SOCKET"),
            "{words:?}: {said}"
        );
    }
    for words in [&["run", "--socket", "other"][..], &["chain", "check", "--strict"]] {
        let (code, said) = again(words);
        assert_eq!(code, Some(1), "{words:?}: {said}");
        assert!(
            said.contains(&format!("{events} cannot be opened: another process writes it")),
            "{words:?}: {said}"
        );
    }
}

/// A stop that did not wait, and another one: nothing was inside, so nothing is broken off.
#[test]
fn a_second_stop_breaks_nothing_off_where_nothing_is_inside() {
    let profile = "flows = 1\nrate = { total = 10.0 }\npace = \"clock\"\nsources = [\"10.0.0.0/26\"]\n\
                   destinations = [\"198.51.100.1/32\"]\n";
    let mut running = Running::start("stops", profile, |profile| {
        format!(
            "clock = \"machine\"\n[metrics]\nlisten = \"127.0.0.1:0\"\n{}",
            port(&format!("generate:{profile}"))
        )
    });
    // The port that the system chose is said.
    let said = std::fs::read_to_string(running.path("said")).unwrap();
    assert!(
        said.contains("metrics http://127.0.0.1:") && !said.contains(":0/metrics"),
        "{said}"
    );
    for _ in 0..2 {
        let said = running.ask(&["stop", "--wait", "0s"]);
        assert!(
            said.status.success() || said.status.code() == Some(1),
            "{}",
            text(&said.stderr)
        );
    }
    let ended = running.cluster.wait().unwrap();
    let said = std::fs::read_to_string(running.path("said")).unwrap();
    assert_eq!(ended.code(), Some(0), "{said}");
    assert!(!said.contains("broken off"), "{said}");
}

/// A command that fails says so on standard error. With `--json` there is an object beside it, and
/// one only.
#[test]
fn a_failure_is_an_object_where_objects_are_wanted() {
    let folder = folder().join("objects");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("wrong.toml"), "runtims = 2\n").unwrap();
    let output = |words: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowkeep"));
        let words = words.split_whitespace();
        command.args(words).current_dir(&folder).output().unwrap()
    };
    for (words, code) in [
        ("status --json --socket nosuch", 1),
        ("flow list --json --socket nosuch", 1),
        ("runtime add --json --socket nosuch", 1),
        ("top --once --json --socket nosuch", 1),
        ("flow list --json --limit many", 2),
        ("run wrong.toml --json", 2),
        ("run --input pcap:nosuch.pcap --json --socket s", 2),
        ("chain apply wrong.toml --json --socket nosuch", 1),
        ("sim --json --scenario nosuch", 2),
        ("bench nosuch --json", 2),
        ("port bridge pcpa:x pcap:y --json", 2),
    ] {
        let ended = output(words);
        let (said, printed) = (text(&ended.stderr), text(&ended.stdout));
        assert_eq!(ended.status.code(), Some(code), "{words}: {said}");
        assert_eq!(printed.lines().count(), 1, "{words}: {printed}");
        crate::schema::holds("failed", &ended.stdout);
        let object: serde_json::Value = serde_json::from_slice(&ended.stdout).unwrap();
        assert_eq!(object["code"], code, "{words}: {printed}");
        assert_eq!(
            object["error"].as_str(),
            Some(said.trim_end()),
            "{words}: {printed}"
        );
        let without = output(&words.replace("--json", ""));
        assert!(without.stdout.is_empty(), "{words}: {}", text(&without.stdout));
    }
    // This one has an object of its own.
    let ended = output("chain check --json wrong.toml");
    crate::schema::holds("chain-check", &ended.stdout);
    assert_eq!(text(&ended.stdout).lines().count(), 1);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Help names all scenarios, and only options that the command knows.
#[test]
fn help_is_of_the_command() {
    let help = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowkeep"));
        text(&command.args(words).arg("--help").output().unwrap().stdout)
    };
    let shown = help(&["sim"]);
    for scenario in sim::Scenario::ALL {
        assert!(shown.contains(scenario.name()), "{scenario} is not in {shown}");
    }
    let (node, switch) = (help(&["node"]), help(&["switch"]));
    for option in ["--runtimes", "--host", "--rack", "--address", "--interface"] {
        assert!(node.contains(option), "{option} is not in {node}");
        assert!(!switch.contains(option), "{option} is in {switch}");
    }
    for option in ["--member", "--join", "--log", "--events"] {
        assert!(node.contains(option) && switch.contains(option), "{option}");
    }
}
