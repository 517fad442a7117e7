//! Watched keys. A watch on the server ends with its connection, so the lane begins each watch again on the next
//! connection.

use std::collections::BTreeMap;

use waymaker_protocol::{ErrorCode, Watching};

use super::Lane;
use crate::error::Error;
use crate::key::Key;
use crate::key::KeyState;
use crate::request::job::Job;
use crate::request::job::{Listener, WatchJob};
use crate::request::reply::Reply;

/// All watches of a lane, by token. An entry stays until its watch is dropped, refused or ended by the client.
#[derive(Default)]
pub(super) struct Watches {
    entries: BTreeMap<u64, Entry>,
    /// Tokens of the watches that the server has confirmed, by the request number of the watch.
    tokens: BTreeMap<u32, u64>,
}

struct Entry {
    key: Key,
    listener: Listener,
    /// Request number of the watch; `None` while the server has not confirmed the watch.
    number: Option<u32>,
}

impl Watches {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Passes the new state of the key to the listener of the watch with this number.
    pub(super) fn tell(&self, number: u32, state: KeyState) {
        if let Some(entry) = self.tokens.get(&number).and_then(|token| self.entries.get(token)) {
            entry.listener.tell(state);
        }
    }

    /// Adds the listener of a new watch.
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
    /// Called when the server confirms that it watches the key. Stores the request number of the watch, reports the
    /// current state to its listener, and answers the caller. If the caller dropped the watch before this response,
    /// ends it on the server instead.
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

    /// Handles a refused watch: ends it, and reports the error to its caller. If a stopping server refuses to begin an
    /// existing watch again, the watch stays and begins again on the next connection.
    pub(super) fn not_watching(&mut self, mut job: WatchJob, error: Error) {
        if error.code() == Some(ErrorCode::Shutdown) && !job.reply.has_caller() {
            return;
        }
        self.watches.remove(job.token);
        job.reply.answer(Err(error));
    }

    /// Ends the watch with this token, which was dropped.
    pub(crate) fn unwatch(&mut self, token: u64) {
        // A watch without a number is unconfirmed. `watching` ends it on the server when its response arrives.
        if let Some(Entry { key, number: Some(watch_number), .. }) = self.watches.remove(token) {
            self.window.push(Job::Unwatch { watch_number, key });
        }
    }

    /// Ends all watches for their callers. The watches on the server end with the connection.
    pub(super) fn end_watches(&mut self) {
        self.watches = Watches::default();
        drop(self.take_unanswered_watches());
    }

    /// Restarts the watch with this number, because the server has dropped events of it. The new watch begins with the
    /// current state.
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

    /// Removes the requests that must not be repeated on a new connection: watches, their ends, and pages of the list
    /// of holds. Returns the unanswered watches, which must begin under new numbers.
    pub(super) fn take_unanswered_watches(&mut self) -> Vec<WatchJob> {
        let of_the_connection =
            |job: &Job| matches!(job, Job::Watch(_) | Job::Unwatch { .. } | Job::Holds { .. });
        let taken = self.window.take_prompt(of_the_connection).into_iter();
        taken.filter_map(|job| if let Job::Watch(job) = job { Some(job) } else { None }).collect()
    }

    /// Begins every watch again on a new connection.
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
