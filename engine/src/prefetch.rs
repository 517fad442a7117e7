//! Prefetches of cache lines, which the processor loads while other work continues.

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "the instruction exists only as an intrinsic")
)]

/// Prefetches the cache line in which this value begins. This is only a hint: it changes no result, and does nothing on
/// processors other than x86-64.
#[inline(always)]
pub(crate) fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of x86-64, and a prefetch never faults. There is also a live value at the address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(
            std::ptr::from_ref(value).cast(),
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_value_can_be_prefetched() {
        prefetch(&());
        prefetch(&[1_u8; 3][2]);
        prefetch(&*Box::new([0_u64; 16]));
    }
}
