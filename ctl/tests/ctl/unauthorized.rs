//! The token of a client, and a server that refuses it.

use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::fake::FakeServer;
use crate::program::{ctl, output, stderr, stdout};
use crate::schema;

const TOKEN: &str = "wm_0001020304050607.CAkKCwwNDg8QERITFBUWFxgZGhscHR4fICEiIyQlJic";
const WORDS: [&str; 4] = ["lock", "k", "--", "true"];

fn server() -> FakeServer {
    let server = FakeServer::start();
    server.accept_only(TOKEN);
    server
}

/// Runs a command under a lock with these options.
fn run(server: &FakeServer, options: &[&str], change: impl FnOnce(&mut Command)) -> Output {
    let mut command = ctl(server.url(), &[options, &WORDS].concat());
    change(&mut command);
    output(command)
}

#[test]
fn the_token_comes_from_a_file_or_from_the_environment() {
    let (server, directory) = (server(), TempDir::new().unwrap());
    let path = directory.path().join("billing.token");
    std::fs::write(&path, format!("{TOKEN}\n")).unwrap();
    let file = path.to_str().unwrap();
    for (options, variables) in [
        (&["--token-file", file][..], &[][..]),
        (&[], &[("WAYMAKER_TOKEN_FILE", file)]),
        (&[], &[("WAYMAKER_TOKEN", TOKEN)]),
        (&[], &[("WAYMAKER_TOKEN", &format!("{TOKEN}\n"))]),
        // A file takes precedence.
        (&["--token-file", file], &[("WAYMAKER_TOKEN", "wm_other")]),
        (&[], &[("WAYMAKER_TOKEN_FILE", file), ("WAYMAKER_TOKEN", "wm_other")]),
    ] {
        let done = run(&server, options, |command| {
            command.envs(variables.iter().copied());
        });
        assert_eq!(done.status.code(), Some(0), "{options:?} {variables:?}: {}", stderr(&done));
    }
}

#[test]
fn a_refused_client_ends_at_once_and_names_the_options_of_a_token() {
    let server = server();
    // It would try again for as long as this if another attempt could succeed.
    for (token, options) in [("", &[][..]), ("wm_wrong", &["--connect-timeout", "1h"])] {
        let refused = run(&server, options, |command| {
            command.env("WAYMAKER_TOKEN", token);
        });
        assert_eq!(refused.status.code(), Some(123));
        assert_eq!(
            stderr(&refused),
            "waymaker-ctl: the server refused the credentials: the token is unknown; \
             pass a valid token with --token-file FILE or WAYMAKER_TOKEN\n"
        );
    }
    let refused = run(&server, &["--json"], |_| {});
    let error: Value = serde_json::from_str(&stderr(&refused)).unwrap();
    schema::check("error", &error);
    assert_eq!((&error["code"], &error["exit_code"]), (&"unauthorized".into(), &123.into()));
}

#[test]
fn a_file_without_a_token_is_wrong_usage() {
    let (server, directory) = (server(), TempDir::new().unwrap());
    let empty = directory.path().join("empty.token");
    std::fs::write(&empty, "\n").unwrap();
    for (file, said) in [(empty.to_str().unwrap(), "the file is empty"), ("/no/such/file", "No such file")] {
        let refused = run(&server, &["--token-file", file], |_| {});
        assert_eq!(refused.status.code(), Some(125));
        let text = stderr(&refused);
        assert!(text.contains(&format!("--token-file: {file}: ")) && text.contains(said), "{text}");
    }
}

#[test]
fn no_option_has_the_token_itself() {
    let server = server();
    let refused = run(&server, &["--token", TOKEN], |_| {});
    assert_eq!(refused.status.code(), Some(125));
    let help = stdout(&output(ctl("", &["locks", "list", "--help"])));
    assert!(help.contains("--token-file <FILE>") && help.contains("WAYMAKER_TOKEN]"), "{help}");
}
