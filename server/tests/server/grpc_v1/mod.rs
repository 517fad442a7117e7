//! Our own gRPC contract, with the client that is generated from it.

mod limiter;
mod limits;
mod locks;
mod operators;
mod owned_locks;
mod registries;
mod semaphores;
mod streams;
mod trees;

use crate::harness::{Server, WATCHDOG};
use prost::Message as _;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Code, Response, Status, Streaming};
use waymaker_proto::v1::acquire_response::Event;
use waymaker_proto::v1::{AcquireResponse, Acquired, ErrorCode, Hold, LostReason, Refusal};

/// A server that speaks gRPC, and a connection to it.
async fn server() -> (Server, Channel) {
    let server = Server::start(&["--grpc-listen", "127.0.0.1:0", "--workers", "2"]);
    let channel = connect(&server).await;
    (server, channel)
}

/// One more connection.
async fn connect(server: &Server) -> Channel {
    let url = format!("http://{}", server.address("grpc"));
    Channel::from_shared(url).expect("a url").connect().await.expect("the server accepts")
}

fn unix_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as i64
}

/// How far the server's time of day may be from the machine's. The server corrects a difference of more than 0.1 s, and may be
/// descheduled between its readings of two clocks.
const CLOCKS_MS: i64 = 1_000;

/// Asserts that two instants of the server are the same.
#[track_caller]
fn assert_same(unix_ms: i64, expected_ms: i64) {
    assert!((unix_ms - expected_ms).abs() <= CLOCKS_MS, "{unix_ms} is not {expected_ms}");
}

/// Asserts that an instant lies `length_ms` after some moment between `begun_ms` and now.
#[track_caller]
fn assert_after(unix: i64, begun_ms: i64, length_ms: i64) {
    let expected = begun_ms + length_ms - CLOCKS_MS..=unix_ms() + length_ms + CLOCKS_MS;
    assert!(expected.contains(&unix), "{unix} is not in {expected:?}");
}

/// What a call was refused with, which every refusal carries as a detail.
fn refusal<T>(result: Result<T, Status>) -> (Code, ErrorCode, Refusal) {
    let Err(status) = result else { panic!("the call was not refused") };
    let details = tonic_types::pb::Status::decode(status.details()).expect("a status").details;
    let [detail] = &details[..] else { panic!("{status:?}") };
    assert_eq!(detail.type_url, "type.googleapis.com/waymaker.v1.Refusal");
    let refusal = Refusal::decode(&detail.value[..]).expect("a refusal");
    assert!(!status.message().is_empty(), "a refusal says what is wrong");
    (status.code(), refusal.code(), refusal)
}

/// Asserts that a call was refused because of this field, beyond this limit.
#[track_caller]
fn assert_bad_input<T>(result: Result<T, Status>, field: &str, limit: u64) {
    let (code, error, refusal) = refusal(result);
    assert_eq!((code, error), (Code::InvalidArgument, ErrorCode::BadInput), "{refusal:?}");
    assert_eq!((refusal.field.as_str(), refusal.value), (field, limit), "{refusal:?}");
}

#[track_caller]
fn assert_refused<T>(result: Result<T, Status>, code: Code, error: ErrorCode) {
    let (actual, actual_error, refusal) = refusal(result);
    assert_eq!((actual, actual_error), (code, error), "{refusal:?}");
}

/// The next that a stream says.
async fn next<T>(stream: &mut Streaming<T>) -> Result<Option<T>, Status> {
    timeout(WATCHDOG, stream.message()).await.expect("the server says something")
}

/// The next event of an acquire.
async fn told(stream: &mut Streaming<AcquireResponse>) -> Event {
    let told = next(stream).await.expect("no error").expect("the stream goes on");
    told.event.expect("an event")
}

/// The grant that comes next.
async fn acquired(stream: &mut Streaming<AcquireResponse>) -> Acquired {
    match told(stream).await {
        Event::Acquired(acquired) => acquired,
        other => panic!("expected a grant, got {other:?}"),
    }
}

/// The one hold that is granted next.
async fn hold(stream: &mut Streaming<AcquireResponse>) -> Hold {
    let mut holds = acquired(stream).await.holds;
    assert_eq!(holds.len(), 1);
    holds.remove(0)
}

/// The hold of a try.
fn tried(response: Response<waymaker_proto::v1::TryAcquireResponse>) -> Hold {
    let acquired = response.into_inner().acquired.expect("a grant");
    assert_eq!(acquired.holds.len(), 1);
    acquired.holds.into_iter().next().expect("one")
}

/// Asserts that a claim is told to wait next, and says its id.
async fn queued(stream: &mut Streaming<AcquireResponse>) -> String {
    match told(stream).await {
        Event::Queued(queued) => queued.id,
        other => panic!("expected to wait, got {other:?}"),
    }
}

/// Asserts that this hold is told to be over next, and says what was said of it.
async fn lost(stream: &mut Streaming<AcquireResponse>, id: &str, reason: LostReason) -> String {
    match told(stream).await {
        Event::Lost(lost) => {
            assert_eq!((lost.id.as_str(), lost.reason()), (id, reason));
            lost.message
        }
        other => panic!("expected a loss, got {other:?}"),
    }
}

async fn assert_ended(stream: &mut Streaming<AcquireResponse>) {
    let ended = next(stream).await.expect("the stream ends well");
    assert!(ended.is_none(), "{ended:?}");
}
