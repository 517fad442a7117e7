//! What a turn answers. One request may answer several others on other workers, so answers are not return values.

use crate::handle::ClaimIx;
use crate::limiter::Allowance;
use crate::log::Record;
use crate::measure::Measure;
use crate::shard::TreeStatistics;
use crate::shard::several::Several;
use crate::time::Time;
use std::borrow::Cow;
use std::sync::Arc;

/// Where a lane lives: what a worker needs to find it again, or to see that it is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct LaneAddress {
    /// The worker that owns the lane.
    pub worker: u16,
    /// Its place there.
    pub slot: u32,
    /// Tells it from earlier lanes in the same place.
    pub generation: u32,
}

/// Where an answer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Ticket {
    /// The lane that asked.
    pub lane: LaneAddress,
    /// The number of its request.
    pub number: u32,
}

/// Names a claim: where it lies, and 64 secret random bits that whoever wants to act on it must show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct ClaimId {
    /// Slot (32 bits), generation (16 bits) and shard (16 bits), from the lowest.
    pub place: u64,
    /// Random, another one for each claim.
    pub secret: u64,
}

impl ClaimId {
    /// The id of the claim in this slot.
    #[inline]
    pub fn new(shard: u16, slot: ClaimIx, generation: u16, secret: u64) -> Self {
        Self {
            place: u64::from(slot.number()) | u64::from(generation) << 32 | u64::from(shard) << 48,
            secret,
        }
    }

    /// The shard that a place lies in. Places come from outside: there may be no such shard.
    #[inline]
    pub fn shard_of(place: u64) -> u16 {
        (place >> 48) as u16
    }

    /// The slot that a place names.
    #[inline]
    pub fn slot_of(place: u64) -> ClaimIx {
        ClaimIx::new(place as u32)
    }

    /// The generation that a place names.
    #[inline]
    pub fn generation_of(place: u64) -> u16 {
        (place >> 32) as u16
    }
}

/// What a turn says, in the order in which it became true. The worker delivers it.
pub trait Effects {
    /// The one answer to a request.
    fn answer(&mut self, ticket: Ticket, answer: Answer);
    /// The answer to an acquire that was granted at once. The same as [`Effects::answer`]; apart, because it is half of all
    /// there is to say, and most of an [`Answer`] is for what is rarely said.
    #[inline]
    fn granted(&mut self, ticket: Ticket, grant: Grant) {
        self.answer(ticket, Answer::Granted(grant));
    }
    /// The answer to the release of a hold, the other half.
    #[inline]
    fn released(&mut self, ticket: Ticket) {
        self.answer(ticket, Answer::Released { was_waiting: false });
    }
    /// The answer to a question to the limiter, which is asked as often as any of these.
    #[inline]
    fn throttled(&mut self, ticket: Ticket, allowance: Allowance) {
        self.answer(ticket, Answer::Throttled(allowance));
    }
    /// The one answer to an acquire that did not wait, if it is not [`Effects::granted`].
    fn answer_acquire(&mut self, ticket: Ticket, answer: Answer) {
        self.answer(ticket, answer);
    }
    /// The acquire of this ticket waits: its answer comes later, by [`Effects::answer_waiter`].
    fn waits(&mut self, ticket: Ticket) {
        let _ = ticket;
    }
    /// The one answer to an acquire that waited.
    fn answer_waiter(&mut self, ticket: Ticket, answer: Answer) {
        self.answer(ticket, answer);
    }
    /// Something that a lane should know and did not ask for.
    fn event(&mut self, lane: LaneAddress, event: Event);
    /// One key of a waiting claim over several keys has become clear. Whoever has the turns of all its shards calls
    /// [`crate::several::recheck`] with it, soon and outside of this turn.
    fn recheck(&mut self, several: &Arc<Several>) {
        let _ = several;
    }
    /// A waiting claim over several keys is over. Every shard of it is told, by [`crate::Shard::withdraw`].
    fn withdraw(&mut self, several: &Arc<Several>) {
        let _ = several;
    }
    /// A fact for the durable log, the one of this number in this shard. Only where [`crate::Shard::set_log_state`] said
    /// that there is a log.
    fn record(&mut self, shard: u16, number: u64, record: &Record<'_>) {
        let _ = (shard, number, record);
    }
    /// An identity acts on the claim of another identity, and the act succeeds. For the audit log.
    fn acted_on_other(&mut self, act: ActOnOther<'_>) {
        let _ = act;
    }
    /// A hold ended after this number of nanoseconds. For metrics; apart from the others, because it is measured as often as there are
    /// releases.
    #[inline]
    fn hold_ended(&mut self, held_nanos: u64) {
        let _ = held_nanos;
    }
    /// A measurement for metrics.
    #[inline]
    fn measure(&mut self, measure: Measure) {
        let _ = measure;
    }
    /// What was registered with this type, in a namespace of kind registry, ended with its lease. For those who count.
    fn registration_expired(&mut self, namespace: u16, type_name: &[u8]) {
        let _ = (namespace, type_name);
    }
    /// The shard has forgotten the idle keys in the namespaces of [`crate::Shard::forget_namespaces`] with this number. Namespaces that
    /// are not empty stay.
    fn namespaces_forgotten(&mut self, number: u64, in_use: Vec<u16>) {
        let _ = (number, in_use);
    }
    /// To be done once everything that this turn recorded so far is durable.
    fn when_durable(&mut self, then: WhenDurable) {
        let _ = then;
    }
    /// The cluster that keeps counters has to count these grants. Only where [`crate::Shard::set_quorum_state`] said that
    /// there is one.
    fn ask_quorum(&mut self, question: QuorumQuestion) {
        let _ = question;
    }
}

/// What waits for the durable log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhenDurable {
    /// The answer to a request.
    Answer(Ticket, Answer),
    /// A lane learns that a lease is longer.
    Tell(LaneAddress, Event),
    /// Answer a waiting request, as by [`Effects::answer_waiter`].
    AnswerWaiter(Ticket, Answer),
    /// A claim that is reserved begins to be held: [`crate::Shard::end_reservation`].
    Begin(Reserved),
    /// The keys of a claim over several keys begin to be held together: [`crate::several::end_reservation`].
    BeginTogether(Box<ReservedTogether>),
}

/// Grants that wait until a cluster has counted them: one, or those of all keys of a claim, which begin together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuorumQuestion {
    /// When they were reserved.
    pub at: Time,
    /// The grants. The one that answers for a claim over several keys is the first.
    pub members: Box<[QuorumMember]>,
    /// The answer of a claim over several keys.
    pub several: Option<Box<[KeyGrant]>>,
}

impl QuorumQuestion {
    /// Returns the effects that wait until the grants are counted and durable.
    pub fn begin(self) -> impl Iterator<Item = WhenDurable> {
        let mut members: Vec<Reserved> = self.members.into_iter().map(|member| member.reserved).collect();
        let together = self.several.map(|grants| {
            let members = std::mem::take(&mut members).into();
            WhenDurable::BeginTogether(Box::new(ReservedTogether { members, grants }))
        });
        members.into_iter().map(WhenDurable::Begin).chain(together)
    }
}

/// One grant that waits for a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuorumMember {
    /// The grant. Its fence is the least that may be given, unless the cluster has counted further.
    pub reserved: Reserved,
    /// Its id, under which it is in the log.
    pub id: ClaimId,
    /// Whose counter it is; `None`: that of another scope, and it only begins together with others.
    pub counter: Option<CounterName>,
}

/// Names one counter.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CounterName {
    /// The namespace.
    pub namespace: u16,
    /// The key, or the name of the pool; empty for a tree.
    pub key: Box<[u8]>,
}

/// How a claim that is reserved goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservedEnd {
    /// It is held since that instant.
    Begins(Time),
    /// The log failed: nobody knows whether it will be held.
    Unknown,
    /// The cluster did not count it: it is over.
    NotCounted,
}

/// A claim that keeps others out, and is held once the log, or the cluster of its counter, says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// The shard in which it lies.
    pub shard: u16,
    /// Where its answer goes.
    pub lane: LaneAddress,
    /// Its place in the shard.
    pub slot: ClaimIx,
    /// Tells it from others in that place.
    pub secret: u64,
    /// The fence that it begins with.
    pub fence: u64,
    /// A cluster counts it.
    pub is_counted: bool,
    /// Its lease begins at this instant at the latest, if it begins. For the log it has begun then.
    pub since: Time,
}

/// All keys of a claim over several keys, which keep others out as [`Reserved`] does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservedTogether {
    /// The keys, in the order of the answer. The first one answers for all.
    pub members: Box<[Reserved]>,
    /// The answer.
    pub grants: Box<[KeyGrant]>,
}

/// What a shard may expect of the durable log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LogState {
    /// There is none: nothing is recorded.
    #[default]
    Absent,
    /// It takes what it is given.
    Ready,
    /// There is no room for new grants; what ends, and what is renewed, it takes.
    NoSpace,
    /// It takes too long: no new grants, until it has caught up.
    Slow,
}

/// What a shard may expect of the cluster that keeps the counters of scope Quorum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum QuorumState {
    /// There is none.
    #[default]
    Absent,
    /// It counts what it is asked to.
    Ready,
    /// It does not answer: no grants of that scope, until it does.
    Unavailable,
}

/// The answer to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The claim is held.
    Granted(Grant),
    /// The claim over several keys is held, from here on as so many independent holds, in the order of their keys.
    GrantedSeveral(Box<[KeyGrant]>),
    /// The claim is over.
    Released {
        /// It had not been granted; its acquire was answered `Cancelled`.
        was_waiting: bool,
    },
    /// The lease was moved.
    Extended {
        /// What is left of it.
        remaining_ms: u32,
        /// More was asked for than is allowed.
        clamped: bool,
    },
    /// The cancellation was served.
    Cancelled {
        /// The claim was waiting; its acquire was answered `Cancelled`.
        was_waiting: bool,
    },
    /// The state of a claim.
    Status(Box<ClaimStatus>),
    /// The state of a key.
    Inspected(Box<KeyStatus>),
    /// One page of what is held.
    Listed(Box<Page>),
    /// From here on the lane is told who holds the key.
    Watching {
        /// The newest fence.
        fence: u64,
        /// How many hold the key.
        holder_count: u32,
        /// How many wait for it.
        waiter_count: u32,
    },
    /// The watch is over.
    Unwatched {
        /// There was one.
        was_watching: bool,
    },
    /// Whether a fence is still the newest.
    Verified(Verified),
    /// An operator ended the claim.
    ForceReleased(Box<ForceReleased>),
    /// The prefix is frozen, or thawed.
    Frozen {
        /// It was not so before.
        changed: bool,
        /// How many prefixes of the namespace are frozen now.
        frozen_count: u16,
    },
    /// The namespace is gone.
    NamespaceRemoved,
    /// The permits of a pool.
    PoolDescribed(Box<PoolStatus>),
    /// The pool has the capacity that was asked for.
    CapacitySet {
        /// What it had before; 0 for a pool that did not exist.
        previous: u64,
    },
    /// One page of pools.
    PoolsListed(Box<PoolPage>),
    /// Whether so much may be taken from the buckets.
    Throttled(Allowance),
    /// The owner has the key.
    Registered(Registered),
    /// The owner no longer has the key.
    Unregistered {
        /// It was somebody else's, whose lease was over for longer than the grace.
        was_expired: bool,
    },
    /// What is registered under a key.
    LookedUp(Option<Box<Registration>>),
    /// One page of what is registered.
    RegistrationsListed(Box<RegistrationPage>),
    /// The counters of a tree namespace.
    TreeStatistics(Box<TreeStatistics>),
    /// No.
    Refused(Refusal),
}

/// One grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The claim.
    pub id: ClaimId,
    /// One more than the last grant of the key.
    pub fence: u64,
    /// What is left of the lease; of no meaning with `session_lease`.
    pub remaining_ms: u32,
    /// More was asked for than is allowed.
    pub clamped: bool,
    /// It had to wait.
    pub waited: bool,
    /// It was held already: the request id named it.
    pub repeated: bool,
    /// It lasts as long as its session.
    pub session_lease: bool,
}

/// One of the holds that a claim over several keys became.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyGrant {
    /// The hold.
    pub grant: Grant,
    /// Shared with other readers.
    pub shared: bool,
    /// Its key.
    pub key: Box<[u8]>,
}

/// Whether a fence is still the newest of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The newest fence; 0 if the key is not known.
    pub newest_fence: u64,
    /// It is the one that was asked about.
    pub newest: bool,
    /// And its grant is still held.
    pub held: bool,
}

/// What an identity did to the claim of another identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimAct {
    /// It ended the claim.
    Release,
    /// It set another end of the lease.
    Extend {
        /// Length of the lease from now on.
        lease_ms: u32,
    },
    /// It renewed or changed a registration, which is its own from here on.
    Register {
        /// Length of the lease from now on; 0 if the lease ended before.
        lease_ms: u64,
    },
    /// It repeated the request id of the claim, which is its own from here on.
    TakeOver,
}

/// An act on a claim that another identity took.
#[derive(Debug)]
pub struct ActOnOther<'a> {
    /// The act.
    pub act: ClaimAct,
    /// The lane that acts.
    pub lane: LaneAddress,
    /// The identity of this lane.
    pub by: &'a Arc<str>,
    /// The namespace of the claim.
    pub namespace: u16,
    /// The id of the claim.
    pub id: ClaimId,
    /// The key of the claim, as it is shown to people.
    pub key: Vec<u8>,
    /// The owner of the claim.
    pub owner: &'a [u8],
}

/// What an operator ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForceReleased {
    /// The claim.
    pub id: ClaimId,
    /// It had not been granted.
    pub was_waiting: bool,
    /// 0 where it waited.
    pub fence: u64,
    /// Its key.
    pub key: Vec<u8>,
    /// Whose it was.
    pub owner: Arc<[u8]>,
    /// Who ended it.
    pub by: Arc<[u8]>,
    /// Why.
    pub reason: Arc<[u8]>,
}

/// An owner has a key of a registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registered {
    /// The hold.
    pub id: ClaimId,
    /// Rises when the owner changes.
    pub fence: u64,
    /// What is left of the lease. Below zero, in a lazy namespace, where it has ended.
    pub remaining_ms: i64,
    /// The same owner had it before.
    pub renewed: bool,
}

/// What is registered under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The hold.
    pub id: ClaimId,
    /// Rises when the owner changes.
    pub fence: u64,
    /// Since it was last registered or renewed.
    pub age_ms: u64,
    /// What is left of the lease. Below zero, in a lazy namespace, where it has ended.
    pub remaining_ms: i64,
    /// The key.
    pub key: Vec<u8>,
    /// Who has it.
    pub owner: Arc<[u8]>,
    /// As given.
    pub value: Vec<u8>,
    /// As given.
    pub type_name: Vec<u8>,
}

/// Some of what is registered in one shard.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RegistrationPage {
    /// The registrations.
    pub registrations: Vec<Registration>,
    /// Where the next page begins, if there is one in this shard.
    pub next: Option<u32>,
}

/// The state of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PoolStatus {
    /// How many permits there are; 0 if there is no such pool.
    pub capacity: u64,
    /// How many of them are held.
    pub held: u64,
    /// The newest fence.
    pub fence: u64,
    /// Waiters stand in the order of their timestamps, not of their arrival.
    pub by_timestamp: bool,
    /// An operator set the capacity: the pool stays though nobody uses it.
    pub is_set: bool,
    /// How many hold permits.
    pub holder_count: u32,
    /// How many wait.
    pub waiter_count: u32,
    /// The first of the holders.
    pub holders: Vec<PermitHolder>,
    /// The first of the waiters.
    pub waiters: Vec<PermitHolder>,
}

/// One pool of a page.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ListedPool {
    /// Name of the pool.
    pub name: Vec<u8>,
    /// State of the pool, without the lists of holders and waiters.
    pub status: PoolStatus,
}

/// One page of the pools in one shard.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PoolPage {
    /// The pools of this page.
    pub pools: Vec<ListedPool>,
    /// Number of the pool at which the next page begins; `None` after the last page of this shard.
    pub next: Option<u32>,
}

/// One claim for permits as it is shown to people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermitHolder {
    /// The claim.
    pub id: ClaimId,
    /// How many permits.
    pub permits: u64,
    /// 0 while it waits.
    pub fence: u64,
    /// Its place in the order of arrival.
    pub ticket: u64,
    /// For how long it has been held, or has waited.
    pub age_ms: u64,
    /// What is left of the lease, or of the wait.
    pub remaining_ms: u32,
    /// Whose it is.
    pub owner: Arc<[u8]>,
}

/// What a lane is told unasked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The claim of this request waits. Only where the acquire asked for it.
    Queued {
        /// The number of the acquire.
        number: u32,
        /// The claim.
        id: ClaimId,
        /// How many waiters stood before it (counted up to a limit where priorities are in play).
        position: u32,
        /// Its place in the order of arrival of the shard.
        ticket: u64,
    },
    /// The lease of a hold ended.
    Expired {
        /// The hold.
        id: ClaimId,
    },
    /// Another lane that knew the id moved the end of the lease.
    LeaseMoved {
        /// The hold.
        id: ClaimId,
        /// What is left of the lease.
        remaining_ms: u32,
    },
    /// A hold ended without its lane asking for it.
    Revoked {
        /// The hold.
        id: ClaimId,
        /// Why.
        reason: RevokeReason,
    },
    /// A repetition of its request id took up a hold: the acquire that was granted it hears no more of it.
    TakenUp {
        /// The number of that acquire.
        number: u32,
        /// The hold.
        id: ClaimId,
    },
    /// A watched key has a holder, or one more.
    KeyHeld {
        /// The number of the watch.
        number: u32,
        /// The fence of the grant.
        fence: u64,
        /// Shared with other readers.
        shared: bool,
        /// Whose it is.
        owner: Arc<[u8]>,
    },
    /// Nobody holds a watched key any more.
    KeyFreed {
        /// The number of the watch.
        number: u32,
        /// The newest fence.
        fence: u64,
    },
}

/// Why a hold ended without its lane asking for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RevokeReason {
    /// Another lane that knew the id released it.
    ReleasedElsewhere,
    /// Its connection was lost and did not come back in time.
    ConnectionLost,
    /// An operator released it, and said why.
    Forced(Arc<[u8]>),
}

/// Why not: the part of the closed table of errors that the engine can say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A try met someone.
    Busy(Box<Contention>),
    /// The wait ended.
    Timeout(Box<Contention>),
    /// The claim was given up while it waited.
    Cancelled(CancelReason),
    /// There is no such claim.
    NotFound,
    /// There is no namespace of this name.
    NamespaceNotFound,
    /// The claim waits.
    NotHeld,
    /// Somebody else has the key.
    NotOwner(Box<Contention>),
    /// The pool has this other capacity.
    CapacityMismatch {
        /// What it has.
        capacity: u64,
    },
    /// An operator froze a prefix of the key.
    Frozen,
    /// The request is wrong.
    BadInput {
        /// Which field.
        field: &'static str,
        /// The limit it passed, or 0.
        limit: u64,
        /// What is wrong with it.
        message: Cow<'static, str>,
    },
    /// A table is full.
    Overloaded {
        /// Which limit.
        limit: &'static str,
        /// Its value.
        value: u64,
    },
    /// This server does not offer that scope.
    ScopeUnavailable(Scope),
    /// The durable log has not confirmed its last write in time; new grants resume once it has.
    LogStalled,
    /// The disk of the durable log is full.
    NoSpace,
    /// The durable log failed: whether it was done will be known once the server was started again.
    Unknown,
    /// The cluster that keeps the counters does not answer.
    QuorumUnavailable,
    /// Holds may have been lost from the log; until they have expired nothing new is granted.
    Recovering {
        /// How long that takes, in milliseconds.
        remaining_ms: u64,
    },
    /// The server is stopping.
    Shutdown,
}

impl Refusal {
    /// A wrong field: its limit (0 if there is none), and what is wrong.
    pub fn bad_input(field: &'static str, limit: u64, message: impl Into<Cow<'static, str>>) -> Self {
        Self::BadInput { field, limit, message: message.into() }
    }
}

/// Who gave up a claim that waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelReason {
    /// Its own lane, by `cancel` or by `release`.
    Asked,
    /// A newer acquire with the same request id took its place.
    Superseded,
    /// An operator.
    Forced,
    /// Its connection was lost; its session may bring it back, and then ask again.
    ConnectionLost,
}

/// How durable a fence counter is; each outlives more than the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Scope {
    /// Kept in memory.
    #[default]
    Ephemeral,
    /// Kept in this node's log.
    Local,
    /// Kept by a quorum of nodes.
    Quorum,
}

impl Scope {
    /// It outlives the process, given a log.
    #[inline]
    pub fn is_durable(self) -> bool {
        self != Self::Ephemeral
    }
}

/// Who stands in front.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contention {
    /// True: a holder. False: the waiter at the head.
    pub held: bool,
    /// Shared with other readers.
    pub shared: bool,
    /// Since when it holds or waits, counted back from now.
    pub age_ms: u64,
    /// What is left of its lease or of its wait.
    pub remaining_ms: u32,
    /// How many wait for the key.
    pub waiter_count: u32,
    /// Whose it is.
    pub owner: Arc<[u8]>,
}

/// The state of a live claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimStatus {
    /// Held, or waiting.
    pub held: bool,
    /// Shared with other readers.
    pub shared: bool,
    /// It lasts as long as its session.
    pub session_lease: bool,
    /// 0 while it waits.
    pub fence: u64,
    /// What is left of the lease or of the wait.
    pub remaining_ms: u32,
    /// Since when it holds or waits, counted back from now.
    pub age_ms: u64,
    /// As asked for.
    pub priority: u32,
    /// For how long it had waited before its grant. 0 while it waits, and of a hold that was restored.
    pub waited_ms: u64,
    /// Its key.
    pub key: Vec<u8>,
}

/// The state of one key.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct KeyStatus {
    /// The newest fence; 0 if the key is not known.
    pub fence: u64,
    /// How many hold it.
    pub holder_count: u32,
    /// How many wait for it.
    pub waiter_count: u32,
    /// The first of the holders.
    pub holders: Vec<HeldLock>,
    /// The first of the waiters, in the order in which they are served.
    pub waiters: Vec<WaitingClaim>,
}

/// One claim that waits, as it is shown to people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingClaim {
    /// The claim; of one key of several, the claim over all of them.
    pub id: ClaimId,
    /// It would share the key with other readers.
    pub shared: bool,
    /// Its place in the order of arrival.
    pub ticket: u64,
    /// For how long it has waited.
    pub age_ms: u64,
    /// What is left of its wait.
    pub remaining_ms: u32,
    /// As asked for.
    pub priority: u32,
    /// Whose it is.
    pub owner: Arc<[u8]>,
}

/// One hold as it is shown to people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldLock {
    /// The hold.
    pub id: ClaimId,
    /// Shared with other readers.
    pub shared: bool,
    /// The fence it was granted.
    pub fence: u64,
    /// For how long it has been held.
    pub held_ms: u64,
    /// What is left of the lease.
    pub remaining_ms: u32,
    /// As asked for.
    pub priority: u32,
    /// Its key.
    pub key: Vec<u8>,
    /// Whose it is.
    pub owner: Arc<[u8]>,
    /// As given at the acquire.
    pub request_id: Vec<u8>,
    /// As given at the acquire.
    pub metadata: Vec<u8>,
}

/// Some of the locks held in one shard.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Page {
    /// The locks.
    pub locks: Vec<HeldLock>,
    /// Where the next page begins, if there is one in this shard.
    pub next: Option<u32>,
}

/// What is left until `end` as answers say it.
pub(crate) fn remaining_ms(end: Time, now: Time) -> u32 {
    if end == Time::NEVER { u32::MAX } else { end.remaining_ms_since(now) }
}
