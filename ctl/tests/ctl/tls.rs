//! Encrypted connections to a real server.

use crate::authority::Authority;
use crate::program::{ctl, output, stderr};
use crate::real::server;

#[test]
fn a_command_runs_under_a_lock_over_mutual_tls() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let (issued, identity) = (authority.issue("server"), clients.issue("client"));
    let (ca, client_ca) = (authority.ca(), clients.ca());
    let [ca, client_ca] = [&ca, &client_ca].map(|path| path.to_str().unwrap());
    let server = server!(
        None,
        &["--tls-cert", issued.cert(), "--tls-key", issued.key(), "--tls-client-ca", client_ca]
    );
    let run =
        |words: &[&str]| output(ctl(&server.tls_url(), &[words, &["lock", "key", "--", "true"]].concat()));
    let shown = ["--tls-ca", ca, "--tls-cert", identity.cert(), "--tls-key", identity.key()];
    let done = run(&shown);
    assert!(done.status.success(), "{}", stderr(&done));
    let refused = run(&["--tls-ca", ca]);
    assert_eq!(refused.status.code(), Some(122));
    assert!(stderr(&refused).contains("the server requires a client certificate"), "{}", stderr(&refused));
    let mut command = ctl(&server.tls_url(), &["locks", "list"]);
    command.env("WAYMAKER_TLS_CA", ca);
    command.env("WAYMAKER_TLS_CERT", identity.cert()).env("WAYMAKER_TLS_KEY", identity.key());
    assert!(output(command).status.success());
}

#[test]
fn unusable_tls_files_are_wrong_usage() {
    let server = "waymaker+tls://127.0.0.1:1";
    for (words, named) in
        [(["--tls-cert", "c.pem"], "--tls-key"), (["--tls-ca", "/nonexistent.pem"], "/nonexistent.pem")]
    {
        let output = output(ctl(server, &[&words[..], &["locks", "list"]].concat()));
        assert_eq!(output.status.code(), Some(125), "{words:?}");
        assert!(stderr(&output).contains(named), "{}", stderr(&output));
    }
}
