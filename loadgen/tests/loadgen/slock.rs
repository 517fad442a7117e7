//! slock is not in any package registry, so these tests use simulated servers that follow its documentation, or
//! respond wrongly.

use std::collections::HashMap;
use std::path::Path;
use std::process::Output;
use std::sync::Mutex;

use waymaker_loadgen::key::KeyIndex;
use waymaker_loadgen::system::System;

use crate::foreign::{actor, load};
use crate::program::{Server, loadgen, run};
use crate::skip::skip;

const LOCK: u8 = 1;
const UNLOCK: u8 = 2;
/// Offsets in a request.
const LOCK_ID: usize = 21;
const KEY: usize = 37;
const TIMEOUT: usize = 53;
const COUNT: usize = 61;

/// Returns the response to a request.
fn answer(request: &[u8], result: u8) -> Vec<u8> {
    let mut answer = request[..19].to_vec();
    answer.extend_from_slice(&[result, 0, request[20]]);
    answer.extend_from_slice(&request[LOCK_ID..TIMEOUT]);
    answer.resize(64, 0);
    answer
}

/// Starts a simulated server that follows the documentation. It has no queue: clients of these tests try, or are
/// alone.
fn honest() -> String {
    let held = Mutex::new(HashMap::<Vec<u8>, Vec<u8>>::new());
    actor(move |_, requests| {
        let mut held = held.lock().expect("nobody panics");
        let answer_one = |request: &[u8]| {
            let (id, key) = (request[LOCK_ID..KEY].to_vec(), request[KEY..TIMEOUT].to_vec());
            let result = match request[2] {
                LOCK if held.contains_key(&key) => 8,
                LOCK => {
                    held.insert(key, id);
                    0
                }
                UNLOCK if held.remove(&key).as_ref() != Some(&id) => 6,
                _ => 0,
            };
            answer(request, result)
        };
        Some(requests.chunks_exact(64).flat_map(answer_one).collect())
    })
}

/// Runs `obtain slock` with an empty cache and with these folders on PATH.
fn obtain(path: &str, source: Option<&Path>) -> Output {
    let cache = tempfile::tempdir().expect("a folder");
    let mut command = loadgen();
    command.args(["obtain", "slock"]).env("XDG_CACHE_HOME", cache.path()).env("PATH", path);
    if let Some(folder) = std::env::home_dir() {
        // Shares Go's build cache, so that its standard library is compiled only once.
        command.env("GOCACHE", folder.join(".cache/go-build"));
    }
    if let Some(source) = source {
        command.arg("--slock-source").arg(source);
    }
    command.output().expect("it starts")
}

#[test]
fn explains_how_to_get_a_checkout() {
    let output = obtain("/nonexistent", None);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    for words in ["clone https://github.com/snower/slock", "--slock-source DIR"] {
        assert!(text.contains(words), "no {words:?} in {text}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("go.mod"), "module example.com/other\n").expect("written");
    for folder in [folder.path(), Path::new("/nonexistent")] {
        let output = obtain("/nonexistent", Some(folder));
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && text.contains("is not a checkout of github.com/snower/slock"),
            "{text}"
        );
    }
}

#[test]
fn a_checkout_is_built_and_left_unchanged() {
    let path = std::env::var("PATH").expect("a path");
    if !std::env::split_paths(&path).any(|folder| folder.join("go").is_file()) {
        return skip("slock::a_checkout_is_built_and_left_unchanged", "go is not on PATH");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let files =
        [("go.mod", "module github.com/snower/slock\n"), ("main.go", "package main\n\nfunc main() {}\n")];
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).expect("written");
    }
    let output = obtain(&path, Some(folder.path()));
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("slock-checkout/slock"), "{said}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("it is there").count(), files.len());
}

#[test]
fn accepts_a_correct_server() {
    let address = honest();
    for shape in [
        &["--connections", "1"][..],
        &["--connections", "4", "--depth", "16", "--threads", "2"],
        &["--connections", "2", "--key-size", "9", "--keys", "2"],
        &["--connections", "2", "--key-size", "33", "--window", "sliding", "--depth", "4"],
        &["--workload", "hot"],
        &["--workload", "rw", "--keys", "1"],
    ] {
        let target = format!("slock://{address}");
        let brief = ["--target", &target, "--duration", "500ms", "--warmup", "10ms"];
        let one: &[&str] = if shape[0] == "--workload" { &["--connections", "1"] } else { &[] };
        let ended = run(&[&brief[..], shape, one].concat());
        ended.assert_success();
        assert!(ended.stdout.contains("all checked, none wrong"), "{ended:#?}");
    }
}

#[test]
fn requests_follow_the_documentation() {
    let seen = actor(|turn, request| {
        let (kind, rest) = (request[2], &request[TIMEOUT..]);
        assert_eq!((request.len(), &request[..2]), (64, &[0x56, 1][..]));
        match turn {
            0 => assert_eq!(kind, 0),
            // The maximum wait, a lease of seven seconds, and the maximum number of holders.
            _ if kind == LOCK => assert_eq!(rest, [0xff, 0xff, 0, 0, 7, 0, 0, 0, 0xff, 0xff, 0]),
            _ => assert_eq!((kind, &rest[..COUNT - TIMEOUT]), (UNLOCK, &[0; 8][..])),
        }
        assert!(turn == 0 || request[KEY..TIMEOUT] == *KeyIndex(0).key(16));
        Some(answer(request, 0))
    });
    let shape = ["--workload", "rw", "--read-share", "100", "--keys", "1", "--lease", "6500ms"];
    load(System::Slock, &seen, &shape).assert_success();
}

#[test]
fn recognises_another_protocol() {
    let server = Server::echo(&[]);
    // The echo server returns the greeting, whose result field then contains the first byte of the client id.
    let ended = load(System::Slock, &server.address, &[]);
    assert_ne!(ended.code, Some(0), "{ended:#?}");
    load(System::Slock, &actor(|_, _| Some(b"-ERR\r\n".to_vec())), &[]).assert_refused("not a slock frame");
    load(System::Slock, &actor(|_, _| None), &[]).assert_refused("closed the connection during the greeting");
    load(System::Slock, &honest(), &["--lease", "2d"]).assert_refused("the maximum for slock is 65535 s");
}

#[test]
fn wrong_responses_are_named_and_fail_the_run() {
    type Lie = fn(Vec<u8>) -> Vec<u8>;
    let lies: [(Lie, &str); 8] = [
        (
            |mut said| {
                said[19] = 8;
                said
            },
            "busy, although no other client can hold the key",
        ),
        (
            |mut said| {
                said[19] = 5;
                said
            },
            "LOCKED_ERROR (5)",
        ),
        (
            |mut said| {
                said[19] = 77;
                said
            },
            "unknown result (77)",
        ),
        (
            |mut said| {
                said[30] ^= 1;
                said
            },
            "granted with the lock id of another request",
        ),
        (
            |mut said| {
                said[20] = 0x20;
                said
            },
            "unexpected data in a lock response",
        ),
        (
            |mut said| {
                said[2] = 5;
                said
            },
            "an unexpected response of type 5",
        ),
        (
            |mut said| {
                said[10] = 1;
                said
            },
            "a response with an unknown request id",
        ),
        (|said| said.repeat(2), "a response without a matching request"),
    ];
    for (lie, words) in lies {
        let address = actor(move |turn, request| {
            let said = answer(request, 0);
            Some(if turn == 0 { said } else { lie(said) })
        });
        load(System::Slock, &address, &[]).assert_wrong(words);
    }
    let half = actor(|turn, request| {
        Some(if turn == 0 { answer(request, 0) } else { answer(request, 0)[..30].to_vec() })
    });
    load(System::Slock, &half, &[]).assert_wrong("no response within");
    let hangs_up = actor(|turn, request| (turn == 0).then(|| answer(request, 0)));
    load(System::Slock, &hangs_up, &[]).assert_wrong("the server closed the connection");
}
