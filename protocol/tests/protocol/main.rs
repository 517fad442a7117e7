//! The wire format from the outside: that its bytes stay as they are documented, and that no bytes confuse it.

mod arbitrary;
mod direction;
mod document;
mod error_table;
mod fragments;
mod frozen;
mod frozen_folder;
mod golden;
mod hostile;
mod layout;
mod malformed;
mod round_trip;
mod routes;
mod samples;
mod truncated;
