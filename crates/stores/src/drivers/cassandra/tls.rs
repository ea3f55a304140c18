//! TLS to the nodes: the files that the settings of a `cassandras` URI name, and which node is
//! believed.
//!
//! ```text
//!   URI ── ca, cert, key, name ──► Tls ── config ──► the library, for each connection
//!                                   ▲                    │ address, its certificate
//!                                   ├── why not ──── Verifier: for `name`, the address, a host?
//!                                   └── is asked ─── Ours: what the node asks of us
//! ```
//!
//! *Names.* The library tells the verifier the address of a connection and no name: of most nodes
//! it knows nothing else, since the first one lists the others by address. So a certificate is good
//! for the address, and for a host that the URI writes as a name. With `name` it is good for that
//! name alone, whatever the address. In each case one of the authorities has to have signed it.
//!
//! Invariants: no certificate is taken unlooked at, and none twice after one look (sessions are not
//! resumed), so that an expiry is seen by the next connection. Files are read once.
//!
//! Not here: which library computes. It is `ring`, as everywhere in Flowkeep
//! (`docs/decisions/0027-ciphers-of-cassandras-library.md`).

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, Resumption, WebPkiServerVerifier};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::fmt::Display;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The problem, and the remedy.
pub type Problem = (String, &'static str);

const FILE: &str = "name a file in PEM that this process may read";
const AUTHORITY: &str = "name the authority that signed the nodes' certificates: cassandras://HOST?ca=FILE";
const NAME: &str = "write the host as the node's certificate has it, or add what the certificates of all nodes have: &name=NAME";
const EXPIRED: &str = "renew the node's certificate, and see that the clocks here and there are right";
const OURS: &str = "set `cert` and `key` to a certificate that an authority in the nodes' truststore signed and that has not expired: \
                    cassandras://HOST?ca=FILE&cert=FILE&key=FILE";
const PLAIN: &str = "the port speaks no TLS: set `client_encryption_options` in cassandra.yaml, or write cassandra:// without `ca`, \
                     `cert`, `key` and `name`";
const VERSION: &str = "have the nodes accept TLS 1.2 or 1.3 with AES-GCM or ChaCha20";
const UNKNOWN: &str =
    "see that a node runs, that its port speaks TLS and that nothing is in the way; changes wait meanwhile";

/// The settings of a URI.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsSettings {
    pub ca: Option<String>,
    pub cert: Option<String>,
    pub key: Option<String>,
    pub name: Option<String>,
}

impl TlsSettings {
    /// Where the setting of this word is kept.
    pub fn place(&mut self, word: &str) -> Option<&mut Option<String>> {
        match word {
            "ca" => Some(&mut self.ca),
            "cert" => Some(&mut self.cert),
            "key" => Some(&mut self.key),
            "name" => Some(&mut self.name),
            _ => None,
        }
    }
}

/// The part that all connections of a store share.
pub struct Tls {
    pub config: Arc<ClientConfig>,
    seen: Seen,
}

/// Findings of the handshakes of a session.
#[derive(Clone, Default, Debug)]
struct Seen(Arc<Mutex<Sights>>);

#[derive(Default, Debug)]
struct Sights {
    /// Why a node's certificate was not taken.
    refused: Option<Problem>,
    /// A node asked for our certificate.
    is_asked: bool,
}

impl Seen {
    fn lock(&self) -> MutexGuard<'_, Sights> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tls {
    /// Reads the files. `nodes` are the hosts of the URI, each with its port.
    pub fn of(settings: &TlsSettings, nodes: &[String]) -> Result<Self, Problem> {
        let provider = Arc::new(default_provider());
        let seen = Seen::default();
        let roots = Arc::new(roots(settings.ca.as_deref())?);
        let webpki = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider)).build();
        let names = match &settings.name {
            Some(name) => vec![
                ServerName::try_from(name.clone())
                    .map_err(|_| (format!("`name` is {name}: no name of a host"), NAME))?,
            ],
            None => nodes.iter().filter_map(|node| host_name(node)).collect(),
        };
        let verifier = Verifier {
            webpki: webpki.map_err(|error| (format!("`ca`: {error}"), AUTHORITY))?,
            takes_address: settings.name.is_none(),
            names,
            seen: seen.clone(),
        };
        let certified = match (&settings.cert, &settings.key) {
            (None, None) => None,
            (Some(cert), Some(key)) => {
                let chain = certificates("cert", cert)?;
                let private = PrivateKeyDer::from_pem_slice(&read("key", key)?)
                    .map_err(|error| (format!("`key` is {key}: {error}"), FILE))?;
                let certified = CertifiedKey::from_der(chain, private, &provider).map_err(|error| {
                    let problem = format!("`cert` is {cert} and `key` is {key}: {error}");
                    (problem, "name a certificate and its own key")
                })?;
                Some(Arc::new(certified))
            }
            _ => {
                return Err((
                    "it has one of `cert` and `key`".to_owned(),
                    "write both, or neither",
                ));
            }
        };
        let ours = Ours {
            certified,
            seen: seen.clone(),
        };
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| (error.to_string(), VERSION))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_cert_resolver(Arc::new(ours));
        config.resumption = Resumption::disabled();
        Ok(Tls {
            config: Arc::new(config),
            seen,
        })
    }

    /// Forgets the findings of handshakes: another session begins.
    pub fn begin(&self) {
        *self.seen.lock() = Sights::default();
    }

    /// Why no session came about, of which the library says `text`.
    pub fn problem(&self, text: String) -> Problem {
        let mut seen = self.seen.lock();
        if let Some(problem) = seen.refused.take() {
            return problem;
        }
        let has = |part| text.contains(part);
        if has("alert: HandshakeFailure") || has("alert: ProtocolVersion") {
            (text, VERSION)
        } else if has("corrupt message") {
            (text, PLAIN)
        } else if seen.is_asked && (has("fatal alert") || has("broken")) {
            // With TLS 1.3 the node refuses behind the handshake, and the library does not always
            // read why.
            (format!("{text} (the node asked for a certificate of ours)"), OURS)
        } else {
            (text, UNKNOWN)
        }
    }
}

fn read(setting: &str, path: &str) -> Result<Vec<u8>, Problem> {
    std::fs::read(path).map_err(|error| (format!("`{setting}` is {path}: {error}"), FILE))
}

fn certificates(setting: &str, path: &str) -> Result<Vec<CertificateDer<'static>>, Problem> {
    let wrong = |error: &dyn Display| (format!("`{setting}` is {path}: {error}"), FILE);
    let pem = read(setting, path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let found = found.map_err(|error| wrong(&error))?;
    match found.is_empty() {
        true => Err(wrong(&"it has no certificate")),
        false => Ok(found),
    }
}

/// The authorities in a file, or the system's.
fn roots(ca: Option<&str>) -> Result<RootCertStore, Problem> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(path) => {
            for certificate in certificates("ca", path)? {
                let added = roots.add(certificate);
                added.map_err(|error| (format!("`ca` is {path}: {error}"), FILE))?;
            }
        }
        None => {
            // As the system has them: an unreadable authority is left out, as the system's other
            // programs do.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err((
                    "there is no `ca`, and the system trusts no authority".to_owned(),
                    AUTHORITY,
                ));
            }
        }
    }
    Ok(roots)
}

/// The name of a node, without its port; none where it is an address.
fn host_name(node: &str) -> Option<ServerName<'static>> {
    let (host, _) = node.rsplit_once(':')?;
    match host.starts_with('[') || host.parse::<IpAddr>().is_ok() {
        true => None,
        false => ServerName::try_from(host.to_owned()).ok(),
    }
}

/// Looks at the nodes' certificates.
#[derive(Debug)]
struct Verifier {
    webpki: Arc<WebPkiServerVerifier>,
    takes_address: bool,
    names: Vec<ServerName<'static>>,
    seen: Seen,
}

impl Verifier {
    fn refuse(&self, error: &Error, address: &ServerName<'_>) {
        let Error::InvalidCertificate(problem) = error else {
            return;
        };
        let remedy = match problem {
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. } => EXPIRED,
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => NAME,
            _ => AUTHORITY,
        };
        let text = format!("node {}: {error}", address.to_str());
        self.seen.lock().refused = Some((text, remedy));
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let names = self.names.iter().chain(self.takes_address.then_some(server_name));
        let mut last = Error::InvalidCertificate(CertificateError::NotValidForName);
        for name in names {
            // All of it for each name: nothing hangs on the order in which the library looks.
            let looked = self
                .webpki
                .verify_server_cert(end_entity, intermediates, name, ocsp_response, now);
            match looked {
                Ok(good) => return Ok(good),
                Err(error) => last = error,
            }
        }
        self.refuse(&last, server_name);
        Err(last)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
}

/// Our certificate, for nodes that ask for it.
#[derive(Debug)]
struct Ours {
    certified: Option<Arc<CertifiedKey>>,
    seen: Seen,
}

impl ResolvesClientCert for Ours {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.seen.lock().is_asked = true;
        self.certified.clone()
    }

    fn has_certs(&self) -> bool {
        // Also without one: that it was asked for is to be seen.
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tls(name: Option<&str>) -> Result<Tls, Problem> {
        let folder = tempfile::tempdir().unwrap();
        let ca = folder.path().join("ca.pem");
        let key = rcgen::KeyPair::generate().unwrap();
        let authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
        std::fs::write(&ca, authority.self_signed(&key).unwrap().pem()).unwrap();
        let settings = TlsSettings {
            ca: Some(ca.display().to_string()),
            name: name.map(str::to_owned),
            ..TlsSettings::default()
        };
        Tls::of(&settings, &["a.b:9042".to_owned()])
    }

    #[test]
    fn only_a_host_that_is_no_address_is_a_name() {
        assert_eq!(host_name("a.b:9042"), ServerName::try_from("a.b").ok());
        for node in ["10.0.0.1:9042", "[::1]:9042", "no name:9042"] {
            assert_eq!(host_name(node), None, "{node}");
        }
        let (problem, remedy) = tls(Some("no name")).err().unwrap();
        assert_eq!(problem, "`name` is no name: no name of a host");
        assert_eq!(remedy, NAME);
    }

    #[test]
    fn a_broken_connection_is_our_certificates_fault_only_where_one_was_asked_for() {
        let tls = tls(None).unwrap();
        let remedy = |text: &str| tls.problem(text.to_owned()).1;
        assert_eq!(remedy("Connection broken"), UNKNOWN);
        assert_eq!(remedy("received corrupt message of type X"), PLAIN);
        assert_eq!(remedy("received fatal alert: HandshakeFailure"), VERSION);
        let resolver = &tls.config.client_auth_cert_resolver;
        assert!(resolver.resolve(&[], &[]).is_none());
        assert_eq!(remedy("Connection broken"), OURS);
        assert_eq!(remedy("it does not answer"), UNKNOWN);
        tls.begin();
        assert_eq!(remedy("Connection broken"), UNKNOWN);
    }
}
