//! Decisions between sockets and a worker, without any I/O.
//!
//! The driver feeds the modules of `edge` from tokio, and the simulator feeds them from a simulated network. These
//! modules decide:
//!
//! - when a connection reads, gives way and ends (`connection`, `turn`, `front_turn`, `streams`, `late`);
//! - when leases may expire, because all bytes that had arrived were read and served (`read_barrier`);
//! - to which request of a front end an answer or an event belongs (`inlet`).

pub mod connection;
pub mod front_turn;
pub mod inlet;
pub mod late;
pub mod read_barrier;
pub mod streams;
pub mod turn;
