//! The way to the server.

use std::io::{self, ErrorKind, IsTerminal};
use std::sync::Arc;
use std::time::{Duration, Instant};

use waymaker_client::{Client, Error, Result, Unavailable};

use crate::arguments::Connection;
use crate::{note, text};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The client itself ends an attempt in time, with a better message.
const SLACK: Duration = Duration::from_millis(100);

/// Connects, within the time that the command line gives.
pub(crate) async fn connect(connection: &Connection) -> Result<Client> {
    connect_within(connection, connection.connect_timeout()).await
}

/// Connects. Tries again until `limit` is over, as long as another attempt can succeed.
pub(crate) async fn connect_within(connection: &Connection, limit: Duration) -> Result<Client> {
    let begin = Instant::now();
    let mut pause = FIRST_PAUSE;
    let mut last = None;
    loop {
        let left = limit.saturating_sub(begin.elapsed());
        let attempt = Client::builder()
            .namespace(&connection.namespace)
            .owner(connection.owner.clone().unwrap_or_else(text::default_owner))
            .connect_timeout(connection.connect_timeout())
            .tls(connection.tls())
            .connect(&connection.server);
        let error = match tokio::time::timeout(left + SLACK, attempt).await {
            Ok(Err(error)) if may_pass(&error) => error,
            Ok(result) => return result,
            // The reason of an attempt that failed says more.
            Err(_) => return Err(last.unwrap_or_else(|| no_answer(connection, limit))),
        };
        if begin.elapsed() + pause >= limit {
            return Err(error);
        }
        if last.is_none() && io::stderr().is_terminal() {
            note(&format!("{error}; trying again for {}", text::pause(limit)));
        }
        last = Some(error);
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Whether the same attempt can succeed later: the server may be starting, stopping or full.
fn may_pass(error: &Error) -> bool {
    match error {
        Error::Unavailable(Unavailable::Unreachable { source, .. }) => !matches!(
            source.kind(),
            ErrorKind::PermissionDenied
                | ErrorKind::InvalidData
                | ErrorKind::InvalidInput
                | ErrorKind::Unsupported
        ),
        Error::Unavailable(_) => true,
        _ => false,
    }
}

/// The error of a server that has answered nothing for so long.
pub(crate) fn no_answer(connection: &Connection, limit: Duration) -> Error {
    let source = io::Error::new(ErrorKind::TimedOut, format!("no answer within {}", text::pause(limit)));
    let address = connection.server.clone();
    Unavailable::Unreachable { address, hint: "", source: Arc::new(source) }.into()
}
