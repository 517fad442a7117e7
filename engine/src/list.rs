//! A list of claims, linked through the claims themselves.

use crate::claim::Claim;
use crate::slab::{NONE, Slab};

/// Holders of a key, or its waiters in order of arrival. A claim is in at most one list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClaimList {
    pub(crate) first: u32,
    pub(crate) last: u32,
    pub(crate) count: u32,
}

impl Default for ClaimList {
    fn default() -> Self {
        Self { first: NONE, last: NONE, count: 0 }
    }
}

impl ClaimList {
    pub(crate) fn push_back(&mut self, claims: &mut Slab<Claim>, index: u32) {
        claims[index].next = NONE;
        claims[index].previous = self.last;
        if self.last == NONE {
            self.first = index;
        } else {
            claims[self.last].next = index;
        }
        self.last = index;
        self.count += 1;
    }

    pub(crate) fn remove(&mut self, claims: &mut Slab<Claim>, index: u32) {
        let (next, previous) = (claims[index].next, claims[index].previous);
        if previous == NONE {
            self.first = next;
        } else {
            claims[previous].next = next;
        }
        if next == NONE {
            self.last = previous;
        } else {
            claims[next].previous = previous;
        }
        claims[index].next = NONE;
        claims[index].previous = NONE;
        self.count -= 1;
    }
}
