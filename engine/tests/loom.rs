//! The turn cell and the mailbox in every interleaving of a few threads: `./test loom`.

#![cfg(loom)]

use loom::sync::Arc;
use loom::thread;
use waymaker_engine::{HandedOver, Turn, TurnCell};

/// Who sent it, and its number there.
type Batch = (usize, usize);
/// What was served, in order. Loom checks that two turns never use it at once.
type Cell = TurnCell<Vec<Batch>, Batch>;

/// Serves a batch, or leaves it to whoever has the turn.
fn serve(cell: &Cell, batch: Batch) {
    if let Some(mut turn) = cell.enter() {
        turn.push(batch);
        leave(turn);
        return;
    }
    hand_over(cell, batch);
}

fn hand_over(cell: &Cell, batch: Batch) {
    if let HandedOver::Entered(mut turn, batch) = cell.hand_over(batch) {
        turn.push(batch);
        leave(turn);
    }
}

fn leave(mut turn: Turn<'_, Vec<Batch>, Batch>) {
    while let Some((back, batches)) = turn.leave() {
        turn = back;
        turn.extend(batches);
    }
}

/// Each sender's batches were served once each and in its order, and nothing was left behind.
fn assert_served(cell: &Cell, batch_counts: &[usize]) {
    let Some(turn) = cell.enter() else { panic!("the turn was never given back") };
    assert_eq!(turn.len(), batch_counts.iter().sum::<usize>(), "{:?}", *turn);
    for (sender, count) in batch_counts.iter().enumerate() {
        let of_sender = turn.iter().filter(|(from, _)| *from == sender).map(|(_, number)| *number);
        assert!(of_sender.eq(0..*count), "{:?}", *turn);
    }
    assert!(turn.leave().is_none());
}

/// Every interleaving of two threads. Of three that would take minutes; those with up to three preemptions take seconds.
fn model(thread_count: usize) -> loom::model::Builder {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = (thread_count > 2).then_some(3);
    model
}

/// Runs senders with so many batches each, the last one on this thread.
fn senders(batch_counts: &'static [usize], send: fn(&Cell, Batch)) {
    model(batch_counts.len()).check(move || {
        let cell = Arc::new(Cell::new(Vec::new()));
        let run = move |cell: &Cell, sender: usize| {
            for number in 0..batch_counts[sender] {
                send(cell, (sender, number));
            }
        };
        let last = batch_counts.len() - 1;
        let threads: Vec<_> = (0..last)
            .map(|sender| {
                let cell = Arc::clone(&cell);
                thread::spawn(move || run(&cell, sender))
            })
            .collect();
        run(&cell, last);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_served(&cell, batch_counts);
    });
}

#[test]
fn two_senders_of_two_batches_each_lose_no_batch() {
    senders(&[2, 2], serve);
}

#[test]
fn three_senders_that_only_hand_over_lose_no_batch() {
    senders(&[1, 1, 1], hand_over);
}

#[test]
fn a_sender_of_three_batches_keeps_their_order() {
    senders(&[3, 1], hand_over);
}

mod mailbox {
    use super::{Batch, model};
    use loom::sync::{Arc, Notify};
    use loom::thread;
    use waymaker_engine::Mailbox;

    /// A reader that sleeps whenever it may, and senders that wake it when they are told to. Every batch arrives, those of
    /// one sender in order, and each sleep is ended by exactly one wake-up. (Where one was lost, loom reports a deadlock.)
    fn mail(batch_counts: &'static [usize]) {
        model(batch_counts.len() + 1).check(move || {
            let mailbox = Arc::new(Mailbox::<Batch>::default());
            let wake = Arc::new(Notify::new());
            let senders: Vec<_> = (0..batch_counts.len())
                .map(|sender| {
                    let (mailbox, wake) = (Arc::clone(&mailbox), Arc::clone(&wake));
                    thread::spawn(move || {
                        let mut wake_count = 0;
                        for number in 0..batch_counts[sender] {
                            if mailbox.post((sender, number)) {
                                wake_count += 1;
                                wake.notify();
                            }
                        }
                        wake_count
                    })
                })
                .collect();
            let expected = batch_counts.iter().sum();
            let mut received = mailbox.take();
            let mut sleep_count = 0;
            while received.len() < expected {
                if mailbox.sleep() {
                    sleep_count += 1;
                    wake.wait();
                }
                received.extend(mailbox.take());
            }
            let wake_count: usize = senders.into_iter().map(|sender| sender.join().unwrap()).sum();
            // Loom wakes a sleeper once without a reason.
            assert!(
                wake_count == sleep_count || wake_count + 1 == sleep_count,
                "{wake_count} for {sleep_count}"
            );
            assert!(mailbox.take().is_empty());
            for (sender, count) in batch_counts.iter().enumerate() {
                let of_sender =
                    received.iter().filter(|(from, _)| *from == sender).map(|(_, number)| *number);
                assert!(of_sender.eq(0..*count), "{received:?}");
            }
        });
    }

    #[test]
    fn one_sender_wakes_a_sleeping_reader_once() {
        mail(&[2]);
    }

    #[test]
    fn two_senders_wake_a_sleeping_reader_once() {
        mail(&[1, 1]);
    }

    /// What nobody took is dropped with the mailbox, once.
    #[test]
    fn a_mailbox_drops_untaken_batches_once() {
        loom::model(|| {
            let batch = Arc::new(());
            let mailbox = Arc::new(Mailbox::default());
            let sender = {
                let (mailbox, batch) = (Arc::clone(&mailbox), Arc::clone(&batch));
                thread::spawn(move || mailbox.post(batch))
            };
            let taken = mailbox.take();
            sender.join().unwrap();
            drop(mailbox);
            drop(taken);
            assert_eq!(Arc::strong_count(&batch), 1);
        });
    }
}
