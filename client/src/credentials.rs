//! Proof of the identity of a client.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use zeroize::Zeroizing;

/// Maximum length of a token file, in bytes. The limit is above the 3,072 bytes of the binary protocol, because front
/// ends accept longer credentials.
const FILE_LEN_MAX: usize = 8 << 10;

/// Proof of the identity of a client, for example a token. `Debug` does not show it, and it is wiped when the last
/// clone is dropped.
///
/// `waymaker-ctl tokens create` makes tokens.
#[derive(Clone, Default)]
pub struct Credentials(Arc<Zeroizing<Vec<u8>>>);

/// Reason for which credentials cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The file has no token.
    #[error("{}: the file is empty", path.display())]
    Empty {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file is too long for a token.
    #[error("{}: the file is too long for a token; the maximum is {FILE_LEN_MAX} bytes", path.display())]
    TooLong {
        /// Path of the file.
        path: PathBuf,
    },
}

impl Credentials {
    /// Copies the credentials. An empty value means no credentials. The binary protocol accepts at most 3,072 bytes;
    /// [`ClientBuilder::connect`](crate::ClientBuilder::connect) refuses longer ones.
    pub fn new(credentials: impl AsRef<[u8]>) -> Self {
        Self(Arc::new(Zeroizing::new(credentials.as_ref().to_vec())))
    }

    /// Reads a token from a file. White space around the token is removed.
    ///
    /// # Errors
    ///
    /// `CredentialsError` if the file cannot be read, is empty, or is too long for a token.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, CredentialsError> {
        let path = path.as_ref();
        // The buffer has room for the longest file, so it is never reallocated. A reallocation would leave an unwiped
        // copy of the token in memory.
        let mut bytes = Zeroizing::new(Vec::with_capacity(2 * FILE_LEN_MAX));
        File::open(path)
            .and_then(|file| file.take(FILE_LEN_MAX as u64 + 1).read_to_end(&mut bytes))
            .map_err(|source| CredentialsError::Unreadable { path: path.to_owned(), source })?;
        match bytes.trim_ascii() {
            [] => Err(CredentialsError::Empty { path: path.to_owned() }),
            _ if bytes.len() > FILE_LEN_MAX => Err(CredentialsError::TooLong { path: path.to_owned() }),
            token => Ok(Self::new(token)),
        }
    }

    /// Returns whether there are no credentials.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl AsRef<[u8]> for Credentials {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Credentials")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(content: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(&file, content).expect("it is written");
        file
    }

    #[test]
    fn a_file_may_end_with_a_line_end() {
        for content in [&b"wm_1.2"[..], b"wm_1.2\n", b"  wm_1.2\r\n\n"] {
            let credentials = Credentials::from_file(file(content)).expect("a token");
            assert_eq!(credentials.as_ref(), b"wm_1.2");
        }
        assert_eq!(Credentials::from_file(file(&[b'x'; 8_192])).expect("a token").as_ref().len(), 8_192);
    }

    #[test]
    fn a_file_without_a_token_is_refused_with_its_name() {
        let refusal = |content: &[u8]| {
            let file = file(content);
            let error = Credentials::from_file(&file).expect_err("no token").to_string();
            error.strip_prefix(&*file.path().to_string_lossy()).expect("the name").to_owned()
        };
        assert_eq!(refusal(b" \n"), ": the file is empty");
        for content in [vec![b'x'; 8_193], vec![b'x'; 1 << 20], [&[b'x'; 400][..], &[b' '; 10_000]].concat()]
        {
            assert_eq!(refusal(&content), ": the file is too long for a token; the maximum is 8192 bytes");
        }
        let missing = Credentials::from_file("/no/such/file").expect_err("no file").to_string();
        assert!(missing.starts_with("/no/such/file: "), "{missing}");
    }

    #[test]
    fn debug_does_not_show_credentials() {
        assert_eq!(format!("{:?}", Credentials::new("secret")), "Credentials");
    }
}
