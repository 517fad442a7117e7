//! Every limit of the edge in one place: what one connection, one session and one server may take.

use waymaker_engine::limits as engine;
use waymaker_protocol::limits as wire;

/// Bytes of answers at which the server stops reading from a connection.
pub const OUTPUT_LEN_PAUSE: usize = 256 << 10;
/// Bytes of answers at which questions with long answers are refused. Reading has paused long before; so many answers at
/// once come only from requests that others served meanwhile.
pub const OUTPUT_LEN_REFUSE: usize = 2 * OUTPUT_LEN_PAUSE;
/// Bytes of answers at which the server closes a connection: events keep coming although it does not read. The longest
/// answer has room behind whatever was there before it.
pub const OUTPUT_LEN_MAX: usize = OUTPUT_LEN_REFUSE + wire::FRAME_LEN_MAX;
/// Most connections that `--limits-connections` allows. No process has more descriptors.
pub const CONNECTIONS_SET_MAX: u32 = 1_000_000;
/// Bounds of the times that operators set for a handshake, `HELLO`, a frame and a write. The least is one look of the server.
pub const TIMEOUT_MIN_MS: u64 = HOUSEKEEPING_MS;
/// See [`TIMEOUT_MIN_MS`].
pub const TIMEOUT_MAX_MS: u64 = 600_000;
/// Bounds of the time between two `PING`s that operators set.
pub const PING_SET_MIN_MS: u64 = 1_000;
/// See [`PING_SET_MIN_MS`].
pub const PING_SET_MAX_MS: u64 = 600_000;
/// Bounds of the times that operators set for idle sessions and namespaces.
pub const IDLE_MIN_MS: u64 = 1_000;
/// See [`IDLE_MIN_MS`].
pub const IDLE_MAX_MS: u64 = 86_400_000;
/// Bounds of the bytes that operators set for all lists without pages.
pub const LISTS_LEN_SET_MIN: u32 = 1 << 20;
/// See [`LISTS_LEN_SET_MIN`].
pub const LISTS_LEN_SET_MAX: u32 = 1 << 30;
/// Most waiting acquires of one connection that operators set. The engine links no more claims to one lane.
pub const WAITING_SET_MAX: u32 = 100_000;
/// Acquires of one connection that may wait in queues. Other requests are bounded by `IN_FLIGHT_MAX` of the wire.
pub const WAITING_MAX: u32 = 10_000;
/// Requests of one connection in flight that all shards serve, such as `FREEZE`. If a worker has the turn of a shard, others leave them
/// there, in front of later requests of other clients.
pub const EVERYWHERE_IN_FLIGHT_MAX: u32 = 16;
/// Namespaces that one page of NAMESPACES skips because its client may not list them. Each is compared with the rules of the client.
pub(crate) const HIDDEN_NAMESPACES_PER_PAGE_MAX: usize = 256;
/// Cost of a request that counts as long.
pub const LONG_COST_MIN: usize = BATCH_COST_MAX / 4;
/// Cost of the requests of one connection that wait for the turn of a shard. Above it, long requests are refused. Ends of leases in that shard
/// come after them.
pub const LEFT_COST_MAX: u32 = 8 << 10;
/// Cost of the batches that one worker serves for others before it passes the turn on to the next worker. The last batch may exceed it.
pub const SERVED_COST_MAX: usize = 2 * BATCH_COST_MAX;
/// Cost of the requests that are served together, in acquires of one key. After each batch the worker measures the output, and asks
/// whether the time of the connection is used up.
pub const BATCH_COST_MAX: usize = 256;
/// Events for watchers after which no further request of a batch is served: the rest of it counts as a batch of its own. One request says
/// up to 1,024.
pub const TOLD_PER_BATCH_MAX: u32 = 1024;
/// Time for which a worker serves one connection before its other connections have their turn, in microseconds. The last batch may
/// exceed it.
pub const TURN_US: u64 = 250;
/// The scratch buffer that a worker reads into, in bytes.
pub const READ_LEN_MAX: usize = 64 << 10;
/// Overhead of an encryption after which a read ends, in bytes. Changes of its keys have hardly any other bytes, and take 80 µs for each KiB (AMD
/// EPYC, 2026-11-26).
pub const TLS_OVERHEAD_PER_READ: usize = 8 << 10;
/// Most bytes of the configuration file.
pub const CONFIG_FILE_LEN_MAX: u64 = 1 << 20;
/// Time for which a worker ends leases and does other work left over before its connections have their turns, in microseconds. It is
/// longer than the turn of a connection, so a client cannot begin more leases than end.
pub const WORK_US: u64 = 500;
/// Time of a worker that a sweep grants a connection with much to read, in microseconds: enough for many times the requests that may be
/// in flight. After that leases end although the connection has not caught up.
pub const SWEEP_TURNS_US: u64 = 5_000;
/// The same for a connection of a front end. One such connection may renew hundreds of leases, each with a request of its own.
pub const FRONT_SWEEP_TURNS_US: u64 = 10_000;
/// How long an encrypted connection may take to shake hands.
pub const TLS_HANDSHAKE_MS: u64 = 5_000;
/// How long a new connection may take to say `HELLO`.
pub const HELLO_MS: u64 = 5_000;
/// How long a frame that was begun may take to arrive whole.
pub const FRAME_MS: u64 = 10_000;
/// How long a connection may take none of what is written to it.
pub const WRITE_MS: u64 = 10_000;
/// Silence of a connection after which the server sends `PING`, and then the time between two of them. Only clients with the
/// capability are pinged.
pub const PING_MS: u64 = 15_000;
/// Unanswered `PING`s in a row after which the server closes a connection.
pub const PINGS_MISSED_MAX: u8 = 3;
/// How often connections are looked at for the limits above.
pub const HOUSEKEEPING_MS: u64 = 500;
/// What the kernel may buffer for one connection, in bytes. Left alone it grows to megabytes for one that never reads.
pub const SEND_BUFFER_LEN: usize = 256 << 10;
/// The lease of a session that asks for 0.
pub const SESSION_LEASE_DEFAULT_MS: u32 = 10_000;
/// The shortest lease of a session.
pub const SESSION_LEASE_MIN_MS: u32 = 100;
/// The longest lease of a session; longer ones are clamped.
pub const SESSION_LEASE_MAX_MS: u32 = 86_400_000;
/// How long a session lives that has no connection, no hold and no waiter, if its lease is longer. Such sessions would otherwise keep others
/// out for as long as the longest lease.
pub const SESSION_VACANT_MS: u64 = 60_000;
/// How many lanes of ended sessions a worker closes in shards before it does other work. A lane that several shards know counts several times.
pub const LANE_ENDS_PER_TURN: usize = 256;
/// Lanes of vacant sessions that a worker has looked up before it does other work. Each shard looks up all lanes of a session.
pub const VACANT_LANES_PER_TURN: usize = 256;
/// Namespaces that one gRPC connection uses through `waymaker.v1`: each is two lanes.
pub const GRPC_NAMESPACES_MAX: usize = 64;
/// Connections whose identity a worker looks at in one step, to see whether it still holds.
pub(crate) const REAUTHORIZED_PER_STEP_MAX: u32 = 32;
/// Prefixes of rules, and quotas, that are compared meanwhile. The last connection may exceed it.
pub(crate) const COMPARED_PER_STEP_MAX: usize = 1024;
/// Identities that may make calls on one gRPC connection.
pub(crate) const GRPC_IDENTITIES_MAX: usize = 64;
/// Streams of one gRPC connection that have a lane of their own: watches, and acquires that end with their stream.
pub const GRPC_OWN_LANES_MAX: usize = 1024;
/// Bytes that a gRPC connection must have sent within [`HELLO_MS`]: what HTTP/2 begins with and the head of its first frame.
pub const GRPC_GREETING_LEN: usize = 33;
/// The same of an HTTP connection: its shortest request line.
pub const HTTP_GREETING_LEN: usize = 16;
/// Events of a watch that a front end keeps for a client that does not read them.
pub const FRONT_WATCH_BACKLOG_MAX: usize = 256;
/// Bytes that a connection of a front end reads at once. After each read its time is measured: they may be dozens of requests.
pub const FRONT_READ_LEN_MAX: usize = 1 << 10;
/// Bytes of a connection of a front end that are served as soon as they are read. Fewer wait until other connections have read: requests take less
/// time together.
pub const FRONT_BATCH_LEN: usize = 512;
/// Bytes that a connection of a front end reads in one turn: some hundred of the smallest frames, each of which is work.
pub const FRONT_TURN_LEN: usize = 4 << 10;
/// Turns of a gRPC connection in a row that may go by without reading and writing, because its requests use all of them.
pub const GRPC_TURNS_UNREAD_MAX: u32 = 16;
/// Streams that are open at once on one gRPC connection: a held lock is one, so it must not keep its own release out.
pub const GRPC_STREAM_COUNT_MAX: u32 = 100_000;
/// Bytes that one stream of a gRPC connection may send ahead.
pub const GRPC_STREAM_WINDOW_LEN: u32 = 64 << 10;
/// Bytes that all streams of a gRPC connection together may send ahead.
pub const GRPC_CONNECTION_WINDOW_LEN: u32 = 1 << 20;
/// Bytes of one HTTP/2 frame.
pub const GRPC_FRAME_LEN_MAX: u32 = 16 << 10;
/// Bytes of the headers of one request.
pub const GRPC_HEADERS_LEN_MAX: u32 = 16 << 10;
/// Bytes of one gRPC message from a client: as many keys of a batch as there may be, each as long as it may be, fit.
pub const GRPC_MESSAGE_LEN_MAX: usize = 2 << 20;
/// Bytes of one list of a contract without pages (`ListAcquiredLocks`, `FetchAll`): a million locks with short names fit.
pub const LIST_LEN_MAX: usize = 128 << 20;
/// Bytes of all such lists of a server that are being made or that clients have not taken.
pub const LISTS_LEN_MAX: usize = 2 * LIST_LEN_MAX;
/// How long such a list is kept for its client although another list needs its room.
pub const LIST_KEPT_MS: u64 = 30_000;
/// Locks in one page of such a list: the connection has time left in its turn to read on.
pub const LIST_PAGE_COUNT: u16 = 256;
/// Requests of one gRPC connection that have begun and did not arrive whole yet.
pub const GRPC_AWAITED_MAX: usize = 1024;
/// Bytes of these requests.
pub const GRPC_AWAITED_LEN_MAX: usize = 8 << 20;
/// Pages of lists that one gRPC connection has begun and its client has not taken. The calls for more wait.
pub const GRPC_PAGES_MAX: usize = 16;
/// Calls of lists that wait until others of the same gRPC connection were taken. More are refused.
pub const GRPC_LONG_WAITING_MAX: usize = 1024;
/// Bytes of answers that the client of one gRPC connection has not taken. Beyond it calls are refused.
pub const GRPC_UNTAKEN_LEN_MAX: usize = 8 << 20;
/// Bytes of such an answer that leave at once: the library takes all of them as soon as the client takes one.
pub const GRPC_PIECE_LEN: usize = 1 << 10;
/// Length of a message whose encoder keeps little memory.
pub const GRPC_SHORT_LEN: usize = 256;
/// Calls of health and reflection that are open at once on one gRPC connection.
pub const GRPC_SIDE_CALLS_MAX: usize = 16;
/// Streams that a client has reset and that were not looked at yet.
pub const GRPC_PENDING_RESETS_MAX: usize = 20;
/// Streams that the server has reset because of errors of the client.
pub const GRPC_LOCAL_RESETS_MAX: usize = 128;
/// How often a gRPC connection is asked for a sign of life, and how long that may take.
pub const GRPC_PING_MS: u64 = 10_000;
/// How long an HTTP connection may take for the head of its next request, idle or in the middle of it.
pub const HTTP_HEAD_MS: u64 = 10_000;
/// How long an HTTP connection of a DynamoDB client may take for the head of its next request. SDKs keep idle connections for 90 seconds.
pub const DYNAMODB_HEAD_MS: u64 = 100_000;
/// Bytes that an HTTP connection buffers, and so the longest head of a request.
pub const HTTP_BUFFER_LEN: usize = 8 << 10;
/// Bytes of a long answer that an HTTP connection sends at once.
pub const HTTP_PIECE_LEN: usize = 16 << 10;
/// Requests of HTTP/1 that a connection begins in one turn. After 16 of them the library ends the turn by itself, but has its task run again
/// before the sockets of others are looked at.
pub const HTTP_REQUESTS_PER_TURN: u32 = 8;
/// Most tables that clients of DynamoDB create.
pub const DYNAMODB_TABLES_MAX: usize = 1_000;
/// Bytes that a WebSocket buffers while nothing longer comes.
pub const WEBSOCKET_BUFFER_LEN: usize = 1 << 10;
/// Bytes of answers to pings that a WebSocket keeps for a client that does not read them; there is room for an answer more.
pub const WEBSOCKET_OUTPUT_LEN_MAX: usize = 64 << 10;
/// How often a WebSocket is asked for a sign of life.
pub const WEBSOCKET_PING_MS: u64 = 15_000;
/// Pings without any answer after which a WebSocket is given up.
pub const WEBSOCKET_PINGS_MISSED_MAX: u32 = 2;
/// How long a WebSocket that the server closes may take to read why.
pub const WEBSOCKET_LINGER_MS: u64 = 1_000;
/// Bytes that are read from it meanwhile and thrown away, so that the last words arrive.
pub const WEBSOCKET_LINGER_LEN_MAX: u64 = 1 << 20;
/// Sessions of one server, a like share for each worker: they outlive their connections, so nothing else bounds them.
pub const SESSION_COUNT_MAX: usize = 1 << 17;
/// Bytes of long answers that a lane of a session keeps for repetitions, such as grants of many keys.
pub const WINDOW_LEN_MAX: usize = 4 << 20;
/// Bytes of long answers that a session keeps in all of its lanes.
pub const SESSION_ANSWERS_LEN_MAX: usize = 16 << 20;
/// Connections of one session.
pub const LANES_PER_SESSION_MAX: usize = 64;
/// How far a timestamp of a client, by which it wants to be served, may be from the server's clock, in microseconds.
pub const TIMESTAMP_SKEW_MAX_US: u64 = 3_600_000_000;
/// Bytes of records for which a batch for the log has room at first: a grant, or some releases.
pub(crate) const LOG_BATCH_LEN: usize = 256;
/// Rows of the counts of acquires in one worker, after which it drops the rows that no connection uses. Each namespace has a row for each front
/// end.
pub(crate) const ACQUIRE_ROW_COUNT_MAX: usize = 2 * NAMESPACE_COUNT_MAX;
/// Namespaces of one server, beside the built-in ones.
pub const NAMESPACE_COUNT_MAX: usize = 4096;
/// Namespaces that a configuration may declare.
pub const DECLARED_NAMESPACE_COUNT_MAX: usize = 1024;
/// Idle time after which the server checks whether a namespace is empty and can be removed.
pub const NAMESPACE_IDLE_MS: u64 = 60_000;
/// How often the server looks which namespaces are idle.
pub const NAMESPACE_LOOK_MS: u64 = 5_000;
/// Namespaces that one such look removes: all of them, so that shards go through their keys once.
pub const NAMESPACE_REMOVALS_MAX: usize = NAMESPACE_COUNT_MAX;
/// Removals that operators wait for, while the shards look for others.
pub const NAMESPACE_REMOVALS_WANTED_MAX: usize = 1024;
/// Bytes of records after which a group of the log is closed: what arrives later is the next one.
pub const LOG_GROUP_LEN_MAX: usize = 256 * 1024;
/// How long after the last frame of the log one follows that says it to be durable.
pub const LOG_IDLE_MS: u64 = 500;
/// Full segments of the log that are folded into a snapshot together.
pub const LOG_COMPACT_SEGMENT_COUNT: u64 = 2;
/// How long after a failure old segments are folded again, unless room is reported or a segment becomes full before.
pub const LOG_COMPACT_RETRY_MS: u64 = 60_000;
/// How long the log waits between two groups while the disk is full, so that what is set aside lasts.
pub const LOG_NO_SPACE_PACE_MS: u64 = 50;
/// How long frames for which the disk has no room wait until they are tried again, unless room is reported before.
pub const LOG_NO_ROOM_RETRY_MS: u64 = 1_000;
/// How often the log looks whether a full disk has room again.
pub const LOG_LOOK_MS: u64 = 1_000;
/// How long a server that stops waits for room in its log before it ends without.
pub const LOG_STOP_GRACE_MS: u64 = 1_000;
/// How long the workers of a server whose log failed get to say so to all who wait, before the process ends.
pub const LOG_LAST_WORDS_MS: u64 = 300;
/// A sync that takes longer is written down.
pub const LOG_SLOW_MS: u64 = 1_000;
/// While a sync takes longer nothing new that is durable is granted.
pub const LOG_STALLED_MS: u64 = 10_000;
/// Within this time a claim of scope Quorum is counted by the cluster, or refused.
pub const QUORUM_ANSWER_MS: u64 = 1_800;
/// Within this time one member of the cluster has answered, or another one is asked.
pub const QUORUM_ATTEMPT_MS: u64 = 500;
/// How long nothing is asked after a failure: an election takes a while, and is answered at once.
pub const QUORUM_RETRY_MS: u64 = 25;
/// How often a cluster that does not answer is looked at.
pub const QUORUM_PROBE_MS: u64 = 250;
/// The same if the cluster does not accept the user, at most.
pub const QUORUM_PROBE_MAX_MS: u64 = 30_000;
/// Transactions in flight to the cluster.
pub const QUORUM_TRANSACTION_COUNT_MAX: usize = 4;
/// Workers of one server: their number has to fit beside a "no preference".
pub const WORKER_COUNT_MAX: usize = 1024;
/// File descriptors kept free of connections, for logs and whoever comes to look.
pub const SPARE_DESCRIPTORS: u64 = 128;
/// Connections that the port for HTTP, and as many that the Unix socket may have at once beyond the limit of connections, out of
/// [`SPARE_DESCRIPTORS`]. So a full server answers questions about health and metrics, and lets operators in.
pub const RESERVED_CONNECTION_COUNT_MAX: usize = 16;
/// How long such a connection of the port for HTTP may last: it is answered once, and another client needs its place.
pub const RESERVED_CONNECTION_MS: u64 = 5_000;
/// How long it may take for the head of its request.
pub const RESERVED_HEAD_MS: u64 = 1_000;
/// Connections that a full server refuses before it rests for [`REFUSALS_REST_MS`]: whoever connects over and over must not
/// keep it busy.
pub const REFUSALS_PER_REST: u32 = 32;
/// How long it rests then.
pub const REFUSALS_REST_MS: u64 = 10;
/// Source addresses whose connections are counted for the limits per address.
pub const TRACKED_ADDRESS_COUNT_MAX: usize = 1 << 16;
/// Time within which failed logins of a source address count together.
pub const LOGIN_SERIES_MS: u64 = 1_000;
/// First pause of a source address with too many failed logins. Each further pause is twice as long.
pub const LOGIN_PAUSE_MIN_MS: u64 = 1_000;
/// The longest such pause.
pub const LOGIN_PAUSE_MAX_MS: u64 = 60_000;
/// Time without a failed login after which the server forgets the failures of a source address.
pub const LOGIN_QUIET_MS: u64 = 600_000;
/// Source addresses whose failed logins are counted.
pub const FAILING_ADDRESS_COUNT_MAX: usize = 1 << 16;
/// How often the server looks whether files changed that it reads again, such as certificates. A change takes effect after two looks.
pub const RELOAD_LOOK_MS: u64 = 2_000;
/// Longest time between two notices for the supervisor. A watchdog with less than four times this time shortens it.
pub const SUPERVISOR_LOOK_MS: u64 = 1_000;
/// Notices for the supervisor that wait for the thread that sends them.
pub const SUPERVISOR_NOTICES_MAX: usize = 16;
/// Longest time between two looks whether new grants are served again.
pub const RECOVERY_LOOK_MS: u64 = 1_000;
/// Lines of the audit log that wait for the thread that writes them.
pub const AUDIT_LINE_COUNT_MAX: usize = 4096;
/// Bytes of these lines.
pub const AUDIT_QUEUE_LEN_MAX: usize = 4 << 20;
/// Lines of one act in each second. More are dropped and counted.
pub const AUDIT_LINES_PER_S_MAX: u32 = 1000;
/// Time between two lines that report dropped lines, in milliseconds.
pub const AUDIT_REPORT_MS: u64 = 1000;
/// Time for which a stopping server waits until the audit log is written, in milliseconds.
pub const AUDIT_STOP_MS: u64 = 2000;
/// Characters of a key in a span.
pub const SPAN_KEY_CHARS_MAX: usize = 128;
/// Open spans of a worker, each below 2 KiB. Acquires beyond have no span. All of them may end at once, with one connection.
pub const SPAN_OPEN_COUNT_MAX: usize = 1024;
/// Ended spans that wait for the thread that exports them.
pub const SPAN_QUEUE_COUNT_MAX: usize = 8192;
/// Spans of one request to the collector.
pub const SPAN_BATCH_COUNT_MAX: usize = 512;
/// Time between two looks at the queue of spans, in milliseconds.
pub const SPAN_PAUSE_MS: u64 = 200;
/// Time until the collector has to accept a batch, in milliseconds.
pub const SPAN_EXPORT_MS: u64 = 5_000;
/// Shortest and longest time between two attempts to reach a collector that fails, in milliseconds. It doubles with each failure.
pub const SPAN_RETRY_MIN_MS: u64 = 1_000;
/// See [`SPAN_RETRY_MIN_MS`].
pub const SPAN_RETRY_MAX_MS: u64 = 30_000;
/// Characters of a text of the collector that go to the log.
pub const SPAN_PROBLEM_CHARS_MAX: usize = 200;
/// Time for which a stopping server tries to export the last spans, in milliseconds.
pub const SPAN_STOP_MS: u64 = 2_000;
/// Events of one poll of the operating system.
pub const EVENTS_PER_POLL: usize = 4096;

const _: () = {
    assert!(
        wire::KEY_LEN_MAX == engine::KEY_LEN_MAX,
        "the engine accepts every key that the wire format accepts"
    );
    assert!(wire::OWNER_LEN_MAX == engine::OWNER_LEN_MAX);
    assert!(wire::REQUEST_ID_LEN_MAX == engine::REQUEST_ID_LEN_MAX);
    assert!(wire::METADATA_LEN_MAX == engine::METADATA_LEN_MAX);
    assert!(wire::INSPECT_HOLDERS_MAX == engine::INSPECT_HOLDER_COUNT_MAX);
    assert!(
        wire::INSPECT_HOLDERS_MAX == wire::DESCRIBE_LISTED_MAX,
        "INSPECT and DESCRIBE_POOL list the same number of holders"
    );
    assert!(LOGIN_QUIET_MS > LOGIN_PAUSE_MAX_MS, "a pause is never forgotten before its end");
    assert!(4 * WORKER_COUNT_MAX <= engine::SHARD_COUNT_MAX);
};
