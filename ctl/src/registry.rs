//! `registry`: registrations, which name the owner of a key.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, Subcommand};
use schemars::JsonSchema;
use serde::Serialize;
use waymaker_client::{Client, Error, ErrorCode, RegistrationStatus, Result};

use crate::connection::{Connection, connect, request_about};
use crate::exit::{self, Exit, Use};
use crate::output::{complain, complain_of, show};
use crate::{text, values};

pub(crate) const HELP: &str = "\
A registration names the owner of a key and carries a value. It ends when its
lease expires. With --lazy it stays until another owner takes the key, at the
earliest five seconds after its lease expired.

Examples:
  Register the address of a printer for an hour:
      waymaker-ctl registry set printer/2 --value 10.0.0.9:631 --type device --ttl 1h
  Look up the address:
      waymaker-ctl registry get printer/2 --json | jq -r .value
  List the registrations of a type:
      waymaker-ctl registry list --type device
  Keep a registration as long as a command runs:
      waymaker-ctl presence set worker/7 --value 10.0.0.7:80 -- ./worker.sh";

const LIST_HELP: &str = "\
Examples:
  waymaker-ctl registry list
  waymaker-ctl registry list --type device
  waymaker-ctl registry list --lazy";

const GET_HELP: &str = "\
The exit code is 118 if there is no registration of this key.

Example:
  waymaker-ctl registry get printer/2 --json | jq -r .value";

const SET_HELP: &str = "\
The owner is USER@HOST unless --owner is given. If the key has another owner,
the exit code is 120. The same owner sets the value, the type and the lease
again. waymaker-ctl does not renew the lease; `presence set` does.

Examples:
  waymaker-ctl registry set printer/2 --value 10.0.0.9:631 --type device --ttl 1h
  waymaker-ctl registry set shard/17 --value node-3 --lazy";

const REMOVE_HELP: &str = "\
Only the owner can remove a registration: USER@HOST unless --owner is given.
The exit code is 118 if there is no registration of this key.

Example:
  waymaker-ctl registry remove printer/2";

#[derive(Debug, Subcommand)]
pub(crate) enum RegistryCommand {
    /// List the registrations of the namespace, ordered by key
    #[command(after_help = exit::after(LIST_HELP, &[Use::Request]))]
    List(ListArguments),
    /// Show the registration of a key
    #[command(after_help = exit::after(GET_HELP, &[Use::Get]))]
    Get(GetArguments),
    /// Register a key once
    #[command(after_help = exit::after(SET_HELP, &[Use::Acquire]))]
    Set(SetArguments),
    /// Remove a registration
    #[command(after_help = exit::after(REMOVE_HELP, &[Use::Get]))]
    Remove(RemoveArguments),
}

#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    /// List only registrations of this type [default: all types]
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) type_name: Option<OsString>,
    /// List registrations that stay until another owner takes their key
    #[arg(long)]
    pub(crate) lazy: bool,
}

#[derive(Debug, Args)]
pub(crate) struct GetArguments {
    /// Key of the registration
    #[arg(value_parser = values::key())]
    pub(crate) key: OsString,
    /// Look up a registration that stays until another owner takes its key
    #[arg(long)]
    pub(crate) lazy: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SetArguments {
    /// Key of the registration
    #[arg(value_parser = values::key())]
    key: OsString,
    /// Value, such as an address; at most 4,096 bytes
    #[arg(long, value_name = "TEXT")]
    value: OsString,
    /// Type, for `registry list --type` [default: empty]
    #[arg(long = "type", default_value = "", value_name = "TYPE", hide_default_value = true)]
    type_name: OsString,
    /// Lease of the registration; at most 24h
    #[arg(long, default_value = "5m", value_parser = values::lease, value_name = "TIME")]
    ttl: Duration,
    /// Keep the registration until another owner takes its key
    #[arg(long)]
    lazy: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveArguments {
    /// Key of the registration
    #[arg(value_parser = values::key())]
    key: OsString,
    /// Remove a registration that stays until another owner takes its key
    #[arg(long)]
    lazy: bool,
}

/// A registration.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "Registration")]
pub(crate) struct RegistrationObject {
    /// Key.
    key: String,
    /// Hexadecimal digits of the key. Present only if the key is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    key_hex: Option<String>,
    /// Id of the registration, 32 hexadecimal digits. It stays the same while the owner does.
    id: String,
    /// Fence of the owner. It rises with each new owner.
    fence: u64,
    /// Time in milliseconds since the owner registered or renewed the key.
    age_ms: u64,
    /// Remaining lease in milliseconds; null if the lease has expired.
    remaining_ms: Option<u64>,
    /// Time in milliseconds since the lease expired; null if it has not.
    overdue_ms: Option<u64>,
    /// Owner.
    owner: String,
    /// Hexadecimal digits of the owner. Present only if the owner is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    owner_hex: Option<String>,
    /// Type; may be empty.
    r#type: String,
    /// Hexadecimal digits of the type. Present only if the type is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    type_hex: Option<String>,
    /// Value; may be empty.
    value: String,
    /// Hexadecimal digits of the value. Present only if the value is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    value_hex: Option<String>,
}

/// The outcome of a registration.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "Registered")]
pub(crate) struct RegisteredObject {
    /// Key.
    key: String,
    /// Hexadecimal digits of the key. Present only if the key is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    key_hex: Option<String>,
    /// Id of the registration, 32 hexadecimal digits.
    id: String,
    /// Fence of the owner.
    fence: u64,
    /// Remaining lease in milliseconds; null if the lease has expired.
    remaining_ms: Option<u64>,
    /// Whether the owner had registered the key before.
    renewed: bool,
}

/// A removed registration.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "Removed registration")]
pub(crate) struct RemovedObject {
    /// Key.
    key: String,
    /// Hexadecimal digits of the key. Present only if the key is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    key_hex: Option<String>,
}

pub(crate) async fn run(connection: &Connection, command: &RegistryCommand) -> Exit {
    let result = match command {
        RegistryCommand::List(arguments) => list(connection, arguments).await,
        RegistryCommand::Get(arguments) => get(connection, arguments).await,
        RegistryCommand::Set(arguments) => {
            let key = text::bytes(&arguments.key);
            return request_about(connection, key, async |client| set(client, connection, arguments).await)
                .await;
        }
        RegistryCommand::Remove(arguments) => {
            let key = text::bytes(&arguments.key);
            return request_about(connection, key, async |client| {
                remove(client, connection, arguments).await
            })
            .await;
        }
    };
    result.unwrap_or_else(|error| complain_of(&error))
}

fn registry(client: &Client, lazy: bool) -> waymaker_client::Registry {
    if lazy { client.lazy() } else { client.registry() }
}

pub(crate) async fn list(connection: &Connection, arguments: &ListArguments) -> Result<Exit> {
    let client = connect(connection).await?;
    let registry = registry(&client, arguments.lazy);
    let mut registrations = match &arguments.type_name {
        Some(type_name) => registry.list_type(text::bytes(type_name)).await?,
        None => registry.list().await?,
    };
    registrations.sort_by(|left, right| left.key.cmp(&right.key));
    show(|| table(&registrations), registrations.iter().map(object));
    client.close().await?;
    Ok(Exit::Success)
}

pub(crate) async fn get(connection: &Connection, arguments: &GetArguments) -> Result<Exit> {
    let client = connect(connection).await?;
    let key = text::bytes(&arguments.key);
    let registration = registry(&client, arguments.lazy).look_up(key).await?;
    client.close().await?;
    let Some(registration) = registration else { return Ok(not_registered(key)) };
    show(|| table(std::slice::from_ref(&registration)), [object(&registration)]);
    Ok(Exit::Success)
}

fn not_registered(key: &[u8]) -> Exit {
    complain(&format!("{}: not registered", text::printable(key)), Exit::Absent)
}

async fn remove(client: &Client, connection: &Connection, arguments: &RemoveArguments) -> Result<Exit> {
    let key = text::bytes(&arguments.key);
    let registration = registry(client, arguments.lazy).registration(key).owner(connection.lasting_owner());
    match registration.unregister().await {
        Err(Error::Refused { code: ErrorCode::NotFound, .. }) => return Ok(not_registered(key)),
        removed => removed?,
    };
    let sentence = || format!("{}: removed\n", text::printable(key));
    let (key, key_hex) = text::json(key);
    show(sentence, [RemovedObject { key, key_hex }]);
    Ok(Exit::Success)
}

async fn set(client: &Client, connection: &Connection, arguments: &SetArguments) -> Result<Exit> {
    let key = text::bytes(&arguments.key);
    let registration = registry(client, arguments.lazy).registration(key);
    let registration =
        registration.value(text::bytes(&arguments.value)).type_name(text::bytes(&arguments.type_name));
    let registered = registration.owner(connection.lasting_owner()).register(arguments.ttl).await?;
    let sentence = || {
        let state = if registered.renewed { "renewed" } else { "registered" };
        let (key, left) = (text::printable(key), text::time(registered.remaining));
        format!("{key}: {state}, fence {}, {left} left\n", registered.fence)
    };
    let (key, key_hex) = text::json(key);
    let object = RegisteredObject {
        key,
        key_hex,
        id: registered.id.to_string(),
        fence: registered.fence,
        remaining_ms: registered.remaining.map(text::milliseconds),
        renewed: registered.renewed,
    };
    show(sentence, [object]);
    Ok(Exit::Success)
}

fn table(registrations: &[RegistrationStatus]) -> String {
    let title = ["KEY", "TYPE", "OWNER", "FENCE", "AGE", "LEFT", "VALUE"];
    let rows = registrations.iter().map(|registration| {
        [
            text::printable(&registration.key),
            text::printable(&registration.type_name),
            text::printable(&registration.owner),
            registration.fence.to_string(),
            text::time(Some(registration.age)),
            registration.overdue.map_or_else(
                || text::time(registration.remaining),
                |overdue| format!("expired {} ago", text::time(Some(overdue))),
            ),
            text::printable(&registration.value),
        ]
    });
    text::table(title, rows)
}

fn object(registration: &RegistrationStatus) -> RegistrationObject {
    let (key, key_hex) = text::json(&registration.key);
    let (owner, owner_hex) = text::json(&registration.owner);
    let (r#type, type_hex) = text::json(&registration.type_name);
    let (value, value_hex) = text::json(&registration.value);
    RegistrationObject {
        key,
        key_hex,
        id: registration.id.to_string(),
        fence: registration.fence,
        age_ms: text::milliseconds(registration.age),
        remaining_ms: registration.remaining.map(text::milliseconds),
        overdue_ms: registration.overdue.map(text::milliseconds),
        owner,
        owner_hex,
        r#type,
        type_hex,
        value,
        value_hex,
    }
}
