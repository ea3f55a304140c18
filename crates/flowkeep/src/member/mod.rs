//! One member of a cluster of several processes: its data beside the configuration, which all
//! members share.
//!
//! # Theory of operation
//!
//! ```text
//!   secrets.rs      key files ──► the keys of links; the seed of all hashes; words on the configuration
//!   incarnation.rs  a number that grows from start to start, and the lock of this member's process
//! ```
//!
//! *The seed* is the same in all processes, since groups and their homes are told by hash. No
//! process outside the cluster may know it. It is derived from a key file that stays when keys are
//! changed (`seed`, or the first of `keys` at the start).
//!
//! *The words* stand for everything that members must agree on: in the configuration, the members,
//! chains and functions, and sizes; of the program, its version, and of each function the versions
//! and layouts of its flow state and group state, since states go from process to process as bytes.
//! Links say them when they meet. So members whose files differ have no session with each other,
//! rather than flows with other functions' states, and both say how they differ ([`unmet`]).
//!
//! Invariants: no two processes are one member at a time; an incarnation is greater than every one
//! before it.
//!
//! Not here: links ([`crate::run`](crate)), which numbers workers have ([`crate::config::layout`]).

pub mod incarnation;
pub mod joining;
pub mod newcomer;
pub mod secrets;
pub mod unmet;

use crate::config::layout::Layout;
use crate::config::{Config, Problem, point};
use crate::registry::Registry;
use crate::run::privileges::Account;
use incarnation::Incarnation;
use secrets::Secrets;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Which of the commands that start a member it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `flowkeep node`: runtimes.
    Node,
    /// `flowkeep switch`: ports.
    Switch,
}

impl Kind {
    /// The command's word.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Node => "node",
            Kind::Switch => "switch",
        }
    }
}

/// A configuration and its text, for a cluster of which this process is to be a member.
#[derive(Clone, Copy, Debug)]
pub struct Written<'a> {
    /// The file.
    pub path: &'a Path,
    /// Its text.
    pub text: &'a str,
    /// The same setting by setting, with a word on the files that settings name.
    pub tree: &'a toml::Table,
    /// The functions there are.
    pub registry: &'a Registry,
}

impl Written<'_> {
    /// A problem at one of its settings.
    pub fn problem(&self, at: &str, problem: &str, remedy: &str) -> Problem {
        let file = self.path.display().to_string();
        point(&file, self.text, self.registry, at, problem, remedy)
    }
}

/// This process's part in the cluster.
#[derive(Debug)]
pub struct Membership {
    /// Its name.
    pub name: String,
    /// Its place among the members.
    pub place: usize,
    /// Its workers.
    pub layout: Layout,
    /// Greater than at any start before.
    pub incarnation: Incarnation,
    /// The secrets derived from the key files.
    pub secrets: Secrets,
    /// Where processes of this host meet.
    pub meeting: PathBuf,
    /// The configuration's file.
    pub file: PathBuf,
    /// With a coordinator: how it is joined.
    pub joining: Option<joining::Joining>,
}

impl Drop for Membership {
    fn drop(&mut self) {
        // The last one there takes it away; while others are there it is not empty.
        let _ = std::fs::remove_dir(&self.meeting);
    }
}

impl Membership {
    /// Becomes a member. Changes `config` for this process: its control socket, metrics and event
    /// log.
    pub fn new(
        kind: Kind,
        name: &str,
        newcomer: Option<&newcomer::Words>,
        config: &mut Config,
        written: &Written<'_>,
    ) -> Result<Self, Box<Problem>> {
        let place = match newcomer {
            None => which(kind, name, config, written)?,
            Some(words) => beside(kind, name, words, config, written)?,
        };
        let secrets = Secrets::read(config, written)?;
        let directory = directory(config);
        let incarnation = Incarnation::take(&directory, name).map_err(|error| {
            let at = match config.cluster.directory {
                Some(_) => "cluster.directory",
                None => "cluster",
            };
            written.problem(at, &error.to_string(), &error.remedy())
        })?;
        let member = &config.member[place];
        let account = Account::of(config).map_err(|said| {
            let (problem, remedy) = said.split_once("; ").unwrap_or((&said, ""));
            written.problem("user", problem, remedy)
        })?;
        let of = account.map_or_else(user, |account| account.user);
        let meeting = secrets.meeting(of, config.cluster.name());
        let layout = Layout::of_member(config, place);
        let socket = || socket_of(name);
        config.control.socket = Some(member.socket.clone().unwrap_or_else(socket));
        config.metrics.listen = member.metrics;
        config.log.events.clone_from(&member.events);
        Ok(Membership {
            name: name.to_owned(),
            place,
            layout,
            incarnation,
            secrets,
            meeting,
            file: written.path.to_owned(),
            joining: None,
        })
    }
}

/// Where a member's control socket is, if the configuration does not say.
pub fn socket_of(member: &str) -> PathBuf {
    crate::control::default_path().with_file_name(format!("flowkeep-{member}.sock"))
}

/// The place of a member that the configuration does not list, behind the listed ones.
fn beside(
    kind: Kind,
    name: &str,
    words: &newcomer::Words,
    config: &mut Config,
    written: &Written<'_>,
) -> Result<usize, Box<Problem>> {
    let refused = |at: &str, problem: &str, remedy: &str| Err(written.problem(at, problem, remedy).into());
    if kind == Kind::Switch {
        let remedy =
            "list it: [[member]], and below it name = … and switches = 1; then start all members again";
        return refused(
            "",
            "a member with switches is listed: ports have numbers by them",
            remedy,
        );
    }
    if config.member.is_empty() {
        let remedy = "give it the file that the members have";
        return refused("", "there are no members that a further one could join", remedy);
    }
    if let Some(place) = config.member.iter().position(|member| member.name == name) {
        let remedy = "start it without --runtimes, or give the further member another name";
        return refused(
            &format!("member[{place}].name"),
            &format!("member `{name}` is listed"),
            remedy,
        );
    }
    if !crate::config::cluster::is_good_name(name) {
        let problem = format!("`{name}` is no name for a member");
        return refused("", &problem, "say 1 to 32 small letters, digits and -");
    }
    match words.member(name, config) {
        Ok(member) => config.member.push(member),
        Err(why) => {
            let (problem, remedy) = why.rsplit_once("; ").unwrap_or((&why, ""));
            return refused("", &format!("member `{name}`: {problem}"), remedy);
        }
    }
    Ok(config.member.len() - 1)
}

/// Which member is meant, if it is one for this command.
fn which(kind: Kind, name: &str, config: &Config, written: &Written<'_>) -> Result<usize, Box<Problem>> {
    let names: Vec<&str> = config.member.iter().map(|member| member.name.as_str()).collect();
    let Some(place) = names.iter().position(|known| *known == name) else {
        let (at, remedy) = match names.is_empty() {
            true => (
                "",
                "list the members: [[member]], and below it name = … and runtimes = 1".to_owned(),
            ),
            false => (
                "member",
                format!(
                    "say --member with one of: {}; or, for one that it does not list, --runtimes and --host, too",
                    names.join(", ")
                ),
            ),
        };
        return Err(written
            .problem(at, &format!("there is no member `{name}`"), &remedy)
            .into());
    };
    let has = match config.member[place].switches {
        Some(_) => Kind::Switch,
        None => Kind::Node,
    };
    if has == kind {
        return Ok(place);
    }
    let (what, command) = match has {
        Kind::Switch => ("switches", "flowkeep switch"),
        Kind::Node => ("runtimes", "flowkeep node"),
    };
    let remedy = format!(
        "start it with: {command} {} --member {name}",
        written.path.display()
    );
    let at = format!("member[{place}].{what}");
    Err(written
        .problem(&at, &format!("member `{name}` has {what}"), &remedy)
        .into())
}

/// Where members remember things.
pub(crate) fn directory(config: &Config) -> PathBuf {
    if let Some(directory) = &config.cluster.directory {
        return directory.clone();
    }
    let of_user = || {
        let named = std::env::var_os("XDG_STATE_HOME").filter(|path| !path.is_empty());
        let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
        named
            .map(PathBuf::from)
            .or_else(home)
            .unwrap_or_else(std::env::temp_dir)
    };
    let base = match user() {
        0 => PathBuf::from("/var/lib"),
        _ => of_user(),
    };
    base.join("flowkeep").join(config.cluster.name())
}

/// The user's number: of the directory that the kernel keeps for this process it is the owner.
fn user() -> u32 {
    std::fs::metadata("/proc/self").map_or(0, |metadata| metadata.uid())
}
