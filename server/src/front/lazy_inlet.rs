//! A lane that is opened when it is first needed.

use super::client::FrontCaller;
use crate::driver::{Inlet, Reply};
use std::sync::{Arc, OnceLock};
use waymaker_protocol::NamespaceKind;

/// An inlet into one namespace. Most connections of a front end need but few of those that they could have.
#[derive(Debug)]
pub(crate) struct LazyInlet {
    kind: NamespaceKind,
    namespace: &'static [u8],
    caller: FrontCaller,
    opened: OnceLock<Arc<Inlet>>,
}

impl LazyInlet {
    /// Not opened yet. It is for the requests of this caller.
    pub(crate) const fn new(kind: NamespaceKind, namespace: &'static [u8], caller: FrontCaller) -> Self {
        Self { kind, namespace, caller, opened: OnceLock::new() }
    }

    /// The inlet; it is open from here on.
    ///
    /// # Errors
    /// What the worker said instead of a welcome.
    pub(crate) fn get(&self) -> Result<&Arc<Inlet>, Reply> {
        if let Some(inlet) = self.opened.get() {
            return Ok(inlet);
        }
        let inlet = Inlet::open(self.kind, self.namespace, b"", &self.caller)?;
        Ok(self.opened.get_or_init(|| Arc::new(inlet)))
    }
}
