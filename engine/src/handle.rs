//! Typed handles of records in slabs.

use waymaker_log::ClaimId;

/// Number of a record in one kind of slab. Records are reused, so a handle identifies a record only as long as the
/// record is known to be in use. A handle that may outlive its record is kept together with a secret, a generation or a
/// work number of the record, which is compared before the record is used.
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
    /// Handle of a claim in its shard.
    pub ClaimIx
}
impl ClaimIx {
    /// Returns the handle that [`ClaimId::place`] contains, besides the shard and the generation. The record may be
    /// missing, unused, or in use by a later claim.
    #[inline]
    pub fn named_by(place: u64) -> Self {
        Self::new(ClaimId::slot_of(place))
    }
}

handle! {
    /// Handle of a lane in a shard.
    pub LaneIx
}
handle! {
    /// Handle of a key record.
    pub(crate) KeyIx
}
handle! {
    /// Handle of the `Detail` of a claim.
    pub(crate) DetailIx
}
handle! {
    /// Handle of the queue of a contended key.
    pub(crate) QueueIx
}
handle! {
    /// Handle of the tree of a namespace.
    pub(crate) TreeIx
}
handle! {
    /// Handle of a pool of permits.
    pub(crate) PoolIx
}
handle! {
    /// Handle of one path of a set, in the tree that has the set.
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
