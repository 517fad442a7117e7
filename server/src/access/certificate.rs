//! The names in a client certificate.

use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Returns the names in a certificate: its DNS names, URIs and e-mail addresses in their order, then its common names.
/// TLS has already verified the certificate. Returns no names if the certificate cannot be parsed. Other kinds of names
/// are left out.
pub(crate) fn names_of(der: &[u8]) -> Vec<String> {
    let Ok((_, certificate)) = X509Certificate::from_der(der) else { return Vec::new() };
    let mut names = Vec::new();
    if let Ok(Some(alternatives)) = certificate.subject_alternative_name() {
        names.extend(alternatives.value.general_names.iter().filter_map(|name| match name {
            GeneralName::DNSName(name) | GeneralName::URI(name) | GeneralName::RFC822Name(name) => {
                Some((*name).to_owned())
            }
            _ => None,
        }));
    }
    let common = certificate.subject().iter_common_name().filter_map(|name| name.as_str().ok());
    names.extend(common.map(str::to_owned));
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    #[test]
    fn alternative_names_come_before_the_common_name() {
        let mut params = CertificateParams::new(vec!["ci.example".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, "ci");
        params.subject_alt_names.push(SanType::URI("spiffe://example/ci".try_into().unwrap()));
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        assert_eq!(names_of(certificate.der()), ["ci.example", "spiffe://example/ci", "ci"]);
    }

    #[test]
    fn what_is_no_certificate_has_no_names() {
        assert_eq!(names_of(b"no certificate"), Vec::<String>::new());
    }
}
