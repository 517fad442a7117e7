//! Additional processes of the stress test: this test program, started again.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use waymaker_client::LockId;

use super::beliefs::Belief;
use super::believe;

/// Environment variable with the task of a process: the address of the server, its number, and the number of locks.
const TASK: &str = "WAYMAKER_STRESS_TASK";
const CHILD_COUNT: u64 = 2;
/// Prefix of a line with a belief.
const MARK: &str = "belief";

/// A process that takes part.
pub(crate) struct Participant {
    child: Child,
    reading: Option<JoinHandle<Vec<Belief>>>,
}

/// Starts processes that acquire an equal share of the locks each.
pub(crate) fn start(server_url: &str, lock_count: u64) -> Vec<Participant> {
    let share = lock_count / (CHILD_COUNT + 1);
    (1..=CHILD_COUNT)
        .map(|process| {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "stress::processes::subprocess_entry", "--nocapture", "--test-threads=1"])
                .env(TASK, format!("{server_url} {process} {share}"))
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let reading =
                std::thread::spawn(|| lines.map_while(Result::ok).filter_map(|line| parse(&line)).collect());
            Participant { child, reading: Some(reading) }
        })
        .collect()
}

impl Participant {
    /// Waits for the process to end, and returns the beliefs of its guards.
    pub(crate) fn finish(mut self) -> Vec<Belief> {
        let beliefs = self.reading.take().expect("it is finished once").join().unwrap();
        assert!(self.child.wait().unwrap().success(), "a process that took part failed");
        beliefs
    }
}

impl Drop for Participant {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the part of a process that [`start`] started. Without a task the test does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subprocess_entry() {
    let Ok(task) = std::env::var(TASK) else { return };
    let [url, process, lock_count] = task.split(' ').collect::<Vec<_>>().try_into().unwrap();
    for belief in believe(url, process.parse().unwrap(), lock_count.parse().unwrap()).await {
        let Belief { key, id, fence, is_shared, client, begin, end } = belief;
        let LockId { place, secret } = id;
        println!("{MARK} {key} {place} {secret} {fence} {is_shared} {client} {begin} {end}");
    }
}

fn parse(line: &str) -> Option<Belief> {
    // The test harness may have printed text before the first line.
    let mut words = line[line.find(MARK)?..].split(' ').skip(1);
    let key = words.next()?.to_owned();
    let number = |words: &mut dyn Iterator<Item = &str>| words.next()?.parse().ok();
    let id = LockId { place: number(&mut words)?, secret: number(&mut words)? };
    let fence = number(&mut words)?;
    let is_shared = words.next()? == "true";
    let (client, begin, end) = (number(&mut words)?, number(&mut words)?, number(&mut words)?);
    Some(Belief { key, id, fence, is_shared, client, begin, end })
}
