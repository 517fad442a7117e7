//! Bounds the memory that one input may cost.

use cap::Cap;
use std::alloc::System;
use std::panic::{set_hook, take_hook};
use std::sync::Once;

/// Memory for inputs that only cost their own length, a few times.
pub const SMALL: usize = 16 << 20;
/// Memory for inputs that build the state of a server. The tables of an empty shard set aside some 240 MiB of address space, which count here
/// although they are not used.
pub const LARGE: usize = 1 << 30;
/// Memory for inputs that restore servers of at most two shards. The tables of a shard with holds in high slots set aside up to 2 GiB of address
/// space.
pub const RESTORED: usize = 6 << 30;

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// Runs `act`, which may allocate at most `len` bytes beside those allocated before. The process aborts at an allocation beyond that, so
/// the fuzzer reports the input.
pub fn bounded<T>(len: usize, act: impl FnOnce() -> T) -> T {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let report = take_hook();
        // The backtrace of a panic needs memory, too.
        set_hook(Box::new(move |panic| {
            let _ = ALLOCATOR.set_limit(usize::MAX);
            report(panic);
        }));
    });
    ALLOCATOR.set_limit(ALLOCATOR.allocated() + len).expect("the limit is above what is allocated");
    let result = act();
    ALLOCATOR.set_limit(usize::MAX).expect("the limit is above what is allocated");
    result
}
