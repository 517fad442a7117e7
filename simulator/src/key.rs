//! The keys of a run: their numbers, their kinds and their names.

use waymaker_protocol::NamespaceKind;

/// Number of a key.
pub(crate) type Key = u16;

/// Full name of a key: the name of its namespace, and its name there.
pub(crate) type FullName = (Box<[u8]>, Box<[u8]>);

/// Key that stands for a tree namespace as a whole. Smaller numbers are flat keys.
pub(crate) const TREE: Key = 1 << 14;
pub(crate) const FIRST_POOL: Key = TREE + 16;
pub(crate) const FIRST_REGISTRATION: Key = TREE + 32;
pub(crate) const FIRST_LAZY_REGISTRATION: Key = TREE + 48;
pub(crate) const FIRST_BUCKET: Key = TREE + 64;

/// Prefix of the names of all namespaces of visitors.
pub(crate) const VISITED: &[u8] = b"visit";
/// Keys of visitors. These names collide if they are not escaped correctly.
pub(crate) const VISITED_KEYS: [&[u8]; 3] = [b"a", b"a/a", b"\xff%2F"];

/// Returns the kind of namespace that a key belongs to.
pub(crate) fn kind_of(key: Key) -> NamespaceKind {
    match key {
        TREE => NamespaceKind::Tree,
        FIRST_POOL..FIRST_REGISTRATION => NamespaceKind::Pool,
        FIRST_REGISTRATION..FIRST_LAZY_REGISTRATION => NamespaceKind::Registry,
        FIRST_LAZY_REGISTRATION..FIRST_BUCKET => NamespaceKind::Lazy,
        FIRST_BUCKET.. => NamespaceKind::Limit,
        _ => NamespaceKind::Flat,
    }
}

/// Returns the name of a key that is not flat.
pub(crate) fn name_of(key: Key) -> Vec<u8> {
    match key {
        TREE => Vec::new(),
        // The first two buckets are in one shard for every number of shards.
        FIRST_BUCKET.. => format!("name-{}", 84 + 4 * (key - FIRST_BUCKET)).into_bytes(),
        _ => format!("name-{}", key - TREE + 16).into_bytes(),
    }
}
