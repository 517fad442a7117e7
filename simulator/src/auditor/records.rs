//! Connections, lanes and requests, as the auditor knows them.

use super::cluster_fences::EarlierCount;
use super::duties::Word;
use super::walks::Walk;
use crate::key::Key;
use crate::operation::Operation;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use waymaker_protocol::{LockId, SessionId};

/// One connection, as the auditor knows it.
#[derive(Debug, Default)]
pub(super) struct Listener {
    pub(super) lane: usize,
    /// Whether the connection belongs to a front end, whose streams take events and responses at their own
    /// pace, or never.
    pub(super) is_front: bool,
    /// Whether the connection belongs to a visitor, whose requests the `visits` module checks.
    pub(super) is_visitor: bool,
    /// Requests of a visitor that have not fully arrived at the server, each with the stream offset of its
    /// end. The server owes a response once all bytes have arrived.
    pub(super) unarrived_visits: VecDeque<(u64, u32)>,
    /// Undecoded beginning of a frame; `said_from` is its offset in the stream.
    pub(super) said: Vec<u8>,
    pub(super) said_from: u64,
    pub(super) answered: BTreeSet<u32>,
    /// Request numbers of the watches that the client requested on this connection.
    pub(super) asked_watches: BTreeSet<u32>,
    /// Requests that have not fully arrived at the server, each with the stream offset of its end.
    pub(super) unarrived: VecDeque<(u64, usize)>,
    /// Time since which the session of the connection is settled.
    pub(super) welcome_ms: Option<u64>,
    /// Whether the connection got the event that its session has ended.
    pub(super) is_session_gone: bool,
    /// Server clock at which the server decided to send WELCOME.
    pub(super) welcomed_ms: Option<u64>,
    /// Required events that the connection got.
    pub(super) heard: BTreeSet<Word>,
    /// Holds of which the connection got a change of the lease.
    pub(super) heard_of: BTreeSet<LockId>,
    /// Server clock of the newest lease that the connection got, by hold.
    pub(super) moved_ms: BTreeMap<LockId, u64>,
    /// Whether the server has bytes for the connection that the connection does not take.
    pub(super) is_clogged: bool,
    /// Time at which the connection took the last of such bytes.
    pub(super) flows_from_us: u64,
    pub(super) is_lost: bool,
    /// Request after which the client closed its sending side.
    pub(super) last_words: Option<u32>,
    /// Requests that were sent after GOODBYE; `None` before a GOODBYE.
    pub(super) behind_goodbye: Option<BTreeSet<u32>>,
    /// Whether the client has sent HELLO and has no WELCOME yet.
    pub(super) is_greeting: bool,
    /// Whether the server answered GOODBYE.
    pub(super) has_farewell: bool,
    /// Acquires for which a front end tells its client about later events of their holds.
    pub(super) followed: BTreeSet<u32>,
    /// Requests whose stream the client has reset.
    pub(super) reset: BTreeSet<u32>,
    /// Holds whose end the connection got.
    pub(super) told_over: BTreeSet<LockId>,
    /// Time at which the server was done with the connection.
    pub(super) done_us: Option<u64>,
}

/// One lane of a client, across all its connections.
#[derive(Debug, Default)]
pub(super) struct LaneRecord {
    /// Client that stands for the owner: all processes of one owner count as one client.
    pub(super) client: usize,
    pub(super) process: usize,
    pub(super) session: Option<SessionId>,
    pub(super) connections: Vec<usize>,
    pub(super) requests: BTreeMap<u32, usize>,
    pub(super) losses: Vec<Loss>,
    /// Holds that the lane was granted.
    pub(super) granted: BTreeSet<LockId>,
    pub(super) holds_walk: Walk,
}

/// The loss of one connection of a lane.
#[derive(Debug)]
pub(super) struct Loss {
    pub(super) connection: usize,
    pub(super) at_ms: u64,
    /// Time at which the lane was connected to its session again.
    pub(super) back_ms: Option<u64>,
}

/// One request.
#[derive(Debug)]
pub(super) struct RequestRecord {
    pub(super) lane: usize,
    /// Connection on which the request was last sent.
    pub(super) connection: usize,
    pub(super) number: u32,
    pub(super) operation: Operation,
    pub(super) first_sent_ms: u64,
    pub(super) sent_ms: u64,
    /// Time at which the last byte of the newest copy arrived.
    pub(super) arrived_ms: Option<u64>,
    /// Newest known fence of the key when the request was first sent.
    pub(super) fence_before: u64,
    /// Newest known fence of each key of an acquire when the acquire was first sent.
    pub(super) fences_before: Vec<(Key, u64)>,
    /// State of the keys that a cluster counts when the acquire was first sent.
    pub(super) counted_before: Vec<EarlierCount>,
    /// Number of times that the request was sent.
    pub(super) sent_count: u32,
    /// Whether at least one copy of the request asked not to wait.
    pub(super) is_try: bool,
    /// Whether any request or event gave a reason why the wait may have ended.
    pub(super) may_be_cancelled: bool,
    /// Whether the server acknowledged the cancellation of the request.
    pub(super) is_cancelled: bool,
    /// Request that reset the stream of this request.
    pub(super) reset_by: Option<usize>,
    pub(super) is_granted: bool,
    /// Response that a repetition must get.
    pub(super) kept: Option<Vec<u8>>,
    pub(super) is_answered: bool,
    /// Server clock at which the grant was decided.
    pub(super) granted_ms: Option<u64>,
    /// Time of the latest response.
    pub(super) answered_ms: Option<u64>,
    /// Whether the acquire waited until its wait ended.
    pub(super) is_timed_out: bool,
    /// Time at which the request was refused.
    pub(super) refused_ms: Option<u64>,
    /// Content of `QUEUED`: the id and the ticket; then the time at which it was sent.
    pub(super) queued: Option<(LockId, u64, u64)>,
}
