//! Lock model of Waymaker.
//!
//! A [`Shard`] has one part of the keys with all their state. It is ordinary single-threaded Rust: it takes the time
//! and a request, and reports the consequences to a receiver, the [`Effects`]. It reads no clock, no socket and no
//! random source; the same seed and the same inputs give the same effects.
//!
//! A [`TurnCell`] lets any worker run any shard, one worker at a time, and no worker waits for a turn. A [`Mailbox`]
//! carries the messages between workers. Apart from the atomic counters of an [`Account`], these two are the only data
//! structures that several threads change at the same time.

mod access;
mod account;
mod chain;
mod claim;
mod effect;
mod entry;
mod fifo;
mod growing;
mod handle;
mod ids;
mod index;
mod key;
mod lane;
mod limiter;
pub mod limits;
mod line;
mod list;
pub mod mailbox;
mod measure;
mod multi_key_claim;
mod pool;
mod prefetch;
mod queue;
mod registrations;
mod shard;
mod slab;
mod stable_hash;
mod steps;
mod sync;
pub mod time;
mod top_waits;
mod tree;
pub mod turn;
mod wheel;

pub use access::{Access, Grants, Rights};
pub use account::{Account, Accounts, Counted, Holder, QuotaReached, Quotas, Resource};
pub use effect::{
    ActOnOther, Allowance, Answer, CancelReason, ClaimAct, ClaimStatus, Contention, Effects, Event,
    ForceReleased, Grant, HeldLock, KeyGrant, KeyStatus, ListedPool, LogState, Page, PermitHolder, PoolPage,
    PoolStatus, QuorumMember, QuorumQuestion, QuorumState, Refusal, Registered, Registration,
    RegistrationPage, Reserved, ReservedEnd, ReservedMultiKey, RevokeReason, TreeStatistics, Verified,
    WaitingClaim, WhenDurable,
};
pub use handle::{ClaimIx, LaneIx};
pub use ids::{ClaimId, CounterName, Fence, LaneAddress, LaneSlot, Scope, Ticket};
pub use limiter::Throttle;
pub use limits::Limits;
pub use mailbox::Mailbox;
pub use measure::{LossReason, Measure};
pub use pool::PoolOrder;
pub use shard::{
    Acquire, AcquireOptions, AcquirePermits, AcquireSet, AcquireTerms, Caller, ContendedKey, ContendedKeys,
    FreezeList, Lease, NamespaceCounters, NamespaceTerms, PageBounds, Register, RequestedThrottle, Shard,
    ShardConfig, ShardState, TableMemory, multi_key, throttle_all,
};
pub use time::{Nanos, Reading, Time};
pub use tree::TreeItem;
pub use turn::{HandedOver, Pass, Turn, TurnCell};
pub use wheel::{Popped, Timers, Wheel, WheelLinks};
