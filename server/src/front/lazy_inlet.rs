//! A lane that is opened when it is first needed.

use super::client::FrontCaller;
use crate::driver::{Inlet, Reply};
use std::sync::{Arc, Mutex, PoisonError};
use waymaker_protocol::NamespaceKind;

/// An inlet into one namespace. Most connections of a front end need but few of those that they could have.
#[derive(Debug)]
pub(crate) struct LazyInlet {
    kind: NamespaceKind,
    namespace: &'static [u8],
    caller: FrontCaller,
    opened: Mutex<Option<Arc<Inlet>>>,
}

impl LazyInlet {
    /// Not opened yet. It is for the requests of this caller.
    pub(crate) const fn new(kind: NamespaceKind, namespace: &'static [u8], caller: FrontCaller) -> Self {
        Self { kind, namespace, caller, opened: Mutex::new(None) }
    }

    /// Returns the open inlet. If the worker has closed it, because the identity was not valid for a while, it is opened again.
    ///
    /// # Errors
    /// What the worker said instead of a welcome.
    pub(crate) fn get(&self) -> Result<Arc<Inlet>, Reply> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(inlet) = opened.as_ref().filter(|inlet| !inlet.is_closed()) {
            return Ok(Arc::clone(inlet));
        }
        let inlet = Arc::new(Inlet::open(self.kind, self.namespace, b"", &self.caller)?);
        *opened = Some(Arc::clone(&inlet));
        Ok(inlet)
    }
}
