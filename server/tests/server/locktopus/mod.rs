//! Locktopus, over real WebSockets.

mod abandoned;
mod client;
mod conflicts;
mod errors;
mod http;
mod messages;
mod operators;
mod restarts;
mod states;

pub(crate) use client::{http, parts, socket};
