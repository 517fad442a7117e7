//! Model of one lock without clocks, queues or servers: its holders, and the newest fence.

use porcupine_rs::Model;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The rules of one shared or exclusive lock.
#[derive(Clone, Debug)]
pub(crate) struct LockModel;

/// State of one lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Lock {
    newest_fence: u64,
    /// The holders, in the order of their fences.
    holders: Vec<Holder>,
    /// Number of unheard grants, exclusive and shared.
    unheard_counts: [usize; 2],
    /// True if everything that was answered has happened.
    is_closed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Holder {
    fence: u64,
    shared: bool,
    /// True if the hold may have ended. The next happenings show whether it has.
    may_be_over: bool,
}

/// Something that happened to a lock, at one instant between a request and its response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Happening {
    /// A client got the lock. Fences rise by one, or by more if `may_jump` is set.
    Grant { fence: u64, shared: bool, may_jump: bool },
    /// A client may have got the lock without hearing of it, with one of the fences that no client heard of.
    /// Of several equal attempts the one at the first `place` succeeded. This loses nothing, because equal
    /// attempts explain the same responses.
    UnheardGrant { shared: bool, place: usize, fences: Arc<BTreeSet<u64>> },
    /// The hold existed: it was renewed or looked at.
    Seen { fence: u64 },
    /// A request ended the hold.
    Release { fence: u64 },
    /// From now on the hold may end at any time: its lease, its session or its lane may have ended, or a
    /// request to end it was not answered.
    MayEnd { fence: u64 },
    /// The hold existed once and has ended.
    Gone { fence: u64 },
    /// A try was refused while no client waited.
    Busy { shared: bool },
    /// An inspection showed all holders.
    Inspection { fence: u64, holders: Vec<u64> },
    /// From now on, unheard grants have not happened.
    Close,
}

impl Model for LockModel {
    type State = Lock;
    type Op = Happening;
    type Metadata = ();

    fn init() -> Lock {
        Lock::default()
    }

    fn step(lock: &Lock, happening: &Happening) -> (bool, Lock) {
        match lock.after(happening) {
            Some(after) => (true, after),
            None => (false, Lock::default()),
        }
    }
}

impl Lock {
    /// Returns the lock after this happening, or `None` if it cannot happen.
    fn after(&self, happening: &Happening) -> Option<Self> {
        let mut lock = self.clone();
        let is_possible = match *happening {
            Happening::Grant { fence, shared, may_jump } => {
                let is_next = fence == self.newest_fence + 1 || may_jump && fence > self.newest_fence;
                is_next && lock.grant(Holder { fence, shared, may_be_over: false })
            }
            Happening::UnheardGrant { .. } if self.is_closed => true,
            Happening::UnheardGrant { shared, place, ref fences } => {
                let fence = self.newest_fence + 1;
                let count = &mut lock.unheard_counts[usize::from(shared)];
                *count += 1;
                *count == place + 1
                    && fences.contains(&fence)
                    && lock.grant(Holder { fence, shared, may_be_over: true })
            }
            Happening::Seen { fence } => self.holder(fence).is_some(),
            Happening::MayEnd { fence } => {
                let own = lock.holders.iter_mut().filter(|holder| holder.fence == fence);
                own.for_each(|holder| holder.may_be_over = true);
                fence <= self.newest_fence
            }
            Happening::Release { fence } => {
                lock.holders.retain(|holder| holder.fence != fence);
                self.holder(fence).is_some()
            }
            Happening::Gone { fence } => {
                lock.holders.retain(|holder| holder.fence != fence);
                fence <= self.newest_fence && self.holder(fence).is_none_or(|holder| holder.may_be_over)
            }
            Happening::Busy { shared } => self.holders.iter().any(|holder| !(shared && holder.shared)),
            Happening::Inspection { fence, ref holders } => {
                lock.holders.retain(|holder| holders.contains(&holder.fence) || !holder.may_be_over);
                let are_same = lock.holders.iter().all(|holder| holders.contains(&holder.fence));
                fence == self.newest_fence && are_same && lock.holders.len() == holders.len()
            }
            Happening::Close => {
                lock.is_closed = true;
                true
            }
        };
        is_possible.then_some(lock)
    }

    fn holder(&self, fence: u64) -> Option<&Holder> {
        self.holders.iter().find(|holder| holder.fence == fence)
    }

    /// Adds a holder. Returns false if a conflicting hold certainly exists. A conflicting hold that may have
    /// ended is removed.
    fn grant(&mut self, new: Holder) -> bool {
        let conflicts = |holder: &Holder| !(holder.shared && new.shared);
        if self.holders.iter().any(|holder| conflicts(holder) && !holder.may_be_over) {
            return false;
        }
        self.holders.retain(|holder| !conflicts(holder));
        self.newest_fence = new.fence;
        self.holders.push(new);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::Happening::{self, Busy, Close, Gone, Grant, Inspection, MayEnd, Release, Seen, UnheardGrant};
    use super::LockModel;
    use porcupine_rs::{Operation, check_operations};
    use std::sync::Arc;

    /// A time after all responses.
    const NEVER: i64 = 1_000;

    fn grant(fence: u64) -> Happening {
        Grant { fence, shared: false, may_jump: false }
    }

    fn shared_grant(fence: u64) -> Happening {
        Grant { fence, shared: true, may_jump: false }
    }

    fn inspection(fence: u64, holders: &[u64]) -> Happening {
        Inspection { fence, holders: holders.to_vec() }
    }

    fn unheard_grant(shared: bool) -> Happening {
        UnheardGrant { shared, place: 0, fences: Arc::new([1, 2].into()) }
    }

    /// Returns whether all of this can have happened, each between its two times.
    fn is_possible(happenings: &[(i64, i64, Happening)]) -> bool {
        let close = (NEVER - 1, NEVER - 1, Close);
        let all = happenings.iter().chain([&close]).map(|(call_time, return_time, op)| Operation {
            client_id: None,
            call_time: *call_time,
            return_time: *return_time,
            op: op.clone(),
            metadata: None,
        });
        check_operations::<LockModel>(&all.collect::<Vec<_>>())
    }

    #[test]
    fn a_grant_may_follow_the_release_of_the_holder_before() {
        assert!(is_possible(&[(0, 1, grant(1)), (2, 3, Release { fence: 1 }), (4, 5, grant(2))]));
        assert!(is_possible(&[(0, 1, grant(1)), (2, 9, Release { fence: 1 }), (3, 5, grant(2))]));
        // The responses came in another order than the grants.
        assert!(is_possible(&[(0, 9, grant(1)), (2, 8, Release { fence: 1 }), (1, 5, grant(2))]));
    }

    #[test]
    fn two_holders_must_share_the_lock() {
        assert!(!is_possible(&[(0, 1, grant(1)), (2, 3, grant(2))]));
        assert!(!is_possible(&[(0, 1, shared_grant(1)), (2, 3, grant(2))]));
        assert!(!is_possible(&[(0, 1, grant(1)), (2, 3, shared_grant(2))]));
        assert!(is_possible(&[(0, 1, shared_grant(1)), (2, 3, shared_grant(2))]));
    }

    #[test]
    fn a_release_after_the_next_grant_does_not_explain_that_grant() {
        assert!(!is_possible(&[(0, 1, grant(1)), (2, 3, grant(2)), (4, 5, Release { fence: 1 })]));
    }

    #[test]
    fn fences_rise_by_one_in_the_order_of_the_grants() {
        assert!(!is_possible(&[(0, 1, shared_grant(2))]), "the first fence was skipped");
        assert!(!is_possible(&[(0, 1, shared_grant(1)), (2, 3, shared_grant(3))]), "a fence was skipped");
        assert!(
            !is_possible(&[(0, 1, shared_grant(1)), (2, 3, shared_grant(1))]),
            "a fence was granted twice"
        );
        assert!(!is_possible(&[(0, 1, shared_grant(2)), (2, 3, shared_grant(1))]), "the fences fell");
        assert!(is_possible(&[(0, 3, shared_grant(2)), (1, 2, shared_grant(1))]));
    }

    #[test]
    fn fences_of_a_forgotten_counter_may_jump_but_never_fall() {
        let jump = |fence| Grant { fence, shared: true, may_jump: true };
        assert!(is_possible(&[(0, 1, jump(3)), (2, 3, jump(9))]));
        assert!(!is_possible(&[(0, 1, jump(3)), (2, 3, jump(3))]));
        assert!(!is_possible(&[(0, 1, jump(3)), (2, 3, jump(2))]));
    }

    #[test]
    fn a_hold_ends_only_after_the_time_from_which_it_may_end() {
        let lease = |end| (end, end, MayEnd { fence: 1 });
        assert!(is_possible(&[(0, 1, grant(1)), lease(5), (2, 6, grant(2))]));
        assert!(
            !is_possible(&[(0, 1, grant(1)), lease(7), (2, 6, grant(2))]),
            "the key was granted before the hold ended"
        );
        assert!(
            is_possible(&[(0, 1, grant(1)), lease(5), (8, 9, Seen { fence: 1 })]),
            "the hold may end later"
        );
        assert!(is_possible(&[(0, 1, grant(1)), lease(5), (6, 7, Gone { fence: 1 })]));
        assert!(
            !is_possible(&[(0, 1, grant(1)), lease(8), (6, 7, Gone { fence: 1 })]),
            "the hold was lost early"
        );
    }

    #[test]
    fn an_ended_hold_stays_ended() {
        let released = [(0, 1, grant(1)), (2, 3, Release { fence: 1 })];
        let then = |happening| is_possible(&[released.as_slice(), &[(4, 5, happening)]].concat());
        assert!(then(Gone { fence: 1 }));
        assert!(!then(Seen { fence: 1 }));
        assert!(!then(Release { fence: 1 }));
        assert!(!then(Gone { fence: 2 }), "the hold was never granted");
    }

    #[test]
    fn an_acquire_without_a_response_may_have_been_granted_once() {
        let lost = (0, NEVER, unheard_grant(false));
        assert!(is_possible(&[lost.clone(), (2, 3, grant(1))]), "the lost acquire was not granted");
        assert!(
            is_possible(&[lost.clone(), (2, 3, grant(2))]),
            "the lost acquire was granted, and its hold ended"
        );
        assert!(!is_possible(&[lost.clone(), (2, 3, grant(3))]), "twice");
        assert!(
            !is_possible(&[(4, NEVER, unheard_grant(true)), (2, 3, grant(2))]),
            "the lost acquire came too late"
        );
        assert!(
            !is_possible(&[lost.clone(), (2, 3, grant(1)), (4, 5, Gone { fence: 2 })]),
            "the lost acquire was never granted"
        );
        // The lost grant is exclusive and cannot have come between two readers that held the lock together.
        let readers = [(1, 2, shared_grant(1)), (3, 4, shared_grant(3))];
        assert!(!is_possible(&[&[lost], readers.as_slice()].concat()));
    }

    #[test]
    fn a_try_is_refused_only_if_a_hold_conflicts() {
        assert!(!is_possible(&[(0, 1, Busy { shared: false })]));
        assert!(is_possible(&[(0, 1, grant(1)), (2, 3, Busy { shared: true })]));
        assert!(is_possible(&[(0, 1, shared_grant(1)), (2, 3, Busy { shared: false })]));
        assert!(!is_possible(&[(0, 1, shared_grant(1)), (2, 3, Busy { shared: true })]));
        assert!(is_possible(&[(0, NEVER, unheard_grant(false)), (2, 3, Busy { shared: true })]));
    }

    #[test]
    fn an_inspection_shows_exactly_the_holders() {
        let readers = [(0, 1, shared_grant(1)), (2, 3, shared_grant(2))];
        let then = |happening| is_possible(&[readers.as_slice(), &[(4, 5, happening)]].concat());
        assert!(then(inspection(2, &[1, 2])));
        assert!(!then(inspection(2, &[2])), "a holder is missing");
        assert!(!then(inspection(3, &[1, 2])), "the fence is not the newest");
        assert!(!then(inspection(2, &[1, 2, 3])), "a hold was never granted");
        let lost = (0, NEVER, unheard_grant(false));
        assert!(is_possible(&[lost.clone(), (2, 3, inspection(0, &[]))]));
        assert!(is_possible(&[lost.clone(), (2, 3, inspection(1, &[1])), (4, 5, inspection(1, &[]))]));
        assert!(
            !is_possible(&[lost, (2, 3, inspection(1, &[])), (4, 5, inspection(1, &[1]))]),
            "an ended hold came back"
        );
    }
}
