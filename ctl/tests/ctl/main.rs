//! The program from the outside: against a server that falls silent or takes locks away on demand, and against the
//! real one.

mod fake;
mod losing;
mod program;
mod running;
mod usage;
