//! Command line of the program: its subcommands and its help.

use clap::{Parser, Subcommand};

use crate::compare::options::{CompareOptions, EXIT_CODES};
use crate::options::{BareServerOptions, EchoServerOptions, ObtainOptions, PinnedOptions, RunOptions};

const EXAMPLES: &str = "\
Workloads, each with an example:
  pair           acquire a random key and release it, without contention: the cost of the server itself
      waymaker-loadgen --workload pair --keys distinct     (uses no key twice; the server drops idle keys)
  hot            one contended key: the time from a release to the grant of the next waiter
      waymaker-loadgen --workload hot --connections 64
  rw             readers and writers on few keys: the wait for each grant
      waymaker-loadgen --workload rw --read-share 50 --keys 100
  tree           sets of paths, each held as a whole
      waymaker-loadgen --workload tree --tree-depth 4 --fan-out 32 --items 3 --read-share 50
  multi          claims of several keys, granted all or none, released one by one
      waymaker-loadgen --workload multi --items 8 --keys 1k --depth 4
  semaphore      permits of pools
      waymaker-loadgen --workload semaphore --keys 100 --capacity 10 --permits 3 --depth 16
  throttle       requests to the rate limiter; checks that no bucket exceeds its rate and burst
      waymaker-loadgen --workload throttle --keys 1k --bucket-rate 1000 --burst 10 --depth 16
  renew          renewals, in turn, of as many leases as there are keys; also for Redis, etcd and Consul
      waymaker-loadgen --workload renew --keys 10k --rate 1000 --connections 8
  churn          connections that open, take one lock and close: the cost of a new connection
      waymaker-loadgen --workload churn --connections 8 --sessions
  expiry-storm   leases that all expire in one timer tick, and the effect on bystanders
      waymaker-loadgen --workload expiry-storm --keys 1M --waiters 100k
  readers-storm  readers that wait behind one writer until it releases, and the effect on bystanders
      waymaker-loadgen --workload readers-storm --readers 100k --rate 10k
  put            puts of keys to etcd, the operation that its locks consist of: the commits per second
      waymaker-loadgen --target etcd://127.0.0.1:2379 --workload put
  stream         acquire and release pairs over gRPC streams: from the first event, which says held, to the end of the stream
      waymaker-loadgen --target grpc://127.0.0.1:7421 --workload stream
  guard          pairs through the Rust client library, whose guards renew themselves: compare with pair, the raw connection
      waymaker-loadgen --workload guard --connections 1
  held-guards    guards of the client library that stay held, with one lease each or (--sessions) with the lease of
                 their session: the CPU time of client and server
      waymaker-loadgen --workload held-guards --connections 1 --keys 100k --warmup 12s --duration 20s
  idle           idle connections: the memory of the server for each
      waymaker-loadgen --target locktopus://127.0.0.1:7422 --workload idle --connections 18000
  held-streams   locks held over gRPC, each with its own stream: the memory of the server for each
      waymaker-loadgen --target grpc://127.0.0.1:7421 --workload held-streams --streams 100k --connections 250

Workloads of each target:
  waymaker               all except put, stream and held-streams; guard and held-guards without TLS
  grpc                   pair, stream, held-streams
  locktopus              pair, hot, rw, idle; one request at a time on each connection
  redis                  pair, hot (by polling), renew, idle
  etcd                   pair, hot, renew, put
  consul                 pair, hot (by polling; one request at a time on each connection), renew, idle
  postgres               pair, hot, rw, idle; one request at a time on each connection
  slock                  pair, hot, rw, idle
  echo                   pair, idle
  grpc-echo              pair, stream, held-streams
  websocket-echo         pair, idle

One request is one acquire or one release, however many keys it names, or one request to the rate limiter. The program
checks every response; the exit code is 1 if a response was wrong, and 2 if the measurement failed. The workloads throttle,
churn, expiry-storm and readers-storm have no durable locks.

Examples:
  waymaker-loadgen
      The standard workload against a server on this machine: 50 connections with one request at a time each.
  waymaker-loadgen --target redis://127.0.0.1:6379 --depth 16
      The same against Redis, with 16 requests in flight on each connection.
  waymaker-loadgen --rate 100k --duration 10s
      Open loop: 100,000 requests per second; each latency counts from the time when the request was due.
  waymaker-loadgen --workload hot --connections 64
      All connections contend for one key; shows the time from a release to the grant of the next waiter.
  waymaker-loadgen --scope local
      Durable locks: a server with a data directory syncs each lock to its disk before it responds.
  waymaker-loadgen --target etcd://127.0.0.1:2379
      Lock and Unlock of etcd, which are always durable.
  waymaker-loadgen --target postgres://postgres@127.0.0.1:5432/postgres --workload rw
      Advisory locks of PostgreSQL, shared and exclusive.
  waymaker-loadgen --target consul://127.0.0.1:8500
      Keys of Consul; each connection has its own session.
  waymaker-loadgen --target waymaker+tls://locks.example:7420 --tls-ca ca.pem
      TLS; the server needs a certificate that this CA signed.
  waymaker-loadgen compare --spawn --markdown table.md
      Starts Waymaker, Redis and an echo server, measures them side by side, and prints the table.
  waymaker-loadgen compare --scope local --spawn --dir /var/tmp
      The same for durable locks, with etcd and an echo server that syncs; all write to the disk of this directory.
  waymaker-loadgen compare --scope quorum --spawn --dir /var/tmp
      Acquires whose fences an etcd cluster counts, compared with puts to the same etcd.
  waymaker-loadgen compare --front grpc --spawn
      The gRPC front end, compared with a bare server of the same library and with etcd; also grpc-stream, locktopus.
  waymaker-loadgen compare --library --spawn
      The Rust client library, compared with the raw connection of this program.
  waymaker-loadgen compare --baseline-bin old/waymaker-server
      An older waymaker-server, compared with the server beside this program; reports the rows that became slower.
  waymaker-loadgen compare --rights
      The server with tokens and rights, compared with the same server without.
  waymaker-loadgen compare --spawn --html report.html
      A contest of lock servers (waymaker,redis,etcd,consul,postgres,slock; --targets selects): pairs, hand-over, readers,
      waiters, renewals and memory, as a page with plots. Names missing servers and the reason. Takes ten minutes.";

/// Measure the latency and throughput of lock servers: Waymaker, Redis, etcd, Consul, PostgreSQL and slock.
#[derive(Debug, Parser)]
#[command(name = "waymaker-loadgen", version, about, after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct Options {
    /// Subcommand; `run` by default.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Options of `run`.
    #[command(flatten)]
    pub run: RunOptions,
}

/// Subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Load one target and report its latencies and throughput (default)
    Run(RunOptions),
    /// Measure several targets in short alternating slices
    #[command(after_help = EXIT_CODES)]
    Compare(CompareOptions),
    /// Send back all received bytes; measures the cost of the network alone
    #[command(hide = true)]
    EchoServer(EchoServerOptions),
    /// Answer every call of the gRPC contract with a constant; measures the cost of the gRPC library alone
    #[command(hide = true)]
    GrpcEchoServer(BareServerOptions),
    /// Answer every WebSocket message with a constant; measures the cost of the WebSocket library alone
    #[command(hide = true)]
    WebsocketEchoServer(BareServerOptions),
    /// Install or build other lock servers, as `compare --spawn` does when it needs them
    Obtain(ObtainOptions),
    /// Run a program pinned to a core, and end it when its parent ends
    #[command(hide = true)]
    Pinned(PinnedOptions),
}
