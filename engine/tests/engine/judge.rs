//! The grant rule of every kind of claim once more, recomputed from scratch over a plain list of claims; and a judge who
//! holds whatever a few shards say against it.
//!
//! This file is shared by the tests of the engine and of the server's workers.

use std::collections::{BTreeMap, BTreeSet};
use waymaker_engine::{Answer, CancelReason, ClaimId, Event, Grant, LaneAddress, Refusal, Ticket};

/// One effect of a turn that a client hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Answer(Ticket, Answer),
    Event(LaneAddress, Event),
}

/// Whose rules hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Keys, alone or several, each of which becomes a hold of its own.
    Keys,
    /// Sets of paths, each one hold.
    Tree,
    /// Permits of one pool.
    Pool { by_time: bool },
}

/// One key, one path as the segments' letters, or the pool.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Item {
    pub(crate) name: Vec<u8>,
    pub(crate) shared: bool,
}

/// What an acquire asks for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ask {
    pub(crate) items: Vec<Item>,
    /// A single key is asked for as such, and not as a list of one.
    pub(crate) is_multi_key: bool,
    pub(crate) permits: u64,
    pub(crate) timestamp_us: u64,
    pub(crate) lease_ms: u32,
    pub(crate) wait_ms: u32,
    pub(crate) priority: u32,
    pub(crate) session: bool,
    pub(crate) release_after_ms: Option<u32>,
    pub(crate) request_id: Option<u8>,
}

/// What the request id of an acquire must come to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Again {
    /// This one waits, and is taken over.
    Waiting(Ticket),
    /// These are held, and the answer.
    Held(Vec<ClaimId>),
    /// The request is not what the id names.
    Wrong,
}

#[derive(Clone, Debug)]
struct Waiter {
    ticket: Ticket,
    ask: Ask,
    /// Smaller is served earlier.
    order: (i64, u64),
    until: Option<u64>,
    /// Its own step has not ended.
    fresh: bool,
    /// It was told that its wait is over, at this instant.
    over: bool,
}

#[derive(Clone, Debug)]
struct Holder {
    id: ClaimId,
    lane: LaneAddress,
    /// What it holds of what was asked.
    items: Vec<Item>,
    ask: Ask,
    lease_end: Option<u64>,
    release_end: Option<u64>,
}

impl Holder {
    fn end(&self) -> Option<u64> {
        [self.lease_end, self.release_end].into_iter().flatten().min()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Connection {
    Lost,
    GoneForEver,
}

/// All that is known from outside of a few shards.
#[derive(Debug)]
pub(crate) struct Judge {
    kind: Kind,
    /// Keys may be forgotten: then fences may jump, never back.
    forgets: bool,
    /// By how much a step of priority moves a waiter, and the most it may.
    boost_ms: (u64, u64),
    /// Follow-ups are done at once, so that whoever could be granted must be.
    pub(crate) is_prompt: bool,
    now: u64,
    arrivals: u64,
    waiters: Vec<Waiter>,
    holders: Vec<Holder>,
    /// The newest fence of each counter.
    fences: BTreeMap<Vec<u8>, u64>,
    pub(crate) capacity: u64,
    frozen: Vec<Vec<u8>>,
    connections: BTreeMap<LaneAddress, Connection>,
    /// Who must still be told in this step that its lease is over.
    expired: Vec<(ClaimId, LaneAddress)>,
    /// Who gives up in this step.
    giving_up: Option<Ticket>,
    /// What this acquire must come to, since it was asked for before.
    again: Option<(Ticket, Again)>,
    /// The ids of claims, by the acquires that asked for them, in the order of their items.
    pub(crate) ids: BTreeMap<u32, Vec<ClaimId>>,
    /// How many waits have ended in vain.
    pub(crate) timeout_count: u64,
}

impl Judge {
    /// Whether there are neither holders nor waiters.
    pub(crate) fn is_unused(&self) -> bool {
        self.holders.is_empty() && self.waiters.is_empty()
    }

    pub(crate) fn new(kind: Kind, boost_ms: (u64, u64), capacity: u64, forgets: bool, now: u64) -> Self {
        Self {
            forgets,
            kind,
            boost_ms,
            is_prompt: true,
            now,
            arrivals: 0,
            waiters: Vec::new(),
            holders: Vec::new(),
            fences: BTreeMap::new(),
            capacity,
            frozen: Vec::new(),
            connections: BTreeMap::new(),
            expired: Vec::new(),
            giving_up: None,
            again: None,
            ids: BTreeMap::new(),
            timeout_count: 0,
        }
    }

    fn overlap(&self, one: &Item, other: &Item) -> bool {
        match self.kind {
            Kind::Tree => one.name.starts_with(&other.name) || other.name.starts_with(&one.name),
            Kind::Keys | Kind::Pool { .. } => one.name == other.name,
        }
    }

    /// The rule. `all` counts also those whose wait is over at this instant.
    fn is_item_clear(&self, waiter: &Waiter, item: &Item, all: bool) -> bool {
        let before = |other: &&Waiter| other.order < waiter.order && (all || !other.over);
        if let Kind::Pool { .. } = self.kind {
            let held: u64 = self.holders.iter().map(|holder| holder.ask.permits).sum();
            let wanted: u64 = self.waiters.iter().filter(before).map(|other| other.ask.permits).sum();
            return held + wanted + waiter.ask.permits <= self.capacity;
        }
        let conflict = |other: &Item| self.overlap(item, other) && !(item.shared && other.shared);
        let is_held_against = self.holders.iter().flat_map(|holder| &holder.items).any(conflict);
        let passes = |other: &Waiter| {
            let overlapping = other.ask.items.iter().filter(|theirs| self.overlap(item, theirs));
            overlapping.clone().all(|theirs| !conflict(theirs) && self.is_item_clear(other, theirs, all))
        };
        !is_held_against && self.waiters.iter().filter(before).all(passes)
    }

    fn is_clear(&self, waiter: &Waiter, all: bool) -> bool {
        waiter.ask.items.iter().all(|item| self.is_item_clear(waiter, item, all))
    }

    fn is_frozen(&self, ask: &Ask) -> bool {
        let covers = |prefix: &Vec<u8>| match self.kind {
            Kind::Tree => prefix.is_empty(),
            _ => ask.items.iter().any(|item| item.name.starts_with(prefix)),
        };
        self.frozen.iter().any(covers)
    }

    /// Whether it must not wait.
    fn is_grantable(&self, waiter: &Waiter, all: bool) -> bool {
        self.is_clear(waiter, all) && !self.is_frozen(&waiter.ask)
    }

    /// When something ends if nobody does anything.
    pub(crate) fn next_end(&self) -> Option<u64> {
        let waits = self.waiters.iter().filter_map(|waiter| waiter.until);
        waits.chain(self.holders.iter().filter_map(Holder::end)).min()
    }

    /// Returns how long until a lease or a wait ends if no client does anything.
    pub(crate) fn until_next_end_ms(&self) -> Option<u64> {
        Some(self.next_end()? - self.now)
    }

    /// Time moves on, to no later than the next end: what is held until then is over.
    pub(crate) fn advance(&mut self, now: u64) {
        self.now = now;
        let ended = self.holders.extract_if(.., |holder| holder.end().is_some_and(|end| end <= now));
        let told = ended.map(|holder| (holder.id, holder.lane));
        self.expired.extend(told);
        self.expired.retain(|(_, lane)| !self.connections.contains_key(lane));
    }

    pub(crate) fn ask(&mut self, ticket: Ticket, ask: &Ask) {
        if let Some(again) = self.find_again(ask) {
            self.again = Some((ticket, again));
            return;
        }
        let (step_ms, boost_max_ms) = self.boost_ms;
        let boost = (u64::from(ask.priority) * step_ms).min(boost_max_ms);
        let first = match self.kind {
            // A try never overtakes anyone.
            _ if ask.wait_ms == 0 => i64::MAX,
            Kind::Pool { by_time: true } => ask.timestamp_us as i64,
            Kind::Pool { by_time: false } => 0,
            Kind::Keys | Kind::Tree => self.now as i64 - boost as i64,
        };
        self.arrivals += 1;
        self.waiters.push(Waiter {
            ticket,
            ask: ask.clone(),
            order: (first, self.arrivals),
            until: (ask.wait_ms != u32::MAX).then(|| self.now + u64::from(ask.wait_ms)),
            fresh: true,
            over: false,
        });
    }

    /// The distinct items of a request. A path that another path of the set covers does not count.
    fn needed_items(&self, ask: &Ask) -> BTreeSet<Item> {
        let covers = |by: &Item, item: &Item| {
            by != item && item.name.starts_with(&by.name) && (!by.shared || item.shared)
        };
        let is_covered = |item: &Item| self.kind == Kind::Tree && ask.items.iter().any(|by| covers(by, item));
        ask.items.iter().filter(|item| !is_covered(item)).cloned().collect()
    }

    fn find_again(&self, ask: &Ask) -> Option<Again> {
        ask.request_id?;
        let names = |ask: &Ask| ask.items.iter().map(|item| item.name.clone()).collect::<Vec<_>>();
        let is_named = |other: &Ask| {
            let same_keys = self.kind != Kind::Keys
                || other.is_multi_key == ask.is_multi_key && names(other) == names(ask);
            other.request_id == ask.request_id && same_keys
        };
        let is_same = |other: &Ask| {
            let items = |ask: &Ask| self.needed_items(ask);
            (items(other), other.permits, other.session) == (items(ask), ask.permits, ask.session)
        };
        if let Some(waiter) = self.waiters.iter().find(|waiter| is_named(&waiter.ask)) {
            return Some(if is_same(&waiter.ask) { Again::Waiting(waiter.ticket) } else { Again::Wrong });
        }
        let held: Vec<&Holder> = self.holders.iter().filter(|holder| is_named(&holder.ask)).collect();
        let hold_count = if self.kind == Kind::Keys { ask.items.len() } else { 1 };
        let first = held.first()?;
        if held.len() < hold_count || !is_same(&first.ask) {
            return Some(Again::Wrong);
        }
        let mut ids: Vec<(&Item, ClaimId)> =
            held.iter().map(|holder| (&holder.items[0], holder.id)).collect();
        ids.sort_unstable_by_key(|(item, _)| *item);
        Some(Again::Held(ids.into_iter().map(|(_, id)| id).collect()))
    }

    /// The answer to an acquire that was asked for before. False if this is none.
    fn hear_again(&mut self, ticket: Ticket, answer: &Answer) -> bool {
        let Some((_, again)) = self.again.take_if(|(asked, _)| *asked == ticket) else { return false };
        let grants: Vec<Grant> = match answer {
            Answer::Granted(grant) => vec![*grant],
            Answer::GrantedMultiKey(grants) => grants.iter().map(|key| key.grant).collect(),
            Answer::Refused(Refusal::BadInput { field: "request_id", .. }) if again == Again::Wrong => {
                return true;
            }
            other => panic!("{other:?} for {again:?}"),
        };
        let ids: Vec<ClaimId> = grants.iter().map(|grant| grant.id).collect();
        assert!(grants.iter().all(|grant| grant.repeated), "it was held before");
        assert_eq!(again, Again::Held(ids.clone()), "what is held");
        for holder in self.holders.iter_mut().filter(|holder| ids.contains(&holder.id)) {
            if holder.lane != ticket.lane {
                holder.lane = ticket.lane;
                holder.release_end = None;
            }
        }
        true
    }

    /// A waiter was told that a newer acquire takes its place.
    fn hear_superseded(&mut self, superseded: Ticket) {
        let (ticket, again) = self.again.take().expect("nobody asked again");
        assert_eq!(again, Again::Waiting(superseded), "who is superseded");
        let ids = self.ids.get(&superseded.number).cloned().unwrap_or_default();
        self.ids.insert(ticket.number, ids);
        let waiter = self.waiters.iter_mut().find(|waiter| waiter.ticket == superseded);
        waiter.expect("it waits").ticket = ticket;
    }

    pub(crate) fn freeze(&mut self, prefix: &[u8], frozen: bool) {
        self.frozen.retain(|other| other != prefix);
        if frozen {
            self.frozen.push(prefix.to_vec());
        }
    }

    /// The connection is lost, or its lane is gone for ever.
    pub(crate) fn lose(&mut self, lane: LaneAddress, for_ever: bool, session_ended: bool) {
        let lost = if for_ever { Connection::GoneForEver } else { Connection::Lost };
        self.connections.insert(lane, lost);
        if for_ever {
            self.waiters.retain(|waiter| waiter.ticket.lane != lane);
        }
        for holder in self.holders.iter_mut().filter(|holder| holder.lane == lane) {
            if let Some(release_after_ms) = holder.ask.release_after_ms {
                holder.release_end.get_or_insert(self.now + u64::from(release_after_ms));
            }
        }
        let now = self.now;
        let ends = |holder: &Holder| {
            holder.lane == lane && (holder.ask.session && session_ended || holder.release_end == Some(now))
        };
        self.holders.retain(|holder| !ends(holder));
    }

    pub(crate) fn attach(&mut self, lane: LaneAddress) {
        self.connections.remove(&lane);
        for holder in self.holders.iter_mut().filter(|holder| holder.lane == lane) {
            holder.release_end = None;
        }
    }

    pub(crate) fn is_lost(&self, lane: LaneAddress) -> bool {
        self.connections.contains_key(&lane)
    }

    /// Whether a claim with this id lives: `Some(true)` held, `Some(false)` waiting.
    pub(crate) fn is_held(&self, id: ClaimId) -> Option<bool> {
        let waits =
            |waiter: &Waiter| self.ids.get(&waiter.ticket.number).is_some_and(|ids| ids.contains(&id));
        if self.holders.iter().any(|holder| holder.id == id) {
            return Some(true);
        }
        self.waiters.iter().any(waits).then_some(false)
    }

    pub(crate) fn is_waiting(&self, ticket: Ticket) -> bool {
        self.waiters.iter().any(|waiter| waiter.ticket == ticket)
    }

    /// Tickets of all that wait, and ids of all that is held, with their lanes.
    pub(crate) fn live(&self) -> (Vec<Ticket>, Vec<(ClaimId, LaneAddress)>) {
        let waiting = self.waiters.iter().map(|waiter| waiter.ticket).collect();
        (waiting, self.holders.iter().map(|holder| (holder.id, holder.lane)).collect())
    }

    /// Judges what was said in answer to `asked`.
    pub(crate) fn hear(&mut self, effect: &Effect, asked: Option<ClaimId>) {
        if let Effect::Answer(ticket, answer) = effect
            && self.hear_again(*ticket, answer)
        {
            return;
        }
        match effect {
            Effect::Answer(ticket, Answer::Refused(Refusal::Cancelled(CancelReason::Superseded))) => {
                self.hear_superseded(*ticket);
            }
            Effect::Answer(ticket, Answer::Granted(grant)) => self.hear_grants(*ticket, &[*grant]),
            Effect::Answer(ticket, Answer::GrantedMultiKey(grants)) => {
                let grants: Vec<Grant> = grants.iter().map(|key| key.grant).collect();
                self.hear_grants(*ticket, &grants);
            }
            Effect::Answer(ticket, Answer::Refused(refusal)) => self.hear_refusal(*ticket, refusal, asked),
            Effect::Answer(_, Answer::Released { was_waiting }) => {
                let id = asked.expect("nobody asked for a release");
                assert_eq!(self.is_held(id), Some(!was_waiting), "what was released");
                if *was_waiting {
                    let named = |waiter: &&Waiter| self.ids[&waiter.ticket.number].contains(&id);
                    self.giving_up = self.waiters.iter().find(named).map(|waiter| waiter.ticket);
                }
                self.holders.retain(|holder| holder.id != id);
            }
            Effect::Answer(_, Answer::Cancelled { was_waiting }) => {
                assert_eq!(*was_waiting, self.giving_up.is_some(), "what was cancelled");
            }
            Effect::Answer(_, Answer::CapacitySet { .. } | Answer::Watching { .. }) => {}
            Effect::Answer(_, Answer::Unwatched { .. }) => {}
            Effect::Event(_, Event::Queued { number, id, .. }) => {
                let before = self.ids.insert(*number, vec![*id]);
                assert!(before.is_none_or(|before| before == [*id]), "another id");
            }
            Effect::Event(lane, Event::Expired { id }) => {
                let place = self.expired.iter().position(|expired| expired == &(*id, *lane));
                self.expired.swap_remove(place.expect("a lease is over that was not to end"));
            }
            Effect::Event(lane, Event::Revoked { id, .. }) => {
                assert_eq!(asked, Some(*id), "nobody released it");
                assert!(!self.is_lost(*lane));
            }
            Effect::Event(lane, Event::TakenUp { id, .. }) => {
                let again = self.again.as_ref().map(|(_, again)| again);
                assert!(matches!(again, Some(Again::Held(ids)) if ids.contains(id)), "nobody asked again");
                assert!(self.holders.iter().any(|holder| holder.id == *id && holder.lane == *lane));
                assert!(!self.is_lost(*lane));
            }
            Effect::Event(_, Event::KeyHeld { .. } | Event::KeyFreed { .. }) => {}
            other => panic!("nobody asked for {other:?}"),
        }
    }

    /// Somebody cancels this acquire.
    pub(crate) fn cancel(&mut self, ticket: Ticket) {
        self.giving_up = self.is_waiting(ticket).then_some(ticket);
    }

    fn hear_grants(&mut self, ticket: Ticket, grants: &[Grant]) {
        let place = self.waiters.iter().position(|waiter| waiter.ticket == ticket);
        let waiter = &self.waiters[place.expect("nobody waits for this grant")];
        assert!(!waiter.over, "its wait was over");
        assert!(self.is_grantable(waiter, false), "granted though the rule says no: {waiter:?}");
        assert!(!self.is_lost(ticket.lane), "nobody listens");
        let Waiter { ask, fresh, .. } = self.waiters.remove(place.unwrap_or_default());
        let items: Vec<Vec<Item>> = match self.kind {
            Kind::Keys => ask.items.iter().map(|item| vec![item.clone()]).collect(),
            Kind::Tree | Kind::Pool { .. } => vec![ask.items.clone()],
        };
        assert_eq!(items.len(), grants.len(), "how many holds");
        self.ids.insert(ticket.number, grants.iter().map(|grant| grant.id).collect());
        for (items, grant) in items.into_iter().zip(grants) {
            let counter = if self.kind == Kind::Keys { items[0].name.clone() } else { Vec::new() };
            let fence = self.fences.entry(counter).or_default();
            *fence = if self.forgets { grant.fence.get().max(*fence + 1) } else { *fence + 1 };
            assert_eq!(
                (grant.fence.get(), grant.waited, grant.repeated),
                (*fence, !fresh, false),
                "of a grant"
            );
            assert_eq!(grant.session_lease, ask.session);
            assert!(ask.session || grant.remaining_ms == ask.lease_ms, "length of a lease");
            self.holders.push(Holder {
                id: grant.id,
                lane: ticket.lane,
                items,
                ask: ask.clone(),
                lease_end: (!ask.session).then(|| self.now + u64::from(ask.lease_ms)),
                release_end: None,
            });
        }
    }

    fn hear_refusal(&mut self, ticket: Ticket, refusal: &Refusal, asked: Option<ClaimId>) {
        let Some(place) = self.waiters.iter().position(|waiter| waiter.ticket == ticket) else {
            assert_eq!(*refusal, Refusal::NotFound, "refused");
            assert_eq!(asked.and_then(|id| self.is_held(id)), None, "it is there");
            return;
        };
        let waiter = &self.waiters[place];
        let is_due = waiter.until.is_some_and(|until| until <= self.now);
        match refusal {
            Refusal::Busy(_) => {
                assert!(waiter.fresh && waiter.ask.wait_ms == 0, "only a try is told that it is busy");
                let must = self.is_prompt && self.is_grantable(waiter, false);
                assert!(!must, "the rule grants it: {waiter:?}");
            }
            Refusal::Frozen => {
                assert!(waiter.fresh && waiter.ask.wait_ms == 0 && self.is_frozen(&waiter.ask), "frozen");
            }
            Refusal::Timeout(_) => {
                assert!(!waiter.fresh && is_due && !waiter.over, "its wait is not over");
                // Multi-key claims are looked at after the instant. In a tree a reader may have been kept out by another one
                // that was let in as the first waits ended.
                let is_first = self.kind == Kind::Keys || !self.waiters.iter().any(|waiter| waiter.over);
                let must =
                    self.is_prompt && is_first && !waiter.ask.is_multi_key && self.is_grantable(waiter, true);
                assert!(!must, "the rule grants it in its last instant: {waiter:?}");
                self.waiters[place].over = true;
                self.timeout_count += 1;
                return;
            }
            Refusal::Cancelled(CancelReason::Asked) => {
                assert_eq!(self.giving_up.take(), Some(ticket), "it did not give up");
            }
            Refusal::Cancelled(CancelReason::ConnectionLost) => {
                assert_eq!(self.connections.get(&ticket.lane), Some(&Connection::Lost));
            }
            Refusal::BadInput { field: "permits", .. } => assert!(waiter.ask.permits > self.capacity),
            other => panic!("refused for {other:?}: {waiter:?}"),
        }
        self.waiters.remove(place);
    }

    /// A step is over, and all that was said in it was heard.
    pub(crate) fn end_step(&mut self, follow_up_count: usize, claim_count: usize) {
        assert_eq!(self.expired, [], "leases are over, and nobody said so");
        assert_eq!(self.giving_up, None, "who gave up was not told");
        assert_eq!(self.again, None, "an acquire that came again has no answer");
        self.waiters.retain(|waiter| !waiter.over);
        for waiter in &mut self.waiters {
            waiter.fresh = false;
        }
        for waiter in &self.waiters {
            assert!(waiter.ask.wait_ms > 0, "a try waits");
            assert!(waiter.until.is_none_or(|until| until > self.now), "its wait is over: {waiter:?}");
            let lost = self.is_lost(waiter.ticket.lane);
            assert!(!lost, "it outlived its connection: {waiter:?}");
        }
        if follow_up_count > 0 {
            return;
        }
        let stubs = |waiter: &Waiter| if self.kind == Kind::Keys { waiter.ask.items.len() } else { 1 };
        let expected = self.holders.len() + self.waiters.iter().map(stubs).sum::<usize>();
        assert_eq!(claim_count, expected, "claims");
        for waiter in &self.waiters {
            assert!(!self.is_grantable(waiter, false), "it waits, and the rule grants it: {waiter:?}");
        }
    }
}
