//! Claims: requests for a key, and the holds that they become.
//!
//! A claim record has 64 bytes for the data of every claim. Rare data is in its [`Detail`].

mod detail;
mod state;

pub(crate) use detail::{Detail, Extra, MOVED_BESIDE_RECORDS, OrderKey, RegisteredAs};
pub(crate) use state::State;

use crate::handle::{ClaimIx, DetailIx, ItemIx, KeyIx, LaneIx};
use crate::ids::{Fence, Scope};
use crate::slab::Slab;
use crate::time::{Nanos, Time};
use crate::wheel::{Timers, WheelLinks};

/// Bits of [`Claim::flags`], besides the [`LeaseKind`] in the lowest two.
pub(crate) mod flag {
    /// Whether the claim is shared with other readers instead of exclusive.
    pub(crate) const SHARED: u8 = 1 << 2;
    /// Whether the requested lease was above the maximum.
    pub(crate) const CLAMPED: u8 = 1 << 3;
    /// Whether the claim is in one of the lists of its lane.
    pub(crate) const LINKED: u8 = 1 << 4;
    /// Whether the wait of the claim has timed out, but the claim is not ended yet. The waits that time out in one
    /// millisecond end after the grants of that millisecond.
    pub(crate) const WAIT_OVER: u8 = 1 << 5;
    /// Whether the log has a record of the claim, if the claim is held or reserved. Before that, whether its request
    /// asks for a durable fence.
    pub(crate) const DURABLE: u8 = 1 << 6;
}

/// Kind of time limit of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum LeaseKind {
    /// The hold has a lease of its own, which begins with the grant.
    Timed = 0,
    /// The hold lasts as long as its session.
    Session = 1,
    /// The hold ends with its release, or some time after its connection is lost.
    Endless = 2,
    /// The hold is a registration. Each registration or heartbeat by its owner sets the end of the lease, and names the
    /// key instead of the id of the hold.
    Registered = 3,
}

const LEASE_KIND: u8 = 3;

impl LeaseKind {
    /// Returns `Session` if the acquire asks for a hold that lasts as long as its session, otherwise `Timed`.
    #[inline]
    pub(crate) fn of_session(session_lease: bool) -> Self {
        if session_lease { Self::Session } else { Self::Timed }
    }

    /// Whether a hold of this kind has no end of its own.
    #[inline]
    pub(crate) fn is_untimed(self) -> bool {
        matches!(self, Self::Session | Self::Endless)
    }
}

/// Properties of a new claim, which become bits of [`Claim::flags`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Properties {
    pub(crate) lease: LeaseKind,
    pub(crate) shared: bool,
    pub(crate) clamped: bool,
    /// Whether the request asks for a durable fence. If so, [`Detail::wants_quorum`] says whether its scope is `Quorum`
    /// or `Local`.
    pub(crate) durable: bool,
}

impl Properties {
    /// Returns the properties of an exclusive claim with this lease and scope.
    #[inline]
    pub(crate) fn new(lease: LeaseKind, clamped: bool, scope: Scope) -> Self {
        Self { lease, shared: false, clamped, durable: scope.is_durable() }
    }

    #[inline]
    pub(crate) fn flags(self) -> u8 {
        self.lease as u8
            | if self.shared { flag::SHARED } else { 0 }
            | if self.clamped { flag::CLAMPED } else { 0 }
            | if self.durable { flag::DURABLE } else { 0 }
    }
}

/// Request for a key, and after its grant, a hold.
///
/// A claim stays in the same record until it ends. The id that the client gets contains the shard, the number of the
/// record, `generation` and `secret`. A restored hold keeps its earlier id instead.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Claim {
    pub(crate) secret: u64,
    /// Fence of a claim that is held or reserved; 0 before.
    pub(crate) fence: Fence,
    /// Instant at which the wait or the hold ends unless a request ends it before; [`Time::NEVER`] without a limit of
    /// its own. For a lazy registration, the end of the grace period, and after that the time of its removal.
    pub(crate) deadline: Time,
    /// Time of the arrival of a claim that is not held, or of the grant of a hold. A renewal of a registration counts
    /// as a grant.
    since: Nanos,
    /// Key of the claim.
    pub(crate) entry: KeyIx,
    /// Lane to which the claim belongs: the lane of its latest acquire, registration or heartbeat.
    pub(crate) lane: LaneIx,
    /// Position among the claims of the key, or in its tree.
    pub(crate) position: Position,
    pub(crate) wheel: WheelLinks,
    /// Rare data of the claim, or `NONE`.
    pub(crate) detail: DetailIx,
    /// Number of claims that used the record before. It wraps around after 65,535.
    pub(crate) generation: u16,
    state: State,
    pub(crate) flags: u8,
}

const _: () = assert!(size_of::<Claim>() == 64, "a claim is one cache line");

impl Default for Claim {
    fn default() -> Self {
        Self {
            secret: 0,
            fence: Fence::NONE,
            deadline: Time::NEVER,
            since: Nanos::ZERO,
            entry: KeyIx::NONE,
            lane: LaneIx::NONE,
            position: Position::NOWHERE,
            wheel: WheelLinks::UNSET,
            detail: DetailIx::NONE,
            generation: 0,
            state: State::Free,
            flags: 0,
        }
    }
}

impl Claim {
    /// Begins a claim in an unused record: as a waiter, as one key of a multi-key claim, or as a hold that a restart
    /// restores. A claim that is granted at once begins as a waiter too.
    #[inline(always)]
    pub(crate) fn begin(
        &mut self,
        state: State,
        entry: KeyIx,
        lane: LaneIx,
        secret: u64,
        since: Nanos,
        properties: Properties,
    ) {
        self.secret = secret;
        self.entry = entry;
        self.lane = lane;
        self.fence = Fence::NONE;
        self.since = since;
        self.deadline = Time::NEVER;
        self.position = Position::NOWHERE;
        self.detail = DetailIx::NONE;
        self.flags = properties.flags();
        self.set_state(state);
    }

    /// Ends the claim. The caller then releases the record, which a later claim may use.
    #[inline(always)]
    pub(crate) fn end(&mut self) {
        self.set_state(State::Free);
        self.flags = 0;
        self.secret = 0;
        self.generation = self.generation.wrapping_add(1);
    }

    #[inline]
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    #[inline]
    pub(crate) fn state(&self) -> State {
        self.state
    }

    #[inline]
    pub(crate) fn set_state(&mut self, next: State) {
        debug_assert!(self.state.may_become(next), "a claim changes from {:?} to {next:?}", self.state);
        self.state = next;
    }

    /// Whether the record is in use.
    #[inline]
    pub(crate) fn is_live(&self) -> bool {
        self.state.is_live()
    }

    /// Whether the claim is held, and its client knows this or is about to learn it.
    #[inline]
    pub(crate) fn is_held(&self) -> bool {
        self.state.is_held()
    }

    /// Whether the claim waits among the waiters of its key.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        self.state.is_waiting()
    }

    /// Whether the claim blocks other claims like a hold, but its fence is not known to be durable.
    #[inline]
    pub(crate) fn is_reserved(&self) -> bool {
        self.state.is_reserved()
    }

    /// Whether the claim blocks other claims: it is held or reserved.
    #[inline]
    pub(crate) fn is_among_holders(&self) -> bool {
        self.state.is_among_holders()
    }

    /// Whether the claim waits as one key of a multi-key claim.
    #[inline]
    pub(crate) fn is_stub(&self) -> bool {
        self.state == State::Stub
    }

    /// Whether the claim is a hold whose end needs neither the log nor the registry.
    #[inline]
    pub(crate) fn is_plain_hold(&self) -> bool {
        matches!(self.state, State::Held | State::Releasing)
            && !self.has(flag::DURABLE)
            && self.lease() != LeaseKind::Registered
    }

    /// Whether the log has a record of the claim.
    #[inline]
    pub(crate) fn is_recorded(&self) -> bool {
        self.is_among_holders() && self.has(flag::DURABLE)
    }

    #[inline]
    pub(crate) fn lease(&self) -> LeaseKind {
        match self.flags & LEASE_KIND {
            0 => LeaseKind::Timed,
            1 => LeaseKind::Session,
            2 => LeaseKind::Endless,
            _ => LeaseKind::Registered,
        }
    }

    #[inline]
    pub(crate) fn is_registration(&self) -> bool {
        self.lease() == LeaseKind::Registered
    }

    /// Whether the hold lasts as long as its session.
    #[inline]
    pub(crate) fn has_session_lease(&self) -> bool {
        self.lease() == LeaseKind::Session
    }

    /// Returns the time of the arrival of a claim that is not held.
    #[inline]
    pub(crate) fn arrived(&self) -> Nanos {
        debug_assert!(!self.is_held());
        self.since
    }

    /// Returns the time of the grant of a hold. A renewal of a registration counts as a new grant.
    #[inline]
    pub(crate) fn granted(&self) -> Nanos {
        debug_assert!(self.is_held());
        self.since
    }

    /// Returns the time of the grant of a hold, or of the arrival of another claim.
    #[inline]
    pub(crate) fn began(&self) -> Nanos {
        self.since
    }

    /// Sets the time of the grant of a claim that is held or is about to be held. Returns the time that this replaces:
    /// the arrival of the claim, or for a renewed registration, its previous grant.
    #[inline]
    pub(crate) fn set_granted(&mut self, at: Nanos) -> Nanos {
        std::mem::replace(&mut self.since, at)
    }
}

/// Position of a claim: its neighbours in a list of its key, or its items in a tree. The kind of the key record decides
/// which of the two it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position([u32; 2]);

impl Position {
    /// Position of a claim that is in no list and no tree. The only claim of a list has the same position, so this
    /// value alone does not show that a claim is in no list.
    pub(crate) const NOWHERE: Self = Self([u32::MAX; 2]);

    /// Returns the position of a set of paths: its first item in the tree, and the number of its paths beside the
    /// first.
    pub(crate) fn of_set(first_item: ItemIx, more_path_count: u32) -> Self {
        Self([first_item.number(), more_path_count])
    }

    /// Returns the claim behind this one among the holders of a key or pool, or in a list of waiters of a key; `NONE`
    /// for the last one.
    #[inline]
    pub(crate) fn next(self) -> ClaimIx {
        ClaimIx::new(self.0[0])
    }

    /// Returns the claim before this one among the holders of a key or pool, or in a list of waiters of a key; `NONE`
    /// for the first one.
    #[inline]
    pub(crate) fn previous(self) -> ClaimIx {
        ClaimIx::new(self.0[1])
    }

    #[inline]
    pub(crate) fn set_next(&mut self, next: ClaimIx) {
        self.0[0] = next.number();
    }

    #[inline]
    pub(crate) fn set_previous(&mut self, previous: ClaimIx) {
        self.0[1] = previous.number();
    }

    /// Returns the first item of a set of paths.
    #[inline]
    pub(crate) fn first_item(self) -> ItemIx {
        ItemIx::new(self.0[0])
    }

    /// Returns the number of paths of a set beside the first.
    #[inline]
    pub(crate) fn more_path_count(self) -> u32 {
        self.0[1]
    }
}

impl Timers for Slab<ClaimIx, Claim> {
    #[inline]
    fn links(&mut self, timer: ClaimIx) -> &mut WheelLinks {
        &mut self[timer].wheel
    }

    #[inline]
    fn deadline(&self, timer: ClaimIx) -> Time {
        self[timer].deadline
    }
}
