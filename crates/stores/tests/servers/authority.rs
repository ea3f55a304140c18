//! Authorities and what they sign, as files in a folder.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use std::path::Path;

pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Writes its certificate. Its name is the file's.
    pub fn new(at: &Path) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let name = at.file_stem().unwrap().to_string_lossy();
        params
            .distinguished_name
            .push(DnType::CommonName, format!("authority `{name}` of a test"));
        let key = KeyPair::generate().unwrap();
        std::fs::write(at, params.self_signed(&key).unwrap().pem()).unwrap();
        Authority {
            issuer: Issuer::new(params, key),
        }
    }

    /// Writes `NAME.crt` and `NAME.key`, for a host by its name or address.
    pub fn sign(&self, folder: &Path, file: &str, host: &str) {
        let params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        self.sign_params(folder, file, params);
    }

    /// The same, of a certificate that has expired.
    pub fn sign_expired(&self, folder: &Path, file: &str, host: &str) {
        let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(2002, 1, 1);
        self.sign_params(folder, file, params);
    }

    fn sign_params(&self, folder: &Path, file: &str, params: CertificateParams) {
        let key = KeyPair::generate().unwrap();
        let signed = params.signed_by(&key, &self.issuer).unwrap();
        std::fs::write(folder.join(format!("{file}.crt")), signed.pem()).unwrap();
        std::fs::write(folder.join(format!("{file}.key")), key.serialize_pem()).unwrap();
    }
}
