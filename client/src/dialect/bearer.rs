//! Credentials as the value of the header `authorization`.

use zeroize::Zeroizing;

use crate::credentials::Credentials;

/// Returns `Bearer CREDENTIALS`, or `None` if there are no credentials.
pub(super) fn bearer(credentials: &Credentials) -> Option<Zeroizing<Vec<u8>>> {
    (!credentials.is_empty()).then(|| Zeroizing::new([b"Bearer ", credentials.as_ref()].concat()))
}
