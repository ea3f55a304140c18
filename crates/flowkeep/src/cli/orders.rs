//! `order`: orders to move flows that are under way, from any caller.
//!
//! A command that moves flows gives an order and waits for its end; broken off, it no longer waits,
//! and the order goes on. Here it is found again, and taken back: moves on their way end as they
//! would have, other moves do not begin.
//!
//! Not here: how orders are given and waited for ([`super::moving`]).

use super::asking::{ask, connect, foreign, show};
use super::moving::{flows, see_to_the_end};
use super::{Asking, Failure, print};
use crate::control::{Answer, Request};
use crate::moving::{Order, UnderWay};
use crate::shape::{self, Shape};
use clap::Subcommand;
use schemars::JsonSchema;
use serde::Serialize;
use std::fmt;
use std::io::Write;

/// The verbs of `order`.
#[derive(Subcommand, Debug)]
pub(super) enum OrderVerb {
    /// List the orders to move flows that are under way
    #[command(
        after_help = "Examples:\n  flowkeep order list\n  flowkeep order list --json | jq '.orders[].number'"
    )]
    List(Asking),
    /// Take an order back: groups that are on their way arrive, the others stay
    #[command(after_help = "\
The command waits until nothing of the order is on its way any more, and answers with the order's \
receipt.

Exit codes: 0 it is canceled; 1 it is not under way, or moves on their way did not end.

Examples:
  flowkeep order cancel 3
  flowkeep order cancel 3 --json | jq .groups_canceled")]
    Cancel {
        /// Its number, as order list shows it
        order: u32,
        #[command(flatten)]
        asking: Asking,
    },
}

/// Orders that are under way.
#[derive(Serialize, JsonSchema)]
pub(super) struct Orders {
    /// Each of them.
    orders: Vec<UnderWay>,
}

impl Shape for Orders {
    const NAME: &'static str = "orders";
    /// 2: a flow's protocol is its name.
    const VERSION: u32 = 2;
}

/// The verbs of `order`.
pub(super) fn order(verb: OrderVerb, out: &mut dyn Write) -> Result<(), Failure> {
    match verb {
        OrderVerb::List(asking) => list(&asking, out),
        OrderVerb::Cancel { order, asking } => cancel(order, &asking, out),
    }
}

fn list(asking: &Asking, out: &mut dyn Write) -> Result<(), Failure> {
    let Answer::Orders(orders) = ask(&mut connect(asking)?, &Request::Orders)? else {
        return Err(foreign());
    };
    if asking.json {
        return print(out, shape::object(&Orders { orders }));
    }
    if orders.is_empty() {
        return print(out, "no order to move flows is under way");
    }
    let line = |number: &dyn fmt::Display, from: &str, to: &str, rest: [&dyn fmt::Display; 4], what: &str| {
        let [asked, moved, waiting, under_way] = rest;
        format!(
            "{number:>5}  {from:<8} {to:<8} {asked:>10} {moved:>10} {waiting:>10} {under_way:>10}  {what}"
        )
    };
    let heads: [&dyn fmt::Display; 4] = [&"asked", &"moved", &"waiting", &"under way"];
    let mut lines = vec![line(&"order", "from", "to", heads, "flows")];
    lines.extend(orders.iter().map(|of: &UnderWay| {
        let receipt = &of.receipt;
        let figures: [&dyn fmt::Display; 4] = [
            &receipt.flows_asked,
            &receipt.flows_moved,
            &receipt.groups_waiting,
            &receipt.groups_under_way,
        ];
        let from = of
            .order
            .from
            .map_or_else(|| "others".to_owned(), |from| from.to_string());
        let to: Vec<String> = of.order.to.iter().map(ToString::to_string).collect();
        let to = match to.is_empty() {
            true => "others".to_owned(),
            false => to.join(","),
        };
        line(&of.number, &from, &to, figures, &which(&of.order))
    }));
    print(out, lines.join("\n"))
}

/// Which flows an order means.
fn which(order: &Order) -> String {
    match (&order.flow, &order.address, order.one_in) {
        (Some(key), ..) => format!(
            "{} {} {}",
            wire::key::protocol_name(key.protocol),
            key.source,
            key.destination
        ),
        (None, Some(prefix), _) => prefix.clone(),
        (None, None, Some(many)) => format!("one in {many}"),
        (None, None, None) => "all".to_owned(),
    }
}

fn cancel(number: u32, asking: &Asking, out: &mut dyn Write) -> Result<(), Failure> {
    let mut client = connect(asking)?;
    let Answer::Ordered(parts) = ask(&mut client, &Request::Cancel { number })? else {
        return Err(foreign());
    };
    let receipt = see_to_the_end(&mut client, &parts)?;
    show(&receipt, asking, out)?;
    if receipt.groups_canceled == 0 && !asking.json {
        return print(
            out,
            format_args!(
                "nothing of order {number} was waiting to begin: {} moved",
                flows(receipt.flows_moved)
            ),
        );
    }
    Ok(())
}
