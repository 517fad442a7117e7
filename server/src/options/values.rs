//! Parsers of single options.

use crate::limits::WORKER_COUNT_MAX;
use waymaker_log::{BLOCK_LEN, SEGMENT_LEN_MAX, SEGMENT_LEN_MIN, SegmentHeader};

pub(super) fn parse_worker_count(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=WORKER_COUNT_MAX).contains(count));
    count.ok_or_else(|| format!("use a number from 1 to {WORKER_COUNT_MAX}"))
}

pub(super) fn parse_segment_len(text: &str) -> Result<u64, String> {
    let len =
        text.parse().map_err(|_| "use a number of bytes without a unit, such as 67108864".to_owned())?;
    let is_valid = SegmentHeader::is_len_valid(len);
    is_valid.then_some(len).ok_or_else(|| {
        format!("use a multiple of {BLOCK_LEN} from {SEGMENT_LEN_MIN} (64 KiB) to {SEGMENT_LEN_MAX} (1 GiB)")
    })
}
