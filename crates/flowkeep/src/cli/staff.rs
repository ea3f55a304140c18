//! `runtime add` and `runtime remove`.
//!
//! Removing is draining, over and over while flows keep beginning, and then a word to the cluster, which ends the runtime if it is empty or
//! says what it waits for. Until it is gone it is a drained runtime, which goes on with what it has.

use super::asking::{ask, connect, foreign, show};
use super::moving::{carry_out, move_away, reasons, runtimes, set_leaving};
use super::{Asking, Failure};
use crate::control::{Answer, Request};
use crate::moving::{Leaving, Order, Receipt};
use serde::Serialize;
use std::fmt;
use std::io::Write;
use std::time::{Duration, Instant};

/// How often removing is tried.
const LOOK: Duration = Duration::from_millis(50);

/// What came of adding or removing.
#[derive(Serialize)]
struct Changed {
    runtime: u16,
    absent: bool,
    #[serde(flatten)]
    receipt: Option<Receipt>,
}

impl fmt::Display for Changed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(receipt) = &self.receipt {
            write!(f, "{receipt}")?;
        }
        let number = self.runtime;
        match self.absent {
            true => writeln!(
                f,
                "runtime  {number} is gone; `flowkeep runtime add {number}` starts it again"
            ),
            false => writeln!(f, "runtime  {number} is there and takes new flows"),
        }
    }
}

/// `runtime add`
pub fn add(
    runtime: Option<u16>,
    rebalance: bool,
    asking: &Asking,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let mut client = connect(asking)?;
    let Answer::Added(runtime) = ask(&mut client, &Request::Add { runtime })? else {
        return Err(foreign());
    };
    let added = |problem: Failure| Failure {
        message: format!(
            "{}\nruntime {runtime} is there and takes new flows; those of the others that have not moved stay where they are",
            problem.message
        ),
        ..problem
    };
    let mut receipt = None;
    if rebalance {
        let there = runtimes(&mut client).map_err(added)?;
        let there = there.iter().filter(|of| !of.absent).count();
        let order = Order {
            one_in: Some(there as u16),
            to: vec![runtime],
            ..Order::default()
        };
        receipt = Some(carry_out(&mut client, order).map_err(added)?);
    }
    let changed = Changed {
        runtime,
        absent: false,
        receipt,
    };
    show(&changed, asking, out)
}

/// `runtime remove`
pub fn remove(runtime: u16, timeout: Duration, asking: &Asking, out: &mut dyn Write) -> Result<(), Failure> {
    let mut client = connect(asking)?;
    // A member's stay as long as it does: nothing of it is drained for a word that is refused in the end.
    if let Answer::Status(status) = ask(&mut client, &Request::Status)?
        && status.member.is_some()
    {
        return Err(Failure::failed(crate::run::MEMBERS_RUNTIMES));
    }
    set_leaving(&mut client, runtime, Leaving::Drained)?;
    let deadline = Instant::now() + timeout;
    let mut whole = Receipt::empty();
    loop {
        let (receipt, _) = move_away(&mut client, runtime)?;
        whole.add_later(&receipt);
        if receipt.groups_canceled > 0 {
            show(&whole, asking, out)?;
            return Err(Failure::failed(format!(
                "runtime {runtime} is not gone, and takes no flows any more: {}. Say `flowkeep runtime remove {runtime}` again, or \
                 `flowkeep runtime resume {runtime}` to have it as it was",
                reasons(&receipt)
            )));
        }
        let Answer::Removed(removal) = ask(&mut client, &Request::Remove { runtime })? else {
            return Err(foreign());
        };
        if removal.done {
            let changed = Changed {
                runtime,
                absent: true,
                receipt: Some(whole),
            };
            return show(&changed, asking, out);
        }
        if Instant::now() > deadline {
            show(&whole, asking, out)?;
            return Err(Failure::failed(format!(
                "runtime {runtime} is not gone, and takes no flows any more: {removal}. Say `flowkeep runtime remove {runtime}` again, or \
                 `flowkeep runtime resume {runtime}` to have it as it was"
            )));
        }
        std::thread::sleep(LOOK);
    }
}
