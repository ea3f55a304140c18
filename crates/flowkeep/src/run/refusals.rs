//! The refusals of `run` on this machine, as this user, at this time: asked by `chain check`, which
//! starts nothing.
//!
//! # Theory of operation
//!
//! Each question is answered by the part that would refuse, as far as it can without opening
//! anything for good: no file is made or emptied, no program put on an interface, no socket
//! listens, no store is claimed. How far an answer holds is its [`Reach`].
//!
//! | at `run`'s start | asked here |
//! |---|---|
//! | files, interfaces, rights, queues, buffers of ports | [`ports::refused`] |
//! | the event log, its collectors | whether it may be written; whether there is a way to them |
//! | the control socket, the address of the metrics | whether another has them; the address is bound and let go |
//! | the user, and becoming it | its entry, this process's capabilities |
//! | key files | they are read |
//! | interfaces of `forward` | their names |
//! | stores of variables and of flows | with the rights that are left then: a server is asked for a version; a file is read, locked and let go |
//! | memory | [`memory`](super::build::memory) |
//!
//! Not here: refusals that only a start shows. Another program may have an interface's XDP, a
//! driver none; Cassandra may refuse to make tables.

use super::build::BUFFERS;
use super::privileges::{Account, Privileges};
use super::{events, export};
use crate::config::{Config, ports};
use crate::control::{path_of_environment, server};
use crate::member::secrets;
use crate::{metrics, store};
use nf::WorkerInfo;
use nf::objects::WorkerObjects;
use nf::variables::Variables;
use runtime::replication::STORED_AS;
use std::path::Path;

/// How far a refusal holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The configuration is wrong.
    All,
    /// Words of the command line mend it.
    Words,
    /// This machine, this user, or this time: the configuration may be for another.
    Machine,
    /// The refusal may be another member's, on another host.
    Member,
}

/// Something for which a cluster does not start.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The setting; empty for the file as a whole.
    pub at: String,
    /// The problem.
    pub problem: String,
    /// The remedy.
    pub remedy: String,
    /// How far it holds.
    pub reach: Reach,
}

impl Refusal {
    /// By the text of an error: behind the first `; ` is the remedy.
    pub fn saying(at: String, said: &str, reach: Reach) -> Self {
        let (problem, remedy) = said.split_once("; ").unwrap_or((said, ""));
        Refusal {
            at,
            problem: problem.to_owned(),
            remedy: remedy.to_owned(),
            reach,
        }
    }

    /// The refusal is of a member's setting, and this may not be its host.
    pub fn of_a_member(&mut self) {
        self.reach = Reach::Member;
    }

    /// As a warning, on one line.
    pub fn warning(&self) -> String {
        let Refusal {
            at, problem, remedy, ..
        } = self;
        let place = if at.is_empty() {
            String::new()
        } else {
            format!("{at}: ")
        };
        let remedy = if remedy.is_empty() {
            String::new()
        } else {
            format!("; {remedy}")
        };
        let whose = match self.reach {
            Reach::Member => " (a member on this host would be refused)",
            Reach::All | Reach::Words | Reach::Machine => " (`flowkeep run` refuses it here)",
        };
        format!("{place}{problem}{remedy}{whose}")
    }
}

/// All refusals of `run`, but for memory. `own` is the configuration's file.
pub fn all(config: &Config, own: &Path) -> Vec<Refusal> {
    let mut found = ports::refused(config, Some(own), BUFFERS);
    let is_alone = config.member.is_empty();
    let mut add = |at: &str, said: Option<String>| {
        found.extend(said.map(|said| Refusal::saying(at.to_owned(), &said, Reach::Machine)));
    };
    let events = config.log.events.as_deref().filter(|path| *path != "-");
    add(
        "log.events",
        events.and_then(|path| events::refused(Path::new(path))),
    );
    if let Some((at, said)) = export::refused(&config.log) {
        add(at, Some(said));
    }
    // The file says it only where the environment does not.
    let place = path_of_environment().map_or("control.socket", |_| "");
    add(place, socket(config));
    let listen = config.metrics.listen;
    let bound = listen.and_then(|listen| metrics::Bound::at(listen).err());
    add("metrics.listen", bound);
    let rights = Privileges::of(config);
    let unable = rights
        .as_ref()
        .map_or_else(|said| Some(said.clone()), Privileges::refused);
    add("user", unable);
    for (at, said) in interfaces(config) {
        add(&at, Some(said));
    }
    for (at, said) in stores(config, rights.ok().as_ref()) {
        add(&at, Some(said));
    }
    if !is_alone {
        found.iter_mut().for_each(Refusal::of_a_member);
    } else if config.port.iter().all(|port| port.input.is_none()) {
        let said = "no port has an input; add one, or say `--input URI` to `flowkeep run`";
        found.push(Refusal::saying(String::new(), said, Reach::Words));
    }
    let account = Account::of(config).ok().flatten();
    let keys = secrets::unusable(config, account.map(|account| account.user));
    found.extend(
        keys.into_iter()
            .map(|(at, said)| Refusal::saying(at, &said, Reach::Member)),
    );
    found
}

/// Why there could be no control socket; a socket that no setting names may be missing.
fn socket(config: &Config) -> Option<String> {
    let said = path_of_environment();
    let path = said.as_deref().or(config.control.socket.as_deref())?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if folder.is_some_and(|folder| !folder.is_dir()) {
        return ports::unwritten(path);
    }
    server::look(path).err().map(|error| error.to_string())
}

/// Interfaces that `forward` names and this machine does not have.
fn interfaces(config: &Config) -> Vec<(String, String)> {
    let there = adapters::interface::names();
    let mut found = Vec::new();
    for (name, function) in config.used() {
        let supply = function.factory.feed();
        let supply = supply.and_then(|feed| feed.downcast::<functions::forward::Supply>().ok());
        for (port, interface) in supply.iter().flat_map(|supply| &supply.interfaces) {
            if !there.contains(interface) {
                let all = there.join(", ");
                let said = format!("there is no interface `{interface}`; there are: {all}");
                found.push((format!("function.{name}.interfaces.{port}"), said));
            }
        }
    }
    found
}

/// Stores that functions, or copies of flows, could not have. They are opened once rights have been
/// given up.
fn stores(config: &Config, rights: Option<&Privileges>) -> Vec<(String, String)> {
    let mut all: Vec<String> = config.functions.keys().cloned().collect();
    let mut using: Vec<String> = (config.used())
        .filter(|(_, function)| has_variables(config, &*function.factory))
        .map(|(name, _)| name.to_owned())
        .collect();
    if config.keeps_stored() {
        all.push(STORED_AS.to_owned());
        using.push(STORED_AS.to_owned());
    }
    let look = || store::look(&config.store, &all, &using);
    // Of rights that cannot be given up it is said already.
    rights.map_or_else(Vec::new, |rights| rights.with(look).unwrap_or_default())
}

/// Whether a function's instance opens variables.
fn has_variables(config: &Config, factory: &dyn runtime::stage::Factory) -> bool {
    let worker = WorkerInfo {
        runtime: 0,
        runtimes: config.runtimes,
        flows_max: config.flows_max.min(1024),
        seed: 0,
    };
    let (mut variables, mut objects) = (Variables::local(), WorkerObjects::default());
    let made = factory.instantiate(&worker, &mut variables, &mut objects.of(factory.name()));
    made.is_ok() && variables.partition().is_some()
}
