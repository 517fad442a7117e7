//! Lets clients that do not encrypt talk to a server that does.

use super::{QUIET, Server};
use crate::authority::Authority;
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio_rustls::TlsConnector;

/// Relays in front of the ports of a server. What a client writes to a relay reaches the server encrypted.
#[derive(Debug)]
pub(super) struct Relays {
    addresses: BTreeMap<&'static str, String>,
    /// The relays run until it is dropped.
    _running: oneshot::Sender<()>,
}

impl Relays {
    pub(super) fn address(&self, port: &str) -> Option<&str> {
        self.addresses.get(port).map(String::as_str)
    }
}

impl Server {
    /// Starts a server that encrypts all ports, with a relay in front of each of `ports`.
    pub(crate) fn start_encrypted(arguments: &[&str], ports: &[&'static str]) -> Self {
        let authority = Authority::new();
        let issued = authority.issue("server");
        let certificate = ["--tls-cert", issued.cert(), "--tls-key", issued.key()];
        let mut command = super::command(&[arguments, &certificate].concat());
        command.envs(QUIET).env("WAYMAKER_LOG", "error").stderr(std::process::Stdio::inherit());
        let mut server = Self::start_with(&mut command, None);
        server.relays = Some(begin(&server, &authority, ports));
        server
    }
}

fn begin(server: &Server, authority: &Authority, ports: &[&'static str]) -> Relays {
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(authority.ca()).expect("a file").map(Result::unwrap);
    roots.add_parsable_certificates(certificates);
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(config));
    let mut addresses = BTreeMap::new();
    let mut listeners = Vec::new();
    for port in ports {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a socket");
        addresses.insert(*port, listener.local_addr().expect("an address").to_string());
        listeners.push((listener, server.address(port).to_owned()));
    }
    let (running, ended) = oneshot::channel::<()>();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async move {
            for (listener, server) in listeners {
                let listener = TcpListener::from_std(listener).expect("a listener");
                tokio::spawn(relay(listener, server, connector.clone()));
            }
            let _ = ended.await;
        });
    });
    Relays { addresses, _running: running }
}

async fn relay(listener: TcpListener, server: String, connector: TlsConnector) {
    while let Ok((mut plain, _)) = listener.accept().await {
        let (server, connector) = (server.clone(), connector.clone());
        tokio::spawn(async move {
            let encrypted = TcpStream::connect(server).await?;
            encrypted.set_nodelay(true)?;
            plain.set_nodelay(true)?;
            let name = ServerName::try_from("localhost").expect("a name");
            let mut encrypted = connector.connect(name, encrypted).await?;
            copy_bidirectional(&mut plain, &mut encrypted).await
        });
    }
}
