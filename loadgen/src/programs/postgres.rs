//! A new PostgreSQL cluster for each server; never touches an existing cluster.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow};
use nix::unistd::{User, chown, geteuid};

use super::{on_path, output_of};

/// Debian's folder, with one subfolder per version.
const FOLDER: &str = "/usr/lib/postgresql";
/// Users that may own a cluster; PostgreSQL does not accept root.
const USERS: [&str; 2] = ["postgres", "nobody"];
/// Maximum number of connections: a thousand waiters and some spare.
const CONNECTION_COUNT_MAX: u32 = 1_100;

/// Returns the newest installed version.
pub(super) fn find() -> Option<PathBuf> {
    let version = |path: &Path| path.file_name()?.to_str()?.parse::<f64>().ok();
    let folders = fs::read_dir(FOLDER).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let mut programs: Vec<_> = folders
        .filter_map(|folder| Some((version(&folder)?, folder.join("bin/postgres"))))
        .filter(|(_, program)| program.is_file() && program.with_file_name("initdb").is_file())
        .collect();
    programs.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    let on_path = || fs::canonicalize(on_path("postgres")?).ok();
    programs.pop().map(|(_, program)| program).or_else(on_path)
}

/// Returns the user that runs the server if this process is root.
pub(super) fn user() -> Result<Option<User>> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    let known = USERS.iter().find_map(|name| User::from_name(name).ok().flatten());
    known.map(Some).ok_or_else(|| {
        anyhow!("PostgreSQL does not run as root, and none of these users exists: {}", USERS.join(" or "))
    })
}

/// Creates a cluster that trusts all connections from this machine.
pub(super) fn make_cluster(own: &Path, program: &Path, directory: &Path) -> Result<()> {
    let mut command = Command::new(own);
    command.arg("pinned").current_dir(directory);
    if let Some(user) = user()? {
        chown(directory, Some(user.uid), Some(user.gid))
            .context("cannot change the owner of the directory for PostgreSQL")?;
        command.args(["--user", &user.name]);
    }
    command.arg("--").arg(program.with_file_name("initdb"));
    command.args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]);
    command.arg("-D").arg(directory.join(CLUSTER));
    let made = output_of(&mut command).map_err(|why| anyhow!(why));
    made.context("cannot create a PostgreSQL cluster").map(drop)
}

/// Name of the directory of the cluster.
const CLUSTER: &str = "cluster";

/// Returns the arguments that serve the cluster on a port of this machine only.
pub(super) fn arguments(directory: &Path, port: u16) -> Vec<String> {
    let cluster = directory.join(CLUSTER).to_string_lossy().into_owned();
    let settings = [
        "listen_addresses=127.0.0.1".to_owned(),
        format!("port={port}"),
        "unix_socket_directories=".to_owned(),
        format!("max_connections={CONNECTION_COUNT_MAX}"),
    ];
    ["-D".to_owned(), cluster]
        .into_iter()
        .chain(settings.into_iter().flat_map(|setting| ["-c".to_owned(), setting]))
        .collect()
}
