//! Commands about keys, pools, buckets and registrations.

use super::Stage;
use super::claims::order;
use super::shown::{shown_lock, shown_pool, shown_registration};
use super::words::{Words, key_of, nanos, path_of, shard_of, shown, shown_path, signed_millis};
use crate::node::Node;
use crate::recorder::{Effect, Recorder};
use std::fmt::Write;
use waymaker_engine::{
    Answer, Fence, Lease, PageBounds, Register, RequestedThrottle, Throttle, Ticket, throttle_all,
};

impl Stage {
    pub(super) fn on_key(&mut self, verb: &str, mut words: Words<'_>) {
        let lane = words.next("the lane");
        let fence = words.long_number("fence");
        let path = words.value("path");
        let (key, shard) = match path {
            Some(path) => (path_of(path), 0),
            None => {
                let word = words.next("the key");
                (key_of(word), self.place_of(word))
            }
        };
        words.finish();
        let caller = self.caller_at(lane, shard);
        let shard = &self.node.shards[usize::from(shard)];
        match verb {
            "inspect" => shard.inspect(&caller, &key, &mut self.effects),
            _ => shard.verify_fence(
                &caller,
                &key,
                Fence::new(fence.expect("fence is missing")),
                &mut self.effects,
            ),
        }
    }

    /// Shows every page of every shard.
    pub(super) fn list(&mut self, verb: &str, mut words: Words<'_>, text: &mut String) {
        let lane = words.next("the lane");
        let bounds = PageBounds {
            count_max: words.number("count").map_or(usize::MAX, |count| count as usize),
            bytes_max: words.number("bytes").map_or(usize::MAX, |bytes| bytes as usize),
        };
        let type_name = words.value("type");
        let is_tree = words.flag("paths");
        let is_waiting = words.flag("waiting");
        let prefix = words.next_if_any().map(|word| if is_tree { path_of(word) } else { key_of(word) });
        words.finish();
        let shown_key = |key: &[u8]| if is_tree { shown_path(key) } else { shown(key) };
        for number in 0..self.node.shards.len() as u16 {
            let caller = self.caller_at(lane, number);
            let shard = &self.node.shards[usize::from(number)];
            let mut from = Some(0);
            while let Some(slot) = from {
                let mut page = Recorder::default();
                match verb {
                    "list" => {
                        let prefix = prefix.as_deref().unwrap_or_default();
                        shard.list(&caller, prefix, is_waiting, slot, &bounds, &mut page);
                    }
                    "holds" => shard.holds(&caller, slot, &bounds, &mut page),
                    "pools" => {
                        let prefix = prefix.as_deref().unwrap_or_default();
                        shard.list_pools(&caller, prefix, slot, &bounds, &mut page);
                    }
                    _ => {
                        let type_name = type_name.map(str::as_bytes);
                        shard.list_registrations(&caller, type_name, slot, &bounds, &mut page);
                    }
                }
                let _ = writeln!(text, "page");
                from = match page.said.pop() {
                    Some(Effect::Answer(_, Answer::Listed(page))) => {
                        for lock in &page.locks {
                            let _ = writeln!(text, "  {}: {}", shown_key(&lock.key), shown_lock(lock));
                        }
                        page.next
                    }
                    Some(Effect::Answer(_, Answer::RegistrationsListed(page))) => {
                        for registration in &page.registrations {
                            let _ = writeln!(text, "  {}", shown_registration(registration));
                        }
                        page.next
                    }
                    Some(Effect::Answer(_, Answer::PoolsListed(page))) => {
                        for pool in &page.pools {
                            let _ = writeln!(text, "  {}: {}", shown(&pool.name), shown_pool(&pool.status));
                        }
                        page.next
                    }
                    other => panic!("no page but {other:?}"),
                };
            }
        }
    }

    pub(super) fn watch(&mut self, verb: &str, mut words: Words<'_>) {
        let lane = words.next("the lane");
        let key = words.next("the key");
        words.finish();
        let mut caller = self.caller_at(lane, self.place_of(key));
        if verb == "watch" {
            self.name(lane, key, shard_of(key));
            let place = usize::from(self.place_of(key));
            let shard = &mut self.node.shards[place];
            return shard.watch(&caller, &key_of(key), &mut self.effects);
        }
        let index = self.lane(lane);
        let named = self.claims.iter().rfind(|claim| claim.lane == index && claim.name == key);
        let number = named.unwrap_or_else(|| panic!("{key} was not watched")).number;
        caller.ticket.number = number;
        let place = usize::from(self.place_of(key));
        self.node.shards[place].unwatch(&caller, number, &mut self.effects);
    }

    /// Freezes or thaws a prefix, in all shards, and lets them go on.
    pub(super) fn freeze(&mut self, verb: &str, mut words: Words<'_>, text: &mut String) {
        let lane = self.lane(words.next("the lane"));
        let prefix = key_of(words.next("the prefix"));
        words.finish();
        let namespace = self.lanes[lane].namespace;
        let changed = self.freezes.change(namespace, &prefix, verb == "freeze");
        let changed = if changed.expect("no room") { "" } else { ", as it was" };
        let count = self.freezes.count(namespace);
        let _ = writeln!(text, "{}: frozen prefixes: {count}{changed}", self.lanes[lane].name);
        for shard in &mut self.node.shards {
            shard.set_freezes(&self.freezes);
        }
        self.settle();
    }

    pub(super) fn on_pool(&mut self, verb: &str, mut words: Words<'_>) {
        let lane = words.next("the lane");
        let pool = words.next("the pool").as_bytes();
        let capacity = words.long_number("capacity");
        let order = order(&mut words);
        words.finish();
        let caller = self.caller_at(lane, 0);
        let shard = &mut self.node.shards[0];
        if verb == "describe" {
            return shard.describe_pool(&caller, pool, &mut self.effects);
        }
        let capacity = capacity.expect("capacity is missing");
        shard.set_capacity(&caller, pool, capacity, order, &mut self.effects);
    }

    pub(super) fn count_tree(&mut self, mut words: Words<'_>) {
        let lane = words.next("the lane");
        words.finish();
        let caller = self.caller_at(lane, 0);
        self.node.shards[0].tree_statistics(&caller, &mut self.effects);
    }

    pub(super) fn register(&mut self, verb: &str, mut words: Words<'_>) {
        let lane = words.next("the lane");
        let key_word = words.next("the key");
        let key = key_of(key_word);
        let lease = match (words.value("lease"), words.value("until")) {
            (Some(lease), None) => Lease::FromNow(signed_millis(lease)),
            (None, Some(until)) => Lease::Until(signed_millis(until)),
            _ => panic!("lease or until"),
        };
        let register = Register {
            key: &key,
            owner: words.value("owner").expect("owner is missing").as_bytes(),
            value: words.value("value").unwrap_or_default().as_bytes(),
            type_name: words.value("type").unwrap_or_default().as_bytes(),
            lease,
            lazy: words.flag("lazy"),
            ephemeral: words.flag("ephemeral"),
        };
        words.finish();
        let caller = self.caller_at(lane, self.place_of(key_word));
        self.name(lane, key_word, shard_of(key_word));
        let place = usize::from(self.place_of(key_word));
        let shard = &mut self.node.shards[place];
        match verb {
            "register" => shard.register(&caller, &register, &mut self.effects),
            _ => shard.heartbeat(&caller, &register, &mut self.effects),
        }
    }

    pub(super) fn on_registration(&mut self, verb: &str, mut words: Words<'_>) {
        let lane = words.next("the lane");
        let key = words.next("the key");
        let owner = words.value("owner").unwrap_or_default().as_bytes();
        let lazy = words.flag("lazy");
        words.finish();
        let caller = self.caller_at(lane, self.place_of(key));
        self.name(lane, key, shard_of(key));
        let place = usize::from(self.place_of(key));
        let shard = &mut self.node.shards[place];
        match verb {
            "look_up" => shard.look_up(&caller, &key_of(key), &mut self.effects),
            _ => shard.unregister(&caller, &key_of(key), owner, lazy, &mut self.effects),
        }
    }

    fn now_ns(&self, words: &mut Words<'_>) -> u64 {
        self.now.as_millis() * 1_000_000 + words.value("after").map_or(0, nanos)
    }

    pub(super) fn throttle(&mut self, mut words: Words<'_>) {
        let lane = words.next("the lane");
        let now_ns = self.now_ns(&mut words);
        let refund = words.flag("refund");
        let (bucket, throttle) = bucket(words, refund);
        let caller = self.caller_at(lane, self.place_of(bucket));
        let shard = self.shard_of_key(bucket);
        let hash = shard.bucket_hash(caller.namespace, throttle.name);
        let throttle = Throttle { hash, ..throttle };
        let place = usize::from(self.place_of(bucket));
        let shard = &mut self.node.shards[place];
        shard.throttle(&caller, now_ns, &throttle, &mut self.effects);
    }

    pub(super) fn throttle_all(&mut self, mut words: Words<'_>) {
        let lane = words.next("the lane");
        let list = words.list();
        let (now_ns, refund) = (self.now_ns(&mut words), words.flag("refund"));
        words.finish();
        let texts: Vec<String> = list.iter().map(|item| item.join(" ")).collect();
        let throttles: Vec<RequestedThrottle<'_>> = texts
            .iter()
            .map(|text| {
                let (name, throttle) = bucket(Words::new(text), refund);
                RequestedThrottle { shard: self.place_of(name), throttle }
            })
            .collect();
        let ticket = Ticket { number: self.claims.len() as u32, ..self.caller_at(lane, 0).ticket };
        let lane = self.lane(lane);
        let namespace = self.lanes[lane].namespace;
        let shards = Node::distinct(throttles.iter().map(|throttle| throttle.shard));
        let mut participants = self.node.participants(&shards, None);
        throttle_all(&mut participants, ticket, namespace, now_ns, &throttles, &mut self.effects);
    }
}

fn bucket(mut words: Words<'_>, refund: bool) -> (&str, Throttle<'_>) {
    let name = words.next("the bucket");
    let throttle = Throttle {
        name: name.as_bytes(),
        hash: 0,
        rate: words.number("rate").expect("rate is missing"),
        period_ns: nanos(words.value("per").expect("per is missing")),
        burst: words.number("burst").expect("burst is missing"),
        cost: words.number("cost").expect("cost is missing"),
        refund,
    };
    words.finish();
    (name, throttle)
}
