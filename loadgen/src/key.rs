//! Keys: a number, and its encoding as bytes of a fixed length.
//!
//! The bytes are scrambled. Consecutive numbers differ in few bits, and a server whose hash folds keys would place
//! them in a small part of its table: slock used 4,096 of its four million slots for keys that ended with
//! hexadecimal digits. The bytes depend on the number alone, so every server gets the same keys in every run.

/// Index of a key in the key space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct KeyIndex(pub u32);

/// Length of the scrambled end of a key. Shorter keys are a suffix of this end.
pub const TAIL_LEN: usize = 16;
/// Source of the leading bytes, which are the same in all keys.
const PREFIX: &[u8] = b"waymaker";
/// Number of digits of a number.
pub const DIGITS: usize = 8;
/// Letters that need no escaping in URLs and JSON; each encodes six bits.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// Number of letters at the end of a key that encode its number, so that all keys differ.
const NUMBER_LETTERS: usize = 6;

impl KeyIndex {
    /// Returns the scrambled end of the key, for protocols with binary keys. The last eight bytes differ between
    /// all keys. Has no branches, because it runs once for every acquire.
    #[inline]
    pub fn tail(self) -> [u8; TAIL_LEN] {
        let [front, back] = self.words();
        let mut tail = [0; TAIL_LEN];
        tail[..8].copy_from_slice(&front.to_le_bytes());
        tail[8..].copy_from_slice(&back.to_le_bytes());
        tail
    }

    /// Returns the scrambled end of the key, for protocols with text keys. The last six letters differ between all
    /// keys.
    #[inline]
    pub fn letters(self) -> [u8; TAIL_LEN] {
        let [front, back] = self.words();
        // Each step is invertible, so different numbers stay different.
        let mut number = self.0;
        number = (number ^ (number >> 16)).wrapping_mul(0x7feb_352d);
        number = (number ^ (number >> 15)).wrapping_mul(0x846c_a68b);
        number ^= number >> 16;
        let number = (u64::from(number) | back << 32).to_le();
        let mut letters = [0; TAIL_LEN];
        let (others, of_number) = letters.split_at_mut(TAIL_LEN - NUMBER_LETTERS);
        for (place, letter) in others.iter_mut().enumerate() {
            *letter = LETTERS[(front >> (6 * place)) as usize & 63];
        }
        for (place, letter) in of_number.iter_mut().enumerate() {
            *letter = LETTERS[(number >> (6 * place)) as usize & 63];
        }
        letters
    }

    /// Returns the key as a number, for systems with numeric keys.
    #[inline]
    pub fn scrambled(self) -> u64 {
        self.words()[1]
    }

    /// Returns the whole key, for protocols with binary keys.
    pub fn key(self, size: usize) -> Vec<u8> {
        whole(&self.tail(), size)
    }

    /// Returns the whole key, for protocols with text keys.
    pub fn text(self, size: usize) -> Vec<u8> {
        whole(&self.letters(), size)
    }

    /// Returns the number as eight hexadecimal digits, without branches.
    #[inline]
    pub fn digits(self) -> [u8; DIGITS] {
        // One digit in each byte, the most significant last. Little endian stores it last, so swap first.
        let mut spread = u64::from(self.0.swap_bytes());
        spread = (spread | (spread << 16)) & 0x0000_ffff_0000_ffff;
        spread = (spread | (spread << 8)) & 0x00ff_00ff_00ff_00ff;
        let spread = ((spread >> 4) & 0x000f_000f_000f_000f) | ((spread & 0x000f_000f_000f_000f) << 8);
        // 1 in each byte whose digit is a letter.
        let letters = ((spread + 0x0606_0606_0606_0606) >> 4) & 0x0101_0101_0101_0101;
        (spread + 0x3030_3030_3030_3030 + letters * u64::from(b'a' - b'0' - 10)).to_le_bytes()
    }

    /// Returns two words of scrambled bits. The second differs for each number.
    #[inline]
    fn words(self) -> [u64; 2] {
        // Each step is invertible, so different numbers stay different.
        let mut back = (u64::from(self.0) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        back = (back ^ (back >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        // The shift is not half of the word, because a hash that folds both halves together would undo it.
        back ^= back >> 29;
        // Not a shift of the other word, because a hash that folds words together must not cancel both.
        let front = (back ^ (back >> 29)).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(23);
        [front, back]
    }
}

fn whole(tail: &[u8; TAIL_LEN], size: usize) -> Vec<u8> {
    let mut key: Vec<u8> = PREFIX.iter().copied().cycle().take(size.saturating_sub(TAIL_LEN)).collect();
    key.extend_from_slice(&tail[TAIL_LEN.saturating_sub(size)..]);
    key
}

/// Position of the scrambled end of a key in a message template that is reused for many keys.
#[derive(Clone, Copy, Debug)]
pub struct TailPlace {
    offset: usize,
    len: usize,
}

impl TailPlace {
    /// Returns the position in a message in which a key of `key_size` bytes ends at `end`.
    pub fn before(end: usize, key_size: usize) -> Self {
        let len = key_size.min(TAIL_LEN);
        Self { offset: end - len, len }
    }

    /// Writes the end of a key into the message.
    #[inline]
    pub fn put(self, tail: &[u8; TAIL_LEN], message: &mut [u8]) {
        let place = &mut message[self.offset..self.offset + self.len];
        // A constant length compiles to one move instead of a call.
        match <&mut [u8; TAIL_LEN]>::try_from(&mut *place) {
            Ok(place) => *place = *tail,
            Err(_) => place.copy_from_slice(&tail[TAIL_LEN - self.len..]),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn formats_numbers_as_hexadecimal_digits() {
        for number in [0, 1, 9, 10, 0x1234_abcd, 0xdead_beef, 0xf00f_a00a, u32::MAX] {
            assert_eq!(KeyIndex(number).digits().as_slice(), format!("{number:08x}").as_bytes());
        }
    }

    #[test]
    fn keys_have_the_requested_size_and_the_same_end() {
        for key in [KeyIndex::key, KeyIndex::text] {
            let usual = key(KeyIndex(255), 16);
            assert_eq!(usual.len(), 16);
            assert_eq!(key(KeyIndex(255), 8), usual[8..]);
            assert_eq!(key(KeyIndex(255), 30), [b"waymakerwaymak", &usual[..]].concat());
        }
    }

    #[test]
    fn writes_the_end_of_a_key_into_a_template() {
        for size in [8, 15, 16, 17, 40] {
            let message = |key: &[u8]| [b"before", key, b"behind"].concat();
            let mut template = message(&KeyIndex(1).key(size));
            TailPlace::before("before".len() + size, size).put(&KeyIndex(2).tail(), &mut template);
            assert_eq!(template, message(&KeyIndex(2).key(size)));
        }
    }

    #[test]
    fn all_keys_differ_and_text_keys_are_text() {
        let numbers = (0..50_000).chain((0..50_000).map(|number| u32::MAX - number));
        let keys =
            |key: fn(KeyIndex) -> Vec<u8>| numbers.clone().map(KeyIndex).map(key).collect::<HashSet<_>>();
        assert_eq!((keys(|key| key.key(8)).len(), keys(|key| key.key(16)).len()), (100_000, 100_000));
        for text in keys(|key| key.text(8)).iter().chain(&keys(|key| key.text(16))) {
            assert!(text.iter().all(|byte| LETTERS.contains(byte)));
        }
        assert_eq!(keys(|key| key.text(8)[2..].to_vec()).len(), 100_000);
    }

    /// Ways in which a server may reduce a key to a number: as one number, or by folding its words, in either byte
    /// order.
    fn folds(key: &[u8]) -> [u128; 12] {
        let mut folds = [0; 12];
        let mut place = folds.iter_mut();
        for word_len in [4, 8, 16] {
            let (mut little, mut big) = ((0, 0_u128), (0, 0_u128));
            for word in key.chunks(word_len) {
                let mut bytes = [0; 16];
                bytes[..word.len()].copy_from_slice(word);
                let word = u128::from_le_bytes(bytes);
                little = (little.0 ^ word, little.1.wrapping_add(word));
                let word = word.swap_bytes() >> (128 - 8 * word_len.min(key.len()));
                big = (big.0 ^ word, big.1.wrapping_add(word));
            }
            for fold in [little.0, little.1, big.0, big.1] {
                *place.next().expect("four of each length") = fold;
            }
        }
        folds
    }

    /// Expected number of `2^bits` buckets that `count` random keys fill.
    fn filled_by_random(count: f64, bits: u32) -> f64 {
        let buckets = 2_f64.powi(bits as i32);
        buckets * (1.0 - (-count / buckets).exp())
    }

    #[test]
    fn keys_fill_hash_tables_of_every_size_like_random_keys() {
        const KEY_COUNT: u32 = 50_000;
        for key_len in [8, 16] {
            let of_keys: Vec<_> =
                (0..KEY_COUNT).map(|number| folds(&KeyIndex(number).key(key_len))).collect();
            for bits in [6, 12, 18, 22] {
                for fold in 0..of_keys[0].len() {
                    let buckets: HashSet<_> =
                        of_keys.iter().map(|folds| folds[fold] & ((1 << bits) - 1)).collect();
                    let share = buckets.len() as f64 / filled_by_random(f64::from(KEY_COUNT), bits);
                    assert!(share > 0.95, "{key_len} bytes, 2^{bits}, fold {fold}: {share:.3}");
                }
            }
        }
    }

    #[test]
    fn keys_fill_the_slots_of_servers_with_a_known_hash() {
        const KEY_COUNT: u32 = 200_000;
        for key in [KeyIndex::key, KeyIndex::text] {
            let slots: HashSet<_> = (0..KEY_COUNT)
                .map(|number| waymaker_protocol::slot::slot_of_key(&key(KeyIndex(number), 16)))
                .collect();
            assert!(slots.len() as f64 > 0.98 * f64::from(waymaker_protocol::slot::SLOT_COUNT));
        }
    }
}
