//! The program as people run it: against an echo, against Redis and etcd, against our server, and against servers that lie.

mod arguments;
#[path = "../../../server/tests/server/authority.rs"]
mod authority;
mod compare;
mod durable;
mod echo;
mod etcd;
mod grpc;
mod liar;
mod locktopus;
mod program;
mod redis;
mod skip;
mod tls;
mod waymaker;
mod workloads;
