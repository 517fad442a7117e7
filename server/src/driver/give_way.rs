//! Lets other tasks and connections run before a task continues.

use std::future::Future;
use std::pin::pin;
use std::task::Context;
use tokio::task::yield_now;

/// Wakes this task once the runtime has looked at the sockets and timers of others. A task that wakes itself at once comes back
/// before that, up to 61 times.
pub(crate) fn give_way(context: &mut Context<'_>) {
    let polled = pin!(yield_now()).poll(context);
    debug_assert!(polled.is_pending(), "the first poll always gives way");
}
