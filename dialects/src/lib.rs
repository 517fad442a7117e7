//! Clients with the names and rules of five other lock systems.
//!
//! A dialect serves code that was written for one of these systems, and programmers who know that system: it has the calls,
//! errors and constants of the system. If the system has a protocol of its own, the dialect speaks this protocol, so it also
//! works with the original server. If it has none, the dialect uses a [`Client`](waymaker_client::Client). Other clients see
//! the locks of a dialect under the same names, and `waymaker-ctl locks list` shows them.

#[cfg(any(feature = "grpc", feature = "websocket"))]
mod bearer;
#[cfg(any(feature = "grpc", feature = "websocket"))]
mod checked;
pub mod clever;
pub mod databend;
#[cfg(feature = "grpc")]
mod grpc;
#[cfg(feature = "grpc")]
pub mod locket;
#[cfg(feature = "websocket")]
pub mod locktopus;
#[cfg(any(feature = "grpc", feature = "websocket"))]
mod stream;
#[cfg(feature = "grpc")]
pub mod waymaker;

#[cfg(feature = "grpc")]
pub use grpc::ConnectError;
