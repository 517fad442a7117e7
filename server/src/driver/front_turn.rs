//! The turn of one connection of a front end.
//!
//! Everything that such a connection does runs in one task: the library that reads its socket, and the requests that it began. So the
//! length of one poll of that task is all that the connection costs others, and when the poll ends, everything that was read has
//! reached the worker, or the connection gave way.

use super::Local;
use super::late::Queued;
use crate::edge::read_barrier::{Place, Served, TurnReport};
use crate::limits::{FRONT_BATCH_LEN, FRONT_READ_LEN_MAX, FRONT_SWEEP_TURNS_US, FRONT_TURN_LEN, TURN_US};
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Progress of a connection in its present turn. While the connection runs, its turn is in [`Local`], where its socket and its requests
/// find it.
#[derive(Debug, Default)]
pub(crate) struct FrontTurn {
    since: Option<Instant>,
    /// The time was over when it was last measured.
    was_spent: bool,
    /// Bytes that were read from the socket.
    read_len: usize,
    /// The connection may have more to read.
    reads_later: bool,
    /// Requests that were read are left for the next turn.
    serves_later: bool,
    /// Requests that were read are served after other connections have read.
    lets_others_read: bool,
    /// Rises with each turn.
    number: u64,
    /// Requests that are served in parts, and go on in the next turn.
    parted: Vec<Waker>,
    /// Its place in the barrier, while it has more to do than one turn allows.
    place: Option<Place>,
}

impl FrontTurn {
    fn begin(&mut self) {
        (self.since, self.was_spent, self.read_len) = (Some(Instant::now()), false, 0);
        (self.reads_later, self.serves_later, self.lets_others_read) = (false, false, false);
        self.number += 1;
        self.parted.drain(..).for_each(Waker::wake);
    }

    fn spent(&self) -> Duration {
        self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Measures whether the time is over.
    pub(crate) fn is_spent(&mut self) -> bool {
        self.was_spent = self.was_spent || self.spent() >= Duration::from_micros(TURN_US);
        self.was_spent
    }

    /// Whether the time was over when it was last measured.
    pub(crate) fn was_spent(&self) -> bool {
        self.was_spent
    }

    /// Returns the number of bytes that may be read now. With 0, the rest must wait for the next turn.
    pub(crate) fn may_read(&mut self, local: &Local, unread_len: impl Fn() -> u64) -> usize {
        if self.read_len == 0 {
            local.barrier().begin_reading(self.place.as_ref(), &unread_len);
        }
        let rest_len = FRONT_TURN_LEN.saturating_sub(self.read_len);
        let len = if self.is_spent() { 0 } else { rest_len.min(FRONT_READ_LEN_MAX) };
        if len == 0 && unread_len() == 0 {
            // A connection without more to read need not give way: it reads to learn when more arrives.
            return FRONT_READ_LEN_MAX;
        }
        self.reads_later |= len == 0;
        len
    }

    /// Notes that bytes were read.
    pub(crate) fn note_read(&mut self, len: usize) {
        self.read_len += len;
    }

    /// The other side has closed the connection. Returns true if its library may learn that only in the next turn: the library drops
    /// requests at the end, and those that this turn read have not run.
    pub(crate) fn end_later(&mut self) -> bool {
        let has_read = self.read_len > 0;
        self.reads_later |= has_read;
        has_read
    }

    /// Whether requests wait for the next turn.
    pub(crate) fn serves_later(&self) -> bool {
        self.serves_later
    }

    /// Notes that requests wait for the next turn.
    pub(crate) fn serve_later(&mut self) {
        self.serves_later = true;
    }

    /// Decides whether the requests that this turn read are served in the next round of tasks, when other connections have read theirs.
    /// Many connections that first all read and then all serve take far less time than connections that do both in turn.
    ///
    /// A connection that read much does not wait: its requests are together already. Nor does one wait while others have given way: a round
    /// then takes longer.
    pub(crate) fn let_others_read(&mut self, local: &Local) -> bool {
        self.lets_others_read = self.read_len < FRONT_BATCH_LEN
            && !self.reads_later
            && local.late.is_empty()
            && local.has_many_connections();
        self.lets_others_read
    }

    /// Requests that are served at the end of the turn.
    fn served(&self) -> Served {
        match (self.serves_later, self.lets_others_read) {
            (true, _) => Served::Part,
            (false, true) => Served::Earlier,
            (false, false) => Served::All,
        }
    }

    /// Stops the clock: the turn takes no time, however slow the machine is.
    #[cfg(test)]
    pub(crate) fn stop_clock(&mut self) {
        self.since = None;
    }

    /// Uses up the time of the turn.
    #[cfg(test)]
    pub(crate) fn use_up(&mut self) {
        self.was_spent = true;
    }

    fn report(&self) -> TurnReport {
        TurnReport {
            read_len: self.read_len as u64,
            served: self.served(),
            spent: self.spent(),
            spent_max: Duration::from_micros(FRONT_SWEEP_TURNS_US),
        }
    }
}

/// Lets others run before a request that is served in parts goes on, in the next turn of its connection. To be awaited by a connection
/// that runs in turns.
pub(crate) async fn next_turn() {
    let mut begun = None;
    poll_fn(|context| {
        Local::with(|local| {
            let mut turn = local.front_turn.borrow_mut();
            if begun.is_some_and(|begun| begun != turn.number) {
                return Poll::Ready(());
            }
            if begun.is_none() {
                begun = Some(turn.number);
                turn.parted.push(context.waker().clone());
            }
            Poll::Pending
        })
    })
    .await;
}

/// Returns ready while the turn of the running connection lasts. After that, the next turn wakes the task.
pub(crate) fn poll_turn(context: &Context<'_>) -> Poll<()> {
    Local::with(|local| {
        let mut turn = local.front_turn.borrow_mut();
        if !turn.is_spent() {
            return Poll::Ready(());
        }
        turn.parted.push(context.waker().clone());
        Poll::Pending
    })
}

/// Runs a connection of a front end in turns, to its end.
pub(crate) async fn in_turns<T>(connection: impl Future<Output = T>) -> T {
    let mut connection = pin!(connection);
    let mut turns = Turns { turn: FrontTurn::default(), queued: Queued::default() };
    poll_fn(|context| turns.run(context, |context| connection.as_mut().poll(context))).await
}

/// The turns of one connection. Its place in the barrier ends with it.
struct Turns {
    turn: FrontTurn,
    queued: Queued,
}

impl Turns {
    fn run<T>(
        &mut self,
        context: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        if self.queued.is_queued() {
            return Poll::Pending;
        }
        let Self { turn: own, queued } = self;
        own.begin();
        Local::with(|local| std::mem::swap(own, &mut local.front_turn.borrow_mut()));
        let polled = poll(context);
        Local::with(|local| {
            std::mem::swap(own, &mut local.front_turn.borrow_mut());
            let is_left = own.reads_later || own.serves_later || !own.parted.is_empty();
            if polled.is_pending() && (is_left || own.lets_others_read) {
                let turn = own.report();
                local.barrier().give_way(&mut own.place, turn);
                if is_left {
                    local.late.give_way(queued, context);
                } else {
                    context.waker().wake_by_ref();
                }
            } else if own.place.is_some() {
                local.barrier().catch_up(&mut own.place);
            }
        });
        polled
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        if self.turn.place.is_some() {
            Local::with(|local| local.barrier().catch_up(&mut self.turn.place));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::test_local::{Wakes, continue_one, enter_crowded};
    use std::rc::Rc;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    /// One connection of a front end, on a worker of its own.
    struct Rig {
        local: Rc<Local>,
        turns: Turns,
        wakes: Arc<Wakes>,
    }

    impl Rig {
        fn new() -> Self {
            let local = enter_crowded();
            let turns = Turns { turn: FrontTurn::default(), queued: Queued::default() };
            Self { local, turns, wakes: Arc::default() }
        }

        /// How often the connection has woken itself.
        fn wake_count(&self) -> u32 {
            self.wakes.count()
        }

        /// Lets the connection have a turn, which takes no time however slow the machine is.
        fn turn(&mut self, act: impl FnOnce(&Local, &mut FrontTurn)) {
            let waker = Waker::from(Arc::clone(&self.wakes));
            let mut context = Context::from_waker(&waker);
            let polled = self.turns.run(&mut context, |_| {
                let mut turn = self.local.front_turn.borrow_mut();
                turn.stop_clock();
                act(&self.local, &mut turn);
                Poll::<()>::Pending
            });
            assert!(polled.is_pending());
        }

        /// Waits until the connection may continue.
        fn wait_for_turn(&self) {
            assert!(self.turns.queued.is_queued(), "the connection has given way");
            while self.turns.queued.is_queued() {
                continue_one(&self.local);
            }
        }

        fn is_sweeping(&self) -> bool {
            self.local.barrier().is_owed()
        }
    }

    /// Reads from a socket that has more than one turn may read. Returns the number of bytes.
    fn read_all_allowed(local: &Local, turn: &mut FrontTurn) -> usize {
        let mut read_len = 0;
        while let len @ 1.. = turn.may_read(local, || 1 << 20) {
            turn.note_read(len);
            read_len += len;
            assert!(read_len < 1 << 20, "a turn has an end");
        }
        read_len
    }

    #[test]
    fn a_connection_reads_so_many_bytes_in_a_turn_and_then_gives_way() {
        let mut rig = Rig::new();
        for _ in 0..2 {
            rig.turn(|local, turn| assert_eq!(read_all_allowed(local, turn), FRONT_TURN_LEN));
            rig.wait_for_turn();
        }
        rig.turn(|local, turn| {
            let len = turn.may_read(local, || 10);
            turn.note_read(len.min(10));
            assert_ne!(turn.may_read(local, || 0), 0, "it reads to learn when more arrives");
        });
        assert!(!rig.turns.queued.is_queued(), "it has read everything");
        rig.local.barrier().begin_debts();
        assert!(!rig.is_sweeping(), "no sweep waits for it");
    }

    #[test]
    fn a_connection_that_has_read_everything_when_its_turn_ends_need_not_give_way() {
        let mut rig = Rig::new();
        rig.turn(|local, turn| {
            turn.note_read(FRONT_TURN_LEN);
            assert_ne!(turn.may_read(local, || 0), 0, "it reads to learn when more arrives");
        });
        assert!(!rig.turns.queued.is_queued());
    }

    #[test]
    fn a_connection_ends_after_the_turn_that_read_its_last_bytes() {
        let mut rig = Rig::new();
        rig.turn(|_, turn| {
            turn.note_read(1);
            assert!(turn.end_later());
        });
        rig.wait_for_turn();
        rig.turn(|_, turn| assert!(!turn.end_later()));
    }

    #[test]
    fn a_connection_that_gave_way_does_nothing_until_its_turn_comes() {
        let mut rig = Rig::new();
        rig.turn(|_, turn| turn.serve_later());
        let mut context = Context::from_waker(Waker::noop());
        let polled = rig.turns.run(&mut context, |_| -> Poll<()> { panic!("it runs") });
        assert!(polled.is_pending());
    }

    #[test]
    fn a_request_in_parts_goes_on_in_the_next_turn_once_the_time_is_over() {
        let mut rig = Rig::new();
        let mut context = Context::from_waker(Waker::noop());
        let mut run = |rig: &mut Rig, spent: Duration| {
            let polled = rig.turns.run(&mut context, |context| {
                rig.local.front_turn.borrow_mut().since = Instant::now().checked_sub(spent);
                poll_turn(context)
            });
            polled.is_ready()
        };
        assert!(run(&mut rig, Duration::ZERO), "the turn lasts");
        assert!(!rig.turns.queued.is_queued());
        assert!(!run(&mut rig, Duration::from_micros(TURN_US)));
        rig.wait_for_turn();
        assert!(run(&mut rig, Duration::ZERO));
    }

    #[test]
    fn a_request_that_awaits_the_next_turn_goes_on_in_it_and_leaves_nothing_behind() {
        let mut rig = Rig::new();
        let wakes = Arc::<Wakes>::default();
        let waker = Waker::from(Arc::clone(&wakes));
        let mut request = Box::pin(next_turn());
        let mut turn = |rig: &mut Rig| {
            let mut is_ready = false;
            let mut context = Context::from_waker(Waker::noop());
            let polled = rig.turns.run(&mut context, |_| {
                // A library polls it more than once.
                for _ in 0..3 {
                    is_ready = is_ready || request.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
                }
                assert!(rig.local.front_turn.borrow().parted.len() <= 1, "it is woken once");
                Poll::<()>::Pending
            });
            assert!(polled.is_pending());
            is_ready
        };
        assert!(!turn(&mut rig), "the turn is not over");
        assert_eq!(wakes.count(), 0);
        rig.wait_for_turn();
        assert!(turn(&mut rig));
        assert_eq!(wakes.count(), 1, "the next turn wakes it");
        assert!(!rig.turns.queued.is_queued(), "nothing is left");
        rig.local.barrier().begin_debts();
        assert!(!rig.is_sweeping(), "no sweep waits for it");
    }

    #[test]
    fn a_request_in_parts_is_woken_in_the_next_turn() {
        let mut rig = Rig::new();
        let wakes = Arc::<Wakes>::default();
        let waker = Waker::from(Arc::clone(&wakes));
        let polled = rig.turns.run(&mut Context::from_waker(Waker::noop()), |_| {
            rig.local.front_turn.borrow_mut().use_up();
            poll_turn(&Context::from_waker(&waker))
        });
        assert!(polled.is_pending());
        rig.wait_for_turn();
        rig.turn(|_, _| ());
        assert_eq!(wakes.count(), 1);
        assert!(!rig.turns.queued.is_queued(), "nothing is left");
    }

    #[test]
    fn a_connection_whose_time_is_over_reads_no_more() {
        let mut rig = Rig::new();
        rig.turn(|local, turn| {
            assert_ne!(turn.may_read(local, || 100), 0);
            turn.note_read(50);
            turn.since = Instant::now().checked_sub(Duration::from_micros(TURN_US));
            assert_eq!(turn.may_read(local, || 50), 0, "time is measured after each read");
        });
        rig.wait_for_turn();
        rig.turn(|local, turn| {
            turn.use_up();
            assert_eq!(turn.may_read(local, || 50), 0, "requests have used the time");
        });
        assert!(rig.turns.queued.is_queued());
    }

    #[test]
    fn a_connection_with_more_to_read_serves_at_once_although_it_read_little() {
        let mut rig = Rig::new();
        rig.turn(|local, turn| {
            turn.note_read(1);
            turn.use_up();
            assert_eq!(turn.may_read(local, || 50), 0, "the time is over");
            assert!(!turn.let_others_read(local));
            assert_eq!(turn.served(), Served::All);
        });
    }

    #[test]
    fn a_sweep_ends_with_the_turn_that_reads_and_serves_what_was_there() {
        let mut rig = Rig::new();
        rig.turn(|local, turn| _ = read_all_allowed(local, turn));
        rig.local.barrier().begin_debts();
        rig.wait_for_turn();
        rig.turn(|local, turn| {
            turn.may_read(local, || 100);
            // More has come meanwhile.
            read_all_allowed(local, turn);
        });
        assert!(rig.turns.queued.is_queued());
        assert!(!rig.is_sweeping());
    }

    #[test]
    fn a_connection_reads_little_at_once() {
        let mut rig = Rig::new();
        rig.turn(|local, turn| assert_eq!(turn.may_read(local, || 1 << 20), FRONT_READ_LEN_MAX));
    }

    /// A library may ask again after it was refused.
    #[test]
    fn a_connection_that_was_refused_a_read_gives_way_even_if_it_reads_later() {
        let mut rig = Rig::new();
        rig.turn(|local, turn| {
            turn.note_read(FRONT_TURN_LEN);
            assert_eq!(turn.may_read(local, || 10), 0);
            assert_ne!(turn.may_read(local, || 0), 0);
        });
        assert!(rig.turns.queued.is_queued());
    }

    #[test]
    fn a_connection_with_requests_left_counts_as_served_in_part_even_if_it_lets_others_read() {
        let mut rig = Rig::new();
        rig.turn(|local, turn| {
            turn.let_others_read(local);
            turn.serve_later();
            assert_eq!(turn.served(), Served::Part);
        });
        assert!(rig.turns.queued.is_queued());
    }

    #[test]
    fn a_connection_that_ends_has_no_place_although_requests_are_left() {
        let mut rig = Rig::new();
        rig.turn(|_, turn| turn.serve_later());
        rig.wait_for_turn();
        let polled = rig.turns.run(&mut Context::from_waker(Waker::noop()), |_| {
            rig.local.front_turn.borrow_mut().serve_later();
            Poll::Ready(())
        });
        assert!(polled.is_ready());
        assert!(!rig.turns.queued.is_queued());
        assert!(rig.turns.turn.place.is_none());
    }

    #[test]
    fn a_sweep_waits_until_a_connection_that_gave_way_has_read_and_served_what_was_there() {
        let mut rig = Rig::new();
        rig.turn(|local, turn| _ = read_all_allowed(local, turn));
        rig.local.barrier().begin_debts();
        assert!(rig.is_sweeping(), "the connection has more to read");
        rig.wait_for_turn();
        rig.turn(|local, turn| {
            turn.may_read(local, || 100);
            turn.note_read(60);
            turn.serve_later();
        });
        assert!(rig.is_sweeping(), "40 bytes are left");
        rig.wait_for_turn();
        rig.turn(|local, turn| {
            turn.may_read(local, || 40);
            turn.note_read(40);
            turn.serve_later();
        });
        assert!(rig.is_sweeping(), "requests that were read are left");
        rig.wait_for_turn();
        // These bytes came later.
        rig.turn(|local, turn| _ = read_all_allowed(local, turn));
        assert!(!rig.is_sweeping());
    }

    #[test]
    fn a_connection_that_lets_others_read_is_woken_at_once() {
        let mut rig = Rig::new();
        rig.turn(|local, turn| assert!(turn.let_others_read(local)));
        assert!(!rig.turns.queued.is_queued(), "it does not wait behind those that gave way");
        assert_eq!(rig.wake_count(), 1);
        rig.turn(|_, _| ());
        assert_eq!(rig.wake_count(), 1, "it has caught up");
    }

    #[test]
    fn a_connection_with_more_to_read_serves_before_others_read() {
        let mut rig = Rig::new();
        rig.turn(|local, turn| {
            read_all_allowed(local, turn);
            assert!(!turn.let_others_read(local));
        });
        assert!(rig.turns.queued.is_queued());
    }

    #[test]
    fn the_only_connection_of_a_worker_serves_at_once() {
        let mut rig = Rig::new();
        rig.local.handles[0].connection_count.store(1, Ordering::Relaxed);
        rig.turn(|local, turn| assert!(!turn.let_others_read(local)));
        assert_eq!(rig.wake_count(), 0);
    }

    #[test]
    fn a_connection_serves_at_once_while_another_has_given_way() {
        let mut rig = Rig::new();
        let other = Queued::default();
        rig.local.late.give_way(&other, &Context::from_waker(Waker::noop()));
        rig.turn(|local, turn| assert!(!turn.let_others_read(local)));
    }

    #[test]
    fn a_connection_that_has_read_much_serves_at_once() {
        let mut rig = Rig::new();
        rig.turn(|local, turn| {
            turn.note_read(FRONT_BATCH_LEN);
            assert!(!turn.let_others_read(local));
        });
    }

    #[test]
    fn a_sweep_waits_until_a_connection_that_lets_others_read_has_served() {
        let mut rig = Rig::new();
        let read = |rig: &mut Rig, unread_len: u64| {
            rig.turn(|local, turn| {
                turn.may_read(local, || unread_len);
                turn.note_read(unread_len as usize);
                turn.let_others_read(local);
            });
        };
        read(&mut rig, 100);
        rig.local.barrier().begin_debts();
        assert!(rig.is_sweeping(), "100 bytes are not served");
        // The first 100 bytes are served in this turn.
        read(&mut rig, 50);
        assert!(rig.is_sweeping(), "50 bytes were unread when the sweep began");
        read(&mut rig, 7);
        assert!(!rig.is_sweeping(), "7 bytes came later");
    }

    #[test]
    fn a_sweep_waits_no_longer_for_a_connection_that_has_ended() {
        let mut rig = Rig::new();
        rig.turn(|_, turn| turn.serve_later());
        rig.local.barrier().begin_debts();
        assert!(rig.is_sweeping());
        let Rig { local, turns, .. } = rig;
        drop(turns);
        assert!(!local.barrier().is_owed());
    }

    /// Unread bytes are counted when a connection reads. This one only goes on with requests that it has read.
    #[test]
    fn a_sweep_waits_no_longer_than_its_limit_for_a_connection_that_serves_and_does_not_read() {
        let mut rig = Rig::new();
        rig.turn(|_, turn| turn.serve_later());
        rig.local.barrier().begin_debts();
        assert!(rig.is_sweeping());
        for _ in 0..10 {
            rig.wait_for_turn();
            rig.turn(|_, turn| {
                turn.since = Instant::now().checked_sub(Duration::from_micros(FRONT_SWEEP_TURNS_US));
                turn.serve_later();
            });
        }
        assert!(!rig.is_sweeping(), "the connection has used ten times the limit");
    }
}
