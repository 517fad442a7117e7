//! The secret part of a token, and its stored digest.

use std::fmt;

use base64ct::{Base64UrlUnpadded, Encoding};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use waymaker_protocol::Hex;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::hex;

/// Length of a secret in bytes.
pub(crate) const SECRET_LEN: usize = 32;
/// Length of a secret as text: base64url without padding.
pub(crate) const SECRET_TEXT_LEN: usize = 43;

/// The secret of a token: 256 random bits. It cannot be printed or compared, and it is wiped when it is dropped.
///
/// The bytes are boxed, because a move would leave an unwiped copy behind.
pub struct Secret(Box<[u8; SECRET_LEN]>);

impl Secret {
    pub(crate) fn from_bytes(bytes: &[u8; SECRET_LEN]) -> Self {
        Self(Box::new(*bytes))
    }

    /// Parses the text of a secret. The time does not depend on the secret.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        if text.len() != SECRET_TEXT_LEN {
            return None;
        }
        let mut secret = Self(Box::new([0; SECRET_LEN]));
        Base64UrlUnpadded::decode(text, secret.0.as_mut_slice()).ok()?;
        Some(secret)
    }

    /// Returns the text of the secret. The text is wiped when it is dropped.
    pub(crate) fn text(&self) -> Zeroizing<String> {
        Zeroizing::new(Base64UrlUnpadded::encode_string(self.0.as_slice()))
    }

    /// Returns the digest, which is stored instead of the secret.
    pub fn digest(&self) -> SecretDigest {
        SecretDigest(Sha256::digest(self.0.as_slice()).into())
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl ZeroizeOnDrop for Secret {}

/// The SHA-256 of a secret. Comparison takes constant time, and `Debug` does not show it.
#[derive(Clone, Copy)]
pub struct SecretDigest([u8; 32]);

impl SecretDigest {
    /// Digest that no known secret has.
    pub(crate) const DUMMY: Self = Self([0; 32]);

    /// Parses 64 hexadecimal digits.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        hex::decode(text.as_bytes()).map(Self)
    }

    /// Returns the 64 hexadecimal digits of the digest.
    pub(crate) fn text(&self) -> String {
        Hex(&self.0).to_string()
    }

    /// Returns whether this is the digest of the secret. The time depends on neither.
    pub fn is_of(&self, secret: &Secret) -> bool {
        self.0.ct_eq(&secret.digest().0).into()
    }
}

impl fmt::Debug for SecretDigest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SecretDigest")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret() -> Secret {
        Secret::from_bytes(&std::array::from_fn(|index| index as u8))
    }

    #[test]
    fn a_secret_is_read_as_it_is_written() {
        let text = secret().text();
        assert_eq!(text.as_str(), "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8");
        assert!(secret().digest().is_of(&Secret::parse(text.as_bytes()).expect("a secret")));
    }

    #[test]
    fn a_digest_is_the_sha_256_of_the_bytes() {
        let digest = "630dcd2966c4336691125448bbb25b4ff412a49c732db2c8abc1b8581bd710dd";
        assert_eq!(secret().digest().text(), digest);
        assert!(SecretDigest::parse(digest).expect("a digest").is_of(&secret()));
        assert_eq!(format!("{:?}", secret().digest()), "SecretDigest");
    }

    #[test]
    fn each_bit_of_a_secret_counts() {
        let digest = secret().digest();
        for bit in 0..SECRET_LEN * 8 {
            let mut other = secret();
            other.0[bit / 8] ^= 1 << (bit % 8);
            assert!(!digest.is_of(&other), "bit {bit}");
        }
    }

    #[test]
    fn other_texts_are_rejected() {
        let text = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";
        // Two bits of the last character must be zero.
        for other in [&text[1..], &format!("{text}="), &text.replace("h8", "h9"), &text.replace("AA", "A+")] {
            assert!(Secret::parse(other.as_bytes()).is_none(), "{other}");
        }
    }
}
