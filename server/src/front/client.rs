//! Who is on the other side of a connection of a front end.

use crate::access::{Evidence, Unauthenticated};
use crate::driver::Local;
use http::header::{AUTHORIZATION, HeaderMap};
use std::sync::Arc;
use waymaker_access::Identity;

/// The client of a connection, as the connection shows it.
#[derive(Clone, Debug)]
pub(crate) struct FrontClient {
    peer: Arc<str>,
    evidence: Arc<Evidence>,
}

impl FrontClient {
    /// The client with this address, as people read it.
    pub(super) fn new(peer: String, evidence: Evidence) -> Self {
        Self { peer: peer.into(), evidence: Arc::new(evidence) }
    }

    /// Its address, as people read it.
    pub(super) fn peer(&self) -> &str {
        &self.peer
    }

    /// Finds out who makes a request with these credentials. `None`: nobody knows, and the client may do everything.
    ///
    /// # Errors
    /// If the request has to come from an identity, and does not.
    pub(super) fn identify(&self, credentials: &[u8]) -> Result<Option<Arc<Identity>>, Unauthenticated> {
        Local::with(|local| {
            let now_unix_s = local.node.unix_seconds();
            local.node.access.policy().identify(&self.evidence, credentials, now_unix_s)
        })
    }
}

/// The token in the `authorization` header of a request; empty without one.
pub(super) fn bearer(headers: &HeaderMap) -> &[u8] {
    let value = headers.get(AUTHORIZATION).map(http::HeaderValue::as_bytes).unwrap_or_default();
    let (scheme, token) = value.split_at(value.len().min(b"bearer ".len()));
    // Another scheme is none that the server knows, and its value none of its tokens.
    if scheme.eq_ignore_ascii_case(b"bearer ") { token.trim_ascii() } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn a_token_follows_its_scheme_in_any_letter_case() {
        let token = |value: &'static str| {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static(value))]);
            String::from_utf8(bearer(&headers).to_vec()).unwrap()
        };
        assert_eq!(token("Bearer abc"), "abc");
        assert_eq!(token("bearer  abc "), "abc");
        assert_eq!(token("Basic abc"), "Basic abc");
        assert_eq!(bearer(&HeaderMap::new()), b"");
    }
}
