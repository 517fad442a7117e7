//! The namespaces that have their own label in the metrics.
//!
//! Clients create namespaces, so their number in the metrics must be bounded. At most [`LABELLED_MAX`] of them have
//! labels, and all others are counted together.

use super::acquires::{AcquireKey, NewAcquires, ResultCounts, add};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use waymaker_engine::Time;

/// Maximum number of namespaces with their own label.
pub(crate) const LABELLED_MAX: usize = 100;
/// Time without an acquire after which a namespace may lose its label, in milliseconds. A scrape counts the acquires
/// since the previous scrape or reading by the console. If these follow each other quickly, a single scrape without
/// acquires therefore says little.
const LABEL_IDLE_MS: u64 = 300_000;

/// Remembers between readings by scrapes or the console which namespaces have labels.
#[derive(Debug, Default)]
pub(crate) struct NamespaceLabels {
    labelled: BTreeMap<Box<[u8]>, LabelledNamespace>,
    /// Counts of namespaces from the time in which they had no label, and of dropped rows, by front end.
    other: BTreeMap<&'static str, ResultCounts>,
}

/// A namespace with a label.
#[derive(Debug)]
struct LabelledNamespace {
    /// Counts since the namespace got its label.
    rows: BTreeMap<AcquireKey, ResultCounts>,
    /// Time of the latest reading, by a scrape or the console, that found new acquires of the namespace.
    busy_at: Time,
}

impl NamespaceLabels {
    /// Accepts the counts since the previous call. Each scrape calls this, and so does the console.
    ///
    /// A namespace with new acquires gets a label while there are fewer than [`LABELLED_MAX`], or if another label has
    /// been idle for [`LABEL_IDLE_MS`]. The busiest namespaces come first.
    ///
    /// The counts of a namespace begin with the call at which it gets a label, and are dropped when another namespace
    /// takes over the label. A time series therefore never decreases while it exists.
    pub(crate) fn note(&mut self, new: NewAcquires, now: Time) {
        self.choose(&new.rows, now);
        for (key, counts) in new.rows {
            match self.labelled.get_mut(&key.namespace) {
                Some(labelled) => add(labelled.rows.entry(key).or_default(), counts),
                None => add(self.other.entry(key.front_end).or_default(), counts),
            }
        }
        for (front_end, counts) in new.dropped {
            add(self.other.entry(front_end).or_default(), counts);
        }
    }

    /// Returns the counts of namespaces with labels.
    pub(crate) fn labelled(&self) -> impl Iterator<Item = (&AcquireKey, &ResultCounts)> {
        self.labelled.values().flat_map(|labelled| &labelled.rows)
    }

    /// Returns the counts of all namespaces from the time in which they had no label, added up by front end. Rows that
    /// a full table dropped are included.
    pub(crate) fn other(&self) -> impl Iterator<Item = (&'static str, &ResultCounts)> {
        self.other.iter().map(|(front_end, counts)| (*front_end, counts))
    }

    /// Gives labels to the busiest namespaces without one that have new acquires. A namespace with a label has its own
    /// series in the metrics. Free labels are given first, then those of namespaces without an acquire for
    /// [`LABEL_IDLE_MS`].
    fn choose(&mut self, new: &BTreeMap<AcquireKey, ResultCounts>, now: Time) {
        let mut activity: BTreeMap<&[u8], u64> = BTreeMap::new();
        for (key, counts) in new {
            *activity.entry(&key.namespace).or_default() += counts.iter().sum::<u64>();
        }
        activity.retain(|_, count| *count > 0);
        for (namespace, labelled) in &mut self.labelled {
            if activity.remove(&**namespace).is_some() {
                labelled.busy_at = now;
            }
        }
        let mut wanted: Vec<(&[u8], u64)> = activity.into_iter().collect();
        wanted.sort_by_key(|(_, count)| Reverse(*count));
        let idle =
            self.labelled.iter().filter(|(_, labelled)| now.ms_since(labelled.busy_at) >= LABEL_IDLE_MS);
        let mut idle: BTreeSet<_> =
            idle.map(|(namespace, labelled)| (labelled.busy_at, namespace.clone())).collect();
        for (namespace, _) in wanted {
            if self.labelled.len() >= LABELLED_MAX {
                let Some((_, longest_idle)) = idle.pop_first() else { return };
                self.labelled.remove(&longest_idle);
            }
            let labelled = LabelledNamespace { rows: BTreeMap::new(), busy_at: now };
            self.labelled.insert(namespace.into(), labelled);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use waymaker_protocol::NamespaceKind;

    fn key(namespace: usize) -> AcquireKey {
        let namespace = format!("{namespace:03}").into_bytes().into();
        AcquireKey { namespace, kind: NamespaceKind::Flat, front_end: "binary" }
    }

    fn note(labels: &mut NamespaceLabels, at_ms: u64, counts: impl IntoIterator<Item = (usize, u64)>) {
        let row = |(namespace, count)| (key(namespace), [count, 0, 0, 0, 0]);
        let rows = counts.into_iter().map(row).collect();
        labels.note(NewAcquires { rows, dropped: BTreeMap::new() }, Time::from_millis(at_ms));
    }

    fn count_of(labels: &NamespaceLabels, namespace: usize) -> Option<u64> {
        labels.labelled().find(|(own, _)| **own == key(namespace)).map(|(_, counts)| counts[0])
    }

    fn other(labels: &NamespaceLabels) -> u64 {
        labels.other().map(|(_, counts)| counts[0]).sum()
    }

    #[test]
    fn the_busiest_namespaces_have_labels_and_the_rest_counts_together() {
        let mut labels = NamespaceLabels::default();
        note(&mut labels, 0, (0..LABELLED_MAX + 2).map(|namespace| (namespace, namespace as u64 + 1)));
        assert_eq!(labels.labelled().count(), LABELLED_MAX);
        assert_eq!((count_of(&labels, 0), count_of(&labels, 1), count_of(&labels, 2)), (None, None, Some(3)));
        assert_eq!(other(&labels), 1 + 2);
    }

    #[test]
    fn counts_of_a_label_add_up_over_scrapes() {
        let mut labels = NamespaceLabels::default();
        note(&mut labels, 0, [(1, 4)]);
        note(&mut labels, 1, [(1, 0)]);
        note(&mut labels, 2, [(1, 3)]);
        assert_eq!((count_of(&labels, 1), other(&labels)), (Some(7), 0));
    }

    #[test]
    fn a_busy_namespace_takes_the_label_that_was_idle_for_longest() {
        let mut labels = NamespaceLabels::default();
        note(&mut labels, 0, (0..LABELLED_MAX).map(|namespace| (namespace, 1)));
        note(&mut labels, 1, (1..LABELLED_MAX).map(|namespace| (namespace, 1)));
        note(
            &mut labels,
            LABEL_IDLE_MS - 1,
            (2..LABELLED_MAX).map(|namespace| (namespace, 1)).chain([(500, 9)]),
        );
        assert_eq!((count_of(&labels, 500), other(&labels)), (None, 9), "no label is idle for long enough");
        note(
            &mut labels,
            LABEL_IDLE_MS + 1,
            (2..LABELLED_MAX).map(|namespace| (namespace, 1)).chain([(500, 4)]),
        );
        assert_eq!((count_of(&labels, 0), count_of(&labels, 500)), (None, Some(4)));
        assert_eq!(count_of(&labels, 1), Some(2), "it was idle for a shorter time");
        note(&mut labels, LABEL_IDLE_MS + 2, [(501, 2), (502, 1)]);
        assert_eq!((count_of(&labels, 1), count_of(&labels, 501)), (None, Some(2)));
        assert_eq!((count_of(&labels, 2), count_of(&labels, 502)), (Some(4), None), "busy ones keep labels");
    }

    #[test]
    fn two_scrapes_in_a_row_take_no_label_away() {
        let mut labels = NamespaceLabels::default();
        note(&mut labels, 0, (0..LABELLED_MAX + 1).map(|namespace| (namespace, 2)));
        let labelled: Vec<_> = labels.labelled().map(|(key, _)| key.clone()).collect();
        note(&mut labels, LABEL_IDLE_MS - 1, [(LABELLED_MAX, 1)]);
        assert!(labels.labelled().map(|(key, _)| key).eq(&labelled));
    }

    #[test]
    fn an_idle_namespace_gets_no_label() {
        let mut labels = NamespaceLabels::default();
        note(&mut labels, 0, [(1, 0)]);
        assert_eq!(labels.labelled().count(), 0);
    }
}
