//! `flowkeep lab`: it shows what it says, and nothing is left of it, after `kill -9` either.

use crate::network::{PATIENCE, alone};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const PROGRAMS: &[(&str, &str)] = &[
    ("ping", "iputils-ping"),
    ("curl", "curl"),
    ("nginx", "nginx-light"),
    ("iperf3", "iperf3"),
];

fn flowkeep(words: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "120", env!("CARGO_BIN_EXE_flowkeep")]);
    command.args(words.split_whitespace());
    command
}

fn done(words: &str) -> Output {
    flowkeep(words).output().unwrap()
}

/// The remains of a process's lab.
fn left(process: u32) -> Vec<String> {
    let of = |folder: &Path, prefix: String| -> Vec<String> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with(&prefix)).collect()
    };
    let mut all = of(Path::new("/run/netns"), format!("fk-{process}-"));
    all.extend(of(&std::env::temp_dir(), format!("flowkeep-lab-{process}-")));
    all
}

/// A lab that is up, and its owner's number.
fn up() -> (Child, u32) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_flowkeep"))
        .args(["lab", "up", "--for", "2m"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let number = child.id();
    let began = Instant::now();
    let socket = |name: &String| std::env::temp_dir().join(name).join("socket").exists();
    while !left(number).iter().any(socket) {
        assert!(began.elapsed() < PATIENCE && child.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(20));
    }
    (child, number)
}

fn shows(kind: &str) {
    let Some(_alone) = alone(PROGRAMS) else { return };
    let out = done(&format!("lab demo --port {kind} --json"));
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(
        out.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let report: serde_json::Value = serde_json::from_str(&said).unwrap();
    println!("{report}");
    let schema: serde_json::Value = serde_json::from_slice(&done("schema lab-demo").stdout).unwrap();
    assert!(jsonschema::is_valid(&schema, &report), "{schema:#}");
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 6);
    let killed = rows.last().unwrap()["result"].as_str().unwrap();
    assert!(killed.starts_with("20 whole and equal; runtime "), "{killed}");
    assert!(rows.iter().all(|row| row["good"] == true));
}

#[test]
fn it_shows_the_chain_over_packet_sockets() {
    shows("afpacket");
}

#[test]
fn it_shows_the_chain_over_xdp() {
    shows("afxdp");
}

#[test]
fn it_is_gone_when_it_is_told_to_and_after_a_kill() {
    let Some(_alone) = alone(PROGRAMS) else { return };
    let (mut child, number) = up();
    assert_eq!(left(number).len(), 4, "three namespaces and a folder");
    let down = done("lab down");
    assert!(down.status.success(), "{down:?}");
    assert!(child.wait().unwrap().success());
    assert_eq!(left(number), Vec::<String>::new());

    let (mut child, number) = up();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!left(number).is_empty(), "killed, it cannot have cleaned up");
    let down = done("lab down");
    assert!(down.status.success(), "{down:?}");
    assert_eq!(left(number), Vec::<String>::new());
}
