//! Runs waymaker-ctl as a process, with a fake server that stops answering or revokes locks on demand, and with the real server.

mod acquire;
mod against_server;
#[path = "../../../server/tests/server/authority.rs"]
mod authority;
mod backup;
mod certificates;
mod complaints;
mod completions;
#[path = "../../../dialects/tests/dialects/dynamodb.rs"]
mod dynamodb;
mod edges;
mod elect;
mod fake;
#[path = "../../../log/tests/fixtures/fixture.rs"]
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
mod server_status;
mod terminal;
mod tls;
mod tokens;
mod traceparent;
mod unauthorized;
mod usage;
mod waiting;
