//! Deterministic simulation of whole Waymaker servers on one thread, in virtual time.
//!
//! A run has one server (a *node* with several workers and shards), its clients, and a simulated network,
//! disk, clock and etcd cluster. The shards, workers, protocol, log and client library are the production
//! code. Only the parts that talk to an operating system are replaced: threads, sockets, files and timers.
//!
//! A *seed* is a number that decides everything in a run: the settings, the requests, the faults, and the
//! order of all events. The same seed repeats the same run exactly. Faults are connections that are cut or
//! held back, workers that are not scheduled, clients that pause or crash, crashes and restarts of the
//! server, lost, full or damaged disks, and a cluster that fails. The `auditor` checks every response against
//! what the clients have seen, and the run ends at the first broken promise.
//!
//! To reproduce a failure: `cargo run -p waymaker-simulator -- --seed N --trace`.
//!
//! - `simulation`: the run and its phases; start reading here
//! - `world`: the state that all parts share, and the queue of events
//! - `mix`, `workload`: the choices of a seed (kinds of namespaces, keys, requests, rates of faults)
//! - `operation`: one request of a client
//! - `client`: adversarial clients, which write frames themselves and do everything that the protocol allows
//! - `node`: the server, with the threads, log and restarts that the simulation drives
//! - `visitors`: clients that create and remove namespaces
//! - `identities`, `tenants`: the policies of the server, and clients with identities that try to go beyond
//!   their rights
//! - `real_client`: processes that use the Rust client library

mod auditor;
mod client;
mod clock;
mod cluster;
pub mod disk;
mod durability;
mod edge;
mod encoding;
mod etcd;
mod event;
mod form;
pub mod history;
mod identities;
mod key;
mod mix;
mod network;
mod node;
mod operation;
mod processes;
mod random;
mod real_client;
mod simulation;
mod surroundings;
mod tenant_request;
mod tenants;
mod trace;
mod visitors;
mod workload;
mod world;

pub use auditor::Violation;
pub use simulation::{Failure, Options, Outcome, judge, record, run};
