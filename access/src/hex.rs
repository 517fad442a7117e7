//! Parsing of lower-case hexadecimal digits. Not for secrets: the time depends on the digits.

/// Returns the `N` bytes of exactly `2 * N` digits. Rejects upper-case digits, so that bytes have only one text.
pub(crate) fn decode<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let (pairs, []) = text.as_chunks::<2>() else { return None };
    let mut bytes = [0; N];
    if pairs.len() != N {
        return None;
    }
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

fn digit(character: u8) -> Option<u8> {
    match character {
        b'0'..=b'9' => Some(character - b'0'),
        b'a'..=b'f' => Some(character - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use waymaker_protocol::Hex;

    #[test]
    fn bytes_have_one_form() {
        assert_eq!(Hex(&[0x00, 0x7f, 0xff]).to_string(), "007fff");
        assert_eq!(decode(b"007fff"), Some([0x00, 0x7f, 0xff]));
        for text in [&b""[..], b"007ff", b"007ff", b"007fff00", b"007fFF", b"+07fff", b"00 7ff", b"007ffg"] {
            assert_eq!(decode::<3>(text), None, "{}", text.escape_ascii());
        }
    }
}
