//! Atomics of the turn cell and the mailbox. The tools loom and shuttle replace them with their own types. loom
//! explores every interleaving of small tests, shuttle many random interleavings of larger ones.

#[cfg(loom)]
pub(crate) use loom::{cell::UnsafeCell, sync::atomic::AtomicUsize};
#[cfg(shuttle)]
pub(crate) use shuttle::sync::atomic::AtomicUsize;
#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::sync::atomic::AtomicUsize;

pub(crate) use std::sync::atomic::Ordering;

/// Cell of `std` with the interface of loom's cell, so that both builds share one source.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    #[inline]
    pub(crate) fn with_mut<R>(&self, access: impl FnOnce(*mut T) -> R) -> R {
        access(self.0.get())
    }
}
