//! Clients that never rest, on whatever server there is at the moment.

use super::history::Entry;
use crate::harness::{Server, wait_until};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// How many clients there are, of three kinds.
const CLIENT_COUNT: u64 = 6;

/// Where the server of the moment is, and how the load is going.
#[derive(Debug, Default)]
pub(crate) struct Target {
    place: Mutex<TargetPlace>,
    changed: Condvar,
    /// Acquires that were sent.
    pub(crate) asked: AtomicU64,
    /// Acquires that were answered, or lost with their server.
    pub(crate) over: AtomicU64,
    /// Grants that were answered.
    pub(crate) grants: AtomicU64,
    /// Acquires that were refused for want of room.
    pub(crate) no_space: AtomicU64,
    /// Acquires that were refused because the cluster did not answer, by client.
    pub(crate) quorum_refusals: [AtomicU64; CLIENT_COUNT as usize],
}

#[derive(Debug, Default)]
struct TargetPlace {
    address: String,
    serial: u64,
    is_over: bool,
}

impl Target {
    fn place(&self) -> MutexGuard<'_, TargetPlace> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a server after the one with this number; `None`: there will be none.
    pub(crate) fn next(&self, serial: u64) -> Option<(u64, String)> {
        let place = self.place();
        let waits = |place: &mut TargetPlace| place.serial <= serial && !place.is_over;
        let place = self.changed.wait_while(place, waits).unwrap_or_else(PoisonError::into_inner);
        (!place.is_over).then(|| (place.serial, place.address.clone()))
    }

    pub(crate) fn is_over(&self) -> bool {
        self.place().is_over
    }
}

/// The clients.
#[derive(Debug)]
pub(crate) struct Load {
    pub(crate) target: Arc<Target>,
    clients: Vec<JoinHandle<Vec<Entry>>>,
}

impl Load {
    /// Clients that wait for a server, and then do this, each under its number.
    pub(crate) fn new(run: fn(u64, &Target) -> Vec<Entry>) -> Self {
        let target = Arc::new(Target::default());
        let client = |number| {
            let target = Arc::clone(&target);
            std::thread::spawn(move || run(number, &target))
        };
        let clients = (0..CLIENT_COUNT).map(client).collect();
        Self { target, clients }
    }

    /// Sends all clients to this server.
    pub(crate) fn turn_to(&self, server: &Server) {
        let mut place = self.target.place();
        server.address("binary").clone_into(&mut place.address);
        place.serial += 1;
        self.target.changed.notify_all();
    }

    /// Waits until so many more grants were answered. False if the server ended before that.
    pub(crate) fn wait_for_grants(&self, more: u64, server: &mut Server) -> bool {
        let goal = self.target.grants.load(Ordering::Relaxed) + more;
        let mut has_ended = false;
        wait_until("grants of a server that lives", || {
            has_ended = server.has_ended();
            has_ended || self.target.grants.load(Ordering::Relaxed) >= goal
        });
        !has_ended
    }

    /// Waits until each client has an unanswered acquire. Useful only while the server answers none.
    pub(crate) fn wait_until_all_ask(&self) {
        let over = || self.target.over.load(Ordering::Relaxed);
        wait_until("an acquire of each client", || {
            over() + CLIENT_COUNT == self.target.asked.load(Ordering::Relaxed)
        });
    }

    /// Waits until the server has refused each client once more because the cluster does not answer.
    pub(crate) fn wait_for_quorum_refusals(&self) {
        let counts = || self.target.quorum_refusals.each_ref().map(|count| count.load(Ordering::Relaxed));
        let before = counts();
        wait_until("a refusal of each client", || {
            counts().iter().zip(&before).all(|(now, before)| now > before)
        });
    }

    /// Whether an acquire was refused for want of room.
    pub(crate) fn is_refused_for_room(&self) -> bool {
        self.target.no_space.load(Ordering::Relaxed) > 0
    }

    /// Ends it and says what the clients saw.
    pub(crate) fn stop(self) -> Vec<Entry> {
        self.target.place().is_over = true;
        self.target.changed.notify_all();
        let histories = self.clients.into_iter().map(|client| client.join().expect("clients do not panic"));
        histories.flatten().collect()
    }
}
