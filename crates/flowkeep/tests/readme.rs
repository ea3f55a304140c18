//! The README as its reader types it: every line of its `sh` blocks, in order, and `./x demo`.
//!
//! ```text
//!   ```sh         typed here, line by line, in a directory that has `examples` in it
//!   ```toml       written to `gateway.toml` before the lines behind it
//!   ```sh setup   not typed: what builds this program
//!   ```sh root    not typed: needs root and servers, and is `tests/live/lab.rs`
//! ```
//!
//! A line that ends with `&` goes on beside the others, and must say that it is ready. The line behind it is tried again until it succeeds, since
//! a test types faster than its reader.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
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

/// A block of the page: what stands behind its three quotes, and its lines.
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

/// A reader: a directory, and what still runs in it.
struct Reader {
    directory: PathBuf,
    running: Vec<Child>,
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
        command.stdin(Stdio::null());
        command
    }

    /// Types a line, and waits for its end.
    fn types(&self, line: &str) -> Output {
        let began = Instant::now();
        loop {
            let output = self.command(line).output().unwrap();
            // Where something was started just now, it may not answer yet.
            if output.status.success() || self.running.is_empty() || began.elapsed() > PATIENCE {
                return output;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Types a line that goes on, and waits until it says that it is ready.
    fn starts(&mut self, line: &str) {
        let said = self.directory.join(format!("said-{}", self.running.len()));
        let mut command = self.command(&format!("exec {line}"));
        command.stdout(File::create(said.with_extension("out")).unwrap());
        command.stderr(File::create(&said).unwrap());
        let mut child = command.process_group(0).spawn().unwrap();
        let began = Instant::now();
        loop {
            let text = fs::read_to_string(&said).unwrap();
            if text.starts_with("ready: ") {
                println!("{}", text.trim_end());
                break;
            }
            let ended = child.try_wait().unwrap();
            assert!(
                ended.is_none() && began.elapsed() < PATIENCE,
                "{line}: {ended:?}\n{text}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        self.running.push(child);
    }

    /// All that was started ends, and well.
    fn ends(&mut self) {
        for mut child in self.running.drain(..) {
            let began = Instant::now();
            let status = loop {
                if let Some(status) = child.try_wait().unwrap() {
                    break status;
                }
                if began.elapsed() > PATIENCE {
                    let _ = child.kill();
                    let _ = child.wait();
                    panic!("the README does not stop what it starts");
                }
                std::thread::sleep(Duration::from_millis(20));
            };
            assert!(status.success(), "{status}");
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

#[test]
fn every_line_works_as_it_stands_in_order() {
    let page = fs::read_to_string(root().join("README.md")).unwrap();
    let mut reader = Reader::new("readme");
    let (mut typed, mut last) = (0, String::new());
    for (kind, lines) in blocks(&page) {
        match kind {
            "toml" => fs::write(reader.directory.join("gateway.toml"), lines.join("\n")).unwrap(),
            "sh" => {
                for line in lines {
                    println!("$ {line}");
                    let command = line.split("  #").next().unwrap().trim_end();
                    typed += 1;
                    if let Some(command) = command.strip_suffix('&') {
                        reader.starts(command);
                        continue;
                    }
                    let output = reader.types(command);
                    last = text(&output);
                    println!("{}", last.lines().take(8).collect::<Vec<_>>().join("\n"));
                    assert!(output.status.success(), "{line}: {}\n{last}", output.status);
                    if command.contains("flow migrate") || command.contains("drain") {
                        assert!(last.contains("failed 0"), "{last}");
                    }
                    if command.starts_with("tail") {
                        assert!(last.contains("\"time\":\"20"), "the time of day: {last}");
                    }
                }
                // A block ends what it has started.
                reader.ends();
            }
            "sh setup" | "sh root" | "text" => {}
            other => panic!("`{other}` is no kind of block that this test knows"),
        }
    }
    assert!(typed >= 15, "{typed} lines were typed; {last}");
}

#[test]
fn the_demonstration_moves_flows_and_loses_nothing() {
    let reader = Reader::new("demo");
    let output = reader.types("sh examples/demo.sh");
    let said = text(&output);
    println!("{said}");
    assert!(output.status.success(), "{said}");
    // Three receipts, and what they come to.
    assert_eq!(said.matches("\npackets  buffered").count(), 3);
    assert!(said.contains("flows moved, 0 stayed behind; 0 packets lost by moving"));
    assert!(said.contains("\nready: ports clients, world; runtimes 2; control socket "));
}
