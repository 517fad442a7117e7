//! A client that asks and takes no answers.

use super::http2::{
    ACK, Answer, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, Http2, PING, Received, WINDOW_UPDATE,
    call_headers, frame, prefixed,
};
use super::long_lists::hold;
use super::memory::assert_grows_little;
use super::{PORTS, server};
use crate::harness::{Server, wait_until_rested, wait_until_rested_while};
use prost::Message;
use std::collections::BTreeMap;
use waymaker_proto::v1::{AcquireKeysRequest, AcquireOptions, ListRequest, LockKey};
use waymaker_proto::waymaker::{MultiLockKey, MultiLockRequest};

/// Calls whose answers together are far longer than a client may leave.
const CALL_COUNT: usize = 4_000;
/// Status `RESOURCE_EXHAUSTED`.
const RESOURCE_EXHAUSTED: u32 = 8;

/// A client, and its calls that have not ended.
struct Asking {
    client: Http2,
    open: BTreeMap<u32, Answer>,
    count: usize,
    refused_count: usize,
}

impl Asking {
    fn note(&mut self, received: &Received) {
        let stream = received.stream;
        assert!(received.kind != GOAWAY, "the connection ends: {received:?}");
        let Some(answer) = self.open.get_mut(&stream) else { return };
        if answer.take(received, stream) {
            let is_refused = answer.status == Some(RESOURCE_EXHAUSTED);
            assert!(is_refused || answer.status == Some(0), "{answer:?}");
            self.refused_count += usize::from(is_refused);
            self.open.remove(&stream);
        } else {
            answer.body.clear();
        }
    }

    /// Notes the bytes that have arrived.
    fn take_in(&mut self) {
        self.client.take_in();
        while let Some(received) = self.client.parse() {
            self.note(&received);
        }
    }

    /// Returns true if the server lets the connection send `len` more bytes.
    fn may_send(&mut self, len: usize) -> bool {
        self.take_in();
        self.client.window as usize >= len
    }

    fn ask(&mut self, path: &str, body: &[u8]) {
        let stream = self.client.stream();
        let mut bytes = frame(HEADERS, END_HEADERS, stream, &call_headers(path));
        bytes.extend(frame(DATA, END_STREAM, stream, body));
        self.client.window -= body.len() as u32;
        self.client.write(&bytes);
        self.open.insert(stream, Answer::default());
        self.count += 1;
    }

    /// Waits until the server has read everything.
    fn wait_until_read(&mut self) {
        self.client.write(&frame(PING, 0, 0, b"hereIam?"));
        loop {
            let received = self.client.receive();
            if received.kind == PING && received.flags & ACK != 0 {
                return;
            }
            self.note(&received);
        }
    }

    fn take_all(&mut self) {
        let wide = (1_u32 << 29).to_be_bytes();
        let bytes: Vec<u8> = std::iter::once(0)
            .chain(self.open.keys().copied())
            .flat_map(|stream| frame(WINDOW_UPDATE, 0, stream, &wide))
            .collect();
        self.client.write(&bytes);
        while !self.open.is_empty() {
            let received = self.client.receive();
            self.note(&received);
        }
    }
}

/// The part of each answer that a client takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    Nothing,
    /// As much as fits the window of a stream.
    Beginning,
}

/// Asks the same again and again and takes no answer whole, until all answers are taken in the end.
fn ask_and_leave(server: &Server, path: &str, message: &impl Message, takes: Takes) {
    let mut client = Http2::connect_without_window(server);
    if takes == Takes::Beginning {
        client.write(&frame(WINDOW_UPDATE, 0, 0, &(1_u32 << 29).to_be_bytes()));
    }
    let mut asking = Asking { client, open: BTreeMap::new(), count: 0, refused_count: 0 };
    let body = prefixed(&message.encode_to_vec());
    assert_grows_little(server, path, || {
        while asking.count < CALL_COUNT {
            if asking.may_send(body.len()) {
                asking.ask(path, &body);
            } else {
                asking.wait_until_read();
            }
        }
        asking.wait_until_read();
        wait_until_rested_while(server, || asking.take_in());
    });
    asking.take_all();
    println!("{path}: {} of {} calls refused", asking.refused_count, asking.count);
    assert!(asking.refused_count > 0, "{path}: the server keeps any number of calls");
    asking.ask(path, &body);
    let refused_count = asking.refused_count;
    asking.take_all();
    assert_eq!(asking.refused_count, refused_count, "{path}: there is room again");
}

#[test]
fn unread_pages_are_limited() {
    let server = server();
    let _holder = hold(&server, 500, 800);
    let list = ListRequest { namespace: "waymaker".to_owned(), page_size: 50, ..ListRequest::default() };
    ask_and_leave(&server, "/waymaker.v1.OperatorService/List", &list, Takes::Nothing);
    // A page is in memory until all of it is taken.
    let longer_list = ListRequest { page_size: 100, ..list };
    ask_and_leave(&server, "/waymaker.v1.OperatorService/List", &longer_list, Takes::Beginning);
}

/// The windows of HTTP/2 are wide, so the library could take every answer.
#[test]
fn pages_unread_in_the_socket_are_limited() {
    let server = server();
    let _holder = hold(&server, 500, 800);
    let list = ListRequest { namespace: "waymaker".to_owned(), page_size: 50, ..ListRequest::default() };
    let path = "/waymaker.v1.OperatorService/List";
    let body = prefixed(&list.encode_to_vec());
    let mut client = Http2::connect_narrow(&server);
    assert_grows_little(&server, path, || {
        for _ in 0..CALL_COUNT {
            let stream = client.stream();
            let mut bytes = frame(HEADERS, END_HEADERS, stream, &call_headers(path));
            bytes.extend(frame(DATA, END_STREAM, stream, &body));
            client.write(&bytes);
        }
        wait_until_rested(&server);
    });
}

#[test]
fn unread_grants_are_limited() {
    // With several workers, grants come after later calls were read.
    for workers in ["1", "2"] {
        let server = Server::start(&[&PORTS[..], &["--workers", workers]].concat());
        let keys = (0..120).map(|number| format!("{number:0>100}"));
        let request_id = "again".to_owned();
        let try_acquire = AcquireKeysRequest {
            keys: keys.clone().map(|key| LockKey { key, shared: false }).collect(),
            options: Some(AcquireOptions { lease_ms: 600_000, request_id, ..AcquireOptions::default() }),
            ..AcquireKeysRequest::default()
        };
        ask_and_leave(&server, "/waymaker.v1.LockService/TryAcquire", &try_acquire, Takes::Nothing);

        let multi_lock = MultiLockRequest {
            keys: keys.map(|key| MultiLockKey { key, write_lock: true }).collect(),
            max_lease_period: 600_000,
            request_id: "again".to_owned(),
            ..MultiLockRequest::default()
        };
        ask_and_leave(&server, "/waymaker.WaymakerService/MultiLock", &multi_lock, Takes::Nothing);
    }
}
