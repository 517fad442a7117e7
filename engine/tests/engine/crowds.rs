//! Crowds that want several keys each, over several shards, served in a random order: whoever is granted gets all it asked
//! for, nobody holds a part of it before, and nobody waits for ever.
//!
//! `WAYMAKER_SEED=n` runs that one seed again, `WAYMAKER_SEED_COUNT=n` sets how many are run.

use crate::node::Node;
use crate::random::Dice;
use crate::recorder::{Effect, Recorder};
use std::fmt::Write;
use std::ops::RangeInclusive;
use std::sync::Arc;
use waymaker_engine::multi_key::{self, AcquireMultiKey, RequestedKey};
use waymaker_engine::{
    AcquireTerms, Answer, Caller, CancelReason, ClaimId, Fence, KeyGrant, KeyStatus, LaneAddress, LaneSlot,
    Limits, Refusal, Ticket, Time,
};

const NOW: Time = Time::from_millis(1000);
const LEASE_MS: u32 = 3_600_000;

/// What a crowd is like.
#[derive(Clone, Debug)]
struct Character {
    client_count: usize,
    key_count: usize,
    shard_count: u16,
    /// How many keys each asks for, some of them twice.
    wanted_count: RangeInclusive<usize>,
    /// How often each asks.
    ask_count: u32,
    shared_percent: u64,
    try_percent: u64,
    /// How likely it is that who waits gives up when its turn comes.
    give_up_percent: u64,
    /// Each wants the key of its number and the next one.
    is_ring: bool,
}

struct Crowd {
    character: Character,
    node: Node,
    dice: Dice,
    clients: Vec<Client>,
    /// Who holds each key: client, whether it shares, id.
    holders: Vec<Vec<(usize, bool, ClaimId)>>,
    /// The newest fence of each key.
    fences: Vec<u64>,
    number: u32,
    grant_count: u64,
    effects: Recorder,
}

struct Client {
    owner: Arc<[u8]>,
    asks_left: u32,
    /// The keys it waits for or holds, rising, and whether it shares them.
    wanted: Vec<(usize, bool)>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Waits { number: u32, is_try: bool },
    Holds,
}

fn name(key: usize) -> [u8; 2] {
    (key as u16).to_be_bytes()
}

impl Crowd {
    fn new(character: Character, seed: u64) -> Self {
        let limits = Limits {
            claim_count_max: 1 << 15,
            idle_key_count_max: 1 << 12,
            bucket_count_max: 1,
            ..Limits::default()
        };
        let client = |number: usize| Client {
            owner: number.to_string().into_bytes().into(),
            asks_left: character.ask_count,
            wanted: Vec::new(),
            state: State::Idle,
        };
        Self {
            node: Node::new(character.shard_count, limits, NOW, seed),
            dice: Dice::new(seed),
            clients: (0..character.client_count).map(client).collect(),
            holders: vec![Vec::new(); character.key_count],
            fences: vec![0; character.key_count],
            number: 0,
            grant_count: 0,
            effects: Recorder::default(),
            character,
        }
    }

    /// Until everybody has asked often enough and holds nothing.
    fn run(&mut self) {
        let mut step_count = 0_u64;
        while !self.is_over() {
            self.node.begin_turns(NOW, NOW, &mut self.effects);
            self.step();
            self.hear();
            self.check_one_key();
            if step_count.is_multiple_of(1024) {
                self.node.verify();
            }
            step_count += 1;
            assert!(step_count < 10_000_000, "this does not end\n{}", self.who_waits_for_whom());
        }
        assert_eq!(self.claim_count(), 0);
        self.node.verify();
    }

    fn is_over(&self) -> bool {
        let is_done = |client: &Client| client.asks_left == 0 && client.state == State::Idle;
        self.effects.follow_ups.is_empty() && self.clients.iter().all(is_done)
    }

    /// One thing that could be next: what turns left over, or what a client does.
    fn step(&mut self) {
        let follow_up_count = self.effects.follow_ups.len() as u64;
        if follow_up_count > 0 && self.dice.percent(40) {
            let place = self.dice.below(follow_up_count) as usize;
            let follow_up = self.effects.follow_ups.remove(place).expect("it is there");
            return self.node.follow_up_one(&follow_up, NOW, NOW, &mut self.effects);
        }
        let at = self.dice.below(self.clients.len() as u64) as usize;
        match self.clients[at].state {
            State::Idle if self.clients[at].asks_left > 0 => self.ask(at),
            State::Holds => self.release_one(at),
            State::Waits { number, .. } if self.dice.percent(self.character.give_up_percent) => {
                let home = self.shard_of(self.clients[at].wanted[0].0);
                let caller = self.caller(at, home);
                self.node.shards[usize::from(home)].cancel(&caller, number, &mut self.effects);
            }
            _ if follow_up_count == 0 => self.assert_somebody_can_go_on(),
            _ => {}
        }
    }

    fn assert_somebody_can_go_on(&mut self) {
        let can = |client: &Client| match client.state {
            State::Idle => client.asks_left > 0,
            State::Waits { .. } => false,
            State::Holds => true,
        };
        if !self.clients.iter().any(can) {
            // Whatever the turns of this step left over.
            self.node.settle(NOW, NOW, &mut self.effects);
            let is_stuck = self.effects.said.is_empty() && self.effects.follow_ups.is_empty();
            assert!(!is_stuck || self.is_over(), "a deadlock\n{}", self.who_waits_for_whom());
        }
    }

    fn shard_of(&self, key: usize) -> u16 {
        key as u16 % self.character.shard_count
    }

    fn address(at: usize) -> LaneAddress {
        LaneAddress { worker: 0, slot: LaneSlot(at as u32), generation: 0 }
    }

    fn caller(&mut self, at: usize, shard: u16) -> Caller {
        self.number += 1;
        let (address, owner) = (Self::address(at), &self.clients[at].owner);
        let lane = self.node.shards[usize::from(shard)].lane(address, owner, 0);
        Caller { lane, ticket: Ticket { lane: address, number: self.number }, namespace: 0 }
    }

    /// Some keys in some order, as a client lists them.
    fn list(&mut self, at: usize) -> Vec<(usize, bool)> {
        let Character { key_count, wanted_count, shared_percent, is_ring, .. } = self.character.clone();
        if is_ring {
            return vec![(at, false), ((at + 1) % key_count, false)];
        }
        let span = (wanted_count.end() - wanted_count.start() + 1) as u64;
        let count = wanted_count.start() + self.dice.below(span) as usize;
        let mut list = Vec::new();
        while list.len() < count {
            let key = self.dice.below(key_count as u64) as usize;
            list.push((key, self.dice.percent(shared_percent)));
        }
        list
    }

    fn ask(&mut self, at: usize) {
        let mut wanted = self.list(at);
        // As a worker does: in order, each once, exclusive if any mention of it is.
        wanted.sort_unstable();
        wanted.dedup_by_key(|(key, _)| *key);
        let is_try = self.dice.percent(self.character.try_percent);
        let names: Vec<[u8; 2]> = wanted.iter().map(|(key, _)| name(*key)).collect();
        let keys: Vec<RequestedKey<'_>> = wanted
            .iter()
            .zip(&names)
            .map(|((key, shared), name)| RequestedKey {
                key: name,
                shared: *shared,
                shard: self.shard_of(*key),
            })
            .collect();
        let request = AcquireMultiKey {
            keys: &keys,
            terms: AcquireTerms {
                lease_ms: LEASE_MS,
                wait_ms: if is_try { 0 } else { u32::MAX },
                ..AcquireTerms::default()
            },
        };
        let shards = Node::distinct(keys.iter().map(|key| key.shard));
        self.number += 1;
        let ticket = Ticket { lane: Self::address(at), number: self.number };
        let client = &mut self.clients[at];
        client.asks_left -= 1;
        client.state = State::Waits { number: ticket.number, is_try };
        client.wanted.clone_from(&wanted);
        let mut participants = self.node.participants(&shards, Some((ticket.lane, &client.owner, 0)));
        multi_key::acquire(&mut participants, ticket, 0, &request, &mut self.effects);
    }

    /// Gives back one of the keys that a client holds, any of them.
    fn release_one(&mut self, at: usize) {
        let place = self.dice.below(self.clients[at].wanted.len() as u64) as usize;
        let (key, _) = self.clients[at].wanted.remove(place);
        if self.clients[at].wanted.is_empty() {
            self.clients[at].state = State::Idle;
        }
        let holder = self.holders[key].iter().position(|(client, ..)| *client == at).expect("it holds this");
        let (_, _, id) = self.holders[key].swap_remove(holder);
        let shard = self.shard_of(key);
        let caller = self.caller(at, shard);
        self.node.shards[usize::from(shard)].release(&caller, id, None, &mut self.effects);
    }

    fn hear(&mut self) {
        for effect in std::mem::take(&mut self.effects.said) {
            let Effect::Answer(ticket, answer) = effect else { panic!("{effect:?}") };
            let at = ticket.lane.slot.index();
            let state = self.clients[at].state;
            match (answer, state) {
                (Answer::GrantedMultiKey(grants), State::Waits { number, .. }) if number == ticket.number => {
                    self.hear_grant(at, &grants);
                }
                (Answer::Refused(Refusal::Busy(_)), State::Waits { number, is_try: true })
                | (
                    Answer::Refused(Refusal::Cancelled(CancelReason::Asked)),
                    State::Waits { number, is_try: false },
                ) if number == ticket.number => {
                    self.clients[at].state = State::Idle;
                    self.clients[at].wanted.clear();
                }
                (Answer::Released { was_waiting: false } | Answer::Cancelled { was_waiting: true }, _) => {}
                (answer, state) => panic!("client {at}, {state:?}: {answer:?}"),
            }
        }
    }

    fn hear_grant(&mut self, at: usize, grants: &[KeyGrant]) {
        let wanted = &self.clients[at].wanted;
        let granted = grants.iter().map(|granted| (granted.key.to_vec(), granted.shared));
        assert!(
            granted.eq(wanted.iter().map(|(key, shared)| (name(*key).to_vec(), *shared))),
            "a part of it"
        );
        for ((key, shared), granted) in wanted.iter().zip(grants) {
            let holders = &mut self.holders[*key];
            let conflicts = holders.iter().any(|(_, is_shared, _)| !(*shared && *is_shared));
            assert!(!conflicts, "key {key} of client {at} is held by {holders:?}");
            holders.push((at, *shared, granted.grant.id));
            self.fences[*key] += 1;
            assert_eq!(
                granted.grant.fence,
                Fence::new(self.fences[*key]),
                "an attempt spent a fence of key {key}"
            );
        }
        self.clients[at].state = State::Holds;
        self.grant_count += 1;
    }

    fn claim_count(&self) -> usize {
        self.node.shards.iter().map(|shard| shard.claim_count() as usize).sum()
    }

    fn inspect(&mut self, key: usize) -> KeyStatus {
        let shard = self.shard_of(key);
        let caller = self.caller(0, shard);
        let mut effects = Recorder::default();
        self.node.shards[usize::from(shard)].inspect(&caller, &name(key), &mut effects);
        match effects.said.pop() {
            Some(Effect::Answer(_, Answer::Inspected(status))) => *status,
            other => panic!("{other:?}"),
        }
    }

    /// Nobody holds a key but who was told so; and of those that wait nothing is there but what stands in the queues.
    fn check_one_key(&mut self) {
        let key = self.dice.below(self.holders.len() as u64) as usize;
        let status = self.inspect(key);
        let mut shown: Vec<ClaimId> = status.holders.iter().map(|holder| holder.id).collect();
        let mut known: Vec<ClaimId> = self.holders[key].iter().map(|(_, _, id)| *id).collect();
        shown.sort_unstable();
        known.sort_unstable();
        assert_eq!(shown, known, "holders of key {key}");
        if self.effects.follow_ups.is_empty() {
            let expected: usize = self.clients.iter().map(|client| client.wanted.len()).sum();
            assert_eq!(self.claim_count(), expected, "claims");
        }
    }

    /// For each that waits: who is in its way at each of its keys.
    fn who_waits_for_whom(&mut self) -> String {
        let mut text = format!("{:?}\n", self.character);
        for at in 0..self.clients.len() {
            let State::Waits { number, .. } = self.clients[at].state else { continue };
            let _ = write!(text, "client {at} (request {number}) waits");
            for (key, shared) in self.clients[at].wanted.clone() {
                let status = self.inspect(key);
                let owner = |owner: &[u8]| String::from_utf8_lossy(owner).into_owned();
                let holders: Vec<_> = status.holders.iter().map(|holder| owner(&holder.owner)).collect();
                let waiters: Vec<_> = status.waiters.iter().map(|waiter| owner(&waiter.owner)).collect();
                let before = waiters.split(|owner| *owner == at.to_string()).next().unwrap_or_default();
                if !holders.is_empty() || !before.is_empty() {
                    let mode = if shared { "shared" } else { "exclusive" };
                    let _ = write!(text, "; key {key} {mode}: held by {holders:?}, before it {before:?}");
                }
            }
            text.push('\n');
        }
        text
    }
}

fn seeds(count: u64) -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|value: String| value.parse().ok());
    match number("WAYMAKER_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("WAYMAKER_SEED_COUNT").unwrap_or(count),
    }
}

/// Runs a crowd of each of these, says which seed fails.
fn run_seeds(count: u64, character: impl Fn(&mut Dice) -> Character) {
    for seed in seeds(count) {
        let mut crowd = Crowd::new(character(&mut Dice::new(!seed)), seed);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| crowd.run()));
        assert!(outcome.is_ok(), "{:#?}\nagain with WAYMAKER_SEED={seed}", crowd.character);
        let Character { client_count, ask_count, try_percent: 0, give_up_percent: 0, .. } = crowd.character
        else {
            continue;
        };
        assert_eq!(crowd.grant_count, client_count as u64 * u64::from(ask_count), "all were granted");
    }
}

#[test]
fn sets_of_up_to_128_keys_of_64_clients_are_granted_as_a_whole() {
    run_seeds(12, |dice| Character {
        client_count: 64,
        key_count: dice.pick(&[200, 1000, 3000]),
        shard_count: dice.pick(&[2, 4, 8, 16]),
        wanted_count: 2..=128,
        ask_count: 8,
        shared_percent: dice.pick(&[0, 50, 90]),
        try_percent: dice.pick(&[0, 20]),
        give_up_percent: dice.pick(&[0, 3]),
        is_ring: false,
    });
}

#[test]
fn dining_philosophers_all_finish() {
    run_seeds(200, |dice| {
        let count = dice.pick(&[5, 6, 20, 50, 100, 200]);
        Character {
            client_count: count,
            key_count: count,
            shard_count: dice.pick(&[1, 2, 4, 8]),
            wanted_count: 2..=5,
            ask_count: 10,
            shared_percent: dice.pick(&[0, 0, 30]),
            try_percent: 0,
            give_up_percent: 0,
            is_ring: dice.percent(40),
        }
    });
}
