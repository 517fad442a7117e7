//! Address of a server.

use std::time::Duration;

use form_urlencoded::Serializer;
use waymaker_client::Tls;

/// Server and namespace.
///
/// ```
/// use std::time::Duration;
/// use waymaker_dialects::locktopus::ConnectionOptions;
///
/// let options = ConnectionOptions::new("127.0.0.1", 7422, "IT & sales").abandon_timeout(Duration::from_secs(5));
/// assert_eq!(options.url(), "ws://127.0.0.1:7422/v1?namespace=IT+%26+sales&abandon-timeout-ms=5000");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionOptions {
    host: String,
    port: u16,
    namespace: String,
    abandon_timeout: Option<Duration>,
    /// Settings of an encrypted connection.
    tls: Option<Tls>,
}

impl ConnectionOptions {
    /// Creates options. The default HTTP port is 7422 for Waymaker and 9009 for the original server.
    pub fn new(host: impl Into<String>, port: u16, namespace: impl Into<String>) -> Self {
        Self { host: host.into(), port, namespace: namespace.into(), abandon_timeout: None, tls: None }
    }

    /// Sets the time for which a lock stays after its connection ends without a release, in whole milliseconds. It
    /// should cover the time to notice the loss and to stop working. The server decides the default: a minute, unless
    /// its options change it.
    #[must_use]
    pub fn abandon_timeout(mut self, timeout: Duration) -> Self {
        self.abandon_timeout = Some(timeout);
        self
    }

    /// Encrypts the connection with these settings. The address then begins with `wss://`.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// TLS settings of an encrypted connection.
    pub(super) fn tls_settings(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    /// Returns the address of these options.
    pub fn url(&self) -> String {
        let Self { host, port, namespace, abandon_timeout, tls } = self;
        let scheme = if tls.is_some() { "wss" } else { "ws" };
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let mut query = Serializer::new(String::new());
        query.append_pair("namespace", namespace);
        if let Some(timeout) = abandon_timeout {
            query.append_pair("abandon-timeout-ms", &timeout.as_millis().to_string());
        }
        format!("{scheme}://{host}:{port}/v1?{}", query.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_address_is_put_in_brackets() {
        assert_eq!(ConnectionOptions::new("::1", 9009, "a").url(), "ws://[::1]:9009/v1?namespace=a");
    }
}
