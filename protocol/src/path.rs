//! Paths of a tree namespace as bytes.

use crate::cursor::put_string;
use crate::decode_error::DecodeError;
use crate::limits::{PATH_KEY_LEN_MAX, SEGMENT_COUNT_MAX, SEGMENT_LEN_MAX};

/// A path in its only encoding: for each segment its length as u16, then its bytes. An empty path key is the path
/// without segments, which means the whole namespace.
///
/// Equal paths have equal path keys. A path is an ancestor of another path exactly if its path key is a proper prefix
/// of the other path key. A path key that is such a prefix always ends at the end of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PathKey<'a> {
    bytes: &'a [u8],
}

impl<'a> PathKey<'a> {
    /// Checks a path key.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] for the field `path` if a segment is truncated or longer than `SEGMENT_LEN_MAX`, if
    /// there are more than `SEGMENT_COUNT_MAX` segments, or if all bytes together are more than `PATH_KEY_LEN_MAX`.
    pub fn new(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        Self::of_field("path", bytes)
    }

    /// Checks a path key like [`PathKey::new`].
    ///
    /// # Errors
    /// Returns the errors of [`PathKey::new`] with the name `field`.
    pub fn of_field(field: &'static str, bytes: &'a [u8]) -> Result<Self, DecodeError> {
        if bytes.len() > PATH_KEY_LEN_MAX {
            return Err(DecodeError::TooLong { field, actual: bytes.len(), limit: PATH_KEY_LEN_MAX });
        }
        let mut rest = bytes;
        let mut count = 0;
        while !rest.is_empty() {
            let Some((segment, behind)) = split_segment(rest) else {
                return Err(DecodeError::BadPath { field, offset: bytes.len() - rest.len() });
            };
            if segment.len() > SEGMENT_LEN_MAX {
                return Err(DecodeError::TooLong { field, actual: segment.len(), limit: SEGMENT_LEN_MAX });
            }
            count += 1;
            if count > SEGMENT_COUNT_MAX {
                return Err(DecodeError::TooMany { field, count, limit: SEGMENT_COUNT_MAX });
            }
            rest = behind;
        }
        Ok(Self { bytes })
    }

    /// Appends the path key of these segments.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] for the field `path` if the path key is above a limit. `out` is then unchanged.
    pub fn append<S: AsRef<[u8]>>(
        segments: impl IntoIterator<Item = S>,
        out: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        let start = out.len();
        for segment in segments {
            put_string(out, segment.as_ref());
            if out.len() - start > PATH_KEY_LEN_MAX {
                break;
            }
        }
        let checked = PathKey::new(&out[start..]).map(|_| ());
        if checked.is_err() {
            out.truncate(start);
        }
        checked
    }

    /// Returns the bytes of the path key.
    #[inline]
    pub fn as_bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// Returns an iterator over the segments from the root on.
    #[inline]
    pub fn segments(self) -> Segments<'a> {
        Segments { rest: self.bytes }
    }
}

/// Iterator over the segments of a path from the root on.
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Segments<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let (segment, behind) = split_segment(self.rest)?;
        self.rest = behind;
        Some(segment)
    }
}

/// Returns the first segment and the bytes after it, or `None` if there is no whole segment.
#[inline]
fn split_segment(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, behind) = bytes.split_first_chunk()?;
    behind.split_at_checked(usize::from(u16::from_le_bytes(*len)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(segments: &[&str]) -> Vec<u8> {
        let mut bytes = Vec::new();
        PathKey::append(segments, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn segments_round_trip_through_a_path_key() {
        for segments in [&[][..], &[""], &["a"], &["a", "", "bc"], &["", ""]] {
            let bytes = key(segments);
            let path = PathKey::new(&bytes).unwrap();
            assert_eq!(
                path.segments().collect::<Vec<_>>(),
                segments.iter().map(|s| s.as_bytes()).collect::<Vec<_>>()
            );
            assert_eq!(path.as_bytes(), bytes);
        }
        assert_eq!(key(&[]), b"");
        assert_eq!(key(&[""]), b"\0\0");
        assert_eq!(key(&["a", "bc"]), b"\x01\0a\x02\0bc");
    }

    #[test]
    fn only_ancestors_are_prefixes_of_a_path() {
        assert!(key(&["a", "b"]).starts_with(&key(&["a"])));
        assert!(key(&["a"]).starts_with(&key(&[])));
        assert!(!key(&["ab"]).starts_with(&key(&["a"])));
        assert!(!key(&["a"]).starts_with(&key(&[""])));
    }

    #[test]
    fn a_truncated_segment_is_rejected_at_its_start_offset() {
        let bytes = key(&["abc", "defg"]);
        for end in 0..bytes.len() {
            let offset = match end {
                0 | 5 => continue,
                1..5 => 0,
                _ => 5,
            };
            assert_eq!(
                PathKey::new(&bytes[..end]),
                Err(DecodeError::BadPath { field: "path", offset }),
                "{end}"
            );
        }
    }

    #[test]
    fn paths_above_the_limits_are_rejected_and_append_nothing() {
        let longest = "s".repeat(SEGMENT_LEN_MAX);
        let deepest = vec!["s"; SEGMENT_COUNT_MAX];
        for legal in [&vec![longest.as_str(); 63], &deepest] {
            assert!(PathKey::new(&key(legal)).is_ok());
        }
        let beyond = format!("{longest}s");
        let too_long = DecodeError::TooLong { field: "path", actual: 1025, limit: 1024 };
        let too_many = DecodeError::TooMany { field: "path", count: 65, limit: 64 };
        let too_much = DecodeError::TooLong { field: "path", actual: 64 * 1026, limit: PATH_KEY_LEN_MAX };
        for (segments, error) in [
            (vec![beyond.as_str()], too_long),
            (vec!["s"; 65], too_many),
            (vec![longest.as_str(); 64], too_much),
        ] {
            let mut out = b"before".to_vec();
            assert_eq!(PathKey::append(&segments, &mut out), Err(error));
            assert_eq!(out, b"before");
        }
    }
}
