//! The keys that claims waited for most often in the last minutes, as published by workers.

use crate::namespaces::Namespaces;
use std::sync::{Mutex, PoisonError};
use waymaker_engine::{ContendedKey, ContendedKeys};
use waymaker_protocol::NamespaceKind;

/// One key that claims have waited for recently.
#[derive(Clone, Debug)]
pub(crate) struct Contended {
    /// Name of the namespace.
    pub(crate) namespace: Box<[u8]>,
    pub(crate) kind: NamespaceKind,
    pub(crate) waits_per_s: f64,
    pub(crate) key: ContendedKey,
}

impl Contended {
    /// Returns the keys of a shard with the names of their namespaces. Must be called in the turn of the shard. During
    /// the turn, no namespace of these keys can be removed and its number given to another one.
    pub(crate) fn of(keys: ContendedKeys, namespaces: &Mutex<Namespaces>) -> Vec<Self> {
        if keys.keys.is_empty() {
            return Vec::new();
        }
        let namespaces = namespaces.lock().unwrap_or_else(PoisonError::into_inner);
        // Use at least one second: in a shorter window a single wait would look like a high rate.
        let seconds = keys.window_ms.max(1_000) as f64 / 1e3;
        let named = keys.keys.into_iter().filter_map(|key| {
            let number = key.namespace;
            let (found, namespace, kind) = namespaces.by_number(u64::from(number)).next()?;
            let waits_per_s = key.waits as f64 / seconds;
            // Leave out the number of waiters of a path in a tree. A shard without claims of the tree looks up the path
            // as if it were a key, and would report no waiters.
            let waiter_count = key.waiter_count.filter(|_| kind != NamespaceKind::Tree);
            let key = ContendedKey { waiter_count, ..key };
            (found == number).then(|| Self { namespace: namespace.into(), kind, waits_per_s, key })
        });
        named.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use waymaker_engine::Accounts;

    #[test]
    fn a_path_has_no_number_of_waiters_and_a_short_time_counts_as_a_second() {
        let mut namespaces = Namespaces::default();
        let _used = namespaces.open(b"tree", NamespaceKind::Tree, &Accounts::NONE, |_| {}).unwrap();
        let key = ContendedKey {
            key: b"\x01\0a".to_vec(),
            waits: 3,
            waiter_count: Some(0),
            ..ContendedKey::default()
        };
        let keys = ContendedKeys { window_ms: 500, keys: vec![key] };
        let contended = Contended::of(keys, &Mutex::new(namespaces));
        assert_eq!((contended[0].key.waiter_count, contended[0].waits_per_s), (None, 3.0));
    }
}
