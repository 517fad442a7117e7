//! The access file: identities, groups, rules that grant them rights, and quotas.
//!
//! ```toml
//! [groups]
//! operators = ["alice", "bob"]
//!
//! [[rule]]
//! group = "operators"
//! allow = ["all"]
//!
//! [[rule]]
//! identity = "billing"
//! namespace = "jobs"
//! prefix = "invoice/"
//! allow = ["acquire", "inspect"]
//!
//! [[quota]]
//! everyone = true
//! claims = 10_000
//! ```

use crate::access_file_error::AccessFileError;
use crate::identity::Identity;
use crate::limits::{ACCESS_FILE_LEN_MAX, QUOTA_COUNT_MAX, RULE_COUNT_MAX};
use crate::namespaces::{NamespaceSet, Namespaces};
use crate::quotas::{Quota, QuotaText, quotas_of};
use crate::who::{Groups, Member, Who, check_name};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use waymaker_engine::{Access, Holder, Quotas, Rights};
use waymaker_protocol::limits::KEY_LEN_MAX;
use waymaker_protocol::{NamespaceKind, PathKey};

/// The access file as written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    anonymous: Option<String>,
    #[serde(default)]
    groups: Groups,
    #[serde(default)]
    certificates: BTreeMap<String, String>,
    #[serde(default)]
    users: BTreeMap<String, String>,
    jwt: Option<JwtOptions>,
    #[serde(default, rename = "rule")]
    rules: Vec<RuleText>,
    #[serde(default, rename = "quota")]
    quotas: Vec<QuotaText>,
}

/// Settings for the verification of JSON web tokens.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JwtOptions {
    /// File with the public keys, a JWKS.
    pub jwks: PathBuf,
    /// Issuer that each token must name.
    pub issuer: String,
    /// Audience that each token must name.
    pub audience: String,
    /// Claim with the name of the identity.
    #[serde(default = "subject")]
    pub identity_claim: String,
    /// Claim with the list of groups.
    pub groups_claim: Option<String>,
}

fn subject() -> String {
    "sub".to_owned()
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleText {
    identity: Option<String>,
    group: Option<String>,
    #[serde(default)]
    everyone: bool,
    #[serde(default = "any_namespace")]
    namespace: String,
    #[serde(default)]
    prefix: String,
    allow: Vec<String>,
}

fn any_namespace() -> String {
    "*".to_owned()
}

#[derive(Debug)]
struct Rule {
    who: Who,
    namespaces: Namespaces,
    prefix: String,
    allow: Rights,
}

/// The contents of an access file.
#[derive(Debug, Default)]
pub struct Rules {
    groups: Groups,
    certificates: BTreeMap<String, Arc<str>>,
    users: BTreeMap<u32, Arc<str>>,
    anonymous: Option<Arc<str>>,
    jwt: Option<JwtOptions>,
    rules: Vec<Rule>,
    quotas: Vec<Quota>,
}

impl Rules {
    /// Parses an access file.
    ///
    /// # Errors
    /// Returns the first problem; the error names the member or the rule.
    pub fn parse(text: &str) -> Result<Self, AccessFileError> {
        if text.len() > ACCESS_FILE_LEN_MAX {
            return Err(AccessFileError::TooLong(text.len()));
        }
        let file: File = toml::from_str(text).map_err(|error| AccessFileError::Syntax(Box::new(error)))?;
        if file.rules.len() > RULE_COUNT_MAX {
            return Err(AccessFileError::TooManyRules(file.rules.len()));
        }
        if file.quotas.len() > QUOTA_COUNT_MAX {
            return Err(AccessFileError::TooManyQuotas(file.quotas.len()));
        }
        for (group, members) in &file.groups {
            check_name("the group", group)?;
            for member in members {
                check_name("the member", member)?;
            }
        }
        let user = |(uid, name): (String, String)| {
            check_name("the identity", &name)?;
            Ok((uid.parse().map_err(|_| AccessFileError::BadUser(uid))?, Arc::from(name)))
        };
        let certificate = |(subject, name): (String, String)| {
            check_name("the identity", &name)?;
            Ok((subject, Arc::from(name)))
        };
        if let Some(anonymous) = &file.anonymous {
            check_name("`anonymous`", anonymous)?;
        }
        Ok(Self {
            groups: file.groups,
            certificates: file
                .certificates
                .into_iter()
                .map(certificate)
                .collect::<Result<_, AccessFileError>>()?,
            users: file.users.into_iter().map(user).collect::<Result<_, AccessFileError>>()?,
            anonymous: file.anonymous.map(Arc::from),
            jwt: file.jwt,
            rules: (1..)
                .zip(file.rules)
                .map(|(number, rule)| Rule::parse(number, rule))
                .collect::<Result<_, _>>()?,
            quotas: (1..)
                .zip(file.quotas)
                .map(|(number, quota)| Quota::parse(number, quota))
                .collect::<Result<_, _>>()?,
        })
    }

    /// Returns whether there are no rules. Every identity may then do everything.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns the identity of connections without credentials, if the file allows such connections.
    pub fn anonymous(&self) -> Option<&Arc<str>> {
        self.anonymous.as_ref()
    }

    /// Returns the settings for JSON web tokens, if the file has any.
    pub fn jwt(&self) -> Option<&JwtOptions> {
        self.jwt.as_ref()
    }

    /// Returns the identity of a Unix-socket peer with this user id: the identity in the file, or `uid:N`.
    pub fn identity_of_user(&self, uid: u32) -> Arc<str> {
        self.users.get(&uid).cloned().unwrap_or_else(|| format!("uid:{uid}").into())
    }

    /// Returns the identity of a client certificate with these names, of which the most specific is first. It is the
    /// identity of the first name that the file maps. If the file maps no names at all, it is the first name itself.
    pub fn identity_of_certificate(&self, names: &[String]) -> Option<Arc<str>> {
        if self.certificates.is_empty() {
            return names.first().map(|name| Arc::from(name.as_str()));
        }
        names.iter().find_map(|name| self.certificates.get(name)).cloned()
    }

    /// Returns the rights of an identity in a namespace.
    pub fn access(&self, identity: &Identity, namespace: &[u8], kind: NamespaceKind) -> Access {
        let name = Arc::clone(&identity.name);
        if self.rules.is_empty() {
            return Access::new(name, Rights::ALL, Vec::new());
        }
        let mut everywhere = Rights::NONE;
        let mut by_prefix = Vec::new();
        for rule in self.rules_of(identity).filter(|rule| rule.namespaces.contain(namespace)) {
            // The right to read metrics does not depend on a namespace, so it opens none.
            let allow = rule.allow.without(Rights::METRICS);
            if rule.prefix.is_empty() {
                everywhere = everywhere | allow;
            } else {
                by_prefix.push((prefix_bytes(&rule.prefix, kind), allow));
            }
        }
        Access::new(name, everywhere, by_prefix)
    }

    /// Returns the number of rules.
    pub fn rule_count(&self) -> usize {
        self.rules.len()
    }

    /// Returns the number of quotas.
    pub fn quota_count(&self) -> usize {
        self.quotas.len()
    }

    /// Returns the quotas of an identity, or of each of its source addresses.
    pub fn quotas(&self, identity: &Identity, holder: Holder) -> Quotas {
        quotas_of(&self.quotas, &self.groups, identity, holder)
    }

    /// Returns a function that tests whether an identity has this right for some keys of a namespace. For many
    /// namespaces this is cheaper than [`Rules::access`].
    pub fn allowing(&self, identity: &Identity, right: Rights) -> impl Fn(&[u8]) -> bool {
        self.namespaces_with(identity, move |rights| rights.contains(right))
    }

    /// Returns a function that tests whether an identity has any right in a namespace. For many namespaces this is
    /// cheaper than [`Rules::access`].
    pub fn reach(&self, identity: &Identity) -> impl Fn(&[u8]) -> bool {
        self.namespaces_with(identity, |rights| rights != Rights::METRICS)
    }

    fn namespaces_with(
        &self,
        identity: &Identity,
        is_wanted: impl Fn(Rights) -> bool,
    ) -> impl Fn(&[u8]) -> bool {
        let rules = self.rules_of(identity).filter(|rule| is_wanted(rule.allow));
        let namespaces = NamespaceSet::new(rules.map(|rule| &rule.namespaces));
        let is_open = self.rules.is_empty();
        move |namespace| is_open || namespaces.contains(namespace)
    }

    /// Returns whether an identity may read the metrics of the server. A rule for any namespace can grant this right.
    pub fn may_read_metrics(&self, identity: &Identity) -> bool {
        self.rules.is_empty() || self.rules_of(identity).any(|rule| rule.allow.contains(Rights::METRICS))
    }

    fn rules_of(&self, identity: &Identity) -> impl Iterator<Item = &Rule> {
        let member = Member::new(identity, &self.groups);
        let rules: Vec<_> = self.rules.iter().filter(|rule| rule.who.is(&member)).collect();
        rules.into_iter()
    }
}

impl Rule {
    fn parse(number: usize, text: RuleText) -> Result<Self, AccessFileError> {
        let RuleText { identity, group, everyone, namespace, prefix, allow } = text;
        let who = Who::parse(&format!("rule {number}"), identity, group, everyone)?;
        if allow.is_empty() {
            return Err(AccessFileError::NoRight { number });
        }
        let mut rights = Rights::NONE;
        for name in allow {
            rights = rights | right(&name).ok_or(AccessFileError::UnknownRight { number, name })?;
        }
        let bad = |problem| AccessFileError::BadPattern { number, problem };
        if prefix.len() > KEY_LEN_MAX {
            return Err(bad(format!("`prefix` has more than {KEY_LEN_MAX} bytes")));
        }
        if prefix.contains('*') {
            let problem =
                "`prefix` has a `*`; a prefix applies to all keys that begin with it, so leave the `*` out";
            return Err(bad(problem.to_owned()));
        }
        let namespaces = Namespaces::parse(&namespace).map_err(bad)?;
        Ok(Self { who, namespaces, prefix, allow: rights })
    }
}

/// Returns the right with this name; `all` stands for all rights.
fn right(name: &str) -> Option<Rights> {
    if name == "all" {
        return Some(Rights::ALL);
    }
    Rights::NAMED.iter().find(|(own, _)| *own == name).map(|(_, right)| *right)
}

/// Returns the prefix as the bytes that keys of this kind begin with. In a tree it is a path with `/` between its
/// segments.
fn prefix_bytes(prefix: &str, kind: NamespaceKind) -> Box<[u8]> {
    if kind != NamespaceKind::Tree {
        return prefix.as_bytes().into();
    }
    let mut path = Vec::new();
    let segments = prefix.trim_end_matches('/').split('/');
    // A path above the limits is the prefix of no valid path.
    match PathKey::append(segments, &mut path) {
        Ok(()) => path.into(),
        Err(_) => vec![u8::MAX; KEY_LEN_MAX].into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Proof;
    use waymaker_engine::Resource;

    fn identity(name: &str, groups: &[&str]) -> Identity {
        let groups = groups.iter().map(|group| Arc::from(*group)).collect();
        Identity { name: name.into(), groups, proof: Proof::Anonymous }
    }

    const RULES: &str = r#"
        [groups]
        operators = ["alice"]
        [[rule]]
        group = "operators"
        allow = ["all"]
        [[rule]]
        identity = "billing"
        namespace = "jobs"
        prefix = "invoice/"
        allow = ["acquire"]
        [[rule]]
        everyone = true
        namespace = "public*"
        allow = ["acquire_shared", "metrics"]
    "#;

    #[test]
    fn a_rule_applies_to_its_identity_namespace_and_prefix_alone() {
        let rules = Rules::parse(RULES).unwrap();
        let access = |name, namespace: &str| {
            rules.access(&identity(name, &[]), namespace.as_bytes(), NamespaceKind::Flat)
        };
        let billing = access("billing", "jobs");
        assert!(billing.covers(Rights::ACQUIRE, b"invoice/1"));
        assert!(!billing.covers(Rights::ACQUIRE, b"order/1"));
        assert!(!billing.covers(Rights::INSPECT, b"invoice/1"));
        assert_eq!(access("billing", "jobs2").somewhere(), Rights::NONE);
        assert_eq!(access("other", "jobs").somewhere(), Rights::NONE);
        assert!(access("other", "public/1").covers(Rights::ACQUIRE_SHARED, b"x"));
        assert!(!access("other", "public/1").covers(Rights::ACQUIRE, b"x"));
        assert_eq!(access("alice", "anything").everywhere(), Rights::ALL.without(Rights::METRICS));
    }

    #[test]
    fn the_right_to_read_metrics_lets_nobody_into_a_namespace() {
        let rules = Rules::parse("[[rule]]\neveryone = true\nallow = [\"metrics\"]").unwrap();
        let reader = identity("reader", &[]);
        assert!(rules.may_read_metrics(&reader));
        assert_eq!(rules.access(&reader, b"x", NamespaceKind::Flat).somewhere(), Rights::NONE);
    }

    #[test]
    fn a_token_may_name_groups_that_the_file_does_not_list() {
        let rules = Rules::parse(RULES).unwrap();
        let member = identity("carol", &["operators"]);
        let access = rules.access(&member, b"x", NamespaceKind::Flat);
        assert!(access.everywhere().contains(Rights::FREEZE));
    }

    #[test]
    fn without_rules_every_identity_may_do_everything() {
        let rules = Rules::parse("").unwrap();
        assert_eq!(rules.access(&identity("a", &[]), b"x", NamespaceKind::Flat).everywhere(), Rights::ALL);
        assert!(rules.may_read_metrics(&identity("a", &[])));
    }

    #[test]
    fn in_a_tree_a_prefix_ends_where_a_segment_does() {
        let rules =
            Rules::parse("[[rule]]\neveryone = true\nprefix = \"a/b\"\nallow = [\"acquire\"]").unwrap();
        let access = rules.access(&identity("a", &[]), b"x", NamespaceKind::Tree);
        let path = |segments: &[&str]| {
            let mut path = Vec::new();
            PathKey::append(segments, &mut path).unwrap();
            path
        };
        assert!(access.covers(Rights::ACQUIRE, &path(&["a", "b"])));
        assert!(access.covers(Rights::ACQUIRE, &path(&["a", "b", "c"])));
        assert!(!access.covers(Rights::ACQUIRE, &path(&["a", "bc"])));
        assert!(!access.covers(Rights::ACQUIRE, &path(&["a"])));
    }

    #[test]
    fn certificates_and_users_are_mapped_to_identities() {
        let rules =
            Rules::parse("[certificates]\n\"ci.example\" = \"ci\"\n[users]\n1000 = \"deploy\"").unwrap();
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(rules.identity_of_certificate(&names(&["x", "ci.example"])).as_deref(), Some("ci"));
        assert_eq!(rules.identity_of_certificate(&names(&["x"])), None);
        assert_eq!(&*rules.identity_of_user(1000), "deploy");
        assert_eq!(&*rules.identity_of_user(7), "uid:7");
        let unmapped = Rules::parse("").unwrap();
        assert_eq!(unmapped.identity_of_certificate(&names(&["x", "y"])).as_deref(), Some("x"));
    }

    #[test]
    fn a_mistake_is_named() {
        for (text, named) in [
            ("[[rule]]\nallow = [\"acquire\"]", "rule 1: needs exactly one of"),
            (
                "[[rule]]\nidentity = \"a\"\ngroup = \"b\"\nallow = [\"acquire\"]",
                "rule 1: needs exactly one of",
            ),
            ("[[rule]]\nidentity = \"a\"\nallow = [\"lock\"]", "unknown right \"lock\""),
            ("[[rule]]\nidentity = \"a\"\nallow = []", "`allow` is empty"),
            ("[[rule]]\nidentity = \"\"\nallow = [\"all\"]", "is not a name"),
            ("[[rule]]\nidentity = \"a\"\nprefix = \"a*\"\nallow = [\"all\"]", "`prefix` has a `*`"),
            ("[[rule]]\nidentity = \"a\"\nnamespace = \"a*b\"\nallow = [\"all\"]", "not at its end"),
            ("[[rule]]\nidentity = \"a\"\nname = \"x\"\nallow = [\"all\"]", "unknown field `name`"),
            ("[users]\nroot = \"a\"", "is not a user id"),
            ("anonymous = \"\"", "`anonymous`"),
        ] {
            let error = Rules::parse(text).unwrap_err().to_string();
            assert!(error.contains(named), "{text}: {error}");
        }
    }

    #[test]
    fn the_first_quota_that_sets_a_limit_counts() {
        let text = r#"
            [groups]
            batch = ["nightly"]
            [[quota]]
            identity = "billing"
            claims = 10
            [[quota]]
            group = "batch"
            waiters = 0
            [[quota]]
            everyone = true
            claims = 1_000
            waiters = 100
            [[quota]]
            everyone = true
            per_address = true
            claims = 7
        "#;
        let rules = Rules::parse(text).unwrap();
        let quota = |name, groups: &[&str], holder, resource| {
            rules.quotas(&identity(name, groups), holder).get(resource)
        };
        let (own, at_address) = (Holder::Identity, Holder::Address);
        assert_eq!(quota("billing", &[], own, Resource::Claims), Some(10));
        assert_eq!(quota("billing", &[], own, Resource::Waiters), Some(100));
        assert_eq!(quota("billing", &[], own, Resource::Sessions), None);
        assert_eq!(quota("nightly", &[], own, Resource::Waiters), Some(0));
        assert_eq!(quota("other", &["batch"], own, Resource::Waiters), Some(0));
        assert_eq!(quota("other", &[], own, Resource::Claims), Some(1_000));
        assert_eq!(quota("other", &[], at_address, Resource::Claims), Some(7));
        assert_eq!(quota("other", &[], at_address, Resource::Waiters), None);
        assert!(Rules::default().quotas(&identity("other", &[]), own).is_empty());
    }

    #[test]
    fn a_quota_needs_clients_and_a_limit() {
        let refusal = |text: &str| Rules::parse(&format!("[[quota]]\n{text}")).unwrap_err().to_string();
        assert_eq!(
            refusal("claims = 1"),
            "quota 1: needs exactly one of `identity`, `group` and `everyone = true`"
        );
        assert_eq!(
            refusal("everyone = true"),
            "quota 1: sets no limit; use at least one of connections, new_connections_per_second, sessions, \
             namespaces, claims, waiters, bytes"
        );
        assert!(refusal("everyone = true\nclaims = -1").contains("claims"));
        assert!(refusal("everyone = true\nclaim = 1").contains("claim"));
    }
}
