//! Namespaces that clients have connected to, each with its counter of lock ids.

use crate::limits::NAMESPACE_COUNT_MAX;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// All namespaces of a server, shared by its workers. The first connection to a namespace creates it. The mutex is
/// taken only when a client connects or reads statistics, so contention is low.
#[derive(Debug, Default)]
pub(super) struct Namespaces {
    by_name: Mutex<BTreeMap<Box<str>, Arc<Namespace>>>,
}

/// One namespace, shared by all of its connections on all workers.
#[derive(Debug, Default)]
pub(super) struct Namespace {
    last_id: AtomicU64,
}

impl Namespaces {
    /// Returns the namespace with this name; creates it if it does not exist.
    pub(super) fn open(&self, name: &str) -> Arc<Namespace> {
        let mut by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(namespace) = by_name.get(name) {
            return Arc::clone(namespace);
        }
        if by_name.len() >= NAMESPACE_COUNT_MAX {
            // Forget the namespaces without connections. If one is opened again, its lock ids start at 1 again.
            by_name.retain(|_, namespace| Arc::strong_count(namespace) > 1);
        }
        Arc::clone(by_name.entry(name.into()).or_default())
    }

    /// Returns the namespace with this name, if a client has connected to it and it was not forgotten since.
    pub(super) fn get(&self, name: &str) -> Option<Arc<Namespace>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner).get(name).map(Arc::clone)
    }

    /// Returns the names of all namespaces in order.
    pub(super) fn names(&self) -> Vec<Box<str>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }
}

impl Namespace {
    /// Returns the id of the next lock; the first is 1.
    pub(super) fn next_id(&self) -> u64 {
        self.last_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns the id of the last lock; 0 before the first.
    pub(super) fn last_id(&self) -> u64 {
        self.last_id.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_count_from_one_in_each_namespace_across_connections() {
        let namespaces = Namespaces::default();
        let [one, same, other] = ["a", "a", "b"].map(|name| namespaces.open(name));
        assert_eq!([one.next_id(), same.next_id(), other.next_id(), one.next_id()], [1, 2, 1, 3]);
        assert_eq!([same.last_id(), other.last_id()], [3, 1]);
    }

    #[test]
    fn a_namespace_exists_once_it_was_opened() {
        let namespaces = Namespaces::default();
        assert!(namespaces.get("a").is_none());
        namespaces.open("a").next_id();
        assert_eq!(namespaces.get("a").map(|namespace| namespace.last_id()), Some(1));
        namespaces.open("");
        assert_eq!(namespaces.names(), ["".into(), "a".into()]);
    }
}
