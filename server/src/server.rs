//! A whole server, from its options to its end.

use crate::access::{AccessControl, AccessOptions, Policy, PolicyFiles};
use crate::audit::{Act, Audit, AuditEvent, AuditThread, Caller, Detail};
use crate::clock::{BootClock, Clock};
use crate::data_dir::DataDir;
use crate::driver::{Acceptor, DriverConfig, Listening, Port, Workers};
use crate::front::FrontConfig;
use crate::limits::SESSION_VACANT_MS;
use crate::log::start::ReadLog;
use crate::mail::Mail;
use crate::memory::{self, MemoryUse};
use crate::node::{Node, NodeConfig, shard_count};
use crate::options::Options;
use crate::quorum::cluster::Cluster;
use crate::quorum::options::QuorumOptions;
use crate::quorum::port::QuorumPort;
use crate::quorum::thread::QuorumThread;
use crate::reload::Reloader;
use crate::tls::{Tls, TlsOptions};
use anyhow::Context;
use std::io::Write;
use std::net::ToSocketAddrs;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;
use waymaker_engine::{Limits, Time};

/// How often a draining server looks whether anything is still held.
const DRAIN_LOOK: Duration = Duration::from_millis(20);

/// Runs a server until a signal ends it.
///
/// # Errors
/// If it cannot start; the error names the option to change.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let policy = options.access.load()?;
    refuse_open_addresses(options, &policy)?;
    let tls = options.tls.as_ref().map(Tls::load).transpose()?;
    let (audit, _audit_thread) = AuditThread::start(&options.audit)?;
    if options.data_dir.as_ref().is_some_and(|path| !path.exists()) {
        // A server that cannot start leaves no new data directory behind.
        check_addresses(options)?;
    }
    let data_dir = options.data_dir.as_deref().map(DataDir::open).transpose()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(options, policy, tls, &audit, data_dir.as_ref()))?;
    audit.record(&AuditEvent::new(Act::Stop, Caller::default()));
    Ok(())
}

async fn serve(
    options: &Options,
    policy: Policy,
    tls: Option<Tls>,
    audit: &Audit,
    data_dir: Option<&DataDir>,
) -> anyhow::Result<()> {
    let mut terminate = Signals::new()?;
    let mut reloader = Reloader::new(audit.clone());
    if let Some(tls) = &tls {
        reloader.add(tls.clone());
    }
    let access = Arc::new(AccessControl::new(policy, options.login_limits));
    if options.access != AccessOptions::default() {
        reloader.add(PolicyFiles::new(options.access.clone(), Arc::clone(&access)));
    }
    reloader.start()?;
    // Nobody is let in before it is known what is held.
    let log = data_dir.map(|data_dir| read_log(options, data_dir)).transpose()?;
    let mut listening = tcp_ports(options)
        .map(|(option, address, port)| {
            let tls = tls.as_ref().map(|tls| tls.acceptor(port.tls_protocols()));
            let listening =
                Listening::tcp(address, port, tls).with_context(|| cannot_listen(option, address))?;
            let needs_identity = !options.insecure && !is_loopback(option, address)?;
            Ok((listening, needs_identity))
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    if let Some(path) = &options.unix {
        let listener =
            Listening::unix(path).with_context(|| format!("--unix: cannot listen on {}", path.display()))?;
        listening.push((listener, false));
    }
    let addresses =
        listening.iter().map(|(listening, _)| listening.address()).collect::<Result<Vec<_>, _>>()?.join(" ");
    let quorum = options.quorum.as_ref().map(|quorum| anyhow::Ok((Cluster::new(quorum)?, QuorumPort::new())));
    let quorum = quorum.transpose()?;
    let memory = Arc::new(MemoryUse::new(options.memory_limit.bytes()));
    memory::watch(Arc::clone(&memory)).context("could not start the thread that watches memory")?;
    let mut node = Node::new(&NodeConfig {
        memory,
        worker_count: options.worker_count,
        acceptor_count: listening.len(),
        limits: Limits::default(),
        session_vacant_ms: SESSION_VACANT_MS,
        start: BootClock.moment().passed,
        seed: rand::random(),
        clock: Arc::new(BootClock),
        log: log.as_ref().map(|log| log.port.clone()),
        quorum: quorum.as_ref().map(|(_, (port, _))| port.clone()),
    });
    node.audit = audit.clone();
    let log = log.map(|log| log.restore(&mut node, |clock| clock.now())).transpose()?;
    node.access = access;
    let node = Arc::new(node);
    let config = DriverConfig {
        pin: options.pin,
        busy_poll: options.busy_poll,
        address_limits: options.address_limits,
    };
    let fronts = Arc::new(FrontConfig::new(options)?);
    let workers = Workers::start(&node, config, &fronts).context("could not start the workers")?;
    let log = log.map(|log| log.start(&node, &workers)).transpose().context("could not start the log")?;
    let quorum =
        quorum.zip(options.quorum.as_ref()).map(|((cluster, port), QuorumOptions { prefix, .. })| {
            let handles = Arc::clone(&workers.handles);
            let wake = move |worker: u16| handles[usize::from(worker)].wake();
            QuorumThread::start(cluster, prefix.clone(), Arc::clone(&node), port, wake)
        });
    let quorum = quorum.transpose().context("could not start the etcd thread")?;
    if let Some(data_dir) = data_dir {
        data_dir.note_addresses(&addresses);
    }
    announce(&addresses);
    // After the line `ready`, which is the first on standard output.
    audit.record(&start_event(options, &addresses));
    {
        let mut accepting: Vec<_> = listening
            .into_iter()
            .enumerate()
            .map(|(index, (listening, needs_identity))| {
                Box::pin(Acceptor::new(index, listening, needs_identity).run(&node, &workers))
            })
            .collect();
        let accept_all = std::future::poll_fn(|context| {
            for acceptor in &mut accepting {
                let _ = acceptor.as_mut().poll(context);
            }
            std::task::Poll::<()>::Pending
        });
        tokio::select! {
            () = accept_all => {}
            () = terminate.next() => {}
        }
    }
    // Nobody comes in any more, so nobody needs to wait for that.
    (0..node.acceptor_count()).for_each(|acceptor| node.publish_accepted(acceptor, Time::NEVER));
    workers.tell(&node, || Mail::Drained);
    fronts.drain();
    drain(&node, &workers, options.drain, &mut terminate).await;
    fronts.close().await;
    workers.tell(&node, || Mail::Finish);
    workers.join();
    if let Some(quorum) = quorum {
        quorum.stop();
    }
    if let Some(log) = log {
        node.record_ephemeral();
        log.stop().context("could not close the log cleanly; the next start recovers it")?;
    }
    Ok(())
}

fn read_log(options: &Options, data_dir: &DataDir) -> anyhow::Result<ReadLog> {
    let shard_count = shard_count(options.worker_count);
    ReadLog::open(data_dir.path(), options.log_segment_len, options.accept_damage, shard_count)
}

/// Where to listen on TCP, each with the option that says so.
fn tcp_ports(options: &Options) -> impl Iterator<Item = (&'static str, &str, Port)> {
    let Options { listen, grpc_listen, http_listen, locktopus_listen, .. } = options;
    let ports = [
        ("--listen", Some(listen), Port::Binary),
        ("--grpc-listen", grpc_listen.as_ref(), Port::Grpc),
        ("--http-listen", http_listen.as_ref(), Port::Http),
        ("--locktopus-listen", locktopus_listen.as_ref(), Port::Locktopus),
    ];
    ports.into_iter().filter_map(|(option, address, port)| Some((option, address?.as_str(), port)))
}

/// Refuses to start if a TCP address cannot be bound.
fn check_addresses(options: &Options) -> anyhow::Result<()> {
    for (option, address, _) in tcp_ports(options) {
        Listening::check_tcp(address).with_context(|| cannot_listen(option, address))?;
    }
    Ok(())
}

fn cannot_listen(option: &str, address: &str) -> String {
    format!("{option}: cannot listen on {address}; another server may use the port")
}

/// What is not encrypted, or asks nobody who they are, stays on this machine, unless told otherwise.
fn refuse_open_addresses(options: &Options, policy: &Policy) -> anyhow::Result<()> {
    let has_certificates = matches!(&options.tls, Some(TlsOptions { client_ca: Some(_), .. }));
    let has_identities = has_certificates || policy.has_credentials();
    let (problem, remedy) = match (&options.tls, has_identities) {
        (Some(_), true) => return Ok(()),
        (Some(_), false) => ("clients are not authenticated", "set --tokens or --tls-client-ca"),
        (None, true) => ("traffic is not encrypted", "set --tls-cert and --tls-key"),
        (None, false) => (
            "traffic is not encrypted and clients are not authenticated",
            "set --tls-cert and --tls-key, and --tokens or --tls-client-ca",
        ),
    };
    for (option, address, _) in tcp_ports(options) {
        if is_loopback(option, address)? {
            continue;
        }
        anyhow::ensure!(
            options.insecure,
            "{option}: {address} is not a loopback address, and {problem}; {remedy}, listen on loopback, or set \
             --insecure"
        );
        tracing::warn!(%address, "listening on an address that is not loopback: {problem}");
    }
    Ok(())
}

/// Returns whether only this machine can reach an address.
fn is_loopback(option: &str, address: &str) -> anyhow::Result<bool> {
    let mut addresses = address.to_socket_addrs().with_context(|| {
        format!("{option}: {address:?} is not an address; use HOST:PORT such as 127.0.0.1:7420")
    })?;
    Ok(addresses.all(|address| address.ip().is_loopback()))
}

/// Returns the event of a start: the options that decide who can do what.
fn start_event(options: &Options, addresses: &str) -> AuditEvent {
    let Options { tls, insecure, browsers, .. } = options;
    let file = |path: &std::path::Path| path.display().to_string();
    let mut details = vec![
        ("version", Detail::Text(env!("CARGO_PKG_VERSION").to_owned())),
        ("listen", Detail::List(addresses.split(' ').map(str::to_owned).collect())),
        ("insecure", Detail::Flag(*insecure)),
        ("http_hosts", Detail::List(browsers.hosts.iter().map(ToString::to_string).collect())),
        ("http_origins", Detail::List(browsers.origins.iter().map(ToString::to_string).collect())),
    ];
    if let Some(TlsOptions { cert, client_ca, .. }) = tls {
        details.push(("tls_cert", Detail::Text(file(cert))));
        details.extend(client_ca.as_deref().map(|path| ("tls_client_ca", Detail::Text(file(path)))));
    }
    let AccessOptions { access, tokens } = &options.access;
    let files = [("data_dir", &options.data_dir), ("tokens", tokens), ("access", access)];
    let given =
        files.into_iter().filter_map(|(name, path)| Some((name, Detail::Text(file(path.as_deref()?)))));
    details.extend(given);
    AuditEvent { details, ..AuditEvent::new(Act::Start, Caller::default()) }
}

/// The one line on standard output: whoever started the server waits for it.
fn announce(addresses: &str) {
    let mut out = std::io::stdout().lock();
    // Whoever does not listen does not want to know.
    let _ = writeln!(out, "ready {addresses}").and_then(|()| out.flush());
}

/// Refuses waiters and new claims, and serves releases and renewals until nothing is held, time is over, or another
/// signal comes. With a data directory what is held is carried over, so nobody has to let go of it.
async fn drain(node: &Arc<Node>, workers: &Workers, drain: Duration, terminate: &mut Signals) {
    tracing::info!(?drain, "draining: new claims are refused; a second signal stops the server at once");
    node.set_stopping();
    workers.tell(node, || Mail::Stop);
    let end = Instant::now() + drain;
    loop {
        tokio::select! {
            () = tokio::time::sleep_until(end) => return,
            () = terminate.next() => return,
            () = tokio::time::sleep(DRAIN_LOOK) => {
                if node.claim_count() == 0 {
                    return;
                }
                workers.tell(node, || Mail::Count);
            }
        }
    }
}

/// SIGTERM and SIGINT.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        // Without a handler, a write beyond the limit on the length of files ends the process. With it, the write fails.
        drop(signal(SignalKind::from_raw(nix::libc::SIGXFSZ))?);
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
