//! Other systems beside the server, for blocks that name one.

use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Time within which a system must be ready.
const SOON: Duration = Duration::from_secs(60);

/// A system that blocks can name in their fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum System {
    Etcd,
    Redis,
    PostgreSql,
}

impl System {
    pub(crate) const ALL: [Self; 3] = [Self::Etcd, Self::Redis, Self::PostgreSql];

    /// Its flag after a fence.
    pub(crate) fn flag(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::Redis => "redis",
            Self::PostgreSql => "postgresql",
        }
    }

    /// Programs that it needs on PATH; PostgreSQL's server lies elsewhere.
    fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Etcd => &["etcd", "etcdctl"],
            Self::Redis => &["redis-server", "redis-cli"],
            Self::PostgreSql => &["psql"],
        }
    }

    /// Why the system cannot be started; `None` if it can.
    pub(crate) fn missing(self) -> Option<String> {
        let missing = self.programs().iter().find(|program| on_path(program).is_none());
        match missing {
            Some(program) => Some(format!("{program} is not installed")),
            None if self == Self::PostgreSql && postgres_folder().is_none() => {
                Some("initdb of PostgreSQL is not installed".to_owned())
            }
            None => None,
        }
    }
}

/// A system that runs. Killed when dropped.
pub(crate) struct Running {
    child: Child,
    /// Environment of its clients.
    pub(crate) environment: Vec<(&'static str, String)>,
    /// Directory of its data.
    _directory: tempfile::TempDir,
}

impl Running {
    /// Starts the system on a free port and waits until it serves.
    pub(crate) fn start(system: System) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let port = free_port();
        let (mut server, environment) = match system {
            System::Etcd => etcd(directory.path(), port),
            System::Redis => redis(directory.path(), port),
            System::PostgreSql => postgresql(directory.path(), port),
        };
        let child = server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let running = Self { child, environment, _directory: directory };
        let begin = Instant::now();
        while !running.serves(system) {
            assert!(begin.elapsed() < SOON, "{system:?} is not ready");
            thread::sleep(Duration::from_millis(20));
        }
        running
    }

    fn serves(&self, system: System) -> bool {
        let mut command = match system {
            System::Etcd => Command::new("etcdctl"),
            System::Redis => Command::new("redis-cli"),
            System::PostgreSql => Command::new("psql"),
        };
        match system {
            System::Etcd => command.args(["endpoint", "health"]),
            System::Redis => command.args(["-p", self.value("REDIS_PORT"), "ping"]),
            System::PostgreSql => command.args(["-c", "SELECT 1"]),
        };
        let environment = self.environment.iter().map(|(name, value)| (name, value));
        let status = command.envs(environment).stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.unwrap().success()
    }

    /// Returns a variable of its environment.
    pub(crate) fn value(&self, name: &str) -> &str {
        self.environment.iter().find(|(own, _)| *own == name).map(|(_, value)| value).expect("a variable")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

type Started = (Command, Vec<(&'static str, String)>);

fn etcd(directory: &Path, port: u16) -> Started {
    let mut server = Command::new("etcd");
    let (client, peer) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{}", free_port()));
    server.arg("--data-dir").arg(directory.join("data"));
    server.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
    server.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    server.args(["--initial-cluster", &format!("default={peer}")]);
    (server, vec![("ETCDCTL_API", "3".to_owned()), ("ETCDCTL_ENDPOINTS", client)])
}

fn redis(directory: &Path, port: u16) -> Started {
    let mut server = Command::new("redis-server");
    server.current_dir(directory).args(["--bind", "127.0.0.1", "--save", "", "--port", &port.to_string()]);
    (server, vec![("REDIS_PORT", port.to_string())])
}

fn postgresql(directory: &Path, port: u16) -> Started {
    let folder = postgres_folder().expect("it was found");
    let cluster = directory.join("cluster");
    let mut initdb = Command::new(folder.join("initdb"));
    initdb.args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "-D"]);
    initdb.arg(&cluster).current_dir(directory).stdout(Stdio::null());
    let mut server = Command::new(folder.join("postgres"));
    server.arg("-D").arg(&cluster).current_dir(directory);
    server.args(["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "fsync=off"]);
    server.args(["-p", &port.to_string()]);
    if rustix::process::geteuid().is_root() {
        // PostgreSQL refuses root.
        let (user, group) = ids_of("postgres").or_else(|| ids_of("nobody")).expect("a user for PostgreSQL");
        chown(directory, Some(user), Some(group)).unwrap();
        for command in [&mut initdb, &mut server] {
            command.uid(user).gid(group);
        }
    }
    assert!(initdb.status().unwrap().success(), "cannot make a cluster of PostgreSQL");
    let environment = [
        ("PGHOST", "127.0.0.1".to_owned()),
        ("PGPORT", port.to_string()),
        ("PGUSER", "postgres".to_owned()),
        ("PGDATABASE", "postgres".to_owned()),
    ];
    (server, environment.into())
}

/// Returns the folder of the newest PostgreSQL that can make clusters.
fn postgres_folder() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let folders = versions.filter_map(|entry| Some(entry.ok()?.path().join("bin")));
    let newest = folders.filter(|folder| folder.join("initdb").is_file()).max();
    newest.or_else(|| Some(on_path("initdb")?.parent()?.to_owned()))
}

/// Returns the user and the group of this name.
fn ids_of(name: &str) -> Option<(u32, u32)> {
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    let user = users.lines().find(|line| line.split(':').next() == Some(name))?;
    let mut fields = user.split(':').skip(2);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

pub(crate) fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|program| program.is_file())
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
