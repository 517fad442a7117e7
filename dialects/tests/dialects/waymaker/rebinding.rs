//! Streams that break, and servers that fall silent.

use std::time::Instant;

use super::fake::FakeServer;
use super::*;
use crate::connected::connect;
use crate::relay::Relay;
use crate::undisturbed::undisturbed;
use tonic::Status;
use waymaker_dialects::waymaker::Loss;
use waymaker_proto::waymaker::{LockEvent as Event, LockEventType};

/// An `Acquired` as of a server whose clock began with the attempt.
fn granted(id: &str, fence_token: u64, lease_expires_at: i64) -> Event {
    let event_type = LockEventType::Acquired.into();
    Event { event_type, id: id.to_owned(), fence_token, lease_expires_at, ..Event::default() }
}

#[tokio::test]
async fn a_lock_survives_cut_connections_and_only_heartbeats_arrive() {
    let server = server!(None, GRPC_OF_ONE_WORKER);
    let (direct, beside) = (client(&server).await, connect(&server, "").await);
    let pulse = async || drop(soon(beside.inspect("pulse")).await.unwrap());
    undisturbed(Duration::from_millis(900), pulse, async |lease| {
        let relay = Relay::to(server.listener("grpc")).await;
        let client = client_at(&relay.grpc_url()).await;
        let key = format!("k {lease:?}");
        let mut events = client.lock(patient(&key).max_lease_period(lease));
        let hold = acquired(&mut events).await;
        for _ in 0..2 {
            relay.cut();
            // Comes only over a stream, so over a new one.
            let LockEvent::Heartbeat { id, .. } = next(&mut events).await else {
                panic!("nothing but heartbeats")
            };
            assert_eq!(id, hold.id);
            events.extend(lease).await.unwrap();
        }
        direct.unlock(&key, &hold.id).await.unwrap();
        while let Some(event) = soon(events.next()).await {
            assert!(matches!(event, Ok(LockEvent::Heartbeat { .. })), "{event:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_guard_survives_the_loss_of_its_connection() {
    let server = server!(None, GRPC);
    let direct = client(&server).await;
    let relay = Relay::to(server.listener("grpc")).await;
    let client = client_at(&relay.grpc_url()).await;
    let held = client.acquire(patient("k")).await.unwrap();
    relay.cut();
    // If the guard reports the end, the client follows the events again.
    direct.unlock("k", held.id()).await.unwrap();
    assert!(matches!(soon(held.lost()).await, Loss::Unlocked | Loss::Expired));
    let held = client.acquire(patient("k")).await.unwrap();
    relay.cut();
    held.unlock().await.expect("the connection is opened again for it");
    assert!(is_free(&direct, "k").await);
}

#[tokio::test]
async fn a_wait_continues_in_a_new_queue_position_after_a_lost_connection() {
    let server = server!(None, GRPC);
    let (direct, beside) = (client(&server).await, connect(&server, "").await);
    let holder = direct.acquire(patient("k")).await.unwrap();
    let relay = Relay::to(server.listener("grpc")).await;
    let client = client_at(&relay.grpc_url()).await;
    let mut events = client.lock(patient("k"));
    let lost = waiting(&mut events).await;
    // An attempt that comes before the server has noticed the cut takes over the old place.
    relay.cut_until_noticed(until_queued(&beside, 0)).await;
    let place = waiting(&mut events).await;
    assert_ne!(place, lost);
    holder.unlock().await.unwrap();
    assert_eq!(acquired(&mut events).await.id, place);
}

#[tokio::test]
async fn a_lock_is_lost_at_the_local_deadline_if_its_server_is_unreachable() {
    let server = server!(None, GRPC);
    let relay = Relay::to(server.listener("grpc")).await;
    let client = client_at(&relay.grpc_url()).await;
    let lease = Duration::from_secs(2);
    let began = Instant::now();
    let held = client.acquire(patient("k").max_lease_period(lease)).await.unwrap();
    assert!(held.remaining() < lease);
    drop(relay);
    assert_eq!(soon(held.lost()).await, Loss::LocalDeadline);
    assert!(!held.is_held());
    assert!(began.elapsed() > lease / 2, "lost after {:?}", began.elapsed());
}

#[tokio::test]
async fn a_lock_is_lost_at_the_local_deadline_if_its_server_is_silent() {
    let mut server = FakeServer::start().await;
    let client = client_at(&server.address).await;
    let mut events = client.lock(LockRequest::new("k"));
    let began = Instant::now();
    let (_, say) = tokio::select! {
        asked = server.asked() => asked,
        _ = events.next() => panic!("nothing was said yet"),
    };
    say.send(Ok(granted("one", 1, 2_000))).unwrap();
    acquired(&mut events).await;
    assert!(expired(&mut events).await, "nobody but the local deadline says so");
    assert!(began.elapsed() > Duration::from_secs(1), "lost after {:?}", began.elapsed());
}

#[tokio::test]
async fn a_lock_unknown_to_the_server_expires_and_its_replacement_is_unlocked() {
    let mut server = FakeServer::start().await;
    let client = client_at(&server.address).await;
    // Neither another lock nor the same id with another token is the held lock.
    for (id, fence_token) in [("two", 7), ("one", 8)] {
        let acquiring = tokio::spawn({
            let client = client.clone();
            async move { client.acquire(LockRequest::new("k").max_wait_period(SOON)).await }
        });
        let (first, say) = server.asked().await;
        assert_eq!((first.max_wait_period, first.request_id.len()), (60_000, 32));
        say.send(Ok(granted("one", 7, 3_600_000))).unwrap();
        let held = acquiring.await.unwrap().unwrap();
        say.send(Err(Status::unavailable("the server is stopping"))).unwrap();
        let (again, say) = server.asked().await;
        assert_eq!((again.key, again.request_id), (first.key, first.request_id));
        assert_eq!(again.max_wait_period, 0, "what is held is not waited for");
        say.send(Ok(granted(id, fence_token, 3_600_000))).unwrap();
        assert_eq!(soon(held.lost()).await, Loss::Expired);
        assert!(!held.is_held());
        assert_eq!(server.unlocked().await, id);
        drop(held);
        assert_eq!(server.unlocked().await, "one");
    }
}

/// It may have been granted to the attempt before or to this one.
#[tokio::test]
async fn a_lock_granted_to_a_later_attempt_is_held_for_its_whole_lease() {
    let mut server = FakeServer::start().await;
    let client = client_at(&server.address).await;
    let lease = Duration::from_secs(10);
    let script = async {
        let (_, say) = server.asked().await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        let cut = Instant::now();
        say.send(Err(Status::unavailable("cut"))).unwrap();
        let (_, say) = server.asked().await;
        say.send(Ok(granted("one", 1, 10_000))).unwrap();
        (cut, say)
    };
    let (held, (cut, _say)) = tokio::join!(client.acquire(LockRequest::new("k")), script);
    let held = held.unwrap();
    let remaining = held.remaining();
    let deadline = Instant::now() + remaining;
    assert!(held.remaining() < lease);
    // The margin of such a lease is 150 ms.
    assert!(deadline >= cut + lease - Duration::from_millis(150), "{:?} after the cut", deadline - cut);
}

#[tokio::test]
async fn a_held_lock_survives_a_shutdown_message_but_expires_if_refused() {
    let mut server = FakeServer::start().await;
    let client = client_at(&server.address).await;
    let mut events = client.lock(LockRequest::new("k"));
    let failure = |message: &str| {
        let event_type = LockEventType::Failed.into();
        Ok(Event { event_type, message: message.to_owned(), ..Event::default() })
    };
    let script = async {
        let (_, say) = server.asked().await;
        say.send(Ok(granted("one", 1, 3_600_000))).unwrap();
        drop(say.send(Err(Status::unavailable("cut"))));
        for message in ["shutdown: the server is stopping", "timeout: somebody holds it"] {
            let (_, say) = server.asked().await;
            say.send(failure(message)).unwrap();
        }
    };
    let (is_local, ()) = tokio::join!(
        async {
            acquired(&mut events).await;
            expired(&mut events).await
        },
        script
    );
    assert!(!is_local);
}

#[tokio::test]
async fn a_wait_without_a_reachable_server_ends_with_its_period() {
    let server = server!(None, GRPC);
    let direct = client(&server).await;
    let _holder = direct.acquire(patient("k")).await.unwrap();
    for period in LONGER_AND_LONGER {
        let relay = Relay::to(server.listener("grpc")).await;
        let client = client_at(&relay.grpc_url()).await;
        let mut events = client.lock(LockRequest::new("k").max_wait_period(period));
        waiting(&mut events).await;
        drop(relay);
        match soon(events.next()).await {
            Some(Err(Error::Transport(_))) => return assert!(events.next().await.is_none()),
            // The wait ended before the connection was cut.
            Some(Ok(LockEvent::Failed { error: Error::Timeout(_), .. })) => {}
            other => panic!("{other:?}"),
        }
    }
    panic!("no connection was cut in time");
}

#[tokio::test]
async fn unknown_event_types_are_ignored() {
    let mut server = FakeServer::start().await;
    let client = client_at(&server.address).await;
    let mut events = client.lock(LockRequest::new("k"));
    let script = async {
        let (_, say) = server.asked().await;
        for event_type in [0, 6, -1, i32::MAX] {
            say.send(Ok(Event { event_type, ..granted("no", 1, 1) })).unwrap();
        }
        say.send(Ok(granted("one", 1, 3_600_000))).unwrap();
        say
    };
    let (hold, _say) = tokio::join!(acquired(&mut events), script);
    assert_eq!(hold.id, "one");
}

/// The server serves the longer extension and then the shorter one; the answers come in the other order.
#[tokio::test]
async fn a_late_extension_answer_does_not_undo_a_later_extension() {
    let mut server = FakeServer::start().await;
    let client = client_at(&server.address).await;
    let script = async {
        let (_, say) = server.asked().await;
        say.send(Ok(granted("one", 1, 3_600_000))).unwrap();
        say
    };
    let (held, _say) = tokio::join!(client.acquire(LockRequest::new("k")), script);
    let held = held.unwrap();
    let short = Duration::from_secs(20);
    // The longer one is polled first, so it is sent first.
    let (longer, shorter) = tokio::join!(held.extend(2 * HOUR), held.extend(short));
    longer.unwrap();
    shorter.unwrap();
    assert!(held.remaining() < short, "believed in for {:?}, and the lease is {short:?}", held.remaining());
}

#[tokio::test]
async fn an_extension_answered_after_the_local_deadline_does_not_revive_the_lock() {
    let mut server = FakeServer::start().await;
    let client = client_at(&server.address).await;
    let script = async {
        let (_, say) = server.asked().await;
        say.send(Ok(granted("one", 1, 100))).unwrap();
        say
    };
    let (held, _say) = tokio::join!(client.acquire(LockRequest::new("k")), script);
    let held = held.unwrap();
    // The answer comes after half a second.
    assert!(matches!(soon(held.extend(2 * HOUR)).await, Err(Error::NotFound(_))));
    assert!(!held.is_held());
}
