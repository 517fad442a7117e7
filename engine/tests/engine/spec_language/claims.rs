//! Commands that ask for claims, and that act on one.

use super::Stage;
use super::words::{Words, key_of, path_of, shard_of, shown};
use crate::node::Node;
use waymaker_engine::multi_key::{self, AcquireMultiKey, RequestedKey};
use waymaker_engine::{
    Acquire, AcquireOptions, AcquirePermits, AcquireSet, AcquireTerms, PoolOrder, Scope, Ticket, TreeItem,
};

/// What every acquire may say.
struct Wish<'a> {
    lease_ms: u32,
    wait_ms: u32,
    session_lease: bool,
    notify_queued: bool,
    options: AcquireOptions<'a>,
}

impl<'a> Wish<'a> {
    fn new(words: &mut Words<'a>) -> Self {
        let scope = match words.value("scope") {
            Some("local") => Scope::Local,
            Some("quorum") => Scope::Quorum,
            _ => Scope::Ephemeral,
        };
        Self {
            lease_ms: words.millis("lease").unwrap_or(0),
            wait_ms: words.millis("wait").unwrap_or(0),
            session_lease: words.flag("session"),
            notify_queued: words.flag("queued"),
            options: AcquireOptions {
                release_after_ms: words.millis("release_after"),
                priority: words.number("priority").unwrap_or(0),
                scope,
                request_id: words.value("request").map(str::as_bytes),
                owner: words.value("owner").map(str::as_bytes),
                metadata: words.value("metadata").map(str::as_bytes),
            },
        }
    }
}

/// Whether an item of a list only reads.
fn reads(item: &[&str]) -> bool {
    match item {
        [_] | [_, "w"] => false,
        [_, "r"] => true,
        _ => panic!("{item:?} is no `KEY r` and no `KEY w`"),
    }
}

impl Stage {
    /// Asks for a key. Says the number of the request.
    pub(super) fn acquire(&mut self, mut words: Words<'_>) -> u32 {
        let lane = words.next("the lane");
        let key_word = words.next("the key");
        let key = key_of(key_word);
        let name = if words.flag("as") { words.next("a name") } else { key_word };
        let Wish { lease_ms, wait_ms, session_lease, notify_queued, options } = Wish::new(&mut words);
        let shared = words.flag("shared");
        words.finish();
        let caller = self.caller_at(lane, self.place_of(key_word));
        let hash = self.shard_of_key(key_word).hash(caller.namespace, &key);
        let acquire = Acquire {
            key: &key,
            hash,
            shared,
            terms: AcquireTerms {
                lease_ms,
                wait_ms,
                session_lease,
                notify_queued,
                options: (options != AcquireOptions::default()).then_some(&options),
            },
        };
        let number = self.name(lane, name, shard_of(key_word));
        let place = usize::from(self.place_of(key_word));
        let shard = &mut self.node.shards[place];
        shard.acquire(&caller, &acquire, &mut self.effects);
        number
    }

    /// Asks for several keys, as a worker does: in order, each once, exclusive if any mention of it is.
    pub(super) fn acquire_keys(&mut self, mut words: Words<'_>) -> u32 {
        let (lane, name) = (words.next("the lane"), words.next("a name"));
        let items = words.list();
        let Wish { lease_ms, wait_ms, session_lease, notify_queued, options } = Wish::new(&mut words);
        words.finish();
        let texts: Vec<(Vec<u8>, bool, u16)> =
            items.iter().map(|item| (key_of(item[0]), reads(item), self.place_of(item[0]))).collect();
        let key = |(key, shared, shard): &'_ (Vec<u8>, bool, u16)| (key.clone(), *shared, *shard);
        let mut sorted: Vec<_> = texts.iter().map(key).collect();
        sorted.sort();
        sorted.dedup_by(|later, earlier| later.0 == earlier.0);
        let keys: Vec<RequestedKey<'_>> = sorted
            .iter()
            .map(|(key, shared, shard)| RequestedKey { key, shared: *shared, shard: *shard })
            .collect();
        let request = AcquireMultiKey {
            keys: &keys,
            terms: AcquireTerms { lease_ms, wait_ms, session_lease, notify_queued, options: Some(&options) },
        };
        let number = self.name(lane, name, sorted.first().map_or(0, |(key, ..)| shard_of(&shown(key))));
        let shards = Node::distinct(keys.iter().map(|key| key.shard));
        for shard in &shards {
            // So that a session's end is known there.
            self.caller_at(lane, *shard);
        }
        let index = self.lane(lane);
        let ticket = Ticket { lane: self.address(index), number };
        let lane = &self.lanes[index];
        let mut participants =
            self.node.participants(&shards, Some((ticket.lane, &lane.owner, lane.namespace)));
        multi_key::acquire(&mut participants, ticket, lane.namespace, &request, &mut self.effects);
        number
    }

    /// Asks for a set of paths.
    pub(super) fn acquire_set(&mut self, mut words: Words<'_>) -> u32 {
        let (lane, name) = (words.next("the lane"), words.next("a name"));
        let list = words.list();
        let Wish { lease_ms, wait_ms, session_lease, notify_queued, options } = Wish::new(&mut words);
        words.finish();
        let paths: Vec<(Vec<u8>, bool)> = list.iter().map(|item| (path_of(item[0]), !reads(item))).collect();
        let items: Vec<TreeItem<'_>> =
            paths.iter().map(|(path, write)| TreeItem { path, write: *write }).collect();
        let acquire = AcquireSet {
            items: &items,
            terms: AcquireTerms { lease_ms, wait_ms, session_lease, notify_queued, options: Some(&options) },
        };
        let caller = self.caller_at(lane, 0);
        let number = self.name(lane, name, 0);
        self.node.shards[0].acquire_set(&caller, &acquire, &mut self.effects);
        number
    }

    /// Asks for permits of a pool.
    pub(super) fn acquire_permits(&mut self, mut words: Words<'_>) -> u32 {
        let (lane, pool) = (words.next("the lane"), words.next("the pool"));
        let name = if words.flag("as") { words.next("a name") } else { pool };
        let Wish { lease_ms, wait_ms, session_lease, notify_queued, options } = Wish::new(&mut words);
        let acquire = AcquirePermits {
            name: pool.as_bytes(),
            capacity: words.long_number("capacity"),
            permits: words.long_number("permits").unwrap_or(1),
            order: order(&mut words),
            timestamp_us: words.long_number("at").unwrap_or(0),
            terms: AcquireTerms { lease_ms, wait_ms, session_lease, notify_queued, options: Some(&options) },
        };
        words.finish();
        let caller = self.caller_at(lane, 0);
        let number = self.name(lane, name, 0);
        self.node.shards[0].acquire_permits(&caller, &acquire, &mut self.effects);
        number
    }

    pub(super) fn on_claim(&mut self, verb: &str, mut words: Words<'_>) {
        let lane_name = words.next("the lane");
        let target = words.next("the claim");
        let lease_ms = words.millis("lease");
        let reason = words.value("reason");
        let key = words.value("key").map(key_of);
        let is_own = words.flag("own");
        words.finish();
        let (owner, name) = target.split_once('/').unwrap_or((lane_name, target));
        let owner = self.lane(owner);
        let claim = self.claims.iter().rfind(|claim| claim.lane == owner && claim.name == name);
        let claim = claim.unwrap_or_else(|| panic!("no claim {target}"));
        let (number, home, id) = (claim.number, self.place(claim.shard), claim.id);
        if verb == "cancel" {
            let mut caller = self.caller_at(lane_name, home);
            caller.ticket.number = number;
            return self.node.shards[usize::from(home)].cancel(&caller, number, &mut self.effects);
        }
        let id = id.unwrap_or_else(|| panic!("the id of {target} is not known: ask for `queued`"));
        // Ids of an earlier server carry the number that the shard had then: what counts is where the key lies now.
        let mut caller = self.caller_at(lane_name, home);
        // Whatever is asked about a claim is numbered like it, so that the answer shows its name.
        caller.ticket.number = number;
        let (shard, effects) = (&mut self.node.shards[usize::from(home)], &mut self.effects);
        let key = key.as_deref();
        match verb {
            "release" if is_own => shard.release_own(&caller, id, key, effects),
            "extend" if is_own => {
                shard.extend_own(&caller, id, key, lease_ms.expect("lease is missing"), effects);
            }
            "release" => shard.release(&caller, id, key, effects),
            "extend" => shard.extend(&caller, id, key, lease_ms.expect("lease is missing"), effects),
            "force_release" => {
                shard.force_release(&caller, id, reason.expect("reason is missing").as_bytes(), effects);
            }
            _ => shard.status(&caller, id, key, effects),
        }
    }
}

/// In which order a pool serves.
pub(super) fn order(words: &mut Words<'_>) -> PoolOrder {
    if words.flag("by_time") { PoolOrder::Timestamp } else { PoolOrder::Arrival }
}
