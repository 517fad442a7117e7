//! `locks release`: releases a lock by its id.

use std::ffi::OsString;

use clap::Args;
use waymaker_client::{LockId, Result};

use super::{is_unknown, report_unknown};
use crate::connection::{Connection, connect};
use crate::exit::Exit;
use crate::{text, values};

pub(crate) const HELP: &str = "\
The holder or waiter is notified at once. Nothing is printed. `locks acquire` prints
the id of its lock; `locks list` and `locks inspect` show all ids.

Example:
  waymaker-ctl locks release backup 00000000000000010123456789abcdef";

#[derive(Debug, Args)]
pub(crate) struct ReleaseArguments {
    /// Key of the lock
    #[arg(value_parser = values::key())]
    key: OsString,
    /// Id of the lock: 32 hexadecimal digits
    #[arg(value_parser = values::lock_id)]
    id: LockId,
}

pub(crate) async fn run(connection: &Connection, arguments: &ReleaseArguments) -> Result<Exit> {
    let client = connect(connection).await?;
    let released = client.release(arguments.id, text::bytes(&arguments.key)).await;
    client.close().await?;
    match released {
        Err(error) if is_unknown(&error) => Ok(report_unknown(arguments.id, text::bytes(&arguments.key))),
        released => released.map(|_| Exit::Success),
    }
}
