//! The commands that ask a running cluster: a process over its control socket, or all members.
//!
//! Where members have not answered, what the others say is printed, and the command fails and names them ([`complete`]).

use super::{Asking, Failure, print};
use crate::apply::report::Change;
use crate::cluster::Cursor;
use crate::config::values::protocol_number;
use crate::control::client::Client;
use crate::control::{self, Answer, FLOWS_MAX, Key, Request};
use crate::report::{Flow, FlowList};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::net::SocketAddr;
use wire::Prefix;

pub(super) fn connect(asking: &Asking) -> Result<Client, Failure> {
    asking.connect()
}

/// Whether all members that were asked have answered; a failure names those that have not.
pub(super) fn complete(client: &Client) -> Result<(), Failure> {
    let missing = client.missing();
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = missing.keys().map(String::as_str).collect();
    let why: Vec<&str> = missing.values().map(String::as_str).collect();
    Err(Failure::failed(format!(
        "without {}, as what was asked of it is not answered: {}",
        names.join(", "),
        why.join("; ")
    )))
}

/// Prints what the members have answered; with JSON, those that have not are in `missing`.
pub(super) fn show_of(
    client: &Client,
    text: impl std::fmt::Display,
    mut value: Value,
    asking: &Asking,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    if asking.json {
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

/// What to say behind *it is not there*: of one of several processes, that another may have it.
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
pub(super) fn show<T: serde::Serialize + std::fmt::Display>(
    thing: &T,
    asking: &Asking,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    if asking.json {
        print(out, json!(thing))
    } else {
        print(out, thing.to_string().trim_end())
    }
}

/// `status`
pub fn status(asking: &Asking, out: &mut dyn Write) -> Result<(), Failure> {
    let mut client = connect(asking)?;
    match ask(&mut client, &Request::Status)? {
        Answer::Status(status) => show_of(&client, &status, json!(status), asking, out),
        _ => Err(foreign()),
    }
}

/// `flow list`: page after page, as many as fit what is wanted.
pub fn flow_list(
    protocol: Option<&str>,
    address: Option<Prefix>,
    limit: usize,
    asking: &Asking,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let protocol = protocol
        .map(|text| protocol_number(text).map(|number| wire::key::protocol_name(number).to_string()))
        .transpose()
        .map_err(Failure::usage)?;
    let wanted = |flow: &Flow| {
        // The address may be an end before or behind the translation.
        let ends = || {
            let behind = flow
                .translated
                .iter()
                .flat_map(|(source, destination)| [source, destination]);
            [&flow.source, &flow.destination].into_iter().chain(behind)
        };
        protocol
            .as_ref()
            .is_none_or(|protocol| *protocol == flow.protocol)
            && address.is_none_or(|prefix| ends().any(|end| lies_in(end, prefix)))
    };
    let mut client = connect(asking)?;
    let mut list = FlowList::default();
    let mut from = Cursor::default();
    loop {
        let Answer::Flows(page) = ask(
            &mut client,
            &Request::Flows {
                from,
                limit: FLOWS_MAX,
            },
        )?
        else {
            return Err(foreign());
        };
        list.flows.extend(page.flows.into_iter().filter(wanted));
        match page.next {
            Some(next) if list.flows.len() <= limit => from = next,
            _ => break,
        }
    }
    if list.flows.len() > limit {
        list.flows.truncate(limit);
        list.cut = true;
        let _ = writeln!(
            io::stderr(),
            "there are more than these {limit}: say --limit N for more"
        );
    }
    show_of(&client, &list, json!(list), asking, out)
}

/// Whether an end, `address:port` or `address`, lies in a prefix.
fn lies_in(end: &str, prefix: Prefix) -> bool {
    let address = end
        .parse::<SocketAddr>()
        .map(|end| end.ip())
        .or_else(|_| end.parse());
    address.is_ok_and(|address| prefix.contains(address.into()))
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
    let key = Key {
        protocol: protocol_number(protocol).map_err(Failure::usage)?,
        source,
        destination,
        vlan,
    };
    let mut client = connect(asking)?;
    match ask(&mut client, &Request::Flow(key))? {
        Answer::Flow(Some(flow)) => show(&flow, asking, out),
        Answer::Flow(None) => {
            let mut problem = format!(
                "there is no flow {protocol} {source} {destination}{}",
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

/// `function`: each runtime's answer; equal ones once.
pub fn function(
    name: String,
    words: Vec<String>,
    asking: &Asking,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let mut client = connect(asking)?;
    let Answer::Function(answers) = ask(&mut client, &Request::Function { name, words })? else {
        return Err(foreign());
    };
    let list: Vec<_> = answers
        .iter()
        .map(|(runtime, answer)| match client.member_of(*runtime) {
            Some(member) => json!({ "runtime": runtime, "member": member, "answer": answer }),
            None => json!({ "runtime": runtime, "answer": answer }),
        })
        .collect();
    let text = match answers.split_first() {
        None => String::new(),
        Some((first, rest)) if rest.iter().all(|(_, answer)| *answer == first.1) => first.1.clone(),
        Some(_) => {
            let each = answers
                .iter()
                .map(|(runtime, answer)| match client.member_of(*runtime) {
                    Some(member) => format!("runtime {runtime} of {member}:\n{answer}"),
                    None => format!("runtime {runtime}:\n{answer}"),
                });
            each.collect::<Vec<_>>().join("\n")
        }
    };
    show_of(&client, text, json!({ "answers": list }), asking, out)
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
        Answer::Confirmed(generation) if asking.json => print(out, json!({ "generation": generation })),
        Answer::Confirmed(generation) => print(out, format_args!("generation {generation} stays")),
        _ => Err(foreign()),
    }
}

/// `stop`
pub fn stop(asking: &Asking, out: &mut dyn Write) -> Result<(), Failure> {
    match ask(&mut connect(asking)?, &Request::Stop)? {
        Answer::Stopping if asking.json => print(out, json!({ "stopping": true })),
        Answer::Stopping => print(out, "stopping"),
        _ => Err(foreign()),
    }
}
