//! Credentials as the value of the header `authorization`.

use waymaker_client::Credentials;
use zeroize::Zeroizing;

/// Returns `Bearer CREDENTIALS`, or `None` if there are no credentials.
pub(crate) fn bearer(credentials: &Credentials) -> Option<Zeroizing<Vec<u8>>> {
    (!credentials.is_empty()).then(|| Zeroizing::new([b"Bearer ", credentials.as_ref()].concat()))
}
