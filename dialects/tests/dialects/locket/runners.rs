//! The runners that hold a lock or keep a presence.

use super::fake::{FakeServer, collision};
use super::*;
use crate::connected::connect;
use crate::kept_traces::KeptTraces;
use crate::nowhere::Nowhere;
use crate::patience::{HOUR, patient};
use crate::relay::Relay;
use crate::undisturbed::undisturbed;
use tonic::Status;
use tonic::codegen::http;
use waymaker_client::Tls;
use waymaker_dialects::locket::{DEFAULT_TTL, LockRunner, LostLock, PresenceRunner, RETRY_INTERVAL};

/// Time between two attempts, and the deadline of each attempt but the first.
const INTERVAL: Duration = Duration::from_millis(20);

/// A runner that runs.
struct Running<T> {
    signal: CancellationToken,
    ready: oneshot::Receiver<()>,
    end: tokio::task::JoinHandle<T>,
}

fn start<R: Future + Send + 'static>(
    run: impl FnOnce(CancellationToken, oneshot::Sender<()>) -> R,
) -> Running<R::Output>
where
    R::Output: Send,
{
    let (signal, (tell, ready)) = (CancellationToken::new(), oneshot::channel());
    let end = tokio::spawn(run(signal.clone(), tell));
    Running { signal, ready, end }
}

fn start_lock(locket: &Locket, owner: &str, interval: Duration) -> Running<Result<(), LostLock>> {
    let runner = LockRunner::new(locket.clone(), "k", owner).retry_interval(interval).value("data");
    start(|signal, ready| runner.run(signal, ready))
}

#[test]
fn the_default_ttl_and_retry_interval_match_the_original_client() {
    assert_eq!((DEFAULT_TTL, RETRY_INTERVAL), (Duration::from_secs(15), Duration::from_secs(5)));
}

#[tokio::test]
async fn a_runner_locks_its_key_with_a_unique_uuid_per_call() {
    undisturbed(
        INTERVAL,
        async || {},
        async |interval| {
            let mut server = FakeServer::start().await;
            let mut running = start_lock(&server.locket, "jim", interval);
            let mut names = Vec::new();
            for _ in 0..3 {
                let (request, uuid, answer) = server.lock().await;
                let expected = Resource { value: "data".to_owned(), ..lock("k", "jim") };
                assert_eq!((request.resource, request.ttl_in_seconds), (Some(expected), 15));
                assert_eq!((uuid.len(), &uuid[14..15]), (36, "4"));
                assert!(!names.contains(&uuid), "each call has a name of its own");
                names.push(uuid);
                answer.send(Ok(())).unwrap();
                if names.len() == 1 {
                    soon(&mut running.ready).await.expect("it is ready with the first lock");
                }
            }
        },
    )
    .await;
}

#[tokio::test]
async fn a_blocked_runner_logs_the_owner_and_retries_with_a_deadline() {
    let mut server = FakeServer::start().await;
    let log = KeptTraces::begin();
    let mut running = start_lock(&server.locket, "jim", INTERVAL);
    server.answer_lock(Err(collision())).await;
    server.answer_fetch(lock("k", "nima")).await;
    // This request gets no response, so later messages come after its deadline.
    let (_, late, _unanswered) = server.lock().await;
    let (_, next, _answer) = server.lock().await;
    assert_ne!(late, next);
    assert_eq!(log.count("holder=\"nima\""), 1);
    assert!(running.ready.try_recv().is_err(), "it is not ready");
}

#[tokio::test]
async fn the_first_attempt_has_no_deadline() {
    let mut server = FakeServer::start().await;
    let mut running = start_lock(&server.locket, "jim", Duration::from_millis(5));
    let (_, _, answer) = server.lock().await;
    tokio::time::sleep(INTERVAL).await;
    answer.send(Ok(())).expect("it waits still");
    soon(&mut running.ready).await.unwrap();
}

#[tokio::test]
async fn a_repeated_collision_is_logged_once_and_other_failures_each_time() {
    undisturbed(
        INTERVAL,
        async || {},
        async |interval| {
            let mut server = FakeServer::start().await;
            let log = KeptTraces::begin();
            let _running = start_lock(&server.locket, "jim", interval);
            server.answer_lock(Err(collision())).await;
            server.answer_fetch(lock("k", "nima")).await;
            for _ in 0..3 {
                server.answer_lock(Err(collision())).await;
            }
            let (_, _, answer) = server.lock().await;
            assert_eq!(log.count("failed to acquire lock"), 1);
            answer.send(Err(Status::internal("boom"))).unwrap();
            server.lock().await;
            assert_eq!(log.count("failed to acquire lock"), 2);
            assert_eq!(log.count("boom"), 1);
        },
    )
    .await;
}

#[tokio::test]
async fn a_runner_takes_renews_and_releases_a_lock_that_becomes_free() {
    let server = server!(None, GRPC_OF_ONE_WORKER);
    let locket = client(&server).await;
    // The locks of Locket are entries of its registry.
    let beside = soon(patient().namespace("locket").connect(server.url())).await.unwrap();
    let pulse = async || drop(soon(beside.inspect("pulse")).await.unwrap());
    undisturbed(INTERVAL, pulse, async |interval| {
        let key = format!("k {interval:?}");
        locket.lock(lock(&key, "nima"), 60).await.unwrap();
        let runner = LockRunner::new(locket.clone(), &*key, "jim").retry_interval(interval);
        let mut running = start(|signal, ready| runner.run(signal, ready));
        let early = tokio::time::timeout(interval * 3, &mut running.ready).await;
        assert!(early.is_err(), "another owner has it");
        locket.release(lock(&key, "nima")).await.unwrap();
        soon(&mut running.ready).await.unwrap();
        let registry = beside.registry();
        let left = async || registry.look_up(&*key).await.unwrap().expect("it is held").remaining.unwrap();
        let mut least = left().await;
        // Only a renewal lengthens the remaining time.
        eventually(async || {
            let left = left().await;
            least = least.min(left);
            left > least
        })
        .await;
        assert_eq!(locket.fetch(&key).await.unwrap().owner, "jim");
        running.signal.cancel();
        soon(running.end).await.unwrap().expect("a signal is no error");
        assert!(matches!(locket.fetch(&key).await, Err(Error::ResourceNotFound)), "it was released");
    })
    .await;
}

#[tokio::test]
async fn a_refused_renewal_ends_the_runner() {
    undisturbed(
        INTERVAL,
        async || {},
        async |interval| {
            let mut server = FakeServer::start().await;
            let running = start_lock(&server.locket, "jim", interval);
            server.answer_lock(Ok(())).await;
            let (_, uuid, answer) = server.lock().await;
            answer.send(Err(collision())).unwrap();
            let error = soon(running.end).await.unwrap().unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("lost lock (request failed), request-uuid {uuid}: lock-collision")
            );
        },
    )
    .await;
}

#[tokio::test]
async fn a_renewal_timeout_ends_the_runner() {
    let mut server = FakeServer::start().await;
    let running = start_lock(&server.locket, "jim", INTERVAL);
    server.answer_lock(Ok(())).await;
    let (_, uuid, _unanswered) = server.lock().await;
    let error = soon(running.end).await.unwrap().unwrap_err().to_string();
    let expected = format!("lost lock (request timed out), request-uuid {uuid}: ");
    assert!(error.starts_with(&expected), "{error}");
}

/// It waits for the server until the deadline, as the original does, which is why it times out.
#[tokio::test]
async fn a_runner_waits_for_an_unreachable_server_until_the_deadline() {
    let server = server!(None, GRPC_OF_ONE_WORKER);
    let beside = connect(&server, "").await;
    let pulse = async || drop(soon(beside.inspect("pulse")).await.unwrap());
    undisturbed(Duration::from_millis(200), pulse, async |interval| {
        let relay = Relay::to(server.listener("grpc")).await;
        let locket = soon(Locket::connect(&relay.grpc_url())).await.unwrap();
        let runner = LockRunner::new(locket, format!("k {interval:?}"), "jim").retry_interval(interval);
        let mut running = start(|signal, ready| runner.run(signal, ready));
        soon(&mut running.ready).await.unwrap();
        // Long before the first renewal, which would fail at once if it was under way.
        drop(relay);
        let error = soon(running.end).await.unwrap().unwrap_err();
        assert!(error.to_string().starts_with("lost lock (request timed out), "), "{error}");
    })
    .await;
}

#[tokio::test]
async fn a_runner_may_start_before_its_server() {
    let nowhere = Nowhere::new();
    let locket = Locket::connect_lazily(&format!("http://{}", nowhere.address()), &Tls::new()).unwrap();
    let interval = Duration::from_millis(250);
    let mut running = start_lock(&locket, "jim", interval);
    assert!(tokio::time::timeout(interval * 2, &mut running.ready).await.is_err());
    let server = server!(None, GRPC);
    let _relay = Relay::at(nowhere, server.listener("grpc"));
    soon(&mut running.ready).await.unwrap();
}

#[tokio::test]
async fn a_signal_releases_the_lock_and_ends_the_runner_without_an_error() {
    let mut server = FakeServer::start().await;
    for answer in [Ok(()), Err(collision())] {
        let mut running = start_lock(&server.locket, "jim", HOUR);
        server.answer_lock(Ok(())).await;
        soon(&mut running.ready).await.unwrap();
        running.signal.cancel();
        let released = server.answer_release(answer).await;
        assert_eq!((&*released.key, &*released.owner), ("k", "jim"));
        soon(running.end).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_signal_ends_an_unanswered_first_attempt() {
    let mut server = FakeServer::start().await;
    let running = start_lock(&server.locket, "jim", HOUR);
    let (_, _, _unanswered) = server.lock().await;
    running.signal.cancel();
    server.answer_release(Ok(())).await;
    soon(running.end).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_presence_runner_acquires_its_key_again_after_a_loss() {
    undisturbed(
        INTERVAL,
        async || {},
        async |interval| {
            let mut server = FakeServer::start().await;
            let runner = PresenceRunner::new(server.locket.clone(), "k", "jim").retry_interval(interval);
            let mut running = start(|signal, ready| runner.run(signal, ready));
            let (request, _, answer) = server.lock().await;
            assert_eq!(request.resource.unwrap().type_code(), TypeCode::Presence);
            answer.send(Ok(())).unwrap();
            soon(&mut running.ready).await.unwrap();
            for answer in [Err(collision()), Err(Status::internal("boom")), Ok(()), Err(collision())] {
                server.answer_lock(answer).await;
            }
            let (_, _, _unanswered) = server.lock().await;
            server.answer_lock(Ok(())).await;
            assert!(!running.end.is_finished());
            running.signal.cancel();
            server.answer_release(Ok(())).await;
            soon(running.end).await.unwrap();
        },
    )
    .await;
}

/// A server that stops refuses streams that it has not served.
#[tokio::test]
async fn a_runner_keeps_its_lock_when_a_stream_is_refused() {
    undisturbed(
        INTERVAL * 20,
        async || {},
        async |interval| {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = format!("http://{}", listener.local_addr().unwrap());
            let locket = Locket::connect_lazily(&address, &Tls::new()).unwrap();
            let running = start_lock(&locket, "jim", interval);
            let (socket, _) = soon(listener.accept()).await.unwrap();
            let mut connection = h2::server::handshake(socket).await.unwrap();
            for is_refused in [false, true, false] {
                let (_, mut answer) = soon(connection.accept()).await.expect("a call").unwrap();
                if is_refused {
                    answer.send_reset(h2::Reason::REFUSED_STREAM);
                } else {
                    grant(answer);
                }
            }
            assert!(!running.end.is_finished(), "the lock is lost");
        },
    )
    .await;
}

/// Answers a call with an empty message.
fn grant(mut answer: h2::server::SendResponse<bytes::Bytes>) {
    let response = http::Response::builder().header("content-type", "application/grpc").body(()).unwrap();
    let mut stream = answer.send_response(response, false).unwrap();
    stream.send_data(bytes::Bytes::from_static(&[0; 5]), false).unwrap();
    let trailers = [("grpc-status".parse().unwrap(), "0".parse().unwrap())];
    stream.send_trailers(trailers.into_iter().collect()).unwrap();
}
