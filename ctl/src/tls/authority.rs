//! The CA: it signs certificates and the revocation list.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SanType, SerialNumber,
};
use waymaker_protocol::Hex;
use x509_parser::pem::Pem;
use x509_parser::prelude::X509Certificate;

use super::Failure;
use super::names::{ClientName, ServerName};
use crate::exit::Exit;

/// Number of days for which a certificate is valid that is not a CA.
pub(super) const LEAF_DAYS_DEFAULT: u32 = 365;
/// Number of days for which a CA and its revocation lists are valid.
const CA_DAYS: u32 = 3650;
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Certificates are valid from this long ago, since clocks differ.
const CLOCK_SKEW: Duration = Duration::from_secs(3600);
/// Names of every server.
const LOCAL_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// A CA that can sign.
#[derive(Debug)]
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    common_name: String,
    expires: SystemTime,
}

/// A certificate with its key.
#[derive(Debug)]
pub(super) struct Issued {
    pub(super) certificate: String,
    pub(super) key: String,
    pub(super) common_name: String,
    pub(super) expires_unix_ms: i64,
}

/// Use of a certificate, with its names.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose<'a> {
    Server(&'a [ServerName]),
    Client(&'a ClientName),
}

impl Authority {
    /// Makes a CA.
    pub(super) fn new() -> Result<Self, Failure> {
        let key = KeyPair::generate()?;
        let mut parameters = CertificateParams::default();
        // No two CAs have the same name: a file of several CAs would be ambiguous.
        let identifier = parameters.key_identifier(&key);
        let digits = Hex(identifier.get(..4).unwrap_or(&identifier));
        let common_name = format!("Waymaker CA {digits}");
        parameters.distinguished_name.push(DnType::CommonName, common_name.as_str());
        parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let expires = validity(&mut parameters, CA_DAYS, None);
        let certificate = parameters.self_signed(&key)?;
        Ok(Self { issuer: Issuer::new(parameters, key), pem: certificate.pem(), common_name, expires })
    }

    /// Takes a CA from its files, which are already parsed as far as `certificate`.
    pub(super) fn of(pem: &str, certificate: &X509Certificate<'_>, key: KeyPair) -> Result<Self, Failure> {
        if certificate.public_key().subject_public_key.data != key.public_key_raw() {
            return Err(Failure::usage("ca.key does not belong to the certificate in ca.pem"));
        }
        let expires = certificate.validity().not_after.timestamp();
        let expires = UNIX_EPOCH + Duration::from_secs(u64::try_from(expires).unwrap_or_default());
        let common_name = certificate.subject().to_string();
        let issuer = Issuer::from_ca_cert_pem(pem, key)?;
        Ok(Self { issuer, pem: pem.to_owned(), common_name, expires })
    }

    /// Returns the certificate and the key of the CA itself.
    pub(super) fn issued(&self) -> Issued {
        Issued {
            certificate: self.pem.clone(),
            key: self.issuer.key().serialize_pem(),
            common_name: self.common_name.clone(),
            expires_unix_ms: unix_ms(self.expires),
        }
    }

    /// Makes a certificate that is valid for so many days, but not longer than the CA.
    pub(super) fn issue(&self, purpose: Purpose<'_>, days: u32) -> Result<Issued, Failure> {
        if self.expires <= SystemTime::now() {
            return Err(Failure::usage("the CA has expired; make another one with `tls init`"));
        }
        let (mut parameters, common_name) = match purpose {
            Purpose::Server(names) => server_parameters(names)?,
            Purpose::Client(name) => client_parameters(name)?,
        };
        parameters.distinguished_name.push(DnType::CommonName, common_name.as_str());
        parameters.is_ca = IsCa::ExplicitNoCa;
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.use_authority_key_identifier_extension = true;
        let expires = validity(&mut parameters, days, Some(self.expires));
        let key = KeyPair::generate()?;
        let certificate = parameters.signed_by(&key, &self.issuer)?;
        Ok(Issued {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            common_name,
            expires_unix_ms: unix_ms(expires),
        })
    }

    /// Makes a revocation list of these certificates, as PEM. Each list has a higher number than the list before.
    pub(super) fn revocation_list(
        &self,
        revoked: &[RevokedCertParams],
        number: u64,
    ) -> Result<String, Failure> {
        let now = SystemTime::now();
        let parameters = CertificateRevocationListParams {
            this_update: (now - CLOCK_SKEW).into(),
            next_update: (now + CA_DAYS * DAY).into(),
            crl_number: SerialNumber::from(number),
            issuing_distribution_point: None,
            revoked_certs: revoked.to_vec(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        Ok(parameters.signed_by(&self.issuer)?.pem()?)
    }

    /// Returns whether the CA has signed this certificate.
    pub(super) fn has_signed(&self, certificate: &X509Certificate<'_>) -> bool {
        let Some(ca) = pem_of(self.pem.as_bytes(), "CERTIFICATE") else { return false };
        ca.parse_x509().is_ok_and(|ca| {
            ca.subject() == certificate.issuer()
                && certificate.verify_signature(Some(ca.public_key())).is_ok()
        })
    }
}

/// Returns the first block of a PEM text if it has this label.
pub(super) fn pem_of(text: &[u8], label: &str) -> Option<Pem> {
    let (_, pem) = x509_parser::pem::parse_x509_pem(text).ok()?;
    (pem.label == label).then_some(pem)
}

fn server_parameters(names: &[ServerName]) -> Result<(CertificateParams, String), Failure> {
    let given = names.iter().map(ServerName::as_str);
    let mut all: Vec<String> = Vec::new();
    for name in LOCAL_NAMES.into_iter().chain(given) {
        if all.iter().all(|other| other != name) {
            all.push(name.to_owned());
        }
    }
    let common_name = names.first().map_or(LOCAL_NAMES[0], ServerName::as_str).to_owned();
    let mut parameters = CertificateParams::new(all)?;
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok((parameters, common_name))
}

fn client_parameters(name: &ClientName) -> Result<(CertificateParams, String), Failure> {
    let text = Ia5String::try_from(name.as_str())?;
    let alternative = if name.is_uri() { SanType::URI(text) } else { SanType::DnsName(text) };
    let mut parameters = CertificateParams::default();
    parameters.subject_alt_names = vec![alternative];
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    Ok((parameters, name.to_string()))
}

/// Sets the validity: so many days from now, but not longer than until `latest`. Returns its end.
fn validity(parameters: &mut CertificateParams, days: u32, latest: Option<SystemTime>) -> SystemTime {
    let now = SystemTime::now();
    let end = now + days * DAY;
    let end = latest.map_or(end, |latest| latest.min(end));
    parameters.not_before = (now - CLOCK_SKEW).into();
    parameters.not_after = end.into();
    end
}

fn unix_ms(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

impl From<rcgen::Error> for Failure {
    fn from(error: rcgen::Error) -> Self {
        Self { problem: format!("cannot make a certificate: {error}"), exit: Exit::Internal }
    }
}
