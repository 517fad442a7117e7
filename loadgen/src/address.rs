//! Address of a target: `scheme://host:port`, for PostgreSQL `postgres://user@host:port/database`.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use anyhow::{Context, Result, anyhow, bail};

use crate::system::System;

/// Address of one target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// System at this address.
    pub system: System,
    /// Whether the connection uses TLS.
    pub is_encrypted: bool,
    /// `host:port`.
    pub host_and_port: String,
    /// User and database; only PostgreSQL uses them.
    pub login: Login,
}

/// User and database of PostgreSQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// The user.
    pub user: String,
    /// The database.
    pub database: String,
}

impl Default for Login {
    /// The user and database that every new PostgreSQL server has.
    fn default() -> Self {
        Self { user: "postgres".to_owned(), database: "postgres".to_owned() }
    }
}

/// Suffix of the scheme of an encrypted address.
const ENCRYPTED: &str = "+tls";

impl Address {
    /// Returns the address of a server on this machine.
    pub fn local(system: System, host_and_port: String) -> Self {
        Self { system, is_encrypted: false, host_and_port, login: Login::default() }
    }

    /// Returns the host without the port.
    pub fn host(&self) -> &str {
        let host = self.host_and_port.rsplit_once(':').map_or(self.host_and_port.as_str(), |(host, _)| host);
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    /// Returns the command that starts such a server on this port, for messages to people.
    pub fn start_command(&self, port: u16) -> String {
        let files = if self.is_encrypted { " --tls-cert FILE --tls-key FILE" } else { "" };
        self.system.start_command(port) + files
    }

    /// Resolves the address.
    pub fn resolve(&self) -> Result<SocketAddr> {
        let mut found = self
            .host_and_port
            .to_socket_addrs()
            .with_context(|| format!("{self}: the host is unknown, or the port is not a number"))?;
        found.next().ok_or_else(|| anyhow!("{self}: the host has no address"))
    }
}

impl FromStr for Address {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let Some((scheme, rest)) = text.split_once("://") else {
            bail!(
                "{text:?} has no scheme; a target is scheme://host:port, such as waymaker://127.0.0.1:7420"
            );
        };
        let (scheme, is_encrypted) = match scheme.strip_suffix(ENCRYPTED) {
            Some(scheme) => (scheme, true),
            None => (scheme, false),
        };
        let Some(system) = System::ALL.into_iter().find(|system| system.name() == scheme) else {
            bail!("unknown scheme {scheme:?}; the schemes are {}", System::ALL.map(System::name).join(", "));
        };
        if is_encrypted && !system.is_ours() {
            bail!("{scheme}{ENCRYPTED}: only waymaker, grpc and locktopus support TLS");
        }
        let (login, host_and_port) = match system {
            System::Postgres => split_login(rest)?,
            _ => (Login::default(), rest.trim_end_matches('/')),
        };
        let has_port = host_and_port
            .rsplit_once(':')
            .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
        if !has_port {
            bail!("{rest:?} is not host:port, such as 127.0.0.1:7420");
        }
        Ok(Self { system, is_encrypted, host_and_port: host_and_port.to_owned(), login })
    }
}

/// Splits the user and database from `host:port`.
fn split_login(rest: &str) -> Result<(Login, &str)> {
    let mut login = Login::default();
    let (rest, database) = rest.split_once('/').unwrap_or((rest, ""));
    let (user, host_and_port) = rest.rsplit_once('@').unwrap_or(("", rest));
    if user.contains(':') {
        bail!(
            "the address contains a password, but this program logs in without one; use \
             postgres://USER@HOST:PORT/DATABASE and a server that trusts the connection"
        );
    }
    for (given, word) in [(user, &mut login.user), (database, &mut login.database)] {
        if !given.is_empty() {
            given.clone_into(word);
        }
    }
    Ok((login, host_and_port))
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let encrypted = if self.is_encrypted { ENCRYPTED } else { "" };
        let scheme = self.system.name();
        match (self.system, &self.login) {
            (System::Postgres, Login { user, database }) => {
                write!(formatter, "{scheme}://{user}@{}/{database}", self.host_and_port)
            }
            _ => write!(formatter, "{scheme}{encrypted}://{}", self.host_and_port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Address;
    use crate::system::System;

    #[test]
    fn parses_and_prints_an_address() {
        let address: Address = "redis://localhost:6379/".parse().expect("valid");
        assert_eq!(address.system, System::Redis);
        assert_eq!(address.to_string(), "redis://localhost:6379");
    }

    #[test]
    fn parses_and_prints_an_encrypted_address() {
        for (text, host) in
            [("waymaker+tls://locks.example:7420", "locks.example"), ("grpc+tls://[::1]:7421", "::1")]
        {
            let address: Address = text.parse().expect("valid");
            assert!(address.is_encrypted);
            assert_eq!((address.host(), address.to_string().as_str()), (host, text));
        }
    }

    #[test]
    fn user_and_database_are_optional() {
        for (text, shown) in [
            ("postgres://127.0.0.1:5432", "postgres://postgres@127.0.0.1:5432/postgres"),
            ("postgres://me@[::1]:5432/mine", "postgres://me@[::1]:5432/mine"),
        ] {
            let address: Address = text.parse().expect("valid");
            assert_eq!(address.to_string(), shown);
        }
    }

    #[test]
    fn rejects_invalid_addresses() {
        for (text, part) in [
            ("127.0.0.1:1", "scheme://host:port"),
            ("zookeeper://127.0.0.1:1", "zookeeper"),
            ("zookeeper+tls://127.0.0.1:1", "zookeeper"),
            ("redis+tls://127.0.0.1:1", "only waymaker, grpc and locktopus"),
            ("postgres://me:secret@127.0.0.1:5432", "contains a password"),
            ("echo://127.0.0.1", "host:port"),
            ("echo://127.0.0.1:70000", "host:port"),
        ] {
            let message = text.parse::<Address>().expect_err(text).to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
