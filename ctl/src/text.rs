//! Bytes and times for people.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use serde_json::{Map, Value};
use waymaker_client::{Readable, path_segments};

use crate::arguments::Kind;

/// Bytes as a terminal can show them: a key must not move the cursor, nor the words around it.
pub(crate) fn printable(bytes: &[u8]) -> String {
    Readable(bytes).to_string()
}

/// The bytes of an argument.
pub(crate) fn bytes(argument: &OsStr) -> &[u8] {
    argument.as_bytes()
}

/// A key as text: the segments of a path with slashes in between.
pub(crate) fn key(kind: Kind, key: &[u8]) -> String {
    match kind {
        Kind::Tree => {
            let segments: Vec<_> = path_segments(key).into_iter().map(printable).collect();
            if segments.is_empty() { "/".to_owned() } else { segments.join("/") }
        }
        _ => printable(key),
    }
}

/// The segments of a path that was written with slashes. An empty one, or a slash alone, is the whole tree.
pub(crate) fn segments(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let path = path.strip_prefix(b"/").unwrap_or(path);
    let whole = path.is_empty();
    path.split(|byte| *byte == b'/').filter(move |_| !whole)
}

/// A time in at most two units, or `-` where there is no end.
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

/// A time in all its units, rounded up to milliseconds.
pub(crate) fn pause(duration: Duration) -> String {
    let milliseconds = u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
    humantime::format_duration(Duration::from_millis(milliseconds)).to_string()
}

/// Whole milliseconds, as JSON has them.
pub(crate) fn milliseconds(duration: Option<Duration>) -> Value {
    duration.map_or(Value::Null, |duration| Value::from(duration.as_millis() as u64))
}

/// Puts bytes into an object: as text, and if they are not UTF-8 also in hexadecimal digits, so that nothing is lost.
pub(crate) fn insert_bytes(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    object.insert(name.to_owned(), String::from_utf8_lossy(bytes).into());
    if std::str::from_utf8(bytes).is_err() {
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        object.insert(format!("{name}_hex"), digits.into());
    }
}

/// Puts a key into an object: as `key`, or as the segments of a `path`.
pub(crate) fn insert_key(object: &mut Map<String, Value>, kind: Kind, key: &[u8]) {
    match kind {
        Kind::Tree => {
            let segments = path_segments(key).into_iter().map(String::from_utf8_lossy);
            object.insert("path".to_owned(), segments.collect());
        }
        _ => insert_bytes(object, "key", key),
    }
}

/// One JSON object a line.
pub(crate) fn lines(objects: impl IntoIterator<Item = Value>) -> String {
    objects.into_iter().map(|object| format!("{object}\n")).collect()
}

/// A title and rows below it. Columns as wide as their widest cell, two blanks apart. The last one is not padded.
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

/// A table of the first of so many, and how many it leaves out. Nothing where there are none.
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

/// Who runs this program, where, and in which process.
pub(crate) fn default_owner() -> String {
    let user = nix::unistd::User::from_uid(nix::unistd::getuid()).ok().flatten();
    let user = user.map_or_else(|| nix::unistd::getuid().to_string(), |user| user.name);
    let host = nix::unistd::gethostname().unwrap_or_default();
    let mut owner = format!("{user}@{}, process {}", host.to_string_lossy(), std::process::id());
    // Longer than the server takes only on a machine with a very long name.
    owner.truncate(owner.floor_char_boundary(256));
    owner
}

/// Read or write.
pub(crate) fn mode(shared: bool) -> &'static str {
    if shared { "read" } else { "write" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_escaped() {
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
    fn columns_line_up_and_lines_have_no_tail() {
        let rows = [["longer", ""]].map(|row| row.map(str::to_owned));
        assert_eq!(table(["KEY", "ID"], rows), "KEY     ID\nlonger\n");
    }

    #[test]
    fn what_a_table_does_not_name_is_counted() {
        let rows = || [["a"], ["b"]].map(|row| row.map(str::to_owned)).into_iter();
        assert_eq!(first_of(2, ["KEY"], rows()), "KEY\na\nb\n");
        assert_eq!(first_of(5, ["KEY"], rows()), "KEY\na\nb\nand 3 more\n");
        assert_eq!(first_of(0, ["KEY"], rows().take(0)), "");
    }

    #[test]
    fn bytes_that_are_no_text_lose_nothing_in_json() {
        let mut object = Map::new();
        insert_bytes(&mut object, "key", b"\xffk");
        assert_eq!(object["key_hex"], "ff6b");
    }
}
