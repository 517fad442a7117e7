//! Parsing and formatting of counts, rates, times and cores.

use std::time::Duration;

use anyhow::{Context, Result, bail};

/// Parses a count with an optional suffix `k` or `M`.
pub fn parse_count(text: &str) -> Result<u64> {
    let (digits, factor) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1_000),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1_000_000),
        _ => (text, 1),
    };
    let count: u64 =
        digits.parse().with_context(|| format!("{text:?} is not a count such as 1000, 100k or 1M"))?;
    count
        .checked_mul(factor)
        .with_context(|| format!("{text} is too large; the maximum is 18446744073709551615"))
}

/// Parses requests per second: a count with an optional `/s`.
pub fn parse_rate(text: &str) -> Result<u64> {
    match parse_count(text.strip_suffix("/s").unwrap_or(text))? {
        0 => bail!("the rate is 0; it must be at least 1"),
        rate => Ok(rate),
    }
}

/// Parses a list of processor cores: `1`, `0,2` or `1-3`.
pub fn parse_cores(text: &str) -> Result<Cores> {
    let mut cores = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let core = |text: &str| {
            text.parse::<usize>().with_context(|| format!("{text:?} is not a core such as 1 or 0-3"))
        };
        let (first, last) = (core(first)?, core(last)?);
        if last < first || last - first > 4096 {
            bail!("{part:?} is not a range of cores such as 0-3");
        }
        cores.extend(first..=last);
    }
    Ok(Cores(cores))
}

/// Processor cores, in the order in which threads are pinned to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cores(pub Vec<usize>);

/// Formats nanoseconds with a suitable unit.
pub fn show_ns(ns: u64) -> String {
    let value = ns as f64;
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} us", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", value / 1e6),
        _ => format!("{:.2} s", value / 1e9),
    }
}

/// Formats a rate per second with a suitable prefix.
pub fn show_rate(per_second: f64) -> String {
    if per_second >= 1e6 {
        format!("{:.2} M/s", per_second / 1e6)
    } else if per_second >= 1e3 {
        format!("{:.1} k/s", per_second / 1e3)
    } else {
        format!("{per_second:.0} /s")
    }
}

/// Formats a share as a percentage.
pub fn show_percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Returns whole nanoseconds; the range is 584 years.
pub fn as_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::{Cores, parse_cores, parse_count, parse_rate, show_ns, show_rate};

    #[test]
    fn parses_counts_rates_and_cores() {
        assert_eq!(parse_count("100k").expect("valid"), 100_000);
        assert_eq!(parse_rate("2M/s").expect("valid"), 2_000_000);
        assert_eq!(parse_cores("3,0-1").expect("valid"), Cores(vec![3, 0, 1]));
        for text in ["", "k", "1.5", "-1", "99999999999999999999", "9999999999999999999k"] {
            assert!(parse_count(text).is_err(), "{text}");
        }
        assert!(parse_rate("0").is_err());
        assert!(parse_cores("1-").is_err() && parse_cores("2-1").is_err());
    }

    #[test]
    fn formats_numbers_with_a_suitable_unit() {
        assert_eq!(show_ns(999), "999 ns");
        assert_eq!(show_ns(53_210), "53.2 us");
        assert_eq!(show_rate(1_270_000.0), "1.27 M/s");
    }
}
