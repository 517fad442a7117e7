//! Process information from the kernel: listening sockets, CPU time and memory.

use std::fs;
use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use nix::sys::time::TimeValLike;

/// Open files beyond the connections.
const OTHER_FILES: u64 = 64;
/// State of a listening socket in `/proc`.
const LISTENING: &str = "0A";

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
        let inodes: Vec<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
            .iter()
            .filter_map(|path| fs::read_to_string(path).ok())
            .flat_map(|table| listening_inodes(&table, address.port()))
            .collect();
        let has_socket = |id: u32| {
            let Ok(files) = fs::read_dir(format!("/proc/{id}/fd")) else { return false };
            files.filter_map(|file| fs::read_link(file.ok()?.path()).ok()).any(|link| {
                let link = link.to_string_lossy();
                inodes.iter().any(|inode| {
                    link.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']')) == Some(inode)
                })
            })
        };
        let processes = fs::read_dir("/proc").ok()?;
        processes
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .find(|id| has_socket(*id))
            .map(|id| Self { id })
    }

    /// Returns the CPU time of all its threads and child processes, in nanoseconds.
    pub fn cpu_ns(self) -> Option<u64> {
        let mut sum = 0;
        for thread in fs::read_dir(format!("/proc/{}/task", self.id)).ok()? {
            // A thread may end between the listing and the reading.
            let Ok(statistics) = fs::read_to_string(thread.ok()?.path().join("schedstat")) else { continue };
            sum += statistics.split_whitespace().next()?.parse::<u64>().ok()?;
        }
        Some(sum + self.children().into_iter().filter_map(Self::cpu_ns).sum::<u64>())
    }

    /// Returns the memory of the process and its child processes, in bytes; shared memory is counted once.
    pub fn resident_bytes(self) -> Option<u64> {
        let children = self.children();
        let (file, line) = if children.is_empty() { ("status", "VmRSS:") } else { ("smaps_rollup", "Pss:") };
        let own = self.bytes_in(file, line)?;
        Some(
            own + children
                .into_iter()
                .filter_map(|child| child.bytes_in("smaps_rollup", "Pss:"))
                .sum::<u64>(),
        )
    }

    /// Returns the value of this line in a `/proc` file, in bytes.
    fn bytes_in(self, file: &str, line: &str) -> Option<u64> {
        let text = fs::read_to_string(format!("/proc/{}/{file}", self.id)).ok()?;
        let line = text.lines().find(|candidate| candidate.starts_with(line))?;
        Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
    }

    /// Returns the processes that its threads started.
    fn children(self) -> Vec<Self> {
        let threads = fs::read_dir(format!("/proc/{}/task", self.id)).into_iter().flatten();
        let lists =
            threads.filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("children")).ok());
        lists
            .flat_map(|list| list.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<u32>>())
            .map(|id| Self { id })
            .collect()
    }
}

fn listening_inodes(table: &str, port: u16) -> Vec<String> {
    let listens = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (_, local_port) = fields.get(1)?.rsplit_once(':')?;
        let is_match = u16::from_str_radix(local_port, 16).ok()? == port && *fields.get(3)? == LISTENING;
        is_match.then(|| fields.get(9).map(ToString::to_string)).flatten()
    };
    table.lines().filter_map(listens).collect()
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
    use super::{Process, listening_inodes, own_cpu_ns};

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
    fn finds_only_listening_sockets_of_the_port() {
        let table = "  sl  local_address rem_address st\n\
            0: 0100007F:1CFC 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4711 1\n\
            1: 0100007F:1CFC 0100007F:9999 01 00000000:00000000 00:00000000 00000000 0 0 4712 1\n\
            2: 0100007F:1CFD 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4713 1\n";
        assert_eq!(listening_inodes(table, 7420), ["4711"]);
    }
}
