//! Tests of the dialects against the real server: the behaviour that the tests of the original systems check, and further
//! promises of Waymaker.

#[path = "../../../server/tests/server/authority.rs"]
mod authority;
mod clever;
#[path = "../../../client/tests/client/connected.rs"]
mod connected;
mod connecting;
mod databend;
mod dynamodb;
mod encrypted;
mod examples;
#[allow(dead_code, reason = "the tests of the client use more of it")]
#[path = "../../../client/tests/client/fake.rs"]
mod fake;
#[path = "../../../client/tests/client/kept_traces.rs"]
mod kept_traces;
mod locket;
mod locktopus;
#[allow(dead_code, reason = "the tests of the client use more of it")]
#[path = "../../../client/tests/client/manual_clock.rs"]
mod manual_clock;
#[allow(dead_code, reason = "the tests of the client use more of it")]
#[path = "../../../client/tests/client/nowhere.rs"]
mod nowhere;
#[path = "../../../client/tests/client/patience.rs"]
mod patience;
#[path = "../../../client/tests/client/random.rs"]
mod random;
#[allow(dead_code, reason = "the tests of the client use more of it")]
#[path = "../../../client/tests/client/real.rs"]
mod real;
#[allow(dead_code, reason = "the tests of the client use more of it")]
#[path = "../../../client/tests/client/relay.rs"]
mod relay;
#[path = "../../../client/tests/client/undisturbed.rs"]
mod undisturbed;
mod waymaker;
