//! The language of the files in `tests/spec`.
//!
//! A file is a list of blocks with blank lines between them. A block is one or more commands, one per line, then
//! `----`, then what the engine said, one effect per line in the order in which it became true. `#` begins a comment.
//!
//! ```text
//! acquire LANE KEY [as NAME] [shared] [session] [queued] [lease=TIME] [wait=TIME|forever] [priority=N]
//!         [request=ID] [owner=WHO] [metadata=TEXT] [release_after=TIME] [scope=local|quorum]
//! release LANE CLAIM [key=KEY]          extend LANE CLAIM lease=TIME [key=KEY]
//! cancel LANE CLAIM                     status LANE CLAIM [key=KEY]
//! inspect LANE KEY                      list LANE [PREFIX] [count=N] [bytes=N]
//! detach LANE      attach LANE          close LANE [session_ended]
//! advance TIME [stalled]                stop
//! lane LANE [owner=WHO] [namespace=N] [session_end=TIME]
//! limits [claims=N] [idle_keys=N] [waiters=N] [linked=N] [lease_min=TIME] [lease_max=TIME]
//! counts
//! ```
//!
//! - A lane is opened by its first use; its owner is its own name.
//! - A claim is named by the key of its acquire, or by `as NAME`; another lane's claim is `LANE/NAME`.
//! - `advance` moves time on. With `stalled` the engine learns that time has passed but not that the sockets were read
//!   since, as after a pause of the whole process; `advance 0s` says that they were.
//! - `(waits)` stands for an acquire that its own step did not answer.
//! - In a key, `\0` is a zero byte.

use crate::recorder::{Effect, Recorder};
use std::fmt::Write;
use std::sync::Arc;
use waymaker_engine::{
    Acquire, AcquireOptions, Answer, Caller, CancelReason, ClaimId, Contention, Event, HeldLock, LaneAddress,
    Limits, PageBounds, Refusal, RevokeReason, Scope, Shard, ShardConfig, Ticket, Time,
};

/// A shard, and the names that a file gives to things in it.
pub(crate) struct Stage {
    shard: Shard,
    limits: Limits,
    now: Time,
    drained: Time,
    lanes: Vec<NamedLane>,
    claims: Vec<NamedClaim>,
    effects: Recorder,
}

struct NamedLane {
    name: String,
    owner: Arc<[u8]>,
    namespace: u16,
    generation: u32,
    session_end: Option<Time>,
}

struct NamedClaim {
    lane: usize,
    name: String,
    number: u32,
    id: Option<ClaimId>,
}

/// The words of a command, taken out one after the other.
struct Words<'a> {
    words: Vec<&'a str>,
}

impl<'a> Words<'a> {
    fn next(&mut self, what: &str) -> &'a str {
        assert!(!self.words.is_empty(), "{what} is missing");
        self.words.remove(0)
    }

    fn flag(&mut self, name: &str) -> bool {
        let found = self.words.iter().position(|word| *word == name);
        found.map(|index| self.words.remove(index)).is_some()
    }

    fn value(&mut self, name: &str) -> Option<&'a str> {
        let value = |word: &&'a str| word.strip_prefix(name)?.strip_prefix('=');
        let index = self.words.iter().position(|word| value(word).is_some())?;
        value(&self.words.remove(index))
    }

    fn number(&mut self, name: &str) -> Option<u32> {
        self.value(name).map(|value| value.parse().unwrap_or_else(|_| panic!("{name}={value}: not a number")))
    }

    fn millis(&mut self, name: &str) -> Option<u32> {
        self.value(name).map(millis)
    }

    fn finish(self) {
        assert!(self.words.is_empty(), "too many words: {:?}", self.words);
    }
}

fn millis(text: &str) -> u32 {
    if text == "forever" {
        return u32::MAX;
    }
    let (digits, factor) = match (text.strip_suffix("ms"), text.strip_suffix('s'), text.strip_suffix('h')) {
        (Some(digits), ..) => (digits, 1),
        (_, Some(digits), _) => (digits, 1000),
        (.., Some(digits)) => (digits, 3_600_000),
        _ => panic!("{text} is not a time: 5ms, 5s, 5h, forever"),
    };
    digits.parse::<u32>().unwrap_or_else(|_| panic!("{text} is not a time")) * factor
}

fn shown_millis(millis: u64) -> String {
    match millis {
        4_294_967_295 => "forever".to_owned(),
        _ if millis.is_multiple_of(3_600_000) && millis > 0 => format!("{}h", millis / 3_600_000),
        _ if millis.is_multiple_of(1000) => format!("{}s", millis / 1000),
        _ => format!("{millis}ms"),
    }
}

fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace('\0', "\\0")
}

fn key_of(word: &str) -> Vec<u8> {
    word.replace("\\0", "\0").into_bytes()
}

fn mode(shared: bool) -> &'static str {
    if shared { "shared" } else { "exclusive" }
}

impl Stage {
    pub(crate) fn new() -> Self {
        let limits = Limits::default();
        Self {
            shard: Self::shard(limits),
            limits,
            now: Time::from_millis(1000),
            drained: Time::from_millis(1000),
            lanes: Vec::new(),
            claims: Vec::new(),
            effects: Recorder::default(),
        }
    }

    fn shard(limits: Limits) -> Shard {
        Shard::new(&ShardConfig {
            number: 3,
            limits,
            hash_seeds: [1, 2, 3, 4],
            secret_seed: [7; 32],
            start: Time::from_millis(1000),
        })
    }

    /// Runs one command. Says what the engine said.
    pub(crate) fn run(&mut self, command: &str) -> String {
        let mut words = Words { words: command.split_whitespace().collect() };
        let verb = words.next("the command");
        let mut waits = None;
        let mut text = String::new();
        if verb == "limits" {
            self.set_limits(words);
            return text;
        }
        self.shard.begin_turn(self.now, self.drained, &mut self.effects);
        match verb {
            "acquire" => waits = Some(self.acquire(words)),
            "release" | "extend" | "status" | "cancel" => self.on_claim(verb, words),
            "inspect" => {
                let caller = self.caller(words.next("the lane"));
                let key = key_of(words.next("the key"));
                words.finish();
                self.shard.inspect(&caller, &key, &mut self.effects);
            }
            "list" => self.list(words, &mut text),
            "detach" | "attach" | "close" => self.change_lane(verb, words),
            "advance" => self.advance(words),
            "stop" => {
                words.finish();
                self.shard.stop();
                self.settle();
            }
            "lane" => self.declare_lane(words),
            "counts" => {
                words.finish();
                let (claims, idle, floor) =
                    (self.shard.claim_count(), self.shard.idle_key_count(), self.shard.floor());
                let _ = writeln!(text, "claims={claims} idle_keys={idle} floor={floor}");
            }
            _ => panic!("{verb} is no command"),
        }
        self.shard.verify();
        let effects = std::mem::take(&mut self.effects.0);
        let answered = |effect: &Effect, number: u32| matches!(effect, Effect::Answer(ticket, _) if ticket.number == number);
        if let Some(number) = waits
            && !effects.iter().any(|effect| answered(effect, number))
        {
            let lane = &self.lanes[self.claim_by_number(number).lane].name;
            let _ = writeln!(text, "{lane}: (waits)");
        }
        for effect in &effects {
            let line = self.line(effect);
            let _ = writeln!(text, "{line}");
        }
        text
    }

    fn set_limits(&mut self, mut words: Words<'_>) {
        let set = |limit: &mut u32, value: Option<u32>| *limit = value.unwrap_or(*limit);
        set(&mut self.limits.claim_count_max, words.number("claims"));
        set(&mut self.limits.idle_key_count_max, words.number("idle_keys"));
        set(&mut self.limits.waiter_count_per_key_max, words.number("waiters"));
        set(&mut self.limits.linked_claim_count_per_lane_max, words.number("linked"));
        set(&mut self.limits.lease_min_ms, words.millis("lease_min"));
        set(&mut self.limits.lease_max_ms, words.millis("lease_max"));
        words.finish();
        assert!(self.claims.is_empty() && self.lanes.is_empty(), "limits come first");
        self.shard = Self::shard(self.limits);
    }

    /// Turns until nothing is left over.
    fn settle(&mut self) {
        loop {
            self.shard.begin_turn(self.now, self.drained, &mut self.effects);
            self.shard.verify();
            if self.shard.next_deadline() > self.drained {
                return;
            }
        }
    }

    fn advance(&mut self, mut words: Words<'_>) {
        let stalled = words.flag("stalled");
        self.now = self.now.after_ms(u64::from(millis(words.next("a time"))));
        words.finish();
        if !stalled {
            self.drained = self.now;
        }
        self.settle();
    }

    fn lane(&mut self, name: &str) -> usize {
        if let Some(index) = self.lanes.iter().position(|lane| lane.name == name) {
            return index;
        }
        self.lanes.push(NamedLane {
            name: name.to_owned(),
            owner: name.as_bytes().into(),
            namespace: 0,
            generation: 0,
            session_end: None,
        });
        self.lanes.len() - 1
    }

    fn declare_lane(&mut self, mut words: Words<'_>) {
        let index = self.lane(words.next("the lane"));
        let now = self.now;
        let lane = &mut self.lanes[index];
        if let Some(owner) = words.value("owner") {
            lane.owner = owner.as_bytes().into();
        }
        if let Some(namespace) = words.number("namespace") {
            lane.namespace = namespace as u16;
        }
        lane.session_end = words.millis("session_end").map(|millis| now.after_ms(u64::from(millis)));
        words.finish();
    }

    fn address(&self, lane: usize) -> LaneAddress {
        LaneAddress { worker: 0, slot: lane as u32, generation: self.lanes[lane].generation }
    }

    fn caller(&mut self, lane: &str) -> Caller {
        let index = self.lane(lane);
        let address = self.address(index);
        let lane = &self.lanes[index];
        let number = self.shard.lane(address, &lane.owner, 0);
        if let Some(session_end) = lane.session_end {
            self.shard.note_session_end(number, session_end);
        }
        let request = self.claims.len() as u32;
        Caller { lane: number, ticket: Ticket { lane: address, number: request }, namespace: lane.namespace }
    }

    /// Asks for a key. Says the number of the request.
    fn acquire(&mut self, mut words: Words<'_>) -> u32 {
        let lane_name = words.next("the lane");
        let caller = self.caller(lane_name);
        let key_word = words.next("the key");
        let key = key_of(key_word);
        let name = if words.flag("as") { words.next("a name") } else { key_word };
        let scope = match words.value("scope") {
            Some("local") => Scope::Local,
            Some("quorum") => Scope::Quorum,
            _ => Scope::Ephemeral,
        };
        let options = AcquireOptions {
            release_after_ms: words.millis("release_after"),
            priority: words.number("priority").unwrap_or(0),
            scope,
            request_id: words.value("request").map(str::as_bytes),
            owner: words.value("owner").map(str::as_bytes),
            metadata: words.value("metadata").map(str::as_bytes),
        };
        let is_plain = options.release_after_ms.is_none()
            && options.priority == 0
            && options.scope == Scope::Ephemeral
            && options.request_id.is_none()
            && options.owner.is_none()
            && options.metadata.is_none();
        let hash = self.shard.hash(caller.namespace, &key);
        let acquire = Acquire {
            key: &key,
            hash,
            lease_ms: words.millis("lease").unwrap_or(0),
            wait_ms: words.millis("wait").unwrap_or(0),
            shared: words.flag("shared"),
            session_lease: words.flag("session"),
            notify_queued: words.flag("queued"),
            options: (!is_plain).then_some(&options),
        };
        words.finish();
        let lane = self.lane(lane_name);
        let number = caller.ticket.number;
        self.claims.push(NamedClaim { lane, name: name.to_owned(), number, id: None });
        self.shard.acquire(&caller, &acquire, &mut self.effects);
        number
    }

    fn on_claim(&mut self, verb: &str, mut words: Words<'_>) {
        let lane_name = words.next("the lane");
        let mut caller = self.caller(lane_name);
        let target = words.next("the claim");
        let lease_ms = words.millis("lease");
        let key = words.value("key").map(key_of);
        words.finish();
        let (lane_name, name) = target.split_once('/').unwrap_or((lane_name, target));
        let lane = self.lane(lane_name);
        let named = |claim: &&NamedClaim| claim.lane == lane && claim.name == name;
        let claim = self.claims.iter().rfind(named).unwrap_or_else(|| panic!("no claim {target}"));
        let number = claim.number;
        let id = claim.id;
        // Whatever is asked about a claim is numbered like it, so that the answer shows its name.
        caller.ticket.number = number;
        if verb == "cancel" {
            return self.shard.cancel(&caller, number, &mut self.effects);
        }
        let id = id.unwrap_or_else(|| panic!("the id of {target} is not known: ask for `queued`"));
        let key = key.as_deref();
        match verb {
            "release" => self.shard.release(&caller, id, key, &mut self.effects),
            "extend" => {
                let lease_ms = lease_ms.unwrap_or_else(|| panic!("lease is missing"));
                self.shard.extend(&caller, id, key, lease_ms, &mut self.effects);
            }
            _ => self.shard.status(&caller, id, key, &mut self.effects),
        }
    }

    fn list(&mut self, mut words: Words<'_>, text: &mut String) {
        let caller = self.caller(words.next("the lane"));
        let count_max = words.number("count").map_or(usize::MAX, |count| count as usize);
        let bytes_max = words.number("bytes").map_or(usize::MAX, |bytes| bytes as usize);
        let prefix = if words.words.is_empty() { Vec::new() } else { key_of(words.next("the prefix")) };
        words.finish();
        let mut from = Some(0);
        while let Some(slot) = from {
            let mut page = Recorder::default();
            self.shard.list(&caller, &prefix, slot, &PageBounds { count_max, bytes_max }, &mut page);
            let Some(Effect::Answer(_, Answer::Listed(page))) = page.0.pop() else { panic!("no page") };
            let _ = writeln!(text, "page");
            for lock in &page.locks {
                let _ = writeln!(text, "  {}: {}", shown(&lock.key), shown_lock(lock));
            }
            from = page.next;
        }
    }

    fn change_lane(&mut self, verb: &str, mut words: Words<'_>) {
        let lane = self.lane(words.next("the lane"));
        let session_ended = words.flag("session_ended");
        words.finish();
        let address = self.address(lane);
        match verb {
            "detach" => self.shard.detach_lane(address, &mut self.effects),
            "attach" => self.shard.attach_lane(address, &mut self.effects),
            _ => {
                self.shard.close_lane(address, session_ended, &mut self.effects);
                self.lanes[lane].generation += 1;
            }
        }
    }

    fn claim_by_number(&self, number: u32) -> &NamedClaim {
        &self.claims[number as usize]
    }

    /// The name of a claim as this lane knows it.
    fn name_of(&self, id: ClaimId, lane: u32) -> String {
        let same = |claim: &&NamedClaim| claim.id == Some(id);
        let own = self.claims.iter().rfind(|claim| same(claim) && claim.lane == lane as usize);
        match (own, self.claims.iter().rfind(same)) {
            (Some(claim), _) => claim.name.clone(),
            (None, Some(claim)) => format!("{}/{}", self.lanes[claim.lane].name, claim.name),
            (None, None) => "an unknown claim".to_owned(),
        }
    }

    fn line(&mut self, effect: &Effect) -> String {
        match effect {
            Effect::Answer(ticket, answer) => {
                let lane = self.lanes[ticket.lane.slot as usize].name.clone();
                let name =
                    self.claims.get(ticket.number as usize).map_or(String::new(), |claim| claim.name.clone());
                let name = match self.claims.get(ticket.number as usize) {
                    Some(claim) if claim.lane != ticket.lane.slot as usize => {
                        format!("{}/{name}", self.lanes[claim.lane].name)
                    }
                    _ => name,
                };
                if let Answer::Granted(grant) = answer {
                    let other = |claim: &NamedClaim| claim.id == Some(grant.id);
                    assert!(
                        grant.repeated
                            || !self
                                .claims
                                .iter()
                                .any(|claim| other(claim) && claim.number != ticket.number && !grant.waited),
                        "id used twice"
                    );
                    self.claims[ticket.number as usize].id = Some(grant.id);
                }
                format!("{lane}: {}", shown_answer(answer, &name))
            }
            Effect::Event(lane, event) => {
                if let Event::Queued { number, id, .. } = event {
                    self.claims[*number as usize].id = Some(*id);
                }
                let text = match event {
                    Event::Queued { number, position, ticket, .. } => {
                        let name = &self.claim_by_number(*number).name;
                        format!("queued {name} position={position} ticket={ticket}")
                    }
                    Event::Expired { id } => format!("expired {}", self.name_of(*id, lane.slot)),
                    Event::LeaseMoved { id, remaining_ms } => {
                        let name = self.name_of(*id, lane.slot);
                        format!("lease moved {name} remaining={}", shown_millis(u64::from(*remaining_ms)))
                    }
                    Event::Revoked { id, reason } => {
                        let why = match reason {
                            RevokeReason::ReleasedElsewhere => "released elsewhere".to_owned(),
                            RevokeReason::ConnectionLost => "connection lost".to_owned(),
                            RevokeReason::Forced(reason) => format!("forced, {}", shown(reason)),
                        };
                        format!("revoked {}: {why}", self.name_of(*id, lane.slot))
                    }
                    Event::KeyHeld { number, fence, shared, owner } => {
                        format!("watch {number}: held {} fence={fence} by {}", mode(*shared), shown(owner))
                    }
                    Event::KeyFreed { number, fence } => format!("watch {number}: free fence={fence}"),
                };
                format!("{}: {text}", self.lanes[lane.slot as usize].name)
            }
        }
    }
}

fn shown_answer(answer: &Answer, name: &str) -> String {
    match answer {
        Answer::Granted(grant) => {
            let mut text = format!("granted {name} fence={}", grant.fence);
            if grant.session_lease {
                text.push_str(" session");
            } else {
                let _ = write!(text, " remaining={}", shown_millis(u64::from(grant.remaining_ms)));
            }
            for (flag, word) in
                [(grant.clamped, "clamped"), (grant.waited, "waited"), (grant.repeated, "repeated")]
            {
                if flag {
                    let _ = write!(text, " {word}");
                }
            }
            text
        }
        Answer::Released { was_waiting } => {
            format!("released {name}{}", if *was_waiting { " before it was granted" } else { "" })
        }
        Answer::Extended { remaining_ms, clamped } => {
            let clamped = if *clamped { " clamped" } else { "" };
            format!("extended {name} remaining={}{clamped}", shown_millis(u64::from(*remaining_ms)))
        }
        Answer::Cancelled { was_waiting: true } => format!("gave up {name}"),
        Answer::Cancelled { was_waiting: false } => format!("nothing to give up at {name}"),
        Answer::Status(status) => {
            let state = if status.held { "held" } else { "waits" };
            let session = if status.session_lease { " session" } else { "" };
            format!(
                "{name} is `{}` {state} {}{session} fence={} remaining={} age={} priority={}",
                shown(&status.key),
                mode(status.shared),
                status.fence,
                shown_millis(u64::from(status.remaining_ms)),
                shown_millis(status.age_ms),
                status.priority
            )
        }
        Answer::Inspected(key) => {
            let mut text =
                format!("fence={} holders={} waiters={}", key.fence, key.holder_count, key.waiter_count);
            for lock in &key.holders {
                let _ = write!(text, "\n  {}", shown_lock(lock));
            }
            text
        }
        Answer::Listed(_) => unreachable!("shown by `list`"),
        Answer::Refused(refusal) => format!("refused {name}: {}", shown_refusal(refusal)),
        other => format!("{name}: {other:?}"),
    }
}

fn shown_refusal(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Busy(contention) => format!("busy, {}", shown_contention(contention)),
        Refusal::Timeout(contention) => format!("timeout, {}", shown_contention(contention)),
        Refusal::Cancelled(CancelReason::Asked) => "cancelled".to_owned(),
        Refusal::Cancelled(CancelReason::Superseded) => "cancelled, superseded".to_owned(),
        Refusal::Cancelled(CancelReason::ConnectionLost) => "cancelled, connection lost".to_owned(),
        Refusal::NotFound => "not_found".to_owned(),
        Refusal::NotHeld => "not_held".to_owned(),
        Refusal::BadInput { field, limit, message } => format!("bad_input, {field} ({limit}): {message}"),
        Refusal::Overloaded { limit, value } => format!("overloaded, {limit} ({value})"),
        Refusal::ScopeUnavailable(scope) => format!("scope_unavailable, {scope:?}"),
        Refusal::Shutdown => "shutdown".to_owned(),
        Refusal::Cancelled(CancelReason::Forced) => "cancelled, forced".to_owned(),
        other => format!("{other:?}"),
    }
}

fn shown_contention(contention: &Contention) -> String {
    let state = if contention.held { "held" } else { "awaited" };
    format!(
        "{state} by {} {} age={} remaining={} waiters={}",
        shown(&contention.owner),
        mode(contention.shared),
        shown_millis(contention.age_ms),
        shown_millis(u64::from(contention.remaining_ms)),
        contention.waiter_count
    )
}

fn shown_lock(lock: &HeldLock) -> String {
    let mut text = format!(
        "{} {} fence={} held={} remaining={}",
        shown(&lock.owner),
        mode(lock.shared),
        lock.fence,
        shown_millis(lock.held_ms),
        shown_millis(u64::from(lock.remaining_ms))
    );
    if lock.priority != 0 {
        let _ = write!(text, " priority={}", lock.priority);
    }
    for (name, value) in [("request", &lock.request_id), ("metadata", &lock.metadata)] {
        if !value.is_empty() {
            let _ = write!(text, " {name}={}", shown(value));
        }
    }
    text
}
