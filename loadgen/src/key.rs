//! Keys: a number, and its text of a fixed length.

/// Which key of the key space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct KeyIndex(pub u32);

/// Digits at the end of every key; the only part in which two keys differ.
pub const DIGITS: usize = 8;

impl KeyIndex {
    /// The number as eight hexadecimal digits, without branches: this runs once for every acquire.
    #[inline]
    pub fn digits(self) -> [u8; DIGITS] {
        // One digit in each byte, the most significant last (little endian puts it last, so swap first).
        let mut spread = u64::from(self.0.swap_bytes());
        spread = (spread | (spread << 16)) & 0x0000_ffff_0000_ffff;
        spread = (spread | (spread << 8)) & 0x00ff_00ff_00ff_00ff;
        let spread = ((spread >> 4) & 0x000f_000f_000f_000f) | ((spread & 0x000f_000f_000f_000f) << 8);
        // 1 in each byte whose digit is a letter.
        let letters = ((spread + 0x0606_0606_0606_0606) >> 4) & 0x0101_0101_0101_0101;
        (spread + 0x3030_3030_3030_3030 + letters * u64::from(b'a' - b'0' - 10)).to_le_bytes()
    }

    /// The whole key.
    pub fn text(self, size: usize) -> Vec<u8> {
        let mut text: Vec<u8> =
            b"waymaker".iter().copied().cycle().take(size.saturating_sub(DIGITS)).collect();
        text.extend_from_slice(&self.digits());
        text
    }
}

#[cfg(test)]
mod tests {
    use super::KeyIndex;

    #[test]
    fn digits_are_those_of_the_number() {
        for number in [0, 1, 9, 10, 0x1234_abcd, 0xdead_beef, 0xf00f_a00a, u32::MAX] {
            assert_eq!(KeyIndex(number).digits().as_slice(), format!("{number:08x}").as_bytes());
        }
    }

    #[test]
    fn keys_have_the_size_asked_for() {
        assert_eq!(KeyIndex(255).text(16), b"waymaker000000ff");
        assert_eq!(KeyIndex(255).text(8), b"000000ff");
        assert_eq!(KeyIndex(255).text(30).len(), 30);
    }
}
