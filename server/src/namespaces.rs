//! The namespaces there are.

use crate::limits::NAMESPACE_COUNT_MAX;
use std::collections::BTreeMap;
use waymaker_protocol::NamespaceKind;

/// Names, and the number and kind of each. A namespace is made by whoever names it first and keeps its kind.
#[derive(Debug, Default)]
pub struct Namespaces {
    by_name: BTreeMap<Box<[u8]>, (u16, NamespaceKind)>,
}

/// Why a namespace could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceRefusal {
    /// It exists and has this other kind.
    OtherKind(NamespaceKind),
    /// There are as many as there may be.
    TooMany,
}

impl Namespaces {
    /// The number of the namespace, which is made if it is new; then `made` is told.
    pub fn open(
        &mut self,
        name: &[u8],
        kind: NamespaceKind,
        mut made: impl FnMut(u16),
    ) -> Result<u16, NamespaceRefusal> {
        if let Some((number, existing)) = self.by_name.get(name) {
            return if *existing == kind { Ok(*number) } else { Err(NamespaceRefusal::OtherKind(*existing)) };
        }
        if self.by_name.len() >= NAMESPACE_COUNT_MAX {
            return Err(NamespaceRefusal::TooMany);
        }
        let number = self.by_name.len() as u16;
        self.by_name.insert(name.into(), (number, kind));
        made(number);
        Ok(number)
    }

    /// The number and the kind of the namespace, if there is one.
    pub fn find(&self, name: &[u8]) -> Option<(u16, NamespaceKind)> {
        self.by_name.get(name).copied()
    }

    /// A namespace that an earlier server knew. Numbers are given one after the other, so none is left out.
    pub fn restore(&mut self, number: u16, name: &[u8], kind: NamespaceKind) {
        self.by_name.insert(name.into(), (number, kind));
    }

    /// All namespaces in the order of their numbers.
    pub fn by_number(&self) -> Vec<(&[u8], NamespaceKind)> {
        let mut all: Vec<_> =
            self.by_name.iter().map(|(name, (number, kind))| (*number, &**name, *kind)).collect();
        all.sort_unstable_by_key(|(number, ..)| *number);
        all.into_iter().map(|(_, name, kind)| (name, kind)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_keeps_its_number_and_its_kind() {
        let mut namespaces = Namespaces::default();
        assert_eq!(namespaces.open(b"a", NamespaceKind::Flat, |_| {}), Ok(0));
        assert_eq!(namespaces.open(b"b", NamespaceKind::Flat, |_| {}), Ok(1));
        assert_eq!(namespaces.open(b"a", NamespaceKind::Flat, |_| {}), Ok(0));
        let refused = namespaces.open(b"a", NamespaceKind::Pool, |_| {});
        assert_eq!(refused, Err(NamespaceRefusal::OtherKind(NamespaceKind::Flat)));
        assert_eq!(namespaces.find(b"b"), Some((1, NamespaceKind::Flat)));
        assert_eq!(namespaces.find(b"c"), None);
    }

    #[test]
    fn more_namespaces_than_the_limit_are_refused() {
        let mut namespaces = Namespaces::default();
        for number in 0..NAMESPACE_COUNT_MAX {
            assert!(namespaces.open(number.to_string().as_bytes(), NamespaceKind::Flat, |_| {}).is_ok());
        }
        assert_eq!(namespaces.open(b"one more", NamespaceKind::Flat, |_| {}), Err(NamespaceRefusal::TooMany));
        assert_eq!(namespaces.open(b"7", NamespaceKind::Flat, |_| {}), Ok(7));
    }
}
