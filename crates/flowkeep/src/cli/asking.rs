//! The commands that ask a running cluster: a process over its control socket, or all members.
//!
//! Where members have not answered, the others' answers are printed, and the command fails and
//! names the silent ones ([`complete`]).

use super::{Asking, FAILURE, Failure, print, runtimes};
use crate::apply::report::Change;
use crate::config::values::protocol_number;
use crate::control::client::Client;
use crate::control::{self, Answer, Key, Request};
use crate::explain::Explain;
use crate::report::human_time;
use crate::shape::{self, Shape};
use crate::tables::{self, Gone, Said, Told};
use nf::table::{ROWS_MAX, Value};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Between two looks for a cluster that does not answer yet.
const LOOK: Duration = Duration::from_millis(20);

pub(super) fn connect(asking: &Asking) -> Result<Client, Failure> {
    asking.connect()
}

/// Whether all members that were asked have answered; a failure names the silent members.
pub(super) fn complete(client: &Client) -> Result<(), Failure> {
    let missing = client.missing();
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = missing.keys().map(String::as_str).collect();
    let why: Vec<&str> = missing.values().map(String::as_str).collect();
    Err(Failure::failed(format!(
        "without {}, for want of an answer: {}",
        names.join(", "),
        why.join("; ")
    )))
}

/// Prints the members' answers; with JSON, members without an answer are in `missing`.
pub(super) fn show_of(
    client: &Client,
    text: impl std::fmt::Display,
    report: &impl Shape,
    asking: &Asking,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    if asking.json {
        let mut value = shape::object(report);
        let missing = client.missing();
        if let (Some(value), false) = (value.as_object_mut(), missing.is_empty()) {
            value.insert("missing".to_owned(), json!(missing));
        }
        print(out, value)?;
    } else {
        let text = text.to_string();
        if !text.trim_end().is_empty() {
            print(out, text.trim_end())?;
        }
    }
    complete(client)
}

pub(super) fn ask(client: &mut Client, request: &Request) -> Result<Answer, Failure> {
    client.ask(request).map_err(Failure::failed)
}

/// An answer to something else: the two ends are not of the same version.
pub(super) fn foreign() -> Failure {
    Failure::failed(control::FOREIGN)
}

/// The text behind *it is not there*: of one of several processes, that another may have it.
pub(super) fn or_elsewhere(client: &mut Client) -> String {
    let Ok(Answer::Status(status)) = client.ask(&Request::Status) else {
        return String::new();
    };
    let Some(member) = &status.member else {
        return String::new();
    };
    let others = status.others.iter();
    let others = others.map(|other| format!("--socket {} (member `{}`)", other.socket, other.member));
    format!(
        "; that is of member `{member}` alone, and the others are asked by their own sockets: {}",
        others.collect::<Vec<_>>().join(", ")
    )
}

/// Prints a thing as JSON, or as people read it.
pub(super) fn show<T: Shape + std::fmt::Display>(
    thing: &T,
    asking: &Asking,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    if asking.json {
        print(out, shape::object(thing))
    } else {
        print(out, thing.to_string().trim_end())
    }
}

/// `status`; `wait`: how long for a cluster that does not answer yet.
pub fn status(wait: Option<nf::Period>, asking: &Asking, out: &mut dyn Write) -> Result<(), Failure> {
    let patience = wait.map_or(Duration::ZERO, nf::Period::duration);
    let begin = Instant::now();
    let mut client = loop {
        match connect(asking) {
            Err(failure) if failure.code == FAILURE && begin.elapsed() < patience => {
                std::thread::sleep(LOOK);
            }
            other => break other?,
        }
    };
    match ask(&mut client, &Request::Status)? {
        Answer::Status(status) => show_of(&client, &status, &*status, asking, out),
        _ => Err(foreign()),
    }
}

/// A flow's key as its words say it.
pub fn key_of(
    protocol: &str,
    source: SocketAddr,
    destination: SocketAddr,
    vlan: u16,
) -> Result<Key, Failure> {
    of_one_family(source, destination)?;
    Ok(Key {
        protocol: protocol_number(protocol).map_err(Failure::usage)?,
        source,
        destination,
        vlan,
    })
}

fn of_one_family(source: SocketAddr, destination: SocketAddr) -> Result<(), Failure> {
    match source.is_ipv4() == destination.is_ipv4() {
        true => Ok(()),
        false => Err(Failure::usage(
            "one end is IPv4 and the other IPv6: no packet has both; write both alike",
        )),
    }
}

/// `flow explain`
pub fn flow_explain(words: Explain, asking: &Asking, out: &mut dyn Write) -> Result<(), Failure> {
    of_one_family(words.key.source, words.key.destination)?;
    let protocol = words.key.protocol;
    let what = match (words.key.source.is_ipv4(), protocol) {
        (false, 0 | 43 | 44 | 60 | 135 | 139 | 140) => {
            format!("{protocol} is an IPv6 extension header: write the protocol behind it")
        }
        (false, wire::protocol::ICMP) => "icmp is IPv4's; write icmpv6".to_owned(),
        (true, wire::protocol::ICMPV6) => "icmpv6 is IPv6's; write icmp".to_owned(),
        _ => String::new(),
    };
    if !what.is_empty() {
        return Err(Failure::usage(what));
    }
    let mut client = connect(asking)?;
    match ask(&mut client, &Request::Explain(words))? {
        Answer::Explained(Some(explanation)) => show_of(&client, &explanation, &*explanation, asking, out),
        Answer::Explained(None) => Err(Failure::failed(format!(
            "no switch answered, and switches know where packets go{}",
            or_elsewhere(&mut client)
        ))),
        _ => Err(foreign()),
    }
}

/// `flow show`
pub fn flow_show(
    protocol: &str,
    source: SocketAddr,
    destination: SocketAddr,
    vlan: u16,
    asking: &Asking,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let key = key_of(protocol, source, destination, vlan)?;
    let mut client = connect(asking)?;
    match ask(&mut client, &Request::Flow(key))? {
        Answer::Flow(Some(flow)) => show(&flow, asking, out),
        Answer::Flow(None) => {
            let mut problem = format!(
                "there is no flow {protocol} {source} {destination}; `flowkeep flow list` shows which there are{}",
                or_elsewhere(&mut client)
            );
            if let Err(missing) = complete(&client) {
                problem = format!("{problem}, {}", missing.message);
            }
            Err(Failure::failed(problem))
        }
        _ => Err(foreign()),
    }
}

/// The answer of a function's instance on one runtime.
#[derive(Serialize, JsonSchema)]
struct FunctionAnswer {
    /// The runtime.
    runtime: u16,
    /// Asked over the cluster: the member that has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    member: Option<String>,
    /// The runtime is not there: the rows are its last counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    gone: Option<Gone>,
    /// Its answer in words, where a command was carried out.
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<String>,
    /// Its answer, where that has figures: cells by the names of their columns.
    #[serde(skip_serializing_if = "Option::is_none")]
    rows: Option<Vec<BTreeMap<String, Value>>>,
}

/// The answers of a function.
#[derive(Serialize, JsonSchema)]
pub(super) struct FunctionAnswers {
    /// The answers of all runtimes as one table, with the counts of gone runtimes.
    #[serde(skip_serializing_if = "Option::is_none")]
    rows: Option<Vec<BTreeMap<String, Value>>>,
    /// The table has more rows than these.
    cut: bool,
    /// Of a table that is cut: the words that show more of it, where more can be shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// Of each runtime.
    answers: Vec<FunctionAnswer>,
}

impl Shape for FunctionAnswers {
    const NAME: &'static str = "function";
    /// 2: tables are rows, which were text.
    const VERSION: u32 = 2;
}

/// A configuration stays.
#[derive(Serialize, JsonSchema)]
pub(super) struct Confirmed {
    /// Its number.
    generation: u64,
}

impl Shape for Confirmed {
    const NAME: &'static str = "chain-confirm";
}

/// A process was asked to end.
#[derive(Serialize, JsonSchema)]
pub(super) struct Stopping {
    /// The process has begun to end.
    stopping: bool,
    /// The process has ended: nothing of it is left.
    has_ended: bool,
}

impl Shape for Stopping {
    const NAME: &'static str = "stop";
    /// 2: `ended` is `has_ended`; elsewhere `ended` is a count.
    const VERSION: u32 = 2;
}

/// Each runtime's answer in words; equal ones once.
fn each_in_words(answers: &[Told], member_of: impl Fn(&Told) -> Option<String>) -> String {
    let words = |told: &Told| match &told.said {
        Said::Text(text) | Said::Both(text, _) => text.clone(),
        Said::Rows(rows) => rows.to_string(),
    };
    match answers.split_first() {
        None => String::new(),
        Some((first, rest)) if rest.iter().all(|told| words(told) == words(first)) => words(first),
        Some(_) => {
            let each = answers.iter().map(|told| match member_of(told) {
                Some(member) => format!("runtime {} of {member}:\n{}", told.runtime, words(told)),
                None => format!("runtime {}:\n{}", told.runtime, words(told)),
            });
            each.collect::<Vec<_>>().join("\n")
        }
    }
}

/// `function`: a table over all runtimes, or each runtime's answer in words; equal ones once.
pub fn function(
    name: String,
    words: Vec<String>,
    asking: &Asking,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let mut client = connect(asking)?;
    let table = words.first().cloned().unwrap_or_default();
    let Answer::Function(answers) = ask(&mut client, &Request::Function { name, words })? else {
        return Err(foreign());
    };
    let member_of = |told: &Told| match &told.member {
        Some(member) => Some(member.clone()),
        None => client.member_of(told.runtime).map(ToString::to_string),
    };
    let list = answers.iter().map(|told| FunctionAnswer {
        runtime: told.runtime,
        member: member_of(told),
        gone: told.gone,
        answer: told.said.words().map(ToOwned::to_owned),
        rows: told.said.rows().map(|rows| rows.clone().top().objects()),
    });
    let whole = tables::whole(&answers);
    let cut = whole
        .as_ref()
        .is_some_and(|whole| tables::is_cut(&answers, whole));
    let list = FunctionAnswers {
        answers: list.collect(),
        rows: whole.as_ref().map(tables::Rows::objects),
        cut,
        next: (whole.as_ref())
            .is_some_and(|whole| cut && whole.rows.len() < ROWS_MAX)
            .then(|| format!("{table} {ROWS_MAX}")),
    };
    let more = |shown: usize| match shown {
        ROWS_MAX.. => format!("There are more rows than these {shown}, which are the most that are shown\n"),
        _ => format!("There are more rows than these {shown}: say how many, `{table} {ROWS_MAX}` at most\n"),
    };
    let is_in_words = answers.iter().any(|told| told.said.words().is_some());
    let text = match whole.filter(|_| !is_in_words) {
        Some(whole) => [whole.to_string()]
            .into_iter()
            .chain(cut.then(|| more(whole.rows.len())))
            .chain(tables::gone_in_it(&answers))
            .collect(),
        None => each_in_words(&answers, member_of),
    };
    show_of(&client, text, &list, asking, out)
}

/// `chain diff` and its like.
pub fn change(ask: crate::apply::Ask, asking: &Asking) -> Result<Change, Failure> {
    match self::ask(&mut connect(asking)?, &Request::Change(ask))? {
        Answer::Change(change) => Ok(*change),
        _ => Err(foreign()),
    }
}

/// `chain confirm`
pub fn confirm(asking: &Asking, out: &mut dyn Write) -> Result<(), Failure> {
    match ask(&mut connect(asking)?, &Request::Confirm)? {
        Answer::Confirmed(generation) if asking.json => print(out, shape::object(&Confirmed { generation })),
        Answer::Confirmed(generation) => print(out, format_args!("generation {generation} stays")),
        _ => Err(foreign()),
    }
}

/// `stop`: asks, and waits until the process has ended, for as long as `patience`.
pub fn stop(asking: &Asking, patience: Duration, out: &mut dyn Write) -> Result<(), Failure> {
    let mut client = connect(asking)?;
    // Taken first: the number of an ended process may be another's. There is no handle of a process
    // that this one cannot see.
    let handle = (client.process().ok())
        .filter(|process| *process != rustix::process::getpid() && !patience.is_zero())
        .and_then(|process| rustix::process::pidfd_open(process, rustix::process::PidfdFlags::empty()).ok());
    // A refused answer is not asked for again: the process is to end.
    let trial = match client.ask(&Request::Status) {
        Ok(Answer::Status(status)) if !asking.json => status.trial,
        _ => None,
    };
    let Answer::Stopping = ask(&mut client, &Request::Stop)? else {
        return Err(foreign());
    };
    drop(client);
    if let Some(trial) = trial {
        print(
            out,
            format_args!(
                "generation {} ({}) was on trial, and nothing has confirmed it: it ends with the process. A new start goes by its file",
                trial.generation, trial.file
            ),
        )?;
    }
    let is_unknown = |error: std::io::Error| {
        Failure::failed(format!(
            "it was asked to end, and whether it has is not known: {error}"
        ))
    };
    let ended = (handle.as_ref()).map(|handle| runtimes::has_ended(handle, patience).map_err(is_unknown));
    let ended = ended.transpose()?;
    let has_ended = ended == Some(true);
    match asking.json {
        true => print(
            out,
            shape::object(&Stopping {
                stopping: true,
                has_ended,
            }),
        )?,
        false => print(out, if has_ended { "stopped" } else { "stopping" })?,
    }
    match ended {
        Some(false) => Err(Failure::failed(format!(
            "it was asked to end {} ago and has not yet. A node moves its flows first, and waits until no packet comes to it. `flowkeep status` \
             shows what it has; asked again, it ends at once",
            human_time(patience)
        ))),
        _ => Ok(()),
    }
}
