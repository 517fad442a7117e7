//! Which of the 16,384 slots a key belongs to.

/// How many slots there are. They outlive every layout of shards, workers and servers.
pub const SLOT_COUNT: u16 = 1 << 14;

/// The slot of a key: CRC-32C (Castagnoli, RFC 3720) of its bytes, modulo 16,384. Published and stable: clients use it
/// to choose the best connection, and later the server. It only places; tables inside use a keyed hash.
#[inline]
pub fn slot_of_key(key: &[u8]) -> u16 {
    (crc32c::crc32c(key) & u32::from(SLOT_COUNT - 1)) as u16
}

#[cfg(test)]
mod tests {
    use super::slot_of_key;

    #[test]
    fn slots_of_known_keys_never_change() {
        // CRC-32C("123456789") = 0xE3069283, the check value of the algorithm.
        assert_eq!(slot_of_key(b"123456789"), 0x1283);
        assert_eq!(slot_of_key(b""), 0);
    }
}
