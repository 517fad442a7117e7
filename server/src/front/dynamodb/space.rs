//! Lane in one namespace, through which an operation sends its requests.

use super::problem::Problem;
use crate::driver::{Inlet, Reply};
use crate::front::FrontCaller;
use waymaker_protocol::{NamespaceKind, Request, Response};

/// Prefix of the namespaces of tables. The prefix and the name of a table are the namespace that Waymaker's own clients
/// use for the lazy registrations of `clever/TABLE`.
const PREFIX: &str = "lazy/clever/";

/// Returns the namespace of a table.
pub(super) fn namespace(table: &str) -> String {
    format!("{PREFIX}{table}")
}

/// Returns the table of a namespace; `None` if the name does not begin with [`PREFIX`].
pub(super) fn table(namespace: &str) -> Option<&str> {
    namespace.strip_prefix(PREFIX)
}

/// Lane (stream of requests to a worker) in one namespace. A DynamoDB request reads and writes registrations (keys with
/// an owner) through it. A registration belongs to its owner and not to the lane, so it stays when the lane closes.
#[derive(Debug)]
pub(super) struct Space(Inlet);

impl Space {
    /// Opens a lane for the requests of a caller. Creates the namespace if it does not exist.
    pub(super) fn open(kind: NamespaceKind, namespace: &str, caller: &FrontCaller) -> Result<Self, Problem> {
        let owner = caller.address.as_deref().unwrap_or_default().as_bytes();
        let inlet = Inlet::open(kind, namespace.as_bytes(), owner, caller.lane_client());
        inlet.map(Self).map_err(|reply| Problem::from(&reply))
    }

    /// Sends a request and reads the response. An error of the worker becomes a problem.
    pub(super) async fn ask<T>(
        &self,
        request: Request<'_>,
        read: impl FnOnce(Response<'_>) -> Option<T>,
    ) -> Result<T, Problem> {
        let reply = self.reply(request).await?;
        match reply.response() {
            Response::Error(error) => Err(Problem::from(&error)),
            response => read(response).ok_or_else(Problem::unexpected),
        }
    }

    /// Sends a request and returns the response, which may be an error.
    pub(super) async fn reply(&self, request: Request<'_>) -> Result<Reply, Problem> {
        Ok(self.0.ask(|number, out| request.encode(number, out)).await?)
    }
}
