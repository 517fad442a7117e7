//! Attempts that count only if no process stalled during them.

use std::any::Any;
use std::cell::Cell;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

/// Time of each attempt, as a multiple of the time of the first.
const FACTORS: [u32; 4] = [1, 8, 64, 512];
/// A stall of more than this part of the time may be the reason for a failure: several such stalls may add up.
const STALL_PART: u32 = 20;

/// Runs an attempt that succeeds only if several tasks react within `time`, for example before the deadline of a call.
///
/// A program that is not scheduled for that time misses the deadline, which is correct. So a failure counts only if
/// nothing stalled. Otherwise another attempt follows, with more time.
///
/// `pulse` detects stalls: it sends a query to the server of the attempt, if there is one. The runtime must have one
/// thread, and the server one worker, so that the pulse stalls whenever one of them does.
pub(crate) async fn undisturbed(time: Duration, pulse: impl AsyncFn(), attempt: impl AsyncFn(Duration)) {
    for factor in FACTORS {
        let time = time * factor;
        let longest = Cell::new(Duration::ZERO);
        let watching = async {
            loop {
                let begin = Instant::now();
                pulse().await;
                tokio::time::sleep(Duration::from_millis(1)).await;
                longest.set(longest.get().max(begin.elapsed()));
            }
        };
        let failed = tokio::select! {
            biased;
            // This branch is polled first, so that a stall is noted before its consequences.
            () = watching => unreachable!("it watches to the end"),
            outcome = outcome(attempt(time)) => match outcome {
                Ok(()) => return,
                Err(failed) => failed,
            },
        };
        if longest.get() < time / STALL_PART || Some(&factor) == FACTORS.last() {
            resume_unwind(failed);
        }
        eprintln!("an attempt with {time:?} failed after a stall of {:?}; trying again", longest.get());
    }
}

/// Waits for a future, and returns its panic as an error.
async fn outcome(future: impl Future<Output = ()>) -> Result<(), Box<dyn Any + Send>> {
    let mut future = pin!(future);
    poll_fn(|context| {
        // The future is not polled again after a panic.
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    })
    .await
}

#[tokio::test]
async fn a_failed_attempt_is_repeated_only_after_a_stall() {
    let attempt = async |stall: Duration| {
        let times = Cell::new(0);
        let failing = undisturbed(
            Duration::from_secs(10),
            async || {},
            async |time| {
                times.set(times.get() + 1);
                tokio::time::sleep(Duration::from_millis(5)).await;
                std::thread::sleep(stall);
                tokio::task::yield_now().await;
                assert!(time > Duration::from_secs(10), "too little time");
            },
        );
        (outcome(failing).await.is_ok(), times.get())
    };
    assert_eq!(attempt(Duration::from_secs(10) / STALL_PART).await, (true, 2));
    let (is_over, times) = attempt(Duration::ZERO).await;
    // The machine may have stalled in spite of this.
    assert!((is_over, times) == (false, 1) || (is_over, times) == (true, 2));
}
