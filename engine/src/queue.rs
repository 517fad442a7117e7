//! Holders and waiters of a contended key.

use crate::claim::{Claim, Detail, OrderKey, flag};
use crate::handle::{ClaimIx, DetailIx};
use crate::line::Line;
use crate::list::ClaimList;
use crate::measure::FreedAt;
use crate::slab::Slab;

/// Queue of a key. A key has a queue only while it has several holders, waiters, or a client that watches it. For any
/// other key, its record contains the only holder, if there is one.
///
/// Waiters are ordered by their order keys: by the time of arrival, less a boost for priority. A waiting multi-key
/// claim has one waiter at each of its keys, a *stub*. A stub that waits to read is a *reading stub*. The writers, the
/// reading stubs and the other readers have a [`Line`] each. So the first waiter of each kind is found in one step,
/// regardless of the number of other waiters before it.
///
/// # Announced stubs
///
/// A stub (the waiter of a multi-key claim at one key) is *clear* if a claim for only this key would be granted now.
/// The shard *announces* each clear stub once: it requests a check of all keys of the claim with
/// [`Effects::recheck`](crate::Effects::recheck), because the claim is granted only if all its keys are clear. Until
/// then, a clear reading stub does not hold the key, so readers behind it may be granted before it. Very many such
/// stubs may thus be in front. All waiters before `announced_end` are announced reading stubs, and grants continue with
/// the waiters behind them. A change that makes one of these stubs unclear resets `announced_end`; later grants then
/// announce all clear stubs again. A stub also counts as announced if its acquire has just checked all keys of the
/// claim.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) holders: ClaimList,
    /// Number of reserved holders: their fences are not durable yet, so no response shows them.
    pub(crate) reserved_count: u32,
    writers: Line,
    readers: Line,
    /// Reading stubs.
    stubs: Line,
    /// First waiter of all kinds, or `NONE`.
    front: ClaimIx,
    /// Position before which all waiters are reading stubs: waiters of multi-key claims that want to read this key. For
    /// each of them, the shard has requested a check of all keys of its claim with `Effects::recheck`, or the acquire
    /// of the claim has just made that check.
    announced_end: OrderKey,
    /// First waiter in the list of the line `stubs` at the position `announced_end` or behind it; `NONE` if there is
    /// none. This waiter is not marked as announced: the next grants of the key request a check of its multi-key claim
    /// if it is clear. Waiters that the line keeps in its map, because of their priority, do not count.
    next_unannounced: ClaimIx,
    /// Whether the first waiter is an announced writer: nothing blocks it at this key, and its multi-key claim waits
    /// only for other keys. The shard has requested a check of the whole claim, or its acquire has just made that
    /// check.
    front_announced: bool,
    /// Number of the postponed work item of the shard that will continue the grants of this key; 0 if there is none.
    pub(crate) granting: u64,
    /// Time at which the last holder of the key left, if grants that this allows are left to later turns; otherwise
    /// `NEVER`. Those grants report to the metrics how long after this time they came.
    pub(crate) freed_at: FreedAt,
    /// Version of the list of frozen prefixes for which the shard last tried to grant waiters of this key. An operator
    /// freezes a prefix to stop grants of its keys, and a thaw ends that. After a change of the list, the shard visits
    /// each waiter; only the first visit at a new version has an effect.
    pub(crate) thawed: u64,
    /// Whether a client watches the holders of the key. If so, the queue stays even without waiters.
    pub(crate) watched: bool,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            holders: ClaimList::default(),
            reserved_count: 0,
            writers: Line::default(),
            readers: Line::default(),
            stubs: Line::default(),
            front: ClaimIx::NONE,
            announced_end: OrderKey::FIRST,
            next_unannounced: ClaimIx::NONE,
            front_announced: false,
            granting: 0,
            freed_at: FreedAt::NEVER,
            thawed: 0,
            watched: false,
        }
    }
}

impl Queue {
    pub(crate) fn waiter_count(&self) -> u32 {
        self.writers.count() + self.readers.count() + self.stubs.count()
    }

    /// Returns the first waiter, or `NONE`.
    #[inline]
    pub(crate) fn first_waiter(&self) -> ClaimIx {
        self.front
    }

    /// Returns the waiters in order.
    pub(crate) fn waiters(
        &self,
        claims: &Slab<ClaimIx, Claim>,
        details: &Slab<DetailIx, Detail>,
    ) -> impl Iterator<Item = ClaimIx> {
        let mut walks = self.lines().map(|line| line.walk(claims, details).peekable());
        std::iter::from_fn(move || {
            let places = walks.iter_mut().filter_map(|walk| Some((walk.peek()?.0, walk)));
            let (_, walk) = places.min_by_key(|(order, _)| *order)?;
            walk.next().map(|(_, waiter)| waiter)
        })
    }

    fn lines(&self) -> [&Line; 3] {
        [&self.writers, &self.readers, &self.stubs]
    }

    fn line_of(&mut self, claim: &Claim) -> &mut Line {
        match (claim.has(flag::SHARED), claim.is_stub()) {
            (false, _) => &mut self.writers,
            (true, false) => &mut self.readers,
            (true, true) => &mut self.stubs,
        }
    }

    /// Whether a claim of this mode conflicts with no holder.
    pub(crate) fn is_open_to(&self, shared: bool, claims: &Slab<ClaimIx, Claim>) -> bool {
        // The holders are one exclusive claim or any number of shared claims, so the mode of the first holder is the
        // mode of all.
        self.holders.count == 0 || shared && claims[self.holders.first].has(flag::SHARED)
    }

    /// Whether all waiters are reading stubs (readers of multi-key claims that still wait for other keys). A newly
    /// arrived reader may pass them, because they hold nothing.
    pub(crate) fn is_readable_behind_waiters(&self) -> bool {
        self.writers.count() == 0 && self.readers.count() == 0
    }

    /// Whether a reading stub waits (a reader of a multi-key claim). Other waiters may pass only such a stub, and only
    /// if nothing blocks it at this key. So without one, only the first waiter can be granted.
    pub(crate) fn has_reading_stubs(&self) -> bool {
        self.stubs.count() > 0
    }

    /// Whether a writer waits. Without writers, all waiters are readers, and only a holder can block them. So the end
    /// of a wait then allows no grant.
    pub(crate) fn has_writers(&self) -> bool {
        self.writers.count() > 0
    }

    /// Whether all waiters before this position are readers.
    pub(crate) fn only_readers_before(
        &self,
        claims: &Slab<ClaimIx, Claim>,
        details: &Slab<DetailIx, Detail>,
        order: OrderKey,
    ) -> bool {
        self.writers.begins_behind(claims, details, order)
    }

    /// Whether all waiters before this position are reading stubs: waiters of multi-key claims that want to read. If no
    /// writer holds the key, these stubs are clear: nothing blocks them at this key. They hold nothing yet, so another
    /// reader may pass them.
    pub(crate) fn only_clear_readers_before(
        &self,
        claims: &Slab<ClaimIx, Claim>,
        details: &Slab<DetailIx, Detail>,
        order: OrderKey,
    ) -> bool {
        let lines = [&self.writers, &self.readers];
        lines.iter().all(|line| line.begins_behind(claims, details, order))
    }

    /// Returns the waiter with which grants continue: the first one that is not an announced stub. A stub is the waiter
    /// of a multi-key claim at this key. A stub is announced if nothing blocks it here, and a check of all keys of its
    /// claim was requested or just made. Returns `NONE` if all waiters are announced stubs, or if there is no waiter.
    /// Also returns `NONE` if the first waiter is an announced writer, because no waiter may pass a writer.
    #[inline]
    pub(crate) fn next_to_grant(
        &self,
        claims: &Slab<ClaimIx, Claim>,
        details: &Slab<DetailIx, Detail>,
    ) -> ClaimIx {
        if self.announced_end == OrderKey::FIRST && !self.front_announced {
            return self.front;
        }
        self.next_behind_announced(claims, details)
    }

    #[inline(never)]
    fn next_behind_announced(
        &self,
        claims: &Slab<ClaimIx, Claim>,
        details: &Slab<DetailIx, Detail>,
    ) -> ClaimIx {
        if self.front_announced {
            // The first waiter is a writer of a multi-key claim, which waits only for other keys. No waiter may pass a
            // writer, so no other waiter of this key can be granted.
            return ClaimIx::NONE;
        }
        let earlier = |one: ClaimIx, other: ClaimIx| match (one, other) {
            (one, ClaimIx::NONE) => one,
            (ClaimIx::NONE, other) => other,
            (one, other) if order_of(claims, details, one) < order_of(claims, details, other) => one,
            (_, other) => other,
        };
        let plain = earlier(self.writers.first(claims, details), self.readers.first(claims, details));
        earlier(plain, self.first_unannounced_stub(claims, details))
    }

    fn first_unannounced_stub(
        &self,
        claims: &Slab<ClaimIx, Claim>,
        details: &Slab<DetailIx, Detail>,
    ) -> ClaimIx {
        self.stubs.first_from(claims, details, self.announced_end, self.next_unannounced)
    }

    /// Marks a stub (the waiter of a multi-key claim at this key) as announced: a check of all keys of its claim was
    /// requested, or its acquire has just made that check. `front_announced` marks a writer, `announced_end` a reader.
    /// Has no effect on a reading stub behind another one that is not announced. Later grants of this key then request
    /// the check for both.
    pub(crate) fn note_announced(
        &mut self,
        claims: &Slab<ClaimIx, Claim>,
        details: &Slab<DetailIx, Detail>,
        stub: ClaimIx,
    ) {
        if !claims[stub].has(flag::SHARED) {
            debug_assert_eq!(stub, self.front, "a clear writing stub is the first waiter");
            self.front_announced = true;
        } else if self.first_unannounced_stub(claims, details) == stub {
            self.announced_end = order_of(claims, details, stub).next();
            if self.next_unannounced == stub {
                self.next_unannounced = claims[stub].position.next();
            }
        }
    }

    /// Removes the marks of all announced stubs. A stub is the waiter of a multi-key claim at this key; its mark says
    /// that a check of all keys of the claim was requested or just made. The next grants of this key request the checks
    /// again for the stubs that nothing blocks here.
    pub(crate) fn forget_announced(&mut self) {
        (self.announced_end, self.next_unannounced, self.front_announced) =
            (OrderKey::FIRST, self.stubs.first_listed(), false);
    }

    /// Adapts the marks of stubs after a claim has got the key without having waited. A stub is the waiter of a
    /// multi-key claim at this key; its mark says that a check of all keys of the claim was requested or just made.
    /// Removes the marks of the stubs that conflict with the new holder. Once nothing blocks such a stub here again,
    /// the shard requests another check.
    pub(crate) fn note_newcomer_holds(&mut self, shared: bool) {
        if shared {
            self.front_announced = false;
        } else {
            self.forget_announced();
        }
    }

    /// Whether a waiter with this order key is before all others.
    #[inline]
    pub(crate) fn is_before_all(
        &self,
        claims: &Slab<ClaimIx, Claim>,
        details: &Slab<DetailIx, Detail>,
        order: OrderKey,
    ) -> bool {
        self.front.is_none() || order < order_of(claims, details, self.front)
    }

    /// Adds a waiter. `is_clear_stub` says that it belongs to a multi-key claim, and that nothing blocks it at this
    /// key. Such a waiter needs no recheck, because the acquire that adds it has just checked all keys of its claim.
    pub(crate) fn add_waiter(
        &mut self,
        claims: &mut Slab<ClaimIx, Claim>,
        details: &Slab<DetailIx, Detail>,
        index: ClaimIx,
        is_clear_stub: bool,
    ) {
        let order = order_of(claims, details, index);
        let (is_shared, is_stub) = (claims[index].has(flag::SHARED), claims[index].is_stub());
        let is_listed = self.line_of(&claims[index]).add(claims, details, index, order);
        if self.is_before_all(claims, details, order) {
            self.front = index;
            self.front_announced = false;
        }
        if order < self.announced_end {
            // Announced stubs (waiters of multi-key claims that nothing blocked at this key) are behind the new waiter.
            // They stay unblocked only if the new waiter is itself a reading stub that nothing blocks here, since
            // readers may pass such a stub.
            if !(is_clear_stub && is_shared) {
                self.forget_announced();
            }
            return;
        }
        if is_listed && is_shared && is_stub && self.next_unannounced.is_none() {
            self.next_unannounced = index;
        }
        if is_clear_stub {
            self.note_announced(claims, details, index);
        }
    }

    /// Returns the number of waiters before a waiter, counted up to `position_max`. For the last waiter of the queue,
    /// the number is exact even above `position_max`: all other waiters are before it, and their number is known.
    pub(crate) fn position_of(
        &self,
        claims: &Slab<ClaimIx, Claim>,
        details: &Slab<DetailIx, Detail>,
        index: ClaimIx,
        position_max: usize,
    ) -> usize {
        let order = order_of(claims, details, index);
        if self.lines().iter().all(|line| line.ends_by(claims, details, order)) {
            return self.waiter_count() as usize - 1;
        }
        let before = self.waiters(claims, details).take_while(|waiter| *waiter != index);
        before.take(position_max).count()
    }

    /// Removes a waiter at any position.
    pub(crate) fn remove_waiter(
        &mut self,
        claims: &mut Slab<ClaimIx, Claim>,
        details: &Slab<DetailIx, Detail>,
        index: ClaimIx,
    ) {
        if self.next_unannounced == index {
            self.next_unannounced = claims[index].position.next();
        }
        self.line_of(&claims[index]).remove(claims, details, index);
        if self.front == index {
            self.front_announced = false;
            self.find_front(claims, details);
        }
    }

    #[inline]
    fn find_front(&mut self, claims: &Slab<ClaimIx, Claim>, details: &Slab<DetailIx, Detail>) {
        if self.readers.count() == 0 && self.stubs.count() == 0 {
            self.front = self.writers.first(claims, details);
        } else {
            self.find_front_of_lines(claims, details);
        }
    }

    #[inline(never)]
    fn find_front_of_lines(&mut self, claims: &Slab<ClaimIx, Claim>, details: &Slab<DetailIx, Detail>) {
        let firsts = self.lines().map(|line| line.first(claims, details));
        let mut waiting = firsts.into_iter().filter(|first| first.is_some());
        let mut front = waiting.next().unwrap_or(ClaimIx::NONE);
        for first in waiting {
            if order_of(claims, details, first) < order_of(claims, details, front) {
                front = first;
            }
        }
        self.front = front;
    }

    /// Checks the number and the order of the waiters. Also checks the waiters for which the shard has requested a
    /// check of their multi-key claims: each is the waiter of such a claim, and nothing blocks it at this key. For
    /// tests.
    pub(crate) fn verify(&self, claims: &Slab<ClaimIx, Claim>, details: &Slab<DetailIx, Detail>) {
        let waiters: Vec<ClaimIx> = self.waiters(claims, details).collect();
        assert_eq!(self.waiter_count(), waiters.len() as u32, "waiters");
        assert_eq!(self.front, waiters.first().copied().unwrap_or(ClaimIx::NONE), "the first waiter");
        let order = |waiter: ClaimIx| order_of(claims, details, waiter);
        assert!(waiters.is_sorted_by_key(|waiter| order(*waiter)), "the waiters are sorted");
        let is_stub = |waiter: ClaimIx, shared: bool| {
            claims[waiter].is_stub() && claims[waiter].has(flag::SHARED) == shared
        };
        let reading_stub_count = waiters.iter().filter(|waiter| is_stub(**waiter, true)).count();
        assert_eq!(self.stubs.count(), reading_stub_count as u32, "reading stubs");
        let announced = waiters.iter().take_while(|waiter| order(**waiter) < self.announced_end);
        let is_open = self.announced_end == OrderKey::FIRST || self.is_open_to(true, claims);
        for waiter in announced {
            assert!(is_open && is_stub(*waiter, true), "waiter {waiter} is marked clear but is not");
        }
        let is_front_clear = || is_stub(self.front, false) && self.is_open_to(false, claims);
        assert!(!self.front_announced || is_front_clear(), "the first writer is marked clear but is not");
        self.stubs.verify_from(claims, details, self.announced_end, self.next_unannounced);
    }
}

#[inline]
fn order_of(claims: &Slab<ClaimIx, Claim>, details: &Slab<DetailIx, Detail>, waiter: ClaimIx) -> OrderKey {
    details[claims[waiter].detail].order
}
