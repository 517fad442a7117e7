//! Several runners as one.

use super::*;
use crate::connected::connect;
use crate::patience::HOUR;
use crate::undisturbed::undisturbed;
use std::sync::{Arc, Mutex};
use waymaker_dialects::locket::{BoxError, JointError, JointLock, LockRunner, Runner};

/// Steps of the members, in order.
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

/// When a member becomes ready, or fails.
enum When {
    AtOnce,
    Never,
    /// When the test sends the signal.
    Told(oneshot::Receiver<()>),
}

impl When {
    async fn come(self) {
        match self {
            Self::AtOnce => {}
            Self::Never => std::future::pending().await,
            Self::Told(told) => told.await.expect("the test tells it"),
        }
    }
}

/// Returns a runner that becomes ready, may fail, and otherwise ends at the signal.
fn member(diary: &Diary, name: &'static str, ready_when: When, fails_when: When) -> impl Runner {
    let diary = diary.clone();
    move |signal: CancellationToken, ready: oneshot::Sender<()>| async move {
        diary.write(format!("{name} starts"));
        let runs = async {
            ready_when.come().await;
            diary.write(format!("{name} is ready"));
            let _ = ready.send(());
            signal.cancelled().await;
        };
        tokio::select! {
            biased;
            () = runs => {
                diary.write(format!("{name} stops"));
                Ok(())
            }
            () = signal.cancelled() => {
                diary.write(format!("{name} stops"));
                Ok(())
            }
            () = fails_when.come() => Err(BoxError::from("boom")),
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

#[tokio::test]
async fn each_member_starts_when_the_previous_one_is_ready() {
    let (diary, (ready, told)) = (Diary::default(), oneshot::channel());
    let start_timeout = Duration::from_millis(20);
    let joint = JointLock::new(start_timeout)
        .member("one", member(&diary, "one", When::Told(told), When::Never))
        .member("two", member(&diary, "two", When::AtOnce, When::Never));
    let running = start(joint);
    tokio::time::sleep(2 * start_timeout).await;
    assert!(!running.end.is_finished());
    ready.send(()).unwrap();
    soon(running.ready).await.unwrap();
    assert_eq!(diary.read(), ["one starts", "one is ready", "two starts", "two is ready"]);
    running.signal.cancel();
    soon(running.end).await.unwrap().unwrap();
    assert_eq!(diary.read().iter().filter(|entry| entry.ends_with("stops")).count(), 2);
}

#[tokio::test]
async fn a_joint_lock_without_members_is_ready_until_the_signal() {
    let running = start(JointLock::new(HOUR));
    soon(running.ready).await.unwrap();
    assert!(!running.end.is_finished());
    running.signal.cancel();
    soon(running.end).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_failing_first_member_ends_the_joint_lock() {
    let diary = Diary::default();
    let joint = JointLock::new(HOUR)
        .member("one", member(&diary, "one", When::Never, When::AtOnce))
        .member("two", member(&diary, "two", When::AtOnce, When::Never));
    let running = start(joint);
    let error = soon(running.end).await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "one: boom");
    assert_eq!(diary.read(), ["one starts"]);
    assert!(running.ready.await.is_err(), "it never was ready");
}

#[tokio::test]
async fn a_failing_second_member_stops_the_first() {
    for ready_when in [When::Never, When::AtOnce] {
        let (diary, (fail, told)) = (Diary::default(), oneshot::channel());
        let joint = JointLock::new(HOUR)
            .member("one", member(&diary, "one", When::AtOnce, When::Never))
            .member("two", member(&diary, "two", ready_when, When::Told(told)));
        let running = start(joint);
        eventually(async || diary.read().contains(&"two starts".to_owned())).await;
        fail.send(()).unwrap();
        let error = soon(running.end).await.unwrap().unwrap_err();
        assert_eq!(error.to_string(), "two: boom");
        assert_eq!(diary.read().last().unwrap(), "one stops");
    }
}

#[tokio::test]
async fn a_member_that_is_not_ready_in_time_stops_all_members() {
    let diary = Diary::default();
    let joint = JointLock::new(Duration::from_millis(20))
        .member("one", member(&diary, "one", When::AtOnce, When::Never))
        .member("two", member(&diary, "two", When::Never, When::Never));
    let error = soon(start(joint).end).await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "two: failed to start in time");
    assert_eq!(diary.read().iter().filter(|entry| entry.ends_with("stops")).count(), 2);
}

#[tokio::test]
async fn two_lock_runners_hold_both_keys_or_none() {
    let server = server!(None, GRPC_OF_ONE_WORKER);
    let (locket, beside) = (client(&server).await, connect(&server, "").await);
    let pulse = async || drop(soon(beside.inspect("pulse")).await.unwrap());
    undisturbed(Duration::from_millis(25), pulse, async |interval| {
        let [a, b] = ["a", "b"].map(|name| format!("{name} {interval:?}"));
        let joint = |owner: &str| {
            let runner = |key: &str| LockRunner::new(locket.clone(), key, owner).retry_interval(interval);
            JointLock::new(HOUR).member("a", runner(&a)).member("b", runner(&b))
        };
        let running = start(joint("jim"));
        soon(running.ready).await.unwrap();
        for key in [&a, &b] {
            assert_eq!(locket.fetch(key).await.unwrap().owner, "jim");
        }
        let mut next = start(joint("nima"));
        running.signal.cancel();
        soon(running.end).await.unwrap().unwrap();
        soon(&mut next.ready).await.unwrap();
        // Its second key goes to another, and the runner ends; the first is released.
        let taken = async {
            while locket.lock(lock(&b, "jim"), 60).await.is_err() {
                // The runner may have renewed it in between.
                let _ = locket.release(lock(&b, "nima")).await;
            }
        };
        soon(taken).await;
        let error = soon(next.end).await.unwrap().unwrap_err().to_string();
        assert!(
            error.starts_with("b: lost lock (request failed), ") && error.ends_with("lock-collision"),
            "{error}"
        );
        assert!(matches!(locket.fetch(&a).await, Err(Error::ResourceNotFound)));
    })
    .await;
}
