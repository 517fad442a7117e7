//! Requests, each with the destination of its response.

mod acquire;
mod question;
mod watch;

use std::time::Duration;

use waymaker_protocol::{
    Cancel, Capabilities, Extend, Goodbye, Holds, KeepAlive, LockId, Release, Request, Status, Unwatch, Watch,
};

use crate::clock::BootTime;
use crate::error::Error;
use crate::key::Key;
use crate::request::reply::{Awaited, Reply};
pub(crate) use acquire::{AcquireJob, ConfirmJob, Grantee};
pub(crate) use question::{Ask, Question};
pub(crate) use watch::{Listener, WatchJob};

/// One request, with the destination of its response. It can be encoded again at any time, under the same number.
pub(crate) enum Job {
    /// Boxed, because otherwise every renewal would be as large as an acquire.
    Acquire(Box<AcquireJob>),
    /// Asks the server whether the holds of a grant still live. The lane sends it if they may have ended before the
    /// grant arrived.
    Confirm(Box<ConfirmJob>),
    Cancel {
        acquire_number: u32,
        key: Key,
    },
    Release {
        id: LockId,
        key: Option<Key>,
        /// Whether the lane or a guard releases the hold, so that no guard is left. If false, a caller releases the
        /// claim by its id. If a guard of this client has the hold, the guard is lost when the server confirms the
        /// release.
        by_guard: bool,
        /// Request number of the acquire that was granted the hold, if its caller set a request id, by which another
        /// acquire may take over the hold; otherwise `None`.
        take_up_number: Option<u32>,
        /// Whether the server must refuse the request if another lane has taken up the hold.
        is_own: bool,
        /// Gets `true` if the claim was still waiting.
        reply: Reply<bool>,
    },
    Extend {
        id: LockId,
        lease_ms: u32,
        /// As `is_own` of `Release`.
        is_own: bool,
        reply: Reply<Duration>,
    },
    /// An extend that the lane sends by itself, to renew a hold.
    Renew {
        id: LockId,
        lease_ms: u32,
        /// As `is_own` of `Release`.
        is_own: bool,
    },
    /// Asks whether a hold still lives, without touching its lease.
    Check {
        id: LockId,
    },
    /// Lists the holds of this lane, to compare them with the guards.
    Holds {
        cursor: u64,
    },
    Watch(WatchJob),
    Unwatch {
        watch_number: u32,
        key: Key,
    },
    /// Any other request. Its response goes to the caller and changes no hold or watch of the lane.
    Ask(Box<dyn Question>),
    KeepAlive,
    Goodbye,
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

    /// Returns the destination of the response, or `None` for a request whose response goes to no caller.
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

    /// Answers the caller with this error, if a caller waits. The job itself stays usable: the lane may still send it
    /// or handle its response, for example to release a hold that no caller gets.
    pub(crate) fn fail(&mut self, error: Error) {
        if let Some(reply) = self.reply() {
            reply.fail(error);
        }
    }

    /// Reports to a waiting caller that the outcome is unknown. The job can still be sent.
    pub(crate) fn leave_uncertain(&mut self, reason: &str) {
        if let Some(reply) = self.reply() {
            reply.leave_uncertain(reason);
        }
    }

    /// Answers the caller of an unsent job with an error. The caller gets `cause` if the job was never sent. If an
    /// earlier session or server process got it, the outcome is unknown because of `reason`. The job can still be sent.
    pub(crate) fn fail_unsent(&mut self, cause: &Error, reason: &str) {
        match self.reply() {
            Some(reply) if reply.was_sent() => reply.leave_uncertain(reason),
            Some(reply) => reply.fail(cause.clone()),
            None => {}
        }
    }

    /// Returns the latest instant for the answer to a waiting caller. [`BootTime::NEVER`] for an acquire, which has a
    /// timer of its own, and for a job without a caller.
    pub(crate) fn answer_by(&mut self) -> BootTime {
        self.reply().map_or(BootTime::NEVER, |reply| reply.answer_by())
    }

    /// Returns whether a caller waits for the answer or may query the outcome later. The goodbye counts as awaited.
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

    /// Returns whether the lane must send the job even without a caller, because another client may wait for the key. A
    /// release frees the key. A confirmation of a grant without a caller leads to the release of its holds.
    pub(crate) fn matters_unawaited(&self) -> bool {
        matches!(self, Self::Release { .. } | Self::Confirm(_))
    }
}
