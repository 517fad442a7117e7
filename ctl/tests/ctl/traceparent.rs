//! The environment variable TRACEPARENT.

use std::net::TcpListener;

use crate::program::{ctl, output, soon, stderr};
use crate::real::server;

const CALLER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// The server connects to its collector once a traced acquire has ended, and at no other time.
#[test]
fn commands_that_acquire_pass_the_trace_of_their_caller_on() {
    for words in [
        &["lock", "k", "--", "true"][..],
        &["elect", "k", "--", "true"],
        &["semaphore", "k", "--capacity", "1", "--", "true"],
        &["locks", "acquire", "k"],
    ] {
        let collector = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", collector.local_addr().unwrap());
        let server = server!(None, &["--otlp-endpoint", &url]);
        let mut command = ctl(server.url(), words);
        command.env("TRACEPARENT", CALLER);
        let ended = output(command);
        assert!(ended.status.success(), "{words:?}: {}", stderr(&ended));
        soon(move || collector.accept().unwrap());
    }
}

#[test]
fn an_invalid_trace_context_is_ignored_with_a_note() {
    let server = server!();
    for (value, note) in [("", ""), ("00-1-2-3", "TRACEPARENT is ignored: a trace context has the form 00-")]
    {
        let mut command = ctl(server.url(), &["lock", "k", "--", "true"]);
        command.env("TRACEPARENT", value);
        let ended = output(command);
        assert!(ended.status.success(), "{}", stderr(&ended));
        assert_eq!(stderr(&ended).contains("TRACEPARENT"), !note.is_empty(), "{}", stderr(&ended));
        assert!(stderr(&ended).contains(note), "{}", stderr(&ended));
    }
}
