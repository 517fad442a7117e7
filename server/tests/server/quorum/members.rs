//! A cluster of real etcd members on this machine.

use crate::authority::Authority;
use crate::harness::{own_host, wait_for, wait_until_stopped};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::File;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tonic::transport::{Channel, Endpoint};
use waymaker_proto::etcd::etcdserverpb::maintenance_client::MaintenanceClient;
use waymaker_proto::etcd::etcdserverpb::{StatusRequest, StatusResponse};

/// How long a member may take to answer a question about its status before it is asked again.
const STATUS_TIME_MAX: Duration = Duration::from_secs(5);
/// How often a cluster is started again on other ports after another process took one of its ports.
const STARTS_MAX: usize = 10;
/// A file system in memory. The tests kill members, and no machine, so a member need not wait for a disk.
const MEMORY: &str = "/dev/shm";

/// One cluster, killed when this is dropped, whatever state it is in.
pub(crate) struct Members {
    members: Vec<Member>,
    directory: TempDir,
    runtime: Runtime,
}

struct Member {
    arguments: Vec<String>,
    endpoint: String,
    /// Where the rig asks it how it is. Not encrypted.
    own_endpoint: String,
    /// Its name in the cluster, once it was heard.
    id: u64,
    child: Option<Child>,
}

impl Members {
    /// So many members that serve.
    pub(crate) fn start(count: usize) -> Self {
        Self::start_with(count, &[])
    }

    /// The same with more arguments for each of them.
    pub(crate) fn start_with(count: usize, arguments: &[&str]) -> Self {
        Self::start_as(count, "http", arguments)
    }

    /// Members that are reached by TLS alone, and let in only who shows a certificate of the same authority.
    pub(crate) fn start_encrypted(count: usize, authority: &Authority) -> Self {
        let (issued, ca) = (authority.issue("etcd"), authority.ca());
        let (cert, key, ca) = (issued.cert(), issued.key(), ca.to_str().expect("a path of text"));
        let files = ["--cert-file", cert, "--key-file", key, "--trusted-ca-file", ca, "--client-cert-auth"];
        Self::start_as(count, "https", &files)
    }

    fn start_as(count: usize, scheme: &str, arguments: &[&str]) -> Self {
        for _ in 0..STARTS_MAX {
            let mut members = Self::new(count, scheme, arguments);
            // None serves before most do.
            (0..count).for_each(|index| members.spawn(index));
            match (0..count).try_for_each(|index| members.await_served(index)) {
                Ok(()) => return members,
                Err(log) => {
                    assert!(log.contains("address already in use"), "a member does not serve:\n{log}");
                }
            }
        }
        panic!("other processes take every port that was free");
    }

    /// Members that do not run yet.
    fn new(count: usize, scheme: &str, arguments: &[&str]) -> Self {
        let directory = if Path::new(MEMORY).is_dir() {
            tempfile::tempdir_in(MEMORY).expect("a directory")
        } else {
            tempfile::tempdir().expect("a directory")
        };
        // The certificates of encrypted members name this address.
        let host = if scheme == "https" { "127.0.0.1".to_owned() } else { own_host() };
        let ports = free_ports(&host, 3 * count);
        let url = |index: usize| format!("http://{host}:{}", ports[index]);
        let cluster: Vec<_> = (0..count).map(|index| format!("member{index}={}", url(index))).collect();
        let member = |index: usize| {
            let (peer, own_endpoint) = (url(index), url(2 * count + index));
            let endpoint = format!("{scheme}://{host}:{}", ports[count + index]);
            let data = directory.path().join(format!("member{index}"));
            let named = [
                ("name", format!("member{index}")),
                ("data-dir", data.display().to_string()),
                ("listen-peer-urls", peer.clone()),
                ("initial-advertise-peer-urls", peer),
                ("listen-client-urls", format!("{endpoint},{own_endpoint}")),
                ("advertise-client-urls", endpoint.clone()),
                ("initial-cluster", cluster.join(",")),
                ("heartbeat-interval", "50".to_owned()),
                ("election-timeout", "500".to_owned()),
                // The weakest, since the machine has other things to do.
                ("bcrypt-cost", "4".to_owned()),
            ];
            let arguments = named
                .into_iter()
                .map(|(name, value)| format!("--{name}={value}"))
                .chain(arguments.iter().map(|&argument| argument.to_owned()))
                .collect();
            Member { arguments, endpoint, own_endpoint, id: 0, child: None }
        };
        let members = (0..count).map(member).collect();
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        Self { members, directory, runtime }
    }

    /// Where clients reach them.
    pub(crate) fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(|member| member.endpoint.clone()).collect()
    }

    /// A connection to one of them, not encrypted, for a client of the test's own.
    pub(crate) fn channel(&self, index: usize) -> Channel {
        let _inside = self.runtime.enter();
        let endpoint = Endpoint::from_shared(self.members[index].own_endpoint.clone()).expect("an address");
        endpoint.connect_lazy()
    }

    /// Waits for what is asked of [`Self::channel`].
    pub(crate) fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    /// The one that leads, as soon as one does that answers.
    pub(crate) fn leader(&self) -> usize {
        wait_for("a member that leads", || {
            let answers = (0..self.members.len()).filter_map(|index| self.status(index));
            // A member that was cut off believes in an older one.
            let newest = answers.max_by_key(|status| status.raft_term).map_or(0, |status| status.leader);
            let leads = |member: &Member| member.id == newest && newest != 0;
            self.members.iter().position(leads).filter(|&index| self.status(index).is_some())
        })
    }

    /// Ends a member as a crash would.
    pub(crate) fn kill(&mut self, index: usize) {
        let mut child = self.members[index].child.take().expect("it runs");
        child.kill().expect("it is our child");
        child.wait().expect("it is our child");
    }

    /// Starts one that was killed, and waits until it serves. That needs most of the others.
    pub(crate) fn restart(&mut self, index: usize) {
        self.restart_all(&[index]);
    }

    /// The same of several, which may need each other.
    pub(crate) fn restart_all(&mut self, indexes: &[usize]) {
        indexes.iter().for_each(|&index| self.spawn(index));
        indexes.iter().for_each(|&index| self.assert_serves(index));
    }

    /// Stops a member. It answers nothing more when this returns. Its sockets stay open, and the system goes on accepting
    /// connections for it.
    pub(crate) fn pause(&self, index: usize) {
        self.signal(index, Signal::SIGSTOP);
        wait_until_stopped(self.pid(index));
    }

    /// Lets a member that was paused go on, and waits until it serves.
    pub(crate) fn resume(&mut self, index: usize) {
        self.signal(index, Signal::SIGCONT);
        self.assert_serves(index);
    }

    fn signal(&self, index: usize, signal: Signal) {
        kill(self.pid(index), signal).expect("it is our child");
    }

    fn pid(&self, index: usize) -> Pid {
        let child = self.members[index].child.as_ref().expect("it runs");
        Pid::from_raw(child.id() as i32)
    }

    fn spawn(&mut self, index: usize) {
        let log = File::options().create(true).append(true).open(self.log(index)).expect("a file");
        let member = &mut self.members[index];
        let child = Command::new("etcd")
            .args(&member.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("etcd starts");
        assert!(member.child.replace(child).is_none(), "it ran already");
    }

    fn assert_serves(&mut self, index: usize) {
        self.await_served(index).unwrap_or_else(|log| panic!("a member does not serve:\n{log}"));
    }

    /// Waits until a member serves. If it ends instead, the end of its log is the error.
    fn await_served(&mut self, index: usize) -> Result<(), String> {
        wait_for("a member that serves", || {
            if let Some(status) = self.status(index).filter(|status| status.leader != 0) {
                self.members[index].id = status.header.expect("who answers").member_id;
                return Some(Ok(()));
            }
            let child = self.members[index].child.as_mut().expect("it runs");
            let has_ended = child.try_wait().expect("it is our child").is_some();
            has_ended.then(|| Err(self.log_end(index)))
        })
    }

    fn status(&self, index: usize) -> Option<StatusResponse> {
        self.members[index].child.as_ref()?;
        let mut client = MaintenanceClient::new(self.channel(index));
        let answer = async { tokio::time::timeout(STATUS_TIME_MAX, client.status(StatusRequest {})).await };
        Some(self.runtime.block_on(answer).ok()?.ok()?.into_inner())
    }

    fn log(&self, index: usize) -> impl AsRef<Path> + use<> {
        self.directory.path().join(format!("member{index}.log"))
    }

    fn log_end(&self, index: usize) -> String {
        let log = std::fs::read_to_string(self.log(index)).expect("a log");
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        for child in self.members.iter_mut().filter_map(|member| member.child.as_mut()) {
            // This signal ends one that is stopped too.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Free ports of the host, of those that the system does not give to a process that asks for any port.
fn free_ports(host: &str, count: usize) -> Vec<u16> {
    let mut found: Vec<TcpListener> = Vec::new();
    while found.len() < count {
        found.extend(TcpListener::bind((host, rand::random_range(12_000..32_000))));
    }
    found.iter().map(|listener| listener.local_addr().expect("it is bound").port()).collect()
}
