//! A crate that `flowkeep new` made builds, passes its tests and runs on its capture, without the
//! network.

use flowkeep::new::{Kind, NewError, create};
use nf::{ConfigError, Cx, NetworkFunction, NoConfig, Packet, Verdict, WorkerInfo, network_function};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use testkit::{Step, ping, run, tcp, udp, wait};

/// A folder of this test's own, empty.
fn place(name: &str) -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&place);
    fs::create_dir_all(&place).unwrap();
    place
}

#[test]
fn what_is_there_is_left_alone() {
    let place = place("new-exists");
    fs::create_dir(place.join("my-nf")).unwrap();
    fs::write(place.join("my-nf/precious"), "work").unwrap();
    fs::write(place.join("my-file"), "work").unwrap();
    for name in ["my-nf", "my-file"] {
        let error = create(name, Kind::Counter, &place.join(name)).unwrap_err();
        assert!(matches!(error, NewError::Exists { .. }), "{error}");
        assert!(error.to_string().contains("is there already"), "{error}");
    }
    assert_eq!(fs::read_to_string(place.join("my-nf/precious")).unwrap(), "work");
    assert_eq!(fs::read_dir(place.join("my-nf")).unwrap().count(), 1);
}

/// Processor seconds until the tests of a new crate have run, at most: from nothing built, and
/// after a line of the function has changed.
const COLD: f64 = 120.0;
const WARM: f64 = 5.0;

#[test]
fn a_new_crate_passes_its_tests_and_runs_on_its_capture() {
    let (place, _turn) = (place("new-runs"), my_turn());
    let created = create("packet-counter", Kind::Counter, &place.join("packet-counter")).unwrap();
    assert_eq!(
        (created.function.as_str(), created.type_name.as_str()),
        ("packet_counter", "PacketCounter")
    );
    assert!(created.to_string().contains("cargo test"), "{created}");

    // A build folder with nothing in it, as the author's first one, and behind it one line of the
    // function is changed: an author waits for these, again and again. Processors differ, and a
    // shared one takes longer over the same (docs/first-hour.md): above the goals, once more.
    let source = created.folder.join("src/lib.rs");
    let text = fs::read_to_string(&source).unwrap();
    let changed = |times: u32| {
        let more = (0..times).map(|n| format!("\n/// Another line.\npub const ANOTHER_{n}: u32 = 1;\n"));
        fs::write(&source, text.clone() + &more.collect::<String>()).unwrap();
    };
    let measured = |number: u32| {
        let own = place.join(format!("target-{number}"));
        let test = || cargo_in(&own, &created.folder, &["test"]);
        changed(0);
        let (output, cold) = with_processor_time(test);
        for name in [
            "packets_are_counted_each_way",
            "an_established_flow_allocates_nothing",
            "flows_survive_migration_and_failure",
        ] {
            assert!(output.contains(&format!("test {name} ... ok")), "{output}");
        }
        let warm = (1..=2).map(|times| {
            changed(times);
            with_processor_time(test).1
        });
        let warm = warm.reduce(f64::min).unwrap();
        fs::remove_dir_all(&own).unwrap();
        println!(
            "processor seconds until the tests have run: {cold:.1} at first (goal {COLD}), {warm:.1} after a change (goal {WARM})"
        );
        (cold, warm)
    };
    let is_met = |(cold, warm): (f64, f64)| cold <= COLD && warm <= WARM;
    let first = measured(0);
    if !is_met(first) {
        let second = measured(1);
        assert!(
            is_met((first.0.min(second.0), first.1.min(second.1))),
            "longer than it is to take, twice: {first:.1?} s, {second:.1?} s"
        );
    }
    fs::write(&source, text).unwrap();

    let output = cargo(&created.folder, &["flowkeep", "run", "chain.toml"]);
    let web = r#""from":"10.0.0.1:40000","to":"192.0.2.80:80","packets":[5, 4]"#;
    assert!(output.contains(web), "{output}");
    // As many packets as came in went out: every record has the same length in both files.
    let (before, after) = (
        fs::metadata(created.folder.join("example.pcap")),
        fs::metadata(created.folder.join("out.pcap")),
    );
    assert_eq!(before.unwrap().len(), after.unwrap().len(), "{output}");

    // The functions that come with the tool are there beside its own: both are checked, and run.
    let chain = fs::read_to_string(created.folder.join("chain.toml")).unwrap();
    let both = chain.replace("[\"packet_counter\"]", "[\"firewall\", \"packet_counter\"]");
    assert_ne!(both, chain);
    let rule = "[[function.firewall.rules]]\nname = \"web\"\ndestination_ports = 80\naction = \"allow\"\n";
    fs::write(created.folder.join("both.toml"), both + rule).unwrap();
    cargo(&created.folder, &["flowkeep", "chain", "check", "both.toml"]);
    let output = cargo(&created.folder, &["flowkeep", "run", "both.toml"]);
    assert!(output.contains(web) && output.contains("not_allowed"), "{output}");

    cargo(&created.folder, FORMATTED);
}

#[test]
fn each_kind_passes_its_tests_and_runs() {
    let (place, _turn) = (place("new-kinds"), my_turn());
    let kinds = [
        (Kind::Gate, "my-gate", "closed_port", "2"),
        (Kind::Limiter, "my-limiter", "dropped", "0"),
        (
            Kind::Monitor,
            "my-monitor",
            r#""event":"flow","from":"10.0.0.1:40000""#,
            "",
        ),
    ];
    for (kind, name, seen, count) in kinds {
        let created = create(name, kind, &place.join(name)).unwrap();
        let output = cargo(&created.folder, &["test"]);
        assert!(
            output.contains("test flows_survive_migration_and_failure ... ok"),
            "{output}"
        );
        let output = cargo(&created.folder, &["flowkeep", "run", "chain.toml"]);
        let has = |line: &str| line.contains(seen) && line.contains(count);
        assert!(output.lines().any(has), "{output}");
        if kind == Kind::Limiter {
            let schema = cargo(&created.folder, &["flowkeep", "chain", "schema"]);
            assert!(schema.contains("Tokens that come in a second."), "{schema}");
        }
        cargo(&created.folder, FORMATTED);
        fs::remove_dir_all(&created.folder).unwrap();
    }
}

/// Its README's words on an optimised tool are there, and the profile.
#[test]
fn the_tool_is_built_optimised_by_a_word_of_its_own() {
    let place = place("new-quick");
    let created = create("quickly", Kind::Counter, &place.join("quickly")).unwrap();
    let readme = fs::read_to_string(created.folder.join("README.md")).unwrap();
    assert!(
        readme.contains("\ncargo flowkeep-quick run chain.toml"),
        "{readme}"
    );
    let cargo = |words: &[&str]| {
        let output = Command::new(env!("CARGO"))
            .args(words)
            .current_dir(&created.folder)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let all = cargo(&["--list"]);
    let word = all
        .lines()
        .find(|line| line.trim().starts_with("flowkeep-quick "))
        .unwrap();
    assert!(word.contains("run --profile quick --features tool"), "{word}");
    cargo(&["clean", "--profile", "quick", "--dry-run", "--offline"]);
}

/// The guide's words on a build folder that functions beside each other share: they do not share it
/// by themselves, and the last lines of their configuration are for that.
#[test]
fn functions_beside_each_other_may_share_a_build_folder() {
    let place = place("new-shared");
    let target = |folder: &Path| {
        let output = Command::new(env!("CARGO"))
            .args(["metadata", "--offline", "--no-deps", "--format-version", "1"])
            .current_dir(folder)
            .env_remove("CARGO_TARGET_DIR")
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        PathBuf::from(metadata["target_directory"].as_str().unwrap())
    };
    let folders = ["one-counter", "other-counter"].map(|name| place.join(name));
    for folder in &folders {
        let name = folder.file_name().unwrap().to_str().unwrap();
        create(name, Kind::Counter, folder).unwrap();
        assert_eq!(target(folder), folder.join("target"));
        let file = folder.join(".cargo/config.toml");
        let config = fs::read_to_string(&file).unwrap();
        let mut lines: Vec<String> = config.lines().map(str::to_owned).collect();
        let last = lines.len() - 2;
        for line in &mut lines[last..] {
            *line = line.strip_prefix("# ").expect("a comment").to_owned();
        }
        fs::write(&file, lines.join("\n")).unwrap();
    }
    // The path that cargo says goes over the function's own folder.
    fs::create_dir(place.join("target")).unwrap();
    let shared = fs::canonicalize(place.join("target")).unwrap();
    for folder in &folders {
        assert_eq!(fs::canonicalize(target(folder)).unwrap(), shared);
    }
}

/// The answer of work, and the seconds of processor time of the processes that it waited for.
fn with_processor_time<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let so_far = || -> f64 {
        // proc(5): utime, stime, cutime and cstime are the fields 14 to 17, in hundredths of a
        // second; the name before may have blanks.
        let stat = fs::read_to_string("/proc/self/stat").unwrap();
        let (_, rest) = stat.rsplit_once(')').unwrap();
        let ticks = rest.split_whitespace().skip(13).take(2);
        ticks.map(|ticks| ticks.parse::<f64>().unwrap() / 100.0).sum()
    };
    let before = so_far();
    let answer = work();
    (answer, so_far() - before)
}

/// The files that the guide shows whole, with their content.
fn files_of_the_guide() -> Vec<(String, String)> {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/write-a-function.md");
    let guide = fs::read_to_string(guide).unwrap();
    let mut files = Vec::new();
    for part in guide.split("\nFile: ").skip(1) {
        let (name, rest) = part.split_once('\n').unwrap();
        let block = rest
            .trim_start()
            .strip_prefix("```")
            .expect("a block of code follows `File:`");
        let (_language, block) = block.split_once('\n').unwrap();
        let (text, _) = block.split_once("```").unwrap();
        files.push((name.to_owned(), text.to_owned()));
    }
    files
}

#[test]
fn what_the_guide_shows_builds_and_passes() {
    let (place, _turn) = (place("new-guide"), my_turn());
    // As the guide does it: the command, in the folder where the new one is to be.
    let new = Command::new(env!("CARGO_BIN_EXE_flowkeep"))
        .args(["new", "packet-counter"])
        .current_dir(&place)
        .output()
        .unwrap();
    assert!(new.status.success(), "{new:?}");
    let folder = place.join("packet-counter");
    let files = files_of_the_guide();
    let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        ["src/lib.rs", "tests/packets.rs", "chain.toml", "src/main.rs"]
    );
    for (name, text) in &files {
        fs::write(folder.join(name), text).unwrap();
    }
    // Another version: in one build folder, cargo takes the other test's crate of this name for
    // this one.
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    let another = manifest.replacen("version = \"0.1.0\"", "version = \"0.1.1\"", 1);
    assert_ne!(manifest, another);
    fs::write(folder.join("Cargo.toml"), another).unwrap();

    let output = cargo(&folder, &["test"]);
    assert!(
        output.contains("test what_is_over_the_limit_is_dropped ... ok"),
        "{output}"
    );
    assert!(
        output.contains("test the_limit_goes_along_when_flows_move ... ok"),
        "{output}"
    );
    let output = cargo(&folder, &["flowkeep", "run", "chain.toml"]);
    assert!(output.contains("over_limit"), "{output}");
    // Its settings are in the schema, with their words.
    let schema = cargo(&folder, &["flowkeep", "chain", "schema"]);
    assert!(
        schema.contains("Packets that a flow may send, each way."),
        "{schema}"
    );
    cargo(&folder, FORMATTED);
}

/// As an author formats, without this workspace's settings, which would be found here.
const FORMATTED: &[&str] = &["fmt", "--", "--check", "--config", "max_width=100"];

/// Two crates of one name share the build folder: one after the other.
fn my_turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A build from nothing on a busy machine; a longer one hangs.
const PATIENCE: Duration = Duration::from_secs(1800);

/// Runs cargo in a new crate, with this workspace's build folder, so that it compiles little;
/// answers its output.
fn cargo(folder: &Path, words: &[&str]) -> String {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    run_cargo(target, folder, words, |_| ())
}

/// The same with a build folder of its own, as at an author's machine, however this project is
/// built.
fn cargo_in(target: &Path, folder: &Path, words: &[&str]) -> String {
    run_cargo(target, folder, words, |cargo| {
        cargo.env_remove("CARGO_INCREMENTAL");
    })
}

fn run_cargo(target: &Path, folder: &Path, words: &[&str], set: fn(&mut Command)) -> String {
    let (log, begin) = (folder.with_extension("log"), Instant::now());
    let file = File::create(&log).unwrap();
    let mut command = Command::new(env!("CARGO"));
    set(&mut command);
    // Set by the cargo that runs this test, and not the new crate's: a build script that asks for
    // them would run again, and all that depends on its crate be built again.
    let is_of_a_package = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars().filter(|(name, _)| is_of_a_package(name)) {
        command.env_remove(name);
    }
    let mut child = command
        .args(words)
        .current_dir(folder)
        .env("CARGO_TARGET_DIR", target)
        .env("CARGO_NET_OFFLINE", "true")
        .env_remove("RUSTFLAGS")
        // Its control socket is its own.
        .env("XDG_RUNTIME_DIR", folder)
        .stdin(Stdio::null())
        .stdout(file.try_clone().unwrap())
        .stderr(file)
        .spawn()
        .unwrap();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if begin.elapsed() > PATIENCE => {
                child.kill().unwrap();
                break child.wait().unwrap();
            }
            None => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    let text = fs::read_to_string(&log).unwrap();
    assert!(status.success(), "cargo {}:\n{text}", words.join(" "));
    text
}

/// Lets everything pass.
struct Pass;

#[network_function]
impl NetworkFunction for Pass {
    const NAME: &'static str = "pass";
    type Config = NoConfig;
    type Flow = ();
    type Group = ();

    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Pass)
    }

    fn process(&self, _packet: &mut Packet, _flow: &mut (), _cx: &mut Cx<Self>) -> Verdict {
        Verdict::Forward
    }
}

/// A web page, a name lookup and two pings.
fn example() -> Vec<Step> {
    let question = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03www\x07example\x00\x00\x01\x00\x01";
    let answer = b"\x12\x34\x81\x80\x00\x01\x00\x01\x00\x00\x00\x00\x03www\x07example\x00\x00\x01\x00\x01\
                   \xc0\x0c\x00\x01\x00\x01\x00\x00\x0e\x10\x00\x04\xc0\x00\x02\x50";
    let lookup = udp("10.0.0.1:53000", "192.0.2.53:53");
    let web = tcp("10.0.0.1:40000", "192.0.2.80:80");
    let ping = ping("10.0.0.2", "192.0.2.80", 7).payload("abcdefgh");
    let soon = wait(Duration::from_millis(20));
    vec![
        lookup.payload(question),
        soon.clone(),
        lookup.reply().payload(answer),
        web.syn(),
        soon.clone(),
        web.reply().syn_ack(),
        web.ack(),
        web.payload("GET / HTTP/1.0\r\nHost: www.example\r\n\r\n"),
        soon.clone(),
        web.reply().ack(),
        web.reply()
            .payload("HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nhello\n"),
        ping.clone(),
        soon.clone(),
        ping.reply(),
        web.fin(),
        soon,
        web.reply().fin(),
        web.ack(),
        ping.clone(),
        ping.reply(),
    ]
}

/// The capture in the template is the one above. To write it again:
/// `FLOWKEEP_WRITE=1 cargo test -p flowkeep --test new`.
#[test]
fn the_example_capture_is_what_it_says() {
    let script = example();
    let out = run::<Pass>(NoConfig {}, script.clone());
    // Header of a capture: magic for microseconds, version 2.4, no offset, length up to 65535,
    // Ethernet.
    let mut capture = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1] {
        capture.extend(word.to_le_bytes());
    }
    for sent in (0..script.len()).flat_map(|step| out.sent(step)) {
        let at = Duration::from_secs(1_700_000_000) + sent.at;
        let length = sent.frame().len() as u32;
        for word in [at.as_secs() as u32, at.subsec_micros(), length, length] {
            capture.extend(word.to_le_bytes());
        }
        capture.extend(sent.frame());
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("templates/new/example.pcap");
    if std::env::var_os("FLOWKEEP_WRITE").is_some() {
        fs::write(&file, &capture).unwrap();
    }
    assert!(
        fs::read(&file).unwrap() == capture,
        "{} is not what the script makes",
        file.display()
    );
}
