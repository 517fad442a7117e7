//! Tests of the wire format: its bytes match the documentation, and no input breaks the decoder.

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
