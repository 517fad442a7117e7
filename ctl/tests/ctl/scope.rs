//! Scopes of the fence.

use crate::program::{ctl, output, stderr, stdout};
use crate::real::server;

#[test]
fn fences_of_scope_local_continue_after_the_server_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let data_dir = directory.path().join("data");
    for fence in 1..=3 {
        let mut server = server!(Some(&data_dir));
        let words =
            ["lock", "k", "--scope", "local", "--lease", "1s", "--", "sh", "-c", "echo $WAYMAKER_FENCE"];
        assert_eq!(stdout(&output(ctl(server.url(), &words))), format!("{fence}\n"));
        server.kill();
    }
}

#[test]
fn a_server_without_a_log_refuses_scope_local_with_the_reason() {
    let server = server!();
    for words in [
        &["lock", "k", "--scope", "local", "--", "true"][..],
        &["semaphore", "k", "--capacity", "1", "--scope", "local", "--", "true"],
    ] {
        let output = output(ctl(server.url(), words));
        assert_eq!(output.status.code(), Some(123));
        assert!(stderr(&output).contains("needs a durable log"), "{}", stderr(&output));
    }
}
