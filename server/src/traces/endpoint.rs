//! Collector of `--otlp-endpoint`.

use crate::option_values::without_user_info;
use crate::peer::{Endpoint, client_config, system_roots};
use std::convert::Infallible;

/// Default port of OTLP over gRPC.
const PORT: u16 = 4317;

/// Reason why `--otlp-endpoint` cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum OtlpOptionError {
    /// The value is not the URL of a server.
    #[error(
        "--otlp-endpoint: {endpoint:?} is not an address; use http://HOST:PORT or https://HOST:PORT, without user, path or query"
    )]
    BadEndpoint {
        /// The value without its user and password.
        endpoint: String,
    },
    /// The collector uses TLS, but the system has no CA certificates.
    #[error("--otlp-endpoint: the system has no CA certificates; install them or use http://")]
    NoRoots,
}

/// Returns the collector with this URL. Loads the CA certificates of the system if the collector uses TLS.
///
/// # Errors
/// Fails if the URL cannot be used, or if the system has no CA certificates for a collector with TLS.
pub fn collector_of(url: &str) -> Result<Endpoint, OtlpOptionError> {
    let config = if url.starts_with("https://") {
        let roots = system_roots().ok_or(OtlpOptionError::NoRoots)?;
        let Ok(config) = client_config(roots, |builder| Ok::<_, Infallible>(builder.with_no_client_auth()));
        Some(config)
    } else {
        None
    };
    let with_port = || format!("{}:{PORT}", url.trim_end_matches('/'));
    let has_scheme = url.starts_with("http://") || url.starts_with("https://");
    let found = Endpoint::parse(url, config.as_ref())
        .or_else(|| Endpoint::parse(&with_port(), config.as_ref()))
        .filter(|_| has_scheme);
    found.ok_or_else(|| OtlpOptionError::BadEndpoint { endpoint: without_user_info(url) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_is_a_url_with_an_optional_port() {
        for (url, shown) in [
            ("http://collector:4317", "http://collector:4317"),
            ("http://collector", "http://collector:4317"),
            ("http://collector/", "http://collector:4317"),
            ("http://[::1]:1", "http://[::1]:1"),
        ] {
            assert_eq!(collector_of(url).unwrap().to_string(), shown, "{url}");
        }
        for url in [
            "",
            "collector:4317",
            "http://",
            "http://a:0",
            "http://a:1/v1/traces",
            "grpc://a:1",
            "http://a:99999",
        ] {
            let error = collector_of(url).unwrap_err().to_string();
            assert!(error.starts_with("--otlp-endpoint: ") && error.contains(url), "{error}");
        }
    }

    #[test]
    fn no_error_shows_a_password() {
        let error = collector_of("http://me:secret@collector:1").unwrap_err().to_string();
        assert!(!error.contains("secret"), "{error}");
    }
}
