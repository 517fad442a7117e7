//! Counters of expired registrations, for metrics.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Maximum number of registration types in one namespace that have their own counter. Clients choose the types, so the
/// number of counters needs a limit.
const TYPE_COUNT_MAX: usize = 64;

/// Counters of the registrations that have expired since the start of the server, without those of removed namespaces.
/// A mutex suffices: registrations expire rarely, and counting one takes little time.
#[derive(Debug, Default)]
pub struct Expiries(Mutex<BTreeMap<u16, Types>>);

/// Counts by type, for one namespace.
type Types = BTreeMap<Box<[u8]>, u64>;

/// Number of expired registrations of one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpiryCount {
    /// Number of the namespace.
    pub namespace: u16,
    /// Type of the registrations. The empty type stands for registrations without a type, and for all types of a
    /// namespace beyond the first 64 of which a registration expired.
    pub type_name: Box<[u8]>,
    /// Number of expired registrations.
    pub count: u64,
}

impl Expiries {
    /// Counts one expired registration of this type.
    pub(crate) fn count(&self, namespace: u16, type_name: &[u8]) {
        let mut namespaces = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let types = namespaces.entry(namespace).or_default();
        if let Some(count) = types.get_mut(type_name) {
            *count += 1;
            return;
        }
        let named_count = types.len() - usize::from(types.contains_key(&b""[..]));
        let type_name = if named_count < TYPE_COUNT_MAX { type_name } else { b"" };
        *types.entry(Box::from(type_name)).or_default() += 1;
    }

    /// Removes the counters of a namespace that was removed, so that counters do not accumulate.
    pub(crate) fn forget(&self, namespace: u16) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&namespace);
    }

    /// Returns all counts, sorted by namespace number and type.
    pub fn read(&self) -> Vec<ExpiryCount> {
        let namespaces = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut counts = Vec::new();
        for (namespace, types) in &*namespaces {
            counts.extend(types.iter().map(|(type_name, count)| ExpiryCount {
                namespace: *namespace,
                type_name: type_name.clone(),
                count: *count,
            }));
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(namespace: u16, type_name: &str, count: u64) -> ExpiryCount {
        ExpiryCount { namespace, type_name: Box::from(type_name.as_bytes()), count }
    }

    #[test]
    fn expiries_are_counted_per_namespace_and_type() {
        let expiries = Expiries::default();
        for (namespace, type_name) in [(1, "b"), (1, "a"), (0, "b"), (1, "b"), (1, "")] {
            expiries.count(namespace, type_name.as_bytes());
        }
        let expected = [counted(0, "b", 1), counted(1, "", 1), counted(1, "a", 1), counted(1, "b", 2)];
        assert_eq!(expiries.read(), expected);
    }

    #[test]
    fn types_beyond_the_limit_are_counted_together() {
        let expiries = Expiries::default();
        for number in 0..1000 {
            expiries.count(7, format!("type {number:03}").as_bytes());
        }
        expiries.count(7, b"type 000");
        expiries.count(8, b"type 999");
        let counts = expiries.read();
        assert_eq!(counts.len(), 1 + TYPE_COUNT_MAX + 1);
        assert_eq!(counts[0], counted(7, "", 1000 - TYPE_COUNT_MAX as u64));
        assert_eq!(counts[1], counted(7, "type 000", 2));
        assert_eq!(counts[TYPE_COUNT_MAX + 1], counted(8, "type 999", 1));
    }
}
