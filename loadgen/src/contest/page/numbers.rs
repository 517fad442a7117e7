//! Number formats of the page that `units` lacks.

use crate::units::show_ns;

/// Formats the ratio to a reference; `None` if the ratio is meaningless.
pub(super) fn show_ratio(value: f64, reference: f64) -> Option<String> {
    let ratio = value / reference;
    if !ratio.is_finite() || reference <= 0.0 {
        return None;
    }
    Some(match ratio {
        100.0.. => format!("{} x", show_integer(ratio.round() as u64)),
        9.95.. => format!("{ratio:.1} x"),
        0.0995.. => format!("{ratio:.2} x"),
        _ => format!("{ratio:.3} x"),
    })
}

/// Formats an integer with commas between thousands.
pub(super) fn show_integer(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats bytes with about three digits.
pub(super) fn show_bytes(bytes: f64) -> String {
    match bytes {
        1e6.. => format!("{:.1} MB", bytes / 1e6),
        1e4.. => format!("{:.1} kB", bytes / 1e3),
        _ => format!("{} B", show_integer(bytes.round() as u64)),
    }
}

/// Formats CPU time in microseconds.
pub(super) fn show_us(us: f64) -> String {
    show_ns((us * 1e3) as u64)
}

/// Formats an axis label in nanoseconds: 1, 2 or 5 times a power of ten.
pub(super) fn tick_ns(ns: f64) -> String {
    match ns {
        1e9.. => format!("{:.0} s", ns / 1e9),
        1e6.. => format!("{:.0} ms", ns / 1e6),
        1e3.. => format!("{:.0} us", ns / 1e3),
        _ => format!("{ns:.0} ns"),
    }
}

/// Formats an axis label for a rate.
pub(super) fn tick_rate(per_second: f64) -> String {
    match per_second {
        1e6.. => format!("{:.0} M/s", per_second / 1e6),
        1e3.. => format!("{:.0} k/s", per_second / 1e3),
        _ => format!("{per_second} /s"),
    }
}

#[cfg(test)]
mod tests {
    use super::{show_bytes, show_integer, show_ratio, tick_ns};

    #[test]
    fn formats_numbers_with_suitable_precision() {
        assert_eq!(show_ratio(31.0, 100.0).expect("it is one"), "0.31 x");
        assert_eq!(show_ratio(1_234_567.0, 1.0).expect("it is one"), "1,234,567 x");
        assert_eq!(show_ratio(1.0, 100.0).expect("it is one"), "0.010 x");
        assert_eq!(show_ratio(1.0, 0.0), None);
        assert_eq!(show_integer(1_000), "1,000");
        assert_eq!(show_integer(0), "0");
        assert_eq!(show_bytes(212.4), "212 B");
        assert_eq!(show_bytes(23_456.0), "23.5 kB");
        assert_eq!(tick_ns(2e6), "2 ms");
    }
}
