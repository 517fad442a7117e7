//! The keys that are watched. A watch of the server ends with its connection, so each is begun again on the next.

use std::collections::BTreeMap;

use waymaker_protocol::{ErrorCode, Watching};

use super::Lane;
use crate::error::Error;
use crate::hold::Key;
use crate::job::Job;
use crate::reply::Reply;
use crate::watch::{KeyState, Listener, WatchJob};

/// All watches of a connection, each named by a token as long as somebody listens.
#[derive(Default)]
pub(super) struct Watches {
    entries: BTreeMap<u64, Entry>,
    /// By the number of the request that the server knows a watch by.
    tokens: BTreeMap<u32, u64>,
}

struct Entry {
    key: Key,
    listener: Listener,
    /// `None` while the server does not watch.
    number: Option<u32>,
}

impl Watches {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The key that the request with this number watches has changed.
    pub(super) fn tell(&self, number: u32, state: KeyState) {
        if let Some(entry) = self.tokens.get(&number).and_then(|token| self.entries.get(token)) {
            entry.listener.tell(state);
        }
    }

    /// Somebody listens from here on.
    pub(super) fn insert(&mut self, job: &mut WatchJob) {
        if let Some(listener) = job.listener.take() {
            self.entries.insert(job.token, Entry { key: job.key.clone(), listener, number: None });
        }
    }

    fn remove(&mut self, token: u64) -> Option<Entry> {
        let entry = self.entries.remove(&token)?;
        if let Some(number) = entry.number {
            self.tokens.remove(&number);
        }
        Some(entry)
    }
}

impl Lane {
    /// The server watches the key, under the number of the request.
    pub(super) fn watching(&mut self, mut job: WatchJob, number: u32, watching: Watching) {
        let fence = watching.fence;
        match self.watches.entries.get_mut(&job.token) {
            Some(entry) => {
                entry.number = Some(number);
                entry.listener.tell(match watching.holder_count {
                    0 => KeyState::Free { fence },
                    _ => KeyState::Held { fence, holder: None },
                });
                self.watches.tokens.insert(number, job.token);
                job.reply.answer(Ok(()));
            }
            None => self.window.push(Job::Unwatch { watch_number: number, key: job.key }),
        }
    }

    /// Whoever listens learns that nothing more will come. A watch that a stopping server refuses to resume begins again on the next
    /// connection.
    pub(super) fn not_watching(&mut self, mut job: WatchJob, error: Error) {
        if error.code() == Some(ErrorCode::Shutdown) && !job.reply.has_caller() {
            return;
        }
        self.watches.remove(job.token);
        job.reply.answer(Err(error));
    }

    /// Nobody listens any more.
    pub(crate) fn unwatch(&mut self, token: u64) {
        // One that is still being asked for is ended when it is answered.
        if let Some(Entry { key, number: Some(watch_number), .. }) = self.watches.remove(token) {
            self.window.push(Job::Unwatch { watch_number, key });
        }
    }

    /// Nobody is told anything any more. The watches themselves end with the connection.
    pub(super) fn end_watches(&mut self) {
        self.watches = Watches::default();
        drop(self.take_unanswered_watches());
    }

    /// Events were dropped: a new watch begins with how things are now.
    pub(super) fn overrun(&mut self, number: u32) {
        if let Some(token) = self.watches.tokens.remove(&number)
            && let Some(entry) = self.watches.entries.get_mut(&token)
        {
            entry.number = None;
            let key = entry.key.clone();
            self.window.push(Job::Unwatch { watch_number: number, key: key.clone() });
            self.window.push(Job::Watch(WatchJob { token, key, listener: None, reply: Reply::Nobody }));
        }
    }

    /// Takes out what must not be repeated on a new connection, and returns the watches that were never answered.
    pub(super) fn take_unanswered_watches(&mut self) -> Vec<WatchJob> {
        let of_the_connection =
            |job: &Job| matches!(job, Job::Watch(_) | Job::Unwatch { .. } | Job::Holds { .. });
        let taken = self.window.take_prompt(of_the_connection).into_iter();
        taken.filter_map(|job| if let Job::Watch(job) = job { Some(job) } else { None }).collect()
    }

    /// Begins every watch again.
    pub(super) fn watch_again(&mut self, unanswered: Vec<WatchJob>) {
        let mut unanswered: BTreeMap<u64, WatchJob> =
            unanswered.into_iter().map(|job| (job.token, job)).collect();
        self.watches.tokens.clear();
        for (token, entry) in &mut self.watches.entries {
            entry.number = None;
            let (token, key) = (*token, entry.key.clone());
            let job = unanswered.remove(&token).unwrap_or(WatchJob {
                token,
                key,
                listener: None,
                reply: Reply::Nobody,
            });
            self.window.push(Job::Watch(job));
        }
    }
}
