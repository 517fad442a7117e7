//! URL parameters of Locktopus requests.

use http::Uri;

/// Error text for a URL without a namespace.
pub(super) const NAMESPACE_REQUIRED: &str = "URL parameter 'namespace' is required";
/// Error text for an invalid timeout.
pub(super) const BAD_ABANDON_TIMEOUT: &str = "URL parameter 'abandon-timeout-ms' should be integer value >= 0 \
    representing broken connection timeout (in milliseconds)";

/// Known parameters of a URL. If a name occurs several times, the first value counts.
#[derive(PartialEq, Eq)]
pub(super) struct Parameters {
    namespace: Option<String>,
    abandon_timeout_ms: Option<String>,
    access_token: Option<String>,
}

impl Parameters {
    /// Parses the parameters of this URL.
    pub(super) fn of(uri: &Uri) -> Self {
        let mut parameters = Self { namespace: None, abandon_timeout_ms: None, access_token: None };
        for (name, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
            let parameter = match &*name {
                "namespace" => &mut parameters.namespace,
                "abandon-timeout-ms" => &mut parameters.abandon_timeout_ms,
                "access_token" => &mut parameters.access_token,
                _ => continue,
            };
            parameter.get_or_insert_with(|| value.into_owned());
        }
        parameters
    }

    /// Returns the namespace. An empty name counts as missing.
    pub(super) fn namespace(&self) -> Result<&str, &'static str> {
        self.namespace.as_deref().filter(|name| !name.is_empty()).ok_or(NAMESPACE_REQUIRED)
    }

    /// Returns the token of the client. Browser pages cannot set WebSocket headers, so they send the token in the URL.
    pub(super) fn access_token(&self) -> Option<&str> {
        self.access_token.as_deref()
    }

    /// Returns the time for which a held lock stays held after its connection has ended; `None` if the URL does not set
    /// it. Values above `u32::MAX` are capped.
    pub(super) fn abandon_timeout_ms(&self) -> Result<Option<u32>, &'static str> {
        let Some(text) = &self.abandon_timeout_ms else { return Ok(None) };
        match text.parse::<i64>() {
            Ok(timeout_ms) if timeout_ms >= 0 => Ok(Some(u32::try_from(timeout_ms).unwrap_or(u32::MAX))),
            _ => Err(BAD_ABANDON_TIMEOUT),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(query: &str) -> Parameters {
        Parameters::of(&format!("/v1?{query}").parse().expect("a URI"))
    }

    #[test]
    fn the_namespace_is_required_and_decoded() {
        assert_eq!(of("namespace=a+b%2Fc%C3%A9").namespace(), Ok("a b/cé"));
        assert_eq!(of("x=1&namespace=first&namespace=second").namespace(), Ok("first"));
        for query in ["", "namespace", "namespace=", "Namespace=a", "namespace=&namespace=a"] {
            assert_eq!(of(query).namespace(), Err(NAMESPACE_REQUIRED), "{query}");
        }
        assert_eq!(Parameters::of(&"/v1".parse().expect("a URI")).namespace(), Err(NAMESPACE_REQUIRED));
    }

    #[test]
    fn the_timeout_is_a_whole_number_of_milliseconds() {
        let timeout = |text: &str| of(&format!("abandon-timeout-ms={text}")).abandon_timeout_ms();
        assert_eq!(of("namespace=a").abandon_timeout_ms(), Ok(None));
        assert_eq!(timeout("0"), Ok(Some(0)));
        assert_eq!(timeout("1500"), Ok(Some(1500)));
        assert_eq!(timeout("99999999999"), Ok(Some(u32::MAX)));
        for text in ["", "-1", "1.5", "1s", "%201", "0x10", "99999999999999999999"] {
            assert_eq!(timeout(text), Err(BAD_ABANDON_TIMEOUT), "{text}");
        }
    }
}
