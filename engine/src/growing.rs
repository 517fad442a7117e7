//! Growth of vectors without long pauses.

/// Size in bytes up to which a growing vector may be copied. Copying that much takes some ten microseconds.
const COPIED_BYTES_MAX: usize = 256 << 10;

/// Makes room for one more value in a full vector.
///
/// The capacity doubles, as long as that gives at most [`COPIED_BYTES_MAX`] bytes. A larger vector reserves address
/// space for `count_max` values, so it is never copied again; the system provides memory as values arrive. The capacity
/// still doubles if the system refuses the address space, or if the vector already has `count_max` values.
#[cold]
#[inline(never)]
pub(crate) fn make_room<T>(vector: &mut Vec<T>, count_max: usize) {
    let count = vector.len();
    let is_set_aside = 2 * count * size_of::<T>() > COPIED_BYTES_MAX && set_aside(vector, count_max);
    if !is_set_aside {
        vector.reserve(1);
    }
}

/// Reserves address space for `count_max` values. Returns false if the vector already has as many values, or if the
/// system refuses the address space.
pub(crate) fn set_aside<T>(vector: &mut Vec<T>, count_max: usize) -> bool {
    let more = count_max.saturating_sub(vector.len());
    more > 0 && vector.try_reserve_exact(more).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_small_vector_is_copied_when_it_grows() {
        let mut vector: Vec<[u64; 4]> = Vec::new();
        let (mut moved_max, mut move_count) = (0, 0);
        for number in 0..1_000_000 {
            if vector.len() == vector.capacity() {
                moved_max = vector.len();
                move_count += 1;
                make_room(&mut vector, 1_000_000);
            }
            vector.push([number; 4]);
        }
        assert!(moved_max * size_of::<[u64; 4]>() <= COPIED_BYTES_MAX, "{moved_max} values were copied");
        assert!(move_count <= 13, "it grew {move_count} times");
        assert!(vector.iter().zip(0..).all(|(value, number)| *value == [number; 4]));
    }

    #[test]
    fn a_vector_grows_beyond_its_expected_length() {
        let mut vector: Vec<u8> = vec![7; COPIED_BYTES_MAX];
        vector.shrink_to_fit();
        make_room(&mut vector, 10);
        vector.push(8);
        assert_eq!((vector.len(), vector[COPIED_BYTES_MAX]), (COPIED_BYTES_MAX + 1, 8));
    }
}
