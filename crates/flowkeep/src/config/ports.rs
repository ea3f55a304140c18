//! What ports name: halves that fit each other, and files and interfaces that are there; with them
//! the folders of the event log and the control socket.
//!
//! [`halves`] is a check of the text alone, for every reader of a configuration. [`absent`] looks at this machine, so only
//! `chain check` asks it: `run` finds the same when it opens its ports.
//!
//! Not here: what a URI means (`adapters::uri`), interfaces that two ports read ([`check`](super::check)).

use super::document::Document;
use super::{Config, Port, Uri};
use crate::generate;
use adapters::interface::Interface;
use adapters::open::{OpenError, Ports, check_pair};
use adapters::uri::{PortUri, Role};
use std::fs;
use std::path::Path;

/// The remedy for a file that is not there.
const NAME_A_FILE: &str =
    "name a file that is there; a path begins at the folder in which `flowkeep run` is started";

/// Input and output of a port are two halves of one port.
pub(super) fn halves(port: &Port, index: usize, document: &mut Document<'_, '_>) {
    let (Some(input), Some(output)) = (&port.input, &port.output) else {
        return;
    };
    if let Err(OpenError::ReflectorIsBoth { uri }) = check_pair(input.as_str(), output.as_str()) {
        let half = if uri == input.as_str() { "input" } else { "output" };
        let problem = format!("`{uri}` answers by itself, so it is input and output in one");
        let remedy = "leave the port's other half out, or write the same in both";
        document.problem_at(&format!("port[{index}].{half}"), &problem, remedy);
    }
}

/// Something that a setting names and this machine does not have.
#[derive(Debug)]
pub struct Absent {
    /// The setting.
    pub at: String,
    /// What is wrong.
    pub problem: String,
    /// What to do.
    pub remedy: String,
    /// Whether the configuration may be good all the same: the file is on another host, or the interface comes later.
    pub is_warning: bool,
}

/// Files, folders and interfaces that settings name, and that are not there. With members they may be
/// on another host; an interface, and a folder of a service, may come later: those are warnings.
pub fn absent(config: &Config) -> Vec<Absent> {
    let halves = config.port.iter().enumerate().flat_map(|(index, port)| {
        let half = |name: &str, uri: &Option<Uri>, role| {
            let uri = uri.as_ref()?.as_str().to_owned();
            Some((format!("port[{index}].{name}"), uri, role))
        };
        [
            half("input", &port.input, Role::Input),
            half("output", &port.output, Role::Output),
        ]
    });
    let found = halves.flatten().filter_map(|(at, uri, role)| {
        let (problem, remedy, is_interface) = missing(&uri, role)?;
        let is_warning = is_interface || !config.member.is_empty();
        Some(Absent {
            at,
            problem,
            remedy,
            is_warning,
        })
    });
    let mut found: Vec<Absent> = found.collect();
    found.extend(twice(config));
    // A service's folders are made when it starts.
    let events = config.log.events.as_deref().filter(|path| *path != "-");
    let socket = config.control.socket.as_deref();
    let written = [("log.events", events.map(Path::new)), ("control.socket", socket)];
    found.extend(written.into_iter().filter_map(|(at, path)| {
        let found = unwritten(path?)?;
        let (problem, remedy) = found.rsplit_once("; ")?;
        Some(Absent {
            at: at.to_owned(),
            problem: problem.to_owned(),
            remedy: remedy.to_owned(),
            is_warning: true,
        })
    }));
    found
}

/// Captures to be written that another half of a port reads or writes.
fn twice(config: &Config) -> Vec<Absent> {
    let mut known: Vec<std::path::PathBuf> = Vec::new();
    let mut found = Vec::new();
    for (index, port) in config.port.iter().enumerate() {
        for (name, uri, role) in [
            ("input", &port.input, Role::Input),
            ("output", &port.output, Role::Output),
        ] {
            let parsed = uri.as_ref().map(|uri| PortUri::parse(uri.as_str(), role));
            let (path, is_written) = match parsed {
                Some(Ok(PortUri::PcapInput { path, .. })) => (path, false),
                Some(Ok(PortUri::PcapOutput { path, .. })) => (path, true),
                _ => continue,
            };
            // What is no file, such as /dev/null, may be written by all.
            if fs::metadata(&path).is_ok_and(|file| !file.is_file()) {
                continue;
            }
            let whole = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
            if is_written && known.contains(&whole) {
                found.push(Absent {
                    at: format!("port[{index}].{name}"),
                    problem: format!("{}: this run reads or writes it already", path.display()),
                    remedy: "choose another name for what is written".to_owned(),
                    is_warning: !config.member.is_empty(),
                });
            }
            known.push(whole);
        }
    }
    found
}

/// What of a URI is not there: the problem, its remedy, and whether it is an interface.
fn missing(uri: &str, role: Role) -> Option<(String, String, bool)> {
    let file = |found: Option<String>| {
        let found = found?;
        let (problem, remedy) = found.rsplit_once("; ").unwrap_or((&found, NAME_A_FILE));
        Some((problem.to_owned(), remedy.to_owned(), false))
    };
    match PortUri::parse(uri, role).ok()? {
        PortUri::PcapInput { path, .. } => file(unread(uri, &path)),
        PortUri::Generate(of) => file(unread(uri, &of.profile)),
        PortUri::PcapOutput { path, .. } => file(unwritten(&path)),
        PortUri::Reflect {
            record,
            record_answers,
            ..
        } => file(
            [record, record_answers]
                .iter()
                .flatten()
                .find_map(|path| unwritten(path)),
        ),
        PortUri::Packet { interface, .. } | PortUri::Xdp { interface, .. } => {
            Interface::find(&interface).err()?;
            let problem = format!("there is no interface `{interface}` on this machine now");
            Some((problem, "`ip link` shows which there are".to_owned(), true))
        }
        PortUri::Memory { .. } => None,
    }
}

/// Why `run` cannot read a file, in its words. What is no file, such as a pipe, is left to `run`: opening it may wait.
fn unread(uri: &str, path: &Path) -> Option<String> {
    let is_other = fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir());
    if is_other {
        return None;
    }
    let opened = Ports::new().with_generator(generate::open).open_input(uri);
    opened.err().map(|error| error.to_string())
}

/// Why `run` cannot write a file: its folder is not there, or it is a folder. Nothing is written here.
fn unwritten(path: &Path) -> Option<String> {
    if path.is_dir() {
        let path = path.display();
        return Some(format!(
            "{path}: cannot be written: it is a folder; name a file in it"
        ));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty())?;
    let is_there = folder.is_dir();
    (!is_there).then(|| {
        let (path, folder) = (path.display(), folder.display());
        format!("{path}: cannot be created: there is no folder {folder}; make it, or name another")
    })
}
