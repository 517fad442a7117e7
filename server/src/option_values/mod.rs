//! Headings of `--help`, and parsers of option values without their own type. The parts of the server define their
//! options with them. Each error of a parser names the accepted form.

mod address;
pub(crate) mod heading;

pub(crate) use address::without_user_info;

use crate::milliseconds::Milliseconds;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Value that disables an option.
const NONE: &str = "none";

/// The value of an option that `none` disables. clap treats `Option` as an option without a default; this alias makes
/// it treat the type like any other.
pub(crate) type OrNone<T> = Option<T>;

pub(crate) fn path_or_none(path: PathBuf) -> OrNone<PathBuf> {
    Some(path).filter(|path| path != Path::new(NONE))
}

#[expect(clippy::unnecessary_wraps, reason = "clap needs a result")]
pub(crate) fn address_or_none(text: &str) -> Result<OrNone<String>, Infallible> {
    Ok(Some(text.to_owned()).filter(|text| text != NONE))
}

pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|_| "use a duration such as 50us, 250ms, 5s or 1m".to_owned())
}

/// Returns a parser for a number within bounds.
pub(crate) fn number(min: u32, max: u32) -> impl Fn(&str) -> Result<u32, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| (min..=max).contains(number));
        number.ok_or_else(|| format!("use a number from {min} to {max}"))
    }
}

/// Returns a parser for a number within bounds, or `none`.
pub(crate) fn number_or_none(min: u32, max: u32) -> impl Fn(&str) -> Result<OrNone<u32>, String> + Clone {
    let number = number(min, max);
    move |text| {
        if text == NONE {
            return Ok(None);
        }
        number(text).map(Some).map_err(|error| format!("{error}, or `{NONE}`"))
    }
}

/// Returns a parser for a duration within these bounds, rounded down to whole milliseconds.
pub(crate) fn time(min_ms: u64, max_ms: u64) -> impl Fn(&str) -> Result<Milliseconds, String> + Clone {
    move |text| {
        let time = humantime::parse_duration(text).ok().and_then(|time| u64::try_from(time.as_millis()).ok());
        let time = time.filter(|ms| (min_ms..=max_ms).contains(ms)).map(Milliseconds::new);
        time.ok_or_else(|| {
            format!("use a duration from {} to {}", Milliseconds::new(min_ms), Milliseconds::new(max_ms))
        })
    }
}
