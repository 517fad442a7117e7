//! Operations on rows: acquire or keep a lock, release it, and read it.

use super::meaning::Meaning;
use super::problem::Problem;
use super::row::{TYPE_NAME, row_of};
use super::space::{Space, namespace};
use super::table;
use super::write::{Delete, Get, Put};
use crate::front::FrontCaller;
use crate::front::conversion::unix_ms;
use waymaker_engine::Rights;
use waymaker_protocol::{
    ErrorCode, Heartbeat, LookUp, NamespaceKind, Register, Request, Response, TraceParent, Unregister,
};

const NO_ANSWER: &str = "{}";

/// Opens a lane in the namespace of a table, and prevents the removal of this namespace while it is idle. Fails if the
/// client does not have this right for at least one key of the table, or if the table does not exist.
async fn open(caller: &FrontCaller, table: &str, right: Rights) -> Result<Space, Problem> {
    let namespace = namespace(table);
    // Check the right first: a client without it must not learn whether the table exists.
    caller.check_right(namespace.as_bytes(), right).map_err(Problem::denied)?;
    table::require(table).await?;
    let space = Space::open(NamespaceKind::Lazy, &namespace, caller)?;
    table::pin_namespace(table);
    Ok(space)
}

/// Serves PutItem, which acquires or renews a lock.
pub(super) async fn put(
    caller: &FrontCaller,
    put: &Put,
    traceparent: Option<&TraceParent>,
) -> Result<String, Problem> {
    let space = open(caller, &put.table, Rights::ACQUIRE).await?;
    let register = Register {
        lease_ms: put.leased_until_ms,
        absolute: true,
        key: put.key.as_bytes(),
        owner: put.owner.as_bytes(),
        value: put.row.as_bytes(),
        type_name: TYPE_NAME,
        traceparent: traceparent.map(TraceParent::as_bytes),
        ..Register::default()
    };
    let request = match put.meaning {
        Meaning::Take => Request::Register(register),
        Meaning::Keep => Request::Heartbeat(Heartbeat(register)),
    };
    let read = |response: Response<'_>| matches!(response, Response::Registered(_)).then_some(());
    space.ask(request, read).await?;
    Ok(NO_ANSWER.to_owned())
}

/// Serves DeleteItem, which releases a lock.
pub(super) async fn delete(caller: &FrontCaller, delete: &Delete) -> Result<String, Problem> {
    let space = open(caller, &delete.table, Rights::ACQUIRE).await?;
    let unregister = Unregister { key: delete.key.as_bytes(), owner: delete.owner.as_bytes() };
    let reply = space.reply(Request::Unregister(unregister)).await?;
    match reply.response() {
        Response::Unregistered(_) => Ok(NO_ANSWER.to_owned()),
        // The row is missing. The deletion succeeds nevertheless, because its condition allows a missing row.
        Response::Error(error) if error.code == ErrorCode::NotFound => Ok(NO_ANSWER.to_owned()),
        Response::Error(error) => Err(Problem::from(&error)),
        _ => Err(Problem::unexpected()),
    }
}

/// Serves GetItem, which reads the row of a lock.
pub(super) async fn get(caller: &FrontCaller, get: &Get) -> Result<String, Problem> {
    let space = open(caller, &get.table, Rights::INSPECT).await?;
    let read = |response: Response<'_>| match response {
        Response::LookedUp(found) if found.found => {
            Some(format!("{{\"Item\":{}}}", row_of(&found.entry, unix_ms(found.stamp_ms))))
        }
        Response::LookedUp(_) => Some(NO_ANSWER.to_owned()),
        _ => None,
    };
    space.ask(Request::LookUp(LookUp { key: get.key.as_bytes() }), read).await
}
