//! Against a real PostgreSQL, and against simulated servers.

use waymaker_loadgen::system::System;

use crate::foreign::{actor, load, start};
use crate::program::{Server, read_json, run};

/// Returns a message: its type, its length, its body.
fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(body.len() + 4).expect("short").to_be_bytes();
    [&[kind], &len[..], body].concat()
}

/// Login succeeded; ready for the next request.
fn welcome() -> Vec<u8> {
    [message(b'R', &[0; 4]), message(b'S', b"server_version\x0015\0"), message(b'Z', b"I")].concat()
}

fn prepared() -> Vec<u8> {
    [message(b'1', &[]).repeat(4), message(b'Z', b"I")].concat()
}

/// The only value of a statement.
fn value(value: &[u8]) -> Vec<u8> {
    let len = u32::try_from(value.len()).expect("short").to_be_bytes();
    let row = [&[0, 1], &len[..], value].concat();
    [message(b'2', &[]), message(b'D', &row), message(b'C', b"SELECT 1\0"), message(b'Z', b"I")].concat()
}

/// Accepts every login, and sends the same response to every request.
fn always(said: impl Fn() -> Option<Vec<u8>> + Send + Sync + 'static) -> String {
    actor(move |turn, _| match turn {
        0 => Some(welcome()),
        1 => Some(prepared()),
        _ => said(),
    })
}

#[test]
fn pairs_contention_and_readers() {
    let test = "postgres::pairs_contention_and_readers";
    let Some(server) = start(test, System::Postgres) else { return };
    let target = server.address.to_string();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("result.json");
    let json = path.to_str().expect("text");
    let brief = ["--duration", "500ms", "--warmup", "20ms", "--target", &target, "--json", json];
    for shape in [
        &["--connections", "1"][..],
        &["--connections", "20", "--threads", "2", "--keys", "20"],
        &["--connections", "16", "--workload", "hot"],
        &["--connections", "16", "--workload", "rw", "--keys", "3", "--threads", "2"],
        &["--connections", "3", "--rate", "1k"],
    ] {
        let ended = run(&[&brief[..], shape].concat());
        ended.assert_success();
        assert!(ended.stdout.contains("all checked, none wrong"), "{ended:#?}");
        let result = &read_json(&path)["result"];
        assert!(result["latency"]["count"].as_u64() > Some(1), "{result}");
        // On a busy machine the processes of the connections may end before their CPU time is read.
        assert!(result["cpu"]["server"].is_f64(), "{result}");
    }
    let idle = ["--workload", "idle", "--connections", "20"];
    run(&[&["--target", &target], &idle[..]].concat()).assert_success();
    run(&["--target", &format!("postgres://nobody-knows@{}", server.address.host_and_port)])
        .assert_refused("nobody-knows");
}

#[test]
fn recognises_another_protocol() {
    let server = Server::echo(&[]);
    load(System::Postgres, &server.address, &[]).assert_refused("not a PostgreSQL message");
}

#[test]
fn reports_why_a_login_failed() {
    for (said, words) in [
        (message(b'R', &[0, 0, 0, 5, 1, 2, 3, 4]), "requires a password for postgres"),
        (message(b'R', &[0, 0, 0, 9]), "unsupported authentication method"),
        (
            message(b'E', b"SFATAL\0C53300\0Msorry, too many clients\0\0"),
            "FATAL 53300 sorry, too many clients",
        ),
        (message(b'Z', b"I"), "never confirmed the login"),
        (message(b'K', &[0; 8]), "unexpected message"),
        ([welcome(), welcome()].concat(), "more messages than expected"),
        (b"S\xff\xff\xff\xff".to_vec(), "not a PostgreSQL message"),
        (b"HTTP/1.1 400 Bad Request\r\n".to_vec(), "not a PostgreSQL message"),
    ] {
        let address = actor(move |turn, _| (turn == 0).then(|| said.clone()));
        load(System::Postgres, &address, &[]).assert_refused(words);
    }
    let address = actor(|turn, _| (turn == 0).then(welcome));
    load(System::Postgres, &address, &[]).assert_refused("closed the connection during the login");
}

#[test]
fn wrong_responses_are_named_and_fail_the_run() {
    let lies: [(Vec<u8>, &str); 7] = [
        (value(&[0]), "busy, although no other client can hold the key"),
        (value(&[2]), "unexpected value in the response to Try: [2]"),
        (value(&[]), "unexpected value in the response to Try: []"),
        (message(b'D', &[0, 1, 0, 0, 0, 1, 1]), "an unexpected message of type 'D'"),
        ([message(b'2', &[]), message(b'D', &[0, 2])].concat(), "a row with more than one value"),
        ([message(b'E', b"SERROR\0Mso it is\0\0"), message(b'Z', b"I")].concat(), "ERROR so it is"),
        ([0xff; 64].to_vec(), "not a PostgreSQL message"),
    ];
    for (said, words) in lies {
        let address = always(move || Some(said.clone()));
        load(System::Postgres, &address, &[]).assert_wrong(words);
    }
    let granted_twice = always(|| Some(value(&[1]).repeat(2)));
    load(System::Postgres, &granted_twice, &[]).assert_wrong("a response without a request");
    load(System::Postgres, &always(|| None), &[]).assert_wrong("the server closed the connection");
    // Half a response, and then nothing more.
    let half = actor(|turn, _| match turn {
        0 => Some(welcome()),
        1 => Some(prepared()),
        2 => Some(value(&[1])[..9].to_vec()),
        _ => Some(Vec::new()),
    });
    load(System::Postgres, &half, &[]).assert_wrong("no response within");
    let lost = actor(|turn, _| match turn {
        0 => Some(welcome()),
        1 => Some(prepared()),
        turn => Some(value(&[u8::from(turn % 2 == 0)])),
    });
    load(System::Postgres, &lost, &[]).assert_wrong("does not hold the lock");
}
