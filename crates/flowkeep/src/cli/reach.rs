//! How a command reaches the running cluster: one process by its socket, or all members by their
//! coordinator.
//!
//! Words count more than the environment. Two ways at once are refused, since a command that
//! changes something must not guess.

use super::Failure;
use crate::control::client::Client;
use crate::control::members::Members;
use crate::control::{self, SOCKET_VARIABLE};
use crate::log::{self, Level};
use clap::Args;
use coordinator::agent::Tried;
use coordinator::identity::Identity;
use coordinator::operator::Operator;
use std::path::{Path, PathBuf};

/// The environment variable that says where the coordinator is.
const CLUSTER_VARIABLE: &str = "FLOWKEEP_CLUSTER";
/// Names the directory of the certificate.
const IDENTITY_VARIABLE: &str = "FLOWKEEP_IDENTITY";
/// Names the certificate.
pub(super) const NAME_VARIABLE: &str = "FLOWKEEP_NAME";

/// How to reach the running cluster, and how to print.
#[derive(Args, Debug, Default)]
pub(super) struct Asking {
    /// Path of the control socket; else what the environment variable FLOWKEEP_SOCKET says
    #[arg(long, value_name = "PATH")]
    pub(super) socket: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    over: Over,
}

/// All members instead of one process.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "All members of a cluster, by its coordinator")]
pub(super) struct Over {
    /// The coordinator, or several, of which the first that answers is asked; else what the
    /// environment variable FLOWKEEP_CLUSTER says
    #[arg(long, value_name = "ADDRESS:PORT,…", value_delimiter = ',', value_parser = coordinator, conflicts_with = "socket")]
    cluster: Vec<String>,
    /// The directory with ca.pem, and the certificate and its key; else what FLOWKEEP_IDENTITY says
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "socket")]
    identity: Option<PathBuf>,
    /// Which certificate: NAME.pem and NAME.key; else what FLOWKEEP_NAME says, or read
    #[arg(
        id = "certificate",
        long = "name",
        value_name = "NAME",
        conflicts_with = "socket"
    )]
    name: Option<String>,
    /// Only this member
    #[arg(long, value_name = "NAME", conflicts_with = "socket")]
    member: Option<String>,
}

/// A coordinator that is asked itself, and not for its members.
#[derive(Args, Debug)]
pub(super) struct There {
    /// The coordinator, or several, of which the first that answers is asked
    #[arg(
        long,
        alias = "cluster",
        env = CLUSTER_VARIABLE,
        hide_env_values = true,
        value_name = "ADDRESS:PORT,…",
        value_delimiter = ',',
        value_parser = coordinator,
        required = true
    )]
    pub(super) at: Vec<String>,
    /// The directory with ca.pem, and the certificate and its key
    #[arg(long, env = IDENTITY_VARIABLE, hide_env_values = true, value_name = "DIRECTORY")]
    pub(super) identity: PathBuf,
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Where a coordinator is.
pub(super) fn coordinator(text: &str) -> Result<String, String> {
    let parts = text.rsplit_once(':');
    let is_one = parts.is_some_and(|(host, port)| {
        !host.is_empty()
            && port.parse::<u16>().is_ok_and(|port| port > 0)
            && !text.contains(char::is_whitespace)
    });
    match is_one {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "`{text}` is no coordinator's address: say ADDRESS:PORT, and commas between several"
        )),
    }
}

/// A certificate and its key. Where a directory has others, the error names them.
pub(super) fn identity(directory: &Path, name: &str) -> Result<Identity, String> {
    Identity::read(directory, name).map_err(|why| {
        let files = std::fs::read_dir(directory).into_iter().flatten().flatten();
        let pem = |file: PathBuf| {
            (file.extension()? == "pem" && file.with_extension("key").exists()).then_some(file)
        };
        let named = |file: PathBuf| Some(file.file_stem()?.to_str()?.to_owned());
        let all = files.filter_map(|file| named(pem(file.path())?));
        // The authority and the coordinator ask nothing.
        let mut all: Vec<String> = all
            .filter(|other| other != "ca" && other != "coordinator")
            .collect();
        all.sort_unstable();
        match all.is_empty() || all.iter().any(|other| other == name) {
            true => why.to_string(),
            false => format!(
                "{} has no certificate `{name}`; say --name with one of: {}",
                directory.display(),
                all.join(", ")
            ),
        }
    })
}

/// Says which coordinator answers, if others were tried before it.
pub(super) fn say_tried(tried: &Tried) {
    if !tried.failed.is_empty() {
        log::say(Level::Info, tried);
    }
}

impl Asking {
    /// One process, by its socket.
    #[cfg(test)]
    pub(super) fn at(socket: Option<PathBuf>) -> Self {
        Asking::by(socket, Over::default())
    }

    /// One process by its socket, or all members.
    pub(super) fn by(socket: Option<PathBuf>, over: Over) -> Self {
        Asking {
            socket,
            json: false,
            over,
        }
    }

    /// Connects, as the words or the environment say.
    pub(super) fn connect(&self) -> Result<Client, Failure> {
        let of_environment = || match self.socket {
            Some(_) => None,
            None => variable(CLUSTER_VARIABLE),
        };
        if !self.over.cluster.is_empty() {
            return self.over.connect(self.over.cluster.clone());
        }
        let socket = self.socket.clone().or_else(control::path_of_environment);
        match (of_environment(), socket) {
            (Some(_), Some(_)) => Err(Failure::usage(format!(
                "{CLUSTER_VARIABLE} and {SOCKET_VARIABLE} both say what to ask: say --cluster or --socket"
            ))),
            (Some(text), None) => {
                let addresses = text.split(',').map(coordinator).collect::<Result<_, _>>();
                self.over
                    .connect(addresses.map_err(|why| Failure::usage(format!("{CLUSTER_VARIABLE}: {why}")))?)
            }
            (None, socket) => {
                self.over.is_silent()?;
                let is_of_environment = self.socket.is_none() && socket.is_some();
                let path = socket.unwrap_or_else(control::default_path);
                let said = |why: String| match is_of_environment {
                    true => format!("{why} ({SOCKET_VARIABLE} says that path)"),
                    false => why,
                };
                Client::connect(&path).map_err(|why| Failure::failed(said(why)))
            }
        }
    }
}

impl Over {
    fn connect(&self, addresses: Vec<String>) -> Result<Client, Failure> {
        let directory = self.identity.clone();
        let directory = directory.or_else(|| variable(IDENTITY_VARIABLE).map(PathBuf::from));
        let Some(directory) = directory else {
            return Err(Failure::usage(format!(
                "the coordinator at {} wants a certificate: say its directory with --identity, or {IDENTITY_VARIABLE}",
                addresses.join(", ")
            )));
        };
        let name = self.name.clone().or_else(|| variable(NAME_VARIABLE));
        let name = name.as_deref().unwrap_or("read");
        let operator = Operator {
            addresses,
            identity: identity(&directory, name).map_err(Failure::usage)?,
        };
        let members = Members::connect(&operator, self.member.clone()).map_err(Failure::failed)?;
        say_tried(&members.tried());
        Ok(Client::over(members))
    }

    /// Whether nothing is said that needs a coordinator.
    fn is_silent(&self) -> Result<(), Failure> {
        let said = [
            (self.member.is_some(), "--member"),
            (self.identity.is_some(), "--identity"),
            (self.name.is_some(), "--name"),
        ];
        match said.into_iter().find(|(is_said, _)| *is_said) {
            Some((_, word)) => Err(Failure::usage(format!(
                "{word} is for asking by a coordinator: say where it is with --cluster, or {CLUSTER_VARIABLE}"
            ))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_certificates_of_a_directory_are_named() {
        let directory = std::env::temp_dir().join(format!("flowkeep-reach-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let said = || identity(&directory, "other").err().unwrap();
        assert!(said().contains("cluster init"));
        for file in [
            "ca.pem",
            "ca.key",
            "read.pem",
            "read.key",
            "admin.pem",
            "admin.key",
            "lone.pem",
        ] {
            std::fs::write(directory.join(file), "").unwrap();
        }
        let said = said();
        assert!(
            said.ends_with("has no certificate `other`; say --name with one of: admin, read"),
            "{said}"
        );
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
