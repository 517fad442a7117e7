//! Resources of a lock.

use serde::Serialize;

/// A path of segments, and whether the lock reads or writes it. Two resources exclude each other if one path is equal to the
/// other or a prefix of it, and at least one of the two is written. Resources of the same lock never exclude each other.
///
/// An empty path is the whole namespace. An empty segment is a segment like any other.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Resource {
    /// Access to the path, shared or exclusive.
    #[serde(rename = "type")]
    pub access: Access,
    /// Segments, from the root down.
    pub path: Vec<String>,
}

/// Access to a resource, shared or exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Shared with other readers.
    Read,
    /// Exclusive.
    Write,
}

impl Resource {
    /// Returns a resource that reads a path and everything below it.
    pub fn read<S: Into<String>>(path: impl IntoIterator<Item = S>) -> Self {
        Self { access: Access::Read, path: path.into_iter().map(Into::into).collect() }
    }

    /// Returns a resource that writes a path and everything below it.
    pub fn write<S: Into<String>>(path: impl IntoIterator<Item = S>) -> Self {
        Self { access: Access::Write, path: path.into_iter().map(Into::into).collect() }
    }
}
