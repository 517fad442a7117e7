//! Namespaces whose kind is fixed by their name: the built-in ones (of front ends, and the default namespaces), and
//! those of Locktopus.

use waymaker_protocol::NamespaceKind;

/// Namespace of all Locket resources. Clients of this project that open the registry `locket` use the same name.
pub(crate) const LOCKET_NAMESPACE: &[u8] = b"registry/locket";
/// Type name of Locket's locks.
pub(crate) const LOCKET_LOCK: &str = "lock";
/// Type name of Locket's presences.
pub(crate) const LOCKET_PRESENCE: &str = "presence";
/// Types of Locket's resources that the metrics count.
pub(crate) const LOCKET_TYPES: [&str; 2] = [LOCKET_LOCK, LOCKET_PRESENCE];
/// Registry with a registration for each table that DynamoDB clients created. Only the server itself opens it.
pub(crate) const DYNAMODB_TABLES: &str = "registry/dynamodb";

/// Built-in namespaces: one default namespace of each kind, and the fixed namespaces of front ends. The kind of each
/// name is fixed before its first use. The limits on the number of namespaces do not apply.
pub(super) const BUILT_IN: [(&[u8], NamespaceKind); 9] = [
    (b"waymaker", NamespaceKind::Flat),
    (LOCKET_NAMESPACE, NamespaceKind::Registry),
    (DYNAMODB_TABLES.as_bytes(), NamespaceKind::Registry),
    (b"default", NamespaceKind::Flat),
    (b"tree/default", NamespaceKind::Tree),
    (b"registry/default", NamespaceKind::Registry),
    (b"lazy/clever/default", NamespaceKind::Lazy),
    (b"sem/default", NamespaceKind::Pool),
    (b"limit/default", NamespaceKind::Limit),
];
/// Prefix of the names of Locktopus namespaces, which are trees. They are not built in, so limits on the number of
/// namespaces apply to them.
const LOCKTOPUS: &[u8] = b"tree/locktopus/";

/// Returns the fixed kind of a built-in name or of the name of a Locktopus namespace; `None` for other names.
pub fn built_in_kind(name: &[u8]) -> Option<NamespaceKind> {
    if name.starts_with(LOCKTOPUS) {
        return Some(NamespaceKind::Tree);
    }
    BUILT_IN.iter().find(|(built_in, _)| *built_in == name).map(|(_, kind)| *kind)
}

pub(super) fn is_built_in(name: &[u8]) -> bool {
    BUILT_IN.iter().any(|(built_in, _)| *built_in == name)
}
