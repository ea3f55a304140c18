//! Files that ports, the event log, stores and the control socket write: no other part of a run
//! reads or writes them, and they are not the configuration. Bytes appended to a capture, or to the
//! configuration, damage it for good.
//!
//! `chain check` asks this, and `run` before it opens the first of them.
//!
//! Not here: files that are not there, and folders ([`ports`](super::ports)); keys, rules of the
//! IDS, older event logs by rotation: none of these is compared.

use super::Config;
use crate::run::refusals::{Reach, Refusal};
use adapters::uri::{PortUri, Role};
use runtime::replication::STORED_AS;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file that a setting names.
struct Named {
    at: String,
    path: PathBuf,
    is_written: bool,
    /// Whether it is on this host, whatever member of a cluster the setting is of.
    is_here: bool,
}

/// The identity that two settings are not to share.
#[derive(PartialEq, Eq)]
enum Identity {
    /// All names of a file share these: the device, and the number there.
    File(u64, u64),
    /// The file has yet to be made.
    Name(PathBuf),
}

/// `None` for pipes, `/dev/null` and the like, which are no files: they may be shared.
fn identity(path: &Path) -> Option<Identity> {
    match fs::metadata(path) {
        Ok(found) if found.is_file() => Some(Identity::File(found.dev(), found.ino())),
        Ok(_) => None,
        Err(_) => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            let folder = fs::canonicalize(folder.unwrap_or(Path::new("."))).ok()?;
            Some(Identity::Name(folder.join(path.file_name()?)))
        }
    }
}

/// Files that ports read and write.
fn of_ports(config: &Config) -> Vec<Named> {
    let mut named = Vec::new();
    for (index, port) in config.port.iter().enumerate() {
        for (name, uri, role) in [
            ("input", &port.input, Role::Input),
            ("output", &port.output, Role::Output),
        ] {
            let Some(Ok(uri)) = uri.as_ref().map(|uri| PortUri::parse(uri.as_str(), role)) else {
                continue;
            };
            let mut add = |path, is_written| {
                named.push(Named {
                    at: format!("port[{index}].{name}"),
                    path,
                    is_written,
                    is_here: config.member.is_empty(),
                });
            };
            match uri {
                PortUri::PcapInput { path, .. } => add(path, false),
                PortUri::PcapOutput { path, .. } => add(path, true),
                PortUri::Generate(of) => add(of.profile, false),
                // Both halves of a reflector say the same.
                PortUri::Reflect {
                    record,
                    record_answers,
                    ..
                } if name == "output" || port.output.is_none() => {
                    record
                        .into_iter()
                        .chain(record_answers)
                        .for_each(|path| add(path, true));
                }
                _ => {}
            }
        }
    }
    named
}

/// Files of stores. A store is opened once for each mirror that it has.
fn of_stores(config: &Config) -> Vec<Named> {
    let mut functions: Vec<&str> = config.functions.keys().map(String::as_str).collect();
    if config.keeps_stored() {
        functions.push(STORED_AS);
    }
    let mut opened = BTreeMap::new();
    for function in functions {
        let stores: Vec<_> = config.store.stores_of(function).collect();
        let uris: Vec<&str> = stores.iter().map(|of| of.uri).collect();
        opened.entry(uris).or_insert(stores);
    }
    let each = opened.into_values().flatten().filter_map(|of| {
        Some(Named {
            at: of.at,
            path: crate::store::file_of(of.uri)?.to_owned(),
            is_written: true,
            is_here: true,
        })
    });
    each.collect()
}

/// Files that are written, and that something else of this run reads or writes.
pub fn twice(config: &Config, own: Option<&Path>) -> Vec<Refusal> {
    let mut named: Vec<Named> = own
        .map(|path| Named {
            at: String::new(),
            path: path.to_owned(),
            is_written: false,
            is_here: true,
        })
        .into_iter()
        .collect();
    named.extend(of_ports(config));
    if let Some(path) = config.log.events.as_deref().filter(|path| *path != "-") {
        named.push(Named {
            at: "log.events".to_owned(),
            path: path.into(),
            is_written: true,
            is_here: true,
        });
    }
    named.extend(config.control.socket.iter().map(|path| Named {
        at: "control.socket".to_owned(),
        path: path.clone(),
        is_written: true,
        is_here: true,
    }));
    named.extend(of_stores(config));
    let mut known: Vec<(Identity, bool, bool)> = Vec::new();
    let mut found = Vec::new();
    for file in named {
        let Some(identity) = identity(&file.path) else {
            continue;
        };
        let other = |(other, is_written, _): &&(Identity, bool, bool)| {
            *other == identity && (file.is_written || *is_written)
        };
        if let Some((_, _, is_here)) = known.iter().find(other) {
            found.push(Refusal {
                at: file.at,
                problem: format!("{}: this run reads or writes it already", file.path.display()),
                remedy: "choose another name for the written file".to_owned(),
                reach: match file.is_here && *is_here {
                    true => Reach::All,
                    false => Reach::Member,
                },
            });
        }
        known.push((identity, file.is_written, file.is_here));
    }
    found
}
