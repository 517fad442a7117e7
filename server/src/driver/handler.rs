//! The interface between the driver and the front ends.

use super::{Intake, Local};
use std::rc::Rc;
use std::sync::Arc;

/// Serves the connections of every port except the port of the binary protocol.
pub(crate) trait ConnectionHandler: Send + Sync + 'static {
    /// Makes this handler the handler of the current thread. The driver calls it once for each worker, before its first
    /// connection.
    fn enter(self: &Arc<Self>);

    /// Serves a connection on the thread of a worker until it closes.
    fn serve(self: Arc<Self>, local: Rc<Local>, intake: Intake) -> impl Future<Output = ()> + 'static;
}
