//! The kernel of a host, as `forward` sees it: it says which neighbours there are, and hears which
//! are wanted.
//!
//! Not here: tables and feeds, which are the function's. The caller hands over what speaks with
//! them ([`Planned`]), since functions and simulator do not see each other.

use runtime::chain::Plan;
use std::rc::Rc;

/// A host of the network, as tables have it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Station {
    /// Its address.
    pub addr: [u8; 4],
    /// The port that it is behind.
    pub port: u8,
    /// Its link address, if the kernel knows it.
    pub link: Option<[u8; 6]>,
}

/// The way to the tables of the functions of one plan.
pub trait Kernel {
    /// Before the first tables: a number that no other kernel of the run has.
    fn begin(&self, number: u64);
    /// These stations are in force from now on. `own` is the router's: for each port its link
    /// address, and an address of it.
    fn publish(&self, own: &[([u8; 6], [u8; 4])], stations: &[Station]);
    /// Which neighbours workers want, since this was asked last.
    fn wanted(&self) -> Vec<[u8; 4]>;
}

/// A plan, and the way to its tables.
#[derive(Clone)]
pub struct Planned {
    /// The plan.
    pub plan: Plan,
    /// `None` where no function has such tables. Each plan has tables of its own.
    pub kernel: Option<Rc<dyn Kernel>>,
}

impl From<Plan> for Planned {
    fn from(plan: Plan) -> Self {
        Planned { plan, kernel: None }
    }
}
