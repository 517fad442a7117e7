//! Lets clients that do not encrypt talk to a server that does.

use super::{QUIET, Server, run_first, yield_to_others};
use crate::authority::Authority;
use nix::unistd::{Pid, gettid};
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio_rustls::TlsConnector;

/// Relays in front of the ports of a server. What a client writes to a relay reaches the server encrypted.
pub(crate) struct Relays {
    addresses: BTreeMap<&'static str, String>,
    connector: TlsConnector,
    /// The thread of the relays.
    thread: Pid,
    /// The relays run until it is dropped.
    _running: oneshot::Sender<()>,
}

impl Relays {
    /// Lets the relays run before all other threads.
    pub(crate) fn run_first(&self) {
        run_first(self.thread);
    }

    pub(crate) fn address(&self, port: &str) -> Option<&str> {
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
        server.relays = Some(begin(&server.ready, connector(&authority), ports));
        server
    }

    /// Returns one more relay, with a thread of its own, if this server is encrypted.
    pub(crate) fn another_relay(&self, port: &'static str) -> Option<Relays> {
        let relays = self.relays.as_ref()?;
        Some(begin(&self.ready, relays.connector.clone(), &[port]))
    }

    /// Lets the relays of this server run only when no other thread needs the processor.
    pub(crate) fn yield_relays(&self) {
        if let Some(relays) = &self.relays {
            yield_to_others(relays.thread);
        }
    }
}

fn connector(authority: &Authority) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(authority.ca()).expect("a file").map(Result::unwrap);
    roots.add_parsable_certificates(certificates);
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

fn begin(ready: &str, connector: TlsConnector, ports: &[&'static str]) -> Relays {
    let mut addresses = BTreeMap::new();
    let mut listeners = Vec::new();
    for port in ports {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a socket");
        addresses.insert(*port, listener.local_addr().expect("an address").to_string());
        listeners.push((listener, super::address_in(ready, port).to_owned()));
    }
    let (running, ended) = oneshot::channel::<()>();
    let (begun, thread) = mpsc::channel();
    let relayed = connector.clone();
    std::thread::spawn(move || {
        begun.send(gettid()).expect("it is awaited");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async move {
            for (listener, server) in listeners {
                let listener = TcpListener::from_std(listener).expect("a listener");
                tokio::spawn(relay(listener, server, relayed.clone()));
            }
            let _ = ended.await;
        });
    });
    Relays { addresses, connector, thread: thread.recv().expect("the thread runs"), _running: running }
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
