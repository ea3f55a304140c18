//! Members of a cluster as processes: started, asked, killed; nothing of them is left when a test
//! ends.

use flowkeep::control::client::Client;
use flowkeep::control::{Answer, Request};
use flowkeep::report::Status;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

/// How long anything may take that takes no time.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A folder of its own with a configuration and keys, gone afterwards, however the test ends.
pub struct Folder(pub PathBuf, pub u8);

impl Folder {
    pub fn new(name: &str) -> Self {
        static FOLDERS: AtomicU8 = AtomicU8::new(1);
        let path = std::env::temp_dir().join(format!("flowkeep-members-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let folder = Folder(path, FOLDERS.fetch_add(1, Ordering::Relaxed));
        folder.key("edge.key", 1);
        folder
    }

    /// The cluster's name: processes of a host meet by it.
    fn cluster(&self) -> String {
        format!("test-{}-{}", std::process::id(), self.1)
    }

    /// Writes a key file.
    pub fn key(&self, name: &str, number: u8) -> PathBuf {
        let path = self.write(name, &format!("{number} {}", format!("{number:02x}").repeat(32)));
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&path, mode).unwrap();
        path
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).unwrap_or_default()
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// The first lines of a configuration: the cluster, and the members as
    /// `(name, "switches" or "runtimes", host)`. A host that is an address of this machine is one
    /// by itself.
    pub fn members(&self, members: &[(&str, &str, &str)]) -> String {
        let mut text = format!(
            "[cluster]\nname = \"{}\"\nkeys = [\"{}\"]\ndirectory = \"{}\"\nport = {}\n",
            self.cluster(),
            self.path("edge.key"),
            self.path("state"),
            // Of its own, since tests run beside each other; the system gives those from 32,768 on
            // to processes that ask for any.
            20_000 + std::process::id() % 12_000
        );
        for (name, kind, host) in members {
            text += &format!("[[member]]\nname = \"{name}\"\n{kind} = 1\nhost = \"{host}\"\n");
            text += &format!(
                "socket = \"{}\"\nevents = \"{}\"\n",
                self.path(&format!("{name}.sock")),
                self.path(&format!("{name}.jsonl"))
            );
            if host.parse::<std::net::IpAddr>().is_ok() {
                text += &format!("address = \"{host}\"\n");
            }
        }
        text
    }

    /// Ports from a generator to nowhere.
    pub fn generated(&self, profile: &str) -> String {
        let profile = self.write("profile.toml", profile);
        format!(
            "[[port]]\nname = \"lan\"\nside = \"inside\"\ninput = \"generate:{}\"\n[[port]]\nname = \"wan\"\nside = \"outside\"\noutput = \"pcap:/dev/null\"\n",
            profile.display()
        )
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for entry in std::fs::read_dir(&self.0).into_iter().flatten().flatten() {
                let name = entry.file_name().display().to_string();
                if name.ends_with(".err") {
                    eprintln!("{name}: {}", self.read(&name));
                }
            }
        }
        let _ = std::fs::remove_dir_all(&self.0);
        // Where members met that were killed.
        let user = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap());
        let name = format!("flowkeep-{user}-{}-", self.cluster());
        for entry in ["/run", "/dev/shm"]
            .iter()
            .flat_map(std::fs::read_dir)
            .flatten()
            .flatten()
        {
            if entry.file_name().display().to_string().starts_with(&name) {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
    }
}

/// A member's process; killed when dropped.
pub struct Member {
    pub name: String,
    pub process: Child,
    pub socket: PathBuf,
}

impl Member {
    /// Starts one, and does not wait for anything.
    pub fn start(folder: &Folder, config: &std::path::Path, command: &str, name: &str) -> Member {
        Member::start_with(folder, config, command, name, &[])
    }

    /// The same, with more words.
    pub fn start_with(
        folder: &Folder,
        config: &std::path::Path,
        command: &str,
        name: &str,
        more: &[&str],
    ) -> Member {
        let tool = Command::new(env!("CARGO_BIN_EXE_flowkeep"));
        let config = config.display().to_string();
        let words = [&[command, &config, "--member", name, "--json"][..], more].concat();
        Member::start_by(folder, tool, name, |tool| {
            tool.args(words);
        })
    }

    /// Starts one with a tool that is given its words by `say`.
    pub fn start_by(
        folder: &Folder,
        mut tool: Command,
        name: &str,
        say: impl FnOnce(&mut Command),
    ) -> Member {
        let log = |what: &str| std::fs::File::create(folder.0.join(format!("{name}.{what}"))).unwrap();
        say(&mut tool);
        let process = tool
            .stdin(Stdio::null())
            .stdout(log("out"))
            .stderr(log("err"))
            .spawn()
            .unwrap();
        Member {
            name: name.to_owned(),
            process,
            socket: folder.0.join(format!("{name}.sock")),
        }
    }

    pub fn client(&self) -> Client {
        let began = Instant::now();
        loop {
            match Client::connect(&self.socket) {
                Ok(client) => return client,
                Err(error) => assert!(began.elapsed() < PATIENCE, "{}: {error}", self.name),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn status(&self) -> Status {
        match self.client().ask(&Request::Status).unwrap() {
            Answer::Status(status) => *status,
            other => panic!("{}: {other:?}", self.name),
        }
    }

    /// Waits until its status is as wanted.
    #[track_caller]
    pub fn wait_until(&self, what: &str, mut is_so: impl FnMut(&Status) -> bool) -> Status {
        let began = Instant::now();
        loop {
            let status = self.status();
            if is_so(&status) {
                return status;
            }
            assert!(began.elapsed() < PATIENCE, "{}: {what}, but {status}", self.name);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until all its links have a worker at the other end.
    #[track_caller]
    pub fn wait_for_all(&self) -> Status {
        self.wait_until("all are to be there", |status| {
            !status.links.is_empty() && status.links.iter().all(|link| link.is_there)
        })
    }

    /// As `kill -9` does.
    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
