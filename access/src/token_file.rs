//! Token files: TOML with a `[[token]]` table for each token.
//!
//! ```toml
//! [[token]]
//! id = "0f3a9c5d7e1b2468"
//! identity = "billing"
//! groups = ["writers"]
//! secret_sha256 = "630dcd2966c4336691125448bbb25b4ff412a49c732db2c8abc1b8581bd710dd"
//! created = "2026-11-27T17:00:00Z"
//! expires = "2027-11-27T17:00:00Z"
//! note = "made for the invoice run"
//! ```
//!
//! `groups`, `expires` and `note` are optional. Any other member is an error: a misspelled `expires` must not make a
//! token that never expires.

use std::error::Error;
use std::ops::Range;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use toml::Spanned;

use crate::limits::{FILE_LEN_MAX, TOKEN_COUNT_MAX};
use crate::record::{RecordProblem, TokenRecord};
use crate::secret::SecretDigest;
use crate::timestamp::Timestamp;
use crate::token::TokenId;

/// Returns whether a file in a directory is a token file: its name ends in `.toml`, and it is not hidden.
pub fn is_token_file(path: &Path) -> bool {
    let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    !is_hidden && path.extension().is_some_and(|extension| extension == "toml")
}

/// A token file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}, line {line}: {problem}")]
pub struct TokenFileError {
    /// Name of the file.
    pub file: String,
    /// Line of the problem, from 1.
    pub line: usize,
    /// The problem.
    pub problem: TokenFileProblem,
}

/// The reason why a token file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenFileProblem {
    /// The file is too large.
    #[error("the file is {len} bytes long; the maximum is {FILE_LEN_MAX}")]
    TooLarge {
        /// Length of the file in bytes.
        len: usize,
    },
    /// The file is not UTF-8.
    #[error("the file is not UTF-8")]
    NotText,
    /// The file is not TOML, or a member is unknown, missing or of another type.
    #[error("{0}")]
    Syntax(String),
    /// A member has the right type and a wrong value.
    #[error("{field}: {reason}")]
    Field {
        /// Name of the member.
        field: &'static str,
        /// The rule that the value breaks.
        reason: String,
    },
    /// A text breaks a rule of records.
    #[error(transparent)]
    Record(#[from] RecordProblem),
    /// Two tables have the same token id.
    #[error("the token {id} is also in {other}")]
    Repeated {
        /// Id of both tables.
        id: TokenId,
        /// Name of the file with the other table.
        other: String,
    },
    /// All files together have too many tokens.
    #[error("there are more than {TOKEN_COUNT_MAX} tokens")]
    TooManyTokens,
}

/// A record with the line of its table.
pub(crate) struct Located {
    pub(crate) line: usize,
    pub(crate) record: TokenRecord,
}

/// Parses a token file. `file` is its name in errors.
///
/// # Errors
///
/// Returns the first problem of the file.
pub fn parse_token_file(file: &str, bytes: &[u8]) -> Result<Vec<TokenRecord>, TokenFileError> {
    Ok(parse(file, bytes)?.into_iter().map(|located| located.record).collect())
}

/// Parses a token file and returns its records with their lines.
pub(crate) fn parse(file: &str, bytes: &[u8]) -> Result<Vec<Located>, TokenFileError> {
    let error = |line, problem| TokenFileError { file: file.to_owned(), line, problem };
    if bytes.len() > FILE_LEN_MAX {
        return Err(error(1, TokenFileProblem::TooLarge { len: bytes.len() }));
    }
    let mut lines = Lines::new(bytes);
    let text = std::str::from_utf8(bytes)
        .map_err(|problem| error(lines.line(problem.valid_up_to()), TokenFileProblem::NotText))?;
    let raw: RawFile = toml::from_str(text).map_err(|problem| {
        let offset = problem.span().map_or(0, |span| span.start);
        // The TOML library explains some problems in several lines.
        let message = problem.message().trim_end().replace('\n', "; ");
        error(lines.line(offset), TokenFileProblem::Syntax(message))
    })?;
    if raw.token.len() > TOKEN_COUNT_MAX {
        return Err(error(1, TokenFileProblem::TooManyTokens));
    }
    let mut records = Vec::with_capacity(raw.token.len());
    for table in raw.token {
        let line = lines.line(table.span().start);
        let record = table.into_inner().record().map_err(|(offset, problem)| {
            error(offset.map_or(line, |offset| Lines::new(bytes).line(offset)), problem)
        })?;
        records.push(Located { line, record });
    }
    Ok(records)
}

/// Returns the TOML table of a record, to be appended to a token file.
pub fn token_table_text(record: &TokenRecord) -> String {
    let TokenRecord { id, identity, groups, secret_sha256, created, expires, note } = record;
    let table = WrittenToken {
        id: id.to_string(),
        identity,
        groups,
        secret_sha256: secret_sha256.text(),
        created: created.to_string(),
        expires: expires.map(|expires| expires.to_string()),
        note,
    };
    toml::to_string(&WrittenFile { token: [table] }).expect("a record has texts only")
}

/// Counts lines up to ascending offsets, reading each byte once.
struct Lines<'a> {
    rest: &'a [u8],
    offset: usize,
    line: usize,
}

impl<'a> Lines<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, offset: 0, line: 1 }
    }

    /// Returns the line of the byte at this offset, which must not be below the previous one.
    fn line(&mut self, offset: usize) -> usize {
        let (passed, rest) = self.rest.split_at(offset.saturating_sub(self.offset).min(self.rest.len()));
        self.line += passed.iter().filter(|byte| **byte == b'\n').count();
        self.rest = rest;
        self.offset = self.offset.max(offset);
        self.line
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    #[serde(default)]
    token: Vec<Spanned<RawToken>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawToken {
    id: Spanned<String>,
    identity: Spanned<String>,
    #[serde(default)]
    groups: Option<Spanned<Vec<String>>>,
    secret_sha256: Spanned<String>,
    created: Spanned<toml::Value>,
    #[serde(default)]
    expires: Option<Spanned<toml::Value>>,
    #[serde(default)]
    note: Option<Spanned<String>>,
}

/// A problem, with the offset of its member in the file if it concerns a member.
type Failure = (Option<usize>, TokenFileProblem);

impl RawToken {
    fn record(self) -> Result<TokenRecord, Failure> {
        let digest = SecretDigest::parse(self.secret_sha256.get_ref());
        let places = [
            ("identity", Some(self.identity.span())),
            ("group", self.groups.as_ref().map(Spanned::span)),
            ("note", self.note.as_ref().map(Spanned::span)),
        ];
        let record = TokenRecord {
            id: value("id", &self.id, self.id.get_ref())?,
            secret_sha256: digest.ok_or_else(|| {
                failure("secret_sha256", &self.secret_sha256, "a digest has 64 lower-case hexadecimal digits")
            })?,
            created: time("created", &self.created)?,
            expires: self.expires.as_ref().map(|expires| time("expires", expires)).transpose()?,
            identity: self.identity.into_inner(),
            groups: self.groups.map(Spanned::into_inner).unwrap_or_default(),
            note: self.note.map(Spanned::into_inner).unwrap_or_default(),
        };
        record.check().map_err(|problem| (place(&problem, &places), problem.into()))?;
        Ok(record)
    }
}

/// Parses the text of a member.
fn value<T, V: FromStr<Err: Error>>(
    field: &'static str,
    place: &Spanned<T>,
    text: &str,
) -> Result<V, Failure> {
    text.parse().map_err(|error: V::Err| failure(field, place, &error.to_string()))
}

/// Parses a time: a text, or a TOML date-time without quotation marks.
fn time(field: &'static str, time: &Spanned<toml::Value>) -> Result<Timestamp, Failure> {
    match time.get_ref() {
        toml::Value::String(text) => value(field, time, text),
        other => value(field, time, &other.to_string()),
    }
}

fn failure<T>(field: &'static str, place: &Spanned<T>, reason: &str) -> Failure {
    (Some(place.span().start), TokenFileProblem::Field { field, reason: reason.to_owned() })
}

/// Returns the offset of the member that the problem concerns.
fn place(problem: &RecordProblem, places: &[(&str, Option<Range<usize>>)]) -> Option<usize> {
    let (_, span) = places.iter().find(|(field, _)| *field == problem.field())?;
    span.as_ref().map(|span| span.start)
}

#[derive(Serialize)]
struct WrittenFile<'a> {
    token: [WrittenToken<'a>; 1],
}

#[derive(Serialize)]
struct WrittenToken<'a> {
    id: String,
    identity: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    groups: &'a [String],
    secret_sha256: String,
    created: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<String>,
    #[serde(skip_serializing_if = "str::is_empty")]
    note: &'a str,
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"# Tokens of the test.
[[token]]
id = "0001020304050607"
identity = "billing"
groups = ["writers", "größe"]
secret_sha256 = "630dcd2966c4336691125448bbb25b4ff412a49c732db2c8abc1b8581bd710dd"
created = "2026-11-27T17:00:00Z"
expires = "2027-11-27T17:00:00Z"
note = 'says "hello"'

[[token]]
id = "0001020304050608"
identity = "monitor"
secret_sha256 = "630dcd2966c4336691125448bbb25b4ff412a49c732db2c8abc1b8581bd710dd"
created = "2026-11-27T17:00:00Z"
"#;

    fn refusal(text: &str) -> String {
        parse_token_file("tokens.toml", text.as_bytes()).expect_err("the file is wrong").to_string()
    }

    #[test]
    fn a_file_is_read_member_by_member() {
        let records = parse_token_file("tokens.toml", FILE.as_bytes()).expect("a valid file");
        let [billing, monitor] = &records[..] else { panic!("two tokens") };
        assert_eq!(billing.id.to_string(), "0001020304050607");
        assert_eq!(billing.identity, "billing");
        assert_eq!(billing.groups, ["writers", "größe"]);
        assert_eq!(billing.created.to_string(), "2026-11-27T17:00:00Z");
        assert_eq!(billing.expires.map(Timestamp::unix_seconds), Some(1_827_334_800));
        assert_eq!(billing.note, "says \"hello\"");
        assert_eq!((&monitor.groups[..], monitor.expires, monitor.note.as_str()), (&[][..], None, ""));
    }

    #[test]
    fn a_record_is_read_as_it_is_written() {
        let records = parse_token_file("", FILE.as_bytes()).expect("a valid file");
        let text: String = records.iter().map(|record| token_table_text(record) + "\n").collect();
        let again = parse_token_file("", text.as_bytes()).expect("a written file");
        let texts = |records: &[TokenRecord]| records.iter().map(token_table_text).collect::<Vec<_>>();
        assert_eq!(texts(&again), texts(&records));
        assert!(text.contains("groups = [\"writers\", \"größe\"]"), "{text}");
    }

    #[test]
    fn a_time_needs_no_quotation_marks() {
        let text = FILE.replace("\"2027-11-27T17:00:00Z\"", "2027-11-27T17:00:00Z");
        let records = parse_token_file("", text.as_bytes()).expect("a valid file");
        assert_eq!(records[0].expires.map(Timestamp::unix_seconds), Some(1_827_334_800));
    }

    #[test]
    fn an_empty_file_has_no_tokens() {
        for text in ["", "# nothing\n"] {
            assert!(parse_token_file("", text.as_bytes()).expect("a valid file").is_empty());
        }
    }

    #[test]
    fn an_error_names_the_file_the_line_and_the_member() {
        for (old, new, expected) in [
            ("expires", "expire", "line 8: unknown field `expire`, expected one of"),
            (
                "[[token]]\nid = \"0001020304050608\"",
                "[[tokens]]\nid = \"0001020304050608\"",
                "line 11: unknown field `tokens`",
            ),
            ("identity = \"monitor\"\n", "", "line 11: missing field `identity`"),
            ("\"monitor\"", "7", "line 13: invalid type: integer `7`, expected a string"),
            ("\"monitor\"", "\"\"", "line 13: identity is empty; the minimum is 1 byte"),
            (
                "\"monitor\"",
                r#""a\u0007""#,
                r"line 13: identity has the character '\u{7}', which cannot be printed",
            ),
            ("\"writers\"", "\"\"", "line 5: group is empty; the minimum is 1 byte"),
            ("says", r#"\u0000"#, "line 9: note has the character"),
            (
                "0001020304050608",
                "000102030405060",
                "line 12: id: an id has 16 lower-case hexadecimal digits",
            ),
            ("\"2027-11-27T17:00:00Z\"", "\"tomorrow\"", "line 8: expires: a time has the form"),
            ("\"2027-11-27T17:00:00Z\"", "2027", "line 8: expires: a time has the form"),
            (
                "710dd\"\ncreated = \"2026-11-27T17:00:00Z\"\ne",
                "710d\"\ncreated = \"2026-11-27T17:00:00Z\"\ne",
                "line 6: secret_sha256: a digest has 64",
            ),
            ("[[token]]", "[[token", "line 2: "),
        ] {
            let new = if old == "says" {
                FILE.replace("'says \"hello\"'", "\"\\u0000\"")
            } else {
                FILE.replacen(old, new, 1)
            };
            assert_ne!(new, FILE, "{old}");
            let message = refusal(&new);
            assert!(message.starts_with(&format!("tokens.toml, {expected}")), "{message}");
            assert!(!message.contains('\n'), "{message}");
        }
    }

    #[test]
    fn a_file_that_is_not_text_or_too_large_is_refused() {
        let mut bytes = FILE.as_bytes().to_vec();
        let place = FILE.find("monitor").expect("there");
        bytes[place] = 0xff;
        let error = parse_token_file("t", &bytes).expect_err("not UTF-8");
        assert_eq!((error.line, error.problem), (13, TokenFileProblem::NotText));
        let large = vec![b'\n'; FILE_LEN_MAX + 1];
        let error = parse_token_file("t", &large).expect_err("too large");
        assert_eq!(error.problem, TokenFileProblem::TooLarge { len: FILE_LEN_MAX + 1 });
    }
}
