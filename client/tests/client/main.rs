//! The client from the outside: against a server that the test plays itself, and against the real one.

mod addresses;
mod against_server;
#[path = "../../../server/tests/server/authority.rs"]
mod authority;
mod blocking;
mod cancelling;
mod cancelling_at_random;
mod connecting;
mod cut_everywhere;
mod dialect;
mod examples;
mod fake;
mod joining;
mod kept_traces;
mod killed_under_load;
mod losing;
mod manual_clock;
mod neighbours;
mod nowhere;
mod operating;
mod patience;
mod per_worker;
mod real;
mod reconnecting;
mod relay;
mod repeated_requests;
mod scope;
mod several;
mod stalled_link;
mod taking_up;
mod tls;
mod tracing;
mod uncertain;
mod undisturbed;
mod with_lock;
