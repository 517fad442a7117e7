//! `watch`: what happens to one key.

use serde_json::{Map, Value};
use waymaker_client::{KeyHolder, KeyState, Result};

use crate::arguments::{Connection, WatchArguments};
use crate::{connect, output, text};

pub(crate) async fn run(connection: &Connection, arguments: &WatchArguments) -> Result<()> {
    let client = connect(connection).await?;
    let key = text::bytes(&arguments.key);
    let mut watch = client.watch(key).await?;
    while let Some(state) = watch.next().await {
        let line = if output::is_json() { object(key, &state).to_string() } else { sentence(key, &state) };
        if !output::print(&format!("{line}\n")) {
            break;
        }
    }
    client.close().await
}

fn sentence(key: &[u8], state: &KeyState) -> String {
    let (key, fence) = (text::printable(key), state.fence());
    match state {
        KeyState::Free { .. } => format!("{key}: free, fence {fence}"),
        KeyState::Held { holder: None, .. } => format!("{key}: held, fence {fence}"),
        KeyState::Held { holder: Some(KeyHolder { shared, owner }), .. } => {
            let reading = if *shared { " for reading" } else { "" };
            let by = match owner.as_slice() {
                b"" => String::new(),
                owner => format!(" by {}", text::printable(owner)),
            };
            format!("{key}: held{reading}{by}, fence {fence}")
        }
    }
}

fn object(key: &[u8], state: &KeyState) -> Value {
    let mut object = Map::new();
    text::insert_bytes(&mut object, "key", key);
    object.insert("held".to_owned(), state.is_held().into());
    object.insert("fence".to_owned(), state.fence().into());
    if let KeyState::Held { holder: Some(holder), .. } = state {
        object.insert("mode".to_owned(), text::mode(holder.shared).into());
        text::insert_bytes(&mut object, "owner", &holder.owner);
    }
    object.into()
}
