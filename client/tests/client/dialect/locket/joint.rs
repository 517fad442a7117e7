//! Several runners as one.

use super::*;
use std::sync::{Arc, Mutex};
use waymaker_client::dialect::locket::{BoxError, JointError, JointLock, LockRunner};

const START_TIMEOUT: Duration = Duration::from_millis(100);

/// What the members did, in order.
#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<String>>>);

impl Diary {
    fn write(&self, entry: impl Into<String>) {
        self.0.lock().unwrap().push(entry.into());
    }

    fn read(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// A runner that is ready after a while, fails after another if it is to, and otherwise ends at the signal.
fn member(
    diary: &Diary,
    name: &'static str,
    ready_after: Duration,
    fails_after: Option<Duration>,
) -> impl waymaker_client::dialect::locket::Runner {
    let diary = diary.clone();
    move |signal: CancellationToken, ready: oneshot::Sender<()>| async move {
        diary.write(format!("{name} starts"));
        let fails = async {
            match fails_after {
                Some(after) => tokio::time::sleep(after).await,
                None => std::future::pending().await,
            }
        };
        let runs = async {
            tokio::time::sleep(ready_after).await;
            diary.write(format!("{name} is ready"));
            let _ = ready.send(());
            signal.cancelled().await;
        };
        tokio::select! {
            () = fails => Err(BoxError::from("boom")),
            () = runs => {
                diary.write(format!("{name} stops"));
                Ok(())
            }
            () = signal.cancelled() => {
                diary.write(format!("{name} stops"));
                Ok(())
            }
        }
    }
}

struct Running {
    signal: CancellationToken,
    ready: oneshot::Receiver<()>,
    end: tokio::task::JoinHandle<Result<(), JointError>>,
}

fn start(joint: JointLock) -> Running {
    let (signal, (tell, ready)) = (CancellationToken::new(), oneshot::channel());
    let end = tokio::spawn(joint.run(signal.clone(), tell));
    Running { signal, ready, end }
}

const AT_ONCE: Duration = Duration::ZERO;

#[tokio::test]
async fn each_starts_when_the_one_before_is_ready_and_the_first_may_be_slow() {
    let diary = Diary::default();
    let joint = JointLock::new(START_TIMEOUT)
        .member("one", member(&diary, "one", START_TIMEOUT * 2, None))
        .member("two", member(&diary, "two", AT_ONCE, None));
    let running = start(joint);
    soon(running.ready).await.unwrap();
    assert_eq!(diary.read(), ["one starts", "one is ready", "two starts", "two is ready"]);
    running.signal.cancel();
    soon(running.end).await.unwrap().unwrap();
    assert_eq!(diary.read().iter().filter(|entry| entry.ends_with("stops")).count(), 2);
}

#[tokio::test]
async fn one_without_members_is_ready_and_waits_for_the_signal() {
    let running = start(JointLock::new(START_TIMEOUT));
    soon(running.ready).await.unwrap();
    assert!(!running.end.is_finished());
    running.signal.cancel();
    soon(running.end).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_first_that_fails_ends_it_and_no_other_starts() {
    let diary = Diary::default();
    let joint = JointLock::new(START_TIMEOUT)
        .member("one", member(&diary, "one", START_TIMEOUT * 9, Some(AT_ONCE)))
        .member("two", member(&diary, "two", AT_ONCE, None));
    let running = start(joint);
    let error = soon(running.end).await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "one: boom");
    assert_eq!(diary.read(), ["one starts"]);
    assert!(running.ready.await.is_err(), "it never was ready");
}

#[tokio::test]
async fn a_second_that_fails_stops_the_first() {
    for fails_after in [AT_ONCE, START_TIMEOUT * 2] {
        let diary = Diary::default();
        let joint = JointLock::new(START_TIMEOUT)
            .member("one", member(&diary, "one", AT_ONCE, None))
            .member("two", member(&diary, "two", START_TIMEOUT / 20, Some(fails_after)));
        let running = start(joint);
        let error = soon(running.end).await.unwrap().unwrap_err();
        assert_eq!(error.to_string(), "two: boom");
        assert_eq!(diary.read().last().unwrap(), "one stops");
    }
}

#[tokio::test]
async fn a_second_that_is_not_ready_in_time_ends_it_and_both_are_stopped() {
    let diary = Diary::default();
    let joint = JointLock::new(START_TIMEOUT)
        .member("one", member(&diary, "one", AT_ONCE, None))
        .member("two", member(&diary, "two", START_TIMEOUT * 600, None));
    let error = soon(start(joint).end).await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "two: failed to start in time");
    assert_eq!(diary.read().iter().filter(|entry| entry.ends_with("stops")).count(), 2);
}

#[tokio::test]
async fn two_lock_runners_hold_both_keys_or_none() {
    let server = server!(None, GRPC);
    let locket = client(&server).await;
    let joint = |owner: &str| {
        let runner =
            |key: &str| LockRunner::new(locket.clone(), key, owner).retry_interval(START_TIMEOUT / 4);
        JointLock::new(START_TIMEOUT * 20).member("a", runner("a")).member("b", runner("b"))
    };
    let running = start(joint("jim"));
    soon(running.ready).await.unwrap();
    for key in ["a", "b"] {
        assert_eq!(locket.fetch(key).await.unwrap().owner, "jim");
    }
    let mut next = start(joint("nima"));
    running.signal.cancel();
    soon(running.end).await.unwrap().unwrap();
    soon(&mut next.ready).await.unwrap();
    // Its second key goes to another, and the runner ends; the first is released.
    let taken = async {
        while locket.lock(lock("b", "jim"), 60).await.is_err() {
            // The runner may have renewed it in between.
            let _ = locket.release(lock("b", "nima")).await;
        }
    };
    soon(taken).await;
    let error = soon(next.end).await.unwrap().unwrap_err().to_string();
    assert!(
        error.starts_with("b: lost lock (request failed), ") && error.ends_with("lock-collision"),
        "{error}"
    );
    assert!(matches!(locket.fetch("a").await, Err(Error::ResourceNotFound)));
}
