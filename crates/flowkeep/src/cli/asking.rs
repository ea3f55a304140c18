//! The commands that ask a running cluster over its control socket.

use super::{Asking, Failure, print};
use crate::apply::report::Change;
use crate::cluster::Cursor;
use crate::config::values::protocol_number;
use crate::control::client::Client;
use crate::control::{self, Answer, FLOWS_MAX, Key, Request};
use crate::report::{Flow, FlowList};
use serde_json::json;
use std::io::{self, Write};
use std::net::SocketAddr;
use wire::Prefix;

pub(super) fn connect(asking: &Asking) -> Result<Client, Failure> {
    let path = asking.socket.clone().or_else(control::path_of_environment);
    let path = path.unwrap_or_else(control::default_path);
    Client::connect(&path).map_err(Failure::failed)
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
    match ask(&mut connect(asking)?, &Request::Status)? {
        Answer::Status(status) => show(status.as_ref(), asking, out),
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
        let _ = writeln!(
            io::stderr(),
            "there are more than these {limit}: say --limit N for more"
        );
    }
    show(&list, asking, out)
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
        Answer::Flow(None) => Err(Failure::failed(format!(
            "there is no flow {protocol} {source} {destination}{}",
            or_elsewhere(&mut client)
        ))),
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
    let Answer::Function(answers) = ask(&mut connect(asking)?, &Request::Function { name, words })? else {
        return Err(foreign());
    };
    if asking.json {
        let list: Vec<_> = answers
            .iter()
            .map(|(runtime, answer)| json!({ "runtime": runtime, "answer": answer }))
            .collect();
        return print(out, json!({ "answers": list }));
    }
    match answers.split_first() {
        None => Ok(()),
        Some((first, rest)) if rest.iter().all(|(_, answer)| *answer == first.1) => print(out, &first.1),
        Some(_) => answers
            .iter()
            .try_for_each(|(runtime, answer)| print(out, format_args!("runtime {runtime}:\n{answer}"))),
    }
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
