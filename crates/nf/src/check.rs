//! A check of a server behind a function, as the function's settings ask for it: to be made outside
//! the data path.
//!
//! A function says which checks it wants
//! ([`NetworkFunction::checks`](crate::NetworkFunction::checks)). The process that runs the
//! function makes the checks and tells it each result, by the function's own command: `check
//! SERVICE BACKEND up`, or `down`.
//!
//! Not here: how a check is made (`flowkeep`: health).

use alloc::string::String;
use core::time::Duration;
use wire::Endpoint;

/// The demand that a server has to meet to pass.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Probe {
    /// Take a TCP connection.
    Tcp,
    /// Answer `GET` of this path with a status of 200 to 399.
    Http(String),
}

/// One server to be checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Check {
    /// The service that it is for.
    pub service: String,
    /// Its name there.
    pub backend: String,
    /// Where it is.
    pub at: Endpoint,
    /// The demand.
    pub probe: Probe,
    /// From the beginning of one check to that of the next.
    pub interval: Duration,
    /// How long it may take.
    pub timeout: Duration,
    /// So many checks in a row pass before a server that was down is up.
    pub rise: u16,
    /// So many checks in a row fail before a server that was up is down.
    pub fall: u16,
}
