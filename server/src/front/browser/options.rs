//! Options for the host names and web pages that may use the HTTP ports.

use super::authority::Authority;
use crate::option_values::heading;
use clap::Args;
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

/// List entry that allows everything.
const EVERY: &str = "*";

/// Names and web pages that may use the HTTP ports, in addition to the names and pages of the server itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = heading::LISTENING)]
pub struct BrowserConfig {
    /// Comma-separated host names under which HTTP and WebSocket clients reach the server, such as the name of a Docker
    /// or Kubernetes service; `*` allows every name. IP addresses, `localhost`, and the host of the listen address need
    /// no entry. The server refuses other names, because web pages use them for DNS rebinding [default: none]
    #[arg(long = "http-hosts", env = "WAYMAKER_HTTP_HOSTS", value_name = "LIST", value_delimiter = ',')]
    pub hosts: Vec<AllowedHost>,
    /// Comma-separated origins of the web pages that may send HTTP requests and open WebSockets, such as
    /// `https://app.example`; `*` allows every page, as Locktopus does. Programs other than browsers need no entry
    /// [default: none]
    #[arg(long = "http-origins", env = "WAYMAKER_HTTP_ORIGINS", value_name = "LIST", value_delimiter = ',')]
    pub origins: Vec<AllowedOrigin>,
}

/// Entry of `--http-hosts`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowedHost {
    /// Allows every name.
    Every,
    /// Allows this name.
    Name(String),
}

/// Error for text that is not an entry of `--http-hosts`.
#[derive(Debug, thiserror::Error)]
#[error("use a host name without scheme, port and path, such as locks.example, or `*`")]
pub struct BadHost;

impl FromStr for AllowedHost {
    type Err = BadHost;

    fn from_str(text: &str) -> Result<Self, BadHost> {
        if text == EVERY {
            return Ok(Self::Every);
        }
        match Authority::parse(text) {
            Some(Authority { host, port: None }) if !host.contains('*') => Ok(Self::Name(host)),
            _ => Err(BadHost),
        }
    }
}

/// Entry of `--http-origins`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowedOrigin {
    /// Allows every origin.
    Every,
    /// Allows this origin.
    Origin(Origin),
}

impl Display for AllowedHost {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Every => EVERY,
            Self::Name(name) => name,
        })
    }
}

impl Display for AllowedOrigin {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Every => formatter.write_str(EVERY),
            Self::Origin(Origin { scheme, authority }) => {
                write!(formatter, "{scheme}://{}", authority.host)?;
                authority.port.map_or(Ok(()), |port| write!(formatter, ":{port}"))
            }
        }
    }
}

impl AllowedOrigin {
    /// Returns whether pages of this origin may use the server.
    pub(super) fn allows(&self, page: &Origin) -> bool {
        match self {
            Self::Every => true,
            Self::Origin(origin) => origin == page,
        }
    }
}

/// Error for text that is not an entry of `--http-origins`.
#[derive(Debug, thiserror::Error)]
#[error("use an origin SCHEME://HOST[:PORT] without a path, such as https://app.example, or `*`")]
pub struct BadOrigin;

impl FromStr for AllowedOrigin {
    type Err = BadOrigin;

    fn from_str(text: &str) -> Result<Self, BadOrigin> {
        if text == EVERY {
            return Ok(Self::Every);
        }
        match Origin::parse(text) {
            Some(origin) if !text.contains('*') => Ok(Self::Origin(origin)),
            _ => Err(BadOrigin),
        }
    }
}

/// Scheme, host and port of a web page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    scheme: String,
    authority: Authority,
}

impl Origin {
    /// Returns the origin of pages that this authority serves over this scheme.
    pub(super) fn new(scheme: &str, authority: Authority) -> Self {
        let scheme = scheme.to_ascii_lowercase();
        Self { authority: authority.without_default_port(&scheme), scheme }
    }

    /// Parses the value of an `Origin` header. Returns `None` if it is no origin, such as `null`, with which a browser
    /// hides the origin of the page.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (scheme, authority) = text.split_once("://")?;
        let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.chars().all(|char| char.is_ascii_alphanumeric() || "+-.".contains(char));
        is_scheme.then(|| Authority::parse(authority)).flatten().map(|authority| Self::new(scheme, authority))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_of_the_wrong_form_is_refused_with_the_right_form() {
        for text in ["", "http://a", "a:80", "a/b", "*.example", "a b"] {
            let error = text.parse::<AllowedHost>().expect_err(text).to_string();
            assert!(error.contains("locks.example"), "{error}");
        }
        for text in
            ["", "null", "a.example", "http://", "https://a/", "https://a/b", "https://*.example", "1://a"]
        {
            let error = text.parse::<AllowedOrigin>().expect_err(text).to_string();
            assert!(error.contains("app.example"), "{error}");
        }
    }

    #[test]
    fn origins_are_equal_with_and_without_their_default_port() {
        for (one, other, is_equal) in [
            ("HTTP://A.example:80", "http://a.example", true),
            ("https://a.example:443", "https://a.example", true),
            ("http://a.example:443", "http://a.example", false),
            ("http://a.example", "https://a.example", false),
            ("chrome-extension://abc", "chrome-extension://abc", true),
        ] {
            assert_eq!(
                Origin::parse(one).unwrap() == Origin::parse(other).unwrap(),
                is_equal,
                "{one} {other}"
            );
        }
    }
}
