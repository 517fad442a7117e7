//! Counts of acquires by their results.

use super::*;
use crate::metrics::{AcquireResult, NewAcquires};

/// The lane adds up its grants and counts them when their responses are written. It must also count them if the
/// connection is lost before.
#[test]
fn the_last_grants_of_a_lost_connection_are_counted() {
    let mut rig = Rig::new(1);
    let (key, _) = rig.connect(SessionRequest::None);
    rig.say(key, &frame(2, &Request::Acquire(Acquire { key: b"key", ..Acquire::default() })));
    rig.workers[0].handle_lost(key, rig.now);
    let mut new = NewAcquires::default();
    rig.node.metrics.workers[0].acquires.take(&mut new);
    let granted: u64 = new.rows.values().map(|counts| counts[AcquireResult::Granted as usize]).sum();
    assert_eq!(granted, 1);
}
