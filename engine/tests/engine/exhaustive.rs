//! Every short sequence of three clients on one key, compared with the model step by step.

use crate::model::{Ask, Name};
use crate::twin::{Place, Step, Twin};
use waymaker_engine::Limits;

const CLIENT_COUNT: usize = 3;
const LEASE_MS: u32 = 20;
const SHORT_MS: u32 = 5;

/// A step, and whether what follows it is worth trying: after one that changes nothing it is not.
struct Choice {
    step: Step,
    changes_nothing: bool,
}

/// Enumerates all sequences by depth, each run from its beginning.
struct Enumeration {
    twin: Twin,
    /// The last acquire of each client.
    claims: [Option<Name>; CLIENT_COUNT],
    depth: usize,
    sequence_count: u64,
}

impl Enumeration {
    fn new(depth: usize) -> Self {
        let limits = Limits { lease_min_ms: 1, ..Limits::default() };
        let places = ["a", "b", "c"].map(|owner| Place { namespace: 0, owner });
        Self { twin: Twin::new(limits, &places, 1), claims: [None; CLIENT_COUNT], depth, sequence_count: 0 }
    }

    fn explore(&mut self, prefix: &mut Vec<usize>) {
        let choices = self.choices();
        self.clean_up();
        for (index, choice) in choices.iter().enumerate() {
            prefix.push(index);
            let ends = choice.changes_nothing || prefix.len() == self.depth;
            self.replay(prefix);
            if ends {
                self.sequence_count += 1;
                self.clean_up();
            } else {
                self.explore(prefix);
            }
            prefix.pop();
        }
    }

    fn replay(&mut self, prefix: &[usize]) {
        let mut steps = Vec::new();
        for index in prefix {
            let step = self.choices().swap_remove(*index).step;
            if let Step::Acquire { lane, .. } = &step {
                self.claims[*lane] = Some(self.twin.next_number());
            }
            steps.push(step);
            let outcome = self.twin.step(&steps[steps.len() - 1]);
            outcome.unwrap_or_else(|difference| panic!("{steps:#?}\n{difference}"));
        }
    }

    fn clean_up(&mut self) {
        self.twin.clean_up().unwrap_or_else(|difference| panic!("at the end: {difference}"));
        self.claims = [None; CLIENT_COUNT];
    }

    /// What may come next.
    fn choices(&self) -> Vec<Choice> {
        let mut choices = Vec::new();
        let mut add = |step: Step, changes_nothing: bool| choices.push(Choice { step, changes_nothing });
        let is_free = self.twin.model.claim_count() == 0;
        for lane in 0..CLIENT_COUNT {
            let claim = self.claims[lane];
            match claim.and_then(|claim| self.twin.model.is_held(claim).map(|held| (claim, held))) {
                None => {
                    for shared in [false, true] {
                        // Nobody is there to be waited for: every wait does the same.
                        let waits: &[u32] = if is_free { &[u32::MAX] } else { &[0, SHORT_MS, u32::MAX] };
                        for wait_ms in waits {
                            let refused = *wait_ms == 0 && !self.twin.model.would_grant_try(0, b"k", shared);
                            let ask = Ask {
                                key: b"k".to_vec(),
                                shared,
                                lease_ms: LEASE_MS,
                                wait_ms: *wait_ms,
                                notify_queued: true,
                                ..Ask::default()
                            };
                            add(Step::Acquire { lane, ask }, refused);
                        }
                    }
                    if let Some(claim) = claim
                        && self.twin.is_known(claim)
                    {
                        add(Step::Release { lane, claim, key: None, own: false }, true);
                        add(Step::Extend { lane, claim, key: None, lease_ms: LEASE_MS, own: false }, true);
                    }
                    // Clients are alike: the next one comes only when this one was there.
                    if claim.is_none() {
                        break;
                    }
                }
                Some((claim, true)) => {
                    add(Step::Release { lane, claim, key: None, own: false }, false);
                    add(
                        Step::Extend { lane, claim, key: None, lease_ms: LEASE_MS + SHORT_MS, own: false },
                        false,
                    );
                }
                Some((claim, false)) => {
                    add(Step::Release { lane, claim, key: None, own: false }, false);
                    add(Step::Cancel { lane, number: claim }, false);
                    add(Step::Extend { lane, claim, key: None, lease_ms: LEASE_MS, own: false }, true);
                }
            }
        }
        if !is_free {
            add(Step::Advance { millis: u64::from(SHORT_MS), stalled: false }, false);
            add(Step::Advance { millis: u64::from(LEASE_MS), stalled: false }, false);
        }
        choices
    }
}

#[test]
fn every_short_sequence_on_one_key_agrees_with_the_model() {
    let depth = std::env::var("WAYMAKER_DEPTH").ok().and_then(|depth| depth.parse().ok()).unwrap_or(6);
    let mut enumeration = Enumeration::new(depth);
    enumeration.explore(&mut Vec::new());
    println!("{} sequences", enumeration.sequence_count);
    assert!(enumeration.sequence_count > 1000);
}
