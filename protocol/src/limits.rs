//! Every limit of the wire format, with what it protects.

/// Longest frame in either direction, in bytes, the length field included. Bounds every receive buffer.
pub const FRAME_LEN_MAX: usize = 1 << 20;
/// Longest frame before `HELLO` was accepted: a stranger may not make the server buffer more.
pub const FRAME_LEN_BEFORE_HELLO_MAX: usize = 1 << 10;
/// Longest key in bytes. The shortest is one byte.
pub const KEY_LEN_MAX: usize = 1024;
/// Longest request id in bytes.
pub const REQUEST_ID_LEN_MAX: usize = 256;
/// Longest owner in bytes, of a claim or of a connection.
pub const OWNER_LEN_MAX: usize = 256;
/// Longest metadata of a claim in bytes.
pub const METADATA_LEN_MAX: usize = 4096;
/// Longest name of a namespace in bytes.
pub const NAMESPACE_LEN_MAX: usize = 256;
/// Longest credentials in bytes; with the other fields of `HELLO` they stay below `FRAME_LEN_BEFORE_HELLO_MAX`.
pub const CREDENTIALS_LEN_MAX: usize = 400;
/// Most locks in one page of `LIST`.
pub const LIST_PAGE_MAX: u16 = 1024;
/// Bytes after which the server closes a page of `LIST`, so that one more item of any size still fits a frame.
pub const LIST_PAGE_BYTES_MAX: usize = 64 << 10;
/// Most holders that one `INSPECTED` names; the count beside them is exact.
pub const INSPECT_HOLDERS_MAX: usize = 64;
/// Most requests of one connection that may be unanswered, apart from acquires that wait in a queue. Also the most
/// answers a lane keeps for repeats.
pub const IN_FLIGHT_MAX: u32 = 1024;
/// `wait_ms` of an acquire that waits until it is cancelled.
pub const WAIT_FOREVER_MS: u32 = u32::MAX;
/// `worker` of a `HELLO` that has no preference.
pub const ANY_WORKER: u16 = u16::MAX;

const _: () = {
    assert!(FRAME_LEN_BEFORE_HELLO_MAX <= FRAME_LEN_MAX);
    assert!(
        NAMESPACE_LEN_MAX + OWNER_LEN_MAX + CREDENTIALS_LEN_MAX + 64 <= FRAME_LEN_BEFORE_HELLO_MAX,
        "the largest HELLO fits the limit that holds before it"
    );
    let listed_lock_max = 64 + KEY_LEN_MAX + OWNER_LEN_MAX + METADATA_LEN_MAX + REQUEST_ID_LEN_MAX;
    assert!(LIST_PAGE_BYTES_MAX + listed_lock_max <= FRAME_LEN_MAX, "a page may end with the largest item");
    assert!(INSPECT_HOLDERS_MAX * (64 + OWNER_LEN_MAX) <= FRAME_LEN_MAX);
};
