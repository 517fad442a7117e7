//! Judges what clients saw of durable locks: over any number of restarts it has to be what one server that never fails
//! could have said.
//!
//! A hold is *sure* from the answer of its grant until its release is asked for, or until the end of the lease that was
//! promised. Fences of a key are unique and say in which order its grants were decided, so each grant is compared with what
//! all those before it left, in one pass: n log n for everything. What was lost may have happened, or not.

use super::history::{Call, Entry, Micros, Renewal};
use std::collections::BTreeMap;
use waymaker_protocol::LockId;

/// A hold, put together from all that was seen of it.
#[derive(Debug)]
#[expect(dead_code, reason = "the id is there to be printed")]
struct Hold {
    id: LockId,
    key: u32,
    shared: bool,
    fence: u64,
    granted: Call,
    /// Until when it is sure.
    until: Micros,
}

/// Everything in this history that breaks a promise.
pub(crate) fn violations(history: &[Entry]) -> Vec<String> {
    let mut entries: Vec<&Entry> = history.iter().collect();
    entries.sort_by_key(|entry| entry.call().invoked);
    let mut found = Vec::new();
    let holds = follow(&entries, &mut found);
    let mut by_key: BTreeMap<u32, Vec<Hold>> = BTreeMap::new();
    for hold in holds.into_values() {
        by_key.entry(hold.key).or_default().push(hold);
    }
    for mut grants in by_key.into_values() {
        grants.sort_by_key(|hold| hold.fence);
        check_order(&grants, &mut found);
        check_exclusion(&grants, &mut found);
    }
    found
}

/// Follows each hold through its life, and notes where it was gone while it was sure.
fn follow(entries: &[&Entry], found: &mut Vec<String>) -> BTreeMap<LockId, Hold> {
    let mut holds: BTreeMap<LockId, Hold> = BTreeMap::new();
    for entry in entries {
        match entry {
            Entry::Granted { call, id, key, shared, fence, until } => {
                let (id, key, shared, fence, until) = (*id, *key, *shared, *fence, *until);
                let new = Hold { id, key, shared, fence, granted: *call, until };
                let hold = holds.entry(id).or_insert(new);
                if (hold.key, hold.shared, hold.fence) != (key, shared, fence) {
                    found.push(format!("repeated differently: {hold:?}, then {entry:?}"));
                }
                hold.granted.returned = hold.granted.returned.min(call.returned);
                hold.until = hold.until.max(until);
            }
            Entry::Renewed { call, id, outcome } => {
                let Some(hold) = holds.get_mut(id) else { continue };
                match outcome {
                    Renewal::Done { until } => hold.until = *until,
                    Renewal::Gone => check_gone(hold, *call, entry, found),
                    Renewal::Lost { lease } => hold.until = hold.until.min(call.invoked + lease),
                }
            }
            Entry::Released { call, id, was_found } => {
                let Some(hold) = holds.get_mut(id) else { continue };
                if *was_found == Some(false) {
                    check_gone(hold, *call, entry, found);
                }
                hold.until = hold.until.min(call.invoked);
            }
            Entry::Seen { call, id, fence } => {
                let Some(hold) = holds.get(id) else { continue };
                match fence {
                    None => check_gone(hold, *call, entry, found),
                    Some(fence) if *fence != hold.fence => {
                        found.push(format!("held with another fence: {hold:?}, then {entry:?}"));
                    }
                    Some(_) => {}
                }
            }
            Entry::Found { held, wanted, .. } => {
                if *held != 0 && held != wanted {
                    found.push(format!("a part of several: {entry:?}"));
                }
            }
            Entry::Wrong { .. } => found.push(format!("{entry:?}")),
        }
    }
    holds
}

fn check_gone(hold: &Hold, call: Call, entry: &Entry, found: &mut Vec<String>) {
    if call.returned < hold.until {
        found.push(format!("lost: {hold:?}, then {entry:?}"));
    }
}

/// Fences are unique and rise in real time. These are the grants of one key, by their fences.
fn check_order(grants: &[Hold], found: &mut Vec<String>) {
    let mut latest: Option<&Hold> = None;
    for (index, grant) in grants.iter().enumerate() {
        if index > 0 && grants[index - 1].fence == grant.fence {
            found.push(format!("the same fence twice: {:?} and {grant:?}", grants[index - 1]));
        }
        match latest {
            Some(before) if grant.granted.returned < before.granted.invoked => {
                found.push(format!("a fence went back: {grant:?}, then {before:?}"));
            }
            Some(before) if grant.granted.invoked <= before.granted.invoked => {}
            _ => latest = Some(grant),
        }
    }
}

/// Nobody is granted what is still sure for another. These are the grants of one key, by their fences.
fn check_exclusion(grants: &[Hold], found: &mut Vec<String>) {
    let (mut exclusive, mut any): (Option<&Hold>, Option<&Hold>) = (None, None);
    let later = |one: Option<&Hold>, until| one.is_none_or(|one| one.until < until);
    for grant in grants {
        let in_the_way = if grant.shared { exclusive } else { any };
        if let Some(before) = in_the_way
            && grant.granted.returned < before.until
        {
            found.push(format!("granted too early: {grant:?} while {before:?}"));
        }
        if later(any, grant.until) {
            any = Some(grant);
        }
        if !grant.shared && later(exclusive, grant.until) {
            exclusive = Some(grant);
        }
    }
}
