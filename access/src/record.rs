//! The record of a token: its identity and its validity.

use crate::limits::{GROUP_COUNT_MAX, GROUP_LEN_MAX, IDENTITY_LEN_MAX, NOTE_LEN_MAX};
use crate::secret::SecretDigest;
use crate::timestamp::Timestamp;
use crate::token::TokenId;

/// The stored data of a token. The secret is not stored.
#[derive(Clone, Debug)]
pub struct TokenRecord {
    /// Name of the token.
    pub id: TokenId,
    /// Identity of a client with this token.
    pub identity: String,
    /// Groups that the identity belongs to.
    pub groups: Vec<String>,
    /// Digest of the secret.
    pub secret_sha256: SecretDigest,
    /// Time at which the token was created.
    pub created: Timestamp,
    /// Time from which the token is refused; `None` if it never expires.
    pub expires: Option<Timestamp>,
    /// Note for operators; may be empty.
    pub note: String,
}

/// A field of a record breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordProblem {
    /// A text is empty.
    #[error("{field} is empty; the minimum is 1 byte")]
    Empty {
        /// Name of the field.
        field: &'static str,
    },
    /// A text is too long.
    #[error("{field} is {len} bytes long; the maximum is {max}")]
    TooLong {
        /// Name of the field.
        field: &'static str,
        /// Length of the text in bytes.
        len: usize,
        /// Maximum length in bytes.
        max: usize,
    },
    /// A text has a character that is not printable.
    #[error("{field} has the character {character:?}, which cannot be printed")]
    NotPrintable {
        /// Name of the field.
        field: &'static str,
        /// The first such character.
        character: char,
    },
    /// An identity or a group begins or ends with white space.
    #[error("{field} begins or ends with a blank")]
    Blank {
        /// Name of the field.
        field: &'static str,
    },
    /// A token has too many groups.
    #[error("{count} groups; the maximum is {GROUP_COUNT_MAX}")]
    TooManyGroups {
        /// Number of groups.
        count: usize,
    },
}

impl RecordProblem {
    /// Returns the name of the field.
    pub fn field(&self) -> &'static str {
        match self {
            Self::Empty { field }
            | Self::TooLong { field, .. }
            | Self::NotPrintable { field, .. }
            | Self::Blank { field } => field,
            Self::TooManyGroups { .. } => "group",
        }
    }
}

impl TokenRecord {
    /// Returns whether the token has expired at this time.
    pub fn has_expired(&self, now_unix_seconds: u64) -> bool {
        self.expires.is_some_and(|expires| expires.unix_seconds() <= now_unix_seconds)
    }

    /// Checks the texts of the record.
    ///
    /// # Errors
    ///
    /// Returns the first field that breaks a rule.
    pub fn check(&self) -> Result<(), RecordProblem> {
        check_name("identity", &self.identity, IDENTITY_LEN_MAX)?;
        if self.groups.len() > GROUP_COUNT_MAX {
            return Err(RecordProblem::TooManyGroups { count: self.groups.len() });
        }
        self.groups.iter().try_for_each(|group| check_name("group", group, GROUP_LEN_MAX))?;
        check_text("note", &self.note, NOTE_LEN_MAX)
    }
}

/// Checks the name of an identity or a group.
pub(crate) fn check_name(field: &'static str, name: &str, max: usize) -> Result<(), RecordProblem> {
    check_text(field, name, max)?;
    if name.is_empty() {
        return Err(RecordProblem::Empty { field });
    }
    if name.trim().len() < name.len() { Err(RecordProblem::Blank { field }) } else { Ok(()) }
}

fn check_text(field: &'static str, text: &str, max: usize) -> Result<(), RecordProblem> {
    if text.len() > max {
        return Err(RecordProblem::TooLong { field, len: text.len(), max });
    }
    match text.chars().find(|character| !is_printable(*character)) {
        Some(character) => Err(RecordProblem::NotPrintable { field, character }),
        None => Ok(()),
    }
}

/// Returns whether the standard library prints the character unchanged. The library escapes control characters, marks
/// for the direction of writing, and characters without a glyph.
fn is_printable(character: char) -> bool {
    matches!(character, '"' | '\'' | '\\') || character.escape_debug().len() == 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::Token;

    fn record(identity: &str) -> TokenRecord {
        let token = Token::from_random(&[7; Token::RANDOM_LEN]);
        TokenRecord {
            id: token.id,
            identity: identity.to_owned(),
            groups: Vec::new(),
            secret_sha256: token.secret.digest(),
            created: Timestamp::from_unix_seconds(1_000),
            expires: None,
            note: String::new(),
        }
    }

    #[test]
    fn an_identity_has_1_to_256_printable_bytes() {
        for identity in ["a", "größe/7", "it's a \"name\" \\", &"x".repeat(256)] {
            assert_eq!(record(identity).check(), Ok(()), "{identity}");
        }
        let field = "identity";
        assert_eq!(record("").check(), Err(RecordProblem::Empty { field }));
        let long = record(&"x".repeat(257)).check().expect_err("too long");
        assert_eq!(long.to_string(), "identity is 257 bytes long; the maximum is 256");
        for character in ['\n', '\0', '\u{1b}', '\u{202e}', '\u{200b}', '\u{7f}', '\u{2028}'] {
            let problem = RecordProblem::NotPrintable { field, character };
            assert_eq!(record(&format!("a{character}b")).check(), Err(problem));
        }
        assert_eq!(record("a ").check(), Err(RecordProblem::Blank { field }));
    }

    #[test]
    fn groups_have_the_limits_of_identities() {
        let with = |groups: Vec<String>| TokenRecord { groups, ..record("a") }.check();
        assert_eq!(with(vec!["g".to_owned(); 64]), Ok(()));
        assert_eq!(with(vec!["g".to_owned(); 65]), Err(RecordProblem::TooManyGroups { count: 65 }));
        assert_eq!(with(vec![String::new()]), Err(RecordProblem::Empty { field: "group" }));
    }

    #[test]
    fn a_note_may_be_empty_and_has_a_maximum() {
        let with = |note: String| TokenRecord { note, ..record("a") }.check();
        assert_eq!(with("x".repeat(1_024)), Ok(()));
        assert_eq!(
            with("x".repeat(1_025)),
            Err(RecordProblem::TooLong { field: "note", len: 1_025, max: 1_024 })
        );
    }

    #[test]
    fn a_token_has_expired_from_the_second_of_its_end() {
        let ending = TokenRecord { expires: Some(Timestamp::from_unix_seconds(2_000)), ..record("a") };
        assert!(!ending.has_expired(1_999));
        assert!(ending.has_expired(2_000));
        assert!(!record("a").has_expired(u64::MAX));
    }
}
