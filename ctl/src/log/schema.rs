//! The schema of the objects of `log`. `objects` builds them; tests compare real output with this schema.

#![expect(dead_code, reason = "the types describe objects that `objects` builds member by member")]

use schemars::JsonSchema;
use serde::Serialize;

/// An object about a data directory. The member `about` names its subject.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "about", rename_all = "snake_case")]
#[schemars(title = "Log object")]
pub(crate) enum LogObject {
    Log(LogSummary),
    Superblock(SuperblockObject),
    File(FileObject),
    Namespace(NamespaceObject),
    Pool(RecordMembers),
    Frozen(RecordMembers),
    Hold(HoldObject),
    Record(RecordObject),
}

/// The log as a whole.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "log")]
pub(crate) struct LogSummary {
    /// Path of the data directory.
    directory: String,
    /// Description of the server that uses the directory; null without one.
    in_use_by: Option<String>,
    /// End of the log: fresh (no log yet), stopped (clean stop), clean, torn, out_of_order, newer or damaged.
    end: String,
    /// First byte of an unacknowledged end that a start drops. Present only if end is torn or out_of_order.
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped_from: Option<u64>,
    /// Reason why a server would not start. Present only if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    /// File with the problem. Present only if the problem is in one file.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem_file: Option<String>,
    /// Byte of the problem in that file. Present only if the problem is in one file.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem_offset: Option<u64>,
    /// Number of the last frame.
    last_lsn: u64,
    /// Number of holds.
    hold_count: u64,
    /// Number of fence counters of keys.
    counter_count: u64,
    /// Fence above which keys without a counter continue.
    floor: u64,
}

/// The superblock.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "superblock")]
pub(crate) struct SuperblockObject {
    /// Id of the log, 16 hexadecimal digits.
    log_id: String,
    /// Sequence number; it rises with each update of the superblock.
    sequence: u64,
    /// Number of the last start of a server that accepted requests.
    generation: u64,
    /// Length of new segments in bytes.
    segment_len: u64,
    /// Number of the first segment that the log uses.
    first_segment: u64,
    /// Number of the last segment that may contain acknowledged frames; 0 before the first start.
    last_segment: u64,
    /// Number of the snapshot; 0 without one.
    snapshot: u64,
    /// Upper bound of all fences of scope local so far.
    fence_floor: u64,
    /// Longest lease ever granted, in milliseconds.
    longest_lease_ms: u64,
    /// Last frame, if the server stopped cleanly after it; 0 otherwise.
    clean_lsn: u64,
    /// Lower bound of new fences after an operator accepted damage. Present only until a server has waited long enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    losses_fence_floor: Option<u64>,
    /// Time in milliseconds for which a start refuses grants after an operator accepted damage. Present only until a server has waited
    /// long enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    losses_wait_ms: Option<u64>,
}

/// A file of the data directory.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "file")]
pub(crate) struct FileObject {
    /// Name of the file.
    file: String,
    /// Whether the file is not part of the log. Present only if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    foreign: Option<bool>,
    /// Length in bytes. Present only for files of the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    /// Number of the first frame. Present only if the file has frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_lsn: Option<u64>,
    /// Number of the last frame. Present only if the file has frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_lsn: Option<u64>,
    /// Number of frames. Present only if the file has frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    frames: Option<u64>,
    /// Number of records. Present only if the file has frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    records: Option<u64>,
}

/// A namespace of the log.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "namespace")]
pub(crate) struct NamespaceObject {
    /// Name of the namespace.
    namespace: String,
    /// Hexadecimal digits of the name. Present only if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace_hex: Option<String>,
    /// Kind of the namespace: flat, tree, pool, registry or lazy.
    kind: String,
    /// Number of the namespace in the log.
    number: u64,
}

/// A hold after all records.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "hold")]
pub(crate) struct HoldObject {
    #[serde(flatten)]
    members: RecordMembers,
    /// Remaining lease in milliseconds; null if it is not known or there is none.
    remaining_ms: Option<u64>,
}

/// A record of the log. Its other members depend on its kind.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "record")]
pub(crate) struct RecordObject {
    /// Kind of the record, such as held, ended or counter.
    record: String,
    /// Number of the frame.
    lsn: u64,
    /// File of the frame.
    file: String,
    /// First byte of the frame in that file.
    offset: u64,
    #[serde(flatten)]
    members: RecordMembers,
}

/// Members of records. Each is present only in records that contain it.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "record members")]
pub(crate) struct RecordMembers {
    /// Name of the namespace, or its number if no record names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<NameOrNumber>,
    /// Hexadecimal digits of the name. Present only if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace_hex: Option<String>,
    /// Key, or name of the pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// Hexadecimal digits of the key. Present only if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    key_hex: Option<String>,
    /// Paths of a hold of a tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    paths: Option<Vec<PathObject>>,
    /// Frozen or thawed prefix.
    #[serde(skip_serializing_if = "Option::is_none")]
    prefix: Option<String>,
    /// Hexadecimal digits of the prefix. Present only if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    prefix_hex: Option<String>,
    /// Id of the claim, 32 hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    /// Mode: read or write.
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<String>,
    /// Fence.
    #[serde(skip_serializing_if = "Option::is_none")]
    fence: Option<u64>,
    /// Scope of the fence: ephemeral, local or quorum.
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<String>,
    /// Owner; empty if the client has no name.
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    /// Hexadecimal digits of the owner. Present only if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    owner_hex: Option<String>,
    /// Number of permits of a hold of a pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    permits: Option<u64>,
    /// Capacity of the pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    capacity: Option<u64>,
    /// Whether waiters of the pool are served by their timestamps.
    #[serde(skip_serializing_if = "Option::is_none")]
    by_timestamp: Option<bool>,
    /// Type of a registration.
    #[serde(skip_serializing_if = "Option::is_none")]
    r#type: Option<String>,
    /// Hexadecimal digits of the type. Present only if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    type_hex: Option<String>,
    /// Whether a registration stays until another owner takes its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    lazy: Option<bool>,
    /// End of the lease of a registration, in milliseconds of the boot clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    end_ms: Option<i64>,
    /// Time of the grant in milliseconds of the boot clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    since_ms: Option<u64>,
    /// End of the lease in milliseconds of the boot clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline_ms: Option<u64>,
    /// State of the lease of a hold: running, anew (a start grants it again), session (bound to a session) or none. In a record only
    /// session or none.
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<String>,
    /// Length of the lease in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_ms: Option<u64>,
    /// Time in milliseconds after a lost connection at which the hold ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    release_after_ms: Option<u64>,
    /// Request id that the client gave.
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
    /// Hexadecimal digits of the request id. Present only if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id_hex: Option<String>,
    /// Metadata that the client gave.
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<String>,
    /// Hexadecimal digits of the metadata. Present only if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata_hex: Option<String>,
    /// Kind of a namespace: flat, tree, pool, registry or lazy.
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    /// Number of a namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    number: Option<u64>,
    /// Id of the boot of the machine, 32 hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    boot_id: Option<String>,
    /// Time of a start in milliseconds of the boot clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    boot_ms: Option<u64>,
    /// Time of a start in milliseconds since 1970-01-01T00:00:00Z.
    #[serde(skip_serializing_if = "Option::is_none")]
    unix_ms: Option<i64>,
    /// Number of following records that apply only together.
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    /// Length of a part of a record in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    /// Number of bytes of the record in the parts that follow; 0 in the last part.
    #[serde(skip_serializing_if = "Option::is_none")]
    left: Option<u64>,
}

/// A name, or a number without a name.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(crate) enum NameOrNumber {
    Name(String),
    Number(u64),
}

/// A path of a hold.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "path")]
pub(crate) struct PathObject {
    /// Segments of the path.
    path: Vec<String>,
    /// Mode: read or write.
    mode: String,
}
