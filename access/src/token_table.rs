//! All tokens of a server, and the check of credentials.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::limits::TOKEN_COUNT_MAX;
use crate::record::TokenRecord;
use crate::secret::SecretDigest;
use crate::timestamp::Timestamp;
use crate::token::{Token, TokenId};
use crate::token_file::{self, TokenFileError, TokenFileProblem};

/// The tokens of any number of files.
///
/// The map is ordered: chosen ids cannot slow it down, and it needs no random seed. Ids are not secret, so the time of
/// a search may depend on them.
#[derive(Clone, Debug, Default)]
pub struct TokenTable {
    tokens: BTreeMap<TokenId, Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    record: TokenRecord,
    file: Arc<str>,
}

/// The reason why credentials are refused.
///
/// `Display` is the text for the client. It is the same for an unknown id and a wrong secret. [`TokenRefusal::name`]
/// distinguishes them for logs and counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefusal {
    /// The credentials are not the text of a token.
    #[error("the credentials are not a token")]
    Malformed,
    /// No token has this id.
    #[error("the token is unknown")]
    Unknown {
        /// Id from the credentials.
        id: TokenId,
    },
    /// The secret is wrong.
    #[error("the token is unknown")]
    WrongSecret {
        /// Id of the token.
        id: TokenId,
    },
    /// The token has expired. Only a client with the right secret learns this.
    #[error("the token {id} expired at {expires}")]
    Expired {
        /// Id of the token.
        id: TokenId,
        /// Time from which the token is refused.
        expires: Timestamp,
    },
}

impl TokenRefusal {
    /// Returns the name of the reason for logs and counters. Clients must not learn it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Unknown { .. } => "unknown",
            Self::WrongSecret { .. } => "wrong_secret",
            Self::Expired { .. } => "expired",
        }
    }

    /// Returns the id in the credentials, if they have one.
    pub fn id(self) -> Option<TokenId> {
        match self {
            Self::Malformed => None,
            Self::Unknown { id } | Self::WrongSecret { id } | Self::Expired { id, .. } => Some(id),
        }
    }
}

impl TokenTable {
    /// Adds the tokens of a file. `file` is its name in errors.
    ///
    /// # Errors
    ///
    /// Returns the first problem of the file; an id that is already in the table is one.
    pub fn with_file(mut self, file: &str, bytes: &[u8]) -> Result<Self, TokenFileError> {
        let name: Arc<str> = file.into();
        for located in token_file::parse(file, bytes)? {
            let id = located.record.id;
            let problem = match self.tokens.get(&id) {
                Some(other) => TokenFileProblem::Repeated { id, other: other.file.to_string() },
                None if self.tokens.len() == TOKEN_COUNT_MAX => TokenFileProblem::TooManyTokens,
                None => {
                    self.tokens.insert(id, Entry { record: located.record, file: Arc::clone(&name) });
                    continue;
                }
            };
            return Err(TokenFileError { file: file.to_owned(), line: located.line, problem });
        }
        Ok(self)
    }

    /// Returns the record of a token, if its secret is right and it has not expired.
    ///
    /// The secret is compared in constant time. An unknown id takes the same path: its secret is compared with the
    /// digest of no secret.
    ///
    /// # Errors
    ///
    /// Returns the reason why the credentials are refused.
    pub fn check(&self, credentials: &[u8], now_unix_seconds: u64) -> Result<&TokenRecord, TokenRefusal> {
        let Token { id, secret } = Token::parse(credentials).ok_or(TokenRefusal::Malformed)?;
        let record = self.get(id);
        let digest = record.map_or(&SecretDigest::DUMMY, |record| &record.secret_sha256);
        let is_right = digest.is_of(&secret);
        match record {
            None => Err(TokenRefusal::Unknown { id }),
            Some(_) if !is_right => Err(TokenRefusal::WrongSecret { id }),
            Some(record) => match record.expires {
                Some(expires) if record.has_expired(now_unix_seconds) => {
                    Err(TokenRefusal::Expired { id, expires })
                }
                _ => Ok(record),
            },
        }
    }

    /// Returns the record of the token with this id.
    pub fn get(&self, id: TokenId) -> Option<&TokenRecord> {
        self.tokens.get(&id).map(|entry| &entry.record)
    }

    /// Returns the name of the file with this token.
    pub fn file_of(&self, id: TokenId) -> Option<&str> {
        self.tokens.get(&id).map(|entry| &*entry.file)
    }

    /// Returns all records, sorted by id.
    pub fn records(&self) -> impl Iterator<Item = &TokenRecord> {
        self.tokens.values().map(|entry| &entry.record)
    }

    /// Returns the number of tokens.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Returns whether the table has no tokens.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token_file::token_table_text;

    fn token(number: u8) -> Token {
        Token::from_random(&[number; Token::RANDOM_LEN])
    }

    fn text(number: u8, expires: Option<u64>) -> String {
        let Token { id, secret } = token(number);
        token_table_text(&TokenRecord {
            id,
            identity: format!("client-{number}"),
            groups: Vec::new(),
            secret_sha256: secret.digest(),
            created: Timestamp::from_unix_seconds(1_000),
            expires: expires.map(Timestamp::from_unix_seconds),
            note: String::new(),
        })
    }

    fn table() -> TokenTable {
        let table =
            TokenTable::default().with_file("a.toml", text(1, None).as_bytes()).expect("a valid file");
        table.with_file("b.toml", text(2, Some(2_000)).as_bytes()).expect("a valid file")
    }

    #[test]
    fn the_tokens_of_all_files_are_known() {
        let table = table();
        assert_eq!(table.len(), 2);
        for number in [1, 2] {
            let record = table.check(token(number).text().as_bytes(), 1_999).expect("a known token");
            assert_eq!(record.identity, format!("client-{number}"));
        }
    }

    #[test]
    fn a_refusal_tells_a_client_nothing_about_other_tokens() {
        let table = table();
        let check =
            |credentials: &str| table.check(credentials.as_bytes(), 1_999).expect_err("not a valid token");
        let unknown = check(&token(3).text());
        let stolen_id = Token { id: token(1).id, secret: token(3).secret };
        let wrong = check(&stolen_id.text());
        assert_eq!(unknown, TokenRefusal::Unknown { id: token(3).id });
        assert_eq!(wrong, TokenRefusal::WrongSecret { id: token(1).id });
        assert_eq!(unknown.to_string(), wrong.to_string());
        assert_eq!((unknown.name(), wrong.name()), ("unknown", "wrong_secret"));
        assert_eq!(check(""), TokenRefusal::Malformed);
        assert_eq!(check("wm_x.y"), TokenRefusal::Malformed);
        // A client without the secret must not learn that the token has expired.
        let stolen_id = Token { id: token(2).id, secret: token(3).secret };
        let refusal = table.check(stolen_id.text().as_bytes(), 2_000).expect_err("a wrong secret");
        assert_eq!(refusal, TokenRefusal::WrongSecret { id: token(2).id });
    }

    #[test]
    fn an_unknown_id_with_any_secret_is_refused() {
        // The table is empty, so every check compares with the digest of no secret.
        for number in 0..=255 {
            let refusal =
                TokenTable::default().check(token(number).text().as_bytes(), 0).expect_err("unknown");
            assert_eq!(refusal.name(), "unknown");
        }
    }

    #[test]
    fn an_expired_token_is_refused_from_the_second_of_its_end() {
        let table = table();
        let text = token(2).text();
        assert!(table.check(text.as_bytes(), 1_999).is_ok());
        let refusal = table.check(text.as_bytes(), 2_000).expect_err("expired");
        assert_eq!(refusal.to_string(), "the token 0202020202020202 expired at 1970-01-01T00:33:20Z");
    }

    #[test]
    fn an_id_in_two_tables_is_refused() {
        let error = table().with_file("c.toml", text(1, None).as_bytes()).expect_err("twice");
        assert_eq!(error.to_string(), "c.toml, line 1: the token 0101010101010101 is also in a.toml");
        let twice = format!("{}\n{}", text(5, None), text(5, Some(7)));
        let error = TokenTable::default().with_file("d.toml", twice.as_bytes()).expect_err("twice");
        assert_eq!(error.to_string(), "d.toml, line 7: the token 0505050505050505 is also in d.toml");
    }
}
