//! Configurations that `run` refuses on this machine: `chain check` warns of them, and with
//! `--strict` refuses them.

use super::codes::{PROFILE, code, port};
use crate::running::{PATIENCE, text};
use serde_json::Value;
use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("refusals-{name}-{}", std::process::id()));
    fs::create_dir_all(&path).unwrap();
    fs::write(path.join("good.toml"), PROFILE).unwrap();
    path
}

fn good() -> String {
    port("generate:good.toml")
}

/// The begin of a redb file, and nothing behind it.
const REDB: [u8; 9] = [b'r', b'e', b'd', b'b', 0x1a, 0x0a, 0xa9, 0x0d, 0x0a];

/// Makes a pipe with a name.
fn pipe(folder: &Path, name: &str) {
    let made = Command::new("mkfifo").arg(folder.join(name)).status().unwrap();
    assert!(made.success());
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
    let with = |more: &str| format!("{}{more}\n", good());
    let counted =
        |store: &str| with(&format!("[store]\nuri = \"{store}\"")).replace("flow_monitor", "counter");
    let stored = |store: &str| with(&format!("replication = \"store\"\n[store]\nuri = \"{store}\""));
    pipe(&folder, "pipe");
    fs::write(folder.join("cut.redb"), REDB).unwrap();
    // This socket takes connections, and says nothing.
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let mute_at = mute.local_addr().unwrap();
    let table = [
        (
            with("[log]\nevents = \"no/such/folder/e\""),
            "log.events",
            "no/such/folder/e",
        ),
        (with("[log]\nevents = \"/tmp\""), "log.events", "/tmp"),
        (
            with("[log]\nsyslog = \"255.255.255.255:514\""),
            "log.syslog",
            "no socket for the collector of events 255.255.255.255:514 (`log.syslog`): ",
        ),
        (
            with("[log]\nipfix = \"255.255.255.255:4739\""),
            "log.ipfix",
            "write the address of one host, to which this machine has a route",
        ),
        (
            with("[log]\nevents = \"pipe\""),
            "log.events",
            "it is a named pipe, which no process may be reading",
        ),
        (with("[log]\nevents = \"s.sock\""), "log.events", "it is a socket"),
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
            counted("redb:file"),
            "store.uri",
            "store redb:file: the file is no redb database",
        ),
        (stored("redb:file"), "store.uri", "the file is no redb database"),
        (
            counted("redb:cut.redb"),
            "store.uri",
            "the file is no redb database",
        ),
        (counted("redb:pipe"), "store.uri", "the file is no redb database"),
        // The file is opened, whether the function keeps something in it or not.
        (
            with("[store]\nuri = \"redb:file\""),
            "store.uri",
            "the file is no redb database",
        ),
        (
            counted("redis://127.0.0.1:1\"\nmirror = \"redb:file"),
            "store.mirror",
            "the file is no redb database",
        ),
        (
            counted("redb:m\"\nmirror = \"redis://127.0.0.1:1"),
            "store.mirror",
            "Connection refused",
        ),
        (
            counted("cassandra://127.0.0.1:1"),
            "store.uri",
            "store cassandra://127.0.0.1:1: ",
        ),
        (
            stored(&format!("cassandra://{mute_at}")),
            "store.uri",
            " not answer",
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
    assert_eq!(fs::read(folder.join("cut.redb")).unwrap(), REDB);
    fs::remove_dir_all(&folder).unwrap();
}

/// Configurations that a process without root's rights refuses. Where no rights can be given up for
/// a while, nothing is checked.
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
        // The file, the error's words, and the codes of a check and of a strict one.
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

/// A store that another start has made is looked at, and stays as it is.
#[test]
fn a_store_that_is_one_is_good_and_stays_as_it_is() {
    let folder = folder("store");
    let config = format!("{}[store]\nuri = \"redb:f.redb\"\n", good());
    fs::write(folder.join("f.toml"), config.replace("flow_monitor", "counter")).unwrap();
    let (strict, said) = code(&folder, "chain check --strict f.toml");
    assert_eq!(strict, Some(0), "{said}");
    assert!(!folder.join("f.redb").exists(), "a check makes no store");
    let (ran, said) = code(&folder, "run f.toml --socket s");
    assert_eq!(ran, Some(0), "{said}");
    let made = fs::read(folder.join("f.redb")).unwrap();
    let (strict, said) = code(&folder, "chain check --strict f.toml");
    assert_eq!(strict, Some(0), "{said}");
    assert_eq!(fs::read(folder.join("f.redb")).unwrap(), made);
    // An empty file becomes a store.
    fs::write(folder.join("f.redb"), "").unwrap();
    for words in ["chain check --strict f.toml", "run f.toml --socket s"] {
        let (code, said) = code(&folder, words);
        assert_eq!(code, Some(0), "{words}: {said}");
    }
    fs::remove_dir_all(&folder).unwrap();
}

/// The user that a process becomes may be without a right to the folder of its control socket. Only
/// root can become another.
#[test]
fn a_socket_is_answered_whose_folder_the_user_may_not_enter() {
    let folder = folder("account");
    if fs::metadata(&folder).unwrap().uid() != 0 {
        println!("not run: needs root");
        return;
    }
    let closed = folder.join("closed");
    fs::create_dir_all(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    let config = format!(
        "user = \"65534\"\n{}[control]\nsocket = \"closed/s.sock\"\n",
        good()
    );
    fs::write(folder.join("f.toml"), &config).unwrap();
    fs::write(
        folder.join("long.toml"),
        config.replace("good.toml", "endless.toml"),
    )
    .unwrap();
    let endless = PROFILE.replace("packets_max = 1\n", "pace = \"clock\"\n");
    fs::write(folder.join("endless.toml"), endless).unwrap();
    let (strict, said) = code(&folder, "chain check --strict f.toml");
    assert_eq!(strict, Some(0), "{said}");
    // The second run replaces the files that the first has left.
    for _ in 0..2 {
        let (ran, said) = code(&folder, "run f.toml");
        assert_eq!(ran, Some(0), "{said}");
        assert!(!said.contains("another Flowkeep"), "{said}");
        assert!(said.contains("closed/s.sock stays: Permission denied"), "{said}");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowkeep"));
    let running = command
        .args(["run", "long.toml", "--for", "100s"])
        .current_dir(&folder);
    let mut running = running
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (asked, said) = code(&folder, "status --wait 60s --socket closed/s.sock");
    assert_eq!(asked, Some(0), "{said}");
    let (ended, said) = code(&folder, "stop --socket closed/s.sock");
    assert_eq!(ended, Some(0), "{said}");
    assert!(running.wait().unwrap().success());
    // A file of a store is opened as that user.
    let store = format!("{config}[store]\nuri = \"redb:closed/f\"\n").replace("flow_monitor", "counter");
    fs::write(folder.join("f.toml"), store).unwrap();
    for words in ["chain check --strict f.toml", "run f.toml"] {
        let (code, said) = code(&folder, words);
        assert_eq!(code, Some(1), "{words}: {said}");
        assert!(said.contains("Permission denied"), "{words}: {said}");
    }
    fs::remove_dir_all(&folder).unwrap();
}

/// A start that waits for the other end of a pipe is ended by a signal.
#[test]
fn a_start_that_waits_is_ended_by_a_signal() {
    let folder = folder("waits");
    pipe(&folder, "pipe");
    let output = "[[port]]\nname = \"wan\"\nside = \"outside\"\noutput = \"pcap:pipe\"\n";
    for (name, config) in [
        ("in.toml", port("pcap:pipe")),
        ("out.toml", format!("{output}{}", good())),
    ] {
        fs::write(folder.join(name), config).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowkeep"));
        let command = command.args(["run", name, "--socket", "s"]).current_dir(&folder);
        let mut waits = command.stderr(Stdio::piped()).spawn().unwrap();
        // The socket is made before ports are opened.
        let began = Instant::now();
        while !folder.join("s").exists() {
            assert!(began.elapsed() < PATIENCE, "{name}: it does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(Duration::from_millis(200));
        assert!(waits.try_wait().unwrap().is_none(), "{name}: it waits");
        let told = Command::new("kill").arg(waits.id().to_string()).status().unwrap();
        assert!(told.success());
        while waits.try_wait().unwrap().is_none() {
            assert!(began.elapsed() < PATIENCE, "{name}: it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
        let ended = waits.wait_with_output().unwrap();
        let said = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{name}: {said}");
        assert!(said.contains("a signal came before another process"), "{said}");
        assert!(!folder.join("s").exists(), "{name}: the socket's file is left");
    }
    fs::remove_dir_all(&folder).unwrap();
}

/// Events go to places that take lines, though they are no files.
#[test]
fn events_go_to_terminals_pipes_and_nowhere() {
    let folder = folder("streams");
    let run = |to: &str| {
        fs::write(
            folder.join("f.toml"),
            format!("{}[log]\nevents = \"{to}\"\n", good()),
        )
        .unwrap();
        let (strict, said) = code(&folder, "chain check --strict f.toml");
        assert_eq!(strict, Some(0), "{to}: {said}");
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowkeep"));
        let command = command
            .args(["run", "f.toml", "--socket", "s"])
            .current_dir(&folder);
        let ran = command.output().unwrap();
        assert!(ran.status.success(), "{to}: {}", text(&ran.stderr));
        text(&ran.stdout)
    };
    for to in ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
        assert!(run(to).contains("\"function\":\"flow_monitor\""), "{to}");
    }
    assert!(!run("/dev/null").contains("flow_monitor\","));
    // A terminal.
    let script = format!(
        "{} run f.toml --socket s --events /dev/tty",
        env!("CARGO_BIN_EXE_flowkeep")
    );
    let mut command = Command::new("script");
    let command = command.args(["-qec", &script, "/dev/null"]).current_dir(&folder);
    match command.stdin(Stdio::null()).output() {
        Ok(ran) => {
            let said = text(&ran.stdout);
            assert!(
                ran.status.success() && said.contains("\"flow_monitor\""),
                "{said}"
            );
        }
        Err(error) => println!("no terminal is tried: script: {error}"),
    }
    fs::remove_dir_all(&folder).unwrap();
}
