//! Inlet (lane of a front end) that is opened at its first use.

use super::client::FrontCaller;
use crate::driver::{Inlet, Reply};
use std::sync::{Arc, Mutex, PoisonError};
use waymaker_protocol::NamespaceKind;

/// Inlet (lane of a front end) into one namespace, opened at its first use. Most connections use only a few of their
/// possible inlets.
#[derive(Debug)]
pub(crate) struct LazyInlet {
    kind: NamespaceKind,
    namespace: &'static [u8],
    caller: FrontCaller,
    opened: Mutex<Option<Arc<Inlet>>>,
}

impl LazyInlet {
    /// Creates a closed inlet for the requests of this caller.
    pub(crate) const fn new(kind: NamespaceKind, namespace: &'static [u8], caller: FrontCaller) -> Self {
        Self { kind, namespace, caller, opened: Mutex::new(None) }
    }

    /// Returns the inlet, and opens it if it is not open. An inlet that the worker has closed is opened again: the
    /// identity may have been invalid only for a time.
    ///
    /// # Errors
    /// Returns the refusal of the worker.
    pub(crate) fn get(&self) -> Result<Arc<Inlet>, Reply> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(inlet) = opened.as_ref().filter(|inlet| !inlet.is_closed()) {
            return Ok(Arc::clone(inlet));
        }
        let inlet = Arc::new(Inlet::open(self.kind, self.namespace, b"", self.caller.lane_client())?);
        *opened = Some(Arc::clone(&inlet));
        Ok(inlet)
    }
}
