//! Process information from the kernel: listening sockets, CPU time and memory.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use nix::sys::time::TimeValLike;
use procfs::net::TcpState;
use procfs::process::{FDInfo, FDTarget};

/// Open files beyond the connections.
const OTHER_FILES: u64 = 64;

/// A process on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Process id.
    pub id: u32,
}

impl Process {
    /// Returns the process that listens at this address, if it runs on this machine and this user may inspect it.
    pub fn listening_at(address: SocketAddr) -> Option<Self> {
        if !address.ip().is_loopback() && !address.ip().is_unspecified() {
            return None;
        }
        let tables = [procfs::net::tcp(), procfs::net::tcp6()];
        let inodes: Vec<u64> = tables
            .into_iter()
            .flatten()
            .flatten()
            .filter(|socket| {
                socket.state == TcpState::Listen && socket.local_address.port() == address.port()
            })
            .map(|socket| socket.inode)
            .collect();
        let is_listener =
            |file: FDInfo| matches!(file.target, FDTarget::Socket(inode) if inodes.contains(&inode));
        procfs::process::all_processes()
            .ok()?
            .flatten()
            .find(|process| process.fd().is_ok_and(|files| files.flatten().any(is_listener)))
            .and_then(|process| Some(Self { id: process.pid().try_into().ok()? }))
    }

    /// Opens the directory of this process in `/proc`.
    fn directory(self) -> Option<procfs::process::Process> {
        procfs::process::Process::new(self.id.try_into().ok()?).ok()
    }

    /// Returns the CPU time of all its threads and child processes, in nanoseconds.
    pub fn cpu_ns(self) -> Option<u64> {
        // A thread may end between the listing and the reading.
        let threads = self.directory()?.tasks().ok()?.flatten();
        let own = threads.filter_map(|thread| Some(thread.schedstat().ok()?.sum_exec_runtime)).sum::<u64>();
        Some(own + self.children().into_iter().filter_map(Self::cpu_ns).sum::<u64>())
    }

    /// Returns the memory of the process and its child processes, in bytes; shared memory is counted once.
    pub fn resident_bytes(self) -> Option<u64> {
        let children = self.children();
        if children.is_empty() {
            return Some(self.directory()?.status().ok()?.vmrss? * 1024);
        }
        Some(self.share_bytes()? + children.into_iter().filter_map(Self::share_bytes).sum::<u64>())
    }

    /// Returns the memory of the process in bytes, with its share of memory that other processes also use.
    fn share_bytes(self) -> Option<u64> {
        let maps = self.directory()?.smaps_rollup().ok()?.memory_map_rollup;
        maps.into_iter().find_map(|map| map.extension.map.get("Pss").copied())
    }

    /// Returns the processes that its threads started.
    fn children(self) -> Vec<Self> {
        let threads =
            self.directory().and_then(|directory| directory.tasks().ok()).into_iter().flatten().flatten();
        threads.filter_map(|thread| thread.children().ok()).flatten().map(|id| Self { id }).collect()
    }
}

/// Returns the CPU time of this process in nanoseconds.
pub fn own_cpu_ns() -> u64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("getrusage of the own process cannot fail");
    u64::try_from((usage.user_time() + usage.system_time()).num_microseconds()).unwrap_or(0) * 1000
}

/// Raises the soft limit of open files, so that this number of connections fits.
pub fn raise_open_files_limit(connection_count: u64) -> Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).context("cannot read the limit of open files")?;
    let need = connection_count + OTHER_FILES;
    if need > hard {
        bail!(
            "{connection_count} connections need {need} open files, but the hard limit is {hard} (see ulimit -Hn)"
        );
    }
    if need > soft {
        setrlimit(Resource::RLIMIT_NOFILE, need, hard).context("cannot raise the limit of open files")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Process, own_cpu_ns};

    #[test]
    fn finds_a_listener_and_its_cpu_time() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
        let process = Process::listening_at(listener.local_addr().expect("address")).expect("found");
        assert_eq!(process.id, std::process::id());
        assert!(process.cpu_ns().is_some());
        assert!(process.resident_bytes().expect("known") > 0);
        let _ = own_cpu_ns();
    }

    #[test]
    fn counts_the_memory_and_time_of_child_processes() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("spawn");
        let process = Process { id: std::process::id() };
        assert!(process.children().contains(&Process { id: child.id() }));
        assert!(process.share_bytes().expect("known") > 0);
        assert!(process.resident_bytes().is_some() && process.cpu_ns().is_some());
        child.kill().and_then(|()| child.wait()).expect("ended");
    }

    #[test]
    fn finds_only_listening_sockets_of_the_port() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
        let client = std::net::TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
        assert_eq!(Process::listening_at(client.local_addr().expect("address")), None);
    }
}
