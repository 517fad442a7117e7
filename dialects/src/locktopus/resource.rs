//! What is locked.

use serde::Serialize;

/// A path of segments, and whether it is to be read or written. Two resources exclude each other if one path is the
/// beginning of the other, or equal, and at least one of the two is to be written. Those of one lock never do.
///
/// No segments are the whole namespace; an empty segment is a segment like any other.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Resource {
    /// Shared or alone.
    #[serde(rename = "type")]
    pub access: Access,
    /// From the root down.
    pub path: Vec<String>,
}

/// The access to a resource: alone, or with others at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Together with others who read.
    Read,
    /// Alone.
    Write,
}

impl Resource {
    /// A path to be read, and with it all that lies below.
    pub fn read<S: Into<String>>(path: impl IntoIterator<Item = S>) -> Self {
        Self { access: Access::Read, path: path.into_iter().map(Into::into).collect() }
    }

    /// A path to be written, and with it all that lies below.
    pub fn write<S: Into<String>>(path: impl IntoIterator<Item = S>) -> Self {
        Self { access: Access::Write, path: path.into_iter().map(Into::into).collect() }
    }
}
