//! The life of a whole server, from its options to its end.

use crate::access::{AccessControl, AccessOptions, Policy, PolicyFiles};
use crate::audit::{Act, Audit, AuditEvent, AuditThread, Caller, Detail};
use crate::clock::{BootClock, Clock};
use crate::creatable;
use crate::data_dir::DataDir;
use crate::delivery::Host;
use crate::driver::{Acceptor, DriverConfig, Listener, Workers};
use crate::front::FrontConfig;
use crate::limits::RECOVERY_LOOK_MS;
use crate::mail::Mail;
use crate::memory::{self, MemoryUse};
use crate::metrics::watch_processors;
use crate::namespaces::LeaseAboveMaximum;
use crate::node::{Node, NodeConfig, shard_count};
use crate::options::Options;
use crate::peer::Endpoint;
use crate::port::Port;
use crate::quorum::cluster::Cluster;
use crate::quorum::port::QuorumPort;
use crate::quorum::thread::QuorumThread;
use crate::readiness::Readiness;
use crate::recovery::{ReadLog, open_declared};
use crate::reloader::Reloader;
use crate::supervisor::{self, Supervisor};
use crate::tls::{Tls, TlsOptions};
use crate::traces::TraceThread;
use anyhow::Context;
use std::io::{ErrorKind, Write};
use std::net::ToSocketAddrs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;
use waymaker_engine::Time;

/// Interval at which a draining server checks whether claims remain.
const DRAIN_LOOK: Duration = Duration::from_millis(20);

/// Runs a server until a signal stops it.
///
/// # Errors
/// Returns an error if the server cannot start or cannot close its log cleanly. If an option is wrong, the error names
/// it.
pub fn run(options: &Options) -> anyhow::Result<()> {
    options.limits.check()?;
    check_declared(options)?;
    let tls = options.tls.resolve()?;
    let quorum = options.quorum.configured()?;
    let collector = options.collector()?;
    let policy = options.access.load()?;
    let open = open_addresses(options).collect::<anyhow::Result<Vec<_>>>()?;
    refuse_open_addresses(&open, options.insecure, tls.as_ref(), &policy)?;
    let tls = tls.as_ref().map(Tls::load).transpose()?;
    let quorum = quorum.map(Cluster::new).transpose()?;
    let (audit, _audit_thread) = AuditThread::start(&options.audit)?;
    if options.data_dir.as_ref().is_some_and(|path| !path.exists()) {
        // Check the addresses first, so that a server that cannot start leaves no new data directory behind.
        check_addresses(options)?;
    }
    let data_dir = options.data_dir.as_deref().map(DataDir::open).transpose()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(options, Read { policy, tls, quorum, collector }, &audit, data_dir.as_ref()))?;
    audit.record(&AuditEvent::new(Act::Stop, Caller::default()));
    Ok(())
}

/// Values read from the options and from the files that they name.
struct Read {
    policy: Policy,
    tls: Option<Tls>,
    quorum: Option<Cluster>,
    /// Collector for spans.
    collector: Option<Endpoint>,
}

/// Returns all errors in the options and in the files that they name. Opens no port for clients and writes nothing.
pub fn errors(options: &Options) -> Vec<anyhow::Error> {
    let mut errors = Vec::new();
    note(&mut errors, options.limits.check().map_err(anyhow::Error::from));
    note(&mut errors, check_declared(options).map_err(anyhow::Error::from));
    let tls = note(&mut errors, options.tls.resolve().map_err(anyhow::Error::from)).flatten();
    if let Some(tls) = &tls {
        note(&mut errors, Tls::load(tls).map_err(anyhow::Error::from));
    }
    let policy = note(&mut errors, options.access.load().map_err(anyhow::Error::from));
    let open: Vec<_> = open_addresses(options).filter_map(|open| note(&mut errors, open)).collect();
    if let Some(policy) = policy {
        note(&mut errors, refuse_open_addresses(&open, options.insecure, tls.as_ref(), &policy));
    }
    note(
        &mut errors,
        options
            .quorum
            .configured()
            .and_then(|quorum| quorum.map(Cluster::new).transpose())
            .map_err(anyhow::Error::from),
    );
    note(&mut errors, options.collector().map_err(anyhow::Error::from));
    note(&mut errors, options.audit.check().map_err(anyhow::Error::from));
    if let Some(path) = &options.unix {
        note(&mut errors, creatable::socket(path).with_context(|| cannot_listen_on(path)));
    }
    if let Some(path) = &options.data_dir {
        note(&mut errors, DataDir::check(path).map_err(anyhow::Error::from));
    }
    errors
}

/// Checks that no declared namespace has a lease above the maximum.
fn check_declared(options: &Options) -> Result<(), LeaseAboveMaximum> {
    options.namespaces.iter().try_for_each(|namespace| namespace.check(options.limits.lease_max))
}

/// Collects the error of a result and returns its value.
fn note<T>(errors: &mut Vec<anyhow::Error>, result: anyhow::Result<T>) -> Option<T> {
    result.map_err(|error| errors.push(error)).ok()
}

async fn serve(
    options: &Options,
    read: Read,
    audit: &Audit,
    data_dir: Option<&DataDir>,
) -> anyhow::Result<()> {
    let Read { policy, tls, quorum, collector } = read;
    let mut terminate = Signals::new()?;
    let supervisor =
        Supervisor::from_environment().context("could not start the thread for the supervisor")?;
    let mut reloader = Reloader::new(audit.clone(), supervisor.clone());
    if let Some(tls) = &tls {
        reloader.add(tls.clone());
    }
    let access = Arc::new(AccessControl::new(policy, options.login_limits()));
    if options.access != AccessOptions::default() {
        reloader.add(PolicyFiles::new(options.access.clone(), Arc::clone(&access)));
    }
    reloader.start()?;
    // Read the log before listening: clients are admitted only when all holds are known.
    let log = data_dir.map(|data_dir| read_log(options, data_dir)).transpose()?;
    if terminate.came().await {
        tracing::info!("stopped before the start was complete");
        return Ok(());
    }
    let fronts = Arc::new(FrontConfig::new(&options.fronts())?);
    let mut listening = tcp_ports(options)
        .map(|(option, address, port)| {
            let tls = tls.as_ref().map(|tls| tls.acceptor(port.tls_protocols()));
            let listening =
                Listener::tcp(address, port, tls).with_context(|| cannot_listen(option, address))?;
            let needs_identity = !options.insecure && !is_loopback(option, address)?;
            Ok((listening, needs_identity))
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    if let Some(path) = &options.unix {
        let listener = Listener::unix(path).with_context(|| cannot_listen_on(path))?;
        listening.push((listener, false));
    }
    let addresses =
        listening.iter().map(|(listening, _)| listening.address()).collect::<Result<Vec<_>, _>>()?.join(" ");
    let quorum = quorum.map(|cluster| (cluster, QuorumPort::new()));
    let memory = Arc::new(MemoryUse::new(options.memory_limit.bytes()));
    memory::watch(Arc::clone(&memory)).context("could not start the thread that watches memory")?;
    let mut node = Node::new(&NodeConfig {
        memory,
        worker_count: options.worker_count(),
        acceptor_count: listening.len(),
        limits: options.limits.engine(),
        session_vacant_ms: options.limits.session_idle.as_u64(),
        start: BootClock.moment().passed,
        seed: rand::random(),
        clock: Arc::new(BootClock),
        log: log.as_ref().map(|log| log.port.clone()),
        quorum: quorum.as_ref().map(|(_, (port, _))| port.clone()),
    });
    node.audit = audit.clone();
    node.addresses.clone_from(&addresses);
    node.set_limits(options.limits);
    node.declared.clone_from(&options.namespaces);
    if log.is_none() {
        open_declared(&node)?;
    }
    let log = log.map(|log| log.restore(&mut node, |clock| clock.now())).transpose()?;
    node.access = access;
    let traces = collector.map(|collector| {
        TraceThread::start(collector, node.server_id, Arc::clone(&node.clock))
            .context("could not start the thread that exports traces")
    });
    let (traces, trace_thread) = traces.transpose()?.unzip();
    node.traces = traces.unwrap_or_default();
    let node = Arc::new(node);
    watch_processors(node.metrics.workers.to_vec())
        .context("could not start the thread that measures workers")?;
    let config = DriverConfig {
        pin: options.pin,
        busy_poll: options.busy_poll,
        address_limits: options.address_limits(),
    };
    let workers = Workers::start(&node, config, &fronts).context("could not start the workers")?;
    let host = || {
        let handles = Arc::clone(&workers.handles);
        Host::new(Arc::clone(&node), move |worker: u16| handles[usize::from(worker)].wake())
    };
    let log = log.map(|log| log.start(host())).transpose().context("could not start the log")?;
    let quorum = quorum
        .map(|(cluster, port)| QuorumThread::start(cluster, options.quorum.prefix.clone(), host(), port));
    let quorum = quorum.transpose().context("could not start the etcd thread")?;
    if let Some(data_dir) = data_dir {
        data_dir.note_addresses(&addresses);
    }
    if node.grants_refused_ms() > 0 {
        fronts.set_ready(false);
        tokio::spawn(note_recovery(Arc::clone(&node), Arc::clone(&fronts)));
    }
    announce(&addresses);
    supervisor.note_ready(&Readiness::of(&node), &addresses);
    // Record the start in the audit log only after the line `ready`. That line must be the first on standard output,
    // where the audit log may go too.
    audit.record(&start_event(options, &addresses));
    let watch =
        supervisor::watch(supervisor.clone(), Arc::clone(&node), Arc::clone(&workers.handles), addresses);
    let watch = tokio::spawn(watch);
    {
        let mut accepting: Vec<_> = listening
            .into_iter()
            .enumerate()
            .map(|(index, (listening, needs_identity))| {
                Box::pin(
                    Acceptor::new(index, listening, needs_identity, &options.limits).run(&node, &workers),
                )
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
    supervisor.note_stopping();
    // No connection is accepted any more. Publish that every connection up to `Time::NEVER` is accepted, because
    // sessions expire only after the acceptors have reported.
    (0..node.acceptor_count()).for_each(|acceptor| node.publish_accepted(acceptor, Time::NEVER));
    workers.tell(&node, || Mail::Drained);
    fronts.drain();
    drain(&node, &workers, options.drain, &mut terminate).await;
    fronts.close().await;
    watch.abort();
    workers.tell(&node, || Mail::Finish);
    workers.join();
    // No span can end after the workers have ended. So the thread that exports traces can now send the last spans and
    // end.
    drop(trace_thread);
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
    let shard_count = shard_count(options.worker_count());
    ReadLog::open(data_dir.path(), options.log_segment_len, options.accept_damage, shard_count)
}

/// Returns the TCP addresses to listen on, each with its option.
fn tcp_ports(options: &Options) -> impl Iterator<Item = (&'static str, &str, Port)> {
    let Options { listen, grpc_listen, http_listen, locktopus_listen, dynamodb_listen, .. } = options;
    let ports = [
        ("--listen", Some(listen), Port::Binary),
        ("--grpc-listen", grpc_listen.as_ref(), Port::Grpc),
        ("--http-listen", http_listen.as_ref(), Port::Http),
        ("--locktopus-listen", locktopus_listen.as_ref(), Port::Locktopus),
        ("--dynamodb-listen", dynamodb_listen.as_ref(), Port::Dynamodb),
    ];
    ports.into_iter().filter_map(|(option, address, port)| Some((option, address?.as_str(), port)))
}

/// Returns an error if a TCP address cannot be bound.
fn check_addresses(options: &Options) -> anyhow::Result<()> {
    for (option, address, _) in tcp_ports(options) {
        Listener::check_tcp(address).with_context(|| cannot_listen(option, address))?;
    }
    Ok(())
}

/// The server cannot use an address now. Later the address may be free, assigned to the machine, or known to the name
/// service.
#[derive(Debug, thiserror::Error)]
#[error("{option}: cannot {verb} {address}; {hint}")]
pub struct AddressUnavailable {
    option: &'static str,
    verb: &'static str,
    address: String,
    hint: &'static str,
}

fn cannot_listen(option: &'static str, address: &str) -> AddressUnavailable {
    let hint = "another server may use the port";
    AddressUnavailable { option, verb: "listen on", address: address.to_owned(), hint }
}

fn cannot_listen_on(path: &Path) -> String {
    format!("--unix: cannot listen on {}", path.display())
}

/// Returns the TCP addresses that other machines can reach, each with its option.
fn open_addresses(options: &Options) -> impl Iterator<Item = anyhow::Result<(&'static str, &str, Port)>> {
    tcp_ports(options).filter_map(|(option, address, port)| match is_loopback(option, address) {
        Ok(true) => None,
        Ok(false) => Some(Ok((option, address, port))),
        Err(error) => Some(Err(error)),
    })
}

/// Refuses addresses that other machines can reach without encryption or without authentication, unless `insecure` is
/// set.
fn refuse_open_addresses(
    open: &[(&str, &str, Port)],
    insecure: bool,
    tls: Option<&TlsOptions>,
    policy: &Policy,
) -> anyhow::Result<()> {
    let has_certificates = tls.is_some_and(|tls| tls.client_ca.is_some());
    for (option, address, port) in open {
        let (has_credentials, credentials) = match port {
            Port::Dynamodb => (policy.has_access_keys(), "--dynamodb-keys"),
            _ => (policy.has_credentials(), "--tokens"),
        };
        let (problem, remedy) = match (tls, has_certificates || has_credentials) {
            (Some(_), true) => continue,
            (Some(_), false) => {
                ("clients are not authenticated", format!("set {credentials} or --tls-client-ca"))
            }
            (None, true) => ("traffic is not encrypted", "set --tls-cert and --tls-key".to_owned()),
            (None, false) => (
                "traffic is not encrypted and clients are not authenticated",
                format!("set --tls-cert and --tls-key, and {credentials} or --tls-client-ca"),
            ),
        };
        anyhow::ensure!(
            insecure,
            "{option}: {address} is not a loopback address, and {problem}; {remedy}, listen on loopback, or set \
             --insecure"
        );
        tracing::warn!(%address, "listening on an address that is not loopback: {problem}");
    }
    Ok(())
}

/// Returns whether only this machine can reach an address.
fn is_loopback(option: &'static str, address: &str) -> anyhow::Result<bool> {
    let addresses = match address.to_socket_addrs() {
        Err(error) if error.kind() == ErrorKind::InvalidInput => Err(error).with_context(|| {
            format!("{option}: {address:?} is not an address; use HOST:PORT such as 127.0.0.1:7420")
        }),
        resolved => resolved.with_context(|| {
            let hint = "check the name, or use an IP address";
            AddressUnavailable { option, verb: "resolve", address: address.to_owned(), hint }
        }),
    };
    Ok(addresses?.all(|address| address.ip().is_loopback()))
}

/// Returns the audit event of a start, with the options that affect access.
fn start_event(options: &Options, addresses: &str) -> AuditEvent {
    let Options { tls, insecure, browsers, .. } = options;
    let file = |path: &Path| path.display().to_string();
    let mut details = vec![
        ("version", Detail::Text(env!("CARGO_PKG_VERSION").to_owned())),
        ("listen", Detail::List(addresses.split(' ').map(str::to_owned).collect())),
        ("insecure", Detail::Flag(*insecure)),
        ("http_hosts", Detail::List(browsers.hosts.iter().map(ToString::to_string).collect())),
        ("http_origins", Detail::List(browsers.origins.iter().map(ToString::to_string).collect())),
    ];
    let tls = [("tls_cert", &tls.cert), ("tls_client_ca", &tls.client_ca)];
    let AccessOptions { access, tokens, dynamodb_keys } = &options.access;
    let files = [
        ("data_dir", &options.data_dir),
        ("tokens", tokens),
        ("access", access),
        ("dynamodb_keys", dynamodb_keys),
    ];
    let given = tls
        .into_iter()
        .chain(files)
        .filter_map(|(name, path)| Some((name, Detail::Text(file(path.as_deref()?)))));
    details.extend(given);
    AuditEvent { details, ..AuditEvent::new(Act::Start, Caller::default()) }
}

/// Waits until the pause of grants after a loss of records has ended, and marks the gRPC health service as ready.
async fn note_recovery(node: Arc<Node>, fronts: Arc<FrontConfig>) {
    loop {
        let remaining_ms = node.grants_refused_ms();
        if remaining_ms == 0 {
            return fronts.set_ready(true);
        }
        // `sleep` does not count time in which the machine is suspended, but the clock that ends the pause of grants
        // does. So check the remaining time at least every `RECOVERY_LOOK_MS`.
        tokio::time::sleep(Duration::from_millis(remaining_ms.min(RECOVERY_LOOK_MS))).await;
    }
}

/// Prints the line `ready`, for which the program that started the server may wait. It is the first line on standard
/// output, and the only one unless the audit log goes there.
fn announce(addresses: &str) {
    let mut out = std::io::stdout().lock();
    // Ignore errors: the reader may have closed standard output.
    let _ = writeln!(out, "ready {addresses}").and_then(|()| out.flush());
}

/// Refuses waiters and new claims, and serves releases and renewals. Ends when no claim remains, `drain` is over, or
/// another signal arrives. With a data directory only waiting claims count, because holds survive the restart.
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

/// Handlers of SIGTERM and SIGINT.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        // Install a handler for SIGXFSZ. With a handler, a write beyond the file size limit fails. Without one, it ends
        // the process.
        drop(signal(SignalKind::from_raw(nix::libc::SIGXFSZ))?);
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Returns whether a signal arrived while the thread did other work.
    async fn came(&mut self) -> bool {
        tokio::select! {
            biased;
            () = self.next() => true,
            // Yield once, so that the runtime processes pending signals.
            () = tokio::task::yield_now() => false,
        }
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
