//! Text for tables and sentences, and the parts that JSON objects share.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use serde_json::{Map, Value};
use waymaker_client::{Readable, path_segments};
use waymaker_protocol::Hex;

use crate::kind::Kind;

/// Escapes bytes for a terminal: control characters and text direction marks of a key must not take effect.
pub(crate) fn printable(bytes: &[u8]) -> String {
    Readable(bytes).to_string()
}

/// Returns an owner for a sentence.
pub(crate) fn client(owner: &[u8]) -> String {
    if owner.is_empty() { "a client without a name".to_owned() } else { printable(owner) }
}

/// Returns the bytes of an argument.
pub(crate) fn bytes(argument: &OsStr) -> &[u8] {
    argument.as_bytes()
}

/// Returns a key as text. The segments of a path have slashes between them.
pub(crate) fn key(kind: Kind, key: &[u8]) -> String {
    match kind {
        Kind::Tree => {
            let segments: Vec<_> = path_segments(key).into_iter().map(printable).collect();
            if segments.is_empty() { "/".to_owned() } else { segments.join("/") }
        }
        _ => printable(key),
    }
}

/// Returns the segments of a path, for JSON.
pub(crate) fn path(key: &[u8]) -> Vec<String> {
    path_segments(key).into_iter().map(|segment| String::from_utf8_lossy(segment).into_owned()).collect()
}

/// Returns the segments of a path that is written with slashes. An empty path, or a slash alone, is the whole tree.
pub(crate) fn segments(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let path = path.strip_prefix(b"/").unwrap_or(path);
    let whole = path.is_empty();
    path.split(|byte| *byte == b'/').filter(move |_| !whole)
}

/// Returns a time in at most two units, or `-` if there is no end.
pub(crate) fn time(duration: Option<Duration>) -> String {
    let Some(duration) = duration else { return "-".to_owned() };
    let seconds = duration.as_secs();
    match seconds {
        0..10 => format!("{:.1}s", duration.as_secs_f64()),
        10..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h {}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// Returns a remaining lease: a time, `expired`, or `-` without a lease.
pub(crate) fn left(remaining: Option<Duration>) -> String {
    match remaining {
        Some(Duration::ZERO) => "expired".to_owned(),
        remaining => time(remaining),
    }
}

/// Returns a time in all its units, rounded up to milliseconds.
pub(crate) fn pause(duration: Duration) -> String {
    let milliseconds = u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
    humantime::format_duration(Duration::from_millis(milliseconds)).to_string()
}

/// Returns a number with a comma after each group of three digits.
pub(crate) fn grouped(number: usize) -> String {
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

/// Returns whole milliseconds, for JSON.
pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Returns bytes as two members of a JSON object: the text, and the hexadecimal digits if the bytes are not UTF-8.
pub(crate) fn json(bytes: &[u8]) -> (String, Option<String>) {
    let is_text = std::str::from_utf8(bytes).is_ok();
    (String::from_utf8_lossy(bytes).into_owned(), (!is_text).then(|| Hex(bytes).to_string()))
}

/// Inserts bytes into a JSON object as [`json`] returns them.
pub(crate) fn insert_bytes(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    let (text, hex) = json(bytes);
    object.insert(name.to_owned(), text.into());
    object.extend(hex.map(|hex| (format!("{name}_hex"), hex.into())));
}

/// Returns a table: a title row and the other rows. Each column is as wide as its widest cell, with two blanks between columns. Lines have
/// no trailing blanks.
pub(crate) fn table<const N: usize>(title: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let rows: Vec<_> = std::iter::once(title.map(str::to_owned)).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(&format!("{cell:width$}  "));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Returns a table of the first rows of `count`, and a line with the number of the others. Returns an empty text if there are no rows.
pub(crate) fn first_of<const N: usize>(
    count: u32,
    title: [&str; N],
    rows: impl ExactSizeIterator<Item = [String; N]>,
) -> String {
    let named = rows.len();
    let mut text = if named == 0 { String::new() } else { table(title, rows) };
    let unnamed = (count as usize).saturating_sub(named);
    if unnamed > 0 {
        text.push_str(&format!("and {unnamed} more\n"));
    }
    text
}

/// Longest owner in bytes.
const OWNER_LEN_MAX: usize = 256;

/// Returns the default owner: user, host and process.
pub(crate) fn process_owner() -> String {
    owner(&format!(", process {}", std::process::id()))
}

/// Returns the default owner of something that stays when this process has ended: user and host.
pub(crate) fn user_and_host() -> String {
    owner("")
}

fn owner(process: &str) -> String {
    let user = nix::unistd::User::from_uid(nix::unistd::getuid()).ok().flatten();
    let user = user.map_or_else(|| nix::unistd::getuid().to_string(), |user| user.name);
    let host = nix::unistd::gethostname().unwrap_or_default();
    let mut owner = format!("{user}@{}{process}", host.to_string_lossy());
    owner.truncate(owner.floor_char_boundary(OWNER_LEN_MAX));
    owner
}

/// Mode of a hold or a claim: `read` or `write`.
pub(crate) fn mode(shared: bool) -> &'static str {
    if shared { "read" } else { "write" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(printable("schlüssel".as_bytes()), "schlüssel");
        assert_eq!(printable(b"a\x1b[2Jb\n"), r"a\x1b[2Jb\n");
        assert_eq!(printable(b"\xff"), r"\xff");
        assert_eq!(printable("a\u{202e}ü".as_bytes()), r"a\u{202e}ü");
    }

    #[test]
    fn paths_are_written_with_slashes() {
        for (path, expected) in
            [("", &[][..]), ("/", &[]), ("a", &["a"]), ("/a/b", &["a", "b"]), ("a//b/", &["a", "", "b", ""])]
        {
            let segments: Vec<_> = segments(path.as_bytes()).collect();
            assert_eq!(
                segments,
                expected.iter().map(|segment| segment.as_bytes()).collect::<Vec<_>>(),
                "{path}"
            );
        }
        assert_eq!(key(Kind::Tree, b"\x01\0a\x02\0bc"), "a/bc");
        assert_eq!(key(Kind::Tree, b""), "/");
    }

    #[test]
    fn times_have_at_most_two_units() {
        for (millis, text) in [
            (0, "0.0s"),
            (1_540, "1.5s"),
            (59_999, "59s"),
            (61_000, "1m 1s"),
            (3_700_000, "1h 1m"),
            (90_000_000, "1d 1h"),
        ] {
            assert_eq!(time(Some(Duration::from_millis(millis))), text);
        }
        assert_eq!(time(None), "-");
    }

    #[test]
    fn a_lease_without_remaining_time_has_expired() {
        assert_eq!(left(Some(Duration::ZERO)), "expired");
        assert_eq!(left(Some(Duration::from_millis(540))), "0.5s");
        assert_eq!(left(None), "-");
    }

    #[test]
    fn columns_are_aligned_and_lines_have_no_trailing_blanks() {
        let rows = [["longer", ""]].map(|row| row.map(str::to_owned));
        assert_eq!(table(["KEY", "ID"], rows), "KEY     ID\nlonger\n");
    }

    #[test]
    fn rows_that_a_table_leaves_out_are_counted() {
        let rows = || [["a"], ["b"]].map(|row| row.map(str::to_owned)).into_iter();
        assert_eq!(first_of(2, ["KEY"], rows()), "KEY\na\nb\n");
        assert_eq!(first_of(5, ["KEY"], rows()), "KEY\na\nb\nand 3 more\n");
        assert_eq!(first_of(0, ["KEY"], rows().take(0)), "");
    }

    #[test]
    fn bytes_that_are_not_utf8_also_have_hexadecimal_digits() {
        assert_eq!(json(b"k"), ("k".to_owned(), None));
        assert_eq!(json(b"\xffk"), ("\u{fffd}k".to_owned(), Some("ff6b".to_owned())));
    }

    #[test]
    fn numbers_are_grouped_by_three_digits() {
        for (number, text) in [(0, "0"), (999, "999"), (1_024, "1,024"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }
}
