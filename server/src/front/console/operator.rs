//! The operator who sends a request to the console, the server's web page for operators. The request may do only what
//! the rights of the operator's identity allow.

use super::problem::Problem;
use crate::access::Policy;
use crate::driver::{Inlet, Local};
use crate::front::FrontCaller;
use crate::front::http::Connection;
use axum::extract::FromRequestParts;
use http::request::Parts;
use serde::Serialize;
use waymaker_engine::{Access, Rights};
use waymaker_protocol::{NamespaceKind, Request, Response};

/// Client of a console request.
#[derive(Debug)]
pub(super) struct Operator {
    pub(super) caller: FrontCaller,
}

/// Existing namespace, with a lane in it.
#[derive(Debug)]
pub(super) struct Space {
    pub(super) number: u16,
    pub(super) kind: NamespaceKind,
    /// Rights of the operator; `None` means all rights.
    pub(super) access: Option<Access>,
    inlet: Inlet,
}

/// Operations that the operator may use in a namespace, for at least one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Permissions {
    list: bool,
    inspect: bool,
    force_release: bool,
    freeze: bool,
    resize: bool,
}

impl Permissions {
    const RIGHTS: [Rights; 5] =
        [Rights::LIST, Rights::INSPECT, Rights::FORCE_RELEASE, Rights::FREEZE, Rights::RESIZE];

    /// Returns the operations in a namespace of this kind that a caller with these rights may use. Only pools have a
    /// capacity.
    fn of(kind: NamespaceKind, may: impl Fn(Rights) -> bool) -> Self {
        // A namespace for rate limits has no claims, so none of these operations applies to it.
        let has_claims = kind != NamespaceKind::Limit;
        Self {
            list: may(Rights::LIST) && has_claims,
            inspect: may(Rights::INSPECT) && has_claims,
            force_release: may(Rights::FORCE_RELEASE) && has_claims,
            freeze: may(Rights::FREEZE) && has_claims,
            // A resize first reads the order of the waiters, so it also needs the right to inspect.
            resize: may(Rights::RESIZE) && may(Rights::INSPECT) && kind == NamespaceKind::Pool,
        }
    }
}

impl Operator {
    /// Returns a function from a namespace to the operations that the operator may use there. For many namespaces, call
    /// this once and the function for each of them.
    pub(super) fn may(&self, policy: &Policy) -> impl Fn(&[u8], NamespaceKind) -> Permissions {
        let allowed =
            Permissions::RIGHTS.map(|right| (right, policy.allowing(self.caller.identity.as_ref(), right)));
        move |namespace, kind| {
            Permissions::of(kind, |right| {
                allowed.iter().any(|(own, is_in)| *own == right && is_in(namespace))
            })
        }
    }

    /// Opens a lane in an existing namespace. If the namespace is removed between the lookup and the opening, creates
    /// it again. A client without the right does not learn whether the namespace exists.
    pub(super) fn space(&self, name: &str, right: Rights) -> Result<Space, Problem> {
        if name.is_empty() {
            return Err(Problem::bad_input("namespace", "must be the name of a namespace"));
        }
        self.caller.check_right(name.as_bytes(), right).map_err(Problem::unauthorized)?;
        let found = Local::with(|local| local.node.find_namespace(name.as_bytes()));
        let (number, kind) =
            found.ok_or_else(|| Problem::not_found("there is no namespace of this name".to_owned()))?;
        let access = self.caller.access(name.as_bytes(), kind);
        let owner = self.caller.address.as_deref().unwrap_or_default().as_bytes();
        let inlet = Inlet::open(kind, name.as_bytes(), owner, self.caller.lane_client())
            .map_err(|reply| Problem::from(&reply))?;
        Ok(Space { number, kind, access, inlet })
    }
}

/// Identifies the client of a request.
impl<S: Sync> FromRequestParts<S> for Operator {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let connection = parts.extensions.get::<Connection>().ok_or_else(Problem::unexpected)?;
        Ok(Self { caller: connection.caller(&parts.headers)? })
    }
}

impl Space {
    /// Returns the operations that the operator may use in this namespace.
    pub(super) fn may(&self) -> Permissions {
        Permissions::of(self.kind, |right| {
            self.access.as_ref().is_none_or(|access| access.somewhere().contains(right))
        })
    }

    /// Sends a request and reads the response.
    pub(super) async fn ask<T>(
        &self,
        request: Request<'_>,
        read: impl FnOnce(Response<'_>) -> Option<T>,
    ) -> Result<T, Problem> {
        let reply = self.inlet.ask(|number, out| request.encode(number, out)).await?;
        match reply.response() {
            Response::Error(error) => Err(Problem::from(&error)),
            response => read(response).ok_or_else(Problem::unexpected),
        }
    }
}
