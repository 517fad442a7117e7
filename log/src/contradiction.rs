//! Search for holds that contradict each other.
//!
//! A shard records the end of a hold before it grants the key again, so an intact log never has two conflicting holds
//! of one key. Servers of format version 1 could lose records of a multi-key claim if its records did not fit into one
//! frame. So the end of the older hold may be missing. The newer hold is the valid one, because it was granted last.

use std::collections::BTreeMap;
use std::fmt;

use super::hold::{Hold, Item};
use super::image::Image;
use crate::ids::ClaimId;

/// Two holds of one key, at least one of them exclusive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contradiction {
    /// Key of both holds.
    pub key: Box<[u8]>,
    /// Id and fence of the hold that was granted first.
    pub older: (ClaimId, u64),
    /// Id and fence of the hold that was granted later.
    pub newer: (ClaimId, u64),
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name =
            |(id, fence): (ClaimId, u64)| format!("{:016x}{:016x} with fence {fence}", id.place, id.secret);
        let (older, newer) = (name(self.older), name(self.newer));
        write!(f, "key \"{}\" has two conflicting holds, {older} and {newer}", self.key.escape_ascii())
    }
}

impl Image {
    /// Returns one contradiction for each hold of a key or registration that conflicts with a newer valid hold of the
    /// same key. A newer hold is valid unless it is itself the older one of a contradiction.
    pub fn contradictions(&self) -> Vec<Contradiction> {
        let mut by_key: BTreeMap<(u16, &[u8]), Vec<Hold<'_>>> = BTreeMap::new();
        for hold in self.holds() {
            if let Item::Key(key) | Item::Registration { key, .. } = hold.item {
                by_key.entry((hold.namespace, key)).or_default().push(hold);
            }
        }
        let mut found = Vec::new();
        for ((_, key), mut holds) in by_key {
            holds.sort_unstable_by_key(|hold| (hold.fence, hold.since_ms, hold.id));
            let mut kept: Vec<&Hold<'_>> = Vec::new();
            for hold in holds.iter().rev() {
                match kept.iter().find(|newer| !(hold.shared && newer.shared)) {
                    Some(newer) => found.push(Contradiction {
                        key: key.into(),
                        older: (hold.id, hold.fence.get()),
                        newer: (newer.id, newer.fence.get()),
                    }),
                    None => kept.push(hold),
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Record;
    use crate::ids::Fence;
    use crate::ids::Scope;

    /// Returns an image of these holds of one key, each given by its fence and whether it is shared.
    fn image(holds: &[(u64, bool)]) -> Image {
        let mut image = Image::default();
        for (number, (fence, shared)) in (1..).zip(holds) {
            let mut bytes = Vec::new();
            Record::Held(Hold {
                id: ClaimId { place: number, secret: 0 },
                namespace: 0,
                scope: Scope::Local,
                shared: *shared,
                session_lease: false,
                endless: false,
                clamped: false,
                waited: false,
                repeated: false,
                fence: Fence::new(*fence),
                begins_counted: false,
                awaits_count: false,
                since_ms: number,
                deadline_ms: None,
                lease_ms: 100,
                release_after_ms: None,
                priority: 0,
                number: 0,
                session: None,
                owner: b"",
                identity: None,
                request_id: None,
                metadata: None,
                set_hash: None,
                item: Item::Key(b"key"),
            })
            .encode(&mut bytes);
            image.apply(1, &bytes[4..]).unwrap();
        }
        image
    }

    fn fences(holds: &[(u64, bool)]) -> Vec<(u64, u64)> {
        let found = image(holds).contradictions();
        found.iter().map(|found| (found.older.1, found.newer.1)).collect()
    }

    #[test]
    fn a_contradiction_orders_its_holds_by_grant() {
        let (shared, exclusive) = (true, false);
        assert_eq!(fences(&[]), []);
        assert_eq!(fences(&[(1, exclusive)]), []);
        assert_eq!(fences(&[(1, shared), (2, shared)]), []);
        assert_eq!(fences(&[(1, exclusive), (2, exclusive)]), [(1, 2)]);
        assert_eq!(fences(&[(2, exclusive), (1, exclusive)]), [(1, 2)]);
        assert_eq!(fences(&[(1, shared), (2, exclusive), (3, shared)]), [(2, 3)]);
        assert_eq!(fences(&[(1, exclusive), (2, shared), (3, shared)]), [(1, 3)]);
        assert_eq!(fences(&[(1, shared), (2, shared), (3, exclusive)]), [(2, 3), (1, 3)]);
        let same_fence = image(&[(7, exclusive), (7, exclusive)]).contradictions();
        assert_eq!(same_fence[0].newer.0.place, 2, "of the same fence the one that was granted later");
    }

    #[test]
    fn a_contradiction_names_both_holds() {
        let found = image(&[(1, false), (2, false)]).contradictions();
        assert_eq!(
            found[0].to_string(),
            "key \"key\" has two conflicting holds, 00000000000000010000000000000000 with fence 1 and \
             00000000000000020000000000000000 with fence 2"
        );
    }
}
