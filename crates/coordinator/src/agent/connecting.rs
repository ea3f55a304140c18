//! Connections to the coordinator: mutual TLS, and by token where there is no certificate yet.

use super::reaching::{Tried, Tries, first, patience};
use crate::identity::{Identity, Seen, TlsError, Token, Unreadable, client, client_by_token};
use crate::proto;
use crate::proto::coordinator_client::CoordinatorClient;
use crate::refusal::{self, Refusal};
use hyper_util::rt::TokioIo;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData};
use rustls::ClientConfig;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tonic::Status;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

/// A connection on which calls are made.
pub type Client = CoordinatorClient<Channel>;

/// How long a call that is no stream may take.
const CALL: Duration = Duration::from_secs(30);
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// Between two tries to enrol.
const AGAIN: Duration = Duration::from_millis(200);

/// Why a call or a connection failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The own certificate.
    #[error("{0}")]
    Tls(#[from] TlsError),
    /// The token.
    #[error("{0}")]
    Token(#[from] Unreadable),
    /// No connection: the address, the coordinator's certificate, or it does not take this one's.
    #[error("no connection to {address}: {why}")]
    Connection {
        /// Whose.
        address: String,
        /// The whole chain of causes.
        why: String,
    },
    /// No coordinator of several can be reached.
    #[error("{0}")]
    Unreached(Tried),
    /// The coordinator refuses.
    #[error("{}", said(.0))]
    Refused(#[from] Box<Status>),
    /// No key could be made.
    #[error("no key could be made: {0}")]
    Key(#[from] rcgen::Error),
    /// The answer is not a coordinator's.
    #[error("the coordinator's answer has no certificate of its authority")]
    Answer,
}

impl From<Status> for CallError {
    fn from(status: Status) -> Self {
        CallError::Refused(Box::new(status))
    }
}

/// Causes, one behind another; a cause that the text so far ends with is not said again.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.ends_with(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    text
}

/// The text of an answer: the coordinator's words, or why the connection ended.
pub(super) fn said(status: &Status) -> String {
    match std::error::Error::source(status) {
        Some(cause) => format!("{}: {}", status.message(), chain(cause)),
        None => status.message().to_owned(),
    }
}

async fn channel(addresses: &[String], tls: Arc<ClientConfig>, tries: &Tries) -> Result<Channel, CallError> {
    let failed = |why: String| match addresses {
        [address] => CallError::Connection {
            address: address.clone(),
            why,
        },
        _ => CallError::Unreached(tries.last()),
    };
    let (places, heard): (Arc<[String]>, _) = (addresses.into(), tries.clone());
    let connector = service_fn(move |_: tonic::codegen::http::Uri| {
        let (places, tls, heard) = (places.clone(), tls.clone(), heard.clone());
        async move { first(&places, &tls, &heard).await.map(TokioIo::new) }
    });
    let patience = patience(addresses.len());
    let endpoint = Endpoint::from_static("http://coordinator.flowkeep")
        .connect_timeout(patience)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .keep_alive_while_idle(true);
    let channel = tokio::time::timeout(patience, endpoint.connect_with_connector(connector)).await;
    let channel = channel.map_err(|_| failed("it does not answer in time".to_owned()))?;
    channel.map_err(|why| failed(chain(&why)))
}

/// Connects with a certificate.
pub async fn connect(address: &str, identity: &Identity) -> Result<Client, CallError> {
    Ok(connect_any(&[address.to_owned()], identity).await?.0)
}

/// The same, at the first of these addresses that answers. A connection that ends is made again at
/// the first that answers then.
pub async fn connect_any(addresses: &[String], identity: &Identity) -> Result<(Client, Tries), CallError> {
    let tries = Tries::default();
    let channel = channel(addresses, client(identity)?, &tries).await?;
    Ok((CoordinatorClient::new(channel), tries))
}

/// Connects without a certificate, to an authority of this fingerprint, whose certificate is seen
/// then. All calls but `Enrol` are refused.
pub async fn connect_without(address: &str, fingerprint: [u8; 32]) -> Result<(Client, Seen), CallError> {
    let (tls, seen) = client_by_token(fingerprint)?;
    let channel = channel(&[address.to_owned()], tls, &Tries::default()).await?;
    Ok((CoordinatorClient::new(channel), seen))
}

/// Gets a certificate by token: the member's name, and the identity that it shows from now on.
pub async fn enrol(address: &str, token: &str) -> Result<(String, Identity), CallError> {
    let read = Token::read(token)?;
    let (mut client, seen) = connect_without(address, read.fingerprint).await?;
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let request = proto::EnrolRequest {
        token: token.trim().to_owned(),
        public_key: key.der_bytes().to_vec(),
    };
    let answered = tokio::time::timeout(CALL, client.enrol(request)).await;
    let answered = answered.map_err(|_| Status::deadline_exceeded("no answer in time"))?;
    let certificate = answered?.into_inner().certificate;
    let authority = seen.certificate().ok_or(CallError::Answer)?;
    let identity = Identity {
        authority: pem(authority),
        certificate,
        key: key.serialize_pem(),
    };
    // Whether it is one of that authority, and of use with this key.
    client_of(&identity)?;
    Ok((read.member, identity))
}

/// The same, at the first of these addresses that answers, without an async runtime of one's own. A
/// coordinator that begins is waited for, `patience` long.
pub fn enrol_at(
    addresses: &[String],
    token: &str,
    patience: Duration,
) -> Result<(String, Identity), CallError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|why| CallError::from(Status::internal(why.to_string())))?;
    let mut failed = CallError::from(Status::invalid_argument("no coordinator's address"));
    let end = Instant::now() + patience;
    loop {
        for address in addresses {
            match runtime.block_on(enrol(address, token)) {
                Err(unreached @ CallError::Connection { .. }) => failed = unreached,
                Err(CallError::Refused(status))
                    if [Refusal::Settling, Refusal::Busy, Refusal::LogUnwritable]
                        .into_iter()
                        .any(|refusal| refusal::is(&status, refusal)) =>
                {
                    failed = CallError::Refused(status);
                }
                answered => return answered,
            }
        }
        if Instant::now() >= end {
            return Err(failed);
        }
        std::thread::sleep(AGAIN);
    }
}

/// The configuration that was decided last, of the first of these coordinators that answers. A
/// coordinator that begins is waited for, `patience` long.
pub fn configuration_at(
    addresses: &[String],
    identity: &Identity,
    patience: Duration,
) -> Result<proto::Configuration, CallError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|why| CallError::from(Status::internal(why.to_string())))?;
    let ask = async |address: &str| {
        let mut client = connect(address, identity).await?;
        let answered = tokio::time::timeout(CALL, client.configuration(proto::ConfigurationRequest {})).await;
        let answered = answered.map_err(|_| Status::deadline_exceeded("no answer in time"))?;
        Ok::<_, CallError>(answered?.into_inner())
    };
    let mut failed = CallError::from(Status::invalid_argument("no coordinator's address"));
    let end = Instant::now() + patience;
    loop {
        for address in addresses {
            match runtime.block_on(ask(address)) {
                Err(unreached @ CallError::Connection { .. }) => failed = unreached,
                Err(CallError::Refused(status)) if refusal::is(&status, Refusal::Busy) => {
                    failed = CallError::Refused(status);
                }
                answered => return answered,
            }
        }
        if Instant::now() >= end {
            return Err(failed);
        }
        std::thread::sleep(AGAIN);
    }
}

/// Has a member that no configuration lists get numbers, of the first of these coordinators that
/// answers. A coordinator that begins is waited for, `patience` long.
pub fn enlist_at(
    addresses: &[String],
    identity: &Identity,
    request: &proto::EnlistRequest,
    patience: Duration,
) -> Result<proto::EnlistAnswer, CallError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|why| CallError::from(Status::internal(why.to_string())))?;
    let ask = async |address: &str| {
        let mut client = connect(address, identity).await?;
        let answered = tokio::time::timeout(CALL, client.enlist(request.clone())).await;
        let answered = answered.map_err(|_| Status::deadline_exceeded("no answer in time"))?;
        Ok::<_, CallError>(answered?.into_inner())
    };
    let mut failed = CallError::from(Status::invalid_argument("no coordinator's address"));
    let end = Instant::now() + patience;
    loop {
        for address in addresses {
            match runtime.block_on(ask(address)) {
                Err(unreached @ CallError::Connection { .. }) => failed = unreached,
                Err(CallError::Refused(status))
                    if [
                        Refusal::Settling,
                        Refusal::Busy,
                        Refusal::LogUnwritable,
                        Refusal::MemberAway,
                    ]
                    .into_iter()
                    .any(|refusal| refusal::is(&status, refusal)) =>
                {
                    failed = CallError::Refused(status);
                }
                answered => return answered,
            }
        }
        if Instant::now() >= end {
            return Err(failed);
        }
        std::thread::sleep(AGAIN);
    }
}

fn client_of(identity: &Identity) -> Result<(), CallError> {
    client(identity).map(|_| ()).map_err(CallError::Tls)
}

/// A certificate in PEM (RFC 7468).
fn pem(der: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::from("-----BEGIN CERTIFICATE-----\n");
    for (at, three) in der.chunks(3).enumerate() {
        let mut word = [0; 4];
        word[1..=three.len()].copy_from_slice(three);
        let word = u32::from_be_bytes(word);
        for place in 0..4 {
            let letter = LETTERS[(word >> (18 - 6 * place)) as usize & 63];
            text.push(if place > three.len() { '=' } else { letter as char });
        }
        if at % 16 == 15 {
            text.push('\n');
        }
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text + "-----END CERTIFICATE-----\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Authority;
    use rustls::pki_types::{CertificateDer, pem::PemObject};

    #[test]
    fn a_certificate_in_pem_reads_back() {
        let authority = Authority::create(Duration::from_secs(60)).unwrap();
        let caller = crate::identity::Caller::Coordinator;
        let identity = authority.issue(&caller, Duration::from_secs(60)).unwrap();
        let der = CertificateDer::from_pem_slice(identity.certificate.as_bytes()).unwrap();
        for cut in 0..3 {
            let der = &der[..der.len() - cut];
            let again = CertificateDer::from_pem_slice(pem(der).as_bytes()).unwrap();
            assert_eq!(&again[..], der);
        }
    }
}
