//! The namespaces that a rule applies to.

use waymaker_protocol::limits::NAMESPACE_LEN_MAX;

/// One namespace, or all namespaces whose names begin with a text.
#[derive(Debug)]
pub(crate) enum Namespaces {
    One(Box<[u8]>),
    Beginning(Box<[u8]>),
}

impl Namespaces {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.len() > NAMESPACE_LEN_MAX {
            return Err(format!(
                "`namespace` must have 1 to {NAMESPACE_LEN_MAX} bytes; `*` is every namespace"
            ));
        }
        match text.strip_suffix('*') {
            Some(beginning) if beginning.contains('*') => {
                Err("`namespace` has a `*` that is not at its end".to_owned())
            }
            Some(beginning) => Ok(Self::Beginning(beginning.as_bytes().into())),
            None if text.contains('*') => Err("`namespace` has a `*` that is not at its end".to_owned()),
            None => Ok(Self::One(text.as_bytes().into())),
        }
    }

    pub(crate) fn contain(&self, namespace: &[u8]) -> bool {
        match self {
            Self::One(name) => **name == *namespace,
            Self::Beginning(beginning) => namespace.starts_with(beginning),
        }
    }
}

/// The namespaces of many rules. Testing a name takes only a few comparisons.
#[derive(Debug)]
pub(crate) struct NamespaceSet<'a> {
    /// Names of single namespaces, sorted.
    names: Vec<&'a [u8]>,
    /// Beginnings of names, sorted. No beginning begins with another one.
    beginnings: Vec<&'a [u8]>,
}

impl<'a> NamespaceSet<'a> {
    pub(crate) fn new(all: impl Iterator<Item = &'a Namespaces>) -> Self {
        let (mut names, mut beginnings) = (Vec::new(), Vec::<&[u8]>::new());
        for namespaces in all {
            match namespaces {
                Namespaces::One(name) => names.push(&**name),
                Namespaces::Beginning(beginning) => beginnings.push(beginning),
            }
        }
        names.sort_unstable();
        beginnings.sort_unstable();
        // In sorted order, a text follows directly after its beginning.
        beginnings.dedup_by(|later, earlier| later.starts_with(earlier));
        Self { names, beginnings }
    }

    pub(crate) fn contains(&self, name: &[u8]) -> bool {
        // Only the last beginning up to the name can match: any text between a matching beginning and the name also
        // begins with it.
        let place = self.beginnings.partition_point(|beginning| *beginning <= name);
        let begins = place.checked_sub(1).is_some_and(|last| name.starts_with(self.beginnings[last]));
        begins || self.names.binary_search(&name).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_contains_what_one_of_its_rules_is_for() {
        let texts = ["b", "b/", "b/*", "b/1*", "b/1/x*", "ba*", "c", "cc*", "d/1", "d/2*"];
        // Test all sets of these rules.
        for chosen in 0..1_u32 << texts.len() {
            let chosen = texts.iter().enumerate().filter(|(place, _)| chosen >> place & 1 == 1);
            let rules: Vec<_> = chosen.map(|(_, text)| Namespaces::parse(text).unwrap()).collect();
            let set = NamespaceSet::new(rules.iter());
            for name in
                ["a", "b", "b/", "b/1", "b/1/x", "b/2", "ba", "bb", "c", "cc", "ccc", "d/1", "d/2", "e"]
            {
                let name = name.as_bytes();
                let expected = rules.iter().any(|rule| rule.contain(name));
                assert_eq!(set.contains(name), expected, "{name:?} in {rules:?}");
            }
        }
    }

    #[test]
    fn the_star_alone_is_every_namespace() {
        let rules = ["*", "a", "b*"].map(|text| Namespaces::parse(text).unwrap());
        let set = NamespaceSet::new(rules.iter());
        assert!(["", "a", "b", "z"].iter().all(|name| set.contains(name.as_bytes())));
        assert!(!NamespaceSet::new([].into_iter()).contains(b"a"));
    }
}
