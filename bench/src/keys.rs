//! Computed keys, so that reading them needs no memory access.

/// Length of every key; fits into a key record.
pub const KEY_LEN: usize = 16;

/// Returns the key of this number. Keys of neighbouring numbers have nothing in common.
#[inline]
pub fn key(number: u64) -> [u8; KEY_LEN] {
    let mut key = [0; KEY_LEN];
    key[..8].copy_from_slice(&mixed(number).to_le_bytes());
    key[8..].copy_from_slice(&number.to_le_bytes());
    key
}

/// Mixes a number well (the finalizer of SplitMix64).
#[inline]
pub fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// Returns the numbers below `count` in random order.
pub fn shuffled(count: u32) -> Vec<u32> {
    let mut numbers: Vec<u32> = (0..count).collect();
    for index in (1..numbers.len()).rev() {
        numbers.swap(index, (mixed(index as u64) % (index as u64 + 1)) as usize);
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffle_keeps_every_number() {
        let mut numbers = shuffled(100);
        assert!(!numbers.is_sorted());
        numbers.sort_unstable();
        assert_eq!(numbers, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn keys_differ() {
        assert_ne!(key(1), key(2));
    }
}
