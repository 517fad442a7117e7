//! Commands as requests.

use super::Binary;
use super::shown::{entry, listed};
use crate::harness::WATCHDOG;
use crate::parity::command::{Acquire, Ask, Bucket, Command, Kind, OnClaim, Register, Thing};
use crate::parity::counters::Counters;
use crate::parity::pace::Pace;
use crate::parity::script::PAGE;
use crate::parity::words::{path_of, shown, shown_path};
use waymaker_protocol as wire;
use waymaker_protocol::{AcquireOptions, Items, KeyItem, PathItem, PathKey, PoolOrder, Request, Response};

/// How many stand in a page, so that a list has several.
const PAGE_SIZE: u16 = 3;

/// A key or path as the protocol has it.
fn place(kind: Kind, word: &str) -> Vec<u8> {
    if kind == Kind::Tree { path_of(word) } else { word.as_bytes().to_vec() }
}

fn order(by_time: bool) -> PoolOrder {
    if by_time { PoolOrder::Timestamp } else { PoolOrder::Arrival }
}

impl Binary {
    pub(super) async fn acquire(&mut self, command: &Command, acquire: &Acquire, pace: &Pace) {
        let bytes = |text: &'_ Option<String>| text.clone().map(String::into_bytes);
        let (request_id, owner) = (bytes(&acquire.request_id), bytes(&acquire.owner));
        let metadata = bytes(&acquire.metadata);
        let options = AcquireOptions {
            release_after_ms: acquire.release_after_ms.map(|length_ms| pace.wait_ms(length_ms)),
            priority: (acquire.priority != 0).then_some(acquire.priority),
            scope: acquire.scope,
            request_id: request_id.as_deref(),
            owner: owner.as_deref(),
            metadata: metadata.as_deref(),
            traceparent: None,
        };
        let (lease_ms, wait_ms) = (pace.millis(acquire.lease_ms), pace.wait_ms(acquire.wait_ms));
        let (session_lease, notify_queued, mut buffer) = (false, true, Vec::new());
        let paths: Vec<(Vec<u8>, bool)> = match &acquire.thing {
            Thing::Paths(paths) => paths.iter().map(|(path, shared)| (path_of(path), !shared)).collect(),
            _ => Vec::new(),
        };
        let mut cancel_key = "";
        let request = match &acquire.thing {
            Thing::Key { key, shared } => {
                cancel_key = key;
                let (key, shared) = (key.as_bytes(), *shared);
                Request::Acquire(wire::Acquire {
                    key,
                    shared,
                    terms: wire::AcquireTerms { lease_ms, wait_ms, session_lease, notify_queued, options },
                })
            }
            Thing::Keys(keys) => {
                cancel_key = keys.iter().map(|(key, _)| key.as_str()).min().unwrap_or_default();
                let items = keys.iter().map(|(key, shared)| KeyItem { shared: *shared, key: key.as_bytes() });
                let items = Items::new(items, &mut buffer).expect("a list of keys");
                let several = wire::AcquireKeys {
                    items,
                    terms: wire::AcquireTerms { lease_ms, wait_ms, session_lease, notify_queued, options },
                };
                Request::AcquireKeys(several)
            }
            Thing::Paths(_) => {
                let items = paths.iter().map(|(path, write)| {
                    let path = PathKey::new(path).expect("a path");
                    PathItem { write: *write, path }
                });
                let items = Items::new(items, &mut buffer).expect("a list of paths");
                Request::AcquireSet(wire::AcquireSet {
                    items,
                    terms: wire::AcquireTerms { lease_ms, wait_ms, session_lease, notify_queued, options },
                })
            }
            Thing::Permits { pool, permits, capacity, by_time, at } => {
                cancel_key = pool;
                Request::AcquirePermits(wire::AcquirePermits {
                    capacity: capacity.unwrap_or(0),
                    permits: *permits,
                    order: order(*by_time),
                    timestamp_us: if *at == 0 { 0 } else { self.time_base_us + *at * 1_000_000 },
                    name: pool.as_bytes(),
                    any_capacity: capacity.is_none(),
                    terms: wire::AcquireTerms { lease_ms, wait_ms, session_lease, notify_queued, options },
                })
            }
        };
        let connection = self.connection(command, command.kind).await;
        let number = self.heard.name(command, &acquire.name, cancel_key);
        let on_wire = connection.follow(number, acquire.queued, request).await;
        self.numbers.insert(number, on_wire);
        self.heard.until_answered(number, WATCHDOG).await;
    }

    pub(super) async fn on_claim(
        &mut self,
        command: &Command,
        target: &str,
        key: Option<&str>,
        ask: &OnClaim,
        pace: &Pace,
    ) {
        let lane = &command.lane.name;
        let number = self.heard.find(lane, target);
        let claim = self.heard.claim(number);
        let name = target.strip_prefix(&format!("{lane}/")).unwrap_or(target);
        let connection = self.connection(command, claim.kind).await;
        if let OnClaim::Cancel = ask {
            let cancel = wire::Cancel { acquire_number: self.numbers[&number], key: claim.key.as_bytes() };
            return connection.ask(name, Request::Cancel(cancel)).await;
        }
        let id = claim.secret_id.unwrap_or_else(|| panic!("the id of {target} is not known"));
        let id = id.parse().expect("an id");
        let key = key.map(str::as_bytes);
        let request = match ask {
            OnClaim::Extend { lease_ms, own } => {
                Request::Extend(wire::Extend { id, lease_ms: pace.millis(*lease_ms), key, own: *own })
            }
            OnClaim::Status => Request::Status(wire::Status { id, key }),
            OnClaim::ForceRelease { reason } => {
                Request::ForceRelease(wire::ForceRelease { id, reason: reason.as_bytes() })
            }
            OnClaim::Release { own } => Request::Release(wire::Release { id, key, own: *own }),
            OnClaim::Cancel => Request::Release(wire::Release { id, key, own: false }),
        };
        connection.ask(name, request).await;
    }

    pub(super) async fn on_key(&mut self, command: &Command, pace: &Pace) {
        let kind = command.kind;
        let connection = self.connection(command, kind).await;
        let ask = async |name: &str, request| connection.ask(name, request).await;
        match &command.ask {
            Ask::Inspect(word) => ask("", Request::Inspect(wire::Inspect { key: &place(kind, word) })).await,
            Ask::Verify { place: word, fence } => {
                ask("", Request::Verify(wire::Verify { fence: *fence, key: &place(kind, word) })).await;
            }
            Ask::List { prefix, waiting } => {
                let prefix = prefix.as_deref().map(|prefix| place(kind, prefix)).unwrap_or_default();
                let list = |cursor| {
                    Request::List(wire::List {
                        cursor,
                        count_max: PAGE_SIZE,
                        prefix: &prefix,
                        waiting: *waiting,
                    })
                };
                self.pages(command, list).await;
            }
            Ask::Holds => {
                let holds = |cursor| Request::Holds(wire::Holds { cursor, count_max: PAGE_SIZE });
                self.pages(command, holds).await;
            }
            Ask::Watch(key) => {
                let number = self.heard.name(command, key, key);
                let on_wire = connection
                    .follow(number, false, Request::Watch(wire::Watch { key: key.as_bytes() }))
                    .await;
                self.numbers.insert(number, on_wire);
                self.heard.until_answered(number, WATCHDOG).await;
            }
            Ask::Unwatch(key) => {
                let watch_number = self.numbers[&self.heard.find(&command.lane.name, key)];
                ask(key, Request::Unwatch(wire::Unwatch { watch_number, key: key.as_bytes() })).await;
            }
            Ask::Freeze { prefix, thaw } => {
                ask(
                    "",
                    Request::Freeze(wire::Freeze {
                        prefix: prefix.as_bytes(),
                        thaw: *thaw,
                        ..wire::Freeze::default()
                    }),
                )
                .await;
            }
            Ask::Describe(pool) => {
                ask("", Request::DescribePool(wire::DescribePool { name: pool.as_bytes() })).await;
            }
            Ask::SetCapacity { pool, capacity, by_time } => {
                let (capacity, order, name) = (*capacity, order(*by_time), pool.as_bytes());
                ask(
                    "",
                    Request::SetCapacity(wire::SetCapacity {
                        capacity,
                        order,
                        name,
                        ..wire::SetCapacity::default()
                    }),
                )
                .await;
            }
            Ask::TreeStatistics => ask("", Request::TreeStatistics(wire::TreeStatistics)).await,
            Ask::Register { register, heartbeat } => {
                let number = self.heard.name(command, &register.key, &register.key);
                let register = register_of(register, pace);
                let request = match heartbeat {
                    true => Request::Heartbeat(wire::Heartbeat(register)),
                    false => Request::Register(register),
                };
                let received = connection.read(request).await;
                if let Response::Registered(registered) = received.response() {
                    self.heard.granted(number, &registered.id.to_string());
                }
                let name = self.heard.claim(number).name;
                connection.say(super::shown::answer(&received.response(), &name, &|_| None));
            }
            Ask::Unregister { key, owner } => {
                let name = self.heard.claim(self.heard.name(command, key, key)).name;
                let unregister = wire::Unregister { key: key.as_bytes(), owner: owner.as_bytes() };
                ask(&name, Request::Unregister(unregister)).await;
            }
            Ask::LookUp(key) => {
                let name = self.heard.claim(self.heard.name(command, key, key)).name;
                ask(&name, Request::LookUp(wire::LookUp { key: key.as_bytes() })).await;
            }
            Ask::Registrations(type_name) => {
                let any_type = type_name.is_none();
                let type_name = type_name.as_deref().unwrap_or_default().as_bytes();
                let list = |cursor| {
                    let count_max = PAGE_SIZE;
                    Request::ListEntries(wire::ListEntries { cursor, count_max, any_type, type_name })
                };
                self.pages(command, list).await;
            }
            Ask::Throttle { buckets, refund } => {
                let mut buffer = Vec::new();
                let request = match &buckets[..] {
                    [bucket] => {
                        Request::Throttle(wire::Throttle { bucket: bucket_of(bucket, pace), refund: *refund })
                    }
                    several => {
                        let items = several.iter().map(|bucket| bucket_of(bucket, pace));
                        let buckets = Items::new(items, &mut buffer).expect("a list of buckets");
                        Request::ThrottleAll(wire::ThrottleAll { buckets, refund: *refund })
                    }
                };
                ask("", request).await;
            }
            _ => unreachable!("it is done elsewhere"),
        }
    }

    /// Asks for page after page, and says what stands in them.
    async fn pages<'a>(&mut self, command: &Command, request: impl Fn(u64) -> Request<'a>) {
        let connection = self.connection(command, command.kind).await;
        let is_tree = command.kind == Kind::Tree;
        let mut cursor = 0;
        loop {
            let received = connection.read(request(cursor)).await;
            match received.response() {
                Response::Listed(page) => {
                    for lock in &page.locks {
                        let key = if is_tree { shown_path(lock.key) } else { shown(lock.key) };
                        self.heard.say(PAGE, listed(&key, lock));
                    }
                    cursor = page.next;
                }
                Response::EntriesListed(page) => {
                    for listed in &page.entries {
                        self.heard.say(PAGE, entry(listed));
                    }
                    cursor = page.next;
                }
                other => panic!("no page but {other:?}"),
            }
            if cursor == 0 {
                return;
            }
        }
    }

    /// What happened in the namespaces of the file, by their numbers.
    pub(super) async fn counters(&mut self) {
        let connection = self.connections.values().next().expect("something was asked before").clone();
        let mut counters = Counters::default();
        let mut cursor = 0;
        loop {
            let request = wire::Namespaces { cursor, count_max: 0 };
            let received = connection.read(Request::Namespaces(request)).await;
            let Response::NamespacesListed(page) = received.response() else { panic!("no page") };
            for namespace in &page.namespaces {
                let name = String::from_utf8_lossy(namespace.name);
                let wire::ListedNamespace { held, waiting, timeouts, expired, revoked, .. } = *namespace;
                counters.add(&self.scope, &name, [held, waiting, timeouts, expired, revoked]);
            }
            cursor = page.next;
            if cursor == 0 {
                break;
            }
        }
        counters.say(&self.heard);
    }
}

fn register_of<'a>(register: &'a Register, pace: &Pace) -> wire::Register<'a> {
    wire::Register {
        lease_ms: pace.signed_millis(register.lease_ms),
        absolute: false,
        ephemeral: register.ephemeral,
        key: register.key.as_bytes(),
        owner: register.owner.as_bytes(),
        value: register.value.as_bytes(),
        type_name: register.type_name.as_bytes(),
        traceparent: None,
    }
}

fn bucket_of<'a>(bucket: &'a Bucket, pace: &Pace) -> wire::Bucket<'a> {
    wire::Bucket {
        rate: bucket.rate,
        burst: bucket.burst,
        cost: bucket.cost,
        period_ns: pace.nanos(bucket.period_ns),
        name: bucket.name.as_bytes(),
    }
}
