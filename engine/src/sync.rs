//! The atomics of the turn cell and the mailbox, which loom and shuttle replace by their own: loom to explore every
//! interleaving of a little, shuttle many random ones of more.

#[cfg(loom)]
pub(crate) use loom::{cell::UnsafeCell, sync::atomic::AtomicUsize};
#[cfg(shuttle)]
pub(crate) use shuttle::sync::atomic::AtomicUsize;
#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::sync::atomic::AtomicUsize;

pub(crate) use std::sync::atomic::Ordering;

/// `std`'s cell with loom's way of access, so that both builds share one text.
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
