//! Connection options, and connecting to the server.

use std::io::{self, ErrorKind, IsTerminal};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::parser::ValueSource;
use clap::{ArgMatches, Args};
use waymaker_client::{Client, Credentials, Error, Result, Tls, Unavailable};

use crate::exit::Exit;
use crate::output::{complain_about, complain_of, note};
use crate::{text, values};

#[derive(Debug, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Connection {
    /// Server address: waymaker://HOST:PORT, waymaker+tls://HOST:PORT or waymaker+unix:///PATH
    #[arg(
        long,
        global = true,
        env = "WAYMAKER_SERVER",
        hide_env_values = true,
        default_value = "waymaker://127.0.0.1:7420",
        value_name = "URL"
    )]
    pub(crate) server: String,
    /// PEM file with the CA certificates that verify the server [default: the CAs of the system]
    #[arg(long, global = true, env = "WAYMAKER_TLS_CA", hide_env_values = true, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// PEM file with the client certificate
    #[arg(
        long,
        global = true,
        env = "WAYMAKER_TLS_CERT",
        hide_env_values = true,
        value_name = "FILE",
        requires = "tls_key"
    )]
    tls_cert: Option<PathBuf>,
    /// PEM file with the private key of the client certificate
    #[arg(
        long,
        global = true,
        env = "WAYMAKER_TLS_KEY",
        hide_env_values = true,
        value_name = "FILE",
        requires = "tls_cert"
    )]
    tls_key: Option<PathBuf>,
    /// File with the token of this client. No option takes the token itself, because other users can read the command line [default: the
    /// token in the variable WAYMAKER_TOKEN]
    #[arg(long, global = true, env = "WAYMAKER_TOKEN_FILE", hide_env_values = true, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Token of this client. Filled by [`Connection::read_token`].
    #[arg(skip)]
    credentials: Credentials,
    /// Namespace of the keys, pools, buckets and registrations
    #[arg(
        long,
        global = true,
        env = "WAYMAKER_NAMESPACE",
        hide_env_values = true,
        default_value = "default",
        value_name = "NAME"
    )]
    namespace: String,
    /// Owner name that other clients see [default: user, host and process]
    #[arg(long, global = true, env = "WAYMAKER_OWNER", hide_env_values = true, value_name = "TEXT")]
    owner: Option<String>,
    /// Time limit to connect or reconnect, and for each response [default: 5s; with a shorter --wait, the first connect gets that time,
    /// at least 1s]
    #[arg(long, global = true, value_parser = values::limit, value_name = "TIME")]
    connect_timeout: Option<Duration>,
}

/// Environment variable with the token of this client.
const TOKEN_VARIABLE: &str = "WAYMAKER_TOKEN";
/// Time limit to connect if the command line has none.
const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);
/// The shortest such limit before a short wait.
const CONNECT_TIMEOUT_MIN: Duration = Duration::from_secs(1);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The client itself ends an attempt in time, with a better message.
const SLACK: Duration = Duration::from_millis(100);

impl Connection {
    /// Returns the time limit to connect.
    pub(crate) fn connect_timeout(&self) -> Duration {
        self.connect_timeout.unwrap_or(CONNECT_TIMEOUT_DEFAULT)
    }

    /// Returns the time limit to connect before a wait of this length.
    pub(crate) fn connect_timeout_before(&self, wait: Option<Duration>) -> Duration {
        match (self.connect_timeout, wait) {
            (None, Some(wait)) => wait.clamp(CONNECT_TIMEOUT_MIN, CONNECT_TIMEOUT_DEFAULT),
            _ => self.connect_timeout(),
        }
    }

    /// Returns the owner name of something that stays when this process has ended.
    pub(crate) fn lasting_owner(&self) -> String {
        self.owner.clone().unwrap_or_else(text::user_and_host)
    }

    /// Returns what is wrong with the options together: a TLS option of the command line, and a server address without TLS.
    pub(crate) fn problem(&self, matches: &ArgMatches) -> Option<String> {
        let is_plain = ["waymaker://", "waymaker+unix://"].iter().any(|begin| self.server.starts_with(begin));
        let is_given = |id: &&str| matches.value_source(id) == Some(ValueSource::CommandLine);
        let id = ["tls_ca", "tls_cert", "tls_key"].into_iter().filter(|_| is_plain).find(is_given)?;
        let option = id.replace('_', "-");
        Some(format!("--{option} needs a server address that begins with waymaker+tls://"))
    }

    /// Reads the token of this client: the file of --token-file, or the variable WAYMAKER_TOKEN.
    pub(crate) fn read_token(&mut self) -> std::result::Result<(), String> {
        self.credentials = match (&self.token_file, std::env::var_os(TOKEN_VARIABLE)) {
            (Some(file), _) => Credentials::from_file(file).map_err(|error| {
                format!("--token-file: {}", text::printable(error.to_string().as_bytes()))
            })?,
            (None, Some(token)) => Credentials::new(text::bytes(&token).trim_ascii()),
            (None, None) => Credentials::default(),
        };
        Ok(())
    }

    fn tls(&self) -> Tls {
        let mut tls = Tls::new();
        if let Some(ca) = &self.tls_ca {
            tls = tls.ca_file(ca);
        }
        if let (Some(cert), Some(key)) = (&self.tls_cert, &self.tls_key) {
            tls = tls.identity_files(cert, key);
        }
        tls
    }
}

/// Connects within the time limit of the command line.
pub(crate) async fn connect(connection: &Connection) -> Result<Client> {
    connect_within(connection, connection.connect_timeout()).await
}

/// Connects, sends requests about `name`, and closes the connection. An error of the close does not change the result.
pub(crate) async fn request_about(
    connection: &Connection,
    name: &[u8],
    request: impl AsyncFnOnce(&Client) -> Result<Exit>,
) -> Exit {
    let client = match connect(connection).await {
        Ok(client) => client,
        Err(error) => return complain_of(&error),
    };
    let exit = request(&client).await.unwrap_or_else(|error| complain_about(name, &error));
    let _: Result<()> = client.close().await;
    exit
}

/// Connects. Tries again until `limit` has passed, if another attempt can succeed.
pub(crate) async fn connect_within(connection: &Connection, limit: Duration) -> Result<Client> {
    let begin = Instant::now();
    let mut pause = FIRST_PAUSE;
    let mut last = None;
    loop {
        let left = limit.saturating_sub(begin.elapsed());
        let attempt = Client::builder()
            .namespace(&connection.namespace)
            .owner(connection.owner.clone().unwrap_or_else(text::process_owner))
            .connect_timeout(connection.connect_timeout())
            .tls(connection.tls())
            .credentials(&connection.credentials)
            .connect(&connection.server);
        let error = match tokio::time::timeout(left + SLACK, attempt).await {
            Ok(Err(error)) if may_pass(&error) => error,
            Ok(result) => return result,
            // The error of an earlier attempt says more than the timeout.
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

/// Returns whether another attempt can succeed: the server may be starting, stopping or full.
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

/// Returns the error for a server that has not responded within `limit`.
pub(crate) fn no_answer(connection: &Connection, limit: Duration) -> Error {
    let source = io::Error::new(ErrorKind::TimedOut, format!("no response within {}", text::pause(limit)));
    let address = connection.server.clone();
    Unavailable::Unreachable { address, hint: "", source: Arc::new(source) }.into()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use clap::Parser;

    use super::*;
    use crate::command_line::CommandLine;

    /// A server that closes every connection. The limit is as long as the first pause.
    #[tokio::test]
    async fn no_attempt_is_made_after_a_pause_that_reaches_the_limit() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("waymaker://{}", listener.local_addr().unwrap());
        let words = ["waymaker-ctl", "server", "status", "--connect-timeout", "1h", "--server", &url];
        let line = CommandLine::try_parse_from(words).unwrap();
        let attempts = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&attempts);
        tokio::spawn(async move {
            while listener.accept().await.is_ok() {
                counter.fetch_add(1, Ordering::SeqCst);
            }
        });
        connect_within(&line.connection, FIRST_PAUSE).await.unwrap_err();
        // A machine that is too busy for the first attempt has none.
        assert!(attempts.load(Ordering::SeqCst) <= 1);
    }
}
