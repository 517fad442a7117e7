//! Parsers of option values without their own type. Each error names the accepted form.

use crate::limits::WORKER_COUNT_MAX;
use crate::milliseconds::Milliseconds;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::time::Duration;
use waymaker_log::{BLOCK_LEN, SEGMENT_LEN_MAX, SEGMENT_LEN_MIN, SegmentHeader};

/// Value that disables an option.
const NONE: &str = "none";

/// The value of an option that `none` disables. clap treats `Option` as an option without a default; this alias makes
/// it treat the type like any other.
pub(crate) type OrNone<T> = Option<T>;

pub(crate) fn path_or_none(path: PathBuf) -> OrNone<PathBuf> {
    Some(path).filter(|path| path != Path::new(NONE))
}

#[expect(clippy::unnecessary_wraps, reason = "clap needs a result")]
pub(super) fn address_or_none(text: &str) -> Result<OrNone<String>, Infallible> {
    Ok(Some(text.to_owned()).filter(|text| text != NONE))
}

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

pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|_| "use a duration such as 50us, 250ms, 5s or 1m".to_owned())
}

/// Returns a parser for a number within bounds.
pub(super) fn number(min: u32, max: u32) -> impl Fn(&str) -> Result<u32, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| (min..=max).contains(number));
        number.ok_or_else(|| format!("use a number from {min} to {max}"))
    }
}

/// Returns a parser for a number within bounds, or `none`.
pub(super) fn number_or_none(min: u32, max: u32) -> impl Fn(&str) -> Result<OrNone<u32>, String> + Clone {
    let number = number(min, max);
    move |text| {
        if text == NONE {
            return Ok(None);
        }
        number(text).map(Some).map_err(|error| format!("{error}, or `{NONE}`"))
    }
}

/// Returns a parser for a time within bounds in milliseconds.
pub(super) fn time(min_ms: u64, max_ms: u64) -> impl Fn(&str) -> Result<Milliseconds, String> + Clone {
    move |text| {
        let time = humantime::parse_duration(text).ok().and_then(|time| u64::try_from(time.as_millis()).ok());
        let time = time.filter(|ms| (min_ms..=max_ms).contains(ms)).map(Milliseconds::new);
        time.ok_or_else(|| {
            format!("use a duration from {} to {}", Milliseconds::new(min_ms), Milliseconds::new(max_ms))
        })
    }
}
