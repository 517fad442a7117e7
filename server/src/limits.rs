//! Limits of the server: bounds for a connection, a session and the whole server. Modules define further limits that
//! only they use.

use waymaker_engine::limits as engine;
use waymaker_protocol::limits as wire;

/// Unsent output at which the server stops reading from a connection and drops events of its watches, in bytes.
pub const OUTPUT_LEN_PAUSE: usize = 256 << 10;
/// Unsent output at which the server sends a refusal instead of a long response, in bytes. Reading pauses at half of
/// it, so the further output comes from requests that were read before, such as those that other workers serve, and
/// from events.
pub const OUTPUT_LEN_REFUSE: usize = 2 * OUTPUT_LEN_PAUSE;
/// Unsent output above which the server closes a connection, in bytes. Events continue after requests are refused, even
/// if the client does not read. The longest response to an accepted request fits below it.
pub const OUTPUT_LEN_MAX: usize = OUTPUT_LEN_REFUSE + wire::FRAME_LEN_MAX;
/// Maximum of `--limits-connections`. It is just below the default limit of Linux for the file descriptors of one
/// process, 1,048,576.
pub const CONNECTIONS_SET_MAX: u32 = 1_000_000;
/// Minimum of the configured timeouts for a handshake, `HELLO`, a frame and a write, in milliseconds. It equals the
/// interval at which workers check most of these timeouts.
pub const TIMEOUT_MIN_MS: u64 = HOUSEKEEPING_MS;
/// Maximum of the configured timeouts for a handshake, `HELLO`, a frame and a write, in milliseconds.
pub const TIMEOUT_MAX_MS: u64 = 600_000;
/// Minimum of the configured interval of `PING`, in milliseconds.
pub const PING_SET_MIN_MS: u64 = 1_000;
/// Maximum of the configured interval of `PING`, in milliseconds.
pub const PING_SET_MAX_MS: u64 = 600_000;
/// Minimum of the configured idle times of sessions and namespaces, in milliseconds.
pub const IDLE_MIN_MS: u64 = 1_000;
/// Maximum of the configured idle times of sessions and namespaces, in milliseconds.
pub const IDLE_MAX_MS: u64 = 86_400_000;
/// Minimum of the configured memory for all lists without pages (whole lists in one response), in bytes.
pub const LISTS_LEN_SET_MIN: u32 = 1 << 20;
/// Maximum of the configured memory for all lists without pages (whole lists in one response), in bytes.
pub const LISTS_LEN_SET_MAX: u32 = 1 << 30;
/// Maximum of the configured number of waiting acquires of one connection. The engine links no more claims to one lane.
pub const WAITING_SET_MAX: u32 = 100_000;
/// Default of `--limits-waiters-per-connection`: maximum number of acquires of one connection that wait in queues.
/// `IN_FLIGHT_MAX` of the protocol bounds other requests.
pub const WAITING_MAX: u32 = 10_000;
/// Maximum number of unanswered requests of one connection that all shards serve, such as `FREEZE`. While a worker has
/// the turn of a shard, other workers queue such requests at the shard. They delay later requests of other clients.
pub const EVERYWHERE_IN_FLIGHT_MAX: u32 = 16;
/// Maximum number of namespaces that one page of `NAMESPACES` skips because the client may not list them. The bound is
/// needed because the server compares each skipped namespace with the client's rules.
pub(crate) const HIDDEN_NAMESPACES_PER_PAGE_MAX: usize = 256;
/// Cost from which a request counts as long, in the unit of [`BATCH_COST_MAX`]. If requests of a connection with the
/// total cost [`LEFT_COST_MAX`] wait for shards, the server refuses its further long requests, except those that end or
/// extend one claim.
pub const LONG_COST_MIN: usize = BATCH_COST_MAX / 4;
/// Limit on the total cost of one connection's requests that wait for turns of shards. At the limit, the server refuses
/// further requests of [`LONG_COST_MIN`] or more, except those that end or extend one claim. A shard serves waiting
/// requests before it expires leases, so waiting requests delay the expiry.
pub const LEFT_COST_MAX: u32 = 8 << 10;
/// Maximum cost of the other workers' batches that a worker serves in one turn of a shard. After that, it passes the
/// turn to the next worker, unless the server is about to end. The last batch may exceed the maximum.
pub const SERVED_COST_MAX: usize = 2 * BATCH_COST_MAX;
/// Cost at which a batch (requests that are served together) ends. The unit is an acquire of one key. The last request
/// may exceed the cost. After each batch the worker measures the output and checks the connection's time.
pub const BATCH_COST_MAX: usize = 256;
/// Number of events for watchers from which a batch ends; its remaining requests become another batch. The worker
/// compares the number after every few requests, so a batch may exceed it.
pub const TOLD_PER_BATCH_MAX: u32 = 1024;
/// Maximum time that a worker serves one connection before it serves the others, in microseconds. The last batch may
/// exceed it.
pub const TURN_US: u64 = 250;
/// Length of the buffer that a worker reads into, in bytes.
pub const READ_LEN_MAX: usize = 64 << 10;
/// TLS overhead (bytes that are not payload) after which one read of a connection ends, in bytes. Key updates are
/// nearly all overhead and take 80 µs per KiB (AMD EPYC, 2026-11-26).
pub const TLS_OVERHEAD_PER_READ: usize = 8 << 10;
/// Maximum length of the configuration file, in bytes.
pub const CONFIG_FILE_LEN_MAX: u64 = 1 << 20;
/// Time after which a worker that expires leases or does other deferred work serves connections, in microseconds. It is
/// longer than the turn of a connection, so that a client cannot start leases faster than they expire.
pub const WORK_US: u64 = 500;
/// Maximum total time of the turns that a worker gives one connection while it reads all sockets before leases expire,
/// in microseconds. The time suffices for many times the requests in flight. When the time is used up, leases expire
/// although the connection has unread input.
pub const SWEEP_TURNS_US: u64 = 5_000;
/// Maximum total time of the turns that a worker gives one front-end connection while it reads all sockets before
/// leases expire, in microseconds. Such a connection may renew hundreds of leases, each with its own request. So it
/// gets more time than other connections ([`SWEEP_TURNS_US`]).
pub const FRONT_SWEEP_TURNS_US: u64 = 10_000;
/// Default of `--limits-tls-handshake`: timeout of a TLS handshake, in milliseconds.
pub const TLS_HANDSHAKE_MS: u64 = 5_000;
/// Default of `--limits-hello`: time within which a new connection must send `HELLO`, or the first bytes of gRPC or
/// HTTP, in milliseconds.
pub const HELLO_MS: u64 = 5_000;
/// Default of `--limits-frame`: time within which a frame, gRPC request or WebSocket message that has begun must be
/// complete, in milliseconds.
pub const FRAME_MS: u64 = 10_000;
/// Default of `--limits-write`: time after which the server closes a connection that accepts no output, in
/// milliseconds.
pub const WRITE_MS: u64 = 10_000;
/// Default of `--limits-ping`: silence of a connection after which the server sends `PING`, and the interval of further
/// `PING`s, in milliseconds. The server sends `PING` only to clients that have announced that they answer it.
pub const PING_MS: u64 = 15_000;
/// Number of consecutive unanswered `PING`s after which the server closes a connection.
pub const PINGS_MISSED_MAX: u8 = 3;
/// Interval at which a worker checks its connections for the timeouts of `HELLO`, a frame, a write and `PING`, in
/// milliseconds. At the same interval it publishes metrics.
pub const HOUSEKEEPING_MS: u64 = 500;
/// Length that the server sets for the kernel's send buffer of one TCP connection, in bytes. Linux doubles it. Without
/// this setting the kernel lets the buffer grow to megabytes if the client never reads.
pub const SEND_BUFFER_LEN: usize = 256 << 10;
/// Default of `--limits-session-lease-default`: lease of a session that requests 0, in milliseconds.
pub const SESSION_LEASE_DEFAULT_MS: u32 = 10_000;
/// Shortest lease that a client may request for a session, in milliseconds; 0 requests the default.
pub const SESSION_LEASE_MIN_MS: u32 = 100;
/// Default and upper bound of `--limits-session-lease-max`: longest lease of a session, in milliseconds. The server
/// grants it to clients that request a longer one.
pub const SESSION_LEASE_MAX_MS: u32 = 86_400_000;
/// Default of `--limits-session-idle`: time without a connection after which the server ends a session that has no
/// claim, in milliseconds. If the session still has a claim, the server checks it again after the same time. Without
/// this limit such sessions could use up the maximum number of sessions for the longest lease.
pub const SESSION_VACANT_MS: u64 = 60_000;
/// Maximum number of lanes of ended sessions that a worker closes in shards before it does other work. A lane counts
/// once for each shard in which the worker closes it, and once at its end.
pub const LANE_ENDS_PER_TICK: usize = 256;
/// Number of lanes of vacant sessions (sessions without a connection) after which a worker stops asking shards for
/// their claims and does other work. The lanes of a session count once for each shard that is asked, a session without
/// lanes as one lane.
pub const VACANT_LANES_PER_TICK: usize = 256;
/// Maximum number of namespaces that one identity uses through `waymaker.v1` on one gRPC connection. Each takes two
/// lanes.
pub const GRPC_NAMESPACES_MAX: usize = 64;
/// Maximum number of lanes that a worker looks at in one step of verifying identities again.
pub(crate) const REAUTHORIZED_PER_STEP_MAX: u32 = 32;
/// Maximum number of rule prefixes and quotas that a worker compares in one step of verifying identities again. The
/// last connection may exceed it.
pub(crate) const COMPARED_PER_STEP_MAX: usize = 1024;
/// Maximum number of identities that have made calls on one gRPC connection, without expired and revoked ones.
pub(crate) const GRPC_IDENTITIES_MAX: usize = 64;
/// Maximum number of streams with their own lane that one identity has on one gRPC connection: watches, and acquires
/// with `release_after_ms`.
pub const GRPC_OWN_LANES_MAX: usize = 1024;
/// Number of bytes that a gRPC connection must have sent within the timeout of `HELLO`: the HTTP/2 preface and the head
/// of its first frame.
pub const GRPC_GREETING_LEN: usize = 33;
/// Number of bytes that an HTTP connection must have sent within the timeout of `HELLO`: the shortest request line.
pub const HTTP_GREETING_LEN: usize = 16;
/// Number of unread replies of one watch at which a front end drops further events. One `OVERRUN` event replaces them.
pub const FRONT_WATCH_BACKLOG_MAX: usize = 256;
/// Maximum length of one read from a front-end connection, in bytes. The server checks before each read whether the
/// time of the connection's turn is used up. One read may have dozens of requests, so with longer reads the turn would
/// exceed its time by more.
pub const FRONT_READ_LEN_MAX: usize = 1 << 10;
/// Length of input from which the requests of a front-end connection are served immediately, in bytes. After shorter
/// input, other connections read first. Serving the requests of many connections together takes less time.
pub const FRONT_BATCH_LEN: usize = 512;
/// Maximum input that a front-end connection reads in one turn, in bytes: some hundred of the smallest frames. If the
/// socket is then empty, one more read is allowed.
pub const FRONT_TURN_LEN: usize = 4 << 10;
/// Number of consecutive turns in which a gRPC connection may skip reading and writing because its requests take all
/// the time. The next turn reads and writes first.
pub const GRPC_TURNS_UNREAD_MAX: u32 = 16;
/// Default and upper bound of `--limits-grpc-streams`: maximum number of open streams of one gRPC connection. A held
/// lock can keep a stream open. The limit is high so that streams remain for the requests that release the locks.
pub const GRPC_STREAM_COUNT_MAX: u32 = 100_000;
/// Flow-control window of one gRPC stream, in bytes.
pub const GRPC_STREAM_WINDOW_LEN: u32 = 64 << 10;
/// Flow-control window of all streams of a gRPC connection, in bytes.
pub const GRPC_CONNECTION_WINDOW_LEN: u32 = 1 << 20;
/// Maximum length of an HTTP/2 frame, in bytes.
pub const GRPC_FRAME_LEN_MAX: u32 = 16 << 10;
/// Maximum length of the headers of one request, in bytes.
pub const GRPC_HEADERS_LEN_MAX: u32 = 16 << 10;
/// Maximum length of one gRPC message from a client, in bytes. An acquire of the maximum number of keys of the maximum
/// length fits.
pub const GRPC_MESSAGE_LEN_MAX: usize = 2 << 20;
/// Maximum length of one list of a contract without pages (`ListAcquiredLocks`, `FetchAll`), in bytes. A million locks
/// with short names fit.
pub const LIST_LEN_MAX: usize = 128 << 20;
/// Default of `--limits-lists-memory`: maximum total length of all lists without pages that the server builds or that
/// clients have not read, in bytes.
pub const LISTS_LEN_MAX: usize = 2 * LIST_LEN_MAX;
/// Age from which the server may drop a list without pages (a whole list in one response), in milliseconds. The server
/// does so only if another list needs the memory, but also while the client still reads the list.
pub const LIST_KEPT_MS: u64 = 30_000;
/// Maximum number of locks or registrations in one step of building a list without pages. A step is short, so that the
/// connection can also read in the same turn.
pub const LIST_PAGE_COUNT: u16 = 256;
/// Maximum number of requests of one gRPC connection whose messages have not arrived completely.
pub const GRPC_AWAITED_MAX: usize = 1024;
/// Maximum length of the parts that have arrived of all incomplete requests of one gRPC connection, in bytes.
pub const GRPC_AWAITED_LEN_MAX: usize = 8 << 20;
/// Maximum number of pages and other long responses of one gRPC connection that its client has not read. Further calls
/// of this kind wait until the client has read one. Whole lists have a limit of one instead.
pub const GRPC_PAGES_MAX: usize = 16;
/// Maximum number of list calls of one gRPC connection that wait until the client has read earlier lists or pages. The
/// server refuses further calls.
pub const GRPC_LONG_WAITING_MAX: usize = 1024;
/// Length of unread single-message responses of one gRPC connection from which calls are refused, in bytes.
pub const GRPC_UNTAKEN_LEN_MAX: usize = 8 << 20;
/// Length of one piece of an unread gRPC response, in bytes. The HTTP/2 library takes a whole piece as soon as the
/// client reads anything.
pub const GRPC_PIECE_LEN: usize = 1 << 10;
/// Length up to which an unread gRPC message stays in the buffer of its encoder, in bytes. Longer messages are copied,
/// because their encoder may keep far more memory.
pub const GRPC_SHORT_LEN: usize = 256;
/// Maximum number of open calls of health and reflection on one gRPC connection.
pub const GRPC_SIDE_CALLS_MAX: usize = 16;
/// Maximum number of streams of a connection that the client has reset and that the server has not processed yet.
/// Beyond it, the HTTP/2 library closes the connection.
pub const GRPC_PENDING_RESETS_MAX: usize = 20;
/// Maximum number of streams of a connection that the server has reset because of errors of the client. Beyond it, the
/// HTTP/2 library closes the connection.
pub const GRPC_LOCAL_RESETS_MAX: usize = 128;
/// Interval of pings on a gRPC connection, and timeout of their answer, in milliseconds.
pub const GRPC_PING_MS: u64 = 10_000;
/// Time for the head of the next request of an HTTP connection, idle time included, in milliseconds.
pub const HTTP_HEAD_MS: u64 = 10_000;
/// Time for the head of the next request of a DynamoDB client, idle time included, in milliseconds. SDKs keep idle
/// connections for 90 seconds.
pub const DYNAMODB_HEAD_MS: u64 = 100_000;
/// Length of the buffer of an HTTP connection, and so the longest head of a request, in bytes.
pub const HTTP_BUFFER_LEN: usize = 8 << 10;
/// Length of one piece of a long HTTP response, in bytes.
pub const HTTP_PIECE_LEN: usize = 16 << 10;
/// Number of HTTP/1 requests that a connection starts in one turn. Further requests wait until other connections have
/// had a turn. The limit of the HTTP library itself does not suffice: it pauses after 16 requests, but its task runs
/// again before the worker reads other connections.
pub const HTTP_REQUESTS_PER_TURN: u32 = 8;
/// Maximum number of tables that exist because DynamoDB clients created them. At the maximum, CreateTable is refused.
pub const DYNAMODB_TABLES_MAX: usize = 1_000;
/// Length of the read buffer of a WebSocket until a longer message arrives, in bytes.
pub const WEBSOCKET_BUFFER_LEN: usize = 1 << 10;
/// Maximum length of the output, such as pongs, that is buffered for a WebSocket whose client does not read, in bytes.
pub const WEBSOCKET_OUTPUT_LEN_MAX: usize = 64 << 10;
/// Interval of pings on a WebSocket, in milliseconds.
pub const WEBSOCKET_PING_MS: u64 = 15_000;
/// Number of pings after which the server closes a WebSocket if the client has sent no message in the meantime, not
/// even a pong.
pub const WEBSOCKET_PINGS_MISSED_MAX: u32 = 2;
/// Time that the client of a closing WebSocket has to read the close frame and to close its side, in milliseconds.
pub const WEBSOCKET_LINGER_MS: u64 = 1_000;
/// Maximum input that the server reads and discards while a WebSocket closes, in bytes. Unread input would reset the
/// connection, and the client might not get the close frame.
pub const WEBSOCKET_LINGER_LEN_MAX: u64 = 1 << 20;
/// Default and upper bound of `--limits-sessions`: maximum number of sessions of one server, with an equal share for
/// each worker. Sessions survive their connections, so no other limit bounds them.
pub const SESSION_COUNT_MAX: usize = 1 << 17;
/// Maximum total length of the long responses (such as grants of many keys) that a lane keeps for repeated requests, in
/// bytes.
pub const WINDOW_LEN_MAX: usize = 4 << 20;
/// Maximum total length of the long responses that all lanes of a session keep, in bytes.
pub const SESSION_ANSWERS_LEN_MAX: usize = 16 << 20;
/// Maximum number of lanes, and so of connections, of one session.
pub const LANES_PER_SESSION_MAX: usize = 64;
/// Maximum difference between the server's clock and the timestamp that orders a client's claim, in microseconds. A
/// timestamp with a larger difference is replaced by the nearest allowed one.
pub const TIMESTAMP_SKEW_MAX_US: u64 = 3_600_000_000;
/// Number of rows of acquire counters in one worker at which a new row first drops all rows without a connection. Each
/// namespace has a row for each front end through which it is used.
pub(crate) const ACQUIRE_ROW_COUNT_MAX: usize = 2 * NAMESPACE_COUNT_MAX;
/// Default and upper bound of `--limits-namespaces`: maximum number of namespaces of one server, without the built-in
/// and the declared ones.
pub const NAMESPACE_COUNT_MAX: usize = 4096;
/// Maximum number of namespaces that a configuration declares.
pub const DECLARED_NAMESPACE_COUNT_MAX: usize = 1024;
/// Default of `--limits-namespace-idle`: idle time after which the server checks whether a namespace is empty and can
/// be removed, in milliseconds.
pub const NAMESPACE_IDLE_MS: u64 = 60_000;
/// Interval of the check for idle namespaces, in milliseconds.
pub const NAMESPACE_LOOK_MS: u64 = 5_000;
/// Maximum number of namespaces that one check for idle namespaces removes: all of them, so that each shard scans its
/// keys only once.
pub const NAMESPACE_REMOVALS_MAX: usize = NAMESPACE_COUNT_MAX;
/// Maximum number of requests of operators to remove a namespace that wait while the shards check other namespaces.
/// Further requests are refused.
pub const NAMESPACE_REMOVALS_WANTED_MAX: usize = 1024;
/// Time for which the process of a failed log continues, so that workers can report the failure to their clients, in
/// milliseconds.
pub const LOG_LAST_WORDS_MS: u64 = 300;
/// Time within which the etcd cluster must count the fence of a claim of scope quorum, in milliseconds. After this time
/// the server refuses the claim.
pub const QUORUM_ANSWER_MS: u64 = 1_800;
/// Timeout of a request to one member of the etcd cluster, in milliseconds. The next request goes to another member.
pub const QUORUM_ATTEMPT_MS: u64 = 500;
/// Pause after a transaction that the etcd cluster did not answer or could not accept, in milliseconds. During an
/// election members refuse requests immediately, so retries without a pause would be useless work.
pub const QUORUM_RETRY_MS: u64 = 25;
/// Interval of probes of an unavailable etcd cluster, in milliseconds. If the cluster rejects the user, the interval
/// doubles after each probe, up to [`QUORUM_PROBE_MAX_MS`].
pub const QUORUM_PROBE_MS: u64 = 250;
/// Maximum interval of probes of an etcd cluster that rejects the user and password of this server, in milliseconds.
pub const QUORUM_PROBE_MAX_MS: u64 = 30_000;
/// Maximum number of transactions in flight to the etcd cluster.
pub const QUORUM_TRANSACTION_COUNT_MAX: usize = 4;
/// Maximum number of workers of one server. Their numbers stay below `ANY_WORKER`, the value of `HELLO` for a client
/// that prefers no worker.
pub const WORKER_COUNT_MAX: usize = 1024;
/// Number of file descriptors that the server does not use for ordinary connections, unless the system allows it very
/// few. They are kept for logs and for operators.
pub const SPARE_DESCRIPTORS: u64 = 128;
/// Number of connections that the HTTP port may have although the server is full, out of [`SPARE_DESCRIPTORS`]. The
/// Unix socket may have as many more. A server with its maximum of connections, or at 105 % of its memory limit, can
/// therefore still report health and metrics and admit operators.
pub const RESERVED_CONNECTION_COUNT_MAX: usize = 16;
/// Longest life of a connection that the HTTP port of a full server accepts, in milliseconds. The server closes it
/// after one response, and then another client can connect instead.
pub const RESERVED_CONNECTION_MS: u64 = 5_000;
/// Time for the head of the request of a connection that the HTTP port of a full server accepts, in milliseconds.
pub const RESERVED_HEAD_MS: u64 = 1_000;
/// Number of connections that one listener of a full server refuses before it pauses for [`REFUSALS_REST_MS`]. The
/// pause keeps a client that reconnects continuously from occupying the server.
pub const REFUSALS_PER_REST: u32 = 32;
/// Pause of a listener of a full server after [`REFUSALS_PER_REST`] refused connections, in milliseconds.
pub const REFUSALS_REST_MS: u64 = 10;
/// Maximum number of source addresses that the limits per address track. Further addresses have no limits of their own.
pub const TRACKED_ADDRESS_COUNT_MAX: usize = 1 << 16;
/// Time after a first failed login of a source address in which its further failures count to the same series, in
/// milliseconds. An address with too many failures in one series is paused.
pub const LOGIN_SERIES_MS: u64 = 1_000;
/// First pause of a source address with too many failed logins, in milliseconds. Each further pause is twice as long,
/// up to [`LOGIN_PAUSE_MAX_MS`].
pub const LOGIN_PAUSE_MIN_MS: u64 = 1_000;
/// Longest pause of a source address with failed logins, in milliseconds.
pub const LOGIN_PAUSE_MAX_MS: u64 = 60_000;
/// Time without a failed login after which the server may forget a source address, in milliseconds. Its next pause is
/// then a first pause again.
pub const LOGIN_QUIET_MS: u64 = 600_000;
/// Maximum number of source addresses with failed logins that the server tracks. Beyond it, a new address replaces the
/// one whose last failure is oldest.
pub const FAILING_ADDRESS_COUNT_MAX: usize = 1 << 16;
/// Interval of the check for changed files, such as certificates, in milliseconds. A change takes effect after two
/// checks.
pub const RELOAD_LOOK_MS: u64 = 2_000;
/// Interval at which the server checks its state to notify its supervisor, such as systemd, in milliseconds. If the
/// supervisor has a watchdog, the interval is at most a quarter of the watchdog's time.
pub const SUPERVISOR_LOOK_MS: u64 = 1_000;
/// Maximum number of notices queued for the thread that sends them to the supervisor, such as systemd. Further notices
/// are dropped.
pub const SUPERVISOR_NOTICES_MAX: usize = 16;
/// Longest interval of the check whether grants have resumed after a start with lost records, in milliseconds.
pub const RECOVERY_LOOK_MS: u64 = 1_000;
/// Maximum number of audit lines queued for the thread that writes them. Further lines are dropped and counted.
pub const AUDIT_LINE_COUNT_MAX: usize = 4096;
/// Maximum length of the audit lines queued for the thread that writes them, in bytes. Further lines are dropped and
/// counted.
pub const AUDIT_QUEUE_LEN_MAX: usize = 4 << 20;
/// Maximum number of audit lines per second for each kind of act. The server drops and counts further lines.
pub const AUDIT_LINES_PER_S_MAX: u32 = 1000;
/// Shortest interval between two audit lines that report the number of dropped audit lines, in milliseconds.
pub const AUDIT_REPORT_MS: u64 = 1000;
/// Maximum time that a stopping server waits for the audit log, in milliseconds.
pub const AUDIT_STOP_MS: u64 = 2000;
/// Maximum number of characters of a key in an exported trace span.
pub const SPAN_KEY_CHARS_MAX: usize = 128;
/// Maximum number of open trace spans of a worker, each below 2 KiB. Further acquires get no span. The end of a single
/// connection may end all open spans at once.
pub const SPAN_OPEN_COUNT_MAX: usize = 1024;
/// Maximum number of ended spans that wait for export. Further spans are dropped and counted.
pub const SPAN_QUEUE_COUNT_MAX: usize = 8192;
/// Maximum number of spans in one request to the OpenTelemetry collector.
pub const SPAN_BATCH_COUNT_MAX: usize = 512;
/// Pause of the exporter after it has found the queue of spans empty, in milliseconds.
pub const SPAN_PAUSE_MS: u64 = 200;
/// Timeout of a request to the OpenTelemetry collector, in milliseconds.
pub const SPAN_EXPORT_MS: u64 = 5_000;
/// Shortest pause between attempts to reach a failing collector, in milliseconds. It doubles with each failure, up to
/// [`SPAN_RETRY_MAX_MS`].
pub const SPAN_RETRY_MIN_MS: u64 = 1_000;
/// Longest pause between attempts to reach a failing collector, in milliseconds.
pub const SPAN_RETRY_MAX_MS: u64 = 30_000;
/// Maximum number of characters of a collector's error text in the log.
pub const SPAN_PROBLEM_CHARS_MAX: usize = 200;
/// Maximum time for which a stopping server tries to export the remaining spans, in milliseconds.
pub const SPAN_STOP_MS: u64 = 2_000;
/// Maximum number of ready sockets that the operating system reports in one poll.
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
    assert!(LOGIN_QUIET_MS > LOGIN_PAUSE_MAX_MS, "a paused address does not count as quiet");
    assert!(4 * WORKER_COUNT_MAX <= engine::SHARD_COUNT_MAX);
};
