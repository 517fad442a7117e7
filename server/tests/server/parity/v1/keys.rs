//! What is asked about keys, paths, pools and buckets, and what operators ask.

use super::V1;
use super::shown::{age_of_hold, age_of_waiter, hold, path, place, remaining, waiter};
use crate::parity::command::{Ask, Bucket, Command, Kind};
use crate::parity::counters::{COUNTERS, Counters};
use crate::parity::pace::Pace;
use crate::parity::script::PAGE;
use crate::parity::words::{mode, shown_nanos};
use tokio::task::spawn_local;
use waymaker_proto::v1;
use waymaker_proto::v1::limiter_service_client::LimiterServiceClient;
use waymaker_proto::v1::lock_service_client::LockServiceClient;
use waymaker_proto::v1::operator_service_client::OperatorServiceClient;
use waymaker_proto::v1::registry_service_client::RegistryServiceClient;
use waymaker_proto::v1::semaphore_service_client::SemaphoreServiceClient;
use waymaker_proto::v1::tree_service_client::TreeServiceClient;
use waymaker_proto::v1::watch_response::Event;

/// How many holds stand in a page, so that a list has several.
const PAGE_SIZE: u32 = 3;

impl V1 {
    pub(super) async fn on_key(&mut self, command: &Command, pace: &Pace) {
        let lane = &command.lane.name;
        let namespace = self.namespace(command.kind, command.lane.namespace);
        let channel = self.connections.channel(lane);
        let (kind, is_tree) = (command.kind, command.kind == Kind::Tree);
        let key_of = |word: &str| if is_tree { String::new() } else { word.to_owned() };
        let path_of = |word: &str| is_tree.then(|| path(word));
        match &command.ask {
            Ask::Inspect(word) => {
                self.touch(lane, kind, &namespace).await;
                let request = v1::InspectRequest { namespace, key: key_of(word), path: path_of(word) };
                let answer = OperatorServiceClient::new(channel).inspect(request).await;
                self.answer(lane, "", answer, |answer| self.inspected(lane, answer.get_ref()));
            }
            Ask::Verify { place, fence } => {
                let (key, path) = (key_of(place), path_of(place));
                let request = v1::VerifyRequest { namespace, key, path, fence: *fence };
                let answer = match kind {
                    Kind::Tree => TreeServiceClient::new(channel).verify(request).await,
                    Kind::Registry => RegistryServiceClient::new(channel).verify(request).await,
                    _ => LockServiceClient::new(channel).verify(request).await,
                };
                self.answer(lane, "", answer, |answer| {
                    let v1::VerifyResponse { newest, held, newest_fence } = answer.into_inner();
                    let (newest, held) =
                        (if newest { "newest" } else { "outdated" }, if held { " held" } else { "" });
                    format!("{newest}{held}, the newest fence is {newest_fence}")
                });
            }
            Ask::List { prefix, waiting } => {
                let path = prefix.as_deref().and_then(path_of);
                let prefix = prefix.as_deref().map(key_of).unwrap_or_default();
                self.touch(lane, kind, &namespace).await;
                let waiting = *waiting;
                self.list(lane, v1::ListRequest { namespace, prefix, path, waiting, ..Default::default() })
                    .await;
            }
            Ask::Watch(key) => self.watch(command, key, namespace).await,
            Ask::Unwatch(key) => {
                if let Some(watch) = self.watches.remove(&(lane.clone(), key.clone())) {
                    watch.abort();
                }
            }
            Ask::Freeze { prefix, thaw } => {
                self.touch(lane, kind, &namespace).await;
                let (mut client, prefix) = (OperatorServiceClient::new(channel), prefix.clone());
                let said = |changed: bool, count: u32| {
                    format!("frozen prefixes: {count}{}", if changed { "" } else { ", as it was" })
                };
                if *thaw {
                    let answer =
                        client.thaw(v1::ThawRequest { namespace, prefix, ..Default::default() }).await;
                    self.answer(lane, "", answer, |answer| {
                        said(answer.get_ref().changed, answer.get_ref().frozen_count)
                    });
                } else {
                    let answer =
                        client.freeze(v1::FreezeRequest { namespace, prefix, ..Default::default() }).await;
                    self.answer(lane, "", answer, |answer| {
                        said(answer.get_ref().changed, answer.get_ref().frozen_count)
                    });
                }
            }
            Ask::Describe(pool) => {
                let request = v1::DescribeRequest { namespace, name: pool.clone() };
                let answer = SemaphoreServiceClient::new(channel).describe(request).await;
                self.answer(lane, "", answer, |answer| described(answer.get_ref()));
            }
            Ask::SetCapacity { pool, capacity, by_time } => {
                let order =
                    if *by_time { v1::SemaphoreOrder::Timestamp } else { v1::SemaphoreOrder::Arrival };
                let (name, order) = (pool.clone(), order.into());
                let capacity = *capacity;
                let request =
                    v1::SetCapacityRequest { namespace, name, capacity, order, ..Default::default() };
                let answer = SemaphoreServiceClient::new(channel).set_capacity(request).await;
                self.answer(lane, "", answer, |answer| {
                    format!("capacity set, it was {}", answer.get_ref().previous)
                });
            }
            Ask::Throttle { buckets, refund } => {
                let buckets = buckets.iter().map(|bucket| bucket_of(bucket, pace)).collect();
                let request = v1::ThrottleRequest { namespace, buckets, refund: *refund };
                let answer = LimiterServiceClient::new(channel).throttle(request).await;
                self.answer(lane, "", answer, |answer| throttled(answer.get_ref()));
            }
            _ => unreachable!("it cannot be said"),
        }
    }

    /// Uses a namespace, so that operators find it.
    pub(super) async fn touch(&mut self, lane: &str, kind: Kind, namespace: &str) {
        let (namespace, channel) = (namespace.to_owned(), self.connections.channel(lane));
        let key = if kind == Kind::Tree { "" } else { "k" }.to_owned();
        let verify =
            v1::VerifyRequest { namespace: namespace.clone(), key: key.clone(), ..Default::default() };
        // What it answers is no concern of the file.
        let _ = match kind {
            Kind::Tree => TreeServiceClient::new(channel).verify(verify).await.map(drop),
            Kind::Registry => RegistryServiceClient::new(channel).verify(verify).await.map(drop),
            Kind::Pool => {
                let describe = v1::DescribeRequest { namespace, name: key };
                SemaphoreServiceClient::new(channel).describe(describe).await.map(drop)
            }
            _ => LockServiceClient::new(channel).verify(verify).await.map(drop),
        };
    }

    fn inspected(&self, lane: &str, answer: &v1::InspectResponse) -> String {
        let v1::InspectResponse { fence, holder_count, waiter_count, holders, waiters } = answer;
        let mut text = format!("fence={fence} holders={holder_count} waiters={waiter_count}");
        for holder in holders {
            text += &format!("\n{}", hold(holder));
        }
        for waiter in waiters {
            let (owner, mode, ticket) = (&waiter.owner, mode(waiter.shared), waiter.ticket);
            let (age, remaining) = (age_of_waiter(waiter), remaining(waiter.remaining_ms));
            text += &format!("\n{owner} waits {mode} ticket={ticket} age={age} remaining={remaining}");
            if waiter.priority != 0 {
                text += &format!(" priority={}", waiter.priority);
            }
            if let Some(name) = self.heard.known_name(&waiter.id, lane) {
                text += &format!(" claim={name}");
            }
        }
        text
    }

    async fn list(&mut self, lane: &str, mut request: v1::ListRequest) {
        request.page_size = PAGE_SIZE;
        loop {
            let answer =
                OperatorServiceClient::new(self.connections.channel(lane)).list(request.clone()).await;
            let page = answer.expect("a page").into_inner();
            for listed in &page.holds {
                self.heard
                    .say(PAGE, format!("{}: {}", place(&listed.key, listed.path.as_ref()), hold(listed)));
            }
            for listed in &page.waiters {
                self.heard
                    .say(PAGE, format!("{}: {}", place(&listed.key, listed.path.as_ref()), waiter(listed)));
            }
            if page.next_cursor.is_empty() {
                return;
            }
            request.cursor = page.next_cursor;
        }
    }

    async fn watch(&mut self, command: &Command, key: &str, namespace: String) {
        let lane = command.lane.name.clone();
        let number = self.heard.name(command, key, key);
        let (heard, channel, kind) = (self.heard.clone(), self.connections.channel(&lane), command.kind);
        let request = v1::WatchRequest { namespace, key: key.to_owned() };
        let (name, said_to) = (key.to_owned(), lane.clone());
        let watch =
            spawn_local(async move {
                let stream = match kind {
                    Kind::Registry => RegistryServiceClient::new(channel).watch(request).await,
                    _ => LockServiceClient::new(channel).watch(request).await,
                };
                let mut stream = stream.expect("a stream").into_inner();
                while let Ok(Some(response)) = stream.message().await {
                    heard.say(&said_to, match response.event.expect("something is told") {
                    Event::Watching(v1::Watching { fence, holder_count, waiter_count }) => {
                        format!("watches {name} fence={fence} holders={holder_count} waiters={waiter_count}")
                    }
                    Event::Held(v1::KeyHeld { fence, shared, owner }) => {
                        format!("sees {name} held {} fence={fence} by {owner}", mode(shared))
                    }
                    Event::Freed(v1::KeyFreed { fence }) => format!("sees {name} free fence={fence}"),
                    Event::Overrun(_) => format!("{name} was overrun"),
                });
                    heard.answered(number);
                }
            });
        self.connections.keep(&lane, watch.abort_handle());
        self.watches.insert((lane, key.to_owned()), watch.abort_handle());
        self.heard.until_answered(number, crate::harness::WATCHDOG).await;
    }

    /// What happened in the namespaces of the file, by their numbers.
    pub(super) async fn counters(&mut self) {
        let mut client = OperatorServiceClient::new(self.connections.channel(COUNTERS));
        let mut counters = Counters::default();
        let mut cursor = String::new();
        loop {
            let request = v1::ListNamespacesRequest { cursor, page_size: 0 };
            let page = client.list_namespaces(request).await.expect("a page").into_inner();
            for namespace in page.namespaces {
                let v1::Namespace { name, held, waiting, timeouts, expired, revoked, .. } = namespace;
                counters.add(&self.scope, &name, [held, waiting, timeouts, expired, revoked]);
            }
            if page.next_cursor.is_empty() {
                break;
            }
            cursor = page.next_cursor;
        }
        counters.say(&self.heard);
    }
}

fn described(pool: &v1::DescribeResponse) -> String {
    let order = if pool.order() == v1::SemaphoreOrder::Timestamp { "timestamp" } else { "arrival" };
    let set = if pool.is_set { " set" } else { "" };
    let mut text = format!(
        "capacity={}{set} held={} order={order} fence={} holders={} waiters={}",
        pool.capacity, pool.held, pool.fence, pool.holder_count, pool.waiter_count
    );
    for holder in &pool.holders {
        let (age, remaining) = (age_of_hold(holder), remaining(holder.remaining_ms));
        let v1::Hold { owner, permits, fence, .. } = holder;
        text += &format!("\n{owner} holds {permits} fence={fence} age={age} remaining={remaining}");
    }
    for waiter in &pool.waiters {
        let (age, remaining) = (age_of_waiter(waiter), remaining(waiter.remaining_ms));
        let v1::Waiter { owner, permits, ticket, .. } = waiter;
        text +=
            &format!("\n{owner} waits for {permits} fence=0 ticket={ticket} age={age} remaining={remaining}");
    }
    text
}

fn bucket_of(bucket: &Bucket, pace: &Pace) -> v1::Bucket {
    let Bucket { name, rate, period_ns, burst, cost } = bucket.clone();
    v1::Bucket { name, rate, period_ns: pace.nanos(period_ns), burst, cost: Some(cost) }
}

fn throttled(answer: &v1::ThrottleResponse) -> String {
    let v1::ThrottleResponse { allowed, remaining, retry_after_ns, reset_after_ns } = *answer;
    let reset = shown_nanos(reset_after_ns);
    if allowed {
        format!("allowed remaining={remaining} reset={reset}")
    } else {
        format!("throttled remaining={remaining} retry={} reset={reset}", shown_nanos(retry_after_ns))
    }
}
