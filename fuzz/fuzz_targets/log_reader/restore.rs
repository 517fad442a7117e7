//! Restores a node from a log, as a server does.

use std::sync::Arc;
use waymaker_engine::{Limits, Time};
use waymaker_log::{Image, Started};
use waymaker_server::clock::Clock;
use waymaker_server::limits::SESSION_VACANT_MS;
use waymaker_server::node::{Node, NodeConfig};
use waymaker_server::recovery;
use waymaker_server::worker::Worker;

const START: Time = Time::from_millis(1_000_000);
/// Holds are compared with each other, so a run with more would only take longer.
const HOLD_COUNT_MAX: usize = 256;

/// A stopped clock.
#[derive(Debug)]
struct StoppedClock;

impl Clock for StoppedClock {
    fn now(&self) -> Time {
        START
    }

    fn nanos(&self) -> u64 {
        START.as_millis() * 1_000_000
    }

    fn unix_micros(&self) -> i64 {
        0
    }
}

/// Checks that a snapshot of the image has the same contents, and restores a node.
pub(crate) fn check(mut image: Image) {
    check_snapshot(&image);
    image.rebase(&Started { boot_id: [1; 16], now_ms: START.as_millis(), unix_ms: 0 });
    for contradiction in image.contradictions() {
        image.end(contradiction.older.0);
    }
    if image.hold_count() > HOLD_COUNT_MAX {
        return;
    }
    for worker_count in [1, 2] {
        let mut node = Node::new(&NodeConfig {
            worker_count,
            acceptor_count: 0,
            limits: Limits::default(),
            session_vacant_ms: SESSION_VACANT_MS,
            start: START,
            seed: [7; 32],
            clock: Arc::new(StoppedClock),
            memory: Arc::default(),
            log: None,
            quorum: None,
        });
        if recovery::restore(&mut node, &image, START).is_err() {
            continue;
        }
        verify(&node);
        let node = Arc::new(node);
        let mut workers: Vec<_> =
            (0..worker_count).map(|index| Worker::new(Arc::clone(&node), index as u16, START)).collect();
        // All leases end.
        let later = START.after_ms(u64::from(u32::MAX));
        for worker in &mut workers {
            worker.tick(later);
            worker.handle_drained(later, later);
            worker.handle_mail(later);
        }
        verify(&node);
    }
}

/// A snapshot is the shortest log with the same result.
fn check_snapshot(image: &Image) {
    let records = written(image);
    let mut again = Image::default();
    for record in &records {
        again.apply(0, record).expect("an image writes facts");
    }
    assert_eq!(written(&again), records, "a snapshot has the contents of the log");
}

fn written(image: &Image) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    image.write(&mut |record| records.push(record.to_vec()));
    records
}

fn verify(node: &Node) {
    for hosted in &node.shards {
        let turn = hosted.enter().expect("the turn is free");
        turn.shard.verify();
        assert!(turn.leave().is_none(), "no batch is left behind");
    }
}
