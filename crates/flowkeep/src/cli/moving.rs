//! `flow migrate` and `runtime`: moving flows, and emptying a runtime.
//!
//! An order is given once and asked after until it is over ([`carry_out`]); on a terminal a line
//! says how far it is. An order that has made no headway for [`STUCK`] is waited for no longer:
//! each move is called back after a second, so something is wrong then.
//!
//! Draining is said first to the switches, then to the runtime, then its flows are ordered away.
//! Packets that were on their way to it may begin flows behind that order, so it is given again
//! until there is none: [`ROUNDS`] at most, as long as none is refused.
//!
//! An order that has begun goes on without the tool. `order list` finds it again, `order cancel`
//! takes it back ([`super::orders`]), and `runtime resume` takes back a drain's order.
//!
//! With `--force` a runtime is drained even where no other runtime takes its flows: it keeps them
//! then. The tool gives the order to move them all the same, since only the cluster knows. If it
//! cannot be carried out, the message tells the state of the flows ([`keeps`]).
//!
//! Each failure says what state things are in, and what to do.

#[cfg(test)]
mod tests;

use super::asking::{ask, complete, connect, foreign, or_elsewhere, show, show_of};
use super::{Asking, Failure, Which, print};
use crate::config::values::protocol_number;
use crate::control::client::Client;
use crate::control::{Answer, Key, Request};
use crate::moving::{Leaving, NEW_FLOWS, Order, OrderPart, Receipt};
use crate::report::RuntimeStatus;
use crate::shape::Shape;
use schemars::JsonSchema;
use serde::Serialize;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// How often a running order is asked after.
const LOOK: Duration = Duration::from_millis(50);
/// Without any change for so long an order is not going to be over.
const STUCK: Duration = Duration::from_secs(15);
/// How often a runtime's flows are ordered away at most when it is drained.
const ROUNDS: usize = 10;

/// `flow migrate`
pub fn migrate(
    which: Which,
    from: Option<u16>,
    to: Vec<u16>,
    count: Option<u32>,
    asking: &Asking,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let flow = key_of(&which)?;
    if flow.is_none() && from.is_none() && to.is_empty() {
        // Every runtime's to every other: they would cross on the way.
        return Err(Failure::usage(
            "say where these flows are to go, like --to 1, or which runtime they are to leave, like --from 0",
        ));
    }
    let mut client = connect(asking)?;
    if let Some(key) = flow {
        at_home(&mut client, key, &which, from, &to)?;
    }
    let order = Order {
        flow,
        address: which.address.map(|prefix| prefix.to_string()),
        from,
        to,
        count,
        ..Order::default()
    };
    let receipt = carry_out(&mut client, order)?;
    show(&receipt, asking, out)?;
    let left = receipt.flows_refused + receipt.flows_failed;
    if receipt.groups_canceled > 0 {
        return Err(Failure::failed(format!(
            "not all have moved: {}. The other flows go on where they are",
            reasons(&receipt)
        )));
    }
    if left > 0 {
        return Err(Failure::failed(format!(
            "{} did not move: {}. All of them go on where they are",
            flows(left),
            reasons(&receipt)
        )));
    }
    if receipt.flows_asked == 0 && !asking.json {
        print(
            out,
            "no flow was meant, so none has moved; `flowkeep flow list` shows which there are",
        )?;
    }
    complete(&client)
}

/// `flow delete`
pub fn delete(which: Which, from: Option<u16>, asking: &Asking, out: &mut dyn Write) -> Result<(), Failure> {
    let flow = key_of(&which)?;
    let mut client = connect(asking)?;
    if let Some(key) = flow {
        at_home(&mut client, key, &which, from, &[])?;
    }
    let order = Order {
        flow,
        address: which.address.map(|prefix| prefix.to_string()),
        from,
        ..Order::default()
    };
    let Answer::Deleted(done) = ask(&mut client, &Request::Delete(order))? else {
        return Err(foreign());
    };
    show(&done, asking, out)?;
    match done.flows_busy {
        0 => complete(&client),
        _ => Err(Failure::failed(
            "not all have ended: delete them again when their calls are over",
        )),
    }
}

/// The one flow that is meant, if one is.
fn key_of(which: &Which) -> Result<Option<Key>, Failure> {
    let (Some(protocol), Some(source), Some(destination)) =
        (&which.protocol, which.source, which.destination)
    else {
        return Ok(None);
    };
    Ok(Some(Key {
        protocol: protocol_number(protocol).map_err(Failure::usage)?,
        source,
        destination,
        vlan: which.vlan,
    }))
}

/// Whether a flow is there and can be moved as is wanted.
fn at_home(
    client: &mut Client,
    key: Key,
    which: &Which,
    from: Option<u16>,
    to: &[u16],
) -> Result<(), Failure> {
    let name = format!(
        "{} {} {}",
        which.protocol.as_deref().unwrap_or_default(),
        key.source,
        key.destination
    );
    let Answer::Flow(found) = ask(client, &Request::Flow(key))? else {
        return Err(foreign());
    };
    let Some(flow) = found else {
        return Err(Failure::failed(format!(
            "there is no flow {name}, or it is on its way at this moment; `flowkeep flow list` shows which there are{}",
            or_elsewhere(client)
        )));
    };
    let at = flow.runtime;
    if from.is_some_and(|from| from != at) {
        return Err(Failure::failed(format!(
            "the flow {name} is at runtime {at}; nothing has been done"
        )));
    }
    if to == [at] {
        return Err(Failure::failed(format!(
            "the flow {name} is at runtime {at} already; it has not moved"
        )));
    }
    Ok(())
}

/// `runtime list`
pub fn list(asking: &Asking, out: &mut dyn Write) -> Result<(), Failure> {
    let mut client = connect(asking)?;
    let runtimes = runtimes(&mut client)?;
    let members = runtimes.iter().filter_map(|of| Some(of.member.as_ref()?.len()));
    let width = members.max().map_or(0, |longest| longest.max("member".len()) + 1);
    let line = |runtime: &dyn fmt::Display,
                member: &str,
                state: &dyn fmt::Display,
                [flows, most, groups, received]: [&dyn fmt::Display; 4]| {
        format!("{runtime:>7}  {member:<width$}{state:<8} {flows:>10} {most:>10} {groups:>10} {received:>12}")
    };
    let heading = if width > 0 { "member" } else { "" };
    let mut lines = vec![line(
        &"runtime",
        heading,
        &"standing",
        [&"flows", &"max", &"groups", &"received"],
    )];
    lines.extend(runtimes.iter().map(|runtime| {
        let figures: [&dyn fmt::Display; 4] = [
            &runtime.flows,
            &runtime.flows_max,
            &runtime.groups,
            &runtime.received,
        ];
        let member = runtime.member.as_deref().unwrap_or_default();
        line(&runtime.runtime, member, &runtime.standing, figures)
    }));
    let report = Runtimes { runtimes };
    show_of(&client, lines.join("\n"), &report, asking, out)
}

/// All runtimes.
#[derive(Serialize, JsonSchema)]
pub(super) struct Runtimes {
    /// Each of them.
    runtimes: Vec<RuntimeStatus>,
}

impl Shape for Runtimes {
    const NAME: &'static str = "runtimes";
}

pub(super) fn runtimes(client: &mut Client) -> Result<Vec<RuntimeStatus>, Failure> {
    match ask(client, &Request::Status)? {
        Answer::Status(status) => Ok(status.runtimes),
        _ => Err(foreign()),
    }
}

/// The outcome of draining.
#[derive(Serialize, JsonSchema)]
pub(super) struct Drained {
    runtime: u16,
    leaving: bool,
    flows_left: u64,
    #[serde(flatten)]
    receipt: Receipt,
    /// `--force` was said, and its flows could not be moved.
    #[serde(skip)]
    keeps: bool,
}

impl Shape for Drained {
    const NAME: &'static str = "runtime-drain";
}

impl fmt::Display for Drained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.receipt)?;
        let keeps = if self.keeps { ", and keeps what it has" } else { "" };
        writeln!(
            f,
            "runtime  {} is leaving{keeps}: flows left {}",
            self.runtime, self.flows_left
        )
    }
}

/// `runtime drain`
pub fn drain(runtime: u16, force: bool, asking: &Asking, out: &mut dyn Write) -> Result<(), Failure> {
    let mut client = connect(asking)?;
    let how = match force {
        true => Leaving::Forced,
        false => Leaving::Drained,
    };
    set_leaving(&mut client, runtime, how)?;
    let (whole, left) = match away(&mut client, runtime) {
        Err(Unmoved::Stays(problem, whole)) if force => {
            return keeps(&mut client, runtime, problem, *whole, asking, out);
        }
        moved => moved.map_err(|unmoved| unmoved.of(runtime))?,
    };
    let of = Drained {
        runtime,
        leaving: true,
        flows_left: left,
        receipt: whole,
        keeps: false,
    };
    show(&of, asking, out)?;
    if left == 0 {
        return Ok(());
    }
    let why = match reasons(&of.receipt) {
        why if why.is_empty() => "they keep beginning there".to_owned(),
        why => why,
    };
    Err(Failure::failed(format!(
        "runtime {runtime} takes no flows any more, and goes on with {}: {why}. {}",
        flows(left),
        what_then(runtime)
    )))
}

/// Tells the state of flows that cannot be moved, at a runtime whose drain was forced.
fn keeps(
    client: &mut Client,
    runtime: u16,
    problem: Failure,
    receipt: Receipt,
    asking: &Asking,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let Ok(runtimes) = runtimes(client) else {
        return Err(Unmoved::Stays(problem, Box::new(receipt)).of(runtime));
    };
    let Some(of) = runtimes.iter().find(|of| of.runtime == runtime && of.leaving) else {
        // Another operator has resumed or removed it meanwhile.
        return Err(problem);
    };
    let left = of.flows;
    let drained = Drained {
        runtime,
        leaving: true,
        flows_left: left,
        receipt,
        keeps: true,
    };
    show(&drained, asking, out)?;
    if left == 0 {
        return Ok(());
    }
    Err(Failure {
        message: format!(
            "{}\nruntime {runtime} is drained all the same, as `--force` has it, and keeps what it has ({}): that stays there and goes on; {NEW_FLOWS}. None moves by \
             itself: when another runtime takes flows again, say `flowkeep runtime drain {runtime}` to move them there, or \
             `flowkeep runtime resume {runtime}` to have it as it was",
            problem.message,
            flows(left)
        ),
        ..problem
    })
}

/// Why flows of a runtime that is drained do not move.
enum Unmoved {
    /// The runtime is not drained any more.
    Resumed(Failure),
    /// The runtime is drained, and no more flows can be moved than have been.
    Stays(Failure, Box<Receipt>),
}

impl Unmoved {
    fn of(self, runtime: u16) -> Failure {
        match self {
            Unmoved::Resumed(problem) => problem,
            Unmoved::Stays(problem, _) => Failure {
                message: format!(
                    "{}\nruntime {runtime} takes no flows any more and goes on with those it has. {}",
                    problem.message,
                    what_then(runtime)
                ),
                ..problem
            },
        }
    }
}

/// Moves the flows of a runtime that is drained to others; the receipt, and how many are left.
pub(super) fn move_away(client: &mut Client, runtime: u16) -> Result<(Receipt, u64), Failure> {
    away(client, runtime).map_err(|unmoved| unmoved.of(runtime))
}

fn away(client: &mut Client, runtime: u16) -> Result<(Receipt, u64), Unmoved> {
    let mut whole = Receipt::empty();
    let mut left = 0;
    for _ in 0..ROUNDS {
        let order = Order {
            from: Some(runtime),
            ..Order::default()
        };
        let stays = |problem| Unmoved::Stays(problem, Box::new(whole.clone()));
        let receipt = carry_out(client, order).map_err(stays)?;
        whole.add_later(&receipt);
        let stays = |problem| Unmoved::Stays(problem, Box::new(whole.clone()));
        let runtimes = runtimes(client).map_err(stays)?;
        let of = runtimes.iter().find(|of| of.runtime == runtime);
        if of.is_some_and(|of| !of.leaving) {
            return Err(Unmoved::Resumed(Failure::failed(format!(
                "runtime {runtime} was resumed meanwhile and takes new flows: {} had moved by then. Say `flowkeep runtime drain {runtime}` again if it is to be empty",
                flows(whole.flows_moved)
            ))));
        }
        let Some(of) = of else {
            // A silent runtime is not in the status.
            let silent = Failure::failed(format!(
                "runtime {runtime} did not answer, so how many flows it has is not known"
            ));
            return Err(Unmoved::Stays(silent, Box::new(whole)));
        };
        left = of.flows;
        if left == 0 || receipt.flows_refused + receipt.flows_failed + receipt.groups_canceled > 0 {
            break;
        }
    }
    Ok((whole, left))
}

/// The remedy for a runtime that is drained in part.
pub(super) fn what_then(runtime: u16) -> String {
    format!(
        "Say `flowkeep runtime drain {runtime}` again to move them, or `flowkeep runtime resume {runtime}` to have it as it was"
    )
}

/// `runtime resume`
pub fn resume(runtime: u16, asking: &Asking, out: &mut dyn Write) -> Result<(), Failure> {
    let mut client = connect(asking)?;
    let taken_back = set_leaving(&mut client, runtime, Leaving::Resumed)?;
    let receipt = match taken_back.is_empty() {
        true => None,
        // The runtime takes new flows already; moves that a drain had under way end.
        false => Some(see_to_the_end(&mut client, &taken_back)?),
    };
    let resumed = Resumed {
        runtime,
        leaving: false,
        receipt,
    };
    show(&resumed, asking, out)
}

/// The outcome of resuming, and of a drain's order.
#[derive(Serialize, JsonSchema)]
pub(super) struct Resumed {
    runtime: u16,
    leaving: bool,
    #[serde(flatten)]
    receipt: Option<Receipt>,
}

impl Shape for Resumed {
    const NAME: &'static str = "runtime-resume";
}

impl fmt::Display for Resumed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(receipt) = &self.receipt {
            write!(f, "{receipt}")?;
        }
        write!(f, "runtime {} takes new flows again", self.runtime)?;
        match self.receipt {
            Some(_) => writeln!(f, "; what draining it had ordered is canceled"),
            None => writeln!(f),
        }
    }
}

/// Says whether a runtime takes flows; parts of orders that were taken back with that.
pub(super) fn set_leaving(
    client: &mut Client,
    runtime: u16,
    leaving: Leaving,
) -> Result<Vec<OrderPart>, Failure> {
    match ask(client, &Request::Leaving { runtime, leaving })? {
        Answer::Leaving(parts) => Ok(parts),
        _ => Err(foreign()),
    }
}

/// Gives the order and waits until it is over, telling people how far it is.
pub(super) fn carry_out(client: &mut Client, order: Order) -> Result<Receipt, Failure> {
    let parts = match ask(client, &Request::Move(order))? {
        Answer::Ordered(parts) => parts,
        _ => return Err(foreign()),
    };
    see_to_the_end(client, &parts)
}

/// Waits until an order is over, telling people how far it is.
pub(super) fn see_to_the_end(client: &mut Client, parts: &[OrderPart]) -> Result<Receipt, Failure> {
    let mut stderr = io::stderr();
    let is_watched = stderr.is_terminal();
    see_through(
        client,
        parts,
        is_watched.then_some(&mut stderr as &mut dyn Write),
        STUCK,
    )
}

/// Asks after an order until it is over. On a terminal a line, which goes again, says how far it
/// is.
fn see_through(
    client: &mut Client,
    parts: &[OrderPart],
    terminal: Option<&mut dyn Write>,
    stuck: Duration,
) -> Result<Receipt, Failure> {
    let mut progress = Progress { terminal };
    let (mut last, mut since) = (Receipt::default(), Instant::now());
    loop {
        let Answer::Receipt(receipt) = ask(
            client,
            &Request::Receipt {
                parts: parts.to_vec(),
            },
        )?
        else {
            return Err(foreign());
        };
        if receipt.over {
            return Ok(receipt);
        }
        if receipt != last {
            (last, since) = (receipt, Instant::now());
            progress.tell(&last);
        } else if since.elapsed() > stuck {
            return Err(Failure::failed(format!(
                "nothing has moved for {} s: {} of {} have, {} groups are on their way and {} wait. They go on by themselves when they can, unless \
                 they are canceled (`flowkeep order list`); \
                 `flowkeep runtime list` shows where flows are, `flowkeep status` whether workers are overloaded or a change of configuration is \
                 under way",
                stuck.as_secs(),
                last.flows_moved,
                flows(last.flows_asked),
                last.groups_under_way,
                last.groups_waiting
            )));
        }
        std::thread::sleep(LOOK);
    }
}

/// A line on the terminal, if there is one, which goes again.
struct Progress<'a> {
    terminal: Option<&'a mut dyn Write>,
}

impl Progress<'_> {
    fn tell(&mut self, receipt: &Receipt) {
        if let Some(terminal) = &mut self.terminal {
            let _ = write!(
                terminal,
                "\r{} of {} flows moved, {} groups waiting\x1b[K",
                receipt.flows_moved, receipt.flows_asked, receipt.groups_waiting
            );
        }
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        if let Some(terminal) = &mut self.terminal {
            let _ = write!(terminal, "\r\x1b[K");
        }
    }
}

pub(super) fn flows(count: u64) -> String {
    match count {
        1 => "1 flow".to_owned(),
        _ => format!("{count} flows"),
    }
}

/// Why flows did not move, and what to do.
pub(super) fn reasons(receipt: &Receipt) -> String {
    let mut reasons = Vec::new();
    if receipt.groups_canceled > 0 {
        reasons.push(format!(
            "the order was canceled before {} of its groups had begun to move",
            receipt.groups_canceled
        ));
    }
    if receipt.flows_refused > 0 {
        reasons.push(format!(
            "{} refused by a runtime that is full or drained (`flowkeep runtime list` shows which)",
            receipt.flows_refused
        ));
    }
    if receipt.flows_failed > 0 {
        reasons.push(format!(
            "{} called back because their move took longer than it may (`move_timeout` of [migration]), or its target is gone (try again)",
            receipt.flows_failed
        ));
    }
    reasons.join(", ")
}
