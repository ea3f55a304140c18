//! What `run` refuses on this machine: `chain check` warns of it, and with `--strict` refuses it.

use super::codes::{PROFILE, code, port};
use crate::running::text;
use serde_json::Value;
use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("refusals-{name}-{}", std::process::id()));
    fs::create_dir_all(&path).unwrap();
    fs::write(path.join("good.toml"), PROFILE).unwrap();
    path
}

fn good() -> String {
    port("generate:good.toml")
}

/// A file without one capability is checked, checked strictly, and run.
#[track_caller]
fn refused(folder: &Path, config: &str, at: &str, words: &str) {
    fs::write(folder.join("f.toml"), config).unwrap();
    let (checked, _) = code(folder, "chain check f.toml");
    assert_eq!(checked, Some(0), "{config}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowkeep"));
    let shown = command.args(["chain", "check", "--json", "f.toml"]);
    let shown = shown.current_dir(folder).output().unwrap();
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let mut warnings = shown["warnings"].as_array().unwrap().iter();
    let is_it = |line: &Value| {
        let line = line.as_str().unwrap();
        let place = if at.is_empty() {
            String::new()
        } else {
            format!("{at}: ")
        };
        line.starts_with(&place) && line.contains(words) && line.ends_with("(`flowkeep run` refuses it here)")
    };
    assert!(warnings.any(is_it), "{config}: {shown:#}");
    let (strict, problem) = code(folder, "chain check --strict f.toml");
    let (ran, said) = code(folder, "run f.toml");
    assert!(
        problem.contains(words) && said.contains(words),
        "{config}\n{problem}\n{said}"
    );
    assert!(at.is_empty() || problem.contains(&format!("{at}: ")), "{problem}");
    assert_eq!(strict, ran, "{config}\n{problem}\n{said}");
    assert_ne!(ran, Some(0), "{config}");
}

#[test]
fn what_this_machine_refuses_is_a_warning_and_an_error_of_a_strict_check() {
    let folder = folder("machine");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken_at = taken.local_addr().unwrap().to_string();
    let _socket = UnixListener::bind(folder.join("s.sock")).unwrap();
    fs::write(folder.join("file"), "a file").unwrap();
    let held = File::create(folder.join("held.redb")).unwrap();
    held.lock().unwrap();
    let long = format!("{}/s.sock", "d".repeat(100));
    fs::create_dir_all(folder.join(&long).parent().unwrap()).unwrap();
    let with = |more: &str| format!("{}{more}\n", good());
    let counted =
        |store: &str| with(&format!("[store]\nuri = \"{store}\"")).replace("flow_monitor", "counter");
    let stored = |store: &str| with(&format!("replication = \"store\"\n[store]\nuri = \"{store}\""));
    let table = [
        (
            with("[log]\nevents = \"no/such/folder/e\""),
            "log.events",
            "no/such/folder/e",
        ),
        (with("[log]\nevents = \"/tmp\""), "log.events", "/tmp"),
        (
            with("[log]\nsyslog = \"255.255.255.255:514\""),
            "log",
            "no socket for a collector of events: ",
        ),
        (
            with("[metrics]\nlisten = \"192.0.2.1:9464\""),
            "metrics.listen",
            "192.0.2.1:9464: metrics cannot be offered here",
        ),
        (
            with(&format!("[metrics]\nlisten = \"{taken_at}\"")),
            "metrics.listen",
            "Address already in use",
        ),
        (
            with("[control]\nsocket = \"no/such/folder/s.sock\""),
            "control.socket",
            "no/such/folder/s.sock",
        ),
        (
            with("[control]\nsocket = \"s.sock\""),
            "control.socket",
            "s.sock: another Flowkeep answers here",
        ),
        (
            with("[control]\nsocket = \"file\""),
            "control.socket",
            "there is a file that is no socket",
        ),
        (
            with(&format!("[control]\nsocket = \"{long}\"")),
            "control.socket",
            "the control socket cannot be made",
        ),
        (
            format!("user = \"no-such-user\"\n{}", good()),
            "user",
            "there is no user `no-such-user`",
        ),
        (
            format!(
                "clock = \"machine\"\nruntimes = 64\nflows_max = 268_435_456\n{}",
                good()
            ),
            "flows_max",
            "`flows_max` takes",
        ),
        (port("afpacket:nosuch0"), "port[0].input", "`nosuch0`"),
        (
            port("afxdp:lo"),
            "port[0].input",
            "`lo` carries no Ethernet frames",
        ),
        (
            with("[function.forward.interfaces]\nlan = \"nosuch0\"").replace("flow_monitor", "forward"),
            "function.forward.interfaces.lan",
            "there is no interface `nosuch0`",
        ),
        (counted("redis://127.0.0.1:1"), "store.uri", "Connection refused"),
        (stored("redis://127.0.0.1:1"), "store.uri", "Connection refused"),
        (counted("redb:no/such/folder/f"), "store.uri", "no/such/folder/f"),
        (
            counted("redb:held.redb"),
            "store.uri",
            "another process has the file",
        ),
        (
            format!(
                "[[port]]\nname = \"lan\"\noutput = \"pcap:/dev/null\"\n{}",
                &good()[good().find("[[chain]]").unwrap()..]
            ),
            "",
            "no port has an input",
        ),
    ];
    for (config, at, words) in table {
        refused(&folder, &config, at, words);
    }
    // A function without variables has no need of the store.
    let unused = with("[store]\nuri = \"redis://127.0.0.1:1\"");
    fs::write(folder.join("f.toml"), unused).unwrap();
    for words in ["chain check --strict f.toml", "run f.toml"] {
        let (code, said) = code(&folder, words);
        assert_eq!(code, Some(0), "{words}: {said}");
    }
    assert!(
        !folder.join("no").exists() && fs::read(folder.join("file")).unwrap() == b"a file",
        "a check makes nothing and changes nothing"
    );
    fs::remove_dir_all(&folder).unwrap();
}

/// What a process without root's rights is refused. Where no rights can be given up for a while,
/// nothing is checked.
#[test]
fn what_this_user_may_not_is_refused_as_well() {
    let folder = folder("user");
    let less = |words: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set", "-all", "--", env!("CARGO_BIN_EXE_flowkeep")]);
        let output = command.args(words.split(' ')).current_dir(&folder).output();
        output.map(|output| (output.status.code(), text(&output.stderr)))
    };
    let able = less("--version");
    if !able.is_ok_and(|(code, _)| code == Some(0)) {
        println!("setpriv is not there, or may not: nothing is checked");
        return;
    }
    let closed = folder.join("closed");
    fs::create_dir_all(&closed).unwrap();
    fs::write(closed.join("old"), "").unwrap();
    fs::set_permissions(closed.join("old"), fs::Permissions::from_mode(0o400)).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o500)).unwrap();
    let written = |to: &str| {
        let output = format!("[[port]]\nname = \"wan\"\nside = \"outside\"\noutput = \"pcap:{to}\"\n");
        format!("{output}{}", good())
    };
    let table = [
        // The file, what is wrong, and the codes of a check and of one that is strict.
        (
            port("afpacket:lo"),
            "lacks CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF",
            0,
            1,
        ),
        (
            port("afxdp:lo"),
            "lacks CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF",
            0,
            1,
        ),
        (
            format!("user = \"65534\"\n{}", good()),
            "the user's rights cannot be given up",
            0,
            1,
        ),
        (
            format!("{}[log]\nevents = \"closed/e\"\n", good()),
            "Permission denied",
            0,
            1,
        ),
        (
            format!("{}[log]\nevents = \"closed/old\"\n", good()),
            "Permission denied",
            0,
            1,
        ),
        (
            format!("{}[control]\nsocket = \"closed/s.sock\"\n", good()),
            "Permission denied",
            0,
            1,
        ),
        (
            format!("{}[store]\nuri = \"redb:closed/s\"\n", good()).replace("flow_monitor", "counter"),
            "Permission denied",
            0,
            1,
        ),
        (written("closed/new.pcap"), "Permission denied", 2, 2),
        (written("closed/old"), "Permission denied", 2, 2),
    ];
    for (config, words, checked, strict) in table {
        fs::write(folder.join("f.toml"), &config).unwrap();
        let check = less("chain check f.toml").unwrap();
        assert_eq!(check.0, Some(checked), "{config}: {}", check.1);
        let (code, said) = less("chain check --strict f.toml").unwrap();
        assert_eq!(code, Some(strict), "{config}: {said}");
        assert!(said.contains(words), "{config}: {said}");
        let (code, said) = less("run f.toml").unwrap();
        assert_eq!(code, Some(strict), "{config}: {said}");
        assert!(said.contains(words), "{config}: {said}");
    }
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    fs::remove_dir_all(&folder).unwrap();
}
