//! The five lock systems whose users Waymaker takes in, each with its own names and its own rules.
//!
//! A dialect is for code that was written for one of them, or by somebody who knows it: its calls, its errors and its
//! constants are that system's. Where the system has a protocol of its own, the dialect speaks it, so it works with the
//! original server as well; where it has none, it is made of a [`Client`](waymaker_client::Client). What any of them holds is held
//! beside what everybody else holds, under the same names, and shows up in `waymaker-ctl locks list`.

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
