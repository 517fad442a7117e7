//! `verify`: whether a grant is still the newest of its key.

use waymaker_client::{Result, Verification};

use crate::arguments::{Connection, VerifyArguments};
use crate::exit::Exit;
use crate::{complain_of, connect, print, text};

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
    let Verification { is_newest, is_held, newest_fence } = verification;
    let state = match (is_newest, is_held) {
        (true, true) => "the newest, and held".to_owned(),
        (true, false) => "the newest, and no longer held".to_owned(),
        (false, _) if fence > newest_fence => format!("of no grant, the newest is {newest_fence}"),
        (false, _) => format!("old, the newest is {newest_fence}"),
    };
    print(&format!("{}: fence {fence} is {state}\n", text::printable(key)));
    client.close().await?;
    Ok(verification)
}
