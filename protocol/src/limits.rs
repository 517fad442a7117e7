//! Limits of the wire format, and special values of its fields.

/// Longest frame in either direction, in bytes, with the length field. No receive buffer needs to be larger.
pub const FRAME_LEN_MAX: usize = 1 << 20;
/// Longest frame in bytes before the server accepts `HELLO`, so that an unknown client cannot make the server buffer a
/// long incomplete frame.
pub const FRAME_LEN_BEFORE_HELLO_MAX: usize = 4 << 10;
/// Longest key in bytes, and longest name of a pool or bucket. The shortest key has one byte, except in namespaces of
/// kind registry: there the key may be empty.
pub const KEY_LEN_MAX: usize = 1024;
/// Maximum number of segments in a path.
pub const SEGMENT_COUNT_MAX: usize = 64;
/// Longest segment of a path in bytes. A segment may be empty.
pub const SEGMENT_LEN_MAX: usize = 1024;
/// Longest path key in bytes: the maximum of the length field of a string.
pub const PATH_KEY_LEN_MAX: usize = u16::MAX as usize;
/// Maximum number of paths or keys in one acquire.
pub const ITEM_COUNT_MAX: usize = 1024;
/// Longest list of keys in `ACQUIRE_KEYS`, in bytes, with their modes and length fields. The server hashes, stores and
/// returns all keys of the list in one step.
pub const KEYS_BYTES_MAX: usize = 128 << 10;
/// Maximum number of buckets in one `THROTTLE_ALL`.
pub const BUCKET_COUNT_MAX: usize = 64;
/// Longest reason that an operator gives, in bytes.
pub const REASON_LEN_MAX: usize = 256;
/// Longest value of a registration in bytes.
pub const VALUE_LEN_MAX: usize = 4096;
/// Longest type of a registration in bytes.
pub const TYPE_LEN_MAX: usize = 256;
/// Longest request id in bytes.
pub const REQUEST_ID_LEN_MAX: usize = 256;
/// Longest owner in bytes, of a claim or of a connection.
pub const OWNER_LEN_MAX: usize = 256;
/// Longest metadata of a claim in bytes.
pub const METADATA_LEN_MAX: usize = 4096;
/// Longest name of a namespace in bytes.
pub const NAMESPACE_LEN_MAX: usize = 256;
/// Longest credentials in bytes. Leaves room for a JSON web token with a long signature. A `HELLO` with them is at most
/// `FRAME_LEN_BEFORE_HELLO_MAX` long.
pub const CREDENTIALS_LEN_MAX: usize = 3_072;
/// Maximum number of locks, waiting claims, registrations, pools or namespaces in one page.
pub const LIST_PAGE_MAX: u16 = 1024;
/// Length in bytes from which on the server adds no more items to a page. One more item of any size still fits the
/// frame.
pub const LIST_PAGE_BYTES_MAX: usize = 64 << 10;
/// Maximum number of holders, and of waiters, that one `INSPECTED` lists. Its `holder_count` and `waiter_count` are
/// exact even if the lists are cut.
pub const INSPECT_HOLDERS_MAX: usize = 64;
/// Maximum number of holders, and of waiters, that one `POOL_DESCRIBED` lists. Its `holder_count` and `waiter_count`
/// are exact even if the lists are cut.
pub const DESCRIBE_LISTED_MAX: usize = 64;
/// Maximum number of unanswered requests of one connection. Acquires that wait in a queue do not count. With a session,
/// a lane keeps the responses to at most this many of its last requests, for repetitions.
pub const IN_FLIGHT_MAX: u32 = 1024;
/// Value of `lease_ms` in an `ACQUIRE_SET` whose hold has no lease. For other acquires, the server shortens this value
/// to its maximum.
pub const LEASE_NONE_MS: u32 = u32::MAX;
/// Value of `wait_ms` in an acquire that waits without a limit.
pub const WAIT_FOREVER_MS: u32 = u32::MAX;
/// Longest version in `SERVER_STATUS_ANSWER`, in bytes.
pub const SERVER_VERSION_LEN_MAX: usize = 64;
/// Longest list of addresses in `SERVER_STATUS_ANSWER`, in bytes.
pub const SERVER_ADDRESSES_LEN_MAX: usize = 2048;
/// Maximum number of reasons in `SERVER_STATUS_ANSWER`.
pub const SERVER_REASONS_MAX: usize = 16;
/// Longest code of a reason in `SERVER_STATUS_ANSWER`, in bytes.
pub const REASON_CODE_LEN_MAX: usize = 64;
/// Longest message of a reason in `SERVER_STATUS_ANSWER`, in bytes.
pub const REASON_MESSAGE_LEN_MAX: usize = 512;
/// Value of `worker` in a `HELLO` whose client accepts any worker.
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
