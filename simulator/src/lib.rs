//! Whole nodes on one thread, in virtual time, with every fault that a seed can think of.
//!
//! The seed is the run: it decides what clients ask, what the network does to it, and which worker runs when, and the same
//! seed replays the same run, bit by bit. Start at `simulation`.

mod auditor;
mod client;
mod clock;
mod cluster;
pub mod disk;
mod durability;
mod edge;
mod etcd;
mod form;
pub mod history;
mod mix;
mod network;
mod node;
mod operation;
mod random;
mod real_client;
mod simulation;
mod trace;
mod visitors;
mod workload;
mod world;

pub use auditor::Violation;
pub use simulation::{Failure, Options, Outcome, judge, record, run};
