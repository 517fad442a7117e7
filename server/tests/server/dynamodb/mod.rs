//! The port for clients of DynamoDB: what SDKs send and expect, the locks of other protocols, and wrong requests.

mod bad_input;
mod client;
mod exchanges;
mod http;
mod other_protocols;
mod rights;
mod signed;
mod tables;
