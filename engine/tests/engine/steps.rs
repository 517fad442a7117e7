//! How many records a request, or a turn, looks at while very many wait. Counted in records, not in effects: a walk that says
//! nothing costs as much as one that does.

use crate::fan_outs::FanOut;
use waymaker_engine::limits::WORK_PER_TURN;
use waymaker_engine::{Acquire, Answer, Caller, ClaimId};

/// Claims over a shared key, which is free for all of them, and over one that somebody holds.
const CROWD: u32 = 20_000;
/// A request looks at no more records than this, however many wait: some for each claim that it is about.
const TOUCHED_MAX: u64 = 200;
/// The same for each step of follow-up work of a turn.
const TOUCHED_PER_STEP_MAX: u64 = 60;

impl FanOut {
    pub(crate) fn touched(&self) -> u64 {
        self.node.shards.iter().map(waymaker_engine::Shard::records_touched).sum()
    }

    /// Does something, which must cost no more than a request may.
    #[track_caller]
    fn cheaply<R>(&mut self, what: &str, act: impl FnOnce(&mut Self) -> R) -> R {
        let before = self.touched();
        let result = act(self);
        let touched = self.touched() - before;
        assert!(touched <= TOUCHED_MAX, "{what} looked at {touched} records");
        result
    }

    fn acquire(&mut self, client: u32, number: u32, key: &[u8], shared: bool, wait_ms: u32) -> Caller {
        let caller = self.caller(client, number);
        let shard = &mut self.node.shards[0];
        let acquire = Acquire { key, hash: shard.hash(0, key), shared, wait_ms, ..Acquire::default() };
        shard.acquire(&caller, &acquire, &mut self.effects);
        caller
    }

    fn cancel(&mut self, client: u32, number: u32) {
        let caller = self.caller(client, u32::MAX);
        self.node.shards[0].cancel(&caller, number, &mut self.effects);
    }
}

/// A crowd whose stubs at `a` are clear, because its keys `x` are held. Returns the id of the hold of `x`.
fn crowd(wait_ms: u32) -> (FanOut, ClaimId) {
    let mut fan_out = FanOut::new(2);
    fan_out.keys(0, 0, 0, &[("x", false, 1)]);
    let Some(crate::recorder::Effect::Answer(_, Answer::GrantedSeveral(held))) = fan_out.effects.said.pop()
    else {
        panic!("it is free");
    };
    for number in 1..=CROWD {
        fan_out.keys(1, number, wait_ms, &[("a", true, 0), ("x", false, 1)]);
    }
    fan_out.effects.said.clear();
    fan_out.turn();
    (fan_out, held[0].grant.id)
}

#[test]
fn requests_for_a_key_that_very_many_stubs_wait_for_cost_the_same_as_for_others() {
    let (mut fan_out, _) = crowd(u32::MAX);
    fan_out.cheaply("a reader", |f| f.acquire(2, 1, b"a", true, 0));
    let reader = fan_out.granted_count();
    assert_eq!(reader, 1, "readers pass stubs that read");
    fan_out.cheaply("a reader that would wait", |f| f.acquire(2, 2, b"a", true, 1000));
    assert_eq!(fan_out.granted_count(), 2);
    fan_out.cheaply("a writer that waits", |f| f.acquire(2, 3, b"a", false, u32::MAX));
    fan_out.cheaply("a stub behind a writer", |f| {
        f.keys(2, 4, u32::MAX, &[("a", true, 0), ("x", false, 1)]);
    });
    fan_out.cheaply("the cancel of a stub in the middle", |f| f.cancel(1, CROWD / 2));
    fan_out.cheaply("the cancel of the first stub", |f| f.cancel(1, 1));
    fan_out.cheaply("the cancel of the last stub", |f| f.cancel(1, CROWD));
    fan_out.cheaply("the cancel of the writer", |f| f.cancel(2, 3));
    fan_out.turns();
    fan_out.cheaply("the cancel of a stub that nobody waits behind", |f| f.cancel(1, 2));
    fan_out.node.verify();
}

#[test]
fn releases_of_a_key_that_very_many_stubs_wait_for_cost_the_same_as_of_others() {
    let (mut fan_out, _) = crowd(u32::MAX);
    for (number, writer_waits) in [(10, false), (20, true)] {
        fan_out.effects.said.clear();
        fan_out.acquire(2, number, b"a", true, 0);
        let Some(crate::recorder::Effect::Answer(_, Answer::Granted(grant))) = fan_out.effects.said.pop()
        else {
            panic!("readers pass stubs that read");
        };
        if writer_waits {
            fan_out.acquire(2, number + 1, b"a", false, u32::MAX);
        }
        fan_out.cheaply("the release of a reader", |f| f.release(grant.id));
    }
    fan_out.node.verify();
}

#[test]
fn rechecks_of_claims_behind_very_many_stubs_cost_no_more_than_of_others() {
    let (mut fan_out, held) = crowd(u32::MAX);
    fan_out.effects.follow_ups.clear();
    fan_out.release(held);
    assert_eq!(fan_out.effects.follow_ups.len(), 1, "the first of the crowd can be granted");
    fan_out.cheaply("a recheck", |f| {
        let (now, effects) = (f.now, &mut f.effects);
        f.node.follow_up(now, now, effects)
    });
    assert_eq!(fan_out.granted_count(), 1);
    // The last one waits behind all others for `x`.
    let last = fan_out.node.shards[0].waiting_several().pop().expect("many wait");
    fan_out.cheaply("a recheck in vain", |f| {
        f.effects.follow_ups.push_back(crate::recorder::FollowUp::Recheck(last));
        let (now, effects) = (f.now, &mut f.effects);
        f.node.follow_up(now, now, effects)
    });
    assert_eq!(fan_out.granted_count(), 1);
}

#[test]
fn a_turn_in_which_very_many_waits_end_takes_so_many_steps_and_no_more() {
    for writer_waits in [false, true] {
        let (mut fan_out, _) = crowd(50);
        if writer_waits {
            fan_out.acquire(2, 1, b"a", true, 0);
            fan_out.acquire(2, 2, b"a", false, u32::MAX);
        }
        fan_out.now = fan_out.now.after_ms(100);
        let mut turns = 0;
        while fan_out.node.shards.iter().any(|shard| shard.next_deadline() <= fan_out.now) {
            let before = fan_out.touched();
            fan_out.turn();
            let touched = fan_out.touched() - before;
            assert!(
                touched <= 2 * u64::from(WORK_PER_TURN) * TOUCHED_PER_STEP_MAX,
                "{touched} records in a turn"
            );
            turns += 1;
        }
        assert!(turns > CROWD / WORK_PER_TURN);
        let (now, effects) = (fan_out.now, &mut fan_out.effects);
        fan_out.node.follow_up(now, now, effects);
    }
}
