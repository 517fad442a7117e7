//! The lock model once more: written from the contract, slow, and as plain as can be. Every question is answered by
//! walking one list of claims.

use std::collections::BTreeMap;
use waymaker_engine::limits::INSPECT_HOLDER_COUNT_MAX;
use waymaker_engine::{CancelReason, Limits, RevokeReason};

/// An acquire is named by the number of its request. So is the claim that it made.
pub(crate) type Name = u32;
/// Namespace and key.
pub(crate) type Key = (u16, Vec<u8>);
/// A place that a connection has, and how many were there before it.
pub(crate) type Lane = (usize, u32);

/// What somebody hears.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Heard {
    Answer { lane: Lane, number: u32, what: What },
    Queued { lane: Lane, number: u32, claim: Name, position: u32 },
    Expired { lane: Lane, claim: Name },
    LeaseMoved { lane: Lane, claim: Name, remaining_ms: u32 },
    Revoked { lane: Lane, claim: Name, elsewhere: bool },
    TakenUp { lane: Lane, number: u32, claim: Name },
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum What {
    Granted {
        claim: Name,
        fence: u64,
        remaining_ms: u32,
        clamped: bool,
        waited: bool,
        repeated: bool,
        session: bool,
    },
    Released {
        was_waiting: bool,
    },
    Extended {
        remaining_ms: u32,
        clamped: bool,
    },
    Cancelled {
        was_waiting: bool,
    },
    Status {
        held: bool,
        shared: bool,
        fence: u64,
        remaining_ms: u32,
        age_ms: u64,
        priority: u32,
        waited_ms: u64,
        key: Vec<u8>,
    },
    Inspected {
        fence: u64,
        waiter_count: u32,
        holder_count: u32,
        holders: Vec<(Name, bool, u64)>,
    },
    Busy(Front),
    /// Of several waits for a key that end together, it is not said who is named to whom.
    Timeout(Option<Front>),
    Refused(&'static str),
}

/// Who stands in front.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Front {
    pub(crate) held: bool,
    pub(crate) shared: bool,
    pub(crate) age_ms: u64,
    pub(crate) remaining_ms: u32,
    pub(crate) waiter_count: u32,
    pub(crate) owner: Vec<u8>,
}

/// What an acquire asks for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ask {
    pub(crate) key: Vec<u8>,
    pub(crate) shared: bool,
    pub(crate) lease_ms: u32,
    pub(crate) wait_ms: u32,
    pub(crate) session: bool,
    pub(crate) notify_queued: bool,
    pub(crate) release_after_ms: Option<u32>,
    pub(crate) priority: u32,
    pub(crate) request_id: Option<Vec<u8>>,
    pub(crate) owner: Option<Vec<u8>>,
}

/// Whoever asks.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    pub(crate) lane: Lane,
    pub(crate) namespace: u16,
    pub(crate) owner: Vec<u8>,
    pub(crate) number: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
enum Connection {
    #[default]
    There,
    Lost,
    GoneForEver,
}

#[derive(Clone, Debug)]
struct Claim {
    name: Name,
    /// The request that waits for its answer.
    number: u32,
    lane: Lane,
    key: Key,
    owner: Vec<u8>,
    ask: Ask,
    lease_ms: u32,
    clamped: bool,
    /// Arrival less boost, then the number of the arrival.
    order: (i64, u64),
    since: u64,
    waited_ms: u64,
    state: State,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Waiting { until: Option<u64> },
    Held { fence: u64, lease_end: Option<u64>, release_end: Option<u64> },
}

impl Claim {
    fn is_held(&self) -> bool {
        matches!(self.state, State::Held { .. })
    }

    fn fence(&self) -> u64 {
        if let State::Held { fence, .. } = self.state { fence } else { 0 }
    }

    /// When it is over if nobody does anything.
    fn end(&self) -> Option<u64> {
        match self.state {
            State::Waiting { until } => until,
            State::Held { lease_end, release_end, .. } => match (lease_end, release_end) {
                (Some(lease_end), Some(release_end)) => Some(lease_end.min(release_end)),
                (end, None) | (None, end) => end,
            },
        }
    }

    fn conflicts(&self, key: &Key, shared: bool) -> bool {
        self.key == *key && !(self.ask.shared && shared)
    }

    fn hangs_on_lane(&self) -> bool {
        !self.is_held() || self.ask.session || self.ask.release_after_ms.is_some()
    }
}

/// All that one shard knows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    limits: Limits,
    now: u64,
    drained: u64,
    arrivals: u64,
    claims: Vec<Claim>,
    /// The newest fence of each key.
    fences: BTreeMap<Key, u64>,
    connections: BTreeMap<Lane, Connection>,
    stopping: bool,
    heard: Vec<Heard>,
}

impl Model {
    pub(crate) fn new(limits: Limits, start: u64) -> Self {
        Self { limits, now: start, drained: start, ..Self::default() }
    }

    /// What was said since the last call.
    pub(crate) fn take_heard(&mut self) -> Vec<Heard> {
        std::mem::take(&mut self.heard)
    }

    pub(crate) fn claim_count(&self) -> usize {
        self.claims.len()
    }

    pub(crate) fn names(&self) -> Vec<Name> {
        self.claims.iter().map(|claim| claim.name).collect()
    }

    /// Whether a claim lives: no answer, it held or holds; false, it waits.
    pub(crate) fn is_held(&self, name: Name) -> Option<bool> {
        self.claims.iter().find(|claim| claim.name == name).map(Claim::is_held)
    }

    /// Whether a try would be granted now.
    pub(crate) fn would_grant_try(&self, namespace: u16, key: &[u8], shared: bool) -> bool {
        let key = (namespace, key.to_vec());
        !self.claims.iter().any(|claim| claim.conflicts(&key, shared))
    }

    /// The lane that a claim belongs to now.
    pub(crate) fn lane_of(&self, name: Name) -> Option<Lane> {
        self.claims.iter().find(|claim| claim.name == name).map(|claim| claim.lane)
    }

    /// The number under which a waiter can be given up.
    pub(crate) fn number_of(&self, name: Name) -> Option<u32> {
        self.claims.iter().find(|claim| claim.name == name).map(|claim| claim.number)
    }

    /// A key that nobody used may have been forgotten: then the fence of its first holder may have jumped, never back.
    /// False if that is not what happened here.
    pub(crate) fn adopt_fence(&mut self, name: Name, told: u64) -> bool {
        let Some(claim) = self.claims.iter().find(|claim| claim.name == name) else { return false };
        let key = claim.key.clone();
        if told < claim.fence() || self.claims.iter().filter(|claim| claim.key == key).count() > 1 {
            return false;
        }
        for claim in &mut self.claims {
            if let State::Held { fence, .. } = &mut claim.state
                && claim.name == name
            {
                *fence = told;
            }
        }
        self.fences.insert(key, told);
        true
    }

    /// Time moves on; what ends by `drained` ends, one instant after the other.
    pub(crate) fn advance(&mut self, now: u64, drained: u64) {
        self.now = self.now.max(now);
        let drained = drained.min(self.now);
        if self.stopping {
            let waiting: Vec<Claim> = self.claims.extract_if(.., |claim| !claim.is_held()).collect();
            for claim in waiting {
                self.answer(claim.lane, claim.number, What::Refused("shutdown"));
            }
        }
        loop {
            let next = self.claims.iter().filter_map(Claim::end).min();
            let Some(at) = next.filter(|at| *at <= drained) else { break };
            self.end_instant(at);
        }
        self.drained = self.drained.max(drained);
    }

    fn end_instant(&mut self, at: u64) {
        let is_over = |claim: &Claim| claim.end().is_some_and(|end| end <= at);
        let ended: Vec<Claim> =
            self.claims.extract_if(.., |claim| claim.is_held() && is_over(claim)).collect();
        for claim in &ended {
            if self.connection(claim.lane) == Connection::There {
                self.heard.push(Heard::Expired { lane: claim.lane, claim: claim.name });
            }
        }
        for claim in &ended {
            self.grant(&claim.key);
        }
        let late: Vec<Claim> = self.claims.iter().filter(|claim| is_over(claim)).cloned().collect();
        for claim in &late {
            let alone = late.iter().filter(|other| other.key == claim.key).count() == 1;
            let front = alone.then(|| Front {
                waiter_count: self.waiter_count(&claim.key) - 1,
                ..self.front(&claim.key, claim.ask.shared)
            });
            self.answer(claim.lane, claim.number, What::Timeout(front));
        }
        self.claims.retain(|claim| !late.iter().any(|late| late.name == claim.name));
        for claim in &late {
            self.grant(&claim.key);
        }
    }

    pub(crate) fn acquire(&mut self, asker: &Asker, ask: &Ask) {
        let what = self.decide(asker, ask);
        if let Some(what) = what {
            self.answer(asker.lane, asker.number, what);
        }
    }

    fn decide(&mut self, asker: &Asker, ask: &Ask) -> Option<What> {
        let (lease_ms, clamped) = match self.lease(ask.lease_ms) {
            Ok(lease) => lease,
            Err(refusal) => return Some(What::Refused(refusal)),
        };
        if ask.session && ask.lease_ms != 0 {
            return Some(What::Refused("bad_input lease_ms"));
        }
        if self.stopping {
            return Some(What::Refused("shutdown"));
        }
        let key = (asker.namespace, ask.key.clone());
        let owner = ask.owner.as_ref().unwrap_or(&asker.owner).clone();
        let same = |claim: &Claim| {
            ask.request_id.is_some()
                && claim.ask.request_id == ask.request_id
                && claim.owner == owner
                && claim.key == key
        };
        if let Some(index) = self.claims.iter().position(same) {
            return self.ask_again(asker, ask, index);
        }
        if self.claims.len() >= self.limits.claim_count_max as usize {
            return Some(What::Refused("overloaded claims per shard"));
        }
        let boost = u64::from(ask.priority) * u64::from(self.limits.priority_step_ms);
        let boost = boost.min(u64::from(self.limits.priority_boost_max_ms));
        let order = (self.now as i64 - boost as i64, self.arrivals);
        let is_try = ask.wait_ms == 0;
        // A waiter is clear if it conflicts with no holder, and everyone in front of it is clear and no conflict. Those
        // who are clear were granted when they became so; whoever waits is not, and keeps everyone behind it out.
        let waits = self.claims.iter().any(|claim| {
            if claim.is_held() || is_try {
                claim.conflicts(&key, ask.shared)
            } else {
                claim.key == key && claim.order < order
            }
        });
        if waits && is_try {
            let front = self.front(&key, ask.shared);
            return Some(What::Busy(front));
        }
        if waits && self.waiter_count(&key) >= self.limits.waiter_count_per_key_max {
            return Some(What::Refused("overloaded waiters per key"));
        }
        let hanging = |claim: &&Claim| claim.lane == asker.lane && claim.hangs_on_lane();
        let hanging_count = self.claims.iter().filter(hanging).count();
        let hangs = waits || ask.session || ask.release_after_ms.is_some();
        if hangs && hanging_count >= self.limits.linked_claim_count_per_lane_max as usize {
            return Some(What::Refused("overloaded claims per connection"));
        }
        self.arrivals += 1;
        let until = (ask.wait_ms != u32::MAX).then(|| self.now + u64::from(ask.wait_ms));
        let name = asker.number;
        self.claims.push(Claim {
            name,
            number: asker.number,
            lane: asker.lane,
            key: key.clone(),
            owner,
            ask: ask.clone(),
            lease_ms,
            clamped,
            order,
            since: self.now,
            waited_ms: 0,
            state: State::Waiting { until },
        });
        if !waits {
            self.hold(name);
            return Some(self.granted(name, false, false));
        }
        if ask.notify_queued {
            self.say_queued(asker, name);
        }
        None
    }

    fn ask_again(&mut self, asker: &Asker, ask: &Ask, index: usize) -> Option<What> {
        let claim = &mut self.claims[index];
        if claim.ask.shared != ask.shared || claim.ask.session != ask.session {
            return Some(What::Refused("bad_input request_id"));
        }
        let (name, before) = (claim.name, (claim.lane, claim.number));
        claim.lane = asker.lane;
        claim.number = asker.number;
        match &mut claim.state {
            State::Held { release_end, .. } => {
                *release_end = None;
                if before != (asker.lane, asker.number) && self.connection(before.0) == Connection::There {
                    self.heard.push(Heard::TakenUp { lane: before.0, number: before.1, claim: name });
                }
                Some(self.granted(name, false, true))
            }
            State::Waiting { .. } => {
                self.answer(before.0, before.1, What::Refused(cancelled(CancelReason::Superseded)));
                if ask.notify_queued {
                    self.say_queued(asker, name);
                }
                None
            }
        }
    }

    pub(crate) fn release(&mut self, asker: &Asker, name: Name, key: Option<&[u8]>, own: bool) {
        let Some(index) = self.find(asker, name, key) else {
            return self.answer(asker.lane, asker.number, What::Refused("not_found"));
        };
        if own && self.claims[index].lane != asker.lane {
            return self.answer(asker.lane, asker.number, What::Refused(cancelled(CancelReason::Superseded)));
        }
        let was_waiting = !self.claims[index].is_held();
        self.answer(asker.lane, asker.number, What::Released { was_waiting });
        let claim = self.claims.remove(index);
        if was_waiting {
            self.answer(claim.lane, claim.number, What::Refused(cancelled(CancelReason::Asked)));
        } else if claim.lane != asker.lane {
            self.say_revoked(&claim, &RevokeReason::ReleasedElsewhere);
        }
        self.grant(&claim.key);
    }

    pub(crate) fn extend(&mut self, asker: &Asker, name: Name, key: Option<&[u8]>, lease_ms: u32, own: bool) {
        let what = match (self.lease(lease_ms), self.find(asker, name, key)) {
            (_, None) if own => What::Refused("not_found"),
            (_, Some(index)) if own && self.claims[index].lane != asker.lane => {
                What::Refused(cancelled(CancelReason::Superseded))
            }
            (Err(refusal), _) => What::Refused(refusal),
            (_, None) => What::Refused("not_found"),
            (Ok((lease_ms, clamped)), Some(index)) => {
                let claim = &mut self.claims[index];
                match &mut claim.state {
                    State::Waiting { .. } => What::Refused("not_held"),
                    State::Held { .. } if claim.ask.session => What::Refused("bad_input id"),
                    State::Held { lease_end, .. } => {
                        *lease_end = Some(self.now + u64::from(lease_ms));
                        let lane = claim.lane;
                        if lane != asker.lane && self.connection(lane) == Connection::There {
                            self.heard.push(Heard::LeaseMoved { lane, claim: name, remaining_ms: lease_ms });
                        }
                        What::Extended { remaining_ms: lease_ms, clamped }
                    }
                }
            }
        };
        self.answer(asker.lane, asker.number, what);
    }

    pub(crate) fn cancel(&mut self, asker: &Asker, number: u32) {
        let waits = |claim: &Claim| !claim.is_held() && claim.lane == asker.lane && claim.number == number;
        let index = self.claims.iter().position(waits);
        self.answer(asker.lane, asker.number, What::Cancelled { was_waiting: index.is_some() });
        if let Some(index) = index {
            let claim = self.claims.remove(index);
            self.answer(claim.lane, claim.number, What::Refused(cancelled(CancelReason::Asked)));
            self.grant(&claim.key);
        }
    }

    pub(crate) fn status(&mut self, asker: &Asker, name: Name, key: Option<&[u8]>) {
        let what = match self.find(asker, name, key) {
            None => What::Refused("not_found"),
            Some(index) => {
                let claim = &self.claims[index];
                What::Status {
                    held: claim.is_held(),
                    shared: claim.ask.shared,
                    fence: claim.fence(),
                    remaining_ms: self.remaining_ms(claim),
                    age_ms: self.now - claim.since,
                    priority: claim.ask.priority,
                    waited_ms: claim.waited_ms,
                    key: claim.key.1.clone(),
                }
            }
        };
        self.answer(asker.lane, asker.number, what);
    }

    pub(crate) fn inspect(&mut self, asker: &Asker, key: &[u8]) {
        let key = (asker.namespace, key.to_vec());
        let mut holders: Vec<(Name, bool, u64)> = Vec::new();
        for claim in &self.claims {
            if claim.key == key && claim.is_held() {
                holders.push((claim.name, claim.ask.shared, claim.fence()));
            }
        }
        holders.sort_by_key(|(_, _, fence)| *fence);
        let fence = self.fences.get(&key).copied().unwrap_or(0);
        let (waiter_count, holder_count) = (self.waiter_count(&key), holders.len() as u32);
        holders.truncate(INSPECT_HOLDER_COUNT_MAX);
        let what = What::Inspected { fence, waiter_count, holder_count, holders };
        self.answer(asker.lane, asker.number, what);
    }

    pub(crate) fn detach(&mut self, lane: Lane) {
        self.connections.insert(lane, Connection::Lost);
        for claim in self.claims.iter().filter(|claim| claim.lane == lane && !claim.is_held()) {
            let what = What::Refused(cancelled(CancelReason::ConnectionLost));
            self.heard.push(Heard::Answer { lane, number: claim.number, what });
        }
        self.lose(lane, false);
    }

    pub(crate) fn attach(&mut self, lane: Lane) {
        self.connections.insert(lane, Connection::There);
        for claim in self.claims.iter_mut().filter(|claim| claim.lane == lane) {
            if let State::Held { release_end, .. } = &mut claim.state {
                *release_end = None;
            }
        }
    }

    pub(crate) fn close(&mut self, lane: Lane, session_ended: bool) {
        self.connections.insert(lane, Connection::GoneForEver);
        self.lose(lane, session_ended);
    }

    /// Waiters leave, holds that asked for it begin to run out.
    fn lose(&mut self, lane: Lane, session_ended: bool) {
        let now = self.now;
        for claim in self.claims.iter_mut().filter(|claim| claim.lane == lane) {
            if let State::Held { release_end, .. } = &mut claim.state
                && let Some(release_after_ms) = claim.ask.release_after_ms
            {
                release_end.get_or_insert(now + u64::from(release_after_ms));
            }
        }
        let gone = |claim: &mut Claim| {
            let at_once = claim.ask.release_after_ms == Some(0) || claim.ask.session && session_ended;
            claim.lane == lane && (!claim.is_held() || at_once)
        };
        let gone: Vec<Claim> = self.claims.extract_if(.., gone).collect();
        for claim in gone {
            self.grant(&claim.key);
        }
    }

    pub(crate) fn stop(&mut self) {
        self.stopping = true;
    }

    /// Grants whoever is clear, in order.
    fn grant(&mut self, key: &Key) {
        loop {
            let waiting = self.claims.iter().filter(|claim| claim.key == *key && !claim.is_held());
            let Some(first) = waiting.min_by_key(|claim| claim.order) else { return };
            if self.claims.iter().any(|claim| claim.is_held() && claim.conflicts(key, first.ask.shared)) {
                return;
            }
            let (name, lane, number) = (first.name, first.lane, first.number);
            if self.stopping {
                self.claims.retain(|claim| claim.name != name);
                self.answer(lane, number, What::Refused("shutdown"));
            } else {
                self.hold(name);
                let granted = self.granted(name, true, false);
                self.answer(lane, number, granted);
            }
        }
    }

    fn hold(&mut self, name: Name) {
        let now = self.now;
        let claim = self.claims.iter_mut().find(|claim| claim.name == name).expect("it lives");
        let fence = self.fences.entry(claim.key.clone()).or_insert(0);
        *fence += 1;
        let lease_end = (!claim.ask.session).then(|| now + u64::from(claim.lease_ms));
        claim.state = State::Held { fence: *fence, lease_end, release_end: None };
        claim.waited_ms = now - claim.since;
        claim.since = now;
    }

    fn granted(&self, name: Name, waited: bool, repeated: bool) -> What {
        let claim = self.claims.iter().find(|claim| claim.name == name).expect("it lives");
        let remaining_ms = claim.end().map_or(u32::MAX, |end| (end.saturating_sub(self.now)) as u32);
        What::Granted {
            claim: name,
            fence: claim.fence(),
            remaining_ms,
            clamped: claim.clamped,
            waited,
            repeated,
            session: claim.ask.session,
        }
    }

    fn lease(&self, lease_ms: u32) -> Result<(u32, bool), &'static str> {
        match lease_ms {
            0 => Ok((self.limits.lease_default_ms, false)),
            _ if lease_ms < self.limits.lease_min_ms => Err("bad_input lease_ms"),
            _ if lease_ms > self.limits.lease_max_ms => Ok((self.limits.lease_max_ms, true)),
            _ => Ok((lease_ms, false)),
        }
    }

    fn find(&self, asker: &Asker, name: Name, key: Option<&[u8]>) -> Option<usize> {
        self.claims.iter().position(|claim| {
            claim.name == name && claim.key.0 == asker.namespace && key.is_none_or(|key| claim.key.1 == key)
        })
    }

    fn waiter_count(&self, key: &Key) -> u32 {
        self.claims.iter().filter(|claim| claim.key == *key && !claim.is_held()).count() as u32
    }

    /// The oldest holder in the way, else the waiter at the head.
    fn front(&self, key: &Key, shared: bool) -> Front {
        let holders = self.claims.iter().filter(|claim| claim.is_held() && claim.conflicts(key, shared));
        let waiters = self.claims.iter().filter(|claim| !claim.is_held() && claim.key == *key);
        let in_front = holders.min_by_key(|claim| claim.fence()).or(waiters.min_by_key(|claim| claim.order));
        let in_front = in_front.expect("somebody stands in front");
        Front {
            held: in_front.is_held(),
            shared: in_front.ask.shared,
            age_ms: self.now - in_front.since,
            remaining_ms: self.remaining_ms(in_front),
            waiter_count: self.waiter_count(key),
            owner: in_front.owner.clone(),
        }
    }

    /// As it is shown: of a session's lease nothing is certain here, since no session says how long it lives.
    fn remaining_ms(&self, claim: &Claim) -> u32 {
        match claim.state {
            State::Held { release_end: None, .. } if claim.ask.session => 0,
            _ => claim.end().map_or(u32::MAX, |end| end.saturating_sub(self.now) as u32),
        }
    }

    fn connection(&self, lane: Lane) -> Connection {
        self.connections.get(&lane).copied().unwrap_or_default()
    }

    fn answer(&mut self, lane: Lane, number: u32, what: What) {
        self.heard.push(Heard::Answer { lane, number, what });
    }

    fn say_queued(&mut self, asker: &Asker, name: Name) {
        let claim = self.claims.iter().find(|claim| claim.name == name).expect("it lives");
        let stands_before =
            |other: &&Claim| !other.is_held() && other.key == claim.key && other.order < claim.order;
        let position = self.claims.iter().filter(stands_before).count() as u32;
        self.heard.push(Heard::Queued { lane: asker.lane, number: asker.number, claim: name, position });
    }

    fn say_revoked(&mut self, claim: &Claim, reason: &RevokeReason) {
        if self.connection(claim.lane) == Connection::There {
            let elsewhere = *reason == RevokeReason::ReleasedElsewhere;
            self.heard.push(Heard::Revoked { lane: claim.lane, claim: claim.name, elsewhere });
        }
    }
}

pub(crate) fn cancelled(reason: CancelReason) -> &'static str {
    match reason {
        CancelReason::Asked => "cancelled",
        CancelReason::Superseded => "cancelled, superseded",
        CancelReason::ConnectionLost => "cancelled, connection lost",
        CancelReason::Forced => "cancelled, forced",
    }
}
