//! The promises of a server, as its clients know them from their requests and the answers.

use crate::fixture::{Fact, id_text};
use std::collections::BTreeMap;
use waymaker_protocol::{LockId, NamespaceKind};

/// The end of a server that a hold or a counter survives: a clean stop, or a crash too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Durability {
    Ephemeral,
    Local,
}

impl Durability {
    fn name(self) -> &'static str {
        ["ephemeral", "local"][self as usize]
    }
}

/// Facts that a later server must find.
#[derive(Debug, Default)]
pub(super) struct Promised {
    namespaces: BTreeMap<&'static str, NamespaceKind>,
    /// By their ids.
    holds: BTreeMap<String, (Durability, Fact)>,
    /// Fence and durability of each counter, by namespace and key.
    counters: BTreeMap<(&'static str, Vec<u8>), (u64, Durability)>,
    /// Settings of operators.
    settings: Vec<Fact>,
    /// Every key is new to its first grant, so the smallest fence is the first above the floor.
    floor: Option<u64>,
}

impl Promised {
    pub(super) fn namespace(&mut self, kind: NamespaceKind) {
        self.namespaces.insert(kind.name(), kind);
    }

    /// A grant raises the counter of its key; in a tree namespace that is the empty key.
    pub(super) fn counted(&mut self, kind: NamespaceKind, key: &[u8], fence: u64, durability: Durability) {
        let counter = self.counters.entry((kind.name(), key.to_vec())).or_insert((fence, durability));
        *counter = (counter.0.max(fence), counter.1.max(durability));
        self.floor = Some(self.floor.map_or(fence - 1, |floor| floor.min(fence - 1)));
    }

    /// Notes a hold. `fact` has its fields beside id, fence and scope.
    pub(super) fn held(
        &mut self,
        kind: NamespaceKind,
        id: LockId,
        fence: u64,
        durability: Durability,
        fact: Fact,
    ) {
        let id = id_text(id.place, id.secret);
        let fact = fact
            .with("namespace", kind.name())
            .with("id", &id)
            .number("fence", fence)
            .with("scope", durability.name());
        self.holds.insert(id, (durability, fact));
    }

    pub(super) fn ended(&mut self, id: LockId) {
        self.holds.remove(&id_text(id.place, id.secret)).expect("it was held");
    }

    pub(super) fn extended(&mut self, id: LockId, lease_ms: u32) {
        let (_, fact) = self.holds.get_mut(&id_text(id.place, id.secret)).expect("it is held");
        *fact = fact.clone().number("lease", lease_ms);
    }

    pub(super) fn set(&mut self, fact: Fact) {
        self.settings.push(fact);
    }

    /// Returns the facts that the next server must find, after a clean stop or after a crash. `log` says how the log ends.
    pub(super) fn facts(&self, is_stopped: bool, log: Fact) -> Vec<Fact> {
        let survives = |durability| is_stopped || durability == Durability::Local;
        let mut facts = vec![log, Fact::new("floor").number("fence", self.floor.unwrap_or(0))];
        facts.extend(self.settings.iter().cloned());
        facts.extend((self.namespaces.iter()).map(|(name, kind)| {
            Fact::new("namespace").with("namespace", name).number("kind", kind.number())
        }));
        let counters = self.counters.iter().filter(|(_, (_, durability))| survives(*durability));
        facts.extend(counters.map(|((namespace, key), (fence, durability))| {
            let fact = Fact::new("counter").with("namespace", namespace).with("key", key);
            fact.number("fence", *fence).with("scope", durability.name())
        }));
        let holds = self.holds.values().filter(|(durability, _)| survives(*durability));
        facts.extend(holds.map(|(_, fact)| fact.clone()));
        facts.sort();
        facts
    }
}
