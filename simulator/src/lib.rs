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
//! all earlier observations of the clients, and the run ends at the first broken promise.
//!
//! To reproduce a failure: `cargo run -p waymaker-simulator -- --seed N --trace`.
//!
//! The modules are layers. Each uses modules of its own layer or of lower ones, and no two modules use each
//! other. From top to bottom:
//!
//! - `simulation`: the run and its phases; start reading here
//! - `client`, `visitors`, `tenants`, `real_client`: adversarial clients that write frames themselves, clients
//!   that create and remove namespaces, clients that try to go beyond their rights, and processes with the
//!   Rust client library
//! - `node`: the server, with the threads, log and restarts that the simulation drives
//! - `world`: the state that all parts share; it calls the parts of the next layer and gives the results of one
//!   to another
//! - `network`, `cluster`, `disk`: the simulated environment; `auditor`: the rules; `history`: a record of calls.
//!   They do not know the world or each other. The network and the cluster borrow a few parts of the world
//!   (`surroundings`)
//! - `encoding`: requests as frames, with the names of the run
//! - `workload`: all choices of a seed. Its parts are `mix` (kinds of namespaces and their requests),
//!   `durability`, `edge`, `identities` and `processes`
//! - `operation`, `tenant_request`, `form`, `key`: the requests of clients as plain data
//! - `event`, `trace`, `random`, `clock`, `etcd`: the queue of events, and tools without knowledge of a run

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
