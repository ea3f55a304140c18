//! `flow list`: page after page, until enough flows are found.
//!
//! ```text
//!   cursor ─► page of all flows ─► those that are wanted ─► … ─► list, with `next`: the place behind its last flow
//! ```
//!
//! The next place is exact: no flow that stays where it is is listed twice or left out by going on
//! there.

use super::asking::{ask, connect, foreign, show_of};
use super::{Asking, Failure};
use crate::cluster::Cursor;
use crate::config::values::protocol_number;
use crate::control::client::Client;
use crate::control::{Answer, FLOWS_MAX, Request};
use crate::moving::no_such_runtime;
use crate::report::{Flow, FlowList};
use nf::Period;
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;
use wire::Prefix;

/// Which flows, and how many.
#[derive(clap::Args, Debug)]
pub(super) struct Wanted {
    /// Only this protocol
    #[arg(long)]
    protocol: Option<String>,
    /// Only flows with an end in this prefix, before or behind the translation
    #[arg(long, value_name = "PREFIX")]
    address: Option<Prefix>,
    /// Only flows of this runtime
    #[arg(long, value_name = "RUNTIME")]
    runtime: Option<u16>,
    /// Only flows in this state, as the list shows it, or without its protocol (established);
    /// capitals do not matter
    #[arg(long, value_name = "STATE")]
    state: Option<String>,
    /// The most flows
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = at_least_one)]
    limit: usize,
    /// Go on where a list that was cut has ended: its `next`
    #[arg(long, value_name = "RUNTIME:PLACE")]
    after: Option<Cursor>,
    #[command(flatten)]
    asking: Asking,
}

impl Wanted {
    /// With the protocol as flows name it.
    fn has(&self, flow: &Flow, protocol: Option<&str>) -> bool {
        let is_in = |wanted: &str| {
            let name = flow.state_name().to_ascii_lowercase();
            let wanted = wanted.to_ascii_lowercase();
            let of_protocol = format!("{}_", flow.protocol.to_ascii_lowercase());
            name == wanted || name.strip_prefix(&of_protocol) == Some(&wanted)
        };
        protocol.is_none_or(|protocol| *protocol == flow.protocol)
            && self.runtime.is_none_or(|runtime| runtime == flow.runtime)
            && self.address.is_none_or(|prefix| has_end_in(flow, prefix))
            && (self.state.as_deref()).is_none_or(is_in)
    }
}

/// The time between two looks at a cluster: shorter ones would take more of it than they tell.
pub(in crate::cli) fn between_looks(text: &str) -> Result<Period, String> {
    let period: Period = text.parse().map_err(|error| format!("{error}"))?;
    match period.duration() < Duration::from_millis(100) {
        true => Err(format!("{text} is too short; write 100ms or more")),
        false => Ok(period),
    }
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("0 is too small; write 1 or more".to_owned()),
        Ok(number) => Ok(number),
        Err(error) => Err(error.to_string()),
    }
}

fn page(client: &mut Client, from: Cursor, limit: usize) -> Result<FlowList, Failure> {
    match ask(client, &Request::Flows { from, limit })? {
        Answer::Flows(page) => Ok(page),
        _ => Err(foreign()),
    }
}

/// `flow list`
pub(super) fn flow_list(wanted: &Wanted, out: &mut dyn Write) -> Result<(), Failure> {
    let protocol = (wanted.protocol.as_deref())
        .map(|text| protocol_number(text).map(|number| wire::key::protocol_name(number).to_string()))
        .transpose()
        .map_err(Failure::usage)?;
    let mut client = connect(&wanted.asking)?;
    if let Some(runtime) = wanted.runtime {
        is_there(&mut client, runtime..=runtime)?;
    }
    // The runtime where the list was cut may be gone by now; the runtimes behind it go on.
    if let Some(after) = wanted.after {
        is_there(&mut client, after.runtime..=u16::MAX)?;
    }
    let mut list = FlowList::default();
    let mut states = BTreeSet::new();
    let first = Cursor {
        runtime: wanted.runtime.unwrap_or(0),
        actor: 0,
    };
    let mut from = wanted.after.unwrap_or(first);
    while wanted.runtime.is_none_or(|runtime| from.runtime <= runtime) {
        let of = page(&mut client, from, FLOWS_MAX)?;
        let mut looked_at = 0;
        for flow in of.flows {
            states.insert(flow.state_name().to_owned());
            if wanted.has(&flow, protocol.as_deref()) {
                if list.flows.len() == wanted.limit {
                    list.cut = true;
                    break;
                }
                list.flows.push(flow);
            }
            looked_at += 1;
        }
        if list.cut {
            list.next = match looked_at {
                0 => Some(from),
                _ => page(&mut client, from, looked_at)?.next,
            };
            break;
        }
        match of.next {
            Some(next) => from = next,
            None => break,
        }
    }
    if let Some(next) = list.next {
        let limit = wanted.limit;
        let _ = writeln!(
            io::stderr(),
            "there are more flows than are listed ({limit}): say --limit N for more, or --after {next} for the next ones"
        );
    }
    if let Some(state) = wanted.state.as_ref().filter(|_| list.flows.is_empty()) {
        let there = states.into_iter().collect::<Vec<_>>().join(", ");
        let seen = match there.is_empty() {
            true => "there is no flow".to_owned(),
            false => format!("the flows looked at are in: {there}"),
        };
        let _ = writeln!(io::stderr(), "no flow is in the state {state}; {seen}");
    }
    show_of(&client, &list, &list, &wanted.asking, out)
}

/// Where none of these runtimes is there, that is an error: their flows are not none.
fn is_there(client: &mut Client, runtimes: RangeInclusive<u16>) -> Result<(), Failure> {
    let Answer::Status(status) = ask(client, &Request::Status)? else {
        return Err(foreign());
    };
    match status
        .runtimes
        .iter()
        .any(|there| runtimes.contains(&there.runtime))
    {
        true => Ok(()),
        false => Err(Failure::failed(no_such_runtime(*runtimes.start()))),
    }
}

/// Whether an end lies in a prefix, before or behind the translation.
fn has_end_in(flow: &Flow, prefix: Prefix) -> bool {
    let behind = flow.translated.iter();
    let behind = behind.flat_map(|ends| [&ends.source, &ends.destination]);
    let mut ends = [&flow.source, &flow.destination].into_iter().chain(behind);
    ends.any(|end| lies_in(end, prefix))
}

/// Whether an end, `address:port` or `address`, lies in a prefix.
fn lies_in(end: &str, prefix: Prefix) -> bool {
    let address = end
        .parse::<SocketAddr>()
        .map(|end| end.ip())
        .or_else(|_| end.parse());
    address.is_ok_and(|address| prefix.contains(address.into()))
}
