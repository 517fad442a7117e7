//! Typed handles of records in slabs.

use waymaker_log::ClaimId;

/// Number of a record in one kind of slab. A handle alone identifies nothing for long: records are reused, so a handle from an earlier
/// turn is compared with the secret, generation or bytes of its record.
pub(crate) trait Handle: Copy + Eq + std::fmt::Debug {
    /// Returns the handle of the record with this number.
    fn new(number: u32) -> Self;
    /// Returns the number of the record.
    fn number(self) -> u32;
}

/// Defines a handle type: four bytes, with `NONE` for "no record".
macro_rules! handle {
    ($(#[$doc:meta])* $visibility:vis $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        $visibility struct $name(u32);

        #[allow(dead_code, unreachable_pub, reason = "each kind of handle uses some of these, and two kinds leave the crate")]
        impl $name {
            /// Handle of no record.
            pub const NONE: Self = Self(u32::MAX);

            /// Returns the handle of the record with this number.
            #[inline]
            pub const fn new(number: u32) -> Self {
                Self(number)
            }

            /// Returns the number of the record.
            #[inline]
            pub const fn number(self) -> u32 {
                self.0
            }

            /// Returns the number of the record as a position in a vector.
            #[inline]
            pub(crate) const fn at(self) -> usize {
                self.0 as usize
            }

            /// Whether this is the handle of no record.
            #[inline]
            pub const fn is_none(self) -> bool {
                self.0 == u32::MAX
            }

            /// Whether this is the handle of a record.
            #[inline]
            pub const fn is_some(self) -> bool {
                !self.is_none()
            }

            /// Returns this handle unless it is `NONE`.
            #[inline]
            pub(crate) fn some(self) -> Option<Self> {
                self.is_some().then_some(self)
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::NONE
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(formatter, "{}({})", stringify!($name), self.0)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(formatter)
            }
        }

        impl $crate::handle::Handle for $name {
            #[inline]
            fn new(number: u32) -> Self {
                Self(number)
            }

            #[inline]
            fn number(self) -> u32 {
                self.0
            }
        }
    };
}
pub(crate) use handle;

handle! {
    /// A claim of a shard.
    pub ClaimIx
}
impl ClaimIx {
    /// Returns the handle that the place of an id names. There may be no such claim, or another one by now.
    #[inline]
    pub fn named_by(place: u64) -> Self {
        Self::new(ClaimId::slot_of(place))
    }
}

handle! {
    /// A lane of a shard.
    pub LaneIx
}
handle! {
    /// A key record of a shard.
    pub(crate) KeyIx
}
handle! {
    /// The optional part of a claim.
    pub(crate) DetailIx
}
handle! {
    /// The queue of a contended key.
    pub(crate) QueueIx
}
handle! {
    /// The tree of a namespace.
    pub(crate) TreeIx
}
handle! {
    /// A pool of permits.
    pub(crate) PoolIx
}
handle! {
    /// One path of a set of paths, in the tree that has it.
    pub(crate) ItemIx
}

#[cfg(test)]
impl Handle for u32 {
    fn new(number: u32) -> Self {
        number
    }

    fn number(self) -> u32 {
        self
    }
}
