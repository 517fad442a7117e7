//! `release`: take a lock away.

use waymaker_client::Result;

use crate::arguments::{Connection, ReleaseArguments};
use crate::{connect, text};

pub(crate) async fn run(connection: &Connection, arguments: &ReleaseArguments) -> Result<()> {
    let client = connect(connection).await?;
    client.release(arguments.id, text::bytes(&arguments.key)).await?;
    client.close().await
}
