//! What holds once no message is on its way.

use super::requests::RELEASE_AFTER_MAX_MS;
use super::{Mail, Run, SHARD_COUNT, WORKER_COUNT};
use std::collections::BTreeMap;
use waymaker_engine::Shard;
use waymaker_engine::multi_key;
use waymaker_log::{Hold, Image, Record, Started};

/// Rounds of work after which a server without new requests must be idle. Seeds take at most five.
const ROUNDS_MAX: u32 = 100;

impl Run {
    /// Delivers all messages, makes everything durable and has the cluster count, until nothing is left to do.
    pub(super) fn quiesce(&mut self) {
        let mut rounds = 0;
        while self.is_any_work_done() {
            rounds += 1;
            assert!(
                rounds < ROUNDS_MAX,
                "the shards are not idle after {rounds} rounds without new requests"
            );
        }
        self.node.verify();
        self.check_no_grant_is_due();
    }

    fn is_any_work_done(&mut self) -> bool {
        let mut is_any = false;
        for worker in 0..WORKER_COUNT {
            while self.send(worker) || self.follow_up(worker) || self.pass(worker) {
                is_any = true;
            }
        }
        for shard in 0..SHARD_COUNT {
            is_any |= !self.mailboxes[shard].is_empty();
            self.serve(shard, usize::MAX);
        }
        let now = self.time();
        self.node.settle(now, now, &mut self.effects);
        is_any |= !self.effects.follow_ups.is_empty() || !self.effects.said.is_empty();
        self.end_turn(0);
        self.count(true);
        is_any |= self.node.log.pending_count() > 0;
        self.sync(usize::MAX);
        is_any
    }

    fn check_no_grant_is_due(&mut self) {
        let waiting: Vec<_> = self.node.shards.iter().flat_map(Shard::waiting_multi_key_claims).collect();
        for claim in waiting {
            let participants = self.node.participants(claim.shards(), None);
            assert!(!multi_key::is_grant_due(&participants, &claim), "nobody grants {claim:?}");
        }
    }

    pub(super) fn check(&mut self) {
        self.quiesce();
        self.check_log(false);
        self.now += u64::from(RELEASE_AFTER_MAX_MS);
        self.quiesce();
        self.check_lost_holds();
    }

    /// What all shards hold, as records of a log.
    fn contents(&self) -> Image {
        let mut contents = Image::default();
        let mut bytes = Vec::new();
        let mut put = |record: &Record<'_>| {
            bytes.clear();
            record.encode(&mut bytes);
            contents.apply(1, &bytes[4..]).expect("a shard writes records");
        };
        put(&Record::Started(Started::default()));
        self.node.shards.iter().for_each(|shard| shard.write_contents(&mut put));
        contents
    }

    /// Compares the log with the shards. After a clean stop the log has ephemeral holds too.
    pub(super) fn check_log(&self, is_stopped: bool) {
        let (logged, contents) = (self.node.log.image(), self.contents());
        let mut in_memory: BTreeMap<_, _> = contents.holds().map(|hold| (hold.id, hold)).collect();
        for hold in logged.holds() {
            let Some(other) = in_memory.remove(&hold.id) else { panic!("the log alone has {hold:?}") };
            check_same(&hold, &other);
        }
        in_memory.retain(|_, hold| is_stopped || hold.scope.is_durable());
        assert!(in_memory.is_empty(), "the log does not have {in_memory:?}");
        assert!(logged.pools().eq(contents.pools()), "pools");
        let logged: BTreeMap<_, _> = logged.counters().map(|counter| (counter.key, counter)).collect();
        for counter in contents.counters().filter(|counter| counter.scope.is_durable()) {
            let Some(logged) = logged.get(counter.key) else { panic!("the log does not have {counter:?}") };
            // A claim that a cluster counted in vain leaves its fence and its scope in the log alone.
            assert!(logged.fence >= counter.fence && logged.scope >= counter.scope, "{logged:?} {counter:?}");
        }
    }

    /// Checks that holds ended whose connection is lost for longer than they asked for, or whose session ended.
    fn check_lost_holds(&self) {
        for hold in self.contents().holds() {
            let Some(session) = &hold.session else { panic!("no session: {hold:?}") };
            let lane = self.lanes.iter().find(|lane| lane.tag() == *session);
            let is_there = lane.is_some_and(|lane| lane.is_open);
            assert!(is_there || hold.release_after_ms.is_none(), "outlived its connection: {hold:?}");
            assert!(lane.is_some() || !hold.session_lease, "outlived its session: {hold:?}");
        }
    }

    /// Loses all connections: everything is answered. Then ends all sessions and leases: nothing is left.
    pub(super) fn finish(&mut self) {
        self.check();
        self.tell_all(Mail::Detached);
        self.lanes.iter_mut().for_each(|lane| lane.is_open = false);
        self.check();
        self.auditor.check_all_answered(&self.addresses());
        self.tell_all(Mail::Closed);
        self.now += 10_000_000;
        self.quiesce();
        let claims: u32 = self.node.shards.iter().map(Shard::claim_count).sum();
        let waiting: u32 = self.node.shards.iter().map(Shard::waiting_count).sum();
        assert_eq!((claims, waiting), (0, 0), "claims that no client owns");
        let image = self.node.log.image();
        assert_eq!(image.hold_count(), 0, "the log still has {:?}", image.holds().collect::<Vec<_>>());
    }
}

/// Compares the fields of a hold that a restart restores.
fn check_same(logged: &Hold<'_>, in_memory: &Hold<'_>) {
    let terms = |hold: &Hold<'_>| {
        // The session says when such a hold ends.
        let deadline_ms = hold.deadline_ms.filter(|_| !hold.session_lease);
        (hold.fence, hold.shared, deadline_ms, hold.release_after_ms)
    };
    assert_eq!(terms(logged), terms(in_memory), "{logged:?} {in_memory:?}");
    let owner = |hold: &Hold<'_>| (hold.session, hold.session_lease, hold.awaits_count);
    assert_eq!(owner(logged), owner(in_memory), "{logged:?} {in_memory:?}");
    assert_eq!((logged.owner, logged.request_id), (in_memory.owner, in_memory.request_id));
    // A shard forgets the request of a hold that no other request asks for.
    if in_memory.number != 0 {
        let request = |hold: &Hold<'_>| (hold.number, hold.waited, hold.repeated, hold.set_hash);
        assert_eq!(request(logged), request(in_memory), "{logged:?} {in_memory:?}");
    }
}
