//! Hash for data on disk: it is the same on every machine and in every version.

/// Returns the 64-bit FNV-1a hash of parts, each with a flag. An attacker can find parts with equal hashes, so equal
/// hashes prove nothing.
pub(crate) fn stable_hash<'a>(parts: impl Iterator<Item = (&'a [u8], bool)>) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let mut add = |byte: u8| hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    for (part, flag) in parts {
        (part.len() as u64).to_le_bytes().into_iter().for_each(&mut add);
        part.iter().copied().for_each(&mut add);
        add(u8::from(flag));
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_stable_and_distinguishes_parts() {
        let of = |parts: &[(&'static str, bool)]| {
            stable_hash(parts.iter().map(|(part, flag)| (part.as_bytes(), *flag)))
        };
        assert_eq!(of(&[]), 0xcbf2_9ce4_8422_2325);
        assert_eq!(of(&[("ab", true)]), of(&[("ab", true)]));
        assert_ne!(of(&[("ab", true)]), of(&[("ab", false)]));
        assert_ne!(of(&[("ab", false)]), of(&[("a", false), ("b", false)]));
    }
}
