//! Counts of registrations by namespace and type.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Counts of registrations by namespace and type. Registrations of one type in one namespace share its name, so the
/// counts need little memory.
#[derive(Debug, Default)]
pub(crate) struct Registrations(BTreeMap<u16, BTreeMap<Arc<[u8]>, u64>>);

impl Registrations {
    /// Adds a registration that begins, or that changes to this type, to the count of the type. Returns the shared name
    /// of the type.
    pub(crate) fn begin(&mut self, namespace: u16, type_name: &[u8]) -> Arc<[u8]> {
        let types = self.0.entry(namespace).or_default();
        let known = types.get_key_value(type_name).map(|(name, _)| Arc::clone(name));
        let name = known.unwrap_or_else(|| Arc::from(type_name));
        *types.entry(Arc::clone(&name)).or_default() += 1;
        name
    }

    /// Subtracts a registration from the count of its type, because it ends or gets another type.
    pub(crate) fn end(&mut self, namespace: u16, type_name: &[u8]) {
        let Some(types) = self.0.get_mut(&namespace) else { return };
        if let Some(count) = types.get_mut(type_name) {
            *count -= 1;
            if *count == 0 {
                types.remove(type_name);
            }
        }
        if types.is_empty() {
            self.0.remove(&namespace);
        }
    }

    /// Returns the number of registrations of a type.
    pub(crate) fn count(&self, namespace: u16, type_name: &[u8]) -> u64 {
        self.0.get(&namespace).and_then(|types| types.get(type_name)).copied().unwrap_or(0)
    }

    /// Checks that the counts match these registrations, each given by its namespace and type. For tests.
    pub(crate) fn verify<'a>(&self, registrations: impl Iterator<Item = (u16, &'a [u8])>) {
        let mut counted: BTreeMap<(u16, &[u8]), u64> = BTreeMap::new();
        registrations.for_each(|registration| *counted.entry(registration).or_default() += 1);
        let own = self.0.iter().flat_map(|(namespace, types)| {
            types.iter().map(|(type_name, count)| ((*namespace, &**type_name), *count))
        });
        assert!(counted.into_iter().eq(own), "counts of registrations: {self:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_forgotten_with_its_last_registration() {
        let mut registrations = Registrations::default();
        let name = registrations.begin(1, b"a");
        assert!(Arc::ptr_eq(&name, &registrations.begin(1, b"a")), "they share the name");
        drop(registrations.begin(2, b"a"));
        let counts =
            [(1, b"a"), (2, b"a"), (1, b"b")].map(|(namespace, name)| registrations.count(namespace, name));
        assert_eq!(counts, [2, 1, 0]);
        for namespace in [1, 1, 2, 2] {
            registrations.end(namespace, b"a");
        }
        registrations.verify(std::iter::empty());
    }
}
