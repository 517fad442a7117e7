//! All keys or none.

use super::*;
use waymaker_client::FenceScope;
use waymaker_dialects::waymaker::MultiLockRequest;

fn patient_for(keys: &[&str]) -> MultiLockRequest {
    let request = MultiLockRequest::new().max_wait_period(SOON).max_lease_period(HOUR);
    keys.iter().fold(request, |request, key| request.write_lock(*key))
}

#[tokio::test]
async fn a_multi_lock_returns_its_keys_in_byte_order() {
    let server = server!(None, GRPC);
    let client = client(&server).await;
    let leases = client.multi_lock(patient_for(&["b", "a", "B"])).await.unwrap();
    let found: Vec<_> = leases.iter().map(|lease| (lease.key.as_str(), lease.fence_token)).collect();
    assert_eq!(found, [("B", 1), ("a", 1), ("b", 1)]);
    assert!(leases.iter().all(|lease| lease.acquired));
    for lease in leases {
        client.unlock(&lease.key, &lease.id).await.unwrap();
        assert!(is_free(&client, &lease.key).await, "each is unlocked by itself");
    }
}

#[tokio::test]
async fn multi_locks_with_opposite_key_orders_never_deadlock() {
    let server = server!(None, GRPC);
    let rounds = |keys: [&'static str; 2]| {
        let connecting = client(&server);
        async move {
            let client = connecting.await;
            for _ in 0..1000 {
                for lease in soon(client.multi_lock(patient_for(&keys))).await.unwrap() {
                    client.unlock(&lease.key, &lease.id).await.unwrap();
                }
            }
        }
    };
    tokio::join!(rounds(["a", "b"]), rounds(["b", "a"]));
}

#[tokio::test]
async fn a_timed_out_multi_lock_holds_nothing_and_uses_no_token() {
    let server = server!(None, GRPC);
    let client = client(&server).await;
    let held = client.acquire(patient("b")).await.unwrap();
    let request = patient_for(&["a", "b", "c"]).max_wait_period(Duration::from_millis(50));
    assert!(matches!(client.multi_lock(request).await, Err(Error::Timeout(_))));
    let listed = client.list_acquired_locks("").await.unwrap();
    assert_eq!(listed.iter().map(|lock| lock.key.as_str()).collect::<Vec<_>>(), ["b"]);
    held.unlock().await.unwrap();
    let leases = client.multi_lock(patient_for(&["a", "b", "c"])).await.unwrap();
    assert_eq!(leases.iter().map(|lease| lease.fence_token).collect::<Vec<_>>(), [1, 2, 1]);
}

#[tokio::test]
async fn modes_can_be_mixed_and_write_wins_for_a_repeated_key() {
    let server = server!(None, GRPC);
    let client = client(&server).await;
    let request = MultiLockRequest::new().read_lock("a").write_lock("b").read_lock("b").read_lock("a");
    let leases = client.multi_lock(request).await.unwrap();
    assert_eq!(leases.iter().map(|lease| lease.key.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    let listed = client.list_acquired_locks("").await.unwrap();
    assert_eq!(listed.iter().map(|lock| lock.write_lock).collect::<Vec<_>>(), [false, true]);
    client.acquire_read(LockRequest::new("a")).await.expect("it is shared").unlock().await.unwrap();
    assert!(matches!(client.acquire_read(LockRequest::new("b")).await, Err(Error::Timeout(_))));
}

#[tokio::test]
async fn an_invalid_multi_lock_is_rejected_with_a_specific_code() {
    let server = server!(None, GRPC);
    let client = client(&server).await;
    assert!(matches!(client.multi_lock(MultiLockRequest::new()).await, Err(Error::NoKeys(_))));
    let request = patient_for(&["a", "b"]).fence_scope(FenceScope::Quorum);
    assert!(matches!(client.multi_lock(request).await, Err(Error::InvalidScope(_))));
    assert!(matches!(client.multi_lock(patient_for(&["a", ""])).await, Err(Error::BadInput(_))));
    assert!(client.list_acquired_locks("").await.unwrap().is_empty());
}

#[tokio::test]
async fn a_multi_lock_repeated_by_its_request_id_finds_its_locks() {
    let server = server!(None, GRPC);
    let client = client(&server).await;
    let request = || patient_for(&["a", "b"]).request_id("r");
    let leases = client.multi_lock(request()).await.unwrap();
    let ids = |leases: &[waymaker_dialects::waymaker::Lease]| -> Vec<_> {
        leases.iter().map(|lease| (lease.id.clone(), lease.fence_token)).collect()
    };
    assert_eq!(ids(&client.multi_lock(request()).await.unwrap()), ids(&leases));
    client.unlock("a", &leases[0].id).await.unwrap();
    assert!(matches!(client.multi_lock(request()).await, Err(Error::BadInput(_))));
    client.unlock("b", &leases[1].id).await.unwrap();
    assert_ne!(ids(&client.multi_lock(request()).await.unwrap()), ids(&leases));
}
