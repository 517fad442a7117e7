//! Names of calls.

/// Returns a random UUID, of version 4.
pub(super) fn v4() -> String {
    let version = 4 << 76;
    let variant = 2 << 62;
    let random = rand::random::<u128>() & !(0xf << 76 | 3 << 62);
    let digits = format!("{:032x}", random | version | variant);
    let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
    parts.join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_has_version_4_and_its_variant_and_is_unique() {
        let (one, another) = (v4(), v4());
        assert_ne!(one, another);
        let parts: Vec<_> = one.split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12]);
        assert_eq!(&one[14..15], "4");
        assert!("89ab".contains(&one[19..20]), "{one}");
    }
}
