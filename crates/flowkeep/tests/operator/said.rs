//! A process's messages on standard error, by its level; and a command's on absent things.

use crate::running::{PATIENCE, Running, text};
use std::process::{Command, Output, Stdio};
use std::time::Instant;

const PROFILE: &str = "flows = 10\nrate = { total = 100.0 }\npace = \"clock\"\nsources = [\"10.0.0.0/26\"]\n\
                       source_ports = [1024, 5000]\ndestinations = [\"198.51.100.1/32\"]\ndestination_ports = [443]\n\
                       [[classes]]\nshare = 1.0\ntcp = 0.0\n";

fn config(profile: &str) -> String {
    format!(
        "clock = \"machine\"\nruntimes = 2\nruntimes_max = 3\n[[port]]\nname = \"lan\"\ninput = \"generate:{profile}\"\n\
         [[chain]]\nname = \"all\"\nfunctions = [\"flow_monitor\"]\n"
    )
}

/// A process with these words and this environment, to its end.
fn run(running: &Running, words: &[&str], environment: Option<&str>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowkeep"));
    let socket = running.path("other.sock");
    command.args([
        "run",
        &running.path("config.toml"),
        "--socket",
        &socket,
        "--for",
        "300ms",
    ]);
    command.args(words).stdin(Stdio::null());
    command.env_remove("FLOWKEEP_LOG");
    command.envs(environment.map(|level| ("FLOWKEEP_LOG", level)));
    command.output().unwrap()
}

#[test]
fn what_is_ready_is_said_at_info() {
    let running = Running::start("levels", PROFILE, config);
    let ready = |words: &[&str], environment| {
        let ran = run(&running, words, environment);
        assert!(ran.status.success(), "{words:?}: {}", text(&ran.stderr));
        let said = text(&ran.stderr);
        // A third runtime may come.
        let is_ready = said.contains("ready: ports lan; runtimes 2 of at most 3; ");
        assert_eq!(is_ready, said.contains("ready: "), "{said}");
        is_ready
    };
    assert!(ready(&[], None) && ready(&["--log", "info"], None));
    assert!(!ready(&["--log", "warn"], None) && !ready(&[], Some("error")));
    assert!(
        ready(&["--log", "debug"], Some("error")),
        "the word goes before the environment"
    );
    let wrong = run(&running, &[], Some("loud"));
    assert_eq!(wrong.status.code(), Some(2));
    assert!(
        text(&wrong.stderr).contains("write error, warn, info or debug"),
        "{wrong:?}"
    );
}

#[test]
fn requests_are_said_at_debug() {
    let running = Running::start("debug", PROFILE, config);
    let socket = running.path("other.sock");
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowkeep"));
    command.args([
        "run",
        &running.path("config.toml"),
        "--socket",
        &socket,
        "--log",
        "debug",
    ]);
    let process = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let process = process.spawn().unwrap();
    let ask = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowkeep"));
        command.args(words).args(["--socket", &socket]);
        command.output().unwrap().status.success()
    };
    let began = Instant::now();
    while !ask(&["status"]) {
        assert!(began.elapsed() < PATIENCE);
    }
    assert!(ask(&["stop"]));
    let said = text(&process.wait_with_output().unwrap().stderr);
    assert!(
        said.contains("asked for status\n") && said.contains("asked for stop\n"),
        "{said}"
    );
}

#[test]
fn flows_of_a_runtime_that_is_not_there_are_an_error() {
    let running = Running::start("seven", PROFILE, config);
    for there in ["0", "2"] {
        assert!(
            running
                .ask(&["flow", "list", "--runtime", there])
                .status
                .success()
        );
    }
    let refused = running.ask(&["flow", "list", "--runtime", "7"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        text(&refused.stderr).contains("there is no runtime 7"),
        "{refused:?}"
    );
    assert!(refused.stdout.is_empty());
}
