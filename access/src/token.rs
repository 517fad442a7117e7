//! A token: `wm_ID.SECRET`, the credentials of one client.

use std::fmt::{self, Display};
use std::str::FromStr;

use waymaker_protocol::Hex;
use zeroize::Zeroizing;

use crate::hex;
use crate::secret::{SECRET_LEN, SECRET_TEXT_LEN, Secret};

/// Length of an id in bytes.
const ID_LEN: usize = 8;
/// Length of an id as text.
const ID_TEXT_LEN: usize = 2 * ID_LEN;
/// Length of a token as text.
const TEXT_LEN: usize = Token::PREFIX.len() + ID_TEXT_LEN + 1 + SECRET_TEXT_LEN;

/// Id of a token: 64 random bits, shown as 16 lower-case hexadecimal digits. An id is not secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenId([u8; ID_LEN]);

/// The text is not the id of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an id has 16 lower-case hexadecimal digits")]
pub struct TokenIdError;

impl FromStr for TokenId {
    type Err = TokenIdError;

    fn from_str(text: &str) -> Result<Self, TokenIdError> {
        hex::decode(text.as_bytes()).map(Self).ok_or(TokenIdError)
    }
}

impl Display for TokenId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        Hex(&self.0).fmt(formatter)
    }
}

/// A token as a client sends it. The text is `wm_`, the id, a dot, and the secret as base64url without padding.
pub struct Token {
    /// Id of the record with the digest of the secret.
    pub id: TokenId,
    /// Secret, which proves that the client may use the record.
    pub secret: Secret,
}

impl Token {
    /// Beginning of every token. Programs that search for leaked secrets recognize it, and no JSON web token begins
    /// with it.
    pub const PREFIX: &[u8] = b"wm_";
    /// Number of random bytes of a token.
    pub const RANDOM_LEN: usize = ID_LEN + SECRET_LEN;

    /// Returns a token made from random bytes. The bytes must be cryptographically secure, and the caller must wipe
    /// them.
    pub fn from_random(random: &[u8; Self::RANDOM_LEN]) -> Self {
        let mut id = [0; ID_LEN];
        let (first, rest) = random.split_at(ID_LEN);
        id.copy_from_slice(first);
        let secret = rest.as_array().map(Secret::from_bytes);
        Self { id: TokenId(id), secret: secret.expect("the rest has the length of a secret") }
    }

    /// Parses the text of a token. Each token has exactly one text.
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.len() != TEXT_LEN {
            return None;
        }
        let (id, rest) = text.strip_prefix(Self::PREFIX)?.split_at(ID_TEXT_LEN);
        let id = TokenId(hex::decode(id)?);
        let secret = Secret::parse(rest.strip_prefix(b".")?)?;
        Some(Self { id, secret })
    }

    /// Returns the text of the token. The text is wiped when it is dropped.
    pub fn text(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(TEXT_LEN));
        text.push_str("wm_");
        text.push_str(&self.id.to_string());
        text.push('.');
        text.push_str(&self.secret.text());
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "wm_0001020304050607.CAkKCwwNDg8QERITFBUWFxgZGhscHR4fICEiIyQlJic";

    fn token() -> Token {
        Token::from_random(&std::array::from_fn(|index| index as u8))
    }

    #[test]
    fn a_token_is_read_as_it_is_written() {
        assert_eq!(token().text().as_str(), TEXT);
        let read = Token::parse(TEXT.as_bytes()).expect("a token");
        assert_eq!(read.id, token().id);
        assert!(token().secret.digest().is_of(&read.secret));
    }

    #[test]
    fn the_text_is_not_moved_while_it_grows() {
        // A growing string would leave a copy of the secret behind.
        assert_eq!(token().text().capacity(), TEXT_LEN);
    }

    #[test]
    fn a_token_has_one_text_only() {
        let upper = TEXT.replace("0a", "0A").replace("wm_", "WM_");
        let others = [
            "",
            "wm_",
            &TEXT[1..],
            &TEXT[..TEXT.len() - 1],
            &format!("{TEXT}\n"),
            &format!(" {TEXT}"),
            &format!("{TEXT}="),
            &TEXT.replace('.', "-"),
            &TEXT.replace("0001", "000g"),
            &TEXT.replace("ic", "id"),
            &upper,
        ];
        for other in others {
            assert!(Token::parse(other.as_bytes()).is_none(), "{other}");
        }
    }

    #[test]
    fn bytes_at_any_place_are_no_panic() {
        for place in 0..TEXT.len() {
            for byte in [0, b'.', b'=', 0xc3, 0xff] {
                let mut text = TEXT.as_bytes().to_vec();
                text[place] = byte;
                let is_same = text == TEXT.as_bytes();
                assert_eq!(Token::parse(&text).is_some(), is_same, "{}", text.escape_ascii());
            }
        }
    }
}
