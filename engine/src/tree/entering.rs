//! Addition of large sets of paths to a tree. A set of many paths *enters* the tree over several turns, and each turn
//! adds some of its items (an item is one path of a set).

use super::removal::NODES_PER_STEP;
use super::segment::segments;
use super::{Item, State, Tree, TreeItem, needed};
use crate::handle::{ClaimIx, ItemIx};
use crate::steps::Steps;
use std::collections::BTreeMap;

/// Result of [`Tree::next_verdict`]: a waiting claim of a set of paths, and whether it can be granted or must be
/// refused. The caller then grants the claim, removes it, or leaves it waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No other claim blocks any path of this claim. The caller grants the claim or, for example after the loss of its
    /// connection, removes it. If an operator has frozen the namespace, so that nothing new is granted in it, the
    /// caller leaves the claim waiting.
    Clear(ClaimIx),
    /// The claim must wait but may not, so the caller removes it. The second claim blocks it. The second is `None` if
    /// the blocking claim has ended. The second is also `None` if an operator has frozen the namespace
    /// ([`Enters::AndWaits`]), whether or not another claim blocks this one.
    Refused(ClaimIx, Option<ClaimIx>),
}

/// Treatment of the entering sets by [`Tree::next_verdict`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Enters {
    /// No path of an entering set is added; a later call continues.
    Later,
    /// The paths of entering sets are added to the tree. If no other claim blocks a set, its paths are marked as held
    /// when they are added. But a set whose paths began to be marked as waiting while the namespace was frozen keeps
    /// these marks until all are added. Its claim is then reported as [`Verdict::Clear`].
    AndHolds,
    /// The tree adds the paths of entering sets, a few in each turn. The paths are marked as waiting even if no other
    /// claim blocks them. The reason is that an operator has frozen the namespace: nothing new is granted in it. A set
    /// that may not wait is refused.
    AndWaits,
}

/// Result of [`Tree::go_on_entering`].
pub(super) enum Progress {
    /// All sets have entered; from [`Tree::go_on_with`], its set has.
    Done,
    /// No steps are left.
    Paused,
    Decided(Verdict),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No path of the set is in the tree yet. The paths are compared with the tree one after the other, until one is
    /// blocked.
    Checking,
    /// No other claim blocks any path of the set. Each path is marked as held when it is added to the tree. After the
    /// last one, the caller may grant the claim, unless the namespace was frozen meanwhile.
    Holding,
    /// Each path is marked as waiting when it is added to the tree. Either another claim blocks at least one path, or
    /// the namespace is frozen ([`Enters::AndWaits`]), so that no set may be granted. If the freeze came after the
    /// phase `Holding` had added the paths as held, this phase changes their marks to waiting.
    Waiting,
}

/// Set of paths, not all of which are in the tree yet: a large set, or one that arrived while another set entered.
#[derive(Debug)]
struct EnteringSet {
    claim: ClaimIx,
    first_item: ItemIx,
    /// Item (path of the set) that the present phase added or marked last; `NONE` if it has none yet. The phase is
    /// checking the paths, adding them as held, or adding them as waiting. Each phase begins again with the first path.
    last_item: ItemIx,
    paths: Paths,
    phase: Phase,
    /// Number of paths of the set that the present phase has processed. The phase is checking the paths, adding them as
    /// held, or adding them as waiting. Each phase begins again with the first path.
    done_count: usize,
    /// Whether the claim may wait.
    may_wait: bool,
}

/// Paths of a set, without the redundant ones: a path at or below another path that is written, or a read path at or
/// below another read path.
#[derive(Debug)]
struct Paths {
    bytes: Box<[u8]>,
    /// End of each path in `bytes`, and whether the claim is to hold the path for writing (otherwise for reading).
    ends: Box<[(u32, bool)]>,
    /// Number of segments of all paths.
    segment_count: u32,
}

impl Paths {
    fn needed_of(items: &[TreeItem]) -> Self {
        let needed = needed(items);
        let mut bytes = Vec::with_capacity(needed.iter().map(|index| items[*index].path.len()).sum());
        let mut ends = Vec::with_capacity(needed.len());
        let mut segment_count = 0;
        for index in needed {
            let TreeItem { path, write } = items[index];
            bytes.extend_from_slice(path);
            ends.push((bytes.len() as u32, write));
            segment_count += segments(path).count() as u32;
        }
        Self { bytes: bytes.into(), ends: ends.into(), segment_count }
    }

    fn get(&self, index: usize) -> TreeItem<'_> {
        let start = if index == 0 { 0 } else { self.ends[index - 1].0 as usize };
        let (end, write) = self.ends[index];
        TreeItem { path: &self.bytes[start..end as usize], write }
    }
}

/// Sets whose paths are being added to the tree, in order of arrival. Only the first one can have paths in the tree.
/// While there are any, each new set, large or not, queues behind them. Otherwise it could overtake a set whose paths
/// are not in the tree, so that it cannot see the conflict.
#[derive(Debug, Default)]
pub(super) struct Entering {
    sets: BTreeMap<u64, EnteringSet>,
    /// Number of segments of all entering sets.
    segment_count: u32,
}

impl Entering {
    #[inline]
    pub(super) fn is_done(&self) -> bool {
        self.sets.is_empty()
    }
}

impl Tree {
    /// Whether any set is still being added to the tree, so that each new set must queue behind it.
    #[inline]
    pub(crate) fn is_entering(&self) -> bool {
        !self.entering.is_done()
    }

    /// Whether the tree has no unfinished work, except that sets may still be added to it over several turns.
    pub(crate) fn only_enters(&self) -> bool {
        self.granting.is_done() && self.removal.is_done() && self.recheck.is_done()
    }

    /// Returns an upper bound of the number of nodes that the tree has once all sets were added that still enter it.
    pub(crate) fn node_count_to_come(&self) -> u32 {
        self.node_count().saturating_add(self.entering.segment_count)
    }

    /// Takes a set, which later calls of [`Tree::next_verdict`] add to the tree path by path. `arrival` must be larger
    /// than that of each earlier claim. Returns the first item of the set.
    pub(crate) fn enter_later(
        &mut self,
        claim: ClaimIx,
        arrival: u64,
        items: &[TreeItem],
        may_wait: bool,
    ) -> ItemIx {
        let paths = Paths::needed_of(items);
        let first_item = self.items.allocate();
        // This item is for the first path, which is not in the tree yet. `enter_item` fills in the rest of its record,
        // such as its claim and its node, when it adds the path to the tree.
        self.items[first_item] = Item { arrival, blocked_count: 1, state: State::Outside, ..Item::default() };
        self.entering.segment_count += paths.segment_count;
        let phase = Phase::Checking;
        let set =
            EnteringSet { claim, first_item, last_item: ItemIx::NONE, paths, phase, done_count: 0, may_wait };
        self.entering.sets.insert(arrival, set);
        first_item
    }

    /// Allows a claim to wait, if its set is still being added to the tree. Returns true if this changed the set: it is
    /// being added and was not allowed to wait before.
    pub(crate) fn let_wait(&mut self, first_item: ItemIx) -> bool {
        let arrival = self.items[first_item].arrival;
        let set = self.entering.sets.get_mut(&arrival).filter(|set| set.first_item == first_item);
        set.is_some_and(|set| !std::mem::replace(&mut set.may_wait, true))
    }

    /// Continues to add the entering sets to the tree, in order of arrival. The caller sets `may_hold` unless the
    /// namespace is frozen. Without `may_hold`, paths are marked as waiting even if no other claim blocks them. Returns
    /// the first set about which the caller must decide. Otherwise returns whether all sets were added or no step was
    /// left.
    pub(super) fn go_on_entering(&mut self, may_hold: bool, steps: &mut Steps) -> Progress {
        while let Some((arrival, mut set)) = self.entering.sets.pop_first() {
            match self.go_on_with(arrival, &mut set, may_hold, steps) {
                Progress::Paused => {
                    self.entering.sets.insert(arrival, set);
                    return Progress::Paused;
                }
                progress => {
                    self.note_entered(&set);
                    if let Progress::Decided(_) = progress {
                        return progress;
                    }
                }
            }
        }
        Progress::Done
    }

    /// Continues to add one set to the tree. Returns `Done` if all its paths were added and another claim blocks one of
    /// them, so that the set waits. Returns `Decided` if no claim blocks any path, or if the set must wait but may not.
    /// Returns `Paused` if no step is left.
    fn go_on_with(
        &mut self,
        arrival: u64,
        set: &mut EnteringSet,
        may_hold: bool,
        steps: &mut Steps,
    ) -> Progress {
        while steps.take() {
            if !may_hold && !set.may_wait {
                return Progress::Decided(Verdict::Refused(set.claim, None));
            }
            if set.done_count == set.paths.ends.len() {
                match set.phase {
                    Phase::Checking if may_hold => set.begin(Phase::Holding),
                    Phase::Checking | Phase::Holding if !may_hold => set.begin(Phase::Waiting),
                    _ if self.items[set.first_item].blocked_count > 1 => return Progress::Done,
                    _ => return Progress::Decided(Verdict::Clear(set.claim)),
                }
            } else if set.phase != Phase::Checking {
                self.enter_item(arrival, set, steps);
                set.done_count += 1;
            } else if self.check_item(set, steps) {
                set.done_count += 1;
            } else if set.may_wait {
                set.begin(Phase::Waiting);
            } else {
                let blocker = self.blocker(&[set.paths.get(set.done_count)]);
                return Progress::Decided(Verdict::Refused(set.claim, blocker));
            }
        }
        Progress::Paused
    }

    /// Whether no other claim blocks the next path of a set. A true result stays true until the set is in the tree,
    /// because all later sets queue behind it.
    fn check_item(&self, set: &EnteringSet, steps: &mut Steps) -> bool {
        let item = set.paths.get(set.done_count);
        let place = self.trie.locate(item.path);
        steps.charge(self.steps_at(place.node));
        self.is_open(place, item.write, u64::MAX)
    }

    /// Adds the next path of a set to the tree: as held in the phase `Holding`, in which nothing blocks the set,
    /// otherwise as waiting. If the namespace was frozen after `Holding` had added the path as held, the set must wait.
    /// This function then changes the mark of the path to waiting and not blocked.
    fn enter_item(&mut self, arrival: u64, set: &mut EnteringSet, steps: &mut Steps) {
        let TreeItem { path, write } = set.paths.get(set.done_count);
        let next = if set.last_item.is_none() { set.first_item } else { self.items[set.last_item].next };
        let number = if next.is_none() { self.items.allocate() } else { next };
        if next.is_none() || self.items[next].state == State::Outside {
            let item = Item {
                arrival,
                claim: set.claim,
                first: set.first_item,
                write,
                blocked_count: u32::from(number == set.first_item),
                ..Item::default()
            };
            let before = self.node_count();
            self.stand(number, item, self.trie.search(path), set.phase == Phase::Holding);
            steps.charge((self.node_count() - before) / NODES_PER_STEP);
        } else {
            self.leave_held(number);
            self.trie.count_held(self.items[number].node, write, false);
            self.enter_waiting(number, true);
        }
        if set.last_item.is_some() {
            self.items[set.last_item].next = number;
        }
        set.last_item = number;
        steps.charge(self.steps_at(self.items[number].node));
    }

    /// Removes a claim that waits or enters.
    pub(crate) fn remove_waiting(&mut self, first_item: ItemIx, steps: &mut Steps) {
        if self.is_entering()
            && let Some(set) = self.entering.sets.remove(&self.items[first_item].arrival)
        {
            self.note_entered(&set);
        }
        if self.items[first_item].state == State::Outside {
            self.items[first_item].state = State::Free;
            self.items.release(first_item);
        } else {
            self.remove(first_item, steps);
        }
    }

    fn note_entered(&mut self, set: &EnteringSet) {
        self.entering.segment_count -= set.paths.segment_count;
        self.items[set.first_item].blocked_count -= 1;
    }

    fn entering_set(&self, first_item: ItemIx) -> Option<&EnteringSet> {
        // If a set never waited, its items have the arrival `NO_ARRIVAL`. No set in `entering.sets` has this number.
        self.entering.sets.get(&self.items[first_item].arrival).filter(|set| set.first_item == first_item)
    }

    /// Returns the number of items (paths) of a set that is still being added to the tree. Returns `None` for any other
    /// claim.
    pub(super) fn entering_item_count(&self, first_item: ItemIx) -> Option<usize> {
        self.entering_set(first_item).map(|set| set.paths.ends.len())
    }

    /// Returns the paths of a set that is still being added to the tree, and whether the set writes each of them.
    /// Returns `None` for any other claim.
    pub(super) fn entering_paths(&self, first_item: ItemIx) -> Option<impl Iterator<Item = (Vec<u8>, bool)>> {
        let paths = &self.entering_set(first_item)?.paths;
        Some((0..paths.ends.len()).map(|index| {
            let TreeItem { path, write } = paths.get(index);
            (path.to_vec(), write)
        }))
    }

    /// Returns the first path of a set that is still being added to the tree. Returns `None` for any other claim.
    pub(super) fn first_entering_path(&self, first_item: ItemIx) -> Option<&[u8]> {
        self.entering_set(first_item).map(|set| set.paths.get(0).path)
    }
}

impl EnteringSet {
    fn begin(&mut self, phase: Phase) {
        self.phase = phase;
        self.done_count = 0;
        self.last_item = ItemIx::NONE;
    }
}
