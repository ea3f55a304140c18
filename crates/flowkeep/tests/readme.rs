//! The README, the tutorial, the how-tos and four pages of reference as a reader types them: every
//! line of their `sh` blocks, in order; and `./x demo`.
//!
//! ```text
//!   ```sh              typed here, line by line, in a directory that has `examples` in it
//!   ```toml [NAME]     written to NAME (`gateway.toml`) before the lines behind it
//!   ```sh setup        not typed: builds this program
//!   ```sh root         not typed: needs root, servers or a machine's interfaces
//!   ```text, ```yaml   not typed
//! ```
//!
//! A line that ends with `&` goes on beside the others, and must say that it is ready; the next line
//! is typed at once where the block has a `status --wait`, and behind that word elsewhere. A block
//! whose last line is a `flowkeep stop` ends all of these. Variables that `export` sets hold for
//! the lines behind it. Behind a `sleep` of the page a line may be tried again, for ten times as
//! long: a machine that tests is busier than a reader's. So may an order to move flows that has met
//! none.

use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(120);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// A block of the page: the words behind its three quotes, and its lines.
fn blocks(page: &str) -> Vec<(&str, Vec<&str>)> {
    let mut blocks: Vec<(&str, Vec<&str>)> = Vec::new();
    let mut is_inside = false;
    for line in page.lines() {
        match (line.strip_prefix("```"), is_inside) {
            (Some(kind), false) => {
                blocks.push((kind, Vec::new()));
                is_inside = true;
            }
            (Some(_), true) => is_inside = false,
            (None, true) => blocks.last_mut().unwrap().1.push(line),
            (None, false) => {}
        }
    }
    blocks
}

/// A reader: a directory, and the processes that still run in it.
struct Reader {
    directory: PathBuf,
    running: Vec<Child>,
    exported: Vec<(String, String)>,
    /// How many of the running processes a line has killed.
    killed: usize,
}

impl Reader {
    fn new(name: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("flowkeep-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(directory.join("examples")).unwrap();
        let entries = fs::read_dir(root().join("examples")).unwrap().flatten();
        for entry in entries.filter(|entry| entry.path().is_file()) {
            fs::copy(entry.path(), directory.join("examples").join(entry.file_name())).unwrap();
        }
        Reader {
            directory,
            running: Vec::new(),
            exported: Vec::new(),
            killed: 0,
        }
    }

    fn command(&self, line: &str) -> Command {
        let bin = Path::new(env!("CARGO_BIN_EXE_flowkeep")).parent().unwrap();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("sh");
        command.args(["-c", line]).current_dir(&self.directory);
        command.env("PATH", format!("{}:{path}", bin.display()));
        command.env("XDG_RUNTIME_DIR", &self.directory);
        command.env_remove("FLOWKEEP_SOCKET").env_remove("NOTIFY_SOCKET");
        command.envs(self.exported.iter().cloned());
        command.stdin(Stdio::null());
        command
    }

    /// Of members that begin one by one, the first that is ready may have all flows.
    fn may_move_none(&self) -> bool {
        self.exported.iter().any(|(name, _)| name == "FLOWKEEP_CLUSTER")
    }

    /// Types a line, and waits for its end.
    fn types(&self, line: &str, patience: Duration) -> Output {
        let began = Instant::now();
        loop {
            let output = self.command(line).output().unwrap();
            let has_moved = !line.starts_with("flowkeep flow migrate")
                || self.may_move_none()
                || moved(&text(&output)) > Some(0);
            let is_done = output.status.success() && has_moved;
            if is_done || self.running.is_empty() || began.elapsed() >= patience {
                return output;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Types a line that goes on, and waits until it says that it is ready, if it is to.
    fn starts(&mut self, line: &str, waits: bool) {
        let said = self.directory.join(format!("said-{}", self.running.len()));
        let mut command = self.command(&format!("exec {line}"));
        command.stdout(File::create(said.with_extension("out")).unwrap());
        command.stderr(File::create(&said).unwrap());
        self.running.push(command.process_group(0).spawn().unwrap());
        if !waits {
            return;
        }
        let began = Instant::now();
        loop {
            let text = fs::read_to_string(&said).unwrap();
            let mut lines = text.lines();
            if lines.any(|line| line.starts_with("ready: ") || line.starts_with("listening at ")) {
                println!("{}", text.trim_end());
                break;
            }
            let ended = self.running.last_mut().unwrap().try_wait().unwrap();
            assert!(
                ended.is_none() && began.elapsed() < PATIENCE,
                "{line}: {ended:?}\n{text}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// All started processes end, and well. A listening one, a coordinator, is told so by SIGTERM.
    fn ends(&mut self) {
        for (number, mut child) in self.running.drain(..).enumerate() {
            let said = fs::read_to_string(self.directory.join(format!("said-{number}"))).unwrap();
            if said.starts_with("listening at ") {
                let told = Command::new("kill").arg(child.id().to_string()).status().unwrap();
                assert!(told.success());
            }
            let began = Instant::now();
            let status = loop {
                if let Some(status) = child.try_wait().unwrap() {
                    break status;
                }
                if began.elapsed() > PATIENCE {
                    let _ = child.kill();
                    let _ = child.wait();
                    panic!("the page does not stop what it starts");
                }
                std::thread::sleep(Duration::from_millis(20));
            };
            if status.signal() == Some(9) && self.killed > 0 {
                self.killed -= 1;
                continue;
            }
            assert!(status.success(), "{status}");
            let is_ready = |line: &str| line.starts_with("ready: ") || line.starts_with("listening at ");
            assert!(said.lines().any(is_ready), "{said}");
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        for child in &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn text(output: &Output) -> String {
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    format!("{out}{err}")
}

/// How many flows a receipt says that have moved.
fn moved(said: &str) -> Option<u64> {
    let receipt = said
        .lines()
        .find_map(|line| line.strip_prefix("flows    asked "))?;
    let (_, moved) = receipt.split_once(", moved ")?;
    moved.split(',').next()?.parse().ok()
}

/// Checks a line's words beyond its success.
fn judge(command: &str, said: &str, may_move_none: bool) {
    let (migrates, rebalances) = (command.contains("flow migrate"), command.contains("--rebalance"));
    if migrates || rebalances || command.contains("drain") {
        assert!(said.contains("failed 0"), "{said}");
    }
    // A runtime whose flows a page moves has flows; a runtime that is drained may have none.
    if (migrates || rebalances) && !(may_move_none && said.contains("no flow was meant")) {
        assert!(moved(said) > Some(0), "{command} moves no flow: {said}");
    }
    // As soon as a cluster answers it may have seen no packet yet.
    if command == "flowkeep status" {
        let row = said.lines().find_map(|line| line.strip_prefix("in "));
        let count = row.and_then(|row| {
            row.split_whitespace()
                .next()?
                .replace(',', "")
                .parse::<u64>()
                .ok()
        });
        assert!(count > Some(0), "no packet has come: {said}");
    }
    if command.starts_with("tail") {
        assert!(said.contains("\"time\":\"20"), "the time of day: {said}");
    }
    if command.contains("runtime kill") && said.contains(" of its ") {
        let words: Vec<&str> = said.split_whitespace().collect();
        let counts = words.iter().filter_map(|word| word.parse::<u64>().ok());
        // `runtime 1 is gone; of its 350 flows 350 had copies`
        let counts: Vec<u64> = counts.collect();
        assert!(counts[1] > 0 && counts[1] == counts[2], "{said}");
    }
}

/// Types all lines of a page, and answers how many those were.
fn type_page(path: &str) -> usize {
    let page = fs::read_to_string(root().join(path)).unwrap();
    let mut reader = Reader::new(&path.replace(['/', '.'], "-"));
    let mut typed = 0;
    let mut slept = Duration::ZERO;
    for (kind, lines) in blocks(&page) {
        match kind.split_once(' ').unwrap_or((kind, "")) {
            ("toml", name) => {
                let name = if name.is_empty() { "gateway.toml" } else { name };
                fs::write(reader.directory.join(name), lines.join("\n")).unwrap();
            }
            ("sh", "") => {
                for line in &lines {
                    println!("$ {line}");
                    let command = line.split("  #").next().unwrap().trim_end();
                    typed += 1;
                    if let Some(exported) = command.strip_prefix("export ") {
                        let pairs = exported.split(' ').filter_map(|pair| pair.split_once('='));
                        let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
                        reader.exported.extend(pairs);
                        continue;
                    }
                    if let Some(command) = command.strip_suffix('&') {
                        reader.starts(command, !lines.iter().any(|line| line.contains("status --wait")));
                        continue;
                    }
                    let output = reader.types(command, slept * 10);
                    if let Some(seconds) = command.strip_prefix("sleep ") {
                        slept += Duration::from_secs(seconds.trim().parse().unwrap());
                    }
                    let said = text(&output);
                    println!("{}", said.lines().take(8).collect::<Vec<_>>().join("\n"));
                    assert!(
                        output.status.success(),
                        "{path}: {line}: {}\n{said}",
                        output.status
                    );
                    judge(command, &said, reader.may_move_none());
                    if said.contains(" is gone, with its process ") {
                        reader.killed += 1;
                    }
                }
                if lines.last().is_some_and(|line| line.starts_with("flowkeep stop")) {
                    reader.ends();
                }
            }
            ("sh", "setup" | "root") | ("text" | "yaml", _) => {}
            _ => panic!("{path}: `{kind}` is no kind of block that this test knows"),
        }
    }
    assert!(reader.running.is_empty(), "{path} does not stop what it starts");
    typed
}

#[test]
fn every_line_works_as_it_stands_in_order() {
    let typed = type_page("README.md");
    assert!(typed >= 15, "{typed} lines were typed");
}

#[test]
fn the_tutorial_works_as_it_stands() {
    let typed = type_page("docs/tutorial.md");
    assert!(typed >= 10, "{typed} lines were typed");
}

#[test]
fn each_how_to_works_as_it_stands() {
    let folder = root().join("docs/how-to");
    let mut names: Vec<String> = (fs::read_dir(folder).unwrap().flatten())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert!(names.len() >= 6, "{names:?}");
    for name in names {
        let typed = type_page(&format!("docs/how-to/{name}"));
        assert!(typed > 0, "{name}: no line was typed");
    }
}

#[test]
fn moving_and_looking_inside_work_as_they_stand() {
    for page in ["docs/moving.md", "docs/look-inside.md"] {
        let typed = type_page(page);
        assert!(typed >= 8, "{page}: {typed} lines were typed");
    }
}

#[test]
fn the_page_of_the_coordinator_works_as_it_stands() {
    let typed = type_page("docs/coordinator.md");
    assert!(typed >= 18, "{typed} lines were typed");
}

#[test]
fn the_page_of_the_simulator_works_as_it_stands() {
    assert_eq!(type_page("docs/simulator.md"), 3);
}

#[test]
fn the_demonstration_moves_flows_and_loses_none_that_had_a_copy() {
    let reader = Reader::new("demo");
    let output = reader.types("sh examples/demo.sh", PATIENCE);
    let said = text(&output);
    println!("{said}");
    assert!(output.status.success(), "{said}");
    assert!(said.contains("\nready: ports clients, world; runtimes 2; control socket "));
    assert!(
        said.matches(" packets so far").count() >= 6,
        "it says how far it is"
    );
    // Three receipts, and the sum of all of it.
    assert_eq!(said.matches("\npackets  buffered").count(), 3);
    let row = |what: &str| -> u64 {
        let line = said.lines().rfind(|line| line.starts_with(what));
        let count = line.and_then(|line| line.split_whitespace().last()?.parse().ok());
        count.unwrap_or_else(|| panic!("no row `{what}`"))
    };
    for none in ["flows that stayed behind", "packets lost by moving"] {
        assert_eq!(row(none), 0, "{none}");
    }
    // Its own traffic has no invalid packet: where none is dropped for want of room, none is at
    // all.
    let is_slow = ["runtime_busy", "replica_full"]
        .iter()
        .any(|why| said.contains(why));
    match is_slow {
        true => println!("this machine is too slow to judge dropped packets"),
        false => {
            assert_eq!(row("packets dropped before the kill"), 0);
            // A packet that is lost with the killed runtime may be a flow's first.
            let is_whole = row("packets lost with it") == 0;
            assert!(
                !is_whole || !said.contains("tcp_invalid_state"),
                "its traffic is valid"
            );
        }
    }
    let [had, copied, recovered, lost] = [
        "flows of the killed runtime",
        "  with copies at the other",
        "  recovered there",
        "  lost",
    ]
    .map(row);
    assert!(row("flows moved") > 0 && copied > 0 && recovered >= copied);
    assert_eq!(lost, had.saturating_sub(recovered));
    assert!(said.contains("\nlongest pause of a group that moved"));
}
