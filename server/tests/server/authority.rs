//! A certificate authority of a test, and the files that programs are given.

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType, IsCa,
    KeyIdMethod, KeyPair, RevokedCertParams, SerialNumber, date_time_ymd,
};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

/// Serial number of the next certificate of any authority.
static NEXT_SERIAL: AtomicU64 = AtomicU64::new(1);

/// Signs certificates and writes them to files, which go with it.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    directory: tempfile::TempDir,
}

/// The files of one certificate.
pub(crate) struct Issued {
    cert: PathBuf,
    key: PathBuf,
    serial: SerialNumber,
}

impl Issued {
    pub(crate) fn cert(&self) -> &str {
        self.cert.to_str().expect("a path of text")
    }

    pub(crate) fn key(&self) -> &str {
        self.key.to_str().expect("a path of text")
    }
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut parameters = CertificateParams::new(Vec::new()).expect("no names");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let directory = tempfile::tempdir().expect("a directory");
        // No two have the same name.
        parameters.distinguished_name.push(DnType::CommonName, directory.path().display().to_string());
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(parameters, key).expect("a certificate");
        std::fs::write(directory.path().join("ca.pem"), issuer.pem()).expect("a file");
        Self { issuer, directory }
    }

    /// The file that makes others believe it.
    pub(crate) fn ca(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    /// A certificate for this machine, in files of this name. What was there is replaced.
    pub(crate) fn issue(&self, name: &str) -> Issued {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut parameters = CertificateParams::new(names).expect("two names");
        parameters.distinguished_name.push(DnType::CommonName, name);
        let serial = SerialNumber::from(NEXT_SERIAL.fetch_add(1, Ordering::Relaxed));
        parameters.serial_number = Some(serial.clone());
        let key = KeyPair::generate().expect("a key");
        let certificate = parameters.signed_by(&key, &self.issuer).expect("a certificate");
        let file = |extension: &str, text: String| {
            let path = self.directory.path().join(name).with_extension(extension);
            std::fs::write(&path, text).expect("a file");
            path
        };
        Issued { cert: file("pem", certificate.pem()), key: file("key", key.serialize_pem()), serial }
    }

    /// Returns a file with the revocation list of this authority. It replaces the file of the list before.
    #[allow(dead_code, reason = "other tests share this file, and revoke nothing")]
    pub(crate) fn revoke(&self, revoked_list: &[&Issued]) -> PathBuf {
        let revoked = |issued: &&Issued| RevokedCertParams {
            serial_number: issued.serial.clone(),
            revocation_time: date_time_ymd(2026, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let parameters = CertificateRevocationListParams {
            this_update: date_time_ymd(2026, 1, 1),
            next_update: date_time_ymd(4000, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked_list.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = parameters.signed_by(&self.issuer).expect("a revocation list");
        let path = self.directory.path().join("revoked.crl");
        std::fs::write(&path, list.pem().expect("a list as text")).expect("a file");
        path
    }
}
