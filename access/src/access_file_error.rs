//! Problems of the access file, each with the place of the mistake.

use crate::limits::{ACCESS_FILE_LEN_MAX, IDENTITY_LEN_MAX, QUOTA_COUNT_MAX, RULE_COUNT_MAX};
use waymaker_engine::{Resource, Rights};

/// Reasons why an access file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AccessFileError {
    /// The file is too long.
    #[error("the file has {0} bytes; the maximum is {ACCESS_FILE_LEN_MAX}")]
    TooLong(usize),
    /// The file is not TOML, or has an unknown member.
    #[error(transparent)]
    Syntax(Box<toml::de::Error>),
    /// The file has too many rules.
    #[error("the file has {0} rules; the maximum is {RULE_COUNT_MAX}")]
    TooManyRules(usize),
    /// The file has too many quotas.
    #[error("the file has {0} quotas; the maximum is {QUOTA_COUNT_MAX}")]
    TooManyQuotas(usize),
    /// A rule or a quota names no client, or several kinds of clients.
    #[error("{place}: needs exactly one of `identity`, `group` and `everyone = true`")]
    Who {
        /// Rule or quota, with its number from 1.
        place: String,
    },
    /// A quota sets no limit.
    #[error("quota {number}: sets no limit; use at least one of {}", quota_names())]
    NoQuota {
        /// Number of the quota, from 1.
        number: usize,
    },
    /// A rule names an unknown right.
    #[error("rule {number}: unknown right {name:?} in `allow`; use one of {}", right_names())]
    UnknownRight {
        /// Number of the rule, from 1.
        number: usize,
        /// Name of the unknown right.
        name: String,
    },
    /// A rule grants no right.
    #[error("rule {number}: `allow` is empty; without a rule nothing is allowed, so leave the rule out")]
    NoRight {
        /// Number of the rule, from 1.
        number: usize,
    },
    /// The name of an identity or group breaks the rules of names.
    #[error("{what} {name:?} is not a name: use 1 to {IDENTITY_LEN_MAX} bytes without control characters")]
    BadName {
        /// Place of the name in the file.
        what: String,
        /// The invalid name.
        name: String,
    },
    /// A namespace or prefix is too long, or has a `*` inside.
    #[error("rule {number}: {problem}")]
    BadPattern {
        /// Number of the rule, from 1.
        number: usize,
        /// Description of the problem.
        problem: String,
    },
    /// A user id is not a number.
    #[error("`users`: {0:?} is not a user id; use the number that `id -u` prints")]
    BadUser(String),
}

fn right_names() -> String {
    let names: Vec<_> = Rights::NAMED.iter().map(|(name, _)| *name).chain(["all"]).collect();
    names.join(", ")
}

fn quota_names() -> String {
    Resource::ALL.map(Resource::name).join(", ")
}
