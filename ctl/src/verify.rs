//! `verify`: whether a grant is still the newest of its key.

use serde_json::{Map, Value};
use waymaker_client::{Result, Verification};

use crate::arguments::{Connection, VerifyArguments};
use crate::exit::Exit;
use crate::{complain_of, connect, show, text};

pub(crate) async fn run(connection: &Connection, arguments: &VerifyArguments) -> Exit {
    match verify(connection, arguments).await {
        Ok(Verification { is_newest: true, .. }) => Exit::Success,
        Ok(_) => Exit::Lost,
        Err(error) => complain_of(&error),
    }
}

async fn verify(connection: &Connection, arguments: &VerifyArguments) -> Result<Verification> {
    let client = connect(connection).await?;
    let (key, fence) = (text::bytes(&arguments.key), arguments.fence);
    let verification = client.verify(key, fence).await?;
    show(|| sentence(key, fence, verification), || text::lines([object(key, fence, verification)]));
    client.close().await?;
    Ok(verification)
}

fn sentence(key: &[u8], fence: u64, verification: Verification) -> String {
    let Verification { is_newest, is_held, newest_fence } = verification;
    let state = match (is_newest, is_held) {
        (true, true) => "the newest, and held".to_owned(),
        (true, false) => "the newest, and no longer held".to_owned(),
        (false, _) if fence > newest_fence => format!("of no grant, the newest is {newest_fence}"),
        (false, _) => format!("old, the newest is {newest_fence}"),
    };
    format!("{}: fence {fence} is {state}\n", text::printable(key))
}

fn object(key: &[u8], fence: u64, verification: Verification) -> Value {
    let Verification { is_newest, is_held, newest_fence } = verification;
    let mut object = Map::new();
    text::insert_bytes(&mut object, "key", key);
    object.insert("fence".to_owned(), fence.into());
    object.insert("is_newest".to_owned(), is_newest.into());
    object.insert("is_held".to_owned(), is_held.into());
    object.insert("newest_fence".to_owned(), newest_fence.into());
    object.into()
}
