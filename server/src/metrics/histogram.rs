//! Histograms that one thread fills and any thread reads.
//!
//! Each doubling of the value has two buckets, so the error of a quantile is at most half of its value. This does not
//! apply to values below [`FIRST_BOUND`] and above the last bound. A few instructions compute the bucket from the
//! highest bits of a value.

use super::cell::Cell;

/// Upper bound of the first displayed bucket. If the histogram is of durations, the bound is in nanoseconds. If it is
/// of counts, each count is stored multiplied by this number, so the bound is the count 1.
pub(crate) const FIRST_BOUND: u64 = 1 << FIRST_EXPONENT;
/// Number of buckets with an upper bound. The last bound is 2^30 times the first, or 18 minutes for a duration.
pub(crate) const BUCKET_COUNT: usize = 61;

const FIRST_EXPONENT: usize = 10;
/// Number of fine buckets: two for each bit of a value.
const FINE_COUNT: usize = 128;
/// Index of the highest fine bucket below [`FIRST_BOUND`]. A histogram counts in fine buckets, two for each bit of a
/// value. The metrics display all fine buckets up to this one as a single bucket.
const FIRST_FINE: usize = 2 * FIRST_EXPONENT - 1;

/// The counts of one writing thread.
#[derive(Debug)]
pub(crate) struct Histogram {
    counts: [Cell; FINE_COUNT],
    sum: Cell,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: std::array::from_fn(|_| Cell::default()), sum: Cell::default() }
    }
}

impl Histogram {
    /// Counts a duration in nanoseconds. A duration equal to the bound of a bucket counts in the next bucket, which
    /// saves an instruction.
    #[inline(always)]
    pub(crate) fn note_nanos(&self, nanos: u64) {
        self.counts[fine_bucket(nanos)].add(1);
        self.sum.add(nanos);
    }

    /// Counts a number, after multiplying it by [`FIRST_BOUND`].
    pub(crate) fn note_count(&self, count: u32) {
        let scaled = u64::from(count) << FIRST_EXPONENT;
        // Prometheus includes the bound in its bucket.
        self.counts[fine_bucket(scaled.saturating_sub(1))].add(1);
        self.sum.add(scaled);
    }
}

/// The sum of the counts of several threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HistogramSum {
    /// Counts by bucket; the last one is for values above all bounds.
    pub(crate) counts: [u64; BUCKET_COUNT + 1],
    pub(crate) sum: u64,
}

impl HistogramSum {
    pub(crate) fn of<'a>(histograms: impl IntoIterator<Item = &'a Histogram>) -> Self {
        let mut merged = Self { counts: [0; BUCKET_COUNT + 1], sum: 0 };
        for histogram in histograms {
            for (fine, count) in histogram.counts.iter().enumerate() {
                merged.counts[fine.saturating_sub(FIRST_FINE).min(BUCKET_COUNT)] += count.get();
            }
            merged.sum = merged.sum.wrapping_add(histogram.sum.get());
        }
        merged
    }
}

/// Returns the upper bound of a bucket, in multiples of [`FIRST_BOUND`]: 1, 1.5, 2, 3, 4, 6, 8 and so on.
pub(crate) fn bound(bucket: usize) -> f64 {
    let power = (1_u64 << (bucket / 2)) as f64;
    if bucket.is_multiple_of(2) { power } else { 1.5 * power }
}

/// Returns the bucket of `2^n <= value < 1.5 * 2^n` or of `1.5 * 2^n <= value < 2^(n+1)`; 0 counts as 1.
#[inline(always)]
fn fine_bucket(value: u64) -> usize {
    let exponent = (value | 1).ilog2();
    let half = value << 1 >> exponent & 1;
    (2 * exponent as usize + half as usize) % FINE_COUNT
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket_of(value: u64) -> Option<usize> {
        let histogram = Histogram::default();
        histogram.note_nanos(value);
        HistogramSum::of([&histogram]).counts.iter().position(|count| *count == 1)
    }

    #[test]
    fn a_value_is_in_the_first_bucket_whose_bound_is_above_it() {
        let bounds: Vec<u64> = (0..BUCKET_COUNT).map(|bucket| (bound(bucket) * 1024.0) as u64).collect();
        assert!(bounds.is_sorted() && bounds[..6] == [1024, 1536, 2048, 3072, 4096, 6144]);
        assert_eq!(bounds.last(), Some(&(1 << 40)));
        let near = bounds.iter().flat_map(|bound| [bound - 1, *bound, bound + 1]);
        for value in near.chain([0, 1, 2, 1 << 62, u64::MAX]) {
            let expected = bounds.iter().position(|bound| *bound > value).unwrap_or(BUCKET_COUNT);
            assert_eq!(bucket_of(value), Some(expected), "{value}");
        }
    }

    #[test]
    fn counts_of_several_threads_add_up() {
        let histogram = Histogram::default();
        for count in [1, 1, 3] {
            histogram.note_count(count);
        }
        let merged = HistogramSum::of([&histogram, &histogram]);
        assert_eq!((merged.counts[0], merged.counts[3], merged.sum), (4, 2, 10 * FIRST_BOUND));
    }
}
