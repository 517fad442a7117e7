//! Printing of bytes that come from a peer.

use std::fmt::{Display, Formatter, Result, Write};

/// Displays bytes as text for people. Printable UTF-8 stays as it is. Invalid UTF-8, control characters, line and
/// paragraph separators, and marks that change the direction of writing are escaped. The text therefore cannot control
/// a terminal or override the direction of the text around it.
///
/// ```
/// use waymaker_protocol::Readable;
///
/// assert_eq!(Readable("schlüssel".as_bytes()).to_string(), "schlüssel");
/// assert_eq!(Readable(b"a\x1b[2J\xff").to_string(), r"a\x1b[2J\xff");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Readable<'a>(pub &'a [u8]);

/// Displays bytes like [`Readable`], between quotation marks. Quotation marks and backslashes are escaped too, so that
/// a program can find the end of the text.
#[derive(Clone, Copy, Debug)]
pub struct Quoted<'a>(pub &'a [u8]);

/// Displays each byte as two lower-case hexadecimal digits.
#[derive(Clone, Copy, Debug)]
pub struct Hex<'a>(pub &'a [u8]);

impl Display for Readable<'_> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        write_readable(self.0, is_hidden, formatter)
    }
}

impl Display for Quoted<'_> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.write_char('"')?;
        write_readable(self.0, |char| matches!(char, '"' | '\\') || is_hidden(char), formatter)?;
        formatter.write_char('"')
    }
}

impl Display for Hex<'_> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

fn write_readable(bytes: &[u8], is_escaped: impl Fn(char) -> bool, formatter: &mut Formatter<'_>) -> Result {
    for chunk in bytes.utf8_chunks() {
        for char in chunk.valid().chars() {
            match u8::try_from(char) {
                _ if !is_escaped(char) => formatter.write_char(char)?,
                Ok(byte) if byte.is_ascii() => write!(formatter, "{}", byte.escape_ascii())?,
                _ => write!(formatter, "{}", char.escape_unicode())?,
            }
        }
        write!(formatter, "{}", chunk.invalid().escape_ascii())?;
    }
    Ok(())
}

/// Returns whether a terminal may interpret this character instead of showing it.
fn is_hidden(char: char) -> bool {
    // Unicode characters that control the direction of writing: marks, embeddings, overrides and isolates.
    let turns = matches!(char, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    // A terminal may start a new line at a line or paragraph separator.
    turns || char.is_control() || matches!(char, '\u{2028}' | '\u{2029}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printable_text_is_kept_and_the_rest_is_escaped() {
        for (bytes, expected) in [
            ("schlüssel 鍵 🔑 \"x\" \\".as_bytes(), "schlüssel 鍵 🔑 \"x\" \\"),
            (b"a\x1b[2Jb\n\x7f", r"a\x1b[2Jb\n\x7f"),
            ("a\u{9b}2J\u{202e}\u{2028}b".as_bytes(), r"a\u{9b}2J\u{202e}\u{2028}b"),
            (b"\xc3\xbc\xc3(\xff", r"ü\xc3(\xff"),
            (b"", ""),
        ] {
            assert_eq!(Readable(bytes).to_string(), expected);
        }
        assert_eq!(Quoted("ü\" by=\"\\".as_bytes()).to_string(), r#""ü\" by=\"\\""#);
    }

    #[test]
    fn each_byte_has_two_hexadecimal_digits() {
        assert_eq!(Hex(&[0x00, 0x7f, 0xff]).to_string(), "007fff");
    }

    #[test]
    fn output_never_contains_terminal_control_characters() {
        for byte in 0..=u8::MAX {
            for bytes in [&[byte][..], &[0xc2, byte], &[0xe2, 0x80, byte], &[b'a', byte, b'b']] {
                let text = Readable(bytes).to_string();
                assert!(!text.chars().any(is_hidden), "{bytes:?}");
            }
        }
    }
}
