//! Calls that are not what they should be: each fails with a clear status, and its connection goes on.

use super::http2::{
    CANCEL, DATA, END_HEADERS, END_STREAM, HEADERS, Http2, RST_STREAM, call_headers, frame, headers_of,
    prefixed,
};
use super::{hpack, server};
use prost::Message as _;
use waymaker_proto::waymaker::{LockRequest, MultiLockKey, MultiLockRequest, MultiLockResponse};

const PATH: &str = "/waymaker.WaymakerService/MultiLock";

const OK: u32 = 0;
const INVALID_ARGUMENT: u32 = 3;
const RESOURCE_EXHAUSTED: u32 = 8;
const UNIMPLEMENTED: u32 = 12;
const INTERNAL: u32 = 13;

/// One call of each contract.
const CALLS: [&str; 4] =
    [PATH, "/waymaker.WaymakerService/Lock", "/waymaker.v1.LockService/TryAcquire", "/models.Locket/Fetch"];

/// Calls with this body as it is, and asserts that it fails so.
fn assert_fails(client: &mut Http2, path: &str, body: &[u8], statuses: &[u32], words: &str) {
    let stream = client.begin(path);
    client.write(&frame(DATA, END_STREAM, stream, body));
    let answer = client.answer(stream);
    let status = answer.status.unwrap_or_else(|| panic!("{path}: {answer:?}"));
    assert!(statuses.contains(&status), "{path}: {answer:?}");
    assert!(answer.message.contains(words), "{path}: {answer:?}");
    let other = client.call(PATH, &MultiLockRequest::default());
    assert_eq!(other.status, Some(OK), "the next call is served: {other:?}");
}

#[test]
fn an_invalid_message_fails_only_its_call() {
    let server = server();
    let mut client = Http2::connect(&server);
    let whole = prefixed(&LockRequest { key: "key".to_owned(), ..Default::default() }.encode_to_vec());
    for path in CALLS {
        // A field that is longer than the message, and a type that does not exist.
        for garbage in [&[0x0a, 0x7f, b'x'][..], &[0x0f; 40], &[0xff; 40]] {
            assert_fails(&mut client, path, &prefixed(garbage), &[INTERNAL, INVALID_ARGUMENT], "decode");
        }
        for len in 0..whole.len() {
            assert_fails(&mut client, path, &whole[..len], &[INTERNAL, INVALID_ARGUMENT], "");
        }
        let compressed = [&[1], &whole[1..]].concat();
        assert_fails(&mut client, path, &compressed, &[UNIMPLEMENTED, INTERNAL], "ompress");
        let unknown_flag = [&[2], &whole[1..]].concat();
        assert_fails(&mut client, path, &unknown_flag, &[UNIMPLEMENTED, INTERNAL], "ompress");
    }
}

#[test]
fn a_message_is_limited_to_two_mebibytes() {
    let server = server();
    let mut client = Http2::connect(&server);
    for path in CALLS {
        // It is refused by what it says about itself, before it is there.
        for len in [(2 << 20) + 1, u32::MAX] {
            let begin = [&[0][..], &len.to_be_bytes(), &[0; 10_000]].concat();
            assert_fails(&mut client, path, &begin, &[RESOURCE_EXHAUSTED], "2097152");
        }
    }
    let mut client = Http2::connect(&server);
    client.assert_serves();
    let mut message = MultiLockRequest { requester_info: "x".repeat(2 << 20), ..Default::default() };
    let overhead = message.encoded_len() - (2 << 20);
    message.requester_info.truncate((2 << 20) - overhead);
    let stream = client.begin(PATH);
    client.send_body(stream, &prefixed(&message.encode_to_vec()));
    let answer = client.answer(stream);
    assert_eq!(answer.status, Some(OK), "{answer:?}");
}

#[test]
fn unknown_methods_are_answered_unimplemented() {
    let server = server();
    let mut client = Http2::connect(&server);
    for path in [
        "/waymaker.WaymakerService/Nothing",
        "/waymaker.v1.LockService/Nothing",
        "/models.Locket/Nothing",
        "/nobody.Service/Nothing",
        "/",
        "//",
        "/waymaker.WaymakerService",
    ] {
        let answer = client.call(path, &MultiLockRequest::default());
        assert_eq!(answer.status, Some(UNIMPLEMENTED), "{path}: {answer:?}");
    }
    client.assert_serves();
}

#[test]
fn a_non_grpc_call_is_refused_and_the_connection_continues() {
    let server = server();
    let mut client = Http2::connect(&server);
    for content_type in [&b"text/plain"[..], b"application/json", b""] {
        let stream = client.stream();
        client.write(&frame(HEADERS, END_HEADERS, stream, &headers_of(PATH, content_type)));
        client.write(&frame(DATA, END_STREAM, stream, &prefixed(&[])));
        let answer = client.answer(stream);
        assert_eq!((answer.http_status, answer.reset), (Some(415), None), "{answer:?}");
        assert!(answer.message.contains("application/grpc"), "{answer:?}");
        client.assert_serves();
    }
    // Headers alone, where a message belongs.
    let stream = client.stream();
    client.write(&frame(HEADERS, END_HEADERS | END_STREAM, stream, &call_headers(PATH)));
    let answer = client.answer(stream);
    assert!(answer.status.is_some_and(|status| status != OK), "{answer:?}");
    client.assert_serves();
}

#[test]
fn more_than_one_message_in_a_call_is_harmless() {
    let server = server();
    let mut client = Http2::connect(&server);
    let two = prefixed(&MultiLockRequest::default().encode_to_vec()).repeat(2);
    let stream = client.begin(PATH);
    client.write(&frame(DATA, END_STREAM, stream, &two));
    client.answer(stream);
    client.assert_serves();
}

#[test]
fn a_message_that_arrives_in_pieces_is_served() {
    let server = server();
    let mut client = Http2::connect(&server);
    let keys = vec![MultiLockKey { key: "in pieces".to_owned(), write_lock: false }];
    let request = MultiLockRequest { keys, max_lease_period: 60_000, ..MultiLockRequest::default() };
    let message = prefixed(&request.encode_to_vec());
    let len = message.len();
    for cuts in [&[1][..], &[5], &[len - 1], &[3, 9], &[len]] {
        for is_read_apart in [false, true] {
            let stream = client.stream();
            let mut bytes = frame(HEADERS, END_HEADERS, stream, &call_headers(PATH));
            let mut begin = 0;
            for end in cuts {
                bytes.extend(frame(DATA, 0, stream, &message[begin..*end]));
                begin = *end;
                if is_read_apart {
                    client.write(&std::mem::take(&mut bytes));
                    let other = client.call(PATH, &MultiLockRequest::default());
                    assert_eq!(other.status, Some(OK), "{other:?}");
                }
            }
            bytes.extend(frame(DATA, END_STREAM, stream, &message[begin..]));
            client.write(&bytes);
            let answer = client.answer(stream);
            assert_eq!(answer.status, Some(OK), "{cuts:?}, {is_read_apart}: {answer:?}");
            let response: MultiLockResponse = answer.decode();
            assert!(response.success, "{cuts:?}, {is_read_apart}: {}", response.message);
        }
    }
}

#[test]
fn a_message_before_trailers_is_served() {
    let server = server();
    let mut client = Http2::connect(&server);
    let request = MultiLockRequest { requester_info: "info".to_owned(), ..MultiLockRequest::default() };
    let stream = client.begin(PATH);
    let mut bytes = frame(DATA, 0, stream, &prefixed(&request.encode_to_vec()));
    let mut trailers = Vec::new();
    hpack::put(&mut trailers, b"x-end", b"yes");
    bytes.extend(frame(HEADERS, END_HEADERS | END_STREAM, stream, &trailers));
    client.write(&bytes);
    let answer = client.answer(stream);
    assert_eq!(answer.status, Some(OK), "{answer:?}");
}

/// Together they have more bytes than may wait for the rest of their messages.
#[test]
fn bytes_of_cancelled_calls_do_not_count_as_waiting() {
    let server = server();
    let mut client = Http2::connect(&server);
    let piece = vec![0; 12 << 10];
    let mut prefix = prefixed(&[]);
    // A message of 1 MiB.
    prefix[2] = 16;
    let is_read = |client: &mut Http2| drop(client.call(PATH, &MultiLockRequest::default()));
    for _ in 0..200 {
        while client.window < 64 << 10 {
            client.assert_serves();
        }
        let stream = client.begin(PATH);
        for part in [&prefix, &piece, &piece, &piece, &piece] {
            client.write(&frame(DATA, 0, stream, part));
            client.window -= part.len() as u32;
        }
        is_read(&mut client);
        client.write(&frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes()));
        is_read(&mut client);
    }
    let request = MultiLockRequest { requester_info: "i".repeat(14 << 10), ..MultiLockRequest::default() };
    let message = prefixed(&request.encode_to_vec());
    let (begin, end) = message.split_at(13 << 10);
    let stream = client.begin(PATH);
    client.write(&frame(DATA, 0, stream, begin));
    is_read(&mut client);
    client.write(&frame(DATA, END_STREAM, stream, end));
    let answer = client.answer(stream);
    assert_eq!(answer.status, Some(OK), "{answer:?}");
}
