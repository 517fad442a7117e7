//! The handle of a connection. The client, its guards, watches and futures send commands and requests to the connection
//! task through it.

mod command;
mod questions;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc;
use waymaker_protocol::{LockId, Response};

use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::key::Key;
use crate::request::job::{Ask, Job};
use crate::request::need::Need;
use crate::request::reply::Reply;
use crate::session::Member;
pub(crate) use command::Command;

/// Handle of a connection, shared by the client and its guards, watches and futures. The connection ends when the last
/// of them is dropped.
pub(crate) struct Handle {
    commands: mpsc::UnboundedSender<Command>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Token of the next acquire or watch of this connection.
    token_next: AtomicU64,
}

impl Handle {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> (Arc<Self>, mpsc::UnboundedReceiver<Command>) {
        let (commands, receiver) = mpsc::unbounded_channel();
        (Arc::new(Self { commands, clock, token_next: AtomicU64::new(0) }), receiver)
    }

    pub(crate) fn submit(&self, job: Job) -> Result<()> {
        self.command(Command::Submit(job))
    }

    /// Ends the claim with this id, even if it belongs to another client.
    pub(crate) async fn release(&self, id: LockId, key: Option<Key>) -> Result<bool> {
        let (reply, answer) = Reply::channel();
        let (take_up_number, is_own) = (None, false);
        self.submit(Job::Release { id, key, by_guard: false, take_up_number, is_own, reply })?;
        answer.await.unwrap_or(Err(Error::Closed))
    }

    pub(crate) fn command(&self, command: Command) -> Result<()> {
        self.commands.send(command).map_err(|_| Error::Closed)
    }

    /// Returns the callback through which other connections of the client inform this one that the session has ended.
    pub(crate) fn member(&self) -> Member {
        // A weak sender, so that the connection ends when its last handle is dropped.
        let commands = self.commands.downgrade();
        Member::new(move |id| {
            commands.upgrade().is_some_and(|commands| commands.send(Command::SessionGone { id }).is_ok())
        })
    }

    /// Returns whether the connection task has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.commands.is_closed()
    }

    pub(crate) fn next_token(&self) -> u64 {
        self.token_next.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends the request that `encode` writes, and returns the value that `read` makes of the response. `read` returns
    /// `None` if the response does not fit the request.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        encode: impl Fn(u32, &mut Vec<u8>) + Send + 'static,
        read: impl Fn(Response<'_>) -> Option<T> + Send + 'static,
    ) -> Result<T> {
        self.ask_with(None, encode, read).await
    }

    /// Like [`Handle::ask`], but the client refuses the request if the server lacks the capability `need`.
    pub(crate) async fn ask_with<T: Send + 'static>(
        &self,
        need: Option<Need>,
        encode: impl Fn(u32, &mut Vec<u8>) + Send + 'static,
        read: impl Fn(Response<'_>) -> Option<T> + Send + 'static,
    ) -> Result<T> {
        self.ask_or_change(need, false, encode, read).await
    }

    /// Like [`Handle::ask_with`], for a request that changes something at the server. After a restart of the server, or
    /// in a new session, the lane sends an unanswered request again. If this repetition is refused as `not_found` or
    /// unavailable, the first transmission may still have taken effect. The caller then gets [`Error::Uncertain`].
    pub(crate) async fn change<T: Send + 'static>(
        &self,
        need: Option<Need>,
        encode: impl Fn(u32, &mut Vec<u8>) + Send + 'static,
        read: impl Fn(Response<'_>) -> Option<T> + Send + 'static,
    ) -> Result<T> {
        self.ask_or_change(need, true, encode, read).await
    }

    async fn ask_or_change<T: Send + 'static>(
        &self,
        need: Option<Need>,
        is_change: bool,
        encode: impl Fn(u32, &mut Vec<u8>) + Send + 'static,
        read: impl Fn(Response<'_>) -> Option<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = Reply::channel();
        self.submit(Job::Ask(Box::new(Ask { need, is_change, encode, read, reply })))?;
        answer.await.unwrap_or(Err(Error::Closed))
    }

    /// Requests all pages of a list and returns their items. Each request has the cursor that the previous page
    /// returned, at first 0. The last page returns the cursor 0.
    pub(crate) async fn ask_all<T: Send + 'static>(
        &self,
        encode: impl Fn(u64, u32, &mut Vec<u8>) + Clone + Send + 'static,
        read: fn(Response<'_>) -> Option<(u64, Vec<T>)>,
    ) -> Result<Vec<T>> {
        self.ask_all_with(None, encode, read).await
    }

    /// Like [`Handle::ask_all`], but the client refuses the request if the server lacks the capability `need`.
    pub(crate) async fn ask_all_with<T: Send + 'static>(
        &self,
        need: Option<Need>,
        encode: impl Fn(u64, u32, &mut Vec<u8>) + Clone + Send + 'static,
        read: fn(Response<'_>) -> Option<(u64, Vec<T>)>,
    ) -> Result<Vec<T>> {
        let mut all = Vec::new();
        let mut cursor = 0;
        loop {
            let encode = encode.clone();
            let (next, page) =
                self.ask_with(need, move |number, out| encode(cursor, number, out), read).await?;
            all.extend(page);
            cursor = next;
            if cursor == 0 {
                return Ok(all);
            }
        }
    }
}
