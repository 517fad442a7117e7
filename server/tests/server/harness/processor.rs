//! Processor time, memory and state of the processes of a test.

use super::{Server, Watchdog, wait_until};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;
use procfs::FromRead;
use procfs::process::{Process, Schedstat, Status};
use std::path::PathBuf;
use std::time::Duration;

/// Looks in a row, a millisecond apart, that have to find a server at rest.
const QUIET_LOOKS: u32 = 50;

/// Time between two looks at a process that is about to stop.
const SHORT_POLL: Duration = Duration::from_micros(50);

/// Returns the processor time that all threads of the server have used. It is exact while the server is paused or sleeps: the
/// kernel adds the time of a running thread only at its next tick, up to 4 ms later.
pub(crate) fn processor_time(server: &Server) -> Duration {
    let clock = clock_getcpuclockid(Pid::from_raw(server.id() as i32)).expect("the server runs");
    Duration::from(clock.now().expect("its clock can be read"))
}

/// Time of the workers of a server, added up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WorkerTime {
    ran: Duration,
    /// While they waited for a processor on which something else ran.
    waited: Duration,
}

impl WorkerTime {
    /// Returns the time of the workers since the server started.
    pub(crate) fn of(server: &Server) -> Self {
        let times = workers(server).map(|worker| {
            let times = Schedstat::from_file(worker.join("schedstat")).expect("the server runs");
            Self {
                ran: Duration::from_nanos(times.sum_exec_runtime),
                waited: Duration::from_nanos(times.run_delay),
            }
        });
        times.fold(Self::default(), |sum, one| Self {
            ran: sum.ran + one.ran,
            waited: sum.waited + one.waited,
        })
    }

    /// Returns the part of the time since `begin` in which the workers ran, of the time in which they had something to do.
    pub(crate) fn share_since(&self, begin: &Self) -> f64 {
        let (ran, waited) = (self.ran - begin.ran, self.waited - begin.waited);
        ran.as_secs_f64() / (ran + waited).as_secs_f64()
    }
}

/// Returns the folders in which the kernel describes the workers of a server.
pub(crate) fn workers(server: &Server) -> impl Iterator<Item = PathBuf> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.id())).expect("the server runs");
    tasks.flatten().map(|task| task.path()).filter(|task| {
        std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name.starts_with("worker-"))
    })
}

/// Returns the bytes of memory that the server occupies.
pub(crate) fn memory_len(server: &Server) -> u64 {
    status(server).vmrss.expect("it has memory") << 10
}

/// Returns the bytes of memory that the server occupies, without files that it maps and its own program.
pub(crate) fn anonymous_len(server: &Server) -> u64 {
    status(server).rssanon.expect("it has memory") << 10
}

/// Returns the most bytes of memory that the server ever occupied.
pub(crate) fn peak_len(server: &Server) -> u64 {
    status(server).vmhwm.expect("it has memory") << 10
}

fn status(server: &Server) -> Status {
    process(server).status().expect("the server runs")
}

fn process(server: &Server) -> Process {
    Process::new(server.id() as i32).expect("the server runs")
}

/// Waits until the server has no more work without further input: all its threads sleep and use no processor time.
pub(crate) fn wait_until_rested(server: &Server) {
    wait_until_rested_while(server, || {});
}

/// Waits as [`wait_until_rested`] does, and does this before each look. It keeps connections alive that the server pings.
pub(crate) fn wait_until_rested_while(server: &Server, mut stay_alive: impl FnMut()) {
    let (mut quiet_looks, mut used_before) = (0, Duration::MAX);
    wait_until("a server without anything to do", || {
        stay_alive();
        let used = processor_time(server);
        // A runnable thread that waits for a processor uses no time either, but it does not sleep.
        quiet_looks = if used == used_before && all_threads_sleep(server) { quiet_looks + 1 } else { 0 };
        used_before = used;
        quiet_looks == QUIET_LOOKS
    });
}

/// Waits until a signal has stopped a child of this process. None of its threads runs any more when this returns.
pub(crate) fn wait_until_stopped(child: Pid) {
    let flags = WaitPidFlag::WUNTRACED | WaitPidFlag::WNOHANG;
    let mut watchdog = Watchdog::start();
    loop {
        match waitpid(child, Some(flags)).expect("it is our child") {
            WaitStatus::Stopped(..) => return,
            WaitStatus::StillAlive => {}
            status => panic!("it has ended: {status:?}"),
        }
        watchdog.look_again(|| "a process that is stopped".to_owned());
        std::thread::sleep(SHORT_POLL);
    }
}

/// Lets a paused server run until it has used this much processor time, or has nothing to do, and pauses it again.
pub(crate) fn let_run(server: &Server, work: Duration) {
    let before = processor_time(server);
    wait_until("some work of the server", || {
        // The server may have been paused again meanwhile.
        server.resume();
        processor_time(server) - before >= work || all_threads_sleep(server)
    });
    server.pause();
}

fn all_threads_sleep(server: &Server) -> bool {
    let mut threads = process(server).tasks().expect("the server runs").flatten();
    threads.all(|thread| thread.stat().is_ok_and(|stat| stat.state == 'S'))
}
