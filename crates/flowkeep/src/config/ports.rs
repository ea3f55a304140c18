//! The URIs of ports: halves that fit each other, and files and interfaces that are there.
//!
//! [`halves`] is a check of the text alone, for every reader of a configuration. [`refused`] looks
//! at this machine, so only `chain check` asks it: `run` finds the same when it opens its ports.
//!
//! Not here: the meaning of a URI (`adapters::uri`), interfaces that two ports read
//! ([`check`](super::check)), further needs of a start ([`refusals`](crate::run::refusals)).

use super::document::Document;
use super::layout::Layout;
use super::{Config, Port};
use crate::generate;
use crate::run::refusals::{Reach, Refusal};
use adapters::afpacket::Half;
use adapters::interface::InterfaceError;
use adapters::look::{Buffers, Look};
use adapters::open::{OpenError, Ports, check_pair};
use adapters::uri::{PortUri, Role};
use rustix::fs::{Access, AtFlags, CWD, accessat, major};
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

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

/// Files, folders and interfaces that ports name, and that `run` cannot use: `buffers` is how many
/// a switch has. With members they may be on another host; an interface, and the right to use it,
/// may be another machine's, or another user's.
pub fn refused(config: &Config, own: Option<&Path>, buffers: usize) -> Vec<Refusal> {
    let (mut look, mut of_switches) = (Look::default(), BTreeMap::<usize, Buffers>::new());
    let mut found = Vec::new();
    let layout = Layout::whole(config);
    for (index, (port, place)) in config.port.iter().zip(&layout.ports).enumerate() {
        let buffers = of_switches.entry(place.switch).or_default();
        for (uri, half, name) in halves_of(port) {
            let file = missing(port, &uri, half);
            let interface = look.at(&uri, half, buffers).err();
            let (said, reach) = match (file, interface) {
                (Some(said), _) => (said, Reach::All),
                (None, Some(InterfaceError::Missing { name, .. })) => {
                    let said = format!(
                        "there is no interface `{name}` on this machine now; `ip link` shows which there are"
                    );
                    (said, Reach::Machine)
                }
                (None, Some(error)) => (error.to_string(), Reach::Machine),
                (None, None) => continue,
            };
            found.push(Refusal::saying(format!("port[{index}].{name}"), &said, reach));
        }
    }
    // A look at the ports together is of use only where each of them is there.
    if found.is_empty() {
        let queues = look.complete().err().map(|error| error.to_string());
        let mut switches = of_switches.values();
        let pool = switches.find_map(|of| of.check(buffers).err().map(|error| error.0));
        let said = queues.into_iter().chain(pool);
        found.extend(said.map(|said| Refusal::saying("port".to_owned(), &said, Reach::Machine)));
    }
    found.extend(super::files::twice(config, own));
    if !config.member.is_empty() {
        found.iter_mut().for_each(Refusal::of_a_member);
    }
    found
}

/// A port as it is opened: the URI, the half, and the name of the setting.
fn halves_of(port: &Port) -> Vec<(PortUri, Half, &'static str)> {
    let parse = |uri: &Option<super::Uri>, role| PortUri::parse(uri.as_ref()?.as_str(), role).ok();
    match (parse(&port.input, Role::Input), parse(&port.output, Role::Output)) {
        (Some(input), Some(output)) if input == output => vec![(input, Half::Both, "input")],
        (input, output) => {
            let input = input.map(|uri| (uri, Half::Receive, "input"));
            let output = output.map(|uri| (uri, Half::Transmit, "output"));
            input.into_iter().chain(output).collect()
        }
    }
}

/// The problem with the file of a port, if it has one.
fn missing(port: &Port, uri: &PortUri, half: Half) -> Option<String> {
    let written = match half {
        Half::Transmit => &port.output,
        Half::Receive | Half::Both => &port.input,
    };
    let written = written.as_ref()?.as_str();
    match uri {
        PortUri::PcapInput { path, .. } => unread(written, path),
        PortUri::Generate(of) => unread(written, &of.profile),
        PortUri::PcapOutput { path, .. } => unwritten(path),
        PortUri::Reflect {
            record,
            record_answers,
            ..
        } => {
            let mut both = [record, record_answers].into_iter().flatten();
            both.find_map(|path| unwritten(path))
        }
        PortUri::Packet { .. } | PortUri::Xdp { .. } | PortUri::Memory { .. } => None,
    }
}

/// Why `run` cannot read a file, in its words. Files that may have it wait, such as pipes, are left
/// to `run`.
fn unread(uri: &str, path: &Path) -> Option<String> {
    let waits = |found: fs::Metadata| {
        let kind = found.file_type();
        // `/dev/null` and the like answer at once, a terminal does not.
        let is_of_memory = major(found.rdev()) == MEMORY;
        kind.is_fifo() || kind.is_char_device() && !is_of_memory
    };
    if fs::metadata(path).is_ok_and(waits) {
        return None;
    }
    let opened = Ports::new().with_generator(generate::open).open_input(uri);
    let said = opened.err()?.to_string();
    Some(match said.contains("; ") {
        true => said,
        false => format!("{said}; mend the file, or name another"),
    })
}

/// The number of the kernel's devices that are memory: `/dev/null`, `/dev/zero` and the like.
const MEMORY: u32 = 1;

/// Why `run` cannot write a file: its folder is not there, it is a folder, or this user may not. No
/// byte is written here.
pub(crate) fn unwritten(path: &Path) -> Option<String> {
    let shown = path.display();
    let found = fs::metadata(path);
    let kind = found.as_ref().map(fs::Metadata::file_type);
    let other = match &kind {
        Ok(kind) if kind.is_dir() => "it is a folder; name a file in it",
        Ok(kind) if kind.is_socket() => "it is a socket; name a file",
        _ => "",
    };
    if !other.is_empty() {
        return Some(format!("{shown}: cannot be written: {other}"));
    }
    // A name that leads nowhere is made where it leads to.
    let path = &match &found {
        Ok(_) => path.to_owned(),
        Err(_) => end_of(path),
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    if !folder.is_dir() {
        let folder = folder.display();
        return Some(format!(
            "{shown}: cannot be created: there is no folder {folder}; make it, or name another"
        ));
    }
    let (of, rights, what) = match &found {
        Ok(_) => (path.as_path(), Access::WRITE_OK, "written"),
        // Errors of the name itself: it is too long, or of a loop of links.
        Err(error) if error.kind() != ErrorKind::NotFound => (path.as_path(), Access::EXISTS, "created"),
        Err(_) => (folder, Access::WRITE_OK | Access::EXEC_OK, "created"),
    };
    let error = accessat(CWD, of, rights, AtFlags::EACCESS).err()?;
    let error = std::io::Error::from(error);
    Some(format!(
        "{shown}: cannot be {what}: {error}; name a file that you may write, or give yourself the right to"
    ))
}

/// Where a name leads by its links, if no file is there.
fn end_of(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(to) = fs::read_link(&path) else { break };
        path = path.parent().unwrap_or(Path::new("")).join(to);
    }
    path
}

/// Links that the kernel follows at most.
const LINKS_MAX: usize = 40;
