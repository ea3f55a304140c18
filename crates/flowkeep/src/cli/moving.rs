//! `flow migrate` and `runtime`: moving flows, and emptying a runtime.

use super::asking::{ask, connect, foreign, show};
use super::{Asking, Failure};
use crate::control::client::Client;
use crate::control::{Answer, Request};
use crate::moving::{Order, Receipt};
use crate::report::RuntimeStatus;
use serde_json::json;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

/// How often a running order is asked after.
const LOOK: Duration = Duration::from_millis(50);

/// `flow migrate`
pub fn migrate(order: Order, asking: &Asking, out: &mut dyn Write) -> Result<(), Failure> {
    let mut client = connect(asking)?;
    let receipt = carry_out(&mut client, order)?;
    conclude(&receipt, asking, out)
}

/// `runtime list`
pub fn list(asking: &Asking, out: &mut dyn Write) -> Result<(), Failure> {
    let Answer::Status(status) = ask(&mut connect(asking)?, &Request::Status)? else {
        return Err(foreign());
    };
    if asking.json {
        return super::print(out, json!({ "runtimes": status.runtimes }));
    }
    let line = |runtime: &RuntimeStatus| {
        format!(
            "{:>7} {:>10} {:>10} {:>12}",
            runtime.runtime, runtime.flows, runtime.groups, runtime.received
        )
    };
    let head = format!(
        "{:>7} {:>10} {:>10} {:>12}",
        "runtime", "flows", "groups", "received"
    );
    let lines: Vec<String> = std::iter::once(head)
        .chain(status.runtimes.iter().map(line))
        .collect();
    super::print(out, lines.join("\n"))
}

/// `runtime drain` and `runtime resume`
pub fn set_leaving(runtime: u16, leaving: bool, asking: &Asking, out: &mut dyn Write) -> Result<(), Failure> {
    let mut client = connect(asking)?;
    match ask(&mut client, &Request::Leaving { runtime, leaving })? {
        Answer::Leaving => {}
        _ => return Err(foreign()),
    }
    if !leaving {
        return match asking.json {
            true => super::print(out, json!({ "runtime": runtime, "leaving": false })),
            false => super::print(out, format_args!("runtime {runtime} takes new flows again")),
        };
    }
    let order = Order {
        from: Some(runtime),
        ..Order::default()
    };
    let receipt = carry_out(&mut client, order)?;
    conclude(&receipt, asking, out)
}

/// Gives the order and waits until it is over, telling people how far it is.
fn carry_out(client: &mut Client, order: Order) -> Result<Receipt, Failure> {
    let Answer::Ordered(parts) = ask(client, &Request::Move(order))? else {
        return Err(foreign());
    };
    let is_watched = io::stderr().is_terminal();
    loop {
        let Answer::Receipt(receipt) = ask(client, &Request::Receipt { parts: parts.clone() })? else {
            return Err(foreign());
        };
        if receipt.over {
            if is_watched {
                let _ = write!(io::stderr(), "\r\x1b[K");
            }
            return Ok(receipt);
        }
        if is_watched {
            let _ = write!(
                io::stderr(),
                "\r{} of {} flows moved, {} groups waiting\x1b[K",
                receipt.flows_moved,
                receipt.flows_asked,
                receipt.groups_waiting
            );
        }
        std::thread::sleep(LOOK);
    }
}

/// Shows the receipt; what did not move is a failure, and the receipt says what state things are in.
fn conclude(receipt: &Receipt, asking: &Asking, out: &mut dyn Write) -> Result<(), Failure> {
    show(receipt, asking, out)?;
    match receipt.flows_refused + receipt.flows_failed {
        0 => Ok(()),
        left => Err(Failure::failed(format!(
            "{left} flows did not move; all go on where they are"
        ))),
    }
}
