//! Commands about the durable log, and about stopping and starting again.

use super::Stage;
use super::words::{Words, key_of, shard_of, shown, shown_millis, shown_path};
use crate::fake_log::FakeLog;
use crate::node::{Node, Places};
use crate::recorder::Recorder;
use std::fmt::Write;
use waymaker_engine::{ClaimId, CounterName, LaneAddress, LaneSlot, LogState, QuorumState, Scope, Time};
use waymaker_log::{Hold, Item, Record, SessionTag};

impl Stage {
    pub(super) fn set_log(&mut self, mut words: Words<'_>) {
        let state = match words.next("the state of the log") {
            "ready" => LogState::Ready,
            "no_space" => LogState::NoSpace,
            "slow" => LogState::Slow,
            "absent" => LogState::Absent,
            other => panic!("{other} is no state of a log"),
        };
        words.finish();
        self.node.set_log_state(state);
    }

    pub(super) fn set_quorum(&mut self, mut words: Words<'_>) {
        let state = match words.next("the state of the cluster") {
            "ready" => QuorumState::Ready,
            "unavailable" => QuorumState::Unavailable,
            "absent" => QuorumState::Absent,
            other => panic!("{other} is no state of a cluster"),
        };
        words.finish();
        self.node.set_quorum_state(state);
    }

    /// All that the cluster was asked it has counted, or has not.
    pub(super) fn count_in_quorum(&mut self, is_counted: bool, words: Words<'_>) {
        words.finish();
        self.node.answer_questions(is_counted, self.now, self.drained, &mut self.effects);
    }

    /// Somebody else has counted a key of namespace 0.
    pub(super) fn set_quorum_counter(&mut self, mut words: Words<'_>) {
        let name = CounterName { namespace: 0, key: key_of(words.next("a key")).into() };
        let fence = words.next("a fence").parse().expect("a number");
        words.finish();
        self.node.quorum.set(name, fence);
    }

    /// Everything that was recorded so far is durable.
    pub(super) fn sync(&mut self, words: Words<'_>) {
        words.finish();
        self.node.sync(usize::MAX, self.now, self.drained, &mut self.effects);
    }

    /// The log fails.
    pub(super) fn fail_log(&mut self, words: Words<'_>) {
        words.finish();
        self.node.fail_log(self.now, self.drained, &mut self.effects);
    }

    pub(super) fn stop_cleanly(&mut self, words: Words<'_>) {
        words.finish();
        self.node.stop_cleanly(self.now, self.drained, &mut self.effects);
    }

    /// The server is gone, and another one starts with what is durable.
    pub(super) fn restart(&mut self, mut words: Words<'_>) {
        let is_reboot = words.flag("reboot");
        words.flag("same_boot");
        let is_lost = words.flag("disk_lost");
        let after_ms = u64::from(words.millis("after").unwrap_or(0));
        let shard_count = words.number("shards").map_or(self.node.shards.len(), |count| count as usize);
        words.finish();
        let elapsed_ms = self.now.as_millis() - self.node.log.started().now_ms + after_ms;
        self.now = if is_reboot { super::START } else { self.now.after_ms(after_ms) };
        self.drained = self.now;
        self.restart_count += 1;
        self.boot += u8::from(is_reboot);
        for lane in &mut self.lanes {
            lane.generation += 1;
        }
        self.effects = Recorder::default();
        let mut node = Node::new(shard_count as u16, self.limits, self.now, self.restart_count);
        std::mem::swap(&mut node.log, &mut self.node.log);
        node.log.crash(0);
        if is_lost {
            let state = std::mem::replace(&mut node.log, FakeLog::new(self.now)).state;
            node.log.state = state;
        }
        let image = node.log.restart(self.boot, self.now, elapsed_ms);
        std::mem::swap(&mut node.quorum, &mut self.node.quorum);
        node.quorum.crash();
        node.set_log_state(node.log.state);
        node.set_quorum_state(node.quorum.state);
        let lanes = &self.lanes;
        let places = Places {
            shard_of: &|_, key| shard_of(&shown(key)) % shard_count as u16,
            lane_of: &|session: &SessionTag| {
                let slot = u32::from(session.lane);
                let generation = lanes[usize::from(session.lane)].generation;
                Some(LaneAddress { worker: 0, slot: LaneSlot(slot), generation })
            },
        };
        node.restore(&image, &places, &mut self.effects);
        self.node = node;
        self.settle();
    }

    /// What was recorded and is not durable yet.
    pub(super) fn show_recorded(&mut self, words: Words<'_>, text: &mut String) {
        words.finish();
        self.node.log.take(&mut self.effects, self.now);
        for written in self.node.log.pending() {
            if let Some(record) = written.record() {
                let _ = writeln!(text, "{}", self.shown_record(&record));
            }
        }
    }

    fn shown_record(&self, record: &Record<'_>) -> String {
        match record {
            Record::Held(hold) => self.shown_held(hold),
            Record::LeaseMoved { id, deadline_ms, lease_ms } => {
                let left = shown_end(*deadline_ms, self.now);
                format!(
                    "lease of {} moved to {left}, lease={}",
                    self.any_name_of(*id),
                    shown_lease(*lease_ms)
                )
            }
            Record::Ended { id } => format!("{} ended", self.any_name_of(*id)),
            Record::Counted { id, fence } => format!("{} counted as {fence}", self.any_name_of(*id)),
            Record::Counter { scope, fence, key, .. } => {
                let scope = shown_scope(*scope);
                format!("{scope}counter of `{}` is {fence}", shown(key))
            }
            Record::Folded { key, .. } => format!("counter of `{}` folded", shown(key)),
            Record::Floor { fence } => format!("floor {fence}"),
            Record::PoolSet { capacity, name, .. } => format!("pool `{}` has {capacity}", shown(name)),
            other => format!("{other:?}"),
        }
    }

    fn shown_held(&self, hold: &Hold<'_>) -> String {
        let what = match &hold.item {
            Item::Key(key) => format!("`{}`", shown(key)),
            Item::Permits { permits, capacity, name, .. } => {
                format!("{permits} of {capacity} of `{}`", shown(name))
            }
            Item::Paths(paths) => {
                let paths: Vec<String> = paths.iter().map(|(path, _)| shown_path(path)).collect();
                format!("paths {}", paths.join(", "))
            }
            Item::Registration { key, .. } => format!("registered `{}`", shown(key)),
        };
        let scope = shown_scope(hold.scope);
        let mut text = format!("{scope}hold of {what} by {} fence={}", shown(hold.owner), hold.fence);
        if hold.endless {
            text.push_str(" endless");
        } else if hold.session_lease {
            text.push_str(" session");
        } else {
            let _ = write!(text, " lease={}", shown_lease(hold.lease_ms));
        }
        if let Some(end_ms) = hold.deadline_ms {
            let _ = write!(text, " {}", shown_end(end_ms, self.now));
        }
        if let Some(session) = hold.session {
            let _ = write!(text, " of lane {}", self.lanes[usize::from(session.lane)].name);
        }
        for (is_so, word) in [(hold.waited, " waited"), (hold.repeated, " repeated")] {
            text.push_str(if is_so { word } else { "" });
        }
        text
    }

    fn any_name_of(&self, id: ClaimId) -> String {
        self.known_name_of(id, u32::MAX).unwrap_or_else(|| "an unknown claim".to_owned())
    }
}

/// Most of what is recorded is of scope Local.
fn shown_scope(scope: Scope) -> &'static str {
    match scope {
        Scope::Ephemeral => "ephemeral ",
        Scope::Local => "",
        Scope::Quorum => "quorum ",
    }
}

fn shown_lease(lease_ms: u32) -> String {
    shown_millis(u64::from(lease_ms))
}

fn shown_end(end_ms: u64, now: Time) -> String {
    format!("in {}", shown_millis(Time::from_millis(end_ms).ms_since(now)))
}
