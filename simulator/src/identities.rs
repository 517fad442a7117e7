//! Identities, rights and quotas of a run: the access file of the server, and a naive table of the same rules
//! for the auditor.
//!
//! All other clients have one of two identities with every right and with quotas that are never reached. So the
//! whole run passes the access control of the server, and claims move between the accounts of two identities.

use crate::random::Random;
use std::fmt::Write;
use std::sync::Arc;
use waymaker_access::{Identity, Proof, Rules};
use waymaker_server::access::{AccessControl, Evidence, LoginLimits, Policy};

/// Namespace of the tenants.
pub(crate) const TENANT_NAMESPACE: &[u8] = b"tenants";
/// Namespace in which no tenant has a right, except the operator, who never uses it.
pub(crate) const CLOSED_NAMESPACE: &[u8] = b"tenants-closed";
/// Keys of the tenants. `x/1` has a prefix that no rule names.
pub(crate) const TENANT_KEYS: [&[u8]; 8] =
    [b"a/1", b"a/2", b"b/1", b"b/2", b"s/1", b"s/2", b"r/1", UNUSED_KEY];
/// The key that no tenant may acquire, except the operator, who never does.
pub(crate) const UNUSED_KEY: &[u8] = b"x/1";
/// Number of policies that a run changes between.
pub(crate) const POLICY_COUNT: usize = 3;
/// Number of the first tenant on the network. It is above the numbers of all visitors.
pub(crate) const FIRST_TENANT: usize = 1 << 21;
/// The identities of all tenants of a run.
pub(crate) const TENANTS: [TenantIdentity; 6] = [
    TenantIdentity::Alice,
    TenantIdentity::Alice,
    TenantIdentity::Bob,
    TenantIdentity::Bob,
    TenantIdentity::Operator,
    TenantIdentity::Stranger,
];
/// A quota that no run reaches.
const PLENTY: u64 = 1_000_000;

/// Settings of the tenants and of the policy of the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identities {
    /// Seed of the random source for the acts of tenants.
    pub(crate) seed: u64,
    /// Mean time between two acts of a tenant.
    pub(crate) pace_us: u64,
    /// Quotas of each identity that has less than all rights.
    pub(crate) quotas: TenantQuotas,
    /// Mean time between two changes of the policy; `None` without changes.
    pub(crate) reload_us: Option<u64>,
}

/// Quotas of a tenant's identity.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TenantQuotas {
    pub(crate) claims: u64,
    pub(crate) waiters: u64,
    pub(crate) sessions: u64,
}

impl Identities {
    /// Chooses the settings of a seed; `None` if clients have no identities. They have their own random source,
    /// so that the other choices of the seed do not depend on them.
    pub(crate) fn new(seed: u64) -> Option<Self> {
        let random = &mut Random::new(seed ^ 0x6964_656e_7469_7479);
        random.percent(30).then(|| Self {
            seed: random.any(),
            pace_us: random.spread(2_000, 60_000),
            quotas: TenantQuotas {
                claims: random.between(2, 5),
                waiters: random.between(1, 2),
                sessions: random.between(1, 2),
            },
            reload_us: random.percent(60).then(|| random.spread(200_000, 6_000_000)),
        })
    }

    /// Returns the access control of a server that starts with this policy.
    pub(crate) fn access_control(self, policy: usize) -> AccessControl {
        AccessControl::new(self.policy(policy), LoginLimits::default())
    }

    /// Returns a policy, as the server reads it from its access file.
    pub(crate) fn policy(self, policy: usize) -> Policy {
        let rules = Rules::parse(&self.access_file(policy));
        Policy::of_rules(rules.unwrap_or_else(|error| panic!("the access file of the simulation: {error}")))
    }

    fn access_file(self, policy: usize) -> String {
        let mut text = String::from("anonymous = \"others\"\n[certificates]\n");
        for who in TenantIdentity::KNOWN {
            let _ = writeln!(text, "\"{}.example\" = \"{}\"", who.name(), who.name());
        }
        let _ = writeln!(text, "\"{COLLEAGUES}.example\" = \"{COLLEAGUES}\"");
        for name in ["others", COLLEAGUES, TenantIdentity::Operator.name()] {
            let _ = writeln!(text, "[[rule]]\nidentity = \"{name}\"\nallow = [\"all\"]");
        }
        for (who, prefix, rights) in rules_of(policy) {
            let names: Vec<_> = rights.iter().map(|right| format!("\"{}\"", right.name())).collect();
            let _ = writeln!(
                text,
                "[[rule]]\nidentity = \"{}\"\nnamespace = \"tenants\"\nprefix = \"{prefix}\"\nallow = [{}]",
                who.name(),
                names.join(", ")
            );
        }
        let TenantQuotas { claims, waiters, sessions } = self.quotas;
        for who in TenantIdentity::LIMITED {
            let _ = writeln!(
                text,
                "[[quota]]\nidentity = \"{}\"\nclaims = {claims}\nwaiters = {waiters}\nsessions = {sessions}",
                who.name()
            );
        }
        let _ = writeln!(
            text,
            "[[quota]]\neveryone = true\nconnections = {PLENTY}\nsessions = {PLENTY}\nclaims = {PLENTY}\n\
             waiters = {PLENTY}\nbytes = {}",
            1_000 * PLENTY
        );
        text
    }
}

/// Identity of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TenantIdentity {
    Alice,
    Bob,
    /// Has every right.
    Operator,
    /// Has a certificate that the access file does not name.
    Stranger,
}

impl TenantIdentity {
    /// The identities that the access file names.
    pub(crate) const KNOWN: [Self; 3] = [Self::Alice, Self::Bob, Self::Operator];
    /// The identities with small quotas.
    pub(crate) const LIMITED: [Self; 2] = [Self::Alice, Self::Bob];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Alice => "alice",
            Self::Bob => "bob",
            Self::Operator => "operator",
            Self::Stranger => "stranger",
        }
    }

    /// Returns the facts that the server knows of a client of this identity before its HELLO.
    pub(crate) fn evidence(self) -> Evidence {
        evidence_of(self.name())
    }

    /// Returns the identity as the server finds it.
    pub(crate) fn identity(self) -> Identity {
        Identity { name: Arc::from(self.name()), groups: Vec::new(), proof: Proof::Certificate }
    }
}

/// Returns the identity of a client on the network; `None` if the client is no tenant.
pub(crate) fn tenant_identity_of(client: usize) -> Option<TenantIdentity> {
    TENANTS.get(client.checked_sub(FIRST_TENANT)?).copied()
}

/// Identity of some clients that are not tenants.
const COLLEAGUES: &str = "colleagues";

/// Returns the facts that the server knows of a client that is no tenant. All of them may do everything;
/// colleagues have another identity than the others.
pub(crate) fn evidence_of_others(is_colleague: bool) -> Evidence {
    if is_colleague { evidence_of(COLLEAGUES) } else { Evidence::default() }
}

/// The identities of clients that are not tenants, as the server finds them.
pub(crate) fn identities_of_others() -> [Identity; 2] {
    let identity = |name, proof| Identity { name: Arc::from(name), groups: Vec::new(), proof };
    [identity("others", Proof::Anonymous), identity(COLLEAGUES, Proof::Certificate)]
}

fn evidence_of(name: &str) -> Evidence {
    Evidence {
        certificate_names: vec![format!("{name}.example")],
        needs_identity: true,
        ..Evidence::default()
    }
}

/// A right in the namespace of the tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Right {
    AcquireShared,
    Acquire,
    Inspect,
    List,
    ReleaseOthers,
    ForceRelease,
    Freeze,
    Admin,
}

impl Right {
    pub(crate) const ALL: [Self; 8] = [
        Self::AcquireShared,
        Self::Acquire,
        Self::Inspect,
        Self::List,
        Self::ReleaseOthers,
        Self::ForceRelease,
        Self::Freeze,
        Self::Admin,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::AcquireShared => "acquire_shared",
            Self::Acquire => "acquire",
            Self::Inspect => "inspect",
            Self::List => "list",
            Self::ReleaseOthers => "release_others",
            Self::ForceRelease => "force_release",
            Self::Freeze => "freeze",
            Self::Admin => "admin",
        }
    }

    fn is_implied_by(self, other: Self) -> bool {
        self == other || (self, other) == (Self::AcquireShared, Self::Acquire)
    }
}

/// The rights of an identity for keys with a prefix.
type TenantRule = (TenantIdentity, &'static str, &'static [Right]);

/// Returns the rules of a policy for the namespace of the tenants. The operator has all rights in addition.
fn rules_of(policy: usize) -> &'static [TenantRule] {
    use Right::{Acquire, AcquireShared, ForceRelease, Inspect, List, ReleaseOthers};
    use TenantIdentity::{Alice, Bob};
    match policy {
        0 => &[
            (Alice, "a/", &[Acquire, Inspect]),
            (Alice, "s/", &[Acquire]),
            (Alice, "r/", &[AcquireShared]),
            (Bob, "b/", &[Acquire, Inspect]),
            (Bob, "s/", &[Acquire, Inspect]),
        ],
        1 => &[(Alice, "a/", &[Acquire]), (Alice, "s/", &[Acquire]), (Bob, "b/", &[Acquire, Inspect, List])],
        _ => &[
            (Alice, "a/", &[Acquire, Inspect]),
            (Alice, "s/", &[Acquire, ReleaseOthers]),
            (Alice, "r/", &[AcquireShared]),
            (Bob, "b/", &[Acquire, Inspect, ForceRelease]),
            (Bob, "s/", &[Acquire, Inspect]),
        ],
    }
}

/// Returns whether a policy gives an identity a right for a key.
pub(crate) fn has(policy: usize, who: TenantIdentity, right: Right, key: &[u8]) -> bool {
    let gives = |(other, prefix, rights): &TenantRule| {
        *other == who
            && key.starts_with(prefix.as_bytes())
            && rights.iter().any(|other| right.is_implied_by(*other))
    };
    who == TenantIdentity::Operator || rules_of(policy).iter().any(gives)
}

/// Returns whether a policy gives an identity a right for some key.
pub(crate) fn has_somewhere(policy: usize, who: TenantIdentity, right: Right) -> bool {
    TENANT_KEYS.iter().any(|key| has(policy, who, right, key))
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDENTITIES: Identities = Identities {
        seed: 0,
        pace_us: 1,
        quotas: TenantQuotas { claims: 1, waiters: 1, sessions: 1 },
        reload_us: None,
    };

    #[test]
    fn the_server_can_read_each_policy() {
        for policy in 0..POLICY_COUNT {
            assert!(IDENTITIES.policy(policy).has_rules());
        }
    }

    #[test]
    fn a_rule_gives_its_rights_for_its_prefix_alone() {
        assert!(has(0, TenantIdentity::Alice, Right::Acquire, b"a/1"));
        assert!(has(0, TenantIdentity::Alice, Right::AcquireShared, b"a/1"));
        assert!(!has(0, TenantIdentity::Alice, Right::Acquire, b"b/1"));
        assert!(!has(0, TenantIdentity::Alice, Right::Acquire, b"r/1"));
        assert!(!has(0, TenantIdentity::Stranger, Right::Acquire, b"a/1"));
        assert!(Right::ALL.iter().all(|right| has(1, TenantIdentity::Operator, *right, UNUSED_KEY)));
        assert!(
            has_somewhere(1, TenantIdentity::Bob, Right::List)
                && !has_somewhere(0, TenantIdentity::Bob, Right::List)
        );
    }
}
