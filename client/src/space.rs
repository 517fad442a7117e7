//! The connections of a client that share a session.
//!
//! A connection serves one namespace, and a namespace has one kind. So the client has one connection for each kind in
//! use. The first is for plain keys and opens when the client connects. The others open at first use. All of them
//! belong to one session.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use waymaker_protocol::limits::NAMESPACE_LEN_MAX;
use waymaker_protocol::{NamespaceKind, Readable, Welcome};

use crate::clock::Clock;
use crate::connection;
use crate::connection::link::Target;
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::lane::SessionOptions;
use crate::request::check::check_len;
use crate::session::Session;

/// Owner of a session's connections. The client shares it with the objects made from it, such as limiters, semaphores
/// and registries. When the last of them is dropped, the connections end, except those that a guard, a watch or a
/// running acquire still uses.
pub(crate) struct Space {
    /// Target of the first connection.
    target: Target,
    options: SessionOptions,
    pub(crate) clock: Arc<dyn Clock>,
    runtime: tokio::runtime::Handle,
    pub(crate) session: Arc<Session>,
    /// The first connection.
    pub(crate) flat: Arc<Handle>,
    /// The connections for the namespaces of all kinds but the kind of the first connection (`flat`), by the number of
    /// the kind. They open at first use.
    others: Mutex<BTreeMap<u8, Arc<Handle>>>,
}

impl Space {
    /// Opens the first connection, and returns the server's welcome. Must be called in the runtime in which all
    /// connections will live.
    pub(crate) async fn open(
        target: Target,
        options: SessionOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<(Arc<Self>, Welcome)> {
        let session = Arc::new(Session::default());
        let (flat, commands) = Handle::new(Arc::clone(&clock));
        session.enter(flat.member())?;
        let welcome = connection::open(target.clone(), options, &session, &flat, commands).await?;
        let runtime = tokio::runtime::Handle::current();
        let others = Mutex::default();
        let space = Arc::new(Self { target, options, clock, runtime, session, flat, others });
        Ok((space, welcome))
    }

    /// Returns the name on the wire of the client's namespace of this kind.
    pub(crate) fn name_of(&self, kind: NamespaceKind) -> Vec<u8> {
        [prefix(kind).as_bytes(), &self.target.namespace].concat()
    }

    /// Returns the connection for the namespace of this kind. If there is none yet, it opens in the background, and
    /// requests to it wait until it is open.
    pub(crate) fn handle(&self, kind: NamespaceKind) -> Result<Arc<Handle>> {
        if kind == self.target.kind {
            return Ok(Arc::clone(&self.flat));
        }
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = others.get(&kind.number()) {
            return Ok(Arc::clone(handle));
        }
        let namespace = self.name_of(kind);
        check_len("namespace", &namespace, 1, NAMESPACE_LEN_MAX)?;
        let target = Target { kind, namespace, ..self.target.clone() };
        let (handle, commands) = Handle::new(Arc::clone(&self.clock));
        self.session.enter(handle.member())?;
        let _runtime = self.runtime.enter();
        if let Err(error) = connection::start(target, self.options, &self.session, &handle, commands) {
            self.session.leave();
            return Err(error);
        }
        others.insert(kind.number(), Arc::clone(&handle));
        Ok(handle)
    }

    /// Returns all connections that were opened so far.
    pub(crate) fn handles(&self) -> Vec<Arc<Handle>> {
        let others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        std::iter::once(&self.flat).chain(others.values()).map(Arc::clone).collect()
    }

    /// Returns the connections that may have holds: all except the connection for token buckets, which have no holders.
    pub(crate) fn holding_handles(&self) -> Vec<Arc<Handle>> {
        let others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        let holding = others.iter().filter(|(kind, _)| **kind != NamespaceKind::Limit.number());
        std::iter::once(&self.flat).chain(holding.map(|(_, handle)| handle)).map(Arc::clone).collect()
    }

    /// Returns the client's owner, the default for claims and registrations.
    pub(crate) fn owner(&self) -> &[u8] {
        &self.target.owner
    }

    /// Runs a task in the runtime of the connections.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(task);
    }

    /// Returns a timer of the client's clock. Fails with [`Error::Unavailable`] if the system has no timer left.
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
