//! Operations on tables. A table is a namespace of locks that a client created or that the configuration declares.
//!
//! The server keeps its tables in memory ([`Tables`]). With a data directory, each table that a client created is also
//! a registration in a registry of the server. So the table survives a restart, even if it has no locks then.

use super::members::Members;
use super::problem::Problem;
use super::space::{Space, namespace};
use super::tables::{Table, Tables};
use crate::audit::{Act, AuditEvent, Detail, Outcome};
use crate::driver::Local;
use crate::driver::front_turn::next_turn;
use crate::front::conversion::{now_ms, unix_ms};
use crate::front::{FrontCaller, FrontConfig};
use crate::namespaces::DYNAMODB_TABLES;
use futures_util::future::try_join_all;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Mutex as AsyncMutex, OnceCell};
use tokio::task::{spawn_local, yield_now};
use waymaker_engine::Rights;
use waymaker_engine::limits::REGISTRY_LEASE_MAX_MS;
use waymaker_protocol::{ErrorCode, ListEntries, NamespaceKind, Register, Request, Response, Unregister};

const OWNER: &[u8] = b"waymaker";
/// Maximum number of registrations that are read from a worker, and released by DeleteTable, at once. Also the number
/// of tables whose rights ListTables checks at once.
const PAGE_LEN: u16 = 64;
/// Maximum number of tables in one response, as in DynamoDB.
const LIST_LEN_MAX: i64 = 100;
/// Rights that a client needs to release all locks of a table.
const RIGHTS_TO_DELETE: [Rights; 4] = [Rights::ADMIN, Rights::LIST, Rights::INSPECT, Rights::RELEASE_OTHERS];

/// Tables of this server.
#[derive(Debug, Default)]
pub(in crate::front) struct ServerTables {
    tables: Mutex<Tables>,
    is_restored: OnceCell<()>,
    /// Serializes deletions, because each of them reads all claims of the server.
    deleting: AsyncMutex<()>,
}

impl ServerTables {
    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Loads the tables that the configuration declares and the tables of an earlier run.
    async fn restore(&self) -> Result<(), Problem> {
        Local::with(|local| {
            let mut tables = self.lock();
            let lazy = local.node.declared.iter().filter(|namespace| namespace.kind == NamespaceKind::Lazy);
            lazy.filter_map(|lazy| super::space::table(&lazy.name)).for_each(|table| tables.declare(table));
        });
        if !is_durable() {
            return Ok(());
        }
        let registry = registry()?;
        let mut cursor = 0;
        loop {
            let (next, registrations) = page(&registry, cursor).await?;
            for registration in registrations.iter().filter(|registration| *registration.owner == *OWNER) {
                let created_ms = unix_ms(now_ms()).saturating_sub_unsigned(registration.age_ms);
                if let Ok(name) = std::str::from_utf8(&registration.key) {
                    self.lock().restore(name, created_ms);
                    pin_namespace(name);
                }
            }
            if next == 0 {
                return Ok(());
            }
            cursor = next;
            // Each page scans many claims of the server, so give way between pages.
            yield_now().await;
        }
    }
}

/// Returns the tables of this server. Loads them first if no earlier call has done so.
async fn tables() -> Result<Arc<ServerTables>, Problem> {
    let tables = FrontConfig::with(|fronts| Arc::clone(&fronts.dynamodb_tables));
    let restore = async || {
        let tables = Arc::clone(&tables);
        // Run in a task of its own: `restore` gives way between pages with `yield_now`, while the task of a connection
        // must give way with `next_turn`.
        let restored = spawn_local(async move { tables.restore().await });
        restored.await.unwrap_or_else(|_| Err(Problem::stopping()))
    };
    tables.is_restored.get_or_try_init(restore).await?;
    Ok(tables)
}

/// Returns whether there is a data directory for the registry of tables.
fn is_durable() -> bool {
    Local::with(|local| local.node.log.is_some())
}

/// Opens the registry of tables on behalf of the server itself.
fn registry() -> Result<Space, Problem> {
    Space::open(NamespaceKind::Registry, DYNAMODB_TABLES, &FrontCaller::default())
}

/// Rejects a table that does not exist or is being deleted.
pub(super) async fn require(table: &str) -> Result<(), Problem> {
    tables().await?.lock().require(table)
}

/// Prevents the removal of the namespace of a table while it is idle, as long as the table exists. Does nothing if the
/// table or the namespace does not exist.
pub(super) fn pin_namespace(table: &str) {
    let find = || Local::with(|local| local.node.use_namespace(namespace(table).as_bytes()));
    FrontConfig::with(|fronts| fronts.dynamodb_tables.lock().pin_namespace(table, find));
}

/// Rejects a client unless it has all of these rights for every key of a table. The table need not exist.
fn check_everywhere(caller: &FrontCaller, table: &str, rights: &[Rights]) -> Result<(), Problem> {
    let check = |right: &Rights| caller.check_right_everywhere(namespace(table).as_bytes(), *right);
    rights.iter().try_for_each(check).map_err(Problem::denied)
}

/// Records the result of a change to a table in the audit log.
fn audit(
    caller: &FrontCaller,
    act: Act,
    table: &str,
    result: Result<(), &Problem>,
    details: Vec<(&'static str, Detail)>,
) {
    let outcome = match result {
        Ok(()) => Outcome::Done,
        Err(problem) => Outcome::Refused { code: problem.name(), message: problem.message.clone() },
    };
    let namespace = Some(namespace(table).into_bytes().into());
    let event = AuditEvent { outcome, namespace, details, ..AuditEvent::new(act, caller.audit_caller()) };
    Local::with(|local| local.node.audit.record(&event));
}

/// Serves CreateTable.
pub(super) async fn create(caller: &FrontCaller, table: &str) -> Result<String, Problem> {
    check_everywhere(caller, table, &[Rights::ADMIN])?;
    let tables = tables().await?;
    tables.lock().begin_creation(table)?;
    let (caller, name) = (caller.clone(), table.to_owned());
    // Run in a task: the creation must complete even if the client disconnects.
    let created = spawn_local(async move {
        let created = make(&caller, &name).await;
        tables.lock().end_creation(&name, created.as_ref().ok().copied());
        audit(&caller, Act::CreateTable, &name, created.as_ref().map(|_| ()), Vec::new());
        created
    });
    let created_ms = created.await.map_err(|_| Problem::stopping())??;
    let table = description(table, Table { created_ms: Some(created_ms), is_deleting: false });
    Ok(json!({ "TableDescription": table }).to_string())
}

/// Creates the namespace of a table and, with a data directory, the registration of the table. Returns the creation
/// time in Unix milliseconds.
async fn make(caller: &FrontCaller, table: &str) -> Result<i64, Problem> {
    // Open a lane in the namespace, which creates the namespace. This fails if the namespace has another kind, or if
    // the server has no room for another namespace.
    let _locks = Space::open(NamespaceKind::Lazy, &namespace(table), caller)?;
    pin_namespace(table);
    if !is_durable() {
        return Ok(unix_ms(now_ms()));
    }
    let register = Register {
        lease_ms: REGISTRY_LEASE_MAX_MS,
        key: table.as_bytes(),
        owner: OWNER,
        ..Register::default()
    };
    let read = |response: Response<'_>| match response {
        Response::Registered(registered) => Some(unix_ms(registered.stamp_ms)),
        _ => None,
    };
    registry()?.ask(Request::Register(register), read).await
}

/// Serves DescribeTable.
pub(super) async fn describe(caller: &FrontCaller, name: &str) -> Result<String, Problem> {
    caller.check_right(namespace(name).as_bytes(), Rights::INSPECT).map_err(Problem::denied)?;
    let table = tables().await?.lock().find(name)?;
    Ok(json!({ "Table": description(name, table) }).to_string())
}

/// Serves DeleteTable, which releases all locks of the table.
pub(super) async fn delete(caller: &FrontCaller, table: &str) -> Result<String, Problem> {
    check_everywhere(caller, table, &RIGHTS_TO_DELETE)?;
    let tables = tables().await?;
    let created_ms = tables.lock().begin_deletion(table)?;
    let (caller, name) = (caller.clone(), table.to_owned());
    // Run in a task: the deletion must complete even if the client disconnects, because the table cannot be created
    // again before that.
    let deleted = spawn_local(async move {
        let mut released_count = 0;
        let turn = tables.deleting.lock().await;
        let deleted = remove(&name, &mut released_count).await;
        drop(turn);
        tables.lock().end_deletion(&name, deleted.is_ok());
        let details = vec![("released", Detail::Number(released_count))];
        audit(&caller, Act::DeleteTable, &name, deleted.as_ref().copied(), details);
        deleted
    });
    deleted.await.map_err(|_| Problem::stopping())??;
    let table = description(table, Table { created_ms: Some(created_ms), is_deleting: true });
    Ok(json!({ "TableDescription": table }).to_string())
}

/// Releases and counts all locks of a table, and removes its registration. A write that found the table before the
/// deletion began can still acquire a lock, which stays held.
async fn remove(table: &str, released_count: &mut u64) -> Result<(), Problem> {
    let namespace = namespace(table);
    let registry = is_durable().then(registry).transpose()?;
    let found = Local::with(|local| local.node.find_namespace(namespace.as_bytes()));
    if found.is_some_and(|(_, kind)| kind == NamespaceKind::Lazy) {
        // The client has all required rights. Act as the server, so that a change of the rules cannot stop the deletion
        // halfway.
        let locks = Space::open(NamespaceKind::Lazy, &namespace, &FrontCaller::default())?;
        release_all(&locks, released_count).await?;
    }
    match registry {
        Some(registry) => {
            unregister_all(&registry, [Unregister { key: table.as_bytes(), owner: OWNER }]).await
        }
        None => Ok(()),
    }
}

/// Releases and counts all locks. Other tasks run after each page.
async fn release_all(locks: &Space, released_count: &mut u64) -> Result<(), Problem> {
    let mut cursor = 0;
    loop {
        let (next, registrations) = page(locks, cursor).await?;
        let locked = registrations
            .iter()
            .map(|registration| Unregister { key: &registration.key, owner: &registration.owner });
        unregister_all(locks, locked).await?;
        *released_count += registrations.len() as u64;
        if next == 0 {
            return Ok(());
        }
        cursor = next;
        yield_now().await;
    }
}

/// Removes registrations. Ignores those that no longer exist or that have another owner by now.
async fn unregister_all(
    space: &Space,
    registrations: impl IntoIterator<Item = Unregister<'_>>,
) -> Result<(), Problem> {
    let asked = registrations.into_iter().map(|registration| async move {
        let reply = space.reply(Request::Unregister(registration)).await?;
        match reply.response() {
            Response::Unregistered(_) => Ok(()),
            Response::Error(error) if matches!(error.code, ErrorCode::NotFound | ErrorCode::NotOwner) => {
                Ok(())
            }
            Response::Error(error) => Err(Problem::from(&error)),
            _ => Err(Problem::unexpected()),
        }
    });
    try_join_all(asked).await.map(drop)
}

/// A registration in a page.
struct ListedRegistration {
    key: Box<[u8]>,
    owner: Box<[u8]>,
    age_ms: u64,
}

/// Returns a page of registrations, and the cursor of the next page; 0 after the last page.
async fn page(space: &Space, cursor: u64) -> Result<(u64, Vec<ListedRegistration>), Problem> {
    let list = ListEntries { cursor, count_max: PAGE_LEN, any_type: true, type_name: b"" };
    let read = |response: Response<'_>| match response {
        Response::EntriesListed(page) => {
            let registrations = page.entries.iter().map(|registration| ListedRegistration {
                key: registration.key.into(),
                owner: registration.owner.into(),
                age_ms: registration.age_ms,
            });
            Some((page.next, registrations.collect()))
        }
        _ => None,
    };
    space.ask(Request::ListEntries(list), read).await
}

/// Decodes the body of an operation that names only a table.
pub(super) fn read_name(mut members: Members) -> Result<String, Problem> {
    let table = members.table_name()?;
    members.finish()?;
    Ok(table)
}

/// Decodes the body of CreateTable.
pub(super) fn read_create(mut members: Members) -> Result<String, Problem> {
    let table = members.table_name()?;
    let schema = members.list("KeySchema")?;
    let definitions = members.list("AttributeDefinitions")?;
    // These members have no effect on locks.
    for name in [
        "BillingMode",
        "ProvisionedThroughput",
        "OnDemandThroughput",
        "Tags",
        "TableClass",
        "SSESpecification",
    ] {
        members.ignore(name);
    }
    members.only_false("DeletionProtectionEnabled")?;
    members.off("StreamSpecification", "StreamEnabled")?;
    members.finish()?;
    let is_schema = schema == [json!({"AttributeName": "key", "KeyType": "HASH"})]
        && definitions == [json!({"AttributeName": "key", "AttributeType": "S"})];
    if is_schema {
        return Ok(table);
    }
    Err(Problem::validation(
        "KeySchema, AttributeDefinitions: a table of locks has the one key attribute `key` of type S with the key type HASH",
    ))
}

/// Requested part of the list of tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct List {
    after: Option<String>,
    len_max: usize,
}

impl List {
    /// Decodes the body of ListTables.
    pub(super) fn read(mut members: Members) -> Result<Self, Problem> {
        let after = members.text("ExclusiveStartTableName")?;
        let len_max = members.number("Limit")?.unwrap_or(LIST_LEN_MAX);
        members.finish()?;
        if !(1..=LIST_LEN_MAX).contains(&len_max) {
            return Err(Problem::validation(format!("Limit: must be 1 to {LIST_LEN_MAX}; it is {len_max}")));
        }
        Ok(Self { after, len_max: len_max as usize })
    }
}

/// Serves ListTables.
pub(super) async fn list(caller: &FrontCaller, list: &List) -> Result<String, Problem> {
    let tables = tables().await?;
    let policy = Local::with(|local| local.node.access.policy());
    let allows = policy.allowing(caller.identity.as_ref(), Rights::INSPECT);
    let mut last = list.after.clone().unwrap_or_default();
    let mut names = Vec::new();
    // Collect one more name than fits, to detect whether there are more.
    while names.len() <= list.len_max {
        let page = tables.lock().names_after(&last, PAGE_LEN.into());
        let Some(end) = page.last() else { break };
        last.clone_from(end);
        names.extend(page.into_iter().filter(|name| allows(namespace(name).as_bytes())));
        next_turn().await;
    }
    let has_more = names.len() > list.len_max;
    names.truncate(list.len_max);
    let mut answer = BTreeMap::from([("TableNames", json!(names))]);
    if let Some(last) = names.last().filter(|_| has_more) {
        answer.insert("LastEvaluatedTableName", json!(last));
    }
    Ok(json!(answer).to_string())
}

/// Describes a table in the form of DynamoDB.
fn description(name: &str, table: Table) -> Value {
    let mut description = json!({
        "TableName": name,
        "TableStatus": if table.is_deleting { "DELETING" } else { "ACTIVE" },
        "TableArn": format!("arn:aws:dynamodb:local:000000000000:table/{name}"),
        "KeySchema": [{"AttributeName": "key", "KeyType": "HASH"}],
        "AttributeDefinitions": [{"AttributeName": "key", "AttributeType": "S"}],
        "BillingModeSummary": {"BillingMode": "PAY_PER_REQUEST"},
        "ProvisionedThroughput": {"NumberOfDecreasesToday": 0, "ReadCapacityUnits": 0, "WriteCapacityUnits": 0},
    });
    if let (Some(created_ms), Some(members)) = (table.created_ms, description.as_object_mut()) {
        members.insert("CreationDateTime".to_owned(), json!(created_ms as f64 / 1_000.0));
    }
    description
}
