//! The trait of all guards, and the common methods of guards that wrap a single [`Lock`].

use tracing::Span;

use super::lock::Lock;
use crate::error::Result;
use crate::loss::LossReason;
use crate::one_or_more::OneOrMore;
use sealed::Guarding;

/// Guard of a granted claim. It is sealed: other crates cannot implement it.
pub trait Guard: Sized + sealed::Guarding {}

impl<G: sealed::Guarding> Guard for G {}

pub(crate) mod sealed {
    use tracing::Span;

    use crate::error::Result;
    use crate::guards::lock::Lock;
    use crate::loss::LossReason;
    use crate::one_or_more::OneOrMore;

    /// Common operations of guards. A guard is made of all holds of a grant. It counts as lost with the first lost
    /// hold, and `give_back` releases all holds.
    pub trait Guarding {
        #[doc(hidden)]
        fn from_locks(locks: OneOrMore<Lock>) -> Self;
        #[doc(hidden)]
        fn loss(&self) -> impl Future<Output = LossReason> + Send + 'static + use<Self>;
        #[doc(hidden)]
        fn span(&self) -> Span;
        #[doc(hidden)]
        fn give_back(self) -> impl Future<Output = Result<()>> + Send;
    }
}

impl Guarding for Lock {
    fn from_locks(locks: OneOrMore<Self>) -> Self {
        locks.into_last()
    }

    fn loss(&self) -> impl Future<Output = LossReason> + Send + 'static + use<> {
        self.lost()
    }

    fn span(&self) -> Span {
        Lock::span(self).clone()
    }

    async fn give_back(self) -> Result<()> {
        self.release().await
    }
}

/// Implements the methods of a guard for a `struct { lock: Lock }`, by forwarding them to its lock.
macro_rules! guard_of_one_lock {
    ($guard:ident) => {
        impl $guard {
            /// Releases the hold, like [`Lock::release`](crate::Lock::release).
            ///
            /// # Errors
            ///
            /// As [`Lock::release`](crate::Lock::release).
            pub async fn release(self) -> $crate::Result<()> {
                self.lock.release().await
            }

            /// Returns the hold as a plain lock.
            pub fn into_lock(self) -> $crate::Lock {
                self.lock
            }

            /// Drops the guard and keeps the hold, like [`Lock::forget`](crate::Lock::forget).
            pub fn forget(self) -> $crate::LockId {
                self.lock.forget()
            }
        }

        impl ::std::ops::Deref for $guard {
            type Target = $crate::Lock;

            fn deref(&self) -> &$crate::Lock {
                &self.lock
            }
        }

        impl $crate::guards::guard::sealed::Guarding for $guard {
            fn from_locks(locks: $crate::one_or_more::OneOrMore<$crate::Lock>) -> Self {
                Self { lock: locks.into_last() }
            }

            fn loss(&self) -> impl Future<Output = $crate::LossReason> + Send + 'static + use<> {
                self.lock.lost()
            }

            fn span(&self) -> ::tracing::Span {
                self.lock.span().clone()
            }

            async fn give_back(self) -> $crate::Result<()> {
                self.lock.release().await
            }
        }

        impl ::std::fmt::Debug for $guard {
            fn fmt(&self, formatter: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                formatter.debug_tuple(stringify!($guard)).field(&self.lock).finish()
            }
        }
    };
}

pub(crate) use guard_of_one_lock;
