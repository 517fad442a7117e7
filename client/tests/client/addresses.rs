//! Several addresses of a server.

use waymaker_client::{Client, Error, LossReason, Unavailable};

use crate::nowhere::Nowhere;
use crate::patience::{patient, soon};
use crate::real::server;
use crate::relay::Relay;

#[tokio::test]
async fn the_first_address_that_answers_is_used() {
    let (server, closed) = (server!(), [Nowhere::new(), Nowhere::new()]);
    let urls = format!("{}, {},{}", closed[0].url(), closed[1].url(), server.url());
    let client = soon(patient().connect(&urls)).await.unwrap();
    assert_eq!(soon(client.write("k").into_future()).await.unwrap().fence(), 1);
    // Later connections use the address that worked.
    assert_eq!(soon(client.semaphore("s", 1).into_future()).await.unwrap().fence(), 1);
}

#[tokio::test]
async fn the_error_names_the_last_address_if_no_server_answers() {
    let closed = [Nowhere::new(), Nowhere::new()];
    let [first, last] = closed.each_ref().map(Nowhere::url);
    let error = soon(Client::connect(&format!("{first},{last}"))).await.unwrap_err();
    let Error::Unavailable(Unavailable::Unreachable { address, .. }) = &error else { panic!("{error}") };
    assert_eq!(*address, last);
    assert!(matches!(soon(Client::connect(&format!("{first},"))).await, Err(Error::Url(_))));
}

/// Two addresses of one server, of which one fails.
#[tokio::test]
async fn a_session_resumes_over_another_address_without_losing_locks() {
    let server = server!();
    let (first, second) = (Relay::to(server.url()).await, Relay::to(server.url()).await);
    let client = soon(patient().connect(&format!("{},{}", first.url(), second.url()))).await.unwrap();
    let own = soon(client.write("own").into_future()).await.unwrap();
    let of_session = soon(client.write("session").session_lease().into_future()).await.unwrap();
    drop(first);
    // Only the other address still works.
    assert_eq!(soon(client.session().holds()).await.unwrap().len(), 2);
    assert!(own.is_held() && of_session.is_held());
    soon(own.release()).await.unwrap();
    soon(of_session.release()).await.unwrap();
}

#[tokio::test]
async fn locks_of_a_dead_server_are_lost_and_the_next_server_serves() {
    let (mut first, second) = (server!(), server!());
    let client = soon(patient().connect(&format!("{},{}", first.url(), second.url()))).await.unwrap();
    let lock = soon(client.write("k").session_lease().into_future()).await.unwrap();
    first.kill();
    assert_eq!(soon(lock.lost()).await, LossReason::SessionExpired);
    assert_eq!(soon(client.write("k").into_future()).await.unwrap().fence(), 1);
}
