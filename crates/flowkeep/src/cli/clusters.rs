//! `cluster`: certificates and tokens of a cluster of several processes, and who is there by its coordinator.

use super::{Failure, print};
use clap::{Args, Subcommand};
use coordinator::identity::{Authority, AuthorityError, Caller, Identity, Right, Token, is_name};
use coordinator::operator::Operator;
use coordinator::proto;
use coordinator::server::since_1970;
use nf::Period;
use serde_json::{Value, json};
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The verbs of `cluster`.
#[derive(Subcommand, Debug)]
pub(super) enum ClusterVerb {
    /// Make a cluster's authority, its coordinator's certificate, and three operators'
    #[command(after_help = "\
Writes ca, coordinator, admin, operate and read, each .pem and .key, readable by their owner alone. Nothing is overwritten. Whoever has \
ca.key can make members: it stays with the coordinator.

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
        #[arg(long, value_name = "TIME", default_value = "1h")]
        valid: Period,
    },
    /// Who is a member, by the coordinator's newest view
    #[command(after_help = "Example:\n  flowkeep cluster status --at 192.0.2.1:4400 --identity cluster/")]
    Status(Remote),
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
}

/// Which coordinator, and as whom.
#[derive(Args, Debug)]
pub(super) struct Remote {
    /// The coordinator
    #[arg(long, value_name = "ADDRESS:PORT")]
    at: String,
    /// The directory with ca.pem, and the certificate and its key
    #[arg(long, value_name = "DIRECTORY")]
    identity: PathBuf,
    /// Which certificate: NAME.pem and NAME.key
    #[arg(long, value_name = "NAME", default_value = "read")]
    name: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn failed(what: impl std::fmt::Display) -> Failure {
    Failure::failed(format!("error: {what}"))
}

/// What `cluster` is asked to do.
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
            let status = operator(&remote)?.status().map_err(failed)?;
            match remote.json {
                true => print(out, as_json(&status)),
                false => print(out, as_text(&status)),
            }
        }
        ClusterVerb::Drain { member, remote } => {
            operator(&remote)?.drain(&member).map_err(failed)?;
            match remote.json {
                true => print(out, json!({ "member": member, "standing": "leaving" })),
                false => print(out, format_args!("{member} gets no new groups")),
            }
        }
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
    // First: where a cluster is already, nothing is written.
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

fn operator(remote: &Remote) -> Result<Operator, Failure> {
    Ok(Operator {
        address: remote.at.clone(),
        identity: Identity::read(&remote.identity, &remote.name).map_err(failed)?,
    })
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
            "{role} {number}  {}  {standing}{suspected}, heard {} ms ago, {} flows, {} packets, {} dropped",
            member.name, member.silent, load.flows, load.packets, load.dropped_packets
        ));
    }
    for refused in &status.refused {
        lines.push(format!("refused {}: {}", refused.name, refused.count));
    }
    if !status.trouble.is_empty() {
        lines.push(format!("no decisions: {}", status.trouble));
    }
    lines.join("\n")
}

fn as_json(status: &proto::StatusAnswer) -> Value {
    let members = status.members.iter().map(|member| {
        let (role, number, incarnation, standing) = worker(member);
        let load = member.load.unwrap_or_default();
        json!({
            "name": member.name,
            "role": role,
            "number": number,
            "incarnation": incarnation,
            "standing": standing,
            "suspected": member.suspected,
            "silent_ms": member.silent,
            "packets": load.packets,
            "dropped_packets": load.dropped_packets,
            "cpu_permille": load.cpu,
            "memory_bytes": load.memory,
            "flows": load.flows,
        })
    });
    let refused = status.refused.iter();
    let refused = refused.map(|refused| (refused.name.clone(), Value::from(refused.count)));
    json!({
        "view": status.view,
        "workers": members.collect::<Vec<_>>(),
        "refused": Value::Object(refused.collect()),
        "trouble": (!status.trouble.is_empty()).then_some(&status.trouble),
        "records": status.records,
    })
}
