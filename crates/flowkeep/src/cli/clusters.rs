//! `cluster`: certificates and tokens of a cluster of several processes, and its members by its
//! coordinator.

use super::reach::{NAME_VARIABLE, There, identity, say_tried};
use super::{Failure, print};
use crate::shape::{self, Shape};
use clap::{Args, Subcommand};
use coordinator::agent::Tried;
use coordinator::identity::{Authority, AuthorityError, Caller, Right, Token, is_name};
use coordinator::operator::{Line, Operator};
use coordinator::proto;
use coordinator::server::since_1970;
use nf::Period;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The verbs of `cluster`.
#[derive(Subcommand, Debug)]
pub(super) enum ClusterVerb {
    /// Make a cluster's authority, its coordinator's certificate, and three operators'
    #[command(after_help = "\
Writes ca, coordinator, admin, operate and read, each .pem and .key, readable by their owner alone. Nothing is overwritten. The owner of ca.key \
can make members: it stays with the coordinator.

Example:
  flowkeep cluster init cluster/")]
    Init {
        /// The directory; it is made if it is not there
        directory: PathBuf,
        /// For how many days the certificates are good
        #[arg(long, value_name = "N", default_value_t = 3650, value_parser = clap::value_parser!(u32).range(1..=36_500))]
        days: u32,
    },
    /// Print a token by which one process becomes a member, once
    #[command(after_help = "Example:\n  flowkeep cluster token cluster/ --member a --valid 10m")]
    Token {
        /// The directory that cluster init has made
        directory: PathBuf,
        /// The member's name
        #[arg(long, value_name = "NAME")]
        member: String,
        /// How long it is good
        #[arg(long, value_name = "TIME", default_value = "1h", value_parser = some_time)]
        valid: Period,
    },
    /// The members, by the coordinator's newest view
    #[command(after_help = "Example:\n  flowkeep cluster status --at 192.0.2.1:4400 --identity cluster/")]
    Status(Remote),
    /// Remove a runtime though it lives: its flows go on where their copies are, and its process
    /// begins again
    #[command(after_help = "\
For a runtime that does its work badly. It is withdrawn, and a view without it follows; flows without copies end (docs/replication.md).

Example:
  flowkeep cluster recover 1 --at 192.0.2.1:4400 --identity cluster/ --name operate")]
    Recover {
        /// The runtime's number
        runtime: u16,
        #[command(flatten)]
        remote: Remote,
    },
    /// Have members come and go by load, as long as this runs
    Scale(super::scaling::Scale),
    /// Give a member's workers no new groups
    #[command(
        after_help = "Example:\n  flowkeep cluster drain a --at 192.0.2.1:4400 --identity cluster/ --name operate"
    )]
    Drain {
        /// The member's name
        member: String,
        #[command(flatten)]
        remote: Remote,
    },
    /// Give the workers of a drained member new groups again
    #[command(
        after_help = "Example:\n  flowkeep cluster resume a --at 192.0.2.1:4400 --identity cluster/ --name operate"
    )]
    Resume {
        /// The member's name
        member: String,
        #[command(flatten)]
        remote: Remote,
    },
}

/// Which coordinator, and by which certificate.
#[derive(Args, Debug)]
pub(super) struct Remote {
    #[command(flatten)]
    there: There,
    /// Which certificate: NAME.pem and NAME.key
    #[arg(long, env = NAME_VARIABLE, hide_env_values = true, value_name = "NAME", default_value = "read")]
    name: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn failed(what: impl std::fmt::Display) -> Failure {
    Failure::failed(format!("error: {what}"))
}

/// The verbs of `cluster`.
pub(super) fn cluster(verb: ClusterVerb, out: &mut dyn Write) -> Result<(), Failure> {
    match verb {
        ClusterVerb::Init { directory, days } => {
            let valid = Duration::from_secs(u64::from(days) * 86_400);
            init(&directory, valid).map_err(failed)?;
            let place = directory.display();
            print(
                out,
                format_args!(
                    "{place} has the cluster's certificates; next: flowkeep coordinator --data {place} --listen …"
                ),
            )
        }
        ClusterVerb::Token {
            directory,
            member,
            valid,
        } => {
            if !is_name(&member) {
                return Err(Failure::usage(format!(
                    "error: `{member}` names no member: a name is up to 63 small letters, digits and `-`"
                )));
            }
            let authority = Authority::read(&directory).map_err(failed)?;
            let token = Token::make(&authority, &member, since_1970(), valid.duration());
            print(
                out,
                token.ok_or_else(|| failed("this machine gives no random bytes"))?,
            )
        }
        ClusterVerb::Status(remote) => {
            let mut line = connect(&remote)?;
            let status = line.status().map_err(failed)?;
            match remote.json {
                true => print(out, shape::object(&report_of(&status, &line.tried()))),
                false => print(out, as_text(&status)),
            }
        }
        ClusterVerb::Recover { runtime, remote } => {
            let mut line = connect(&remote)?;
            let view = line.recover(runtime.into()).map_err(failed)?;
            match remote.json {
                true => print(out, shape::object(&ClusterRecovered { runtime, view })),
                false => print(
                    out,
                    format_args!(
                        "runtime {runtime} is removed by view {view}: its flows go on where their copies are, and its process begins again"
                    ),
                ),
            }
        }
        ClusterVerb::Scale(words) => super::scaling::scale(&words, out),
        ClusterVerb::Drain { member, remote } => {
            connect(&remote)?.drain(&member).map_err(failed)?;
            match remote.json {
                true => {
                    let standing = "leaving";
                    print(out, shape::object(&ClusterDrained { member, standing }))
                }
                false => print(out, format_args!("{member} gets no new groups")),
            }
        }
        ClusterVerb::Resume { member, remote } => {
            connect(&remote)?.resume(&member).map_err(failed)?;
            match remote.json {
                true => {
                    let standing = "running";
                    print(out, shape::object(&ClusterDrained { member, standing }))
                }
                false => print(out, format_args!("{member} gets new groups again")),
            }
        }
    }
}

/// The time that a token is good for.
fn some_time(text: &str) -> Result<Period, String> {
    let period: Period = text.parse().map_err(|error| format!("{error}"))?;
    match period.duration() < Duration::from_secs(1) {
        true => Err(format!("{text} is too short; write 1s or more")),
        false => Ok(period),
    }
}

fn init(directory: &Path, valid: Duration) -> Result<(), AuthorityError> {
    let made = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory);
    made.map_err(|source| AuthorityError::File {
        path: directory.to_owned(),
        source,
    })?;
    let authority = Authority::create(valid)?;
    // First: where a cluster is already, no file is written.
    authority.write(directory)?;
    let coordinator = authority.issue(&Caller::Coordinator, valid)?;
    coordinator.write(directory, "coordinator")?;
    for right in [Right::Read, Right::Operate, Right::Admin] {
        let operator = Caller::Operator(right.name().to_owned(), right);
        authority
            .issue(&operator, valid)?
            .write(directory, right.name())?;
    }
    Ok(())
}

fn connect(remote: &Remote) -> Result<Line, Failure> {
    let operator = Operator {
        addresses: remote.there.at.clone(),
        identity: identity(&remote.there.identity, &remote.name).map_err(failed)?,
    };
    let line = operator.connect().map_err(failed)?;
    say_tried(&line.tried());
    Ok(line)
}

fn worker(member: &proto::MemberStatus) -> (&'static str, u32, u64, &'static str) {
    let standing = member.member.as_ref().map(|member| member.standing());
    let worker = member.member.as_ref().and_then(|member| member.worker.as_ref());
    let role = match worker.map(|worker| worker.role()) {
        Some(proto::WorkerRole::Switch) => "switch",
        _ => "runtime",
    };
    let standing = match standing {
        Some(proto::Standing::Joining) => "joining",
        Some(proto::Standing::Leaving) => "leaving",
        _ => "running",
    };
    let (number, incarnation) = worker.map_or((0, 0), |worker| (worker.number, worker.incarnation));
    (role, number, incarnation, standing)
}

fn as_text(status: &proto::StatusAnswer) -> String {
    let mut lines = vec![format!("view {}, {} workers", status.view, status.members.len())];
    for member in &status.members {
        let (role, number, _, standing) = worker(member);
        let load = member.load.unwrap_or_default();
        let suspected = if member.suspected { ", suspected" } else { "" };
        lines.push(format!(
            "{role} {number}  {}  {standing}{suspected}, silent {} ms, flows {}, packets {}, dropped packets {}",
            member.name, member.silent, load.flows, load.packets, load.dropped_packets
        ));
    }
    for refused in &status.refused {
        lines.push(format!("refused {}: {}", refused.name, refused.count));
    }
    if !status.trouble.is_empty() {
        lines.push(format!("trouble, so nothing is decided: {}", status.trouble));
    }
    lines.join("\n")
}

/// A cluster's members, as the coordinator has them.
#[derive(Serialize, JsonSchema)]
pub(super) struct ClusterReport {
    /// Which coordinator has answered.
    coordinator: Option<String>,
    /// The newest view's number.
    view: u32,
    /// Each worker of it.
    workers: Vec<ClusterWorker>,
    /// Calls that were refused, by reason.
    refused: BTreeMap<String, u64>,
    /// Why the coordinator decides nothing, if that is so.
    trouble: Option<String>,
    /// Records of the log.
    records: u64,
}

/// A worker of a view.
#[derive(Serialize, JsonSchema)]
pub(super) struct ClusterWorker {
    /// Its member.
    name: String,
    /// `switch` or `runtime`.
    role: &'static str,
    /// Its number among the workers of its role.
    number: u32,
    /// Which incarnation of it.
    incarnation: u64,
    /// `joining`, `running` or `leaving`.
    standing: &'static str,
    /// Its leases are withdrawn.
    suspected: bool,
    /// Since its last heartbeat, in milliseconds.
    silent_ms: u64,
    /// Packets since its start.
    packets: u64,
    /// Of those, dropped ones.
    dropped_packets: u64,
    /// Thousandths of a processor.
    cpu_permille: u32,
    /// Memory of its process.
    memory_bytes: u64,
    /// Flows now.
    flows: u64,
    /// Packets of late.
    packets_per_second: u64,
}

impl Shape for ClusterReport {
    const NAME: &'static str = "cluster-status";
}

/// A member that leaves, or runs again.
#[derive(Serialize, JsonSchema)]
pub(super) struct ClusterDrained {
    /// Its name.
    member: String,
    /// How it stands: `leaving`, or `running` behind `cluster resume`.
    standing: &'static str,
}

impl Shape for ClusterDrained {
    const NAME: &'static str = "cluster-drain";
}

/// A runtime that a view is without.
#[derive(Serialize, JsonSchema)]
pub(super) struct ClusterRecovered {
    /// Which.
    runtime: u16,
    /// The view's number.
    view: u32,
}

impl Shape for ClusterRecovered {
    const NAME: &'static str = "cluster-recover";
}

fn report_of(status: &proto::StatusAnswer, tried: &Tried) -> ClusterReport {
    let workers = status.members.iter().map(|member| {
        let (role, number, incarnation, standing) = worker(member);
        let load = member.load.unwrap_or_default();
        ClusterWorker {
            name: member.name.clone(),
            role,
            number,
            incarnation,
            standing,
            suspected: member.suspected,
            silent_ms: member.silent,
            packets: load.packets,
            dropped_packets: load.dropped_packets,
            cpu_permille: load.cpu,
            memory_bytes: load.memory,
            flows: load.flows,
            packets_per_second: load.packet_rate,
        }
    });
    let refused = status.refused.iter();
    ClusterReport {
        coordinator: tried.answered.clone(),
        view: status.view,
        workers: workers.collect(),
        refused: refused
            .map(|refused| (refused.name.clone(), refused.count))
            .collect(),
        trouble: (!status.trouble.is_empty()).then(|| status.trouble.clone()),
        records: status.records,
    }
}

#[cfg(test)]
#[path = "../../tests/words/mod.rs"]
mod words;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_json_have_the_same_words() {
        let load = proto::Load {
            flows: 7,
            packets: 8,
            dropped_packets: 9,
            ..proto::Load::default()
        };
        let status = proto::StatusAnswer {
            view: 3,
            members: vec![proto::MemberStatus {
                name: "left".into(),
                load: Some(load),
                silent: 12,
                suspected: true,
                ..proto::MemberStatus::default()
            }],
            refused: vec![proto::Count {
                name: "certificate".into(),
                count: 4,
            }],
            trouble: "the log is full".into(),
            ..proto::StatusAnswer::default()
        };
        let json = serde_json::to_value(report_of(&status, &Tried::default())).unwrap();
        // A worker's name, role, number and standing are its line's first words; the rest is in
        // JSON alone.
        words::agree(
            &json,
            &as_text(&status),
            &[
                ("coordinator", ""),
                ("cpu_permille", ""),
                ("incarnation", ""),
                ("memory_bytes", ""),
                ("name", "left"),
                ("number", "runtime 0"),
                ("packets_per_second", ""),
                ("records", ""),
                ("role", "runtime"),
                ("standing", "running, suspected"),
            ],
        );
    }
}
