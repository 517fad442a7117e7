//! A lane that is opened when it is first needed.

use crate::driver::{Inlet, Reply};
use std::sync::{Arc, OnceLock};
use waymaker_protocol::NamespaceKind;

/// An inlet into one namespace. Most connections of a front end need but few of those that they could have.
#[derive(Debug)]
pub(crate) struct LazyInlet {
    kind: NamespaceKind,
    namespace: &'static [u8],
    opened: OnceLock<Arc<Inlet>>,
}

impl LazyInlet {
    /// Not opened yet.
    pub(crate) const fn new(kind: NamespaceKind, namespace: &'static [u8]) -> Self {
        Self { kind, namespace, opened: OnceLock::new() }
    }

    /// The inlet; it is open from here on.
    ///
    /// # Errors
    /// What the worker said instead of a welcome.
    pub(crate) fn get(&self) -> Result<&Arc<Inlet>, Reply> {
        if let Some(inlet) = self.opened.get() {
            return Ok(inlet);
        }
        let inlet = Inlet::open(self.kind, self.namespace, b"")?;
        Ok(self.opened.get_or_init(|| Arc::new(inlet)))
    }
}
