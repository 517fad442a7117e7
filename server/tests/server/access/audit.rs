//! What the audit log says of identities.

use super::Office;
use crate::harness::wait_for;
use serde_json::{Value, json};
use waymaker_protocol::{Acquire, ErrorCode, NamespaceKind, Release, Request};

/// The first line of an act in an audit log, once it is there.
fn line(path: &std::path::Path, act: &str) -> Value {
    wait_for(&format!("a line {act}"), || {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .find(|line| line["act"] == act)
    })
}

#[test]
fn refusals_and_releases_of_others_name_the_identity_the_namespace_and_the_key() {
    let office = Office::new(
        "[[rule]]\nidentity = \"alice\"\nallow = [\"acquire\"]\n\
         [[rule]]\nidentity = \"carol\"\nallow = [\"release_others\"]\n",
    );
    let (alice, carol) = (office.token("alice"), office.token("carol"));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.jsonl");
    let server = office.server(&["--audit", path.to_str().unwrap()]);
    let held = server.client_with(NamespaceKind::Flat, &alice).acquire(b"jobs/7", 0);
    let mut client = server.client_with(NamespaceKind::Flat, &carol);
    let acquire = Request::Acquire(Acquire { key: b"jobs/8", ..Acquire::default() });
    assert_eq!(client.code_of(acquire), Some(ErrorCode::Unauthorized));
    assert_eq!(client.code_of(Request::Release(Release { id: held.id, key: None, own: false })), None);
    let hello = super::hello_with(NamespaceKind::Flat, "nonsense");
    assert_eq!(server.stranger().refused_hello(hello).0, ErrorCode::Unauthorized);

    let denied = line(&path, "deny");
    for (member, value) in [
        ("identity", json!("carol")),
        ("namespace", json!("flat")),
        ("key", json!("jobs/8")),
        ("result", json!("refused")),
        ("code", json!("unauthorized")),
        ("front_end", json!("binary")),
    ] {
        assert_eq!(denied[member], value, "{member} in {denied}");
    }
    let released = line(&path, "release-other");
    for (member, value) in [
        ("identity", json!("carol")),
        ("namespace", json!("flat")),
        ("key", json!("jobs/7")),
        ("id", json!(held.id.to_string())),
        ("holder", json!("owner")),
        ("result", json!("done")),
    ] {
        assert_eq!(released[member], value, "{member} in {released}");
    }
    let refused = line(&path, "authenticate");
    assert_eq!(refused["identity"], Value::Null);
    assert!(
        refused["address"].as_str().is_some_and(|address| address.starts_with("127.0.0.1:")),
        "{refused}"
    );
    let started = line(&path, "start");
    assert!(started["access"].as_str().is_some_and(|path| path.ends_with("access.toml")), "{started}");
}
