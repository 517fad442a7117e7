//! Commands to the task of a connection.

use std::sync::Arc;
use std::time::Duration;

use waymaker_protocol::SessionId;

use crate::hold::Hold;
use crate::request::job::Job;
use crate::request::reply::Reply;

/// Commands to the connection task, from handles, guards, futures, watches and other connections of the client.
pub(crate) enum Command {
    /// Send this job and answer its caller.
    Submit(Job),
    /// The future of the acquire with this token was dropped.
    Abandon { token: u64 },
    /// The guard of this hold releases it.
    Release { hold: Arc<Hold>, reply: Reply<bool> },
    /// The guard of this hold moves the end of its lease.
    Extend { hold: Arc<Hold>, lease_ms: u32, reply: Reply<Duration> },
    /// The guard of this hold was forgotten. The lane removes the guard, but leaves the hold on the server, and neither
    /// renews nor releases it from now on. The hold ends with its lease, which may be the session's, or when a client
    /// releases it by its id.
    Forget { hold: Arc<Hold> },
    /// The watch with this token was dropped.
    Unwatch { token: u64 },
    /// Another connection of the client has learned that this session has ended.
    SessionGone { id: SessionId },
    /// Release all guarded holds, leave the session, then reply. The reply is sent earlier if its time limit passes.
    Close { reply: Reply<()> },
}
