//! Claims over several keys: all of them, or none.

use super::Auditor;
use crate::form::{Form, KeySet};
use crate::operation::{Acquire, granted_one_by_one};
use waymaker_protocol::GrantedKeys;

impl Auditor {
    /// The grants of one answer come together and are what was asked for. Then each is a hold like any other.
    pub(super) fn judge_grant_of_keys(
        &mut self,
        request: usize,
        acquire: &Acquire,
        keys: &KeySet,
        granted: &GrantedKeys<'_>,
    ) {
        let wanted: Vec<_> =
            keys.items().iter().map(|(key, shared)| (self.settings.name_of(*key), *shared)).collect();
        let given: Vec<_> = granted.keys.iter().map(|one| (one.key.to_vec(), one.shared)).collect();
        if wanted != given {
            return self.accuse("all-or-none", || format!("{acquire:?} got {granted:?}"));
        }
        let forms = Form::Keys(*keys);
        for ((key, shared), one) in keys.items().iter().zip(granted_one_by_one(granted)) {
            let acquire = Acquire { key: *key, shared: *shared, form: forms, ..*acquire };
            self.judge_grant(request, &acquire, &one);
        }
    }
}
