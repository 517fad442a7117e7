//! TLS settings: trusted certificate authorities and client certificate.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use tokio::io::AsyncBufReadExt;
use tokio_rustls::client::TlsStream;
use waymaker_client::Tls;

use crate::address::Address;
use crate::system::System;

/// Files for encrypted connections.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Options for encrypted targets")]
pub struct TlsOptions {
    /// CA certificates that must have signed the server's certificate, in PEM [default: the CAs of the system]
    #[arg(long, env = "WAYMAKER_TLS_CA", value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
    /// Client certificate, in PEM
    #[arg(long, env = "WAYMAKER_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the client certificate, in PEM
    #[arg(long, env = "WAYMAKER_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
}

impl TlsOptions {
    /// Reads the files if the target is encrypted.
    pub fn connector(&self, target: &Address) -> Result<Option<TlsConnector>> {
        if !target.is_encrypted {
            return Ok(None);
        }
        let mut tls = Tls::new();
        if let Some(ca) = &self.tls_ca {
            tls = tls.ca_file(ca);
        }
        if let (Some(cert), Some(key)) = (&self.tls_cert, &self.tls_key) {
            tls = tls.identity_files(cert, key);
        }
        let (mut config, name) = tls.for_rustls(target.host())?;
        // Each connection of a load represents a new client, and a new client has no session to resume.
        config.resumption = Resumption::disabled();
        if target.system == System::Grpc {
            config.alpn_protocols = vec![b"h2".to_vec()];
        }
        Ok(Some(TlsConnector { config: Arc::new(config), name }))
    }
}

/// TLS settings for the connections of one load.
#[derive(Clone, Debug)]
pub struct TlsConnector {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl TlsConnector {
    /// Returns the TLS state of a new connection, before the handshake.
    pub(crate) fn begin(&self) -> io::Result<ClientConnection> {
        ClientConnection::new(Arc::clone(&self.config), self.name.clone()).map_err(io::Error::other)
    }

    /// Performs the TLS handshake with a server that sends first, as HTTP/2 servers do, on the current runtime. Only
    /// the first bytes from the server show that it accepted the client certificate.
    pub(crate) async fn connect(
        &self,
        socket: tokio::net::TcpStream,
    ) -> io::Result<TlsStream<tokio::net::TcpStream>> {
        let connector = tokio_rustls::TlsConnector::from(Arc::clone(&self.config));
        let mut stream = connector.connect(self.name.clone(), socket).await?;
        stream.fill_buf().await?;
        Ok(stream)
    }
}

/// Describes an error of an open connection, with a hint if there is one.
pub(crate) fn explain(error: &io::Error) -> String {
    match Tls::hint(error) {
        "" => error.to_string(),
        hint => format!("{error}; {hint}"),
    }
}
