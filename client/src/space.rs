//! The connections of a client that share a session.
//!
//! A connection serves one namespace, and a namespace has one kind. So the client has one connection for each kind in
//! use. The first is for plain keys and opens when the client connects. The others open at first use. All of them
//! belong to one session.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;
use waymaker_protocol::limits::NAMESPACE_LEN_MAX;
use waymaker_protocol::{LockId, NamespaceKind, Readable, Response};

use crate::claim::check_len;
use crate::clock::Clock;
use crate::connection;
use crate::error::{Error, Result};
use crate::hold::Key;
use crate::job::{Ask, Command, Job};
use crate::lane::SessionOptions;
use crate::link::Target;
use crate::need::Need;
use crate::reply::Reply;
use crate::router::Layout;
use crate::session::{Member, Session};

/// State that all handles and guards of one connection share.
pub(crate) struct Shared {
    commands: mpsc::UnboundedSender<Command>,
    pub(crate) clock: Arc<dyn Clock>,
    token_next: AtomicU64,
}

impl Shared {
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

    /// Returns the callback through which other connections of the client inform this one.
    pub(crate) fn member(&self) -> Member {
        // A weak sender, so that the connection ends when its last guard and handle are dropped.
        let commands = self.commands.downgrade();
        Member::new(move |id| {
            commands.upgrade().is_some_and(|commands| commands.send(Command::SessionGone { id }).is_ok())
        })
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.commands.is_closed()
    }

    pub(crate) fn next_token(&self) -> u64 {
        self.token_next.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends the request that `encode` writes, and returns the value that `read` makes of the response.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        encode: impl Fn(u32, &mut Vec<u8>) + Send + 'static,
        read: impl Fn(Response<'_>) -> Option<T> + Send + 'static,
    ) -> Result<T> {
        self.ask_with(None, encode, read).await
    }

    /// Like [`Shared::ask`], but refuses the request if the server lacks the required capability.
    pub(crate) async fn ask_with<T: Send + 'static>(
        &self,
        need: Option<Need>,
        encode: impl Fn(u32, &mut Vec<u8>) + Send + 'static,
        read: impl Fn(Response<'_>) -> Option<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = Reply::channel();
        self.submit(Job::Ask(Box::new(Ask { need, encode, read, reply })))?;
        answer.await.unwrap_or(Err(Error::Closed))
    }

    /// Requests page after page, each with the cursor of the previous page. A cursor of 0 marks the last page.
    pub(crate) async fn ask_all<T: Send + 'static>(
        &self,
        encode: impl Fn(u64, u32, &mut Vec<u8>) + Clone + Send + 'static,
        read: fn(Response<'_>) -> Option<(u64, Vec<T>)>,
    ) -> Result<Vec<T>> {
        self.ask_all_with(None, encode, read).await
    }

    /// Like [`Shared::ask_all`], but refuses the request if the server lacks the required capability.
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

/// Owner of a session's connections. When the last client drops it, they end, except connections that a guard still
/// needs.
pub(crate) struct Space {
    /// Target of the first connection.
    target: Target,
    options: SessionOptions,
    pub(crate) clock: Arc<dyn Clock>,
    runtime: tokio::runtime::Handle,
    pub(crate) session: Arc<Session>,
    /// The first connection.
    pub(crate) flat: Arc<Shared>,
    /// The other connections, by the number of their kind.
    others: Mutex<BTreeMap<u8, Arc<Shared>>>,
}

impl Space {
    /// Opens the first connection. Must be called in the runtime in which all connections will live.
    pub(crate) async fn open(
        target: Target,
        options: SessionOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<(Arc<Self>, Layout)> {
        let session = Arc::new(Session::default());
        let (flat, commands) = Shared::new(Arc::clone(&clock));
        session.enter(flat.member())?;
        let layout = connection::open(target.clone(), options, &session, &flat, commands).await?;
        let runtime = tokio::runtime::Handle::current();
        let others = Mutex::default();
        let space = Arc::new(Self { target, options, clock, runtime, session, flat, others });
        Ok((space, layout))
    }

    /// Returns the server's name for the namespace of this kind.
    pub(crate) fn name_of(&self, kind: NamespaceKind) -> Vec<u8> {
        [prefix(kind).as_bytes(), &self.target.namespace].concat()
    }

    /// Returns the connection for this kind. A new connection opens in the background, and its requests wait
    /// meanwhile.
    pub(crate) fn link(&self, kind: NamespaceKind) -> Result<Arc<Shared>> {
        if kind == self.target.kind {
            return Ok(Arc::clone(&self.flat));
        }
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shared) = others.get(&kind.number()) {
            return Ok(Arc::clone(shared));
        }
        let namespace = self.name_of(kind);
        check_len("namespace", &namespace, 1, NAMESPACE_LEN_MAX)?;
        let target = Target { kind, namespace, ..self.target.clone() };
        let (shared, commands) = Shared::new(Arc::clone(&self.clock));
        self.session.enter(shared.member())?;
        let _runtime = self.runtime.enter();
        if let Err(error) = connection::start(target, self.options, &self.session, &shared, commands) {
            self.session.leave();
            return Err(error);
        }
        others.insert(kind.number(), Arc::clone(&shared));
        Ok(shared)
    }

    /// Returns all open connections.
    pub(crate) fn links(&self) -> Vec<Arc<Shared>> {
        let others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        std::iter::once(&self.flat).chain(others.values()).map(Arc::clone).collect()
    }

    /// Returns the connections that may have holds. Buckets have no holders.
    pub(crate) fn holding_links(&self) -> Vec<Arc<Shared>> {
        let others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        let holding = others.iter().filter(|(kind, _)| **kind != NamespaceKind::Limit.number());
        std::iter::once(&self.flat).chain(holding.map(|(_, link)| link)).map(Arc::clone).collect()
    }

    /// Returns the client's owner, the default for claims and registrations.
    pub(crate) fn owner(&self) -> &[u8] {
        &self.target.owner
    }

    /// Runs a task in the runtime of the connections.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(task);
    }

    /// Returns a timer of the client's clock.
    pub(crate) fn timer(&self) -> Result<Box<dyn crate::clock::Timer>> {
        let _runtime = self.runtime.enter();
        self.clock.timer().map_err(Error::no_timer)
    }
}

impl fmt::Debug for Space {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Space")
            .field("namespace", &format_args!("\"{}\"", Readable(&self.target.namespace)))
            .field("closed", &self.flat.is_closed())
            .finish_non_exhaustive()
    }
}

/// Returns the prefix of the client's namespace name for this kind.
fn prefix(kind: NamespaceKind) -> &'static str {
    match kind {
        NamespaceKind::Flat => "",
        NamespaceKind::Tree => "tree/",
        NamespaceKind::Registry => "registry/",
        NamespaceKind::Lazy => "lazy/",
        NamespaceKind::Pool => "sem/",
        NamespaceKind::Limit => "limit/",
    }
}
