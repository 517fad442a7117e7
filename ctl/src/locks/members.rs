//! Members that JSON objects of several commands share.

use schemars::JsonSchema;
use serde::Serialize;

use crate::kind::Kind;
use crate::text;

/// The key of a claim.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct KeyMembers {
    /// Key, or name of the pool. Absent if the kind is tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// Hexadecimal digits of the key. Present only if the key is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    key_hex: Option<String>,
    /// Segments of the path. Present only if the kind is tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<Vec<String>>,
}

impl KeyMembers {
    /// Returns the members for a key of a namespace of this kind.
    pub(super) fn new(kind: Kind, key: &[u8]) -> Self {
        if kind == Kind::Tree {
            return Self { key: None, key_hex: None, path: Some(text::path(key)) };
        }
        let (key, key_hex) = text::json(key);
        Self { key: Some(key), key_hex, path: None }
    }
}

/// What the client of a claim said about itself and the claim.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ClientMembers {
    /// Owner; empty if the client has no name.
    owner: String,
    /// Hexadecimal digits of the owner. Present only if the owner is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    owner_hex: Option<String>,
    /// Request id that the client gave; empty without one.
    request_id: String,
    /// Hexadecimal digits of the request id. Present only if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id_hex: Option<String>,
    /// Metadata that the client gave; empty without metadata.
    metadata: String,
    /// Hexadecimal digits of the metadata. Present only if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata_hex: Option<String>,
}

impl ClientMembers {
    /// Returns the members for these bytes.
    pub(super) fn new(owner: &[u8], request_id: &[u8], metadata: &[u8]) -> Self {
        let (owner, owner_hex) = text::json(owner);
        let (request_id, request_id_hex) = text::json(request_id);
        let (metadata, metadata_hex) = text::json(metadata);
        Self { owner, owner_hex, request_id, request_id_hex, metadata, metadata_hex }
    }
}
