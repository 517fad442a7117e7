//! Rule `all-or-none`: a multi-key claim gets all of its keys or none.

use super::Auditor;
use crate::form::{Form, KeySet};
use crate::key::Key;
use crate::operation::{Acquire, granted_one_by_one};
use waymaker_protocol::GrantedKeys;

impl Auditor {
    /// Rule `all-or-none`: a response grants exactly the requested keys. Each of its grants is then checked
    /// like any other.
    pub(super) fn judge_grant_of_keys(
        &mut self,
        request: usize,
        acquire: &Acquire,
        keys: &KeySet,
        granted: &GrantedKeys<'_>,
        now_ms: u64,
    ) {
        let wanted: Vec<_> =
            keys.items().iter().map(|(key, shared)| (self.settings.name_of(*key), *shared)).collect();
        let given: Vec<_> = granted.keys.iter().map(|one| (one.key.to_vec(), one.shared)).collect();
        // After a restart, keys whose hold has ended are left out.
        let may_lack = self.restarts.happened_since(self.requests[request].first_sent_ms);
        let is_part = given.iter().all(|one| wanted.contains(one));
        if wanted != given && !(may_lack && is_part && self.may_lack_some(request, keys, &given)) {
            return self.accuse("all-or-none", || {
                format!("{acquire:?} must get all of its keys or none, but got {granted:?}")
            });
        }
        let forms = Form::Keys(*keys);
        for one in granted_one_by_one(granted).into_iter().zip(&given) {
            let (one, (name, _)) = one;
            let wish = keys.items().iter().find(|(key, _)| self.settings.name_of(*key) == *name);
            let Some((key, shared)) = wish else { continue };
            let acquire = Acquire { key: *key, shared: *shared, form: forms, ..*acquire };
            self.judge_grant(request, &acquire, &one, now_ms);
        }
    }

    /// Returns whether each missing key may have been granted and have ended: either no client knows of its
    /// hold, or the hold may have ended.
    fn may_lack_some(&self, request: usize, keys: &KeySet, given: &[(Vec<u8>, bool)]) -> bool {
        let lacks = |key: Key| given.iter().all(|(name, _)| *name != self.settings.name_of(key));
        keys.items().iter().filter(|(key, _)| lacks(*key)).all(|(key, _)| {
            let known = self.holds.iter().find(|(_, hold)| hold.request == request && hold.key == *key);
            known.is_none_or(|(id, _)| !self.surely_lives(*id, self.restarts.started_ms.unwrap_or(0)))
        })
    }
}
