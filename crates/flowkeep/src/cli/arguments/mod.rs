//! The words behind each verb, and its help. The modules beside this one carry them out.

mod changing;
mod flows;
mod measuring;
mod running;
mod workers;

pub(super) use changing::ChainVerb;
pub(super) use flows::{Capture, FlowVerb, Listing, Top, Which};
pub(super) use measuring::{Bench, LabVerb, Sim};
pub use measuring::{PageSize, Scenario};
pub(super) use running::{Ending, FunctionVerb, MemberWords, New, NodeWords, Run, Said};
pub(super) use workers::{PortVerb, ReplicationVerb, RuntimeVerb};
