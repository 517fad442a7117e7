//! `locks watch`: the states of one key.

use std::ffi::OsString;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use waymaker_client::{Client, KeyHolder, KeyState, Result};

use crate::connection::{Connection, connect};
use crate::exit::Exit;
use crate::output::show;
use crate::{text, values};

pub(crate) const HELP: &str = "\
The watch continues until it is interrupted, also after a lost connection. A
state that lasts only for a short time may be left out.

Example:
  waymaker-ctl locks watch leader";

#[derive(Debug, Args)]
pub(crate) struct WatchArguments {
    /// Key to watch
    #[arg(value_parser = values::key())]
    key: OsString,
}

/// The state of a watched key.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "Key state")]
pub(crate) struct StateObject {
    /// Key.
    key: String,
    /// Hexadecimal digits of the key. Present only if the key is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    key_hex: Option<String>,
    /// Whether the key is held.
    held: bool,
    /// Newest fence of the key.
    fence: u64,
    /// Mode: read or write. Present only if the holder is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<&'static str>,
    /// Owner; empty if the client has no name. Present only if the holder is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    /// Hexadecimal digits of the owner. Present only if the owner is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    owner_hex: Option<String>,
}

pub(crate) async fn run(connection: &Connection, arguments: &WatchArguments) -> Result<Exit> {
    let client = connect(connection).await?;
    let key = text::bytes(&arguments.key);
    let mut watch = client.watch(key).await?;
    let mut is_first = true;
    while let Some(mut state) = watch.next().await {
        if std::mem::take(&mut is_first) {
            add_holder(&client, key, &mut state).await;
        }
        if !show(|| sentence(key, &state), [object(key, &state)]) {
            break;
        }
    }
    client.close().await?;
    Ok(Exit::Success)
}

/// Adds the holder to the first state, in which the server does not name it.
async fn add_holder(client: &Client, key: &[u8], state: &mut KeyState) {
    let KeyState::Held { fence, holder: holder @ None } = state else { return };
    let Ok(status) = client.inspect(key).await else { return };
    let newest = status.holders.into_iter().find(|hold| hold.fence == *fence);
    *holder = newest.map(|hold| KeyHolder { shared: hold.shared, owner: hold.owner });
}

fn sentence(key: &[u8], state: &KeyState) -> String {
    let (key, fence) = (text::printable(key), state.fence());
    match state {
        KeyState::Free { .. } => format!("{key}: free, fence {fence}\n"),
        KeyState::Held { holder: None, .. } => format!("{key}: held, fence {fence}\n"),
        KeyState::Held { holder: Some(KeyHolder { shared, owner }), .. } => {
            let reading = if *shared { " for reading" } else { "" };
            let by = match owner.as_slice() {
                b"" => String::new(),
                owner => format!(" by {}", text::printable(owner)),
            };
            format!("{key}: held{reading}{by}, fence {fence}\n")
        }
    }
}

fn object(key: &[u8], state: &KeyState) -> StateObject {
    let (key, key_hex) = text::json(key);
    let mut object = StateObject {
        key,
        key_hex,
        held: state.is_held(),
        fence: state.fence(),
        mode: None,
        owner: None,
        owner_hex: None,
    };
    if let KeyState::Held { holder: Some(holder), .. } = state {
        object.mode = Some(text::mode(holder.shared));
        let (owner, owner_hex) = text::json(&holder.owner);
        (object.owner, object.owner_hex) = (Some(owner), owner_hex);
    }
    object
}
