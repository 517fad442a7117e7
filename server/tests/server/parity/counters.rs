//! What happened in the namespaces of a file, by their numbers.

use super::heard::Heard;
use super::script::Said;
use std::collections::BTreeMap;

/// The lane of the lines of `counters`.
pub(super) const COUNTERS: &str = "(counters)";

/// Held, waiting, timeouts, expired and revoked of each namespace, whatever kinds it is made of.
#[derive(Default)]
pub(super) struct Counters(BTreeMap<u32, [u64; 5]>);

impl Counters {
    /// Adds those of a namespace of the server, if it belongs to the run of this scope.
    pub(super) fn add(&mut self, scope: &str, namespace: &str, counts: [u64; 5]) {
        let rest = namespace.strip_prefix(scope).and_then(|rest| rest.strip_prefix('/'));
        let Some(number) = rest.and_then(|rest| rest.split('/').next()?.parse().ok()) else { return };
        for (sum, count) in self.0.entry(number).or_default().iter_mut().zip(counts) {
            *sum += count;
        }
    }

    /// Says them. Of a namespace in which nothing happened it depends on the server whether it is listed.
    pub(super) fn say(self, heard: &Heard) {
        for (number, counts) in self.0.into_iter().filter(|(_, counts)| *counts != [0; 5]) {
            let [held, waiting, timeouts, expired, revoked] = counts;
            let text = format!(
                "held={held} waiting={waiting} timeouts={timeouts} expired={expired} revoked={revoked}"
            );
            heard.say(COUNTERS, format!("namespace {number}: {text}"));
        }
    }
}

/// Whether a line is about a namespace in which nothing happened.
pub(super) fn says_nothing(said: &Said) -> bool {
    said.lane == COUNTERS && said.text.ends_with("held=0 waiting=0 timeouts=0 expired=0 revoked=0")
}
