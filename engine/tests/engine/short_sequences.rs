//! All short sequences of requests of a few clients, for any server of them.
//!
//! This file is shared by the tests of the engine and of the server's workers.

use super::judge::{Ask, Item, Judge};
use std::panic::{AssertUnwindSafe, catch_unwind};
use waymaker_engine::{ClaimId, LaneAddress, LaneSlot, Ticket};

/// One step of a sequence.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Acquire { client: usize, ask: Ask },
    Release { client: usize, id: ClaimId },
    Cancel { ticket: Ticket },
    Advance { millis: u64 },
}

/// Clients, their server, and a judge who hears all answers.
pub(crate) trait Subject {
    fn judge(&self) -> &Judge;

    /// Does a step. Panics if the judge finds anything wrong. `is_known`: the same steps were done before without a finding.
    fn act(&mut self, act: &Act, is_known: bool);

    /// A sequence ends here.
    fn finish(&mut self) {}
}

pub(crate) const CLIENT_COUNT: usize = 3;
pub(crate) const CAPACITY_OF_A_FEW: u64 = 3;
const LEASE_MS: u32 = 20;
/// Such a wait ends between leases, and one that is asked for as it ends may end with a lease.
const SHORT_MS: u32 = 10;

/// The lane of a client.
pub(crate) fn lane_of(client: usize) -> LaneAddress {
    LaneAddress { worker: 0, slot: LaneSlot(client as u32), generation: 0 }
}

/// All sequences of a few clients, each with one claim at a time: it asks if it has none, else it releases or cancels.
/// Time goes on to where the next wait or lease ends. Left out is what could not differ: what follows a try that was
/// refused, how long one would wait where nobody is, and another client where one that was there before is as free.
pub(crate) struct Enumeration<N> {
    new: N,
    menu: Vec<Ask>,
    depth: usize,
    /// Sequences, those of them that end with a try that was refused, and those in which a wait ended in vain.
    sequence_count: u64,
    refused_count: u64,
    timeout_count: u64,
}

impl<S: Subject, N: Fn() -> S> Enumeration<N> {
    /// Sequences of up to `depth` steps before subjects that `new` makes.
    pub(crate) fn new(new: N, menu: Vec<Ask>, depth: usize) -> Self {
        Self { new, menu, depth, sequence_count: 0, refused_count: 0, timeout_count: 0 }
    }

    fn explore(&mut self, acts: &mut Vec<Act>, before: &S) {
        for act in self.choices(before.judge()) {
            let is_try = matches!(&act, Act::Acquire { ask, .. } if ask.wait_ms == 0);
            acts.push(act);
            let mut subject = self.replay(acts);
            let was_refused = is_try && subject.judge().live() == before.judge().live();
            if was_refused || acts.len() == self.depth {
                self.sequence_count += 1;
                self.refused_count += u64::from(was_refused);
                self.timeout_count += u64::from(subject.judge().timeout_count > 0);
                blame(acts, || subject.finish());
            } else {
                self.explore(acts, &subject);
            }
            acts.pop();
        }
    }

    fn replay(&self, acts: &[Act]) -> S {
        let mut subject = (self.new)();
        for (place, act) in acts.iter().enumerate() {
            blame(acts, || subject.act(act, place + 1 < acts.len()));
        }
        subject
    }

    fn choices(&self, judge: &Judge) -> Vec<Act> {
        let mut choices = Vec::new();
        let (waiting, held) = judge.live();
        let is_free = waiting.is_empty() && held.is_empty();
        for client in 0..CLIENT_COUNT {
            let address = lane_of(client);
            let mut has_claim = false;
            for ticket in waiting.iter().filter(|ticket| ticket.lane == address) {
                has_claim = true;
                choices.push(Act::Cancel { ticket: *ticket });
            }
            for (id, _) in held.iter().filter(|(_, lane)| *lane == address) {
                has_claim = true;
                choices.push(Act::Release { client, id: *id });
            }
            if !has_claim {
                let asks = self.menu.iter().filter(|ask| !is_free || ask.wait_ms == u32::MAX);
                choices.extend(asks.map(|ask| Act::Acquire { client, ask: ask.clone() }));
                // Clients are alike: the next one comes only when this one is there.
                break;
            }
        }
        if let (false, Some(millis)) = (waiting.is_empty(), judge.until_next_end_ms()) {
            choices.push(Act::Advance { millis });
        }
        choices
    }

    pub(crate) fn run(mut self) {
        let start = self.replay(&[]);
        self.explore(&mut Vec::new(), &start);
        let Self { depth, sequence_count, refused_count, timeout_count, .. } = self;
        println!(
            "{sequence_count} sequences of up to {depth} steps, {refused_count} with a refused try, \
             {timeout_count} with a time-out"
        );
        let has_try = self.menu.iter().any(|ask| ask.wait_ms == 0);
        assert!(sequence_count > 1000 && (refused_count > 0) == has_try);
        let has_timeout = self.menu.iter().any(|ask| (1..LEASE_MS).contains(&ask.wait_ms));
        assert_eq!(timeout_count > 0, has_timeout);
    }
}

/// A panic of `part` names the sequence.
fn blame(acts: &[Act], part: impl FnOnce()) {
    let outcome = catch_unwind(AssertUnwindSafe(part));
    assert!(outcome.is_ok(), "{acts:#?}");
}

/// Requests for one kind: some of them, and all.
pub(crate) struct Menu {
    pub(crate) few: Vec<Ask>,
    pub(crate) all: Vec<Ask>,
}

/// Items as text: `ab:w c:r` reads c and writes ab.
fn items(text: &str) -> Vec<Item> {
    let item = |word: &str| {
        let (name, mode) = word.split_once(':').expect("a name and a mode");
        Item { name: name.as_bytes().to_vec(), shared: mode == "r" }
    };
    text.split_whitespace().map(item).collect()
}

fn to_wait(items: Vec<Item>) -> Ask {
    Ask { items, lease_ms: LEASE_MS, wait_ms: u32::MAX, ..Ask::default() }
}

/// These requests as they are, and as tries, and with a short wait.
pub(crate) fn in_every_way(asks: &[Ask]) -> Vec<Ask> {
    let with = |wait_ms| asks.iter().map(move |ask| Ask { wait_ms, ..ask.clone() });
    with(u32::MAX).chain(with(0)).chain(with(SHORT_MS)).collect()
}

/// Sets of paths whose segments are single letters; `/` is the whole tree.
pub(crate) fn tree_menu() -> Menu {
    let sets = |texts: &[&str]| texts.iter().map(|set| to_wait(items(&set.replace('/', "")))).collect();
    Menu {
        few: sets(&["/:r", "a:w", "ab:r", "abc:w a:r", "ab:w c:r", "ac:r abc:w"]),
        all: sets(&[
            "/:w",
            "/:r",
            "a:w",
            "a:r",
            "ab:w",
            "ab:r",
            "abc:w a:r",
            "ab:w c:r",
            "ac:r abc:w",
            "c:w abc:r",
        ]),
    }
}

/// Every number of permits of the pool `p`.
pub(crate) fn pool_menu(by_time: bool) -> Vec<Ask> {
    let ask = |permits: u64, timestamp_us: u64| Ask {
        permits,
        timestamp_us,
        ..to_wait(vec![Item { name: b"p".to_vec(), shared: false }])
    };
    let mut menu = vec![ask(1, 5), ask(2, 5), ask(3, 5)];
    if by_time {
        menu.extend([ask(1, 3), ask(3, 3), ask(2, 7)]);
    }
    menu
}

/// Claims of one key or of two.
pub(crate) fn keys_menu() -> Menu {
    let multiple = |lists: &[&str]| -> Vec<Ask> {
        lists.iter().map(|list| Ask { is_multi_key: true, ..to_wait(items(list)) }).collect()
    };
    let single = |keys: &[&str]| -> Vec<Ask> { keys.iter().map(|key| to_wait(items(key))).collect() };
    Menu {
        few: [multiple(&["0:w 1:w", "0:r 1:w", "1:w 2:w"]), single(&["0:w", "1:r"])].concat(),
        all: [
            multiple(&["0:w 1:w", "0:r 1:w", "0:w 1:r", "0:r 1:r", "1:w 2:w"]),
            single(&["0:w", "0:r", "1:w", "1:r"]),
        ]
        .concat(),
    }
}
