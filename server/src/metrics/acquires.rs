//! Results of acquires by namespace and front end.

use super::cell::Cell;
use crate::limits::ACQUIRE_ROW_COUNT_MAX;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use waymaker_engine::{Answer, Refusal};
use waymaker_protocol::NamespaceKind;

/// The result of an acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AcquireResult {
    Granted,
    /// The acquire allowed no wait, and other claims prevented the grant.
    Busy,
    Timeout,
    Cancelled,
    /// The acquire failed with any other error.
    Refused,
}

impl AcquireResult {
    pub(crate) const ALL: [Self; 5] =
        [Self::Granted, Self::Busy, Self::Timeout, Self::Cancelled, Self::Refused];

    /// Returns the name in metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Busy => "busy",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::Refused => "refused",
        }
    }

    /// Returns the result of an acquire with this answer, or `None` if the answer repeats an earlier grant.
    pub(crate) fn of(answer: &Answer) -> Option<Self> {
        match answer {
            Answer::Granted(grant) => (!grant.repeated).then_some(Self::Granted),
            Answer::GrantedMultiKey(grants) => {
                (!grants.iter().any(|key| key.grant.repeated)).then_some(Self::Granted)
            }
            Answer::Refused(Refusal::Busy(_)) => Some(Self::Busy),
            Answer::Refused(Refusal::Timeout(_)) => Some(Self::Timeout),
            Answer::Refused(Refusal::Cancelled(_)) => Some(Self::Cancelled),
            Answer::Refused(_) => Some(Self::Refused),
            _ => Some(Self::Granted),
        }
    }
}

/// Counts in the order of [`AcquireResult::ALL`].
pub(crate) type ResultCounts = [u64; AcquireResult::ALL.len()];

/// Counts of the acquires of one worker in one namespace through one front end.
#[derive(Debug, Default)]
pub(crate) struct AcquireCounts([Cell; AcquireResult::ALL.len()]);

impl AcquireCounts {
    #[inline]
    pub(crate) fn add(&self, result: AcquireResult, count: u64) {
        self.0[result as usize].add(count);
    }

    fn get(&self) -> ResultCounts {
        std::array::from_fn(|result| self.0[result].get())
    }
}

/// The namespace and front end of a row of acquire counters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AcquireKey {
    pub(crate) namespace: Box<[u8]>,
    pub(crate) kind: NamespaceKind,
    pub(crate) front_end: &'static str,
}

/// Counters of all acquires of one worker, in one row for each namespace and front end. A lane keeps a reference to its
/// row, so only new connections, scrapes and the console lock the table.
#[derive(Debug, Default)]
pub(crate) struct AcquireTable(Mutex<Rows>);

#[derive(Debug, Default)]
struct Rows {
    rows: BTreeMap<AcquireKey, Row>,
    /// Counts from dropped rows since the last [`AcquireTable::take`], by front end. A full table drops rows that no
    /// connection uses, to make room for a new one.
    dropped: BTreeMap<&'static str, ResultCounts>,
}

#[derive(Debug, Default)]
struct Row {
    counts: Arc<AcquireCounts>,
    /// Counts at the last [`Row::take`].
    scraped: ResultCounts,
}

impl Row {
    /// Returns the counts since the last call.
    fn take(&mut self) -> ResultCounts {
        let counts = self.counts.get();
        let scraped = std::mem::replace(&mut self.scraped, counts);
        std::array::from_fn(|result| counts[result].wrapping_sub(scraped[result]))
    }

    fn is_used(&self) -> bool {
        Arc::strong_count(&self.counts) > 1
    }
}

/// The counts since the previous reading of the tables by a scrape or the console.
#[derive(Debug, Default)]
pub(crate) struct NewAcquires {
    pub(crate) rows: BTreeMap<AcquireKey, ResultCounts>,
    /// Counts since the previous reading from rows (counters of one namespace and front end) that a full
    /// [`AcquireTable`] dropped to make room. Only their front ends are known, not their namespaces.
    pub(crate) dropped: BTreeMap<&'static str, ResultCounts>,
}

impl AcquireTable {
    /// Returns the row of acquire counters for a new connection. If the row is new, a full table first drops the rows
    /// that no connection uses. If all rows are in use, the table grows.
    pub(crate) fn row(&self, key: AcquireKey) -> Arc<AcquireCounts> {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Rows { rows, dropped } = &mut *table;
        if rows.len() >= ACQUIRE_ROW_COUNT_MAX && !rows.contains_key(&key) {
            rows.retain(|key, row| {
                let is_used = row.is_used();
                if !is_used {
                    add(dropped.entry(key.front_end).or_default(), row.take());
                }
                is_used
            });
        }
        Arc::clone(&rows.entry(key).or_default().counts)
    }

    /// Adds the counts since the last call to `new`, and drops the rows that no connection uses.
    pub(crate) fn take(&self, new: &mut NewAcquires) {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.rows.retain(|key, row| {
            let is_used = row.is_used();
            add(new.rows.entry(key.clone()).or_default(), row.take());
            is_used
        });
        for (front_end, counts) in std::mem::take(&mut table.dropped) {
            add(new.dropped.entry(front_end).or_default(), counts);
        }
    }
}

/// Adds the counts of each result to `sum`.
pub(crate) fn add(sum: &mut ResultCounts, counts: ResultCounts) {
    sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(namespace: u32) -> AcquireKey {
        let namespace = namespace.to_string().into_bytes().into();
        AcquireKey { namespace, kind: NamespaceKind::Flat, front_end: "binary" }
    }

    #[test]
    fn connections_of_one_namespace_share_a_row() {
        let table = AcquireTable::default();
        table.row(key(1)).add(AcquireResult::Granted, 1);
        table.row(key(1)).add(AcquireResult::Busy, 1);
        table.row(key(2)).add(AcquireResult::Busy, 1);
        let mut new = NewAcquires::default();
        table.take(&mut new);
        assert_eq!(new.rows[&key(1)], [1, 1, 0, 0, 0]);
        assert_eq!(new.rows[&key(2)], [0, 1, 0, 0, 0]);
    }

    #[test]
    fn each_acquire_is_taken_by_one_scrape() {
        let table = AcquireTable::default();
        let row = table.row(key(1));
        row.add(AcquireResult::Granted, 1);
        table.take(&mut NewAcquires::default());
        row.add(AcquireResult::Timeout, 1);
        drop(row);
        let mut new = NewAcquires::default();
        table.take(&mut new);
        table.take(&mut new);
        assert_eq!(new.rows[&key(1)], [0, 0, 1, 0, 0]);
    }

    #[test]
    fn a_full_table_drops_rows_without_a_connection_and_keeps_their_sum() {
        let table = AcquireTable::default();
        let used = table.row(key(0));
        for namespace in 1..=ACQUIRE_ROW_COUNT_MAX as u32 {
            table.row(key(namespace)).add(AcquireResult::Granted, 1);
        }
        used.add(AcquireResult::Timeout, 1);
        let mut new = NewAcquires::default();
        table.take(&mut new);
        assert_eq!(new.rows.len(), 2, "the row in use and the newest");
        assert_eq!(new.rows[&key(0)], [0, 0, 1, 0, 0]);
        assert_eq!(new.dropped["binary"][0], ACQUIRE_ROW_COUNT_MAX as u64 - 1);
    }
}
