//! TLS 1.3 between the parties, and the name of the reason where it ends.

use super::{Caller, Identity};
use crate::refusal::Refusal;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, ServerConfig,
    SignatureScheme,
};
use std::io;
use std::sync::Arc;

/// The name that the coordinator's certificate has, whatever its address.
pub const SERVER_NAME: &str = "coordinator.flowkeep";

/// A certificate or a key that TLS cannot use.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// No PEM, or no certificate or key in it.
    #[error("no certificate or key in PEM: {0}")]
    Pem(#[from] rustls::pki_types::pem::Error),
    /// The library does not take it.
    #[error("TLS does not take the certificate or its key: {0}")]
    Refused(#[from] Error),
    /// The authority's certificate is none.
    #[error("TLS does not take the authority: {0}")]
    Authority(#[from] rustls::server::VerifierBuilderError),
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn roots(authority: &CertificateDer<'static>) -> Result<Arc<RootCertStore>, Error> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.clone())?;
    Ok(Arc::new(roots))
}

/// The coordinator's end. Certificates are judged if there is one; the service decides which calls
/// need none.
pub fn server(identity: &Identity) -> Result<Arc<ServerConfig>, TlsError> {
    let authority = CertificateDer::from_pem_slice(identity.authority.as_bytes())?;
    let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes())?;
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())?;
    let verifier = WebPkiClientVerifier::builder_with_provider(roots(&authority)?, provider())
        .allow_unauthenticated()
        .build()?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(verifier)
        // With the authority's, by which a process that has a token only knows the coordinator.
        .with_single_cert(vec![certificate, authority], key)?;
    // A resumed session would not look at the certificate's time.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config))
}

/// The end of a member or an operator.
pub fn client(identity: &Identity) -> Result<Arc<ClientConfig>, TlsError> {
    let authority = CertificateDer::from_pem_slice(identity.authority.as_bytes())?;
    let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes())?;
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())?;
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots(&authority)?)
        .with_client_auth_cert(vec![certificate], key)?;
    config.resumption = rustls::client::Resumption::disabled();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config))
}

/// The end of a process that has a token only: it trusts the authority of which the token has the
/// fingerprint.
pub fn client_by_token(fingerprint: [u8; 32]) -> Result<(Arc<ClientConfig>, Seen), TlsError> {
    let seen = Seen::default();
    let pinned = Pinned {
        fingerprint,
        seen: seen.clone(),
    };
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(pinned))
        .with_no_client_auth();
    config.resumption = rustls::client::Resumption::disabled();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok((Arc::new(config), seen))
}

/// The authority's certificate, once a handshake has shown it.
#[derive(Clone, Default, Debug)]
pub struct Seen(Arc<std::sync::OnceLock<Vec<u8>>>);

impl Seen {
    /// In DER.
    pub fn certificate(&self) -> Option<&[u8]> {
        self.0.get().map(Vec::as_slice)
    }
}

#[derive(Debug)]
struct Pinned {
    fingerprint: [u8; 32],
    seen: Seen,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let is_it = |der: &&CertificateDer<'_>| *blake3::hash(der).as_bytes() == self.fingerprint;
        let authority = intermediates.iter().find(is_it);
        let authority = authority.ok_or(Error::InvalidCertificate(CertificateError::UnknownIssuer))?;
        let authority = authority.clone().into_owned();
        let verifier = WebPkiServerVerifier::builder_with_provider(roots(&authority)?, provider())
            .build()
            .map_err(|why| Error::General(why.to_string()))?;
        let good = verifier.verify_server_cert(end_entity, &[], server_name, ocsp_response, now)?;
        self.seen.0.get_or_init(|| authority.to_vec());
        Ok(good)
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 is not spoken here".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}

/// The caller that has this certificate.
pub(crate) fn caller(certificate: &CertificateDer<'_>) -> Option<Caller> {
    let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
    let mut names = certificate.valid_uri_names();
    names.find_map(Caller::from_address)
}

/// The name of the reason for which a handshake ended.
pub fn why_refused(error: &io::Error) -> Refusal {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    match inner {
        Some(Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        )) => Refusal::CertificateExpired,
        Some(Error::InvalidCertificate(_)) => Refusal::CertificateUnknown,
        // The other end does not take the coordinator's.
        Some(Error::AlertReceived(_)) => Refusal::CertificateUnknown,
        _ => Refusal::NotTls,
    }
}
