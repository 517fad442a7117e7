//! The Locktopus front end: sets of paths of a tree, over a WebSocket. `docs/compatibility.md` says how close it is.

pub mod message;
#[cfg(test)]
mod message_tests;
pub mod namespaces;
pub mod session;
#[cfg(test)]
mod session_tests;
