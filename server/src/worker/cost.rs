//! The cost of requests and batches, in acquires of one key: a microsecond at most. `bench/src/opcodes` measures it.

use crate::limits::BATCH_COST_MAX;
use crate::mail::Batch;
use waymaker_protocol::limits::FRAME_LEN_MAX;
use waymaker_protocol::message::{acquire, opcode};
use waymaker_protocol::{Frame, NamespaceKind, next_frame};

/// Bytes of a request that cost as much as an acquire of one key: the worker decodes, copies and hashes them.
const BYTES_PER_COST: usize = 512;

/// The cost of serving a request.
#[inline]
pub(super) fn cost_of(frame: Frame<'_>, kind: NamespaceKind) -> usize {
    let own = match frame.opcode() {
        // Waiters are counted from the front of the queue to tell the position.
        opcode::ACQUIRE | opcode::ACQUIRE_PERMITS if frame.flags() & acquire::flag::NOTIFY_QUEUED != 0 => 32,
        opcode::ACQUIRE | opcode::RELEASE | opcode::EXTEND | opcode::KEEP_ALIVE | opcode::THROTTLE => 1,
        other => rare_cost(other, frame.len(), kind),
    };
    own + frame.len() / BYTES_PER_COST
}

fn rare_cost(opcode: u8, len: usize, kind: NamespaceKind) -> usize {
    match opcode {
        opcode::ACQUIRE_PERMITS | opcode::STATUS | opcode::CANCEL | opcode::HEARTBEAT => 2,
        opcode::VERIFY | opcode::LOOK_UP if kind != NamespaceKind::Tree => 8,
        // Sets that overlap a path are looked for.
        opcode::INSPECT | opcode::VERIFY if kind == NamespaceKind::Tree => BATCH_COST_MAX / 2,
        opcode::ACQUIRE_SET => 4 + len / 16,
        // A page looks at many claims, and at the record of the key of each of them.
        opcode::LIST | opcode::HOLDS | opcode::LIST_POOLS | opcode::LIST_ENTRIES => BATCH_COST_MAX / 2,
        opcode::NAMESPACES | opcode::ACQUIRE_KEYS => BATCH_COST_MAX,
        _ => 32,
    }
}

/// The cost of requests that lie one behind the other.
#[cold]
pub(super) fn cost_of_requests(mut frames: &[u8], kind: NamespaceKind) -> usize {
    let mut cost = 0;
    while let Ok(Some(frame)) = next_frame(frames, FRAME_LEN_MAX) {
        cost += cost_of(frame, kind);
        frames = &frames[frame.len()..];
    }
    cost
}

/// The cost of a batch that another worker left.
pub(super) fn cost_of_batch(batch: &Batch) -> usize {
    match batch {
        Batch::Requests(batch) => batch.cost,
        Batch::Withdraw(several, _) => several.key_count(),
        Batch::Reserved(_, reserved) => reserved.len(),
        // These may use up the follow-up work of a turn.
        Batch::Lane(..) | Batch::Expire { .. } | Batch::Everywhere(..) | Batch::Forget(_) => {
            BATCH_COST_MAX / 2
        }
        Batch::Knock(_) | Batch::Stop | Batch::Count => 1,
    }
}
