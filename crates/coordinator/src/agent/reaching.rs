//! The first of several coordinators that answers.
//!
//! ```text
//!   A ─── refuses ──► B at once
//!   A ─── silent ───► B after AFTER, and A is not given up ─► the one whose handshake is done first
//! ```
//!
//! Of several coordinators the elected one listens. A host that is off refuses nothing: it is
//! silent for as long as a connection may take, and so is a coordinator that stands still.

use crate::identity::SERVER_NAME;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// How long one connection may take to be made.
pub(super) const CONNECT: Duration = Duration::from_secs(5);
/// After which silence of one coordinator the next is asked, too.
const AFTER: Duration = Duration::from_millis(300);

/// The failure of a coordinator that has not answered when another has.
const SILENT: &str = "it has not answered yet";

/// The coordinators that were tried last: their answers and failures.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Tried {
    /// The address that answered.
    pub answered: Option<String>,
    /// The addresses tried before it, and why each failed.
    pub failed: Vec<(String, String)>,
}

impl std::fmt::Display for Tried {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let failed: Vec<String> = self
            .failed
            .iter()
            .map(|(address, why)| format!("{address}: {why}"))
            .collect();
        match &self.answered {
            Some(address) => write!(f, "the coordinator at {address} answers; {}", failed.join("; ")),
            None => write!(f, "no coordinator answers: {}", failed.join("; ")),
        }
    }
}

/// The same, of a connection that is made again where it ends.
#[derive(Clone, Default, Debug)]
pub struct Tries(Arc<Mutex<Tried>>);

impl Tries {
    /// The last.
    pub fn last(&self) -> Tried {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, tried: Tried) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = tried;
    }
}

/// How long it may take until one of so many coordinators is reached, or none.
pub(super) fn patience(addresses: usize) -> Duration {
    AFTER.saturating_mul(u32::try_from(addresses).unwrap_or(u32::MAX)) + CONNECT
}

async fn reach(address: &str, tls: Arc<ClientConfig>) -> io::Result<TlsStream<TcpStream>> {
    let connecting = async {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from(SERVER_NAME).map_err(io::Error::other)?;
        TlsConnector::from(tls).connect(name, stream).await
    };
    let connected = tokio::time::timeout(CONNECT, connecting).await;
    connected.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "it does not answer in time"))?
}

/// A connection to the first that answers.
pub(super) async fn first(
    addresses: &[String],
    tls: &Arc<ClientConfig>,
    tries: &Tries,
) -> io::Result<TlsStream<TcpStream>> {
    let mut trying = JoinSet::new();
    let (mut next, mut waits_for, mut failed) = (addresses.iter(), Vec::new(), Vec::new());
    loop {
        if let Some(address) = next.next() {
            waits_for.push(address.clone());
            let (address, tls) = (address.clone(), tls.clone());
            trying.spawn(async move {
                let reached = reach(&address, tls).await;
                (address, reached)
            });
        }
        let wait = if next.len() == 0 { CONNECT * 2 } else { AFTER };
        match tokio::time::timeout(wait, trying.join_next()).await {
            Ok(Some(Ok((address, reached)))) => {
                waits_for.retain(|other| *other != address);
                match reached {
                    Ok(stream) => {
                        let silent = waits_for.into_iter().map(|other| (other, SILENT.to_owned()));
                        failed.extend(silent);
                        let answered = Some(address);
                        tries.set(Tried { answered, failed });
                        return Ok(stream);
                    }
                    Err(why) => failed.push((address, why.to_string())),
                }
            }
            // A task of this set neither panics nor is given up.
            Ok(Some(Err(_))) | Err(_) => {}
            Ok(None) => {
                let answered = None;
                tries.set(Tried { answered, failed });
                return Err(io::Error::other(tries.last().to_string()));
            }
        }
    }
}
