//! The program from the outside: against a server that falls silent or takes locks away on demand, and against the
//! real one.

mod acquire;
mod against_server;
#[path = "../../../server/tests/server/authority.rs"]
mod authority;
mod complaints;
mod completions;
mod elect;
mod fake;
#[path = "../../../engine/tests/log/fixture.rs"]
mod fixture;
mod kinds;
mod log;
mod log_fixtures;
mod losing;
mod output;
mod presence;
mod program;
mod pty;
mod reaching;
#[path = "../../../client/tests/client/real.rs"]
mod real;
mod running;
mod schema;
mod scope;
mod terminal;
mod tls;
mod usage;
mod waiting;
