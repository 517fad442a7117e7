//! One client of the load: it takes, renews and gives back durable locks, and writes down what it sees.
//!
//! After each loss of its connection it first finds out what became of what it had: it asks for every hold by its id, looks
//! whether of several keys it holds all or none, and repeats what was not answered as its kind can: under a request id, in its
//! session under the old number, or not at all.

use super::history::{Call, Entry, Micros, Renewal, now};
use super::link::{Link, Lost};
use super::load::Target;
use crate::harness::Received;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::sync::atomic::Ordering;
use waymaker_protocol::{
    Acquire, AcquireKeys, AcquireOptions, AcquireTerms, ErrorCode, Extend, Inspect, Items, KeyItem, LockId,
    Release, Request, Response, SessionId, SessionRequest, Status,
};

/// Keys there are for all clients.
const KEY_COUNT: u32 = 24;
/// Keys of large claims, which lie behind the others. The records of such a claim fill many frames of the log, and with its
/// metadata several segments.
const LARGE_KEY_COUNT: u32 = 1_024;
/// Large claims among all, of a thousand.
const LARGE_PERMILLE: u32 = 15;
/// The longest metadata that a claim may have.
const METADATA: [u8; 4_096] = [b'm'; 4_096];
/// Holds that one client keeps at most before it asks for more.
const HOLDS_MAX: usize = 4;
const SESSION_LEASE_MS: u32 = 60_000;
/// Leases, short ones that end in a restart and long ones that do not.
const LEASES_MS: [u32; 4] = [400, 1_500, 5_000, 30_000];

/// How a client repeats what was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Not at all: it looks who holds the key.
    Plain,
    /// Under a request id.
    Named,
    /// In its session, under the old number.
    Session,
}

/// An acquire that was sent.
#[derive(Clone, Debug)]
struct Wish {
    number: u32,
    /// Its owner, and its request id: no other acquire has it.
    name: String,
    keys: Vec<u32>,
    shared: bool,
    lease_ms: u32,
    wait_ms: u32,
    session_lease: bool,
    has_metadata: bool,
    invoked: Micros,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    id: LockId,
    session_lease: bool,
    until: Micros,
}

#[derive(Debug)]
pub(crate) struct RigClient {
    number: u64,
    kind: Kind,
    random: SmallRng,
    next_number: u32,
    session: Option<(SessionId, u16)>,
    /// The acquire that has no answer yet.
    wish: Option<Wish>,
    wish_count: u64,
    holds: Vec<Held>,
    history: Vec<Entry>,
}

fn key_name(key: u32) -> Vec<u8> {
    format!("key-{key}").into_bytes()
}

impl RigClient {
    fn new(number: u64) -> Self {
        Self {
            number,
            kind: [Kind::Plain, Kind::Named, Kind::Session][number as usize % 3],
            random: SmallRng::seed_from_u64(rand::random()),
            next_number: 2,
            session: None,
            wish: None,
            wish_count: 0,
            holds: Vec::new(),
            history: Vec::new(),
        }
    }

    pub(crate) fn run(number: u64, target: &Target) -> Vec<Entry> {
        let mut client = Self::new(number);
        let mut serial = 0;
        while let Some((next, address)) = target.next(serial) {
            serial = next;
            // Whatever is lost is looked at on the next server.
            let _ = client.serve(&address, target);
        }
        client.history
    }

    fn serve(&mut self, address: &str, target: &Target) -> Result<(), Lost> {
        let mut link = self.connect(address)?;
        self.settle(&mut link, target)?;
        while !target.is_over() {
            self.step(&mut link, target)?;
        }
        Ok(())
    }

    fn connect(&mut self, address: &str) -> Result<Link, Lost> {
        let owner = format!("client-{}", self.number);
        if self.kind != Kind::Session {
            let opened = Link::open(address, &owner, SessionRequest::None)?;
            return opened.map_err(|code| self.wrong(format!("no connection: {code:?}")));
        }
        let invoked = now();
        if let Some((id, lane)) = self.session {
            match Link::open(address, &owner, SessionRequest::Resume { id, lane })? {
                Ok(link) => return Ok(link),
                Err(ErrorCode::SessionGone) => self.note_session_gone(invoked),
                Err(code) => return Err(self.wrong(format!("no session: {code:?}"))),
            }
        }
        let opened = Link::open(address, &owner, SessionRequest::New { lease_ms: SESSION_LEASE_MS })?;
        let link = opened.map_err(|code| self.wrong(format!("no new session: {code:?}")))?;
        self.session = Some((link.welcome.session_id, link.welcome.lane));
        self.next_number = 2;
        Ok(link)
    }

    /// A session of which nothing is held need not outlive its server.
    fn note_session_gone(&mut self, invoked: Micros) {
        let sure = now();
        if self.holds.iter().any(|hold| hold.session_lease && hold.until > sure) {
            self.history.push(Entry::Wrong {
                call: Call { invoked, returned: sure },
                what: "a session is gone with its holds".into(),
            });
        }
        self.session = None;
    }

    /// Finds out what became of what it had.
    fn settle(&mut self, link: &mut Link, target: &Target) -> Result<(), Lost> {
        if let Some(wish) = self.wish.clone() {
            let found = self.look_for(link, &wish)?;
            let can_repeat = match self.kind {
                Kind::Plain => false,
                Kind::Named => true,
                Kind::Session => link.welcome.resumed,
            };
            if can_repeat {
                self.send_wish(link, &wish, target)?;
            } else {
                for id in found {
                    self.ask(link, Request::Release(Release { id, key: None, own: false }))?;
                }
                self.wish = None;
            }
        }
        for hold in self.holds.clone() {
            self.look_at(link, hold)?;
        }
        Ok(())
    }

    /// What is held in the name of an acquire that was not answered.
    fn look_for(&mut self, link: &mut Link, wish: &Wish) -> Result<Vec<LockId>, Lost> {
        let mut ids = Vec::new();
        for key in &wish.keys {
            let answer = self.ask(link, Request::Inspect(Inspect { key: &key_name(*key) }))?;
            let Response::Inspected(inspected) = answer.response() else { return Err(self.odd(&answer)) };
            let own = inspected.holders.iter().filter(|holder| holder.owner == wish.name.as_bytes());
            ids.extend(own.map(|holder| holder.id));
        }
        let call = Call { invoked: wish.invoked, returned: now() };
        let lease_ms = if wish.session_lease { SESSION_LEASE_MS } else { wish.lease_ms };
        // Later they may end one by one.
        if wish.keys.len() > 1 && call.returned < wish.invoked + u64::from(lease_ms) * 1000 {
            let (held, wanted) = (ids.len(), wish.keys.len());
            self.history.push(Entry::Found { call, name: wish.name.clone(), held, wanted });
        }
        Ok(ids)
    }

    fn step(&mut self, link: &mut Link, target: &Target) -> Result<(), Lost> {
        let dice = self.random.random_range(0..100);
        if self.holds.is_empty() || (self.holds.len() < HOLDS_MAX && dice < 45) {
            let wish = self.new_wish();
            return self.send_wish(link, &wish, target);
        }
        let index = self.random.random_range(0..self.holds.len());
        let hold = self.holds[index];
        // The client soon releases the holds of a large claim.
        let dice = if self.holds.len() > 2 * HOLDS_MAX { dice.max(70) } else { dice };
        if dice < 75 && !hold.session_lease {
            self.renew(link, index)
        } else if dice < 80 {
            self.look_at(link, hold)
        } else {
            self.holds.swap_remove(index);
            self.give_back(link, hold.id)
        }
    }

    fn new_wish(&mut self) -> Wish {
        let is_large = self.random.random_range(0..1_000) < LARGE_PERMILLE;
        let keys = if is_large { self.large_keys() } else { self.few_keys() };
        let session_lease = self.kind == Kind::Session && self.random.random_bool(0.3);
        self.wish_count += 1;
        Wish {
            number: self.take_number(),
            name: format!("{}-{}", self.number, self.wish_count),
            keys,
            shared: self.random.random_bool(0.25),
            lease_ms: if session_lease { 0 } else { LEASES_MS[self.random.random_range(0..LEASES_MS.len())] },
            wait_ms: if self.random.random_bool(0.5) { 0 } else { self.random.random_range(1..60) },
            session_lease,
            has_metadata: is_large || self.random.random_bool(0.2),
            invoked: now(),
        }
    }

    fn few_keys(&mut self) -> Vec<u32> {
        let count = if self.random.random_bool(0.3) { self.random.random_range(2..6) } else { 1 };
        let mut keys: Vec<u32> = (0..count).map(|_| self.random.random_range(0..KEY_COUNT)).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// Half of them at least, so that large claims meet.
    fn large_keys(&mut self) -> Vec<u32> {
        let count = self.random.random_range(LARGE_KEY_COUNT / 2..=LARGE_KEY_COUNT);
        (KEY_COUNT..KEY_COUNT + count).collect()
    }

    fn send_wish(&mut self, link: &mut Link, wish: &Wish, target: &Target) -> Result<(), Lost> {
        self.wish = Some(wish.clone());
        let request_id = (self.kind == Kind::Named).then_some(wish.name.as_bytes());
        let owner = Some(wish.name.as_bytes());
        let metadata = wish.has_metadata.then_some(&METADATA[..]);
        let options =
            AcquireOptions { scope: Some(2), request_id, owner, metadata, ..AcquireOptions::default() };
        let Wish { lease_ms, wait_ms, session_lease, shared, .. } = *wish;
        let names: Vec<Vec<u8>> = wish.keys.iter().map(|key| key_name(*key)).collect();
        let answer = if let [key] = &names[..] {
            let acquire = Acquire {
                key,
                shared,
                terms: AcquireTerms { lease_ms, wait_ms, session_lease, options, ..AcquireTerms::default() },
            };
            link.ask(wish.number, Request::Acquire(acquire))?
        } else {
            let mut buffer = Vec::new();
            let items = Items::new(names.iter().map(|key| KeyItem { shared, key }), &mut buffer);
            let items = items.expect("as many keys as a claim may have");
            let acquire = AcquireKeys {
                items,
                terms: AcquireTerms { lease_ms, wait_ms, session_lease, options, ..AcquireTerms::default() },
            };
            link.ask(wish.number, Request::AcquireKeys(acquire))?
        };
        self.take_answer(link, wish, &answer, target)
    }

    fn take_answer(
        &mut self,
        link: &Link,
        wish: &Wish,
        answer: &Received,
        target: &Target,
    ) -> Result<(), Lost> {
        let call = Call { invoked: wish.invoked, returned: now() };
        let mut granted = |id, key, fence, until| {
            let shared = wish.shared;
            self.history.push(Entry::Granted { call, id, key, shared, fence, until });
            self.holds.push(Held { id, session_lease: wish.session_lease, until });
            target.grants.fetch_add(1, Ordering::Relaxed);
        };
        match answer.response() {
            Response::Granted(grant) if wish.keys.len() == 1 => {
                let until = link.until(grant.stamp_ms, grant.remaining_ms);
                granted(grant.id, wish.keys[0], grant.fence, until);
            }
            Response::GrantedKeys(grants) if wish.keys.len() > 1 => {
                for grant in &grants.keys {
                    let key = wish.keys.iter().find(|key| key_name(**key) == grant.key).copied();
                    let until = link.until(grants.stamp_ms, grant.remaining_ms);
                    granted(grant.id, key.expect("only what was asked for"), grant.fence, until);
                }
            }
            Response::Error(error) => match error.code {
                ErrorCode::Busy | ErrorCode::Timeout | ErrorCode::Shutdown => {}
                ErrorCode::NoSpace => {
                    target.no_space.fetch_add(1, Ordering::Relaxed);
                }
                ErrorCode::Unknown => return Err(Lost),
                _ => return Err(self.odd(answer)),
            },
            _ => return Err(self.odd(answer)),
        }
        self.wish = None;
        Ok(())
    }

    fn renew(&mut self, link: &mut Link, index: usize) -> Result<(), Lost> {
        let Held { id, .. } = self.holds[index];
        let lease_ms = LEASES_MS[self.random.random_range(0..LEASES_MS.len())];
        let invoked = now();
        let answer = self.ask(link, Request::Extend(Extend { id, lease_ms, key: None, own: false }));
        let call = Call { invoked, returned: now() };
        let outcome = match answer.as_ref().map(Received::response) {
            Ok(Response::Extended(extended)) => {
                Renewal::Done { until: link.until(extended.stamp_ms, extended.remaining_ms) }
            }
            Ok(Response::Error(error)) if error.code == ErrorCode::NotFound => Renewal::Gone,
            _ => Renewal::Lost { lease: u64::from(lease_ms) * 1000 },
        };
        self.history.push(Entry::Renewed { call, id, outcome });
        match (outcome, answer?) {
            (Renewal::Done { until }, _) => self.holds[index].until = until,
            (Renewal::Gone, _) => drop(self.holds.swap_remove(index)),
            (Renewal::Lost { .. }, answer) => return Err(self.odd(&answer)),
        }
        Ok(())
    }

    fn look_at(&mut self, link: &mut Link, hold: Held) -> Result<(), Lost> {
        let id = hold.id;
        let invoked = now();
        let answer = self.ask(link, Request::Status(Status { id, key: None }))?;
        let fence = match answer.response() {
            Response::Status(status) => Some(status.fence),
            Response::Error(error) if error.code == ErrorCode::NotFound => None,
            _ => return Err(self.odd(&answer)),
        };
        if fence.is_none() {
            self.holds.retain(|other| other.id != id);
        }
        self.history.push(Entry::Seen { call: Call { invoked, returned: now() }, id, fence });
        Ok(())
    }

    fn give_back(&mut self, link: &mut Link, id: LockId) -> Result<(), Lost> {
        let invoked = now();
        let answer = self.ask(link, Request::Release(Release { id, key: None, own: false }));
        let call = Call { invoked, returned: now() };
        let was_found = match answer.as_ref().map(Received::response) {
            Ok(Response::Released(_)) => Some(true),
            Ok(Response::Error(error)) if error.code == ErrorCode::NotFound => Some(false),
            _ => None,
        };
        self.history.push(Entry::Released { call, id, was_found });
        let answer = answer?;
        if was_found.is_some() { Ok(()) } else { Err(self.odd(&answer)) }
    }

    fn ask(&mut self, link: &mut Link, request: Request<'_>) -> Result<Received, Lost> {
        let number = self.take_number();
        link.ask(number, request)
    }

    fn take_number(&mut self) -> u32 {
        self.next_number += 1;
        self.next_number - 1
    }

    /// Notes an answer that may not be, unless it only says that the disk failed or the server ends.
    fn odd(&mut self, answer: &Received) -> Lost {
        match answer.response() {
            Response::Error(error) if matches!(error.code, ErrorCode::Unknown | ErrorCode::Shutdown) => Lost,
            other => {
                let what = format!("{other:?}");
                self.wrong(what)
            }
        }
    }

    fn wrong(&mut self, what: String) -> Lost {
        let invoked = now();
        self.history.push(Entry::Wrong { call: Call { invoked, returned: invoked }, what });
        Lost
    }
}
