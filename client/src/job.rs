//! Requests with the place their answer goes to.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use waymaker_protocol::{
    Cancel, Capabilities, Extend, Goodbye, Holds, KeepAlive, LockId, Release, Request, Response, SessionId,
    Status, Unwatch, Watch,
};

use crate::claim::{Claim, Lease, Wait};
use crate::clock::BootTime;
use crate::enqueue::QueuePlace;
use crate::error::Error;
use crate::grant::Grant;
use crate::hold::{Hold, Key};
use crate::lock::Lock;
use crate::loss::LossCallback;
use crate::need::Need;
use crate::one_or_more::OneOrMore;
use crate::reply::{Awaited, Reply};
use crate::watch::WatchJob;

/// What the handles tell the connection task.
pub(crate) enum Command {
    /// Send this and answer it.
    Submit(Job),
    /// The future of this acquire was dropped.
    Abandon { token: u64 },
    /// The guard of this hold lets go of it.
    Release { hold: Arc<Hold>, reply: Reply<bool> },
    /// The guard of this hold moves the end of its lease.
    Extend { hold: Arc<Hold>, lease_ms: u32, reply: Reply<Duration> },
    /// The guard of this hold lets it live.
    Forget { hold: Arc<Hold> },
    /// Nobody listens to this watch any more.
    Unwatch { token: u64 },
    /// Another connection of the client has learned that this session is over.
    SessionGone { id: SessionId },
    /// Release what is guarded, leave the session, then answer.
    Close { reply: Reply<()> },
}

/// One request on its way: it can be encoded again at any time, under the same number.
pub(crate) enum Job {
    /// Boxed, or every renewal would be as large.
    Acquire(Box<AcquireJob>),
    /// A grant that must not be trusted before the server has confirmed it.
    Confirm(Box<ConfirmJob>),
    Cancel {
        acquire_number: u32,
        key: Key,
    },
    Release {
        id: LockId,
        key: Option<Key>,
        /// The guard itself lets go; else somebody who knows the id does, perhaps behind the back of a guard.
        by_guard: bool,
        /// Number of the acquire that was granted the hold, if another acquire may take it up.
        take_up_number: Option<u32>,
        /// Whether the release must leave the hold alone once another lane has taken it up.
        is_own: bool,
        /// Answers true if the claim was still waiting.
        reply: Reply<bool>,
    },
    Extend {
        id: LockId,
        lease_ms: u32,
        /// As in `Release`.
        is_own: bool,
        reply: Reply<Duration>,
    },
    /// An extend that the session sends by itself.
    Renew {
        id: LockId,
        lease_ms: u32,
        /// As in `Release`.
        is_own: bool,
    },
    /// Asks whether a hold still lives, without touching its lease.
    Check {
        id: LockId,
    },
    /// Asks what this lane holds, to compare it with what is guarded.
    Holds {
        cursor: u64,
    },
    Watch(WatchJob),
    Unwatch {
        watch_number: u32,
        key: Key,
    },
    /// Whatever touches no hold of this client.
    Ask(Box<dyn Question>),
    KeepAlive,
    Goodbye,
}

/// Where the guards of a grant go.
pub(crate) type Grantee = Reply<OneOrMore<Lock>>;

/// An acquire with everything its grant needs.
pub(crate) struct AcquireJob {
    /// Rises with each acquire of the client: the order in which they leave, and the name by which they are abandoned.
    pub(crate) token: u64,
    pub(crate) claim: Claim,
    pub(crate) wait: Wait,
    /// Time that the timer of this acquire is set to.
    pub(crate) timer: BootTime,
    pub(crate) renew: bool,
    /// Grants that were over when they arrived.
    pub(crate) late_grant_count: u32,
    pub(crate) on_loss: Option<LossCallback>,
    /// Who wants to know when it has to wait.
    pub(crate) on_queued: Option<oneshot::Sender<QueuePlace>>,
    /// Once the caller has gone, a grant is released at once.
    pub(crate) reply: Grantee,
}

/// Holds that are confirmed one after the other. If one of them is over, the others are released and all are asked for
/// again.
pub(crate) struct ConfirmJob {
    pub(crate) grant: Grant,
    /// Which of its holds is asked about.
    pub(crate) index: usize,
    /// Whether a newer acquire has taken up the holds, so that the answer delivers and releases nothing.
    pub(crate) is_superseded: bool,
    /// The end of a lease has moved since, so the session asks again.
    pub(crate) is_stale: bool,
    /// A hold of the grant whose end the server has reported. The answer may have been decided before.
    pub(crate) ended: Option<LockId>,
    pub(crate) acquire: Box<AcquireJob>,
}

impl ConfirmJob {
    pub(crate) fn new(grant: Grant, acquire: Box<AcquireJob>) -> Self {
        Self { grant, index: 0, is_superseded: false, is_stale: false, ended: None, acquire }
    }

    pub(crate) fn id(&self) -> LockId {
        self.grant.holds[self.index].id
    }
}

/// A question to the server, and what makes of its answer what the caller wants.
pub(crate) trait Question: Send {
    /// The capability without which the question must not be sent.
    fn need(&self) -> Option<Need>;
    fn encode(&self, number: u32, out: &mut Vec<u8>);
    /// Hands the answer on, unless it answers something else.
    fn answer(&mut self, response: Response<'_>) -> bool;
    fn reply(&mut self) -> &mut dyn Awaited;
    fn is_awaited(&self) -> bool;
}

/// A question as two functions.
pub(crate) struct Ask<E, R, T> {
    pub(crate) need: Option<Need>,
    pub(crate) encode: E,
    /// `None` where this is no answer to it.
    pub(crate) read: R,
    pub(crate) reply: Reply<T>,
}

impl<E, R, T> Question for Ask<E, R, T>
where
    E: Fn(u32, &mut Vec<u8>) + Send,
    R: Fn(Response<'_>) -> Option<T> + Send,
    T: Send,
{
    fn need(&self) -> Option<Need> {
        self.need
    }

    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        (self.encode)(number, out);
    }

    fn answer(&mut self, response: Response<'_>) -> bool {
        let read = (self.read)(response);
        let matches = read.is_some();
        if let Some(value) = read {
            self.reply.answer(Ok(value));
        }
        matches
    }

    fn reply(&mut self) -> &mut dyn Awaited {
        &mut self.reply
    }

    fn is_awaited(&self) -> bool {
        self.reply.is_awaited()
    }
}

impl AcquireJob {
    /// Renewed by extends of its own, as long as it is held.
    pub(crate) fn renews_itself(&self) -> Option<u32> {
        match self.claim.lease {
            Lease::Own { ms } if self.renew => Some(ms),
            _ => None,
        }
    }
}

impl Job {
    /// Appends the request as a frame, for a server with these capabilities.
    pub(crate) fn encode(&self, number: u32, now: BootTime, offered: Capabilities, out: &mut Vec<u8>) {
        let knows_own = offered.contains(Capabilities::OWN_CLAIM);
        let extend = |id, lease_ms, is_own| {
            Request::Extend(Extend { id, lease_ms, key: None, own: is_own && knows_own })
        };
        let request = match self {
            Self::Acquire(job) => {
                return job.claim.encode(number, job.wait, now, offered, out);
            }
            Self::Confirm(job) => match job.acquire.renews_itself() {
                Some(lease_ms) => extend(job.id(), lease_ms, job.acquire.claim.may_be_taken_up()),
                None => Request::Status(Status { id: job.id(), key: None }),
            },
            Self::Cancel { acquire_number, key } => {
                Request::Cancel(Cancel { acquire_number: *acquire_number, key })
            }
            Self::Release { id, key, is_own, .. } => {
                Request::Release(Release { id: *id, key: key.as_deref(), own: *is_own && knows_own })
            }
            Self::Extend { id, lease_ms, is_own, .. } | Self::Renew { id, lease_ms, is_own } => {
                extend(*id, *lease_ms, *is_own)
            }
            Self::Check { id } => Request::Status(Status { id: *id, key: None }),
            Self::Holds { cursor } => Request::Holds(Holds { cursor: *cursor, count_max: 0 }),
            Self::Watch(job) => Request::Watch(Watch { key: &job.key }),
            Self::Unwatch { watch_number, key } => {
                Request::Unwatch(Unwatch { watch_number: *watch_number, key })
            }
            Self::Ask(question) => return question.encode(number, out),
            Self::KeepAlive => Request::KeepAlive(KeepAlive),
            Self::Goodbye => Request::Goodbye(Goodbye),
        };
        request.encode(number, out);
    }

    /// Returns the refusal of a request that a server with these capabilities cannot serve.
    pub(crate) fn refusal(&self, offered: Capabilities) -> Option<Error> {
        match self {
            Self::Ask(question) => question.need().and_then(|need| need.refusal(offered)),
            _ => None,
        }
    }

    /// Where the answer goes, unless the session asks by itself.
    pub(crate) fn reply(&mut self) -> Option<&mut dyn Awaited> {
        Some(match self {
            Self::Acquire(job) => &mut job.reply,
            Self::Confirm(job) => &mut job.acquire.reply,
            Self::Release { reply, .. } => reply,
            Self::Extend { reply, .. } => reply,
            Self::Watch(job) => &mut job.reply,
            Self::Ask(question) => question.reply(),
            Self::Cancel { .. } | Self::Renew { .. } | Self::Check { .. } | Self::Holds { .. } => {
                return None;
            }
            Self::Unwatch { .. } | Self::KeepAlive | Self::Goodbye => return None,
        })
    }

    /// There is no other answer than this error. The job stays good for sending.
    pub(crate) fn fail(&mut self, error: Error) {
        if let Some(reply) = self.reply() {
            reply.fail(error);
        }
    }

    /// Tells whoever waits that the outcome is not known. The job stays good for sending.
    pub(crate) fn leave_uncertain(&mut self, reason: &str) {
        if let Some(reply) = self.reply() {
            reply.leave_uncertain(reason);
        }
    }

    /// It waits to be sent, and will not be in time. `cause` is the answer if it never was.
    pub(crate) fn fail_unsent(&mut self, cause: &Error, reason: &str) {
        match self.reply() {
            Some(reply) if reply.was_sent() => reply.leave_uncertain(reason),
            Some(reply) => reply.fail(cause.clone()),
            None => {}
        }
    }

    /// Latest instant for the answer to a caller that waits. Acquires have timers of their own.
    pub(crate) fn answer_by(&mut self) -> BootTime {
        self.reply().map_or(BootTime::NEVER, |reply| reply.answer_by())
    }

    /// Returns whether a caller wants the answer.
    pub(crate) fn is_awaited(&self) -> bool {
        match self {
            Self::Acquire(job) => job.reply.is_awaited(),
            Self::Confirm(job) => job.acquire.reply.is_awaited(),
            Self::Release { reply, .. } => reply.is_awaited(),
            Self::Extend { reply, .. } => reply.is_awaited(),
            Self::Watch(job) => job.reply.is_awaited(),
            Self::Ask(question) => question.is_awaited(),
            Self::Goodbye => true,
            Self::Cancel { .. } | Self::Renew { .. } | Self::Check { .. } | Self::Holds { .. } => false,
            Self::Unwatch { .. } | Self::KeepAlive => false,
        }
    }

    /// Returns whether the job is useful without a caller: another client may be waiting for that key. A grant that is
    /// confirmed in vain is released.
    pub(crate) fn matters_unawaited(&self) -> bool {
        matches!(self, Self::Release { .. } | Self::Confirm(_))
    }
}
