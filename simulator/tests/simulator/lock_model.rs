//! One lock as anybody would write it down who has no clock, no queue and no server: who holds it, and the newest fence.

use porcupine_rs::Model;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The rules of one shared or exclusive lock.
#[derive(Clone, Debug)]
pub(crate) struct LockModel;

/// One lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Lock {
    newest_fence: u64,
    /// In the order of their fences.
    holders: Vec<Holder>,
    /// Unheard grants, exclusive and shared.
    unheard_counts: [usize; 2],
    /// All that was answered has happened.
    is_closed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Holder {
    fence: u64,
    shared: bool,
    /// It may have ended at any time since this was set. What happens next shows whether it has.
    may_be_over: bool,
}

/// What happened to a lock, at one instant between its question and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Happening {
    /// Somebody got it. Fences rise by one, or may jump.
    Grant { fence: u64, shared: bool, may_jump: bool },
    /// Somebody may have got it without hearing of it, with one of the fences that nobody heard of. Of those who asked
    /// alike, the one in the first place did: whatever another explains, it explains too.
    UnheardGrant { shared: bool, place: usize, fences: Arc<BTreeSet<u64>> },
    /// A hold was there: it was renewed, or looked at.
    Seen { fence: u64 },
    /// A hold was ended by somebody's word.
    Release { fence: u64 },
    /// From here on a hold may end at any time: its lease, its session or its lane may have, or somebody wanted it to end
    /// and heard nothing.
    MayEnd { fence: u64 },
    /// A hold that had been there was not.
    Gone { fence: u64 },
    /// A try was refused, and nobody waited.
    Busy { shared: bool },
    /// Somebody saw all holders.
    Inspection { fence: u64, holders: Vec<u64> },
    /// From here on what may have happened has not.
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
    /// The lock when this has happened, or `None` where it cannot happen.
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

    /// Lets one more hold it. False where a hold that is surely there is in the way; one that may be over is over then.
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

    /// After all answers.
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

    /// Whether all this can have happened, each between its two times.
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
    fn one_holder_comes_after_the_other() {
        assert!(is_possible(&[(0, 1, grant(1)), (2, 3, Release { fence: 1 }), (4, 5, grant(2))]));
        assert!(is_possible(&[(0, 1, grant(1)), (2, 9, Release { fence: 1 }), (3, 5, grant(2))]));
        // The answers came in another order than the grants.
        assert!(is_possible(&[(0, 9, grant(1)), (2, 8, Release { fence: 1 }), (1, 5, grant(2))]));
    }

    #[test]
    fn two_do_not_hold_it_unless_they_share_it() {
        assert!(!is_possible(&[(0, 1, grant(1)), (2, 3, grant(2))]));
        assert!(!is_possible(&[(0, 1, shared_grant(1)), (2, 3, grant(2))]));
        assert!(!is_possible(&[(0, 1, grant(1)), (2, 3, shared_grant(2))]));
        assert!(is_possible(&[(0, 1, shared_grant(1)), (2, 3, shared_grant(2))]));
    }

    #[test]
    fn a_release_that_was_asked_for_after_the_next_grant_was_heard_does_not_explain_it() {
        assert!(!is_possible(&[(0, 1, grant(1)), (2, 3, grant(2)), (4, 5, Release { fence: 1 })]));
    }

    #[test]
    fn fences_rise_by_one_in_the_order_of_time() {
        assert!(!is_possible(&[(0, 1, shared_grant(2))]), "the first was skipped");
        assert!(!is_possible(&[(0, 1, shared_grant(1)), (2, 3, shared_grant(3))]), "one was skipped");
        assert!(!is_possible(&[(0, 1, shared_grant(1)), (2, 3, shared_grant(1))]), "one was given twice");
        assert!(!is_possible(&[(0, 1, shared_grant(2)), (2, 3, shared_grant(1))]), "they fell");
        assert!(is_possible(&[(0, 3, shared_grant(2)), (1, 2, shared_grant(1))]));
    }

    #[test]
    fn fences_of_what_was_forgotten_may_jump_and_never_fall() {
        let jump = |fence| Grant { fence, shared: true, may_jump: true };
        assert!(is_possible(&[(0, 1, jump(3)), (2, 3, jump(9))]));
        assert!(!is_possible(&[(0, 1, jump(3)), (2, 3, jump(3))]));
        assert!(!is_possible(&[(0, 1, jump(3)), (2, 3, jump(2))]));
    }

    #[test]
    fn a_lease_ends_when_it_may_and_not_before() {
        let lease = |end| (end, end, MayEnd { fence: 1 });
        assert!(is_possible(&[(0, 1, grant(1)), lease(5), (2, 6, grant(2))]));
        assert!(!is_possible(&[(0, 1, grant(1)), lease(7), (2, 6, grant(2))]), "it was granted early");
        assert!(is_possible(&[(0, 1, grant(1)), lease(5), (8, 9, Seen { fence: 1 })]), "it may end later");
        assert!(is_possible(&[(0, 1, grant(1)), lease(5), (6, 7, Gone { fence: 1 })]));
        assert!(!is_possible(&[(0, 1, grant(1)), lease(8), (6, 7, Gone { fence: 1 })]), "it was lost");
    }

    #[test]
    fn what_is_over_stays_over() {
        let released = [(0, 1, grant(1)), (2, 3, Release { fence: 1 })];
        let then = |happening| is_possible(&[released.as_slice(), &[(4, 5, happening)]].concat());
        assert!(then(Gone { fence: 1 }));
        assert!(!then(Seen { fence: 1 }));
        assert!(!then(Release { fence: 1 }));
        assert!(!then(Gone { fence: 2 }), "it was never granted");
    }

    #[test]
    fn an_acquire_without_an_answer_may_have_been_granted_once() {
        let lost = (0, NEVER, unheard_grant(false));
        assert!(is_possible(&[lost.clone(), (2, 3, grant(1))]), "it was not");
        assert!(is_possible(&[lost.clone(), (2, 3, grant(2))]), "it was, and ended");
        assert!(!is_possible(&[lost.clone(), (2, 3, grant(3))]), "twice");
        assert!(!is_possible(&[(4, NEVER, unheard_grant(true)), (2, 3, grant(2))]), "too late");
        assert!(!is_possible(&[lost.clone(), (2, 3, grant(1)), (4, 5, Gone { fence: 2 })]), "not even once");
        // It cannot have come between two who had to share the lock with it.
        let readers = [(1, 2, shared_grant(1)), (3, 4, shared_grant(3))];
        assert!(!is_possible(&[&[lost], readers.as_slice()].concat()));
    }

    #[test]
    fn a_try_is_refused_only_where_somebody_is_in_the_way() {
        assert!(!is_possible(&[(0, 1, Busy { shared: false })]));
        assert!(is_possible(&[(0, 1, grant(1)), (2, 3, Busy { shared: true })]));
        assert!(is_possible(&[(0, 1, shared_grant(1)), (2, 3, Busy { shared: false })]));
        assert!(!is_possible(&[(0, 1, shared_grant(1)), (2, 3, Busy { shared: true })]));
        assert!(is_possible(&[(0, NEVER, unheard_grant(false)), (2, 3, Busy { shared: true })]));
    }

    #[test]
    fn who_looks_sees_all_who_hold_it_and_nobody_else() {
        let readers = [(0, 1, shared_grant(1)), (2, 3, shared_grant(2))];
        let then = |happening| is_possible(&[readers.as_slice(), &[(4, 5, happening)]].concat());
        assert!(then(inspection(2, &[1, 2])));
        assert!(!then(inspection(2, &[2])), "one is missing");
        assert!(!then(inspection(3, &[1, 2])), "the fence is not the newest");
        assert!(!then(inspection(2, &[1, 2, 3])), "one was never granted");
        let lost = (0, NEVER, unheard_grant(false));
        assert!(is_possible(&[lost.clone(), (2, 3, inspection(0, &[]))]));
        assert!(is_possible(&[lost.clone(), (2, 3, inspection(1, &[1])), (4, 5, inspection(1, &[]))]));
        assert!(
            !is_possible(&[lost, (2, 3, inspection(1, &[])), (4, 5, inspection(1, &[1]))]),
            "it came back"
        );
    }
}
