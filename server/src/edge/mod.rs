//! Decisions between sockets and a worker, without any I/O.
//!
//! The driver feeds them from tokio, and the simulator from a simulated network. Neither decides any of this itself: when a connection
//! reads, gives way and ends (`connection`, `turn`, `front_turn`, `streams`, `late`), when everything that had arrived was served (`read_barrier`), and which request of
//! a front end an answer or an event belongs to (`inlet`).

pub mod connection;
pub mod front_turn;
pub mod inlet;
pub mod late;
pub mod read_barrier;
pub mod streams;
pub mod turn;
