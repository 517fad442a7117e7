//! Common methods of the guards that wrap a single [`Lock`](crate::Lock).

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

        impl $crate::acquire::sealed::Guarding for $guard {
            fn from_locks(locks: $crate::one_or_more::OneOrMore<$crate::Lock>) -> Self {
                Self { lock: $crate::Lock::from_locks(locks) }
            }

            fn loss(&self) -> impl Future<Output = $crate::LossReason> + Send + 'static + use<> {
                self.lock.lost()
            }

            fn span(&self) -> ::tracing::Span {
                self.lock.span()
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
