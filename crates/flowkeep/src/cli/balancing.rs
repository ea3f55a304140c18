//! `runtime rebalance`: some flows of runtimes that do more than the average move to runtimes that
//! do less.
//!
//! The load of each is looked at for a while: packets, and the processor time of its thread. A
//! runtime whose share is above [`ENOUGH`] gives as large a part of its flows as its share is above
//! the average. They go in turn to the runtimes below it, the one with the least load first. It
//! does not know which flows do most: said again, it comes closer.
//!
//! Not here: how new groups are placed by load (`crate::run::placing`).

use super::asking::{ask, complete, connect, foreign, show};
use super::moving::{carry_out, reasons, runtimes};
use super::{Asking, Failure};
use crate::cluster::ThreadShare;
use crate::control::client::Client;
use crate::control::{Answer, Request};
use crate::moving::{Order, Receipt};
use crate::report::RuntimeStatus;
use crate::shape::Shape;
use runtime::switch::Load;
use schemars::JsonSchema;
use serde::Serialize;
use std::fmt;
use std::io::Write;
use std::time::{Duration, Instant};

/// Thousandths of the average that are even enough.
const ENOUGH: u64 = 1100;

/// The outcome of a rebalance.
#[derive(Serialize, JsonSchema)]
pub(super) struct Balanced {
    /// The load of each runtime.
    shares: Vec<Share>,
    #[serde(flatten)]
    receipt: Receipt,
}

impl Shape for Balanced {
    const NAME: &'static str = "runtime-rebalance";
    /// 2: `shares` has named fields.
    const VERSION: u32 = 2;
}

/// A runtime's load before flows moved.
#[derive(Serialize, JsonSchema)]
struct Share {
    /// Which.
    runtime: u16,
    /// Its load in multiples of the average; none where the load is too little to say.
    of_the_average: Option<f64>,
}

impl Share {
    fn of((runtime, thousandths): (u16, Option<u64>)) -> Self {
        Share {
            runtime,
            of_the_average: thousandths.map(|share| share as f64 / 1000.0),
        }
    }
}

impl fmt::Display for Balanced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Share {
            runtime,
            of_the_average,
        } in &self.shares
        {
            match of_the_average {
                Some(share) => writeln!(f, "runtime  {runtime} did {share:.3} of the average")?,
                None => writeln!(f, "runtime  {runtime} did too little to say")?,
            }
        }
        match self.receipt.flows_asked {
            0 => writeln!(f, "no flow has moved: loads are even enough"),
            _ => write!(f, "{}", self.receipt),
        }
    }
}

/// `runtime rebalance`
pub fn rebalance(interval: Duration, asking: &Asking, out: &mut dyn Write) -> Result<(), Failure> {
    let mut client = connect(asking)?;
    let (began, before) = (Instant::now(), sums(&mut client)?);
    std::thread::sleep(interval);
    let now = sums(&mut client)?;
    let there = runtimes(&mut client)?;
    let loads = loads(&before, &now, began.elapsed());
    let takes = |number: u16| {
        let mut all = there.iter();
        all.any(|of| of.runtime == number && !of.leaving && !of.absent)
    };
    let known: Vec<(u16, Load)> = loads.into_iter().filter(|(number, _)| takes(*number)).collect();
    let of: Vec<Option<Load>> = known.iter().map(|(_, load)| Some(*load)).collect();
    let numbers = known.iter().map(|(number, _)| *number);
    let shares: Vec<(u16, Option<u64>)> = numbers.zip(Load::shares(&of)).collect();
    let flows = |number| {
        let mut all = there.iter();
        all.find(|of| of.runtime == number).map_or(0, |of| of.flows)
    };
    let mut receipt = Receipt::empty();
    for order in plan(&shares, flows) {
        receipt.add_later(&carry_out(&mut client, order)?);
    }
    let left = receipt.flows_refused + receipt.flows_failed + receipt.groups_canceled;
    let why = reasons(&receipt);
    let shares = shares.into_iter().map(Share::of).collect();
    show(&Balanced { shares, receipt }, asking, out)?;
    match left {
        0 => complete(&client),
        _ => Err(Failure::failed(format!(
            "not all have moved: {why}. The other flows go on where they are"
        ))),
    }
}

/// Packets and processor time so far, by runtime.
type Sums = Vec<(u16, u64, u64)>;

fn sums(client: &mut Client) -> Result<Sums, Failure> {
    let all = runtimes(client)?;
    let Answer::Threads(threads) = ask(client, &Request::Threads)? else {
        return Err(foreign());
    };
    let sum = |of: &RuntimeStatus| (of.runtime, of.received, cpu_of(&threads, of.runtime));
    Ok(all.iter().map(sum).collect())
}

fn cpu_of(threads: &[ThreadShare], runtime: u16) -> u64 {
    let name = format!("runtime {runtime}");
    let mut threads = threads.iter();
    let thread = threads.find(|thread| thread.workers.contains(&name));
    thread.map_or(0, |thread| thread.cpu_ns / thread.workers.len().max(1) as u64)
}

/// The loads of runtimes that were there both times.
fn loads(before: &Sums, now: &Sums, since: Duration) -> Vec<(u16, Load)> {
    let per = |count: u64, one: u128| {
        let rate = u128::from(count) * one / since.as_nanos().max(1);
        u64::try_from(rate).unwrap_or(u64::MAX)
    };
    let of = |(number, packets, cpu): &(u16, u64, u64)| {
        let (_, packets_then, cpu_then) = before.iter().find(|then| then.0 == *number)?;
        let load = Load {
            packets: per(packets.saturating_sub(*packets_then), 1_000_000_000),
            cpu: per(cpu.saturating_sub(*cpu_then), 1000),
        };
        Some((*number, load))
    };
    now.iter().filter_map(of).collect()
}

/// Which runtime gives how many flows, and to which runtimes in turn.
fn plan(shares: &[(u16, Option<u64>)], flows: impl Fn(u16) -> u64) -> Vec<Order> {
    let known = shares
        .iter()
        .filter_map(|(number, share)| Some((*number, (*share)?)));
    let (over, mut under): (Vec<_>, Vec<_>) = known.partition(|(_, share)| *share > 1000);
    under.retain(|(_, share)| *share < 1000);
    under.sort_by_key(|(_, share)| *share);
    let to: Vec<u16> = under.iter().map(|(number, _)| *number).collect();
    let order = |(from, share): (u16, u64)| {
        let surplus = flows(from).saturating_mul(share - 1000) / share;
        (share > ENOUGH && surplus > 0 && !to.is_empty()).then(|| Order {
            from: Some(from),
            to: to.clone(),
            count: Some(u32::try_from(surplus).unwrap_or(u32::MAX)),
            ..Order::default()
        })
    };
    over.into_iter().filter_map(order).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(shares: &[(u16, Option<u64>)]) -> Vec<(u16, u32, Vec<u16>)> {
        let orders = plan(shares, |_| 300).into_iter();
        orders
            .map(|order| {
                let from = order.from.expect("one gives");
                (from, order.count.expect("some"), order.to)
            })
            .collect()
    }

    #[test]
    fn who_does_more_gives_to_those_who_do_less() {
        let share = |number, share| (number, Some(share));
        let three = [share(0, 1500), share(1, 1000), share(2, 500)];
        assert_eq!(planned(&three), [(0, 100, vec![2])]);
        let four = [share(0, 700), share(1, 1600), share(3, 1200), share(7, 500)];
        assert_eq!(planned(&four), [(1, 112, vec![7, 0]), (3, 50, vec![7, 0])]);
        // Even enough; loads not known; one alone.
        assert!(planned(&[share(0, 1090), share(1, 910)]).is_empty());
        assert!(planned(&[(0, None), (1, None)]).is_empty());
        assert!(planned(&[share(0, 1000)]).is_empty());
    }

    #[test]
    fn loads_are_of_runtimes_that_were_there_both_times() {
        let before = vec![(0, 1000, 0), (1, 9000, 9)];
        let now = vec![(0, 3000, 1_000_000_000), (1, 10, 0), (2, 5, 5)];
        let loads = loads(&before, &now, Duration::from_secs(2));
        let all: Vec<_> = loads
            .iter()
            .map(|(number, of)| (*number, of.packets, of.cpu))
            .collect();
        assert_eq!(all, [(0, 1000, 500), (1, 0, 0)]);
        let threads = [ThreadShare {
            workers: vec!["switch 0".to_owned(), "runtime 1".to_owned()],
            cpu_ns: 10,
        }];
        assert_eq!((cpu_of(&threads, 1), cpu_of(&threads, 0)), (5, 0));
    }
}
