//! Keys and paths in the console's requests and responses.
//!
//! A key can contain any bytes. The console therefore shows each key as text for people and as hexadecimal digits, with
//! which a request can name it exactly.

use super::problem::Problem;
use crate::front::conversion::text;
use waymaker_protocol::{NamespaceKind, PathKey};

/// Formats a key or a path for people.
pub(super) fn shown(kind: NamespaceKind, key: &[u8]) -> String {
    if kind != NamespaceKind::Tree {
        return text(key);
    }
    let segments: Vec<_> =
        PathKey::new(key).map(|path| path.segments().map(text).collect()).unwrap_or_default();
    segments.join("/")
}

/// Returns the key for a text; in a tree, the text is a path with slashes.
///
/// # Errors
/// Fails if the path is above a limit.
pub(super) fn of_text(kind: NamespaceKind, text: &str) -> Result<Vec<u8>, Problem> {
    if kind != NamespaceKind::Tree {
        return Ok(text.as_bytes().to_vec());
    }
    let mut path = Vec::new();
    PathKey::append(text.split('/').filter(|segment| !segment.is_empty()), &mut path)?;
    Ok(path)
}

/// Returns the key for the hexadecimal digits in this field.
///
/// # Errors
/// Fails if the text is not pairs of hexadecimal digits.
pub(super) fn of_hex(field: &str, digits: &str) -> Result<Vec<u8>, Problem> {
    unhex(digits).ok_or_else(|| Problem::bad_input(field, "must be pairs of hexadecimal digits"))
}

fn unhex(hex: &str) -> Option<Vec<u8>> {
    let pairs = hex.as_bytes().chunks(2);
    pairs.map(|pair| <[u8; 2]>::try_from(pair).ok().and_then(byte)).collect()
}

fn byte(pair: [u8; 2]) -> Option<u8> {
    let digit = |digit: u8| char::from(digit).to_digit(16);
    Some((digit(pair[0])? << 4 | digit(pair[1])?) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use waymaker_protocol::Hex;

    #[test]
    fn a_key_in_digits_is_the_same_key() {
        let key: Vec<u8> = (0..=u8::MAX).collect();
        assert_eq!(of_hex("key_hex", &Hex(&key).to_string()).unwrap(), key);
        for wrong in ["0", "0g", "+1", "é"] {
            assert!(of_hex("key_hex", wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn text_is_a_key_or_a_path() {
        assert_eq!(of_text(NamespaceKind::Flat, "a/b").unwrap(), b"a/b");
        let path = of_text(NamespaceKind::Tree, "a/b").unwrap();
        assert_eq!(path, b"\x01\0a\x01\0b");
        assert_eq!(shown(NamespaceKind::Tree, &path), "a/b");
        assert_eq!(of_text(NamespaceKind::Tree, "").unwrap(), b"");
    }
}
