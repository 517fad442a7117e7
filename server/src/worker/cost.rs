//! The cost of requests and batches, as a number of acquires of one key. Such an acquire takes a microsecond at most.
//! For long answers, 1 KiB costs as much as one acquire. `bench/src/opcodes` measures the time.

use super::spans::has_trace_context;
use crate::limits::{BATCH_COST_MAX, OUTPUT_LEN_PAUSE};
use crate::mail::Batch;
use waymaker_protocol::limits::{
    FRAME_LEN_MAX, INSPECT_HOLDERS_MAX, KEY_LEN_MAX, OWNER_LEN_MAX, PATH_KEY_LEN_MAX, REASON_CODE_LEN_MAX,
    REASON_MESSAGE_LEN_MAX, SERVER_ADDRESSES_LEN_MAX, SERVER_REASONS_MAX, SERVER_VERSION_LEN_MAX,
    TYPE_LEN_MAX, VALUE_LEN_MAX,
};
use waymaker_protocol::message::{acquire_terms, opcode};
use waymaker_protocol::{Frame, NamespaceKind, next_frame};

/// Number of bytes of a request that cost as much as an acquire of one key, because the worker decodes, copies and
/// hashes them.
const BYTES_PER_COST: usize = 512;

/// Cost of the span of a traced request, which the worker opens, ends and exports. The unit is an acquire of one key.
const SPAN_COST: usize = 8;

/// Number of bytes of answers that count as 1 unit of cost. With that, the answers of a batch of maximum cost are as
/// long as the unsent output at which the server stops reading a connection.
const ANSWER_BYTES_PER_COST: usize = OUTPUT_LEN_PAUSE / BATCH_COST_MAX;

/// Bits of the opcodes that are checked first: they cost 1, unless the request is long, is traced, or asks for its
/// queue position. All are below 64.
const CHEAP: u64 = 1 << opcode::ACQUIRE
    | 1 << opcode::RELEASE
    | 1 << opcode::EXTEND
    | 1 << opcode::KEEP_ALIVE
    | 1 << opcode::PONG;

/// Returns the cost of serving a request in a namespace of this kind.
#[inline(always)]
pub(super) fn cost_of(frame: Frame<'_>, kind: impl FnOnce() -> NamespaceKind) -> usize {
    let costly_flags = acquire_terms::flag::NOTIFY_QUEUED | acquire_terms::flag::TRACEPARENT;
    let is_short = frame.len() < BYTES_PER_COST && frame.flags() & costly_flags == 0;
    if is_short && is_cheap(frame.opcode()) {
        return 1;
    }
    uncommon_cost(frame, kind())
}

#[inline(always)]
fn is_cheap(opcode: u8) -> bool {
    CHEAP.checked_shr(u32::from(opcode)).is_some_and(|bits| bits & 1 != 0)
}

#[inline(never)]
fn uncommon_cost(frame: Frame<'_>, kind: NamespaceKind) -> usize {
    let span = if has_trace_context(frame) { SPAN_COST } else { 0 };
    let time = time_cost(frame, kind) + frame.len() / BYTES_PER_COST + span;
    let answer = answer_len_max(frame.opcode(), kind) / ANSWER_BYTES_PER_COST;
    time.max(answer).min(BATCH_COST_MAX)
}

fn time_cost(frame: Frame<'_>, kind: NamespaceKind) -> usize {
    match frame.opcode() {
        // The acquire asks for its queue position if it has to wait. The shard counts the waiters from the front of the
        // queue to report it, so such an acquire costs more than a plain one.
        opcode::ACQUIRE | opcode::ACQUIRE_PERMITS
            if frame.flags() & acquire_terms::flag::NOTIFY_QUEUED != 0 =>
        {
            32
        }
        opcode::THROTTLE => 1,
        cheap if is_cheap(cheap) => 1,
        opcode::ACQUIRE_PERMITS | opcode::STATUS | opcode::CANCEL | opcode::HEARTBEAT => 2,
        opcode::SERVER_STATUS => 8,
        opcode::VERIFY | opcode::LOOK_UP if kind != NamespaceKind::Tree => 8,
        // INSPECT and VERIFY of a path: the shard searches for all held and requested sets that overlap the path.
        opcode::INSPECT | opcode::VERIFY if kind == NamespaceKind::Tree => BATCH_COST_MAX / 2,
        opcode::ACQUIRE_SET => 4 + frame.len() / 16,
        // To fill a page of a list, the shard looks at many claims, and at the key record of each of them.
        opcode::LIST | opcode::HOLDS | opcode::LIST_POOLS | opcode::LIST_ENTRIES => BATCH_COST_MAX / 2,
        opcode::NAMESPACES | opcode::ACQUIRE_KEYS => BATCH_COST_MAX,
        _ => 32,
    }
}

/// Returns an upper bound of the length of the answer in bytes. Returns 0 if the answer is short. Also returns 0 for
/// lists and multi-key grants: `time_cost` already gives them half the maximum cost of a batch or more, which covers
/// their length.
fn answer_len_max(opcode: u8, kind: NamespaceKind) -> usize {
    match opcode {
        opcode::LOOK_UP => 128 + KEY_LEN_MAX + OWNER_LEN_MAX + VALUE_LEN_MAX + TYPE_LEN_MAX,
        opcode::SERVER_STATUS => {
            128 + SERVER_VERSION_LEN_MAX
                + SERVER_ADDRESSES_LEN_MAX
                + SERVER_REASONS_MAX * (16 + REASON_CODE_LEN_MAX + REASON_MESSAGE_LEN_MAX)
        }
        opcode::STATUS | opcode::FORCE_RELEASE if kind == NamespaceKind::Tree => {
            128 + PATH_KEY_LEN_MAX + OWNER_LEN_MAX
        }
        opcode::STATUS | opcode::FORCE_RELEASE => 128 + KEY_LEN_MAX + OWNER_LEN_MAX,
        opcode::INSPECT | opcode::DESCRIBE_POOL => 2 * INSPECT_HOLDERS_MAX * (64 + OWNER_LEN_MAX),
        _ => 0,
    }
}

/// Returns the total cost of the requests in `frames`, which lie one after the other.
#[cold]
pub(super) fn cost_of_requests(mut frames: &[u8], kind: NamespaceKind) -> usize {
    let mut cost = 0;
    while let Ok(Some(frame)) = next_frame(frames, FRAME_LEN_MAX) {
        cost += cost_of(frame, || kind);
        frames = &frames[frame.len()..];
    }
    cost
}

/// Returns the cost of a batch that was left in the turn of a shard.
pub(super) fn cost_of_batch(batch: &Batch) -> usize {
    match batch {
        Batch::Requests(batch) => batch.cost,
        Batch::Vacancy(vacancy) => vacancy.lane_count(),
        Batch::Withdraw(multi_key, _) => multi_key.key_count(),
        Batch::Reserved(_, reserved) => reserved.len(),
        // The work of these batches depends on the state of the shard, for example on the number of claims of a lane.
        // Each may take as much work as the shard does in one turn, so each costs half the maximum of a batch.
        Batch::Lane(..) | Batch::Expire { .. } | Batch::Broadcast(..) | Batch::Forget(_) => {
            BATCH_COST_MAX / 2
        }
        Batch::Knock(_) | Batch::Stop | Batch::Count | Batch::Publish => 1,
    }
}
