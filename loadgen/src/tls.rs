//! Encrypted targets: whom to believe, and whom to be.

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

use crate::address::{Address, System};

/// The files of encrypted connections.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Options of encrypted targets")]
pub struct TlsOptions {
    /// Who must have signed the certificate of the server, in PEM [default: whom the system believes]
    #[arg(long, env = "WAYMAKER_TLS_CA", value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
    /// The certificate that is shown to the server, in PEM
    #[arg(long, env = "WAYMAKER_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The key of that certificate, in PEM
    #[arg(long, env = "WAYMAKER_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
}

impl TlsOptions {
    /// Reads the files, if this target is encrypted.
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
        // A load stands for as many clients as it has connections, and none of them was there before.
        config.resumption = Resumption::disabled();
        if target.system == System::Grpc {
            config.alpn_protocols = vec![b"h2".to_vec()];
        }
        Ok(Some(TlsConnector { config: Arc::new(config), name }))
    }
}

/// Encrypts the connections of one load.
#[derive(Clone, Debug)]
pub struct TlsConnector {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl TlsConnector {
    /// The state of a connection that has yet to shake hands.
    pub(crate) fn begin(&self) -> io::Result<ClientConnection> {
        ClientConnection::new(Arc::clone(&self.config), self.name.clone()).map_err(io::Error::other)
    }

    /// Shakes hands, on the runtime that this runs on, with a server that speaks first, as those of HTTP/2 do: only by its
    /// first words does one know that it took the certificate.
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

/// An error of a connection that was opened, and what may help.
pub(crate) fn explain(error: &io::Error) -> String {
    match Tls::hint(error) {
        "" => error.to_string(),
        hint => format!("{error}; {hint}"),
    }
}
