//! Every limit of the wire format, with what it protects.

/// Longest frame in either direction, in bytes, the length field included. Bounds every receive buffer.
pub const FRAME_LEN_MAX: usize = 1 << 20;
/// Longest frame before `HELLO` was accepted: a stranger may not make the server buffer more.
pub const FRAME_LEN_BEFORE_HELLO_MAX: usize = 4 << 10;
/// Longest key in bytes, also of a pool, a bucket and an entry. The shortest is one byte, that of an entry none.
pub const KEY_LEN_MAX: usize = 1024;
/// Most segments of a path.
pub const SEGMENT_COUNT_MAX: usize = 64;
/// Longest segment of a path in bytes. The shortest is empty.
pub const SEGMENT_LEN_MAX: usize = 1024;
/// Longest path key in bytes: what the length of a string can say.
pub const PATH_KEY_LEN_MAX: usize = u16::MAX as usize;
/// Most paths or keys in one acquire.
pub const ITEM_COUNT_MAX: usize = 1024;
/// Longest list of keys of `ACQUIRE_KEYS` in bytes. The server hashes, keeps and repeats all of them in one step.
pub const KEYS_BYTES_MAX: usize = 128 << 10;
/// Most buckets in one `THROTTLE_ALL`.
pub const BUCKET_COUNT_MAX: usize = 64;
/// Longest reason of an operator in bytes.
pub const REASON_LEN_MAX: usize = 256;
/// Longest value of an entry in bytes.
pub const VALUE_LEN_MAX: usize = 4096;
/// Longest type of an entry in bytes.
pub const TYPE_LEN_MAX: usize = 256;
/// Longest request id in bytes.
pub const REQUEST_ID_LEN_MAX: usize = 256;
/// Longest owner in bytes, of a claim or of a connection.
pub const OWNER_LEN_MAX: usize = 256;
/// Longest metadata of a claim in bytes.
pub const METADATA_LEN_MAX: usize = 4096;
/// Longest name of a namespace in bytes.
pub const NAMESPACE_LEN_MAX: usize = 256;
/// Longest credentials in bytes: a JSON web token with a long signature. With the other fields of `HELLO` they stay below
/// `FRAME_LEN_BEFORE_HELLO_MAX`.
pub const CREDENTIALS_LEN_MAX: usize = 3_072;
/// Most locks, entries, pools or namespaces in one page.
pub const LIST_PAGE_MAX: u16 = 1024;
/// Bytes after which the server closes a page, so that one more item of any size still fits a frame.
pub const LIST_PAGE_BYTES_MAX: usize = 64 << 10;
/// Most holders that one `INSPECTED` names; the count beside them is exact.
pub const INSPECT_HOLDERS_MAX: usize = 64;
/// Most holders, and most waiters, that one `POOL_DESCRIBED` names; the counts beside them are exact.
pub const DESCRIBE_LISTED_MAX: usize = 64;
/// Most requests of one connection that may be unanswered, apart from acquires that wait in a queue. Also the most
/// answers a lane keeps for repeats.
pub const IN_FLIGHT_MAX: u32 = 1024;
/// `lease_ms` of an `ACQUIRE_SET` whose hold has no lease.
pub const LEASE_NONE_MS: u32 = u32::MAX;
/// `wait_ms` of an acquire that waits until it is cancelled.
pub const WAIT_FOREVER_MS: u32 = u32::MAX;
/// Longest version in `SERVER_STATUS_ANSWER`.
pub const SERVER_VERSION_LEN_MAX: usize = 64;
/// Longest list of addresses in `SERVER_STATUS_ANSWER`.
pub const SERVER_ADDRESSES_LEN_MAX: usize = 2048;
/// Most reasons in `SERVER_STATUS_ANSWER`.
pub const SERVER_REASONS_MAX: usize = 16;
/// Longest code of a reason in `SERVER_STATUS_ANSWER`.
pub const REASON_CODE_LEN_MAX: usize = 64;
/// Longest message of a reason in `SERVER_STATUS_ANSWER`.
pub const REASON_MESSAGE_LEN_MAX: usize = 512;
/// `worker` of a `HELLO` that has no preference.
pub const ANY_WORKER: u16 = u16::MAX;

const _: () = {
    assert!(FRAME_LEN_BEFORE_HELLO_MAX <= FRAME_LEN_MAX);
    assert!(
        NAMESPACE_LEN_MAX + OWNER_LEN_MAX + CREDENTIALS_LEN_MAX + 72 <= FRAME_LEN_BEFORE_HELLO_MAX,
        "the largest HELLO fits the limit that holds before it"
    );
    let listed_lock_max = 64 + PATH_KEY_LEN_MAX + OWNER_LEN_MAX + METADATA_LEN_MAX + REQUEST_ID_LEN_MAX;
    assert!(LIST_PAGE_BYTES_MAX + listed_lock_max <= FRAME_LEN_MAX, "a page may end with the largest lock");
    let entry_max = 64 + KEY_LEN_MAX + OWNER_LEN_MAX + VALUE_LEN_MAX + TYPE_LEN_MAX;
    assert!(LIST_PAGE_BYTES_MAX + entry_max <= FRAME_LEN_MAX, "a page may end with the largest entry");
    assert!(LIST_PAGE_BYTES_MAX + 64 + NAMESPACE_LEN_MAX <= FRAME_LEN_MAX);
    assert!(
        LIST_PAGE_BYTES_MAX + 64 + KEY_LEN_MAX <= FRAME_LEN_MAX,
        "a page may end with the longest name of a pool"
    );
    assert!(INSPECT_HOLDERS_MAX * (64 + OWNER_LEN_MAX) <= FRAME_LEN_MAX);
    assert!(2 * DESCRIBE_LISTED_MAX * (64 + OWNER_LEN_MAX) <= FRAME_LEN_MAX);
    assert!(BUCKET_COUNT_MAX * (32 + KEY_LEN_MAX) <= FRAME_LEN_MAX);
    let granted_key_more = 28;
    assert!(
        64 + KEYS_BYTES_MAX + ITEM_COUNT_MAX * granted_key_more <= FRAME_LEN_MAX,
        "the response has an id, a fence and a lease for each key"
    );
    let options_max = 64 + REQUEST_ID_LEN_MAX + OWNER_LEN_MAX + METADATA_LEN_MAX;
    assert!(64 + KEYS_BYTES_MAX + options_max <= FRAME_LEN_MAX);
};
