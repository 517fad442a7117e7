//! Tasks of a worker's thread, except those that serve connections.

use super::local::Local;
use super::{ConnectionHandler, Intake, connection};
use crate::edge::read_barrier::SweepNext;
use crate::limits::{HOUSEKEEPING_MS, WORK_US};
use crate::memory;
use crate::port::Port;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::{spawn_local, yield_now};
use waymaker_engine::Time;

/// Time limit for connections to write their last answers when the server ends, in milliseconds.
const FINISH_MS: u64 = 1_000;

/// Runs a worker until it has got `Mail::Finish` and its connections have ended. Waits for the connections for at most
/// `FINISH_MS`.
pub(super) async fn run(local: Rc<Local>, handler: Arc<impl ConnectionHandler>, busy_poll: Duration) {
    spawn_local({
        let local = Rc::clone(&local);
        async move { poll_fn(|context| local.poll_flush(context)).await }
    });
    spawn_local(sweep(Rc::clone(&local), Arc::clone(&handler)));
    spawn_local(housekeep(Rc::clone(&local)));
    spawn_local({
        let local = Rc::clone(&local);
        async move { local.late.run(|| has_work(&local)).await }
    });
    if !busy_poll.is_zero() {
        spawn_local(spin(Rc::clone(&local), busy_poll));
    }
    let accepting = spawn_local({
        let local = Rc::clone(&local);
        async move {
            while let Some(intake) = poll_fn(|context| local.intake.borrow_mut().poll_recv(context)).await {
                begin(&local, &handler, intake);
            }
        }
    });
    take_mail(&local).await;
    // Stop the task that takes new connections first. Otherwise the number of connections, for which this function
    // waits, might never reach 0.
    accepting.abort();
    local.finish();
    let ended = async {
        while local.connection_count() > 0 {
            local.connection_ended.notified().await;
        }
    };
    let _ = tokio::time::timeout(Duration::from_millis(FINISH_MS), ended).await;
}

/// Serves a connection in a new task. Notes it in the read barrier, because its socket is not registered yet.
fn begin(local: &Rc<Local>, handler: &Arc<impl ConnectionHandler>, intake: Intake) {
    local.barrier().note_newcomer();
    match intake.port {
        Port::Binary => spawn_local(connection::serve(Rc::clone(local), intake)),
        Port::Grpc | Port::Http | Port::Locktopus | Port::Dynamodb => {
            spawn_local(Arc::clone(handler).serve(Rc::clone(local), intake))
        }
    };
}

/// Handles the mail of the worker each time a thread signals that mail has arrived. Several signals may cause one call.
/// Returns once the worker has got `Mail::Finish`.
async fn take_mail(local: &Local) {
    loop {
        local.handles[usize::from(local.index)].mail.notified().await;
        if local.has_own_mail.take() {
            // The worker puts off long work by mail to itself. Yield first, so that its connections have their turns
            // before it continues the work.
            yield_now().await;
        }
        let mut worker = local.worker.borrow_mut();
        worker.handle_mail(local.now());
        local.follow_up(&mut worker);
        if worker.is_finishing() {
            return;
        }
    }
}

/// Ends leases, waits and sessions that are due, and continues work that the worker has put off. Reads all sockets if a
/// due lease, wait or session requires it, or if another worker or the watchdog requests it. Never returns.
async fn sweep(local: Rc<Local>, handler: Arc<impl ConnectionHandler>) {
    loop {
        let until = local.worker.borrow().next_deadline();
        if !local.worker.borrow().wants_drain() {
            local.sweeper_sleeps_until.set(until);
            sleep_until(&local, until).await;
        }
        local.sweeper_sleeps_until.set(Time::ZERO);
        work(&local);
        if local.worker.borrow().wants_drain() {
            let at = read_all(&local, &handler).await;
            let mut worker = local.worker.borrow_mut();
            worker.handle_drained(at, local.now());
            local.follow_up(&mut worker);
        } else {
            // The worker may have more work that is due. Continue without sleeping, but let the connections have their
            // turns first.
            yield_now().await;
        }
    }
}

/// Returns whether leases that may expire, or other work of the worker, are due now.
fn has_work(local: &Local) -> bool {
    local.worker.borrow().next_deadline() <= local.now().passed
}

/// Expires leases and waits that are due, and continues work that the worker has put off. Begins no further
/// `Worker::tick` once [`WORK_US`] have passed.
fn work(local: &Local) {
    let mut worker = local.worker.borrow_mut();
    let since = Instant::now();
    loop {
        let now = local.now();
        worker.tick(now);
        if worker.next_deadline() > now.passed || since.elapsed() >= Duration::from_micros(WORK_US) {
            break;
        }
    }
    local.follow_up(&mut worker);
}

async fn sleep_until(local: &Local, until: Time) {
    if until == Time::NEVER {
        return local.sweeper.notified().await;
    }
    let wait = Duration::from_millis(until.ms_since(local.now().passed));
    // Ignore whether the wait ended by its time limit or by a notification: the caller reads the next deadline of the
    // worker again.
    let _ = tokio::time::timeout(wait, local.sweeper.notified()).await;
}

/// Reads all sockets of the worker, including those of connections that another thread handed over and that are not
/// served yet. Returns an instant: all bytes that had arrived by then were served, with two exceptions. A connection
/// may have used up its time ([`crate::limits::SWEEP_TURNS_US`] or [`crate::limits::FRONT_SWEEP_TURNS_US`]), or its
/// client does not read its answers.
///
/// Each `yield_now` lets the runtime poll the operating system once and run the connections that this poll reports as
/// readable, before this function continues. The read barrier (`edge::read_barrier`) decides how many such yields are
/// needed.
async fn read_all(local: &Rc<Local>, handler: &Arc<impl ConnectionHandler>) -> Time {
    let at = local.now().passed;
    take_intake(local, handler);
    local.barrier().begin_sweep(at);
    loop {
        let next = local.barrier().poll_sweep(local.connection_count());
        match next {
            SweepNext::Complete(at) => return at,
            SweepNext::Round => yield_now().await,
        }
        // Between the steps of this sweep, expire leases for which an earlier read of all sockets suffices, and do
        // other work that is due.
        if has_work(local) {
            work(local);
        }
    }
}

/// Starts to serve all connections that other threads have handed over to this worker.
fn take_intake(local: &Rc<Local>, handler: &Arc<impl ConnectionHandler>) {
    while let Ok(intake) = local.intake.borrow_mut().try_recv() {
        begin(local, handler, intake);
    }
}

async fn housekeep(local: Rc<Local>) {
    let mut interval = tokio::time::interval(Duration::from_millis(HOUSEKEEPING_MS));
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        local.node.unix_time.look(&*local.node.clock);
        if local.node.memory.is_full() {
            memory::collect();
        }
        let mut worker = local.worker.borrow_mut();
        worker.housekeep(local.now());
        if worker.next_deadline() <= local.now().passed {
            // A deadline may have passed while the sweeper sleeps: its timer stops while the machine is suspended, but
            // leases continue to run. So wake the sweeper, which expires leases.
            local.sweeper.notify_one();
        }
        local.follow_up(&mut worker);
    }
}

/// Keeps the thread of the worker busy until no connection has read anything for `busy_poll`, and handles mail
/// meanwhile. Then lets the thread sleep until the next read. Never returns. A sleeping thread would delay the next
/// request by tens of microseconds, the time to wake it.
async fn spin(local: Rc<Local>, busy_poll: Duration) {
    let mut seen = local.activity.get();
    let mut quiet_since = Instant::now();
    loop {
        if local.activity.get() != seen {
            seen = local.activity.get();
            quiet_since = Instant::now();
        } else if quiet_since.elapsed() > busy_poll {
            local.spinner_sleeps.set(true);
            local.spinner.notified().await;
            quiet_since = Instant::now();
        }
        {
            let mut worker = local.worker.borrow_mut();
            let now = worker.moment();
            if worker.handle_mail(now) {
                local.follow_up(&mut worker);
            }
        }
        yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Evidence;
    use crate::driver::test_local::{NoFronts, hello_and_keep_alives, in_runtime, test_local};
    use crate::driver::{Admission, StdSocket};
    use crate::limits::EVENTS_PER_POLL;
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::pin::pin;
    use std::task::{Context, Waker};

    /// Returns how often `read_all` yields until it reports that all sockets are read. At each yield, the runtime would
    /// poll the operating system.
    fn poll_count(local: &Rc<Local>) -> usize {
        let handler = Arc::new(NoFronts);
        let mut reading = pin!(read_all(local, &handler));
        let mut context = Context::from_waker(Waker::noop());
        (0..).take_while(|_| reading.as_mut().poll(&mut context).is_pending()).count()
    }

    #[test]
    fn the_system_is_polled_often_enough_to_report_all_connections() {
        let local = test_local();
        assert_eq!(poll_count(&local), 1);
        for expected in 2..5 {
            (0..EVENTS_PER_POLL).for_each(|_| local.note_front());
            assert_eq!(poll_count(&local), expected);
        }
    }

    /// Enough connections that the runtime polls the operating system before it has run all of their tasks once.
    const HANDED_OVER_COUNT: usize = 200;

    #[test]
    fn sockets_count_as_read_only_after_new_connections_are_served() {
        in_runtime(async {
            let local = test_local();
            let clients: Vec<_> = (0..HANDED_OVER_COUNT)
                .map(|_| {
                    let (socket, mut client) = UnixStream::pair().expect("two sockets");
                    socket.set_nonblocking(true).expect("a socket");
                    client.write_all(&hello_and_keep_alives(0)).expect("there is room");
                    let socket = StdSocket::Unix(socket);
                    let (port, peer) = (Port::Binary, String::new());
                    let evidence = Evidence::default();
                    let (moved, reserved, admission) = (None, None, Admission::default());
                    let intake = Intake { port, socket, peer, evidence, moved, reserved, admission };
                    local.handles[0].send(intake);
                    client
                })
                .collect();
            let sweep = Rc::clone(&local);
            // Run `read_all` in a spawned task, as in production, where the task `sweep` calls it before leases expire.
            // The runtime polls a spawned task after all tasks that were ready before it. It may poll the future of
            // `block_on` earlier.
            spawn_local(async move { read_all(&sweep, &Arc::new(NoFronts)).await })
                .await
                .expect("all sockets are read");
            let mut worker = local.worker.borrow_mut();
            let answered_count = std::iter::from_fn(|| worker.poll_dirty()).count();
            assert_eq!(answered_count, clients.len());
        });
    }
}
