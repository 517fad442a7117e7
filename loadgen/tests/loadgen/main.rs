//! The program as people run it: against an echo server, Redis, etcd, PostgreSQL, Consul and Waymaker, and against
//! servers that respond wrongly.

mod arguments;
#[path = "../../../server/tests/server/authority.rs"]
mod authority;
mod baseline;
mod compare;
mod consul;
mod contest;
mod durable;
mod echo;
mod etcd;
mod executable;
mod foreign;
mod grpc;
mod liar;
mod library;
mod locktopus;
mod page;
mod postgres;
mod program;
mod redis;
#[path = "../../../server/tests/server/skip.rs"]
mod skip;
mod slock;
mod tls;
mod token;
mod waymaker;
mod workloads;
