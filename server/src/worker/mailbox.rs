//! The mail of a worker: incoming mail and posted mail. The worker posts mail before it gives the turn of a shard back,
//! and at the end of a step. A step is one call by the driver, which hands in bytes, mail or the time.

use super::{State, Worker};
use crate::clock::Moment;
use crate::mail::{Batch, Content, Letter, Mail};
use crate::node::Node;

impl Worker {
    /// Takes the mail of this worker and handles it. After an item that takes long, leaves the rest for a later call.
    /// Returns whether there was any mail, or work that an earlier step left.
    #[inline]
    pub fn handle_mail(&mut self, now: impl Into<Moment>) -> bool {
        let letters = self.state.read_letters(&self.node);
        if self.state.mails.is_empty() && self.state.follow_ups.is_empty() {
            return letters;
        }
        self.state.advance(now.into());
        // Take the mails one by one, because handling one mail may add others to the queue.
        while let Some(mail) = self.state.mails.pop_front() {
            let is_long = matches!(
                mail,
                Mail::Turn { .. } | Mail::Knocked { .. } | Mail::Untried | Mail::Withdraw | Mail::Reauthorize
            );
            match mail {
                Mail::Letters(letters) => self.state.deliver(&self.node, letters),
                Mail::Turn { shard, pass } => self.state.take_turn(&self.node, shard, pass),
                Mail::Drain { asker, due } => self.state.timers.asked_to_drain(asker, due),
                Mail::Drained => self.state.tick(&self.node),
                Mail::Settled(number) => self.state.settled(&self.node, number),
                Mail::Vacant(vacancy) => self.state.vacate(&vacancy),
                Mail::Closed(key) => self.state.tell_of_end(key),
                Mail::Knocked { shard } => self.state.retry_multi_shard(&self.node, shard),
                Mail::Untried => self.state.try_multi_shard(&self.node),
                Mail::Withdraw => self.state.go_on_withdrawing(&self.node),
                Mail::Reauthorize => self.state.reauthorize(&self.node),
                Mail::Stop => self.state.stop_shards(&self.node),
                Mail::Count => self.state.count_claims(&self.node),
                Mail::Reserved { shard, end, reserved } => {
                    self.state.hand_over(&self.node, shard, Batch::Reserved(end, reserved));
                }
                Mail::ReservedMultiKey(end, multi_shard) => {
                    self.state.end_multi_shard(&self.node, end, multi_shard);
                }
                Mail::Finish => self.state.finish(&self.node),
            }
            if is_long && !self.state.mails.is_empty() {
                // Handling this mail took long, so let connections have their turns before the other mails. The entry
                // for this worker in `wakes` (the workers that the driver must wake) makes the driver call this method
                // again later.
                self.state.wakes.push(self.state.index);
                break;
            }
        }
        self.state.finish_step(&self.node);
        true
    }
}

impl State {
    /// Posts the records to the log, and the questions to the cluster, which raises the fence counters of quorum scope.
    /// Posts the letters (answers and events for lanes of other workers) as one mail for each worker.
    #[inline]
    pub(super) fn post(&mut self, node: &Node) {
        if let Some(log) = &node.log
            && !self.log.is_empty()
        {
            log.post(std::mem::take(&mut self.log));
        }
        // Post the questions to the cluster after the records. The reply to a question may cause another record, which
        // must follow all records that were made before the question.
        if let Some(quorum) = &node.quorum
            && !self.questions.is_empty()
        {
            quorum.ask(std::mem::take(&mut self.questions));
        }
        if self.letters.len() == 1 {
            return;
        }
        for (worker, letters) in self.letters.iter_mut().enumerate() {
            if !letters.is_empty() && node.mailboxes[worker].post(Mail::Letters(std::mem::take(letters))) {
                self.wakes.push(worker as u16);
            }
        }
    }

    pub(super) fn mail(&mut self, node: &Node, worker: u16, mail: Mail) {
        if node.mailboxes[usize::from(worker)].post(mail) {
            self.wakes.push(worker);
        }
    }

    /// Delivers the letters in the mailbox, which contain answers and events for lanes of this worker. Keeps other mail
    /// for later. Returns whether the mailbox had any mail.
    #[inline]
    pub(super) fn read_letters(&mut self, node: &Node) -> bool {
        let mails = node.mailboxes[usize::from(self.index)].take();
        let any = !mails.is_empty();
        for mail in mails {
            match mail {
                Mail::Letters(letters) => self.deliver(node, letters),
                other => self.mails.push_back(other),
            }
        }
        any
    }

    pub(super) fn deliver(&mut self, node: &Node, letters: Vec<Letter>) {
        for Letter { stamp, shard, content } in letters {
            let mut outbox = self.outbox(node, shard, stamp);
            match content {
                Content::Answer(ticket, answer) => outbox.deliver_answer(ticket, &answer),
                Content::AcquireAnswer(ticket, answer) => outbox.deliver_acquire_answer(ticket, &answer),
                Content::Waits(ticket) => outbox.note_waits(ticket),
                Content::WaiterAnswer(ticket, answer) => outbox.deliver_waiter_answer(ticket, &answer),
                Content::Event(lane, event) => outbox.deliver_event(lane, &event),
                Content::Frame(ticket, frame) => outbox.deliver_frame(ticket, &frame),
            }
        }
    }
}
