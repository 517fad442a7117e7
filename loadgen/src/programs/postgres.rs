//! A fresh cluster of PostgreSQL for each server, which never touches any that is there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow};
use nix::unistd::{User, chown, geteuid};

use super::{on_path, output_of};

/// Where Debian has it, one folder for each version.
const FOLDER: &str = "/usr/lib/postgresql";
/// Those who may own a cluster, which root may not.
const USERS: [&str; 2] = ["postgres", "nobody"];
/// Connections that it admits: a thousand who wait, and some.
const CONNECTION_COUNT_MAX: u32 = 1_100;

/// The newest that is installed.
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

/// The user that it is run by where this one is root.
pub(super) fn user() -> Result<Option<User>> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    let known = USERS.iter().find_map(|name| User::from_name(name).ok().flatten());
    known
        .map(Some)
        .ok_or_else(|| anyhow!("there is no user {}, and PostgreSQL refuses root", USERS.join(" or ")))
}

/// Makes a cluster that trusts everybody on this machine.
pub(super) fn make_cluster(own: &Path, program: &Path, directory: &Path) -> Result<()> {
    let mut command = Command::new(own);
    command.arg("pinned").current_dir(directory);
    if let Some(user) = user()? {
        chown(directory, Some(user.uid), Some(user.gid))
            .context("cannot hand the directory to PostgreSQL")?;
        command.args(["--user", &user.name]);
    }
    command.arg("--").arg(program.with_file_name("initdb"));
    command.args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]);
    command.arg("-D").arg(directory.join(CLUSTER));
    let made = output_of(&mut command).map_err(|why| anyhow!(why));
    made.context("cannot make a cluster of PostgreSQL").map(drop)
}

/// Name of its directory.
const CLUSTER: &str = "cluster";

/// Serves that cluster on a port of this machine, and nowhere else.
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
