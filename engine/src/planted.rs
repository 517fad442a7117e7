//! Defects that are planted on purpose, to see that the tests find them.
//!
//! Without the feature `planted-bugs` there is nothing here but the constant `false`. With it, one defect at a time is
//! active on a thread, and each shows as one small `if planted!(..)` where somebody could have written it.

/// Whether this defect is active: false in every build that serves anyone.
#[doc(hidden)]
#[macro_export]
#[cfg(not(feature = "planted-bugs"))]
macro_rules! planted {
    ($bug:ident) => {
        false
    };
}

/// Whether this defect is active on this thread.
#[doc(hidden)]
#[macro_export]
#[cfg(feature = "planted-bugs")]
macro_rules! planted {
    ($bug:ident) => {
        $crate::planted::is_planted($crate::planted::Bug::$bug)
    };
}

#[cfg(feature = "planted-bugs")]
mod active {
    use std::cell::Cell;

    macro_rules! bugs {
        ($($(#[$doc:meta])* $bug:ident;)*) => {
            /// A defect.
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub enum Bug {
                $($(#[$doc])* $bug,)*
            }

            impl Bug {
                /// All of them.
                pub const ALL: &[Bug] = &[$(Bug::$bug),*];
            }
        };
    }

    bugs! {
        /// A lease ends a millisecond early.
        LeaseEndsEarly;
        /// Leases end by the clock, whatever has not been read.
        DrainedIsTheClock;
        /// A reader is let in beside readers although a writer waits.
        ReaderOvertakesWriter;
        /// The last waiter is served first.
        TailIsServed;
        /// A waiter is taken for one that conflicts with nobody.
        WriterJoinsReaders;
        /// A request about an own claim acts on the claim of another lane.
        OwnIsIgnored;
        /// An id with another generation still names the claim.
        StaleGenerationIsTaken;
        /// What is written to the log is taken for durable without a sync.
        SyncIsLeftOut;
        /// A grant that must be durable is not recorded.
        FenceIsNotRecorded;
        /// The lease of what has to be durable first begins before that.
        ReservedLeaseBeginsEarly;
        /// The end of a durable hold is not recorded.
        EndedIsNotRecorded;
        /// A server that starts believes what was never synced.
        UnsyncedIsBelieved;
        /// A restored key begins anew.
        CounterIsNotRestored;
        /// The id that an earlier server gave names nothing.
        RestoredIdIsForgotten;
        /// A lease that begins anew on another boot is shorter than before.
        RestoredLeaseIsCut;
        /// The session of what was restored is gone.
        RestoredSessionIsForgotten;
        /// Who asks again after a restart is served again.
        RestoredAnswersAreDropped;
        /// A clean stop forgets what is ephemeral.
        EphemeralIsNotCarriedOver;
        /// The secret of an id is not looked at.
        SecretIsNotCompared;
        /// A shared grant does not raise the counter.
        SharedFenceIsNotRaised;
        /// A grant shows the counter as it was before.
        FenceBeforeIncrement;
        /// A shortened lease keeps its timer.
        ShortenedLeaseKeepsTimer;
        /// A renewal is acknowledged and forgotten.
        RenewalIsForgotten;
        /// A cancelled acquire is answered and goes on waiting.
        CancelLeavesWaiter;
        /// The waiters of a lost connection stay.
        DisconnectLeavesWaiter;
        /// A resume does not stop the timer of the lost connection.
        ResumeKeepsReleasing;
        /// A wait ends without a word.
        TimeoutIsNotSaid;
        /// Leftover work is dropped.
        WorkIsDropped;
        /// A request id finds the claim of another owner.
        OwnerIsIgnored;
        /// Priority has no bound.
        BoostIsUnbounded;
        /// Priority is not looked at.
        BoostIsIgnored;
        /// The clock hand forgets the counters that it takes away.
        FloorIsNotRaised;
        /// A repeated request id shortens the lease of what it finds.
        RepetitionShortensLease;
        /// A release grants to nobody.
        ReleaseWakesNobody;
        /// A release wakes one reader of several.
        OneReaderIsWoken;
        /// Holds on a session's lease outlive it.
        SessionEndLeavesHolds;
        /// The end of a session leaves what the connections that joined it hold.
        SessionEndLeavesJoined;
        /// A session ends although frames arrive.
        SessionIsNotRenewed;
        /// A repeated request is served again.
        RepetitionIsServedAgain;
        /// A repetition of an answered request gets no answer.
        RepetitionIsNotAnswered;
        /// An answer for another worker is lost.
        LetterIsLost;
        /// Of many batches that were left, the last are forgotten.
        TurnForgetsBatches;
        /// What was read is said to be read up to a moment after that was done.
        DrainedIsPublishedLate;
        /// What was left is decided at the time of whoever serves it.
        LeftIsDecidedInThePast;
        /// The answer to an earlier connection goes to the one that took its place.
        AnswerGoesToSuccessor;
        /// A claim over several keys is granted when one of them is clear.
        OneClearKeyIsEnough;
        /// Who stands behind a writer that lacks other keys is let through.
        LackingWriterIsPassed;
        /// The keys of a claim that is over are given back in all shards but the last.
        WithdrawForgetsShard;
        /// A recheck is dropped where some turn is busy.
        RecheckIsDropped;
        /// Nobody is told that somebody wants several turns.
        KnockIsForgotten;
        /// A frozen key does not keep back a claim over several keys.
        FreezeMissesSeveral;
        /// A write does not wait for reads that wait.
        WriteOvertakesRead;
        /// Only the first of the paths above a path is looked at.
        PathBelowIsMissed;
        /// Who wants few permits passes those who want many.
        SmallOvertakesBig;
        /// A pool gives one permit too many.
        CapacityIsOvergranted;
        /// A smaller capacity is not taken over.
        CapacityIsNeverLowered;
        /// The end of a hold gives one permit back, however many it had.
        PermitsAreKept;
        /// Twice as many tokens come back as were given.
        RefundIsDoubled;
        /// Of several buckets those that can give, though another cannot.
        OneBucketGivesAlone;
        /// An entry may be taken as soon as its lease is over.
        GraceIsForgotten;
        /// Another owner renews an entry.
        EntryOwnerIsIgnored;
        /// Who watches is not told that a key is free.
        FreedIsNotTold;
        /// A thaw does not look at those who wait.
        ThawForgetsWaiters;
        /// A page of holds leaves one out.
        PageLeavesOneOut;
        /// A page of what is held begins with the last of the page before.
        PageRepeatsTheLast;
        /// A try to share a key that a reader has is refused.
        TryIsRefused;
        /// Who waits is not refused by a server that stops.
        StopForgetsWaiters;
        /// A server that stops goes on to serve acquires.
        StopRefusesNobody;
        /// A hold is shown as its connection's, whomever it is for.
        DeputyIsNotShown;
        /// The time of a waiter for permits is taken as it was given.
        TimestampIsNotClamped;
        /// The counters of one shard are left out where all are asked.
        ShardIsNotCounted;
        /// A page of entries leaves one out.
        EntryPageLeavesOneOut;
        /// An entry that is renewed keeps its type.
        TypeIsKept;
        /// A grant keeps the fence that it was reserved with, whatever the cluster has counted.
        CountedFenceIsIgnored;
        /// Once restored, a key that a cluster counts is not counted any more.
        RestoredScopeIsForgotten;
        /// A question to the cluster whose answer is lost is taken for counted.
        LostIsCounted;
        /// What another attempt has counted is taken for one's own.
        ForeignStepIsTaken;
        /// That the cluster has counted further than what was recorded is not recorded.
        CountedIsNotRecorded;
        /// Nobody is armed for the next deadline.
        NobodyIsArmed;
    }

    impl std::str::FromStr for Bug {
        type Err = String;

        fn from_str(name: &str) -> Result<Self, String> {
            let found = Self::ALL.iter().copied().find(|bug| format!("{bug:?}") == name);
            found.ok_or_else(|| format!("{name} is none of {:?}", Self::ALL))
        }
    }

    thread_local! {
        static ACTIVE: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Plants a defect on this thread, in place of the one before.
    pub fn plant(bug: Option<Bug>) {
        ACTIVE.set(bug);
    }

    /// Whether this defect is active on this thread.
    pub fn is_planted(bug: Bug) -> bool {
        ACTIVE.get() == Some(bug)
    }
}

#[cfg(feature = "planted-bugs")]
pub use active::{Bug, is_planted, plant};

/// The defect that the model checkers must find. They run all threads of a model on the thread of the test.
#[cfg(any(loom, shuttle))]
mod models {
    use std::cell::Cell;
    use std::panic::{UnwindSafe, catch_unwind};
    use std::thread;

    thread_local! {
        static LOOKS_BEFORE_CLEARING: Cell<bool> = const { Cell::new(false) };
    }

    /// Runs a model in which a turn is given back by a load and a store instead of one exchange. Returns the panic of the
    /// model, which must find that.
    pub fn look_before_clearing(model: impl FnOnce() + UnwindSafe) -> thread::Result<()> {
        LOOKS_BEFORE_CLEARING.set(true);
        let result = catch_unwind(model);
        LOOKS_BEFORE_CLEARING.set(false);
        result
    }

    pub(crate) fn looks_before_clearing() -> bool {
        LOOKS_BEFORE_CLEARING.get()
    }
}

#[cfg(any(loom, shuttle))]
pub use models::look_before_clearing;
#[cfg(any(loom, shuttle))]
pub(crate) use models::looks_before_clearing;
