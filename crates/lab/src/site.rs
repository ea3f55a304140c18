//! A client, a gateway with a running cluster, and a server, each a namespace: the network that
//! `flowkeep lab` builds.
//!
//! ```text
//!   client ═══════════ left  gateway  right ═══════════ server
//!   10.0.1.1/24        .254  (flowkeep run)  203.0.113.254/24   .1 iperf3, .11 and .12 nginx
//!   NAT pool 203.0.113.64/29; virtual address 192.0.2.80, behind it .11 and .12
//! ```
//!
//! Files (configuration, control socket, nginx's content) are in a folder whose name has its owner
//! as the namespaces' names do, so that [`super::sweep`] finds the folder of a killed owner. A site
//! goes when it is dropped: programs first, then namespaces, then files.
//!
//! Invariant: nothing of a site is outside its namespaces and its folder.
//!
//! Not here: the commands (`flowkeep lab`).

use super::process::{Process, Run};
use super::{Lab, LabError, NAMES, Namespace, Owner, PATIENCE, need};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Names of sites' namespaces begin so, behind the prefix of all labs.
const ROLE: &str = "lab-";
const FOLDER: &str = "flowkeep-lab-";
/// The server.
pub const SERVER: &str = "203.0.113.1";
/// The address behind which the two servers of files are.
pub const VIRTUAL: &str = "192.0.2.80";
/// The file that they have.
pub const FILE: &str = "file";
const FILE_BYTES: usize = 1_000_000;

/// A built site.
#[derive(Debug)]
pub struct Site {
    // Dropped in this order.
    cluster: Option<Process>,
    servers: Vec<Process>,
    /// Where clients are.
    pub client: Namespace,
    /// Where the cluster runs.
    pub gateway: Namespace,
    /// Where servers are.
    pub server: Namespace,
    _lab: Lab,
    folder: Folder,
}

/// A directory of this process, gone when it is dropped, or when the next is made after a crash.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Folder {
    /// The process has one at a time. Folders of dead processes are removed.
    pub fn new() -> Result<Self, LabError> {
        sweep_folders();
        let Owner { process, began } = Owner::this();
        let path = std::env::temp_dir().join(format!("{FOLDER}{process}-{began}"));
        match fs::create_dir(&path) {
            Ok(()) => Ok(Folder(path)),
            Err(source) => Err(system(path.display(), source)),
        }
    }

    /// Where a file of this name is.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file; answers where it is.
    pub fn write(&self, name: &str, content: &[u8]) -> Result<String, LabError> {
        let path = self.path(name);
        fs::write(&path, content).map_err(|source| system(path.display(), source))?;
        Ok(path.display().to_string())
    }
}

fn system(what: impl std::fmt::Display, source: io::Error) -> LabError {
    LabError::System {
        what: what.to_string(),
        source,
    }
}

impl Site {
    /// Builds it, with ports of this kind (`afpacket`, `afxdp`), and waits until everything in it
    /// answers.
    pub fn build(scheme: &str) -> Result<Self, LabError> {
        for (program, package) in [
            ("nginx", "nginx-light"),
            ("iperf3", "iperf3"),
            ("curl", "curl"),
            ("ping", "iputils-ping"),
        ] {
            need(program, package)?;
        }
        let mut lab = Lab::new()?;
        sweep_folders();
        let mut namespace = |role: &str| lab.namespace(&format!("{ROLE}{role}"));
        let (client, gateway, server) = (namespace("client")?, namespace("gateway")?, namespace("server")?);
        lab.cable((&client, "eth0"), (&gateway, "left"))?;
        lab.cable((&server, "eth0"), (&gateway, "right"))?;
        for (host, interface, address) in [
            (&client, "eth0", "10.0.1.1/24"),
            (&gateway, "left", "10.0.1.254/24"),
            (&gateway, "right", "203.0.113.254/24"),
            (&server, "eth0", "203.0.113.1/24"),
            (&server, "eth0", "203.0.113.11/24"),
            (&server, "eth0", "203.0.113.12/24"),
        ] {
            host.address(interface, address)?;
        }
        client.ip("route add default via 10.0.1.254")?;
        let mut site = Site {
            cluster: None,
            servers: Vec::new(),
            client,
            gateway,
            server,
            _lab: lab,
            folder: Folder::new()?,
        };
        site.serve()?;
        site.start(scheme)?;
        Ok(site)
    }

    fn serve(&mut self) -> Result<(), LabError> {
        self.folder.write(FILE, &Self::content())?;
        let folder = self.folder.0.display();
        for (name, address) in [("one", "203.0.113.11"), ("two", "203.0.113.12")] {
            let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
                .map(|kind| format!("{kind}_temp_path {folder}/{name}-{kind}; "))
                .concat();
            let config = format!(
                "user root; daemon off; master_process off; pid {folder}/{name}.pid; error_log stderr notice;\n\
                 events {{ worker_connections 1024; }}\n\
                 http {{ access_log off; {temporary}\n\
                 server {{ listen {address}:80; root {folder}; add_header X-Server {name}; }} }}\n"
            );
            let file = self.folder.write(&format!("{name}.conf"), config.as_bytes())?;
            let mut nginx = self.server.start(&format!("nginx -c {file}"))?;
            nginx.wait_for("using the", PATIENCE)?;
            self.servers.push(nginx);
        }
        let mut iperf3 = self.server.start("iperf3 --server --forceflush")?;
        iperf3.wait_for("Server listening", PATIENCE)?;
        self.servers.push(iperf3);
        Ok(())
    }

    fn start(&mut self, scheme: &str) -> Result<(), LabError> {
        let config = include_str!("gateway.toml").replace("SCHEME", scheme);
        let file = self.folder.write("gateway.toml", config.as_bytes())?;
        let flowkeep = std::env::current_exe().map_err(|source| system("this program", source))?;
        let flowkeep_path = &flowkeep;
        let (flowkeep, socket) = (flowkeep.display(), self.socket());
        let words = format!("{flowkeep} run {file} --socket {}", socket.display());
        let cluster = self.cluster.insert(self.gateway.start(&words)?);
        let began = Instant::now();
        // The socket is there before the ports are open; it is answered when they are.
        let answers = || {
            let mut status = std::process::Command::new(flowkeep_path);
            let status = status.arg("status").arg("--socket").arg(&socket);
            let status = status
                .stdout(std::process::Stdio::null())
                .stderr(std::process::Stdio::null());
            status.status().is_ok_and(|status| status.success())
        };
        while !socket.exists() || !answers() {
            if cluster.ended()?.is_some() || began.elapsed() > PATIENCE {
                let (out, err) = cluster.printed()?;
                return Err(LabError::Failed {
                    command: words,
                    problem: format!("{out}{err}").trim().to_owned(),
                });
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// The cluster's control socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.path("socket")
    }

    /// Where its files are.
    pub fn folder(&self) -> &Path {
        &self.folder.0
    }

    /// The served content: bytes that do not repeat.
    pub fn content() -> Vec<u8> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        };
        std::iter::repeat_with(next).take(FILE_BYTES).collect()
    }

    /// The cluster's output, if it has ended by itself.
    pub fn has_ended(&mut self) -> Result<Option<String>, LabError> {
        let Some(cluster) = &mut self.cluster else {
            return Ok(None);
        };
        if cluster.ended()?.is_none() {
            return Ok(None);
        }
        let (out, err) = cluster.printed()?;
        Ok(Some(format!("{out}{err}")))
    }

    /// Ends the cluster gracefully; answers its report.
    pub fn stop(mut self) -> Result<String, LabError> {
        let Some(cluster) = self.cluster.take() else {
            return Ok(String::new());
        };
        let ended = cluster.stop()?;
        match ended.status.success() {
            true => Ok(ended.out),
            false => Err(LabError::Failed {
                command: "flowkeep run".to_owned(),
                problem: format!("{}: {}{}", ended.status, ended.out, ended.err),
            }),
        }
    }

    /// Runs a program at the client; answers its output, whether it failed or not.
    pub fn at_client(&self, words: &str) -> Result<String, LabError> {
        let ended = self.client.finish(words, Run::within(Duration::from_secs(60)))?;
        Ok(format!("{}{}", ended.out, ended.err))
    }
}

/// Whose sites there are whose owners live.
fn owners() -> BTreeSet<u32> {
    let Ok(entries) = fs::read_dir(NAMES) else {
        return BTreeSet::new();
    };
    let names = entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned());
    let sites = names.filter(|name| {
        name.splitn(5, '-')
            .nth(4)
            .is_some_and(|role| role.starts_with(ROLE))
    });
    let owners = sites
        .filter_map(|name| Owner::of(&name))
        .filter(|owner| owner.is_alive());
    owners.map(|owner| owner.process).collect()
}

/// Removes the folders of dead owners; answers how many.
fn sweep_folders() -> usize {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else {
        return 0;
    };
    let dead = entries.flatten().filter(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some((process, began)) = name.strip_prefix(FOLDER).and_then(|rest| rest.split_once('-')) else {
            return false;
        };
        match (process.parse(), began.parse()) {
            (Ok(process), Ok(began)) => !Owner { process, began }.is_alive(),
            _ => false,
        }
    });
    dead.filter(|entry| fs::remove_dir_all(entry.path()).is_ok())
        .count()
}

/// Ends all sites, and removes the remains of dead ones; answers how many there were of each.
pub fn down() -> Result<(usize, usize), LabError> {
    if !rustix::process::geteuid().is_root() {
        return Err(LabError::NotRoot);
    }
    let living = owners();
    let signal = |owner: &u32, signal| {
        if let Some(pid) = rustix::process::Pid::from_raw(*owner as i32) {
            let _ = rustix::process::kill_process(pid, signal);
        }
    };
    for owner in &living {
        signal(owner, rustix::process::Signal::TERM);
    }
    let began = Instant::now();
    let mut left = owners();
    while !left.is_disjoint(&living) && began.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(20));
        left = owners();
    }
    // A site that does not end when it is asked to is killed, and its remains are swept.
    for owner in left.intersection(&living) {
        signal(owner, rustix::process::Signal::KILL);
    }
    std::thread::sleep(Duration::from_millis(50));
    let swept = super::sweep()?.len().max(sweep_folders());
    Ok((living.len(), swept))
}
