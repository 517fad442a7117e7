//! The mapping of keys to 16,384 slots. Each slot belongs to one shard of the server.

/// Number of slots. It never changes, however many shards, workers and servers there are.
pub const SLOT_COUNT: u16 = 1 << 14;

/// Returns the slot of a key: CRC-32C (Castagnoli, RFC 3720) of its bytes, modulo 16,384.
///
/// This function is published and stable: clients use it to choose a connection. A peer can choose keys with equal
/// slots, so hash tables in the server use a keyed hash instead.
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
