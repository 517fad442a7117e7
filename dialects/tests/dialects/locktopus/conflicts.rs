//! Which sets wait for each other, and who is next: the tests of the lock table of Locktopus.

use waymaker_dialects::locktopus::LocktopusClient;

use super::{connect, locktopus_server, set, url};
use crate::patience::soon;
use crate::real::RealServer;

/// A connection whose lock was granted at once, or has its place in the queue.
async fn locked(server: &RealServer, text: &str, is_granted: bool) -> LocktopusClient {
    let client = connect(server).await;
    assert_eq!(client.lock(&set(text)).await, Ok(is_granted), "{text}");
    client
}

#[tokio::test]
async fn sets_conflict_if_paths_overlap_and_one_is_written() {
    let server = locktopus_server!();
    for (number, (held, asked, is_granted)) in [
        ("W a/b/c", "W a/b/c", false),
        ("W []", "W a/b/c", false),
        ("W []", "W []", false),
        ("W a/b", "W a/b/2", false),
        ("W a/b/2", "W a/b", false),
        ("W a/b/1", "W a/b/2", true),
        ("R a/b/1", "R a/b/2", true),
        ("R a", "R a", true),
        ("R a", "W a/1/x", false),
        ("R a, W a/b", "R a/c", true),
        ("R a, W a/b", "R a", false),
        ("R a, W a/b", "R a/b", false),
        ("R [], W c", "R []", false),
        ("R a", "R a, W a", false),
        ("W 2", "R 1, W 3, W []", false),
        ("W 2/1, R 2", "R 2, R 2/1/1", false),
        (r#"W """#, "W a", true),
        (r#"W """#, "W []", false),
    ]
    .into_iter()
    .enumerate()
    {
        let namespace = url(&server, &format!("case-{number}"));
        let holder = LocktopusClient::connect(&namespace).await.unwrap();
        let asker = LocktopusClient::connect(&namespace).await.unwrap();
        assert_eq!(holder.lock(&set(held)).await, Ok(true), "{held}");
        assert_eq!(asker.lock(&set(asked)).await, Ok(is_granted), "{held} held, {asked} asked");
        assert_eq!(holder.release().await, Ok(()));
        assert_eq!(soon(asker.acquire()).await, Ok(()), "{held} released, {asked} asked");
    }
}

#[tokio::test]
async fn resources_of_one_lock_never_wait_for_each_other() {
    let server = locktopus_server!();
    let client = connect(&server).await;
    for redundant in ["W a, W a", "W a, R a/b", "R a, W a/b", "W a, W a/b, W a/b/c", "R a, R a, R []"] {
        assert_eq!(client.lock(&set(redundant)).await, Ok(true), "{redundant}");
        assert_eq!(client.release().await, Ok(()));
    }
}

/// AdjacentReads.
#[tokio::test]
async fn waiting_reads_are_granted_together_and_the_write_behind_them_last() {
    let server = locktopus_server!();
    let holder = locked(&server, "W a", true).await;
    let mut readers = Vec::new();
    for path in ["a/b", "a/b/1", "a/b/2", "a/b/1/a", "a/b/1/b", "a/b/2/a", "a/b/2/b", "[]"] {
        readers.push(locked(&server, &format!("R {path}"), false).await);
    }
    let writer = locked(&server, "W a/b/2/b/c", false).await;
    assert_eq!(holder.release().await, Ok(()));
    for reader in readers.iter().rev() {
        assert_eq!(soon(reader.acquire()).await, Ok(()));
    }
    let (last, others) = readers.split_last().unwrap();
    for reader in others {
        assert!(!writer.is_acquired());
        assert_eq!(reader.release().await, Ok(()));
    }
    // The last one reads everything.
    assert!(!writer.is_acquired());
    assert_eq!(last.release().await, Ok(()));
    assert_eq!(soon(writer.acquire()).await, Ok(()));
}

/// PartialWriteOverlapping: no circle, no gap.
#[tokio::test]
async fn a_lock_has_one_queue_position_for_all_resources() {
    let server = locktopus_server!();
    let first = locked(&server, "W a/1, W a/2, W a/3", true).await;
    let second = locked(&server, "R a/3, R a/4, R a/5", false).await;
    let third = locked(&server, "W a/5, W a/6, W a/7", false).await;
    let unrelated = locked(&server, "W a/8", true).await;
    assert_eq!(unrelated.release().await, Ok(()));
    assert_eq!(first.release().await, Ok(()));
    assert_eq!(soon(second.acquire()).await, Ok(()));
    assert!(!third.is_acquired());
    assert_eq!(second.release().await, Ok(()));
    assert_eq!(soon(third.acquire()).await, Ok(()));
}

/// PartialReadOverlapping.
#[tokio::test]
async fn sets_that_share_only_reads_are_held_together() {
    let server = locktopus_server!();
    locked(&server, "W a/1, W a/2, R a/3", true).await;
    locked(&server, "R a/3, W a/4, R a/5", true).await;
    locked(&server, "R a/5, W a/6, W a/7", true).await;
}

/// HeadAfterTail.
#[tokio::test]
async fn a_read_waits_behind_an_earlier_set_that_writes_its_path() {
    let server = locktopus_server!();
    let first = locked(&server, "W a/1", true).await;
    let second = locked(&server, "R a/1/2, W a/1", false).await;
    let third = locked(&server, "R a/1", false).await;
    assert_eq!(first.release().await, Ok(()));
    assert_eq!(soon(second.acquire()).await, Ok(()));
    assert!(!third.is_acquired());
    assert_eq!(second.release().await, Ok(()));
    assert_eq!(soon(third.acquire()).await, Ok(()));
}

/// Complex_3 and Complex_4.
#[tokio::test]
async fn a_read_queues_behind_an_earlier_waiting_read() {
    let server = locktopus_server!();
    let reader = locked(&server, "R a", true).await;
    let writer = locked(&server, "W a/1, W a/2", false).await;
    let whole = locked(&server, "R []", false).await;
    let beside = locked(&server, "R a/3", false).await;
    assert_eq!(reader.release().await, Ok(()));
    assert_eq!(soon(writer.acquire()).await, Ok(()));
    assert!(!whole.is_acquired() && !beside.is_acquired());
    assert_eq!(writer.release().await, Ok(()));
    assert_eq!(soon(whole.acquire()).await, Ok(()));
    assert_eq!(soon(beside.acquire()).await, Ok(()));
}
