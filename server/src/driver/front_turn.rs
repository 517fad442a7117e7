//! Runs front-end connections in turns. A turn is one poll of the task of a connection, with limits of its time and its
//! bytes.

use super::Local;
use super::late::Queued;
use crate::edge::front_turn::{FrontTurn, FrontTurnEnd};
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll};

/// Waits for the next turn of the running connection. A long request awaits this function between its parts, so that
/// other tasks run. Only futures that are polled by [`in_turns`] may await it.
pub(crate) async fn next_turn() {
    let mut begun = None;
    poll_fn(|context| {
        Local::with(|local| {
            let mut turn = local.front_turn.borrow_mut();
            if begun.is_some_and(|begun| begun != turn.number()) {
                return Poll::Ready(());
            }
            if begun.is_none() {
                begun = Some(turn.number());
                turn.wake_in_next_turn(context.waker().clone());
            }
            Poll::Pending
        })
    })
    .await;
}

/// Returns ready if the turn of the running connection has time left. Otherwise returns pending, and the task is woken
/// when the next turn of the connection begins.
pub(crate) fn poll_turn(context: &Context<'_>) -> Poll<()> {
    Local::with(|local| {
        let mut turn = local.front_turn.borrow_mut();
        if !turn.is_spent() {
            return Poll::Ready(());
        }
        turn.wake_in_next_turn(context.waker().clone());
        Poll::Pending
    })
}

/// Runs a front-end connection in turns until it ends.
pub(crate) async fn in_turns<T>(connection: impl Future<Output = T>) -> T {
    let mut connection = pin!(connection);
    let mut turns = Turns { turn: FrontTurn::default(), queued: Queued::default() };
    poll_fn(|context| turns.run(context, |context| connection.as_mut().poll(context))).await
}

/// The turns of one connection. When this value is dropped, the worker no longer waits for the connection to read and
/// serve its bytes before it expires leases.
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
        // `Local::late` queues connections whose turn ended early. A queued connection must not run before its next
        // turn, even if its socket or a timer wakes its task.
        if self.queued.is_queued() {
            return Poll::Pending;
        }
        let Self { turn: own, queued } = self;
        own.begin();
        // Put the turn into `Local` during the poll. The socket and the request bodies of the connection look it up
        // there.
        Local::with(|local| std::mem::swap(own, &mut local.front_turn.borrow_mut()));
        let polled = poll(context);
        Local::with(|local| {
            std::mem::swap(own, &mut local.front_turn.borrow_mut());
            if polled.is_ready() {
                return own.leave(&mut local.barrier());
            }
            match own.end(&mut local.barrier()) {
                FrontTurnEnd::CaughtUp => {}
                FrontTurnEnd::NextRound => context.waker().wake_by_ref(),
                FrontTurnEnd::GaveWay => local.late.give_way(queued, context),
            }
        });
        polled
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        if self.turn.has_place() {
            Local::with(|local| self.turn.leave(&mut local.barrier()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::test_local::{Wakes, continue_one, enter_crowded};
    use crate::edge::read_barrier::Served;
    use crate::limits::{FRONT_BATCH_LEN, FRONT_READ_LEN_MAX, FRONT_SWEEP_TURNS_US, FRONT_TURN_LEN, TURN_US};
    use std::rc::Rc;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;
    use std::task::Waker;
    use std::time::Duration;

    /// One front-end connection on a worker of its own.
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

        /// Returns how often the task of the connection was woken.
        fn wake_count(&self) -> u32 {
            self.wakes.count()
        }

        /// Runs a turn of the connection. The clock of the turn is stopped, so a slow machine does not use up its time.
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

    /// Reads from a socket with more data than one turn may read. Returns the number of bytes.
    fn read_all_allowed(local: &Local, turn: &mut FrontTurn) -> usize {
        let mut read_len = 0;
        while let len @ 1.. = turn.may_read(&mut local.barrier(), || 1 << 20) {
            turn.note_read(len);
            read_len += len;
            assert!(read_len < 1 << 20, "a turn has an end");
        }
        read_len
    }

    #[test]
    fn a_connection_yields_after_the_byte_limit_of_a_turn() {
        let mut rig = Rig::new();
        for _ in 0..2 {
            rig.turn(|local, turn| assert_eq!(read_all_allowed(local, turn), FRONT_TURN_LEN));
            rig.wait_for_turn();
        }
        rig.turn(|local, turn| {
            let len = turn.may_read(&mut local.barrier(), || 10);
            turn.note_read(len.min(10));
            assert_ne!(turn.may_read(&mut local.barrier(), || 0), 0, "it reads to learn when more arrives");
        });
        assert!(!rig.turns.queued.is_queued(), "it has read everything");
        rig.local.barrier().begin_debts();
        assert!(!rig.is_sweeping(), "no sweep waits for it");
    }

    #[test]
    fn a_connection_with_nothing_left_to_read_does_not_yield() {
        let mut rig = Rig::new();
        rig.turn(|local, turn| {
            turn.note_read(FRONT_TURN_LEN);
            assert_ne!(turn.may_read(&mut local.barrier(), || 0), 0, "it reads to learn when more arrives");
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
    fn a_connection_that_yielded_does_not_run_before_its_next_turn() {
        let mut rig = Rig::new();
        rig.turn(|_, turn| turn.serve_later());
        let mut context = Context::from_waker(Waker::noop());
        let polled = rig.turns.run(&mut context, |_| -> Poll<()> { panic!("it runs") });
        assert!(polled.is_pending());
    }

    #[test]
    fn a_split_request_continues_in_the_next_turn_when_time_is_up() {
        let mut rig = Rig::new();
        let mut context = Context::from_waker(Waker::noop());
        let mut run = |rig: &mut Rig, spent: Duration| {
            let polled = rig.turns.run(&mut context, |context| {
                rig.local.front_turn.borrow_mut().begin_earlier(spent);
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
    fn a_request_awaiting_the_next_turn_resumes_and_leaves_no_state() {
        let mut rig = Rig::new();
        let wakes = Arc::<Wakes>::default();
        let waker = Waker::from(Arc::clone(&wakes));
        let mut request = Box::pin(next_turn());
        let mut turn = |rig: &mut Rig| {
            let mut is_ready = false;
            let mut context = Context::from_waker(Waker::noop());
            let polled = rig.turns.run(&mut context, |_| {
                // Poll the request several times in one turn, as a library may do.
                for _ in 0..3 {
                    is_ready = is_ready || request.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
                }
                assert!(rig.local.front_turn.borrow().parted_count() <= 1, "it is woken once");
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
    fn a_split_request_is_woken_in_the_next_turn() {
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
    fn a_connection_stops_reading_when_its_turn_time_is_over() {
        let mut rig = Rig::new();
        rig.turn(|local, turn| {
            assert_ne!(turn.may_read(&mut local.barrier(), || 100), 0);
            turn.note_read(50);
            turn.begin_earlier(Duration::from_micros(TURN_US));
            assert_eq!(turn.may_read(&mut local.barrier(), || 50), 0, "time is measured after each read");
        });
        rig.wait_for_turn();
        rig.turn(|local, turn| {
            turn.use_up();
            assert_eq!(turn.may_read(&mut local.barrier(), || 50), 0, "requests have used the time");
        });
        assert!(rig.turns.queued.is_queued());
    }

    #[test]
    fn a_connection_with_unread_bytes_serves_at_once_after_a_short_read() {
        let mut rig = Rig::new();
        rig.turn(|local, turn| {
            turn.note_read(1);
            turn.use_up();
            assert_eq!(turn.may_read(&mut local.barrier(), || 50), 0, "the time is over");
            assert!(!turn.let_others_read(local.others()));
            assert_eq!(turn.served(), Served::All);
        });
    }

    #[test]
    fn a_sweep_ends_when_the_bytes_present_at_its_start_are_served() {
        let mut rig = Rig::new();
        rig.turn(|local, turn| _ = read_all_allowed(local, turn));
        rig.local.barrier().begin_debts();
        rig.wait_for_turn();
        rig.turn(|local, turn| {
            turn.may_read(&mut local.barrier(), || 100);
            // More data has arrived in the meantime.
            read_all_allowed(local, turn);
        });
        assert!(rig.turns.queued.is_queued());
        assert!(!rig.is_sweeping());
    }

    #[test]
    fn a_single_read_has_a_length_limit() {
        let mut rig = Rig::new();
        rig.turn(|local, turn| {
            assert_eq!(turn.may_read(&mut local.barrier(), || 1 << 20), FRONT_READ_LEN_MAX);
        });
    }

    /// A connection is refused a read when its turn has read its maximum, and must then give other connections a turn.
    /// A library may read again in the same turn, and that read must not cancel this duty.
    #[test]
    fn a_connection_refused_a_read_yields_even_if_it_reads_later() {
        let mut rig = Rig::new();
        rig.turn(|local, turn| {
            turn.note_read(FRONT_TURN_LEN);
            assert_eq!(turn.may_read(&mut local.barrier(), || 10), 0);
            assert_ne!(turn.may_read(&mut local.barrier(), || 0), 0);
        });
        assert!(rig.turns.queued.is_queued());
    }

    #[test]
    fn a_connection_with_requests_left_counts_as_partly_served() {
        let mut rig = Rig::new();
        rig.turn(|local, turn| {
            turn.let_others_read(local.others());
            turn.serve_later();
            assert_eq!(turn.served(), Served::Part);
        });
        assert!(rig.turns.queued.is_queued());
    }

    #[test]
    fn an_ended_connection_has_no_queue_place_despite_unserved_requests() {
        let mut rig = Rig::new();
        rig.turn(|_, turn| turn.serve_later());
        rig.wait_for_turn();
        let polled = rig.turns.run(&mut Context::from_waker(Waker::noop()), |_| {
            rig.local.front_turn.borrow_mut().serve_later();
            Poll::Ready(())
        });
        assert!(polled.is_ready());
        assert!(!rig.turns.queued.is_queued());
        assert!(!rig.turns.turn.has_place());
    }

    #[test]
    fn a_sweep_waits_for_the_earlier_bytes_of_a_connection_that_yielded() {
        let mut rig = Rig::new();
        rig.turn(|local, turn| _ = read_all_allowed(local, turn));
        rig.local.barrier().begin_debts();
        assert!(rig.is_sweeping(), "the connection has more to read");
        rig.wait_for_turn();
        rig.turn(|local, turn| {
            turn.may_read(&mut local.barrier(), || 100);
            turn.note_read(60);
            turn.serve_later();
        });
        assert!(rig.is_sweeping(), "40 bytes are left");
        rig.wait_for_turn();
        rig.turn(|local, turn| {
            turn.may_read(&mut local.barrier(), || 40);
            turn.note_read(40);
            turn.serve_later();
        });
        assert!(rig.is_sweeping(), "requests that were read are left");
        rig.wait_for_turn();
        // These bytes arrived later.
        rig.turn(|local, turn| _ = read_all_allowed(local, turn));
        assert!(!rig.is_sweeping());
    }

    #[test]
    fn a_connection_that_lets_others_read_is_woken_at_once() {
        let mut rig = Rig::new();
        rig.turn(|local, turn| assert!(turn.let_others_read(local.others())));
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
            assert!(!turn.let_others_read(local.others()));
        });
        assert!(rig.turns.queued.is_queued());
    }

    #[test]
    fn the_only_connection_of_a_worker_serves_at_once() {
        let mut rig = Rig::new();
        rig.local.handles[0].connection_count.store(1, Ordering::Relaxed);
        rig.turn(|local, turn| assert!(!turn.let_others_read(local.others())));
        assert_eq!(rig.wake_count(), 0);
    }

    #[test]
    fn a_connection_serves_at_once_while_another_has_yielded() {
        let mut rig = Rig::new();
        let other = Queued::default();
        rig.local.late.give_way(&other, &Context::from_waker(Waker::noop()));
        rig.turn(|local, turn| assert!(!turn.let_others_read(local.others())));
    }

    #[test]
    fn a_connection_that_read_a_full_batch_serves_at_once() {
        let mut rig = Rig::new();
        rig.turn(|local, turn| {
            turn.note_read(FRONT_BATCH_LEN);
            assert!(!turn.let_others_read(local.others()));
        });
    }

    #[test]
    fn a_sweep_waits_for_a_connection_that_lets_others_read() {
        let mut rig = Rig::new();
        let read = |rig: &mut Rig, unread_len: u64| {
            rig.turn(|local, turn| {
                turn.may_read(&mut local.barrier(), || unread_len);
                turn.note_read(unread_len as usize);
                turn.let_others_read(local.others());
            });
        };
        read(&mut rig, 100);
        rig.local.barrier().begin_debts();
        assert!(rig.is_sweeping(), "100 bytes are not served");
        // This turn serves the first 100 bytes.
        read(&mut rig, 50);
        assert!(rig.is_sweeping(), "50 bytes were unread when the sweep began");
        read(&mut rig, 7);
        assert!(!rig.is_sweeping(), "7 bytes came later");
    }

    #[test]
    fn a_sweep_does_not_wait_for_an_ended_connection() {
        let mut rig = Rig::new();
        rig.turn(|_, turn| turn.serve_later());
        rig.local.barrier().begin_debts();
        assert!(rig.is_sweeping());
        let Rig { local, turns, .. } = rig;
        drop(turns);
        assert!(!local.barrier().is_owed());
    }

    /// Before leases expire, the worker sweeps: it waits until each connection has served its unread bytes. The worker
    /// counts these bytes when the connection reads. This connection does not read: it serves requests that it read
    /// earlier. So only a time limit can end the sweep's wait for it.
    #[test]
    fn a_sweep_has_a_time_limit_for_a_connection_that_only_serves() {
        let mut rig = Rig::new();
        rig.turn(|_, turn| turn.serve_later());
        rig.local.barrier().begin_debts();
        assert!(rig.is_sweeping());
        for _ in 0..10 {
            rig.wait_for_turn();
            rig.turn(|_, turn| {
                turn.begin_earlier(Duration::from_micros(FRONT_SWEEP_TURNS_US));
                turn.serve_later();
            });
        }
        assert!(!rig.is_sweeping(), "the connection has used ten times the limit");
    }
}
