//! An operator's view on a terminal while an order lasts.

use crate::all_at_left;
use crate::more::finished;
use crate::rig::{Folder, PATIENCE};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A line says how far an order is, as long as that lasts: here until the node that is to take the
/// flows, which is stopped, goes on.
#[test]
fn on_a_terminal_a_line_says_how_far_it_is() {
    const FLOWS: u64 = 1000;
    if let Err(error) = lab::need("script", "bsdutils") {
        return println!("not run: {error}");
    }
    let folder = Folder::new("terminal");
    let [front, left, right] = all_at_left(&folder, FLOWS);
    right.signal("-STOP");
    let shell = format!(
        "'{}' flow migrate --all --from 0 --to 1 --socket '{}'",
        env!("CARGO_BIN_EXE_flowkeep"),
        folder.0.join("left.sock").display()
    );
    let mut script = Command::new("timeout");
    let script = script.args(["300", "script", "-qfec", &shell, "/dev/null"]);
    let screen = std::fs::File::create(folder.0.join("screen")).unwrap();
    script.env("TERM", "xterm").stdin(Stdio::null()).stdout(screen);
    let mut script = script.spawn().unwrap();
    let began = Instant::now();
    while !folder.read("screen").contains(" groups waiting\u{1b}[K") {
        let ended = script.try_wait().unwrap();
        assert!(
            ended.is_none() && began.elapsed() < PATIENCE,
            "{:?}",
            folder.read("screen")
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    right.signal("-CONT");
    let ended = script.wait().unwrap();
    let screen = folder.read("screen");
    // The line is gone before the receipt comes.
    let (line, receipt) = screen.split_once("flows    asked ").expect(&screen);
    assert!(
        line.contains(" flows moved, ") && line.ends_with("\r\u{1b}[K"),
        "{screen:?}"
    );
    // Where the node was stopped for longer than a move may take, flows are called back, and the
    // order fails.
    let all = format!("{FLOWS}, moved {FLOWS}, refused 0, failed 0");
    assert!(
        receipt.starts_with(&format!("{FLOWS}, moved ")) && !receipt.contains('\u{1b}'),
        "{screen:?}"
    );
    assert_eq!(ended.success(), receipt.starts_with(&all), "{screen:?}");
    // Nothing of it without a terminal.
    left.signal("-STOP");
    let moving = right.tool(&["flow", "migrate", "--all", "--from", "1", "--to", "0"]);
    let began = Instant::now();
    loop {
        let (code, list, said) = finished(right.tool(&["order", "list", "--json"]));
        assert!(code == 0 && began.elapsed() < PATIENCE, "{list}{said}");
        let list: serde_json::Value = serde_json::from_str(&list).unwrap();
        if list["orders"][0]["receipt"]["groups_under_way"].as_u64() > Some(0) {
            break;
        }
    }
    left.signal("-CONT");
    let (code, out, err) = finished(moving);
    assert!(
        out.starts_with("flows    asked ") && !(out + &err).contains('\u{1b}'),
        "{code}: {err}"
    );
    for member in [front, left, right] {
        member.stop(&folder);
    }
}
