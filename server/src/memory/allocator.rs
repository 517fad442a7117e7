//! Control of the memory allocator.
#![expect(unsafe_code, reason = "only the C interface of the allocator has this function")]

/// Returns unused memory that the allocator keeps for this thread to the operating system.
pub(crate) fn collect() {
    // SAFETY: the allocator allows this call in any thread, at any time between two allocations.
    unsafe { libmimalloc_sys::mi_collect(true) }
}
