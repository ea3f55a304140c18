//! The servers that `bench store` starts: a redis-server, and a node of Cassandra
//! (`tools/cassandra/run.sh` of the sources). Each ends with this process, however that ends.
//!
//! ```text
//!   this process ── pipe ──► guard (sh) ──► server      on another processor than the packets
//!                ── end of file ──► the guard kills the server and removes the folder
//! ```

use super::places::aside;
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Until a server of a few megabytes answers.
const STARTING: Duration = Duration::from_secs(20);
/// Until a node of Cassandra does, and has its tables, on a busy processor.
const STARTING_NODE: Duration = Duration::from_secs(240);
/// In a node's log, where it has given up.
const GAVE_UP: &str = "during startup";

/// Waits until its standard input ends, which is when this process does, however: then it ends the
/// server and removes the folder.
const GUARD: &str = "folder=$1; shift; \"$@\" </dev/null >/dev/null 2>&1 & \
                     read -r _; kill -9 $! 2>/dev/null; wait; rm -rf -- \"$folder\"";

/// Becomes the node, whose log is in its folder.
const NODE: &str = "exec sh \"$1\" \"$2\" \"$3\" >\"$2/log\" 2>&1";

/// A server and its folder, which no other has: a shell of their own ends them with this process.
pub struct Guarded(Child);

impl Guarded {
    /// Starts `server` behind a shell. The group is its own: an interrupt from the keyboard does
    /// not reach it.
    pub fn start(folder: &Path, server: &[&str]) -> Option<Self> {
        aside(|| {
            let mut command = Command::new("sh");
            command.args(["-c", GUARD, "sh"]).arg(folder).args(server);
            command.stdin(Stdio::piped()).stdout(Stdio::null());
            command.stderr(Stdio::null()).process_group(0).spawn().ok()
        })
        .map(Guarded)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// A server on the loopback, which ends with this.
pub struct Server {
    pub port: u16,
    _guard: Guarded,
}

fn free_port() -> Option<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").ok()?;
    Some(listener.local_addr().ok()?.port())
}

impl Server {
    /// A redis-server without a log: as in the paper, its memory counts. `folder` is its own.
    pub fn redis(folder: &Path) -> Result<Self, String> {
        let version = Command::new("redis-server").arg("--version").output();
        version.map_err(|_| "there is no redis-server".to_owned())?;
        let port = free_port().ok_or("no port is free")?;
        let number = port.to_string();
        let words = [
            "redis-server",
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--port",
            &number,
        ];
        let server = Server {
            port,
            _guard: Guarded::start(folder, &words).ok_or("there is no shell")?,
        };
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if began.elapsed() > STARTING {
                return Err(format!("the redis-server does not answer within {STARTING:?}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// A node of Cassandra, out of the jars that `./x setup` has fetched: nothing is fetched here.
    /// `folder` is its own.
    pub fn cassandra(folder: &Path) -> Result<Self, String> {
        let script = script().ok_or(
            "this program does not lie in the folder `target` of Flowkeep's sources, whose tools/cassandra/run.sh starts it",
        )?;
        let looked = Command::new("sh").arg(&script).arg("installed").output();
        let looked = looked.map_err(|error| error.to_string())?;
        if !looked.status.success() {
            return Err(last_line(&String::from_utf8_lossy(&looked.stderr)));
        }
        let port = free_port().ok_or("no port is free")?;
        let number = port.to_string();
        std::fs::create_dir_all(folder).map_err(|error| error.to_string())?;
        let (Some(script), Some(at)) = (script.to_str(), folder.to_str()) else {
            return Err("its folder has a name that is no text".to_owned());
        };
        let words = ["sh", "-c", NODE, "sh", script, at, &number];
        let server = Server {
            port,
            _guard: Guarded::start(folder, &words).ok_or("there is no shell")?,
        };
        let log = || std::fs::read_to_string(folder.join("log")).unwrap_or_default();
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if log().contains(GAVE_UP) || began.elapsed() > STARTING_NODE {
                return Err(format!("the node does not start: {}", last_line(&log())));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        // The first call makes the tables, which takes longer than a runtime waits.
        let uri = of_cassandra(port);
        aside(|| {
            let mut driver = stores::driver_of(&uri)?;
            loop {
                match driver.record("bench") {
                    Err(_) if began.elapsed() < STARTING_NODE => {}
                    done => return done,
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        })
        .map_err(|failure| failure.to_string())?;
        Ok(server)
    }
}

/// The URI of a node of Cassandra on the loopback.
pub fn of_cassandra(port: u16) -> String {
    format!("cassandra://127.0.0.1:{port}/bench")
}

fn last_line(said: &str) -> String {
    said.lines().last().unwrap_or("it says nothing").to_owned()
}

/// `tools/cassandra/run.sh` of the sources that this program was built of: beside the folder
/// `target` that the program lies in, at whatever depth.
fn script() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let target = program.ancestors().find(|folder| folder.ends_with("target"))?;
    let script = target.parent()?.join("tools/cassandra/run.sh");
    script.is_file().then_some(script)
}
