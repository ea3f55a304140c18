//! The cluster's authority, and the certificates that it makes.
//!
//! Invariants: no file is overwritten; each file with a key can be read by its owner alone (mode
//! 0600).

use super::Caller;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, SanType, SignatureAlgorithm,
    date_time_ymd,
};
use std::fs::{OpenOptions, read_to_string};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A failure with a file or a certificate.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// A file.
    #[error("{}: {source}{}", path.display(), remedy(source.kind()))]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A key or a certificate.
    #[error("{}: {problem}", path.display())]
    Content {
        /// Which file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// A malformed public key.
    #[error("the public key is no uncompressed point of P-256 (65 bytes, the first one 4)")]
    PublicKey,
    /// The library's error.
    #[error("no certificate could be made: {0}")]
    Making(#[from] rcgen::Error),
}

/// The remedy for an error with a file.
const fn remedy(why: io::ErrorKind) -> &'static str {
    match why {
        io::ErrorKind::AlreadyExists => {
            "; a cluster's certificates are here already: go on with these, or name another directory"
        }
        io::ErrorKind::NotFound => {
            "; `flowkeep cluster init` makes a directory with it, and certificates read, operate and admin"
        }
        io::ErrorKind::PermissionDenied => "; ask as the user that this directory belongs to",
        _ => "",
    }
}

/// A certificate with its key, and the authority's certificate. All PEM.
#[derive(Clone)]
pub struct Identity {
    /// The authority's certificate.
    pub authority: String,
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

impl Identity {
    /// Reads `ca.pem`, `NAME.pem` and `NAME.key` of a directory.
    pub fn read(directory: &Path, name: &str) -> Result<Self, AuthorityError> {
        Ok(Identity {
            authority: read(&directory.join("ca.pem"))?,
            certificate: read(&directory.join(format!("{name}.pem")))?,
            key: read(&directory.join(format!("{name}.key")))?,
        })
    }

    /// Writes `NAME.pem` and `NAME.key` into a directory.
    pub fn write(&self, directory: &Path, name: &str) -> Result<(), AuthorityError> {
        // Where there is a certificate there is its key.
        write_private(&directory.join(format!("{name}.key")), &self.key)?;
        write_private(&directory.join(format!("{name}.pem")), &self.certificate)
    }
}

/// Makes certificates of one cluster.
pub struct Authority {
    key: KeyPair,
    certificate: String,
    der: Vec<u8>,
}

/// A public key without its private key.
struct Foreign<'a>(&'a [u8]);

impl PublicKeyData for Foreign<'_> {
    fn der_bytes(&self) -> &[u8] {
        self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

impl Authority {
    /// A new one, good for `valid`.
    pub fn create(valid: Duration) -> Result<Self, AuthorityError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = authority_params();
        params.not_after = end(valid);
        let certificate = params.self_signed(&key)?;
        Ok(Authority {
            key,
            certificate: certificate.pem(),
            der: certificate.der().to_vec(),
        })
    }

    /// Reads `ca.pem` and `ca.key` of a directory.
    pub fn read(directory: &Path) -> Result<Self, AuthorityError> {
        use rustls::pki_types::{CertificateDer, pem::PemObject};
        let (key_path, path) = (directory.join("ca.key"), directory.join("ca.pem"));
        let content = |path: &Path, problem: String| AuthorityError::Content {
            path: path.to_owned(),
            problem,
        };
        let key = KeyPair::from_pem(&read(&key_path)?).map_err(|why| content(&key_path, why.to_string()))?;
        let certificate = read(&path)?;
        let der = CertificateDer::from_pem_slice(certificate.as_bytes());
        let der = der.map_err(|why| content(&path, why.to_string()))?.to_vec();
        Ok(Authority {
            key,
            certificate,
            der,
        })
    }

    /// Writes `ca.pem` and `ca.key` into a directory.
    pub fn write(&self, directory: &Path) -> Result<(), AuthorityError> {
        write_private(&directory.join("ca.key"), &self.key.serialize_pem())?;
        write_private(&directory.join("ca.pem"), &self.certificate)
    }

    /// A key, and a certificate for it.
    pub fn issue(&self, caller: &Caller, valid: Duration) -> Result<Identity, AuthorityError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        Ok(Identity {
            authority: self.certificate.clone(),
            certificate: self.certify(caller, key.public_key_raw(), valid)?,
            key: key.serialize_pem(),
        })
    }

    /// A certificate for a public key, an uncompressed point of P-256. It is of use only with the
    /// private key.
    pub fn certify(&self, caller: &Caller, key: &[u8], valid: Duration) -> Result<String, AuthorityError> {
        if key.len() != 65 || key[0] != 4 {
            return Err(AuthorityError::PublicKey);
        }
        let mut params = CertificateParams::default();
        params.distinguished_name = named(&caller.to_string());
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = end(valid);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.subject_alt_names = vec![SanType::URI(caller.address().try_into()?)];
        if *caller == Caller::Coordinator {
            let name = SanType::DnsName(super::SERVER_NAME.try_into()?);
            params.subject_alt_names.push(name);
            let server = ExtendedKeyUsagePurpose::ServerAuth;
            params.extended_key_usages.push(server);
        }
        let issuer = Issuer::new(authority_params(), &self.key);
        Ok(params.signed_by(&Foreign(key), &issuer)?.pem())
    }

    /// The fingerprint by which a token names this authority.
    pub fn fingerprint(&self) -> [u8; 32] {
        *blake3::hash(&self.der).as_bytes()
    }

    /// The key with which tokens are made and judged.
    pub(super) fn token_key(&self) -> [u8; 32] {
        blake3::derive_key("flowkeep join token", &self.key.serialize_der())
    }
}

fn authority_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = named("flowkeep cluster");
    params.not_before = date_time_ymd(2000, 1, 1);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    params
}

fn named(name: &str) -> DistinguishedName {
    let mut all = DistinguishedName::new();
    all.push(DnType::CommonName, name);
    all
}

fn end(valid: Duration) -> time::OffsetDateTime {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // Certificates end in the year 9999 at the latest.
    let most = Duration::from_secs(200 * 365 * 86_400);
    date_time_ymd(1970, 1, 1) + now.saturating_add(valid).min(most)
}

fn read(path: &Path) -> Result<String, AuthorityError> {
    read_to_string(path).map_err(|source| AuthorityError::File {
        path: path.to_owned(),
        source,
    })
}

/// Writes a file that was not there, for its owner alone.
pub fn write_private(path: &Path, text: &str) -> Result<(), AuthorityError> {
    let failed = |source| AuthorityError::File {
        path: path.to_owned(),
        source,
    };
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    file.sync_all().map_err(failed)
}
