//! The language of the files in `tests/spec`.
//!
//! A file is a list of blocks with blank lines between them. A block is one or more commands, one per line, then
//! `----`, then what the engine said, one effect per line in the order in which it became true. `#` begins a comment.
//!
//! ```text
//! acquire LANE KEY [as NAME] [shared] OPTIONS
//! acquire_keys LANE NAME OPTIONS : KEY [r], KEY [w], ...            several keys
//! acquire_set LANE NAME OPTIONS : PATH [r], PATH [w], ...           paths of a tree
//! acquire_permits LANE POOL [as NAME] [permits=N] [capacity=N] [by_time] [at=N] OPTIONS
//!     OPTIONS: [session] [queued] [lease=TIME] [wait=TIME|forever] [priority=N] [request=ID] [owner=WHO]
//!              [metadata=TEXT] [release_after=TIME] [scope=local|quorum]
//! release LANE CLAIM [key=KEY] [own]    extend LANE CLAIM lease=TIME [key=KEY] [own]
//! cancel LANE CLAIM                     status LANE CLAIM [key=KEY]
//! force_release LANE CLAIM reason=TEXT
//!
//! inspect LANE KEY|path=PATH            verify LANE KEY|path=PATH fence=N
//! list LANE [PREFIX] [count=N] [bytes=N]                            every hold of the namespace
//! holds LANE [count=N] [bytes=N]                                    every hold of the lane
//! watch LANE KEY                        unwatch LANE KEY
//! freeze LANE PREFIX                    thaw LANE PREFIX
//! describe LANE POOL                    set_capacity LANE POOL capacity=N [by_time]
//! pools LANE [PREFIX] [count=N] [bytes=N]                           every pool of the namespace
//! tree_statistics LANE
//! register LANE KEY owner=WHO lease=TIME|until=TIME [value=TEXT] [type=TEXT] [lazy]
//!     [ephemeral]
//! heartbeat (as register)               unregister LANE KEY owner=WHO [lazy]
//! look_up LANE KEY                      registrations LANE [type=TEXT] [count=N] [bytes=N]
//! throttle LANE BUCKET rate=N per=TIME burst=N cost=N [refund] [after=TIME]
//! throttle_all LANE [refund] [after=TIME] : BUCKET rate=N per=TIME burst=N cost=N, ...
//!
//! detach LANE      attach LANE          close LANE [session_ended]
//! advance TIME [stalled]                stop
//! delay            follow_up
//! lane LANE [owner=WHO] [namespace=N] [session_end=TIME]
//! limits [claims=N] [idle_keys=N] [waiters=N] [linked=N] [paths=N] [nodes=N] [tree_nodes=N] [set_pools=N] [buckets=N] [lease_min=TIME] [lease_max=TIME]
//! shards N         counts               counters
//!
//! log ready|no_space|slow|absent        recorded
//! synced                                clean_stop
//! losses wait=TIME
//! restart [same_boot|reboot] [disk_lost] [after=TIME] [shards=N]
//!
//! quorum ready|unavailable|absent       counter KEY N
//! counted                               not_counted
//! ```
//!
//! - A lane is opened by its first use; its owner is its own name.
//! - A claim is named by the key of its acquire, or by `as NAME`; another lane's claim is `LANE/NAME`. Of several keys
//!   `NAME` is the claim while it waits, and `NAME.KEY` are its holds.
//! - `advance` moves time on. With `stalled` the engine learns that time has passed but not that the sockets were read
//!   since, as after a pause of the whole process; `advance 0s` says that they were.
//! - `(waits)` stands for an acquire that its own step did not answer.
//! - `inspect` shows who holds, then who waits, first in line first; `claim=` names a waiter whose id was told before.
//! - In a key, `\0` is a zero byte, and `""` nothing. Of a path `/` is the whole namespace, `""` an empty segment. In a
//!   list `r` reads and `w`, or nothing, writes.
//! - There is one shard unless `shards` says more; a key lies in the one that stands behind its `@`, else in the first.
//!   What concerns several shards the file's worker does after each command; from `delay` on it is late, until
//!   `follow_up`.
//! - There is no log until `log` says so. With `synced` everything that was recorded so far is durable, at this instant;
//!   `recorded` shows what is not; `log_failed` makes it unknown. `restart` is a crash: what was not durable is lost, connections are, and a lane of the
//!   same name is another one. Only a lane with a `session_end` has a session that is restored with its holds; `attach`
//!   brings it back. After `clean_stop`, which makes everything durable, comes a `restart`. The clock goes on over a
//!   restart of the same boot, and begins anew after a `reboot`.
//! - After `losses` new grants are refused for so long, as after a start over accepted damage.
//! - There is no cluster that counts until `quorum` says so. With `counted` it has counted all that it was asked so far, with
//!   `not_counted` it has not and never will; by `counter` somebody else has counted a key. It outlives everything, also a
//!   `disk_lost`, and counts what it was asked before a `restart`.
//! - Time is whole milliseconds; buckets count nanoseconds, `after` the present.

mod claims;
mod keys;
mod log;
mod shown;
mod words;

use crate::node::Node;
use crate::recorder::{Effect, Recorder};
use shown::shown_answer;
use std::fmt::Write;
use std::sync::Arc;
use waymaker_engine::{
    Answer, Caller, ClaimId, Event, Fence, FreezeList, LaneAddress, LaneSlot, Limits, NamespaceCounters,
    RevokeReason, Shard, Ticket, Time,
};
use waymaker_log::SessionTag;
use words::{Words, millis, mode, shard_of, shown, shown_millis};

const START: Time = Time::from_millis(1000);

/// A shard, or a few, and the names that a file gives to things in them.
pub(crate) struct Stage {
    node: Node,
    limits: Limits,
    now: Time,
    drained: Time,
    lanes: Vec<NamedLane>,
    claims: Vec<NamedClaim>,
    freezes: FreezeList,
    /// The worker does not get to what several turns are needed for.
    is_late: bool,
    /// Restarts so far, and the number of this boot of the machine.
    restart_count: u64,
    boot: u8,
    effects: Recorder,
}

struct NamedLane {
    name: String,
    owner: Arc<[u8]>,
    namespace: u16,
    generation: u32,
    session_end: Option<Time>,
}

/// Whatever a later line may mean by its name: a claim, a watch.
struct NamedClaim {
    lane: usize,
    name: String,
    number: u32,
    /// What stands behind the `@` of its key: it lies in that shard if there are so many.
    shard: u16,
    id: Option<ClaimId>,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let limits = Limits::default();
        Self {
            node: Node::new(1, limits, START, 1),
            limits,
            now: START,
            drained: START,
            lanes: Vec::new(),
            claims: Vec::new(),
            freezes: FreezeList::default(),
            is_late: false,
            restart_count: 1,
            boot: 1,
            effects: Recorder::default(),
        }
    }

    /// Runs one command. Says what the engine said.
    pub(crate) fn run(&mut self, command: &str) -> String {
        let mut words = Words::new(command);
        let verb = words.next("the command");
        let mut waits = None;
        let mut text = String::new();
        if verb == "limits" || verb == "shards" {
            self.set_up(verb, words);
            return text;
        }
        if verb == "restart" {
            self.restart(words);
            self.finish(None, &mut text);
            return text;
        }
        self.node.begin_turns(self.now, self.drained, &mut self.effects);
        match verb {
            "acquire" => waits = Some(self.acquire(words)),
            "acquire_keys" => waits = Some(self.acquire_keys(words)),
            "acquire_set" => waits = Some(self.acquire_set(words)),
            "acquire_permits" => waits = Some(self.acquire_permits(words)),
            "release" | "extend" | "status" | "cancel" | "force_release" => self.on_claim(verb, words),
            "inspect" | "verify" => self.on_key(verb, words),
            "list" | "holds" | "registrations" | "pools" => self.list(verb, words, &mut text),
            "watch" | "unwatch" => self.watch(verb, words),
            "freeze" | "thaw" => self.freeze(verb, words, &mut text),
            "describe" | "set_capacity" => self.on_pool(verb, words),
            "tree_statistics" => self.count_tree(words),
            "register" | "heartbeat" => self.register(verb, words),
            "unregister" | "look_up" => self.on_registration(verb, words),
            "throttle" => self.throttle(words),
            "throttle_all" => self.throttle_all(words),
            "detach" | "attach" | "close" => self.change_lane(verb, words),
            "advance" => self.advance(words),
            "losses" => {
                let grants_from = self.now.after_ms(words.millis("wait").unwrap_or(0).into());
                words.finish();
                for shard in &mut self.node.shards {
                    shard.refuse_grants_until(grants_from);
                }
            }
            "stop" => {
                words.finish();
                self.node.shards.iter_mut().for_each(Shard::stop);
                self.settle();
            }
            "delay" | "follow_up" => {
                words.finish();
                self.is_late = verb == "delay";
            }
            "lane" => self.declare_lane(words),
            "counts" => {
                words.finish();
                self.count(&mut text);
            }
            "counters" => {
                words.finish();
                self.count_namespaces(&mut text);
            }
            "log" => self.set_log(words),
            "synced" => self.sync(words),
            "log_failed" => self.fail_log(words),
            "clean_stop" => self.stop_cleanly(words),
            "quorum" => self.set_quorum(words),
            "counted" => self.count_in_quorum(true, words),
            "not_counted" => self.count_in_quorum(false, words),
            "counter" => self.set_quorum_counter(words),
            "recorded" => self.show_recorded(words, &mut text),
            _ => panic!("{verb} is no command"),
        }
        self.finish(waits, &mut text);
        text
    }

    fn finish(&mut self, waits: Option<u32>, text: &mut String) {
        if !self.is_late {
            self.node.follow_up(self.now, self.drained, &mut self.effects);
        }
        self.node.log.take(&mut self.effects, self.now);
        for question in self.effects.asked.drain(..) {
            self.node.quorum.ask(question);
        }
        self.node.verify();
        self.say(waits, text);
    }

    /// Writes down what became true.
    fn say(&mut self, waits: Option<u32>, text: &mut String) {
        let effects = std::mem::take(&mut self.effects.said);
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
    }

    fn set_up(&mut self, verb: &str, mut words: Words<'_>) {
        assert!(self.claims.is_empty() && self.lanes.is_empty(), "limits and shards come first");
        let mut shard_count = self.node.shards.len() as u16;
        if verb == "shards" {
            shard_count = words.next("a number").parse().expect("a number of shards");
        } else {
            let set = |limit: &mut u32, value: Option<u32>| *limit = value.unwrap_or(*limit);
            set(&mut self.limits.claim_count_max, words.number("claims"));
            set(&mut self.limits.idle_key_count_max, words.number("idle_keys"));
            set(&mut self.limits.waiter_count_per_key_max, words.number("waiters"));
            set(&mut self.limits.linked_claim_count_per_lane_max, words.number("linked"));
            set(&mut self.limits.path_count_per_lane_max, words.number("paths"));
            set(&mut self.limits.node_count_max, words.number("nodes"));
            set(&mut self.limits.node_count_per_tree_max, words.number("tree_nodes"));
            set(&mut self.limits.set_pool_count_max, words.number("set_pools"));
            set(&mut self.limits.bucket_count_max, words.number("buckets"));
            set(&mut self.limits.lease_min_ms, words.millis("lease_min"));
            set(&mut self.limits.lease_max_ms, words.millis("lease_max"));
        }
        words.finish();
        self.node = Node::new(shard_count, self.limits, START, 1);
    }

    fn settle(&mut self) {
        self.node.settle(self.now, self.drained, &mut self.effects);
        self.node.verify();
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

    fn count(&self, text: &mut String) {
        let shards = &self.node.shards;
        let claims: u32 = shards.iter().map(Shard::claim_count).sum();
        let idle: u32 = shards.iter().map(Shard::idle_key_count).sum();
        let floor = shards.iter().map(Shard::floor).max().unwrap_or(Fence::NONE);
        let _ = writeln!(text, "claims={claims} idle_keys={idle} floor={floor}");
    }

    fn count_namespaces(&self, text: &mut String) {
        let last = self.lanes.iter().map(|lane| lane.namespace).max().unwrap_or(0);
        let namespaces: Vec<u16> = (0..=last).collect();
        let mut sums = vec![NamespaceCounters::default(); namespaces.len()];
        for shard in &self.node.shards {
            let mut held = vec![0; namespaces.len()];
            let mut from = Some(0);
            while let Some(lane) = from {
                from = shard.count_claims_of_lanes(lane, &namespaces, &mut held);
            }
            for (place, sum) in sums.iter_mut().enumerate() {
                sum.add(&shard.namespace_counters(namespaces[place], held[place]));
            }
        }
        while sums.len() > 1 && sums.last() == Some(&NamespaceCounters::default()) {
            sums.pop();
        }
        for (namespace, counters) in sums.iter().enumerate() {
            let NamespaceCounters { held, waiting, timeouts, expired, revoked, .. } = counters;
            let _ = writeln!(
                text,
                "namespace {namespace}: held={held} waiting={waiting} timeouts={timeouts} expired={expired} revoked={revoked}"
            );
        }
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
        LaneAddress { worker: 0, slot: LaneSlot(lane as u32), generation: self.lanes[lane].generation }
    }

    /// A caller at one shard, whose request has the next number.
    fn caller_at(&mut self, lane: &str, shard: u16) -> Caller {
        let index = self.lane(lane);
        let address = self.address(index);
        let NamedLane { owner, namespace, session_end, .. } = &self.lanes[index];
        let shard = &mut self.node.shards[usize::from(shard)];
        let number = shard.lane(address, owner, *namespace);
        if let Some(session_end) = session_end {
            shard.note_session_end(number, *session_end);
            let session = SessionTag { place: 1, secret: 2, lease_ms: 30_000, lane: index as u16 };
            shard.note_session(number, session);
        }
        let request = self.claims.len() as u32;
        Caller { lane: number, ticket: Ticket { lane: address, number: request }, namespace: *namespace }
    }

    fn shard_of_key(&mut self, key: &str) -> &mut Shard {
        let place = usize::from(self.place_of(key));
        &mut self.node.shards[place]
    }

    /// The shard in which a key lies.
    fn place_of(&self, key: &str) -> u16 {
        self.place(shard_of(key))
    }

    /// The same for what stands behind the `@` of a key.
    fn place(&self, shard: u16) -> u16 {
        if self.restart_count == 1 { shard } else { shard % self.node.shards.len() as u16 }
    }

    fn change_lane(&mut self, verb: &str, mut words: Words<'_>) {
        let lane = self.lane(words.next("the lane"));
        let session_ended = words.flag("session_ended");
        words.finish();
        let address = self.address(lane);
        for shard in &mut self.node.shards {
            match verb {
                "detach" => shard.detach_lane(address, &mut self.effects),
                "attach" => shard.attach_lane(address, &mut self.effects),
                _ => shard.close_lane(address, session_ended, &mut self.effects),
            }
        }
        self.lanes[lane].generation += u32::from(verb == "close");
    }

    /// Gives the next request a name. Says its number.
    fn name(&mut self, lane: &str, name: &str, shard: u16) -> u32 {
        let (lane, number) = (self.lane(lane), self.claims.len() as u32);
        self.claims.push(NamedClaim { lane, name: name.to_owned(), number, shard, id: None });
        number
    }

    fn claim_by_number(&self, number: u32) -> &NamedClaim {
        &self.claims[number as usize]
    }

    /// The name of a claim as this lane knows it, if its id was told.
    fn known_name_of(&self, id: ClaimId, lane: u32) -> Option<String> {
        let same = |claim: &&NamedClaim| claim.id == Some(id);
        let own = self.claims.iter().rfind(|claim| same(claim) && claim.lane == lane as usize);
        match (own, self.claims.iter().rfind(same)) {
            (Some(claim), _) => Some(claim.name.clone()),
            (None, Some(claim)) => Some(format!("{}/{}", self.lanes[claim.lane].name, claim.name)),
            (None, None) => None,
        }
    }

    fn name_of(&self, id: ClaimId, lane: u32) -> String {
        self.known_name_of(id, lane).unwrap_or_else(|| "an unknown claim".to_owned())
    }

    fn line(&mut self, effect: &Effect) -> String {
        match effect {
            Effect::Answer(ticket, answer) => {
                let lane = self.lanes[ticket.lane.slot.index()].name.clone();
                let name = match self.claims.get(ticket.number as usize) {
                    Some(claim) if claim.lane != ticket.lane.slot.index() => {
                        format!("{}/{}", self.lanes[claim.lane].name, claim.name)
                    }
                    Some(claim) => claim.name.clone(),
                    None => String::new(),
                };
                self.learn_ids(ticket.number, answer);
                let name_of = |id| self.known_name_of(id, ticket.lane.slot.0);
                format!("{lane}: {}", shown_answer(answer, &name, &name_of))
            }
            Effect::Event(lane, event) => {
                format!("{}: {}", self.lanes[lane.slot.index()].name.clone(), self.shown_event(*lane, event))
            }
        }
    }

    /// From here on a file may speak of what was granted here.
    fn learn_ids(&mut self, number: u32, answer: &Answer) {
        match answer {
            Answer::Granted(grant) => {
                let is_known =
                    self.claims.iter().any(|claim| claim.id == Some(grant.id) && claim.number != number);
                assert!(grant.repeated || grant.waited || !is_known, "id used twice");
                self.claims[number as usize].id = Some(grant.id);
            }
            Answer::GrantedMultiKey(grants) => {
                for key in grants {
                    let NamedClaim { lane, name, .. } = self.claim_by_number(number);
                    let (lane, name) = (*lane, format!("{name}.{}", shown(&key.key)));
                    let (number, id) = (self.claims.len() as u32, Some(key.grant.id));
                    self.claims.push(NamedClaim {
                        lane,
                        name,
                        number,
                        shard: shard_of(&shown(&key.key)),
                        id,
                    });
                }
            }
            Answer::Registered(registered) => self.claims[number as usize].id = Some(registered.id),
            _ => {}
        }
    }

    fn shown_event(&mut self, lane: LaneAddress, event: &Event) -> String {
        match event {
            Event::Queued { number, position, ticket, id } => {
                self.claims[*number as usize].id = Some(*id);
                let name = &self.claim_by_number(*number).name;
                format!("queued {name} position={position} ticket={ticket}")
            }
            Event::Expired { id } => format!("expired {}", self.name_of(*id, lane.slot.0)),
            Event::LeaseMoved { id, remaining_ms } => {
                let name = self.name_of(*id, lane.slot.0);
                format!("lease moved {name} remaining={}", shown_millis(u64::from(*remaining_ms)))
            }
            Event::Revoked { id, reason } => {
                let why = match reason {
                    RevokeReason::ReleasedElsewhere => "released elsewhere".to_owned(),
                    RevokeReason::Forced(reason) => format!("forced, {}", shown(reason)),
                };
                format!("revoked {}: {why}", self.name_of(*id, lane.slot.0))
            }
            Event::TakenUp { number, id } => {
                let (acquire, name) = (&self.claim_by_number(*number).name, self.name_of(*id, lane.slot.0));
                let is_part =
                    name.strip_prefix(acquire).is_some_and(|part| part.is_empty() || part.starts_with('.'));
                assert!(is_part, "{name} was granted to {acquire}");
                format!("taken up {name}")
            }
            Event::KeyHeld { number, fence, shared, owner } => {
                let name = &self.claim_by_number(*number).name;
                format!("sees {name} held {} fence={fence} by {}", mode(*shared), shown(owner))
            }
            Event::KeyFreed { number, fence } => {
                format!("sees {} free fence={fence}", self.claim_by_number(*number).name)
            }
        }
    }
}
