//! A cluster in a process of its own, as a person starts it, and the commands that a person gives
//! it.

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long anything here may take.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A cluster that goes on until it is stopped, and a directory; both are gone when this is.
pub struct Running {
    pub cluster: Child,
    directory: PathBuf,
}

impl Running {
    /// Starts the configuration that `config` makes of the path of a file with this generator's
    /// profile, and waits until it answers.
    pub fn start(name: &str, profile: &str, config: impl FnOnce(&str) -> String) -> Self {
        let directory = std::env::temp_dir().join(format!("flowkeep-running-{}-{name}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let file = |name: &str, text: &str| {
            let path = directory.join(name);
            fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let profile = file("traffic.toml", profile);
        let config = file("config.toml", &config(&profile));
        let socket = directory.join("s.sock");
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowkeep"));
        command.args(["run", "--socket"]).arg(&socket).arg(config);
        let said = fs::File::create(directory.join("said")).unwrap();
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        let mut running = Running {
            cluster: command.spawn().unwrap(),
            directory,
        };
        let began = Instant::now();
        while !running.ask(&["status"]).status.success() {
            let ended = running.cluster.try_wait().unwrap();
            let said = fs::read_to_string(running.path("said")).unwrap_or_default();
            assert!(ended.is_none(), "it ended: {ended:?} {said}");
            assert!(began.elapsed() < PATIENCE, "it does not answer: {said}");
            std::thread::sleep(Duration::from_millis(50));
        }
        running
    }

    pub fn path(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    /// A command about this cluster, with its further words.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowkeep"));
        command.args(words).args(["--socket", &self.path("s.sock")]);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// The output of a command; a command that does not end is ended, and a failure.
    #[track_caller]
    pub fn ask(&self, words: &[&str]) -> Output {
        let mut child = OnDrop(self.command(words).spawn().unwrap());
        let (out, err) = (read(child.0.stdout.take()), read(child.0.stderr.take()));
        let began = Instant::now();
        let status = loop {
            if let Some(status) = child.0.try_wait().unwrap() {
                break status;
            }
            assert!(began.elapsed() < PATIENCE, "`{}` does not end", words.join(" "));
            std::thread::sleep(Duration::from_millis(2));
        };
        Output {
            status,
            stdout: out.join().unwrap(),
            stderr: err.join().unwrap(),
        }
    }
}

/// All that comes, read beside the thread that waits.
fn read(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut all = Vec::new();
        pipe.unwrap().read_to_end(&mut all).unwrap();
        all
    })
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.cluster.kill();
        let _ = self.cluster.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Ended when it is no longer wanted.
struct OnDrop(Child);

impl Drop for OnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
