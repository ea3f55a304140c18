//! Networks of this machine's own making: namespaces with addresses and routes, joined by cables,
//! gone afterwards.
//!
//! # Theory of operation
//!
//! A network namespace is a host of its own, as far as the network goes; a veth pair is a cable
//! between two of them. A program in a namespace reaches nothing outside of it.
//!
//! ```text
//!   let mut lab = Lab::new()?;
//!   let (client, server) = (lab.namespace("client")?, lab.namespace("server")?);
//!   lab.cable((&client, "eth0"), (&server, "eth0"))?;
//!   client.address("eth0", "10.0.0.1/24")?;
//!   server.address("eth0", "10.0.0.2/24")?;
//!   client.run("ping -c 1 10.0.0.2", limit)?;
//! ```
//!
//! Nothing is left behind. A lab takes its namespaces down when it is dropped. The next lab that
//! any process makes here takes down a lab whose process was killed ([`sweep`]): a namespace's name
//! has its owner's process number and the time at which that process began, so that it is known
//! whether the owner is gone, even if its number has been used again. Processes in a namespace end
//! with their owner ([`process`]), and remaining ones are ended with the namespace.
//!
//! ```text
//!   fk-4711-8812345-0-client
//!      │    │       │ └ its name in the lab
//!      │    │       └ which lab of the process
//!      │    └ when the process began, in the kernel's ticks
//!      └ the owner's process number
//! ```
//!
//! Invariant: a namespace that has been made is in a lab's list from that moment on, or its owner
//! is dead.
//!
//! Needs root, and `ip` (iproute2). Not here: the programs in the namespaces.

pub mod process;
pub mod site;

#[cfg(test)]
mod tests;

use process::{Ended, Process, Run};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Where `ip netns` keeps the names.
const NAMES: &str = "/run/netns";
/// How long a command that sets something up may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why a lab cannot be, or something in it did not work.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// Not root.
    #[error("network namespaces need root; start this with sudo")]
    NotRoot,
    /// A program is missing.
    #[error("there is no program `{program}`; install it: apt-get install {package}")]
    NoProgram {
        /// Its name.
        program: String,
        /// Whose it is, in Debian.
        package: &'static str,
    },
    /// A command failed.
    #[error("`{command}` failed: {problem}")]
    Failed {
        /// The command.
        command: String,
        /// Its words.
        problem: String,
    },
    /// A command took too long and was ended.
    #[error("`{command}` took more than {seconds} s and was ended")]
    TooLong {
        /// The command.
        command: String,
        /// How long it was given.
        seconds: u64,
    },
    /// The system failed.
    #[error("{what}: {source}")]
    System {
        /// The attempt.
        what: String,
        /// The system's error.
        source: io::Error,
    },
}

/// Some namespaces of this process.
#[derive(Debug)]
pub struct Lab {
    prefix: String,
    names: Vec<String>,
}

/// A namespace of a lab: a host of its own.
#[derive(Clone, Debug)]
pub struct Namespace {
    name: String,
}

impl Lab {
    /// An empty lab. First of all, the namespaces of dead processes are taken down.
    pub fn new() -> Result<Self, LabError> {
        static LABS: AtomicU32 = AtomicU32::new(0);
        need("ip", "iproute2")?;
        need("setpriv", "util-linux")?;
        if !rustix::process::geteuid().is_root() {
            return Err(LabError::NotRoot);
        }
        sweep()?;
        let owner = Owner::this();
        let number = LABS.fetch_add(1, Ordering::Relaxed);
        Ok(Lab {
            prefix: format!("fk-{}-{}-{number}-", owner.process, owner.began),
            names: Vec::new(),
        })
    }

    /// Adds a namespace. It has a loopback interface and nothing else.
    pub fn namespace(&mut self, role: &str) -> Result<Namespace, LabError> {
        let name = format!("{}{role}", self.prefix);
        ip(&["netns", "add", &name])?;
        self.names.push(name.clone());
        let namespace = Namespace { name };
        namespace.ip("link set lo up")?;
        Ok(namespace)
    }

    /// Joins two namespaces by a cable with these ends, and brings both up.
    pub fn cable(&mut self, one: (&Namespace, &str), other: (&Namespace, &str)) -> Result<(), LabError> {
        self.cable_with_queues(one, other, 1)
    }

    /// A cable whose ends have so many queues.
    pub fn cable_with_queues(
        &mut self,
        (one, one_end): (&Namespace, &str),
        (other, other_end): (&Namespace, &str),
        queues: u32,
    ) -> Result<(), LabError> {
        let peer = &other.name;
        one.ip(&format!(
            "link add {one_end} numtxqueues {queues} numrxqueues {queues} type veth \
             peer name {other_end} netns {peer} numtxqueues {queues} numrxqueues {queues}"
        ))?;
        one.ip(&format!("link set {one_end} up"))?;
        other.ip(&format!("link set {other_end} up"))
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for name in self.names.drain(..) {
            if let Err(error) = take_down(&name) {
                eprintln!("{error}");
            }
        }
    }
}

impl Namespace {
    /// Its name, as `ip netns` lists it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `ip` with these words in the namespace.
    pub fn ip(&self, words: &str) -> Result<(), LabError> {
        let mut all = vec!["-n", self.name.as_str()];
        all.extend(words.split_whitespace());
        ip(&all)
    }

    /// Gives an interface an address, in use at once.
    pub fn address(&self, interface: &str, address: &str) -> Result<(), LabError> {
        // Without `nodad` an IPv6 address is of no use for a second.
        let nodad = if address.contains(':') { "nodad" } else { "" };
        self.ip(&format!("address add {address} dev {interface} {nodad}"))
    }

    /// Sets a variable of the namespace's kernel, like `net.ipv4.ip_forward`.
    pub fn set(&self, variable: &str, value: &str) -> Result<(), LabError> {
        let path = format!("/proc/sys/{}", variable.replace('.', "/"));
        self.run(&format!("tee {path}"), Run::with_input(PATIENCE, value))
            .map(drop)
    }

    /// Turns offloads of an interface off or on, as `ethtool -K` names them.
    pub fn offloads(&self, interface: &str, words: &str) -> Result<(), LabError> {
        need("ethtool", "ethtool")?;
        self.run(&format!("ethtool -K {interface} {words}"), Run::within(PATIENCE))
            .map(drop)
    }

    /// Runs a program in the namespace to its end, and answers its standard output; an error if it
    /// failed or took too long.
    pub fn run(&self, words: &str, run: Run) -> Result<String, LabError> {
        process::run(self.command(words), words, run)
    }

    /// Runs a program in the namespace to its end, however that is; an error only if it cannot be
    /// started or took too long.
    pub fn finish(&self, words: &str, run: Run) -> Result<Ended, LabError> {
        process::finish(self.command(words), words, run)
    }

    /// Starts a program in the namespace that is ended when the answer is dropped.
    pub fn start(&self, words: &str) -> Result<Process, LabError> {
        Process::start(self.command(words), words)
    }

    /// A program in the namespace that does not outlive this one, its words separated by blanks.
    pub fn command(&self, words: &str) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "ip", "netns", "exec", &self.name]);
        command.args(words.split_whitespace());
        command
    }

    /// Moves the calling thread, and the processes that it starts from now on, into the namespace.
    pub fn enter(&self) -> Result<(), LabError> {
        let path = Path::new(NAMES).join(&self.name);
        let system = |source| LabError::System {
            what: format!("{} cannot be entered", path.display()),
            source,
        };
        let file = fs::File::open(&path).map_err(system)?;
        rustix::thread::move_into_link_name_space(
            std::os::fd::AsFd::as_fd(&file),
            Some(rustix::thread::LinkNameSpaceType::Network),
        )
        .map_err(|errno| system(errno.into()))
    }
}

/// Whose namespace it is: a process, and when it began, since numbers are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner {
    process: u32,
    began: u64,
}

impl Owner {
    fn this() -> Self {
        let process = std::process::id();
        Owner {
            process,
            began: began(process).unwrap_or(0),
        }
    }

    /// From a namespace's name; `None` for a name that is no lab's.
    fn of(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix("fk-")?.splitn(4, '-');
        let process = parts.next()?.parse().ok()?;
        let began = parts.next()?.parse().ok()?;
        let _lab: u32 = parts.next()?.parse().ok()?;
        parts.next().map(|_| Owner { process, began })
    }

    fn is_alive(self) -> bool {
        began(self.process) == Some(self.began)
    }
}

/// When a process began, in ticks since the machine started; `None` if there is none with this
/// number.
fn began(process: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field, the program's name in brackets, may have blanks and brackets in it.
    let behind = &stat[stat.rfind(')')? + 1..];
    behind.split_whitespace().nth(19)?.parse().ok()
}

/// Takes down the namespaces of dead owners; answers their names.
pub fn sweep() -> Result<Vec<String>, LabError> {
    let mut gone = Vec::new();
    let Ok(entries) = fs::read_dir(NAMES) else {
        return Ok(gone);
    };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if Owner::of(&name).is_some_and(|owner| !owner.is_alive()) {
            // Another one may be at it at the same time.
            match take_down(&name) {
                Err(error) if Path::new(NAMES).join(&name).exists() => return Err(error),
                _ => gone.push(name),
            }
        }
    }
    Ok(gone)
}

/// Ends the processes that still run in a namespace, and removes it; with it go its ends of cables,
/// and so the other ends.
fn take_down(name: &str) -> Result<(), LabError> {
    let output = Command::new("ip").args(["netns", "pids", name]).output();
    let output = output.map_err(|source| LabError::System {
        what: "ip netns pids".into(),
        source,
    })?;
    for pid in String::from_utf8_lossy(&output.stdout).split_whitespace() {
        let pid = pid.parse().ok().and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid.filter(|pid| pid.as_raw_pid() as u32 != std::process::id()) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
    ip(&["netns", "delete", name])
}

fn ip(words: &[&str]) -> Result<(), LabError> {
    let mut command = Command::new("ip");
    command.args(words);
    process::run(command, &format!("ip {}", words.join(" ")), Run::within(PATIENCE)).map(drop)
}

/// An error if a program is not installed.
pub fn need(program: &str, package: &'static str) -> Result<(), LabError> {
    match find(program) {
        Some(_) => Ok(()),
        None => Err(LabError::NoProgram {
            program: program.to_owned(),
            package,
        }),
    }
}

/// Where a program is: in the path, or where a system's own are.
fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(system)
        .map(|folder| folder.join(OsStr::new(program)))
        .find(|file| file.is_file())
}
