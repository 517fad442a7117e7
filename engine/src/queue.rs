//! Holders and waiters of a contended key.

use crate::claim::{Claim, Detail, OrderKey, flag};
use crate::handle::{ClaimIx, DetailIx};
use crate::line::Line;
use crate::list::ClaimList;
use crate::measure::FreedAt;
use crate::slab::Slab;

/// Queue of a key. A key has a queue only while it has several holders, waiters, or a client that watches it. Otherwise
/// its record needs no more than the only holder.
///
/// Waiters are ordered by their order keys. Each kind has its own [`Line`]: writers, readers, and reading stubs. A
/// *stub* is one key of a waiting multi-key claim. So the first waiter of each kind is found in one step, regardless of
/// the number of other waiters before it.
///
/// # Announced stubs
///
/// A stub is *clear* if it would be granted now, were it a claim of its own. A clear reading stub holds nothing and
/// lets readers pass, so very many of them may be in front. The shard *announces* each clear stub once: it requests a
/// check of the whole claim with [`Effects::recheck`](crate::Effects::recheck). All waiters before `announced_end` are
/// announced reading stubs, and grants continue behind them. A change that makes a stub unclear resets `announced_end`;
/// later grants then announce all clear stubs again.
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
    /// Position before which all waiters are announced reading stubs.
    announced_end: OrderKey,
    /// First waiter at `announced_end` or behind it in the list of `stubs`, without its map; `NONE` if there is none.
    next_unannounced: ClaimIx,
    /// Whether the first waiter is a writing stub that was announced.
    front_announced: bool,
    /// Number of the work item that will continue the grants of this key; 0 without one.
    pub(crate) granting: u64,
    /// Time at which the last holder left, while the resulting grants are left to later turns; otherwise `NEVER`.
    pub(crate) freed_at: FreedAt,
    /// Version of the list of frozen prefixes for which the waiters were last checked.
    pub(crate) thawed: u64,
    /// Whether a client watches the holders of the key. The queue stays for the watch.
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
        // The holders are one exclusive claim or any number of shared claims, so they have the mode of the first.
        self.holders.count == 0 || shared && claims[self.holders.first].has(flag::SHARED)
    }

    /// Whether all waiters are reading stubs. They let a newly arrived reader pass, because they hold nothing.
    pub(crate) fn is_readable_behind_waiters(&self) -> bool {
        self.writers.count() == 0 && self.readers.count() == 0
    }

    /// Whether a reading stub waits. Only clear reading stubs let other waiters pass, so without one only the first
    /// waiter may be clear.
    pub(crate) fn has_reading_stubs(&self) -> bool {
        self.stubs.count() > 0
    }

    /// Whether a writer waits. Without one, all waiters read, and only holders keep readers out. So no waiter becomes
    /// clear when another one leaves.
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

    /// Whether all waiters before this position are reading stubs, which let readers pass.
    pub(crate) fn only_clear_readers_before(
        &self,
        claims: &Slab<ClaimIx, Claim>,
        details: &Slab<DetailIx, Detail>,
        order: OrderKey,
    ) -> bool {
        let lines = [&self.writers, &self.readers];
        lines.iter().all(|line| line.begins_behind(claims, details, order))
    }

    /// Returns the first waiter that is not an announced stub: grants continue with it. Returns `NONE` if there is no
    /// such waiter, or if an announced writing stub is in front, which blocks all others.
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
            // A writing stub blocks all waiters behind it, although it holds nothing yet.
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

    /// Notes that this stub was announced. Has no effect on a reading stub behind another one that was not announced;
    /// grants announce both later.
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

    /// Marks all stubs as not announced, so that they are announced again.
    pub(crate) fn forget_announced(&mut self) {
        (self.announced_end, self.next_unannounced, self.front_announced) =
            (OrderKey::FIRST, self.stubs.first_listed(), false);
    }

    /// Notes that a claim holds the key without having waited. Stubs that conflict with it will be announced again.
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

    /// Adds a waiter. `is_clear_stub` says that it is a stub and clear. Such a stub counts as announced, because the
    /// acquire that adds it has just checked all keys of its claim.
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
            // A waiter behind the newcomer stays clear only if the newcomer is a clear reading stub.
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

    /// Returns the number of waiters before a waiter, counted up to `position_max`. For the last waiter, the number is
    /// exact even above `position_max`.
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

    /// Checks the counts and the announced stubs. For tests.
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
