//! What clients believe, and that it never conflicts.

use crate::form::Form;
use crate::operation::Key;
use std::collections::BTreeMap;
use waymaker_protocol::LockId;

/// The holds that some client may rely on, by the arithmetic that `docs/reference/wire.md` gives it.
#[derive(Debug, Default)]
pub(crate) struct SureHolds {
    keys: BTreeMap<Key, Vec<SureHold>>,
}

#[derive(Clone, Copy, Debug)]
struct SureHold {
    id: LockId,
    wish: (Form, bool),
    until_us: u64,
}

impl SureHolds {
    /// Somebody relies on this hold until then. Names a hold that conflicts and that somebody relies on too.
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
        holds.push(SureHold { id, wish, until_us });
        conflict
    }

    /// Nobody relies on it any more.
    pub(crate) fn doubt(&mut self, id: LockId) {
        for holds in self.keys.values_mut() {
            holds.retain(|hold| hold.id != id);
        }
    }

    /// Nobody relies on it for longer than this.
    pub(crate) fn limit(&mut self, id: LockId, until_us: u64) {
        for hold in self.keys.values_mut().flatten().filter(|hold| hold.id == id) {
            hold.until_us = hold.until_us.min(until_us);
        }
    }
}
