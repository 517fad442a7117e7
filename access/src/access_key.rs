//! Access keys for clients that sign their requests as AWS clients do.
//!
//! ```toml
//! region = "eu-west-1"
//!
//! [[key]]
//! access_key_id = "WAYMAKERBILLING1"
//! secret_access_key = "at least 16 characters, such as 40 random ones"
//! identity = "billing"
//! groups = ["writers"]
//! expires = "2027-11-27T17:00:00Z"
//! ```
//!
//! `region`, `groups` and `expires` are optional. Any other member is an error.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use zeroize::Zeroizing;

use crate::identity::{Identity, Proof};
use crate::limits::{ACCESS_KEY_COUNT_MAX, FILE_LEN_MAX, GROUP_COUNT_MAX, GROUP_LEN_MAX, IDENTITY_LEN_MAX};
use crate::record::{RecordProblem, check_name};
use crate::signature::{Signature, SignatureRefusal, SignedRequest};
use crate::timestamp::Timestamp;

/// Allowed lengths of an access key id in bytes, as in AWS.
const ID_LENS: std::ops::RangeInclusive<usize> = 16..=128;
/// Allowed lengths of a secret in bytes.
const SECRET_LENS: std::ops::RangeInclusive<usize> = 16..=256;

/// All access keys of a server, by id.
#[derive(Clone, Debug, Default)]
pub struct AccessKeys {
    keys: BTreeMap<Arc<str>, AccessKey>,
    /// Only region that requests may be signed for; `None` allows every region.
    region: Option<String>,
}

/// One access key. `Debug` does not show its secret.
#[derive(Clone)]
struct AccessKey {
    secret: Zeroizing<String>,
    identity: Arc<str>,
    groups: Vec<Arc<str>>,
    expires: Option<Timestamp>,
}

/// The reason why a file of access keys cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessKeysError {
    /// The file is too large.
    #[error("the file is {0} bytes long; the maximum is {FILE_LEN_MAX}")]
    TooLarge(usize),
    /// The file is not TOML, or a member is unknown, missing or of another type.
    #[error("{0}")]
    Syntax(String),
    /// There are too many keys.
    #[error("{0} keys; the maximum is {ACCESS_KEY_COUNT_MAX}")]
    TooManyKeys(usize),
    /// A member has a wrong value.
    #[error("key {number}: {field}: {reason}")]
    Field {
        /// Number of the table, from 1.
        number: usize,
        /// Name of the member.
        field: &'static str,
        /// The rule that the value breaks.
        reason: String,
    },
    /// A text breaks a rule of names.
    #[error("key {number}: {problem}")]
    Name {
        /// Number of the table, from 1.
        number: usize,
        /// The rule.
        problem: RecordProblem,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    region: Option<String>,
    #[serde(default)]
    key: Vec<KeyText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyText {
    access_key_id: String,
    secret_access_key: Secret,
    identity: String,
    #[serde(default)]
    groups: Vec<String>,
    expires: Option<toml::Value>,
}

/// A secret. Errors of its type do not quote it.
#[derive(Deserialize)]
#[serde(try_from = "toml::Value")]
struct Secret(Zeroizing<String>);

impl TryFrom<toml::Value> for Secret {
    type Error = &'static str;

    fn try_from(value: toml::Value) -> Result<Self, Self::Error> {
        match value {
            toml::Value::String(secret) => Ok(Self(secret.into())),
            _ => Err("secret_access_key must be a string"),
        }
    }
}

impl AccessKeys {
    /// Parses a file of access keys.
    ///
    /// # Errors
    /// Returns the first problem of the file. No error quotes a secret.
    pub fn parse(text: &str) -> Result<Self, AccessKeysError> {
        if text.len() > FILE_LEN_MAX {
            return Err(AccessKeysError::TooLarge(text.len()));
        }
        // Use only the message: the whole error quotes the line, which may contain a secret.
        let file: File = toml::from_str(text).map_err(|error| {
            let before = error.span().map_or(0, |span| span.start.min(text.len()));
            let line = 1 + text.as_bytes()[..before].iter().filter(|byte| **byte == b'\n').count();
            // The message about a wrong type quotes the value, which may be a secret.
            let message = match error.message().rsplit_once(", expected ") {
                Some((found, expected)) if found.starts_with("invalid ") => format!("expected {expected}"),
                _ => error.message().trim_end().replace('\n', "; "),
            };
            AccessKeysError::Syntax(format!("line {line}: {message}"))
        })?;
        if file.key.len() > ACCESS_KEY_COUNT_MAX {
            return Err(AccessKeysError::TooManyKeys(file.key.len()));
        }
        let mut keys = BTreeMap::new();
        for (number, key) in (1..).zip(file.key) {
            let (id, key) = key.check(number)?;
            if keys.insert(id, key).is_some() {
                let reason = "another key has the same id".to_owned();
                return Err(AccessKeysError::Field { number, field: "access_key_id", reason });
            }
        }
        Ok(Self { keys, region: file.region })
    }

    /// Returns the identity that signed a request.
    ///
    /// # Errors
    /// Returns the reason why the signature is refused.
    pub fn verify(&self, request: &SignedRequest<'_>, now_unix_s: u64) -> Result<Identity, SignatureRefusal> {
        let signature = Signature::read(request)?;
        let (id, key) =
            self.keys.get_key_value(signature.access_key_id).ok_or(SignatureRefusal::UnknownKey)?;
        signature.verify(request, &key.secret, now_unix_s)?;
        if self.region.as_ref().is_some_and(|region| region != signature.region) {
            return Err(SignatureRefusal::Scope(format!(
                "Credential should be scoped to a valid region, not '{}'.",
                signature.region
            )));
        }
        if key.has_expired(now_unix_s) {
            return Err(SignatureRefusal::ExpiredKey);
        }
        let proof = Proof::AccessKey(Arc::clone(id));
        Ok(Identity { name: Arc::clone(&key.identity), groups: key.groups.clone(), proof })
    }

    /// Returns whether the access key with this id still belongs to this identity.
    pub fn still_knows(&self, id: &str, identity: &Identity, now_unix_s: u64) -> bool {
        self.keys.get(id).is_some_and(|key| {
            key.identity == identity.name && key.groups == identity.groups && !key.has_expired(now_unix_s)
        })
    }
}

impl AccessKey {
    fn has_expired(&self, now_unix_s: u64) -> bool {
        self.expires.is_some_and(|expires| expires.unix_seconds() <= now_unix_s)
    }
}

impl fmt::Debug for AccessKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("AccessKey").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl KeyText {
    fn check(self, number: usize) -> Result<(Arc<str>, AccessKey), AccessKeysError> {
        let field = |field, reason: &str| AccessKeysError::Field { number, field, reason: reason.to_owned() };
        let name = |problem| AccessKeysError::Name { number, problem };
        let Self { access_key_id, secret_access_key: Secret(secret), identity, groups, expires } = self;
        if !ID_LENS.contains(&access_key_id.len()) || !access_key_id.bytes().all(is_word) {
            return Err(field("access_key_id", "an id has 16 to 128 letters, digits and underscores"));
        }
        let is_visible = |byte: u8| byte.is_ascii_graphic();
        if !SECRET_LENS.contains(&secret.len()) || !secret.bytes().all(is_visible) {
            return Err(field("secret_access_key", "a secret has 16 to 256 ASCII characters without blanks"));
        }
        check_name("identity", &identity, IDENTITY_LEN_MAX).map_err(name)?;
        if groups.len() > GROUP_COUNT_MAX {
            return Err(name(RecordProblem::TooManyGroups { count: groups.len() }));
        }
        groups.iter().try_for_each(|group| check_name("group", group, GROUP_LEN_MAX)).map_err(name)?;
        let time = |value: toml::Value| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            text.parse::<Timestamp>().map_err(|error| field("expires", &error.to_string()))
        };
        let key = AccessKey {
            secret,
            identity: identity.into(),
            groups: groups.into_iter().map(Arc::from).collect(),
            expires: expires.map(time).transpose()?,
        };
        Ok((access_key_id.into(), key))
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
region = "eu-west-1"
[[key]]
access_key_id = "WAYMAKERBILLING1"
secret_access_key = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
identity = "billing"
groups = ["writers"]
expires = 2027-11-27T17:00:00Z
"#;

    fn refusal(from: &str, to: &str) -> String {
        assert!(FILE.contains(from), "{from}");
        AccessKeys::parse(&FILE.replace(from, to)).expect_err(to).to_string()
    }

    #[test]
    fn a_file_is_read_member_by_member() {
        let keys = AccessKeys::parse(FILE).unwrap();
        let identity = Identity {
            name: "billing".into(),
            groups: vec!["writers".into()],
            proof: Proof::AccessKey("WAYMAKERBILLING1".into()),
        };
        assert!(keys.still_knows("WAYMAKERBILLING1", &identity, 0));
        assert!(!keys.still_knows("WAYMAKERBILLING1", &identity, 1_827_421_200), "it has expired");
        assert!(!keys.still_knows("WAYMAKERBILLING2", &identity, 0));
        let other = Identity { groups: Vec::new(), ..identity };
        assert!(!keys.still_knows("WAYMAKERBILLING1", &other, 0));
        assert!(AccessKeys::parse("").unwrap().keys.is_empty());
    }

    #[test]
    fn wrong_members_are_named() {
        for (from, to, message) in [
            ("WAYMAKERBILLING1", "short", "key 1: access_key_id: "),
            ("WAYMAKERBILLING1", "WAYMAKER-BILLING", "key 1: access_key_id: "),
            ("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "short", "key 1: secret_access_key: "),
            ("\"billing\"", "\"\"", "key 1: identity is empty"),
            ("\"writers\"", "\" writers\"", "key 1: group begins or ends"),
            ("2027-11-27T17:00:00Z", "\"soon\"", "key 1: expires: "),
            ("groups", "group", "line 7: unknown field `group`"),
            ("identity = \"billing\"", "", "line 3: missing field `identity`"),
            ("region", "regions", "line 2: unknown field `regions`"),
        ] {
            let refusal = refusal(from, to);
            assert!(refusal.starts_with(message), "{refusal}");
        }
        let twice = format!("{FILE}{}", FILE.split_once("\n[[").map(|(_, key)| format!("[[{key}")).unwrap());
        let refusal = AccessKeys::parse(&twice).unwrap_err().to_string();
        assert_eq!(refusal, "key 2: access_key_id: another key has the same id");
    }

    #[test]
    fn no_secret_is_shown() {
        let shown = format!("{:?}", AccessKeys::parse(FILE).unwrap());
        assert!(!shown.contains("wJalr"), "{shown}");
        for (from, to) in [("identity", "wrong"), ("EXAMPLEKEY\"", "EXAMPLEKEY"), ("groups", "=")] {
            let refusal = refusal(from, to);
            assert!(!refusal.contains("wJalr"), "{refusal}");
        }
    }

    #[test]
    fn a_secret_of_digits_is_not_shown() {
        let refusal = refusal("\"wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY\"", "73649182736491827");
        assert!(
            refusal.contains("secret_access_key must be a string") && !refusal.contains("736"),
            "{refusal}"
        );
    }

    /// 2026-11-29T21:00:00Z
    const NOW_S: u64 = 1_795_986_000;

    /// Verifies a request that was signed for eu-west-1 with the secret in the file.
    fn verified(from: &str, to: &str) -> Result<Identity, SignatureRefusal> {
        assert!(FILE.contains(from), "{from}");
        let authorization = "AWS4-HMAC-SHA256 Credential=WAYMAKERBILLING1/20261129/eu-west-1/dynamodb/aws4_request, \
                             SignedHeaders=host;x-amz-date;x-amz-target, \
                             Signature=833c39e343dbe55d6161964cca0aae4a2a806e162bec55e8d6291101ac024d9a";
        let headers = [
            ("host", "localhost:8000"),
            ("x-amz-date", "20261129T210000Z"),
            ("x-amz-target", "DynamoDB_20120810.ListTables"),
            ("authorization", authorization),
        ];
        let keys = AccessKeys::parse(&FILE.replace(from, to)).unwrap();
        keys.verify(&SignedRequest { method: "POST", headers: &headers, body: b"{}" }, NOW_S)
    }

    #[test]
    fn a_signature_stands_for_the_identity_of_its_key() {
        let expected = Identity {
            name: "billing".into(),
            groups: vec!["writers".into()],
            proof: Proof::AccessKey("WAYMAKERBILLING1".into()),
        };
        assert_eq!(verified("", ""), Ok(expected.clone()));
        assert_eq!(verified("region = \"eu-west-1\"", ""), Ok(expected.clone()), "every region");
        assert_eq!(verified("2027-11-27T17:00:00Z", "2026-11-29T21:00:01Z"), Ok(expected));
        assert_eq!(
            verified("2027-11-27T17:00:00Z", "2026-11-29T21:00:00Z"),
            Err(SignatureRefusal::ExpiredKey)
        );
        assert!(matches!(verified("eu-west-1", "eu-west-2"), Err(SignatureRefusal::Scope(_))));
        assert_eq!(verified("WAYMAKERBILLING1", "WAYMAKERBILLING2"), Err(SignatureRefusal::UnknownKey));
        assert_eq!(verified("wJalr", "xJalr"), Err(SignatureRefusal::Wrong));
    }

    #[test]
    fn a_key_knows_its_own_identity_alone_until_it_expires() {
        let keys = AccessKeys::parse(FILE).unwrap();
        let proof = Proof::AccessKey("WAYMAKERBILLING1".into());
        let identity =
            |name: &str| Identity { name: name.into(), groups: vec!["writers".into()], proof: proof.clone() };
        assert!(!keys.still_knows("WAYMAKERBILLING1", &identity("other"), 0));
        // 2027-11-27T17:00:00Z
        let expires_unix_s = 1_827_334_800;
        assert!(keys.still_knows("WAYMAKERBILLING1", &identity("billing"), expires_unix_s - 1));
        assert!(!keys.still_knows("WAYMAKERBILLING1", &identity("billing"), expires_unix_s));
    }

    #[test]
    fn a_file_has_limits() {
        let secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
        assert!(AccessKeys::parse(&FILE.replace(secret, &"x".repeat(256))).is_ok());
        for (from, to, message) in [
            (secret, "x".repeat(257), "key 1: secret_access_key"),
            (secret, "wJalrXUtnFEMI K7MDENG".to_owned(), "key 1: secret_access_key"),
            ("[\"writers\"]", format!("[{}]", vec!["\"writers\""; 65].join(",")), "key 1: "),
        ] {
            let refusal = refusal(from, &to);
            assert!(refusal.starts_with(message), "{refusal}");
        }
        let keys: String = (0..=ACCESS_KEY_COUNT_MAX)
            .map(|number| {
                format!("[[key]]\naccess_key_id = \"WAYMAKER{number:0>8}\"\nsecret_access_key = \"{secret}\"\nidentity = \"a\"\n")
            })
            .collect();
        assert_eq!(
            AccessKeys::parse(&keys).unwrap_err(),
            AccessKeysError::TooManyKeys(ACCESS_KEY_COUNT_MAX + 1)
        );
        let long = format!("{FILE}#{}", " ".repeat(FILE_LEN_MAX));
        assert_eq!(AccessKeys::parse(&long).unwrap_err(), AccessKeysError::TooLarge(long.len()));
    }
}
