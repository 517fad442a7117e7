//! Rule `exclusion`: clients never rely on conflicting holds at the same time.

use crate::form::Form;
use crate::key::Key;
use std::collections::BTreeMap;
use waymaker_protocol::LockId;

/// Holds that some client may rely on, by the lease arithmetic that `docs/reference/wire.md` gives to
/// clients.
#[derive(Debug, Default)]
pub(crate) struct Reliances {
    keys: BTreeMap<Key, Vec<Reliance>>,
}

#[derive(Clone, Copy, Debug)]
struct Reliance {
    id: LockId,
    wish: (Form, bool),
    until_us: u64,
}

impl Reliances {
    /// Records that a client relies on this hold until `until_us`. Returns a conflicting hold that a client
    /// relies on too.
    pub(crate) fn believe(
        &mut self,
        key: Key,
        id: LockId,
        wish: (Form, bool),
        until_us: u64,
        now_us: u64,
    ) -> Option<LockId> {
        let holds = self.keys.entry(key).or_default();
        holds.retain(|hold| hold.id != id && hold.until_us > now_us);
        if until_us <= now_us {
            return None;
        }
        let conflict = holds
            .iter()
            .find(|hold| Form::conflict((&wish.0, wish.1), (&hold.wish.0, hold.wish.1)))
            .map(|hold| hold.id);
        holds.push(Reliance { id, wish, until_us });
        conflict
    }

    /// Records that no client relies on the hold any more.
    pub(crate) fn doubt(&mut self, id: LockId) {
        for holds in self.keys.values_mut() {
            holds.retain(|hold| hold.id != id);
        }
    }

    /// Records that no client relies on the hold after `until_us`.
    pub(crate) fn limit(&mut self, id: LockId, until_us: u64) {
        for hold in self.keys.values_mut().flatten().filter(|hold| hold.id == id) {
            hold.until_us = hold.until_us.min(until_us);
        }
    }
}
