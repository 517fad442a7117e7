//! List of claims, linked through the claims themselves.

use crate::claim::{Claim, Position};
use crate::handle::ClaimIx;
use crate::slab::Slab;

/// Holders of a key or of a pool, or waiters of one kind in queue order. A claim is in at most one list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClaimList {
    pub(crate) first: ClaimIx,
    pub(crate) last: ClaimIx,
    pub(crate) count: u32,
}

impl Default for ClaimList {
    fn default() -> Self {
        Self { first: ClaimIx::NONE, last: ClaimIx::NONE, count: 0 }
    }
}

impl ClaimList {
    pub(crate) fn push_back(&mut self, claims: &mut Slab<ClaimIx, Claim>, index: ClaimIx) {
        let position = &mut claims[index].position;
        position.set_next(ClaimIx::NONE);
        position.set_previous(self.last);
        if self.last.is_none() {
            self.first = index;
        } else {
            claims[self.last].position.set_next(index);
        }
        self.last = index;
        self.count += 1;
    }

    pub(crate) fn remove(&mut self, claims: &mut Slab<ClaimIx, Claim>, index: ClaimIx) {
        let position = std::mem::replace(&mut claims[index].position, Position::NOWHERE);
        let (next, previous) = (position.next(), position.previous());
        if previous.is_none() {
            self.first = next;
        } else {
            claims[previous].position.set_next(next);
        }
        if next.is_none() {
            self.last = previous;
        } else {
            claims[next].position.set_previous(previous);
        }
        self.count -= 1;
    }
}
