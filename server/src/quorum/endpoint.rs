//! The addresses of etcd members.

use super::options::{QuorumOptions, QuorumOptionsError};
use super::tls;
use crate::option_values::without_user_info;
use crate::peer::Endpoint;

/// Parses all endpoints; an empty list is an error. Reads the TLS files if an endpoint needs them.
pub(super) fn endpoints(options: &QuorumOptions) -> Result<Vec<Endpoint>, QuorumOptionsError> {
    if options.endpoints.is_empty() {
        return Err(QuorumOptionsError::NoEndpoint);
    }
    let is_encrypted = |text: &String| text.starts_with("https://");
    let config = options.endpoints.iter().any(is_encrypted).then(|| tls::read(options)).transpose()?;
    let files =
        [("--quorum-ca", &options.ca), ("--quorum-cert", &options.cert), ("--quorum-key", &options.key)];
    let given = files.iter().find(|(_, file)| file.is_some());
    // If the operator names TLS files, refuse a member that is reached without TLS. The operator expects TLS for all
    // members, for example because a password must not go to a member in plain text.
    if let (Some((option, _)), Some(endpoint)) =
        (given, options.endpoints.iter().find(|text| !is_encrypted(text)))
    {
        let endpoint = without_user_info(endpoint);
        return Err(QuorumOptionsError::NotEncrypted { option, endpoint });
    }
    let parse = |text: &String| {
        Endpoint::parse(text, config.as_ref())
            .ok_or_else(|| QuorumOptionsError::BadEndpoint { endpoint: without_user_info(text) })
    };
    options.endpoints.iter().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(options: &QuorumOptions) -> String {
        endpoints(options).unwrap_err().to_string()
    }

    #[test]
    fn text_that_is_no_address_is_rejected_with_its_option() {
        let options =
            |endpoint: &str| QuorumOptions { endpoints: vec![endpoint.to_owned()], ..Default::default() };
        for endpoint in [
            "",
            ":2379",
            "etcd.example",
            "http://etcd.example",
            "etcd.example:0",
            "etcd.example:99999",
            "unix://etcd:1",
            "http://a:1/path",
            "a:1,b:1",
            "http://user@etcd:1",
        ] {
            let error = refused(&options(endpoint));
            let shown = without_user_info(endpoint);
            assert!(error.starts_with("--quorum-endpoints: ") && error.contains(&shown), "{error}");
        }
    }

    #[test]
    fn no_error_shows_the_password_of_an_endpoint() {
        let endpoints = vec!["http://me:secret@etcd:1".to_owned()];
        let plain = QuorumOptions { endpoints, ..Default::default() };
        let with_ca = QuorumOptions { ca: Some("ca.pem".into()), ..plain.clone() };
        for options in [plain, with_ca] {
            let error = refused(&options);
            assert!(error.contains("***@etcd:1") && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn invalid_tls_options_are_rejected_by_name() {
        let plain = QuorumOptions { endpoints: vec!["http://etcd:2379".to_owned()], ..Default::default() };
        let encrypted =
            QuorumOptions { endpoints: vec!["https://etcd:2379".to_owned()], ..Default::default() };
        let file = || Some("/nowhere.pem".into());
        for (options, expected) in [
            (QuorumOptions::default(), "--quorum-endpoints: the list is empty; name at least one member"),
            (
                QuorumOptions { ca: file(), ..plain.clone() },
                "--quorum-ca: the member http://etcd:2379 is reached without TLS",
            ),
            (
                QuorumOptions { cert: file(), ..plain },
                "--quorum-cert: the member http://etcd:2379 is reached without TLS",
            ),
            (QuorumOptions { ca: file(), ..encrypted }, "--quorum-ca: cannot read /nowhere.pem: "),
        ] {
            let error = refused(&options);
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
