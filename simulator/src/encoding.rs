//! Encodes the requests of clients as frames, with the names that the keys of the run have.

use crate::form::Form;
use crate::key::Key;
use crate::operation::{
    Acquire, FORCED, Listing, Operation, RegistrationListing, Withdrawal, hears_taken_up, label_of,
    request_id, scope_number, type_of,
};
use crate::workload::Settings;
use waymaker_protocol as wire;
use waymaker_protocol::{Items, Request};

impl Operation {
    /// Encodes the request as a frame.
    pub(crate) fn encode(&self, number: u32, settings: &Settings, owner: &[u8], out: &mut Vec<u8>) {
        let name = |key: Key| settings.name_of(key);
        match *self {
            Self::Acquire(acquire) => encode_acquire(&acquire, number, settings, out),
            Self::Release { id, own, .. } => {
                Request::Release(wire::Release { id, key: None, own }).encode(number, out);
            }
            Self::Extend { id, lease_ms, own } => {
                Request::Extend(wire::Extend { id, lease_ms, key: None, own }).encode(number, out);
            }
            Self::Cancel { acquire, key } => {
                let cancel = wire::Cancel { acquire_number: acquire, key: &name(key) };
                Request::Cancel(cancel).encode(number, out);
            }
            Self::Status { id } => Request::Status(wire::Status { id, key: None }).encode(number, out),
            Self::Inspect { key } => {
                Request::Inspect(wire::Inspect { key: &name(key) }).encode(number, out);
            }
            Self::List(Listing { cursor, count_max, prefix, .. }) => {
                let prefix = prefix.map(name).unwrap_or_default();
                Request::List(wire::List { cursor, count_max, prefix: &prefix, ..wire::List::default() })
                    .encode(number, out);
            }
            Self::Holds { cursor } => {
                Request::Holds(wire::Holds { cursor, count_max: 2 }).encode(number, out);
            }
            Self::Verify { key, fence } => {
                Request::Verify(wire::Verify { fence, key: &name(key) }).encode(number, out);
            }
            Self::Watch { key } => Request::Watch(wire::Watch { key: &name(key) }).encode(number, out),
            Self::Unwatch { watch, key } => {
                Request::Unwatch(wire::Unwatch { watch_number: watch, key: &name(key) }).encode(number, out);
            }
            Self::ForceRelease { id } => {
                Request::ForceRelease(wire::ForceRelease { id, reason: FORCED }).encode(number, out);
            }
            Self::Freeze { prefix, thaw, .. } => {
                let prefix = prefix.map(name).unwrap_or_default();
                Request::Freeze(wire::Freeze { prefix: &prefix, thaw, ..wire::Freeze::default() })
                    .encode(number, out);
            }
            Self::Describe { pool } => {
                Request::DescribePool(wire::DescribePool { name: &name(pool) }).encode(number, out);
            }
            Self::ListPools(Listing { cursor, count_max, prefix, .. }) => {
                let prefix = prefix.map(name).unwrap_or_default();
                Request::ListPools(wire::ListPools { cursor, count_max, prefix: &prefix })
                    .encode(number, out);
            }
            Self::SetCapacity { pool, capacity } => {
                let order = settings.pool_order(pool);
                Request::SetCapacity(wire::SetCapacity {
                    capacity,
                    order,
                    name: &name(pool),
                    ..wire::SetCapacity::default()
                })
                .encode(number, out);
            }
            Self::Take(withdrawal) => encode_withdrawal(&withdrawal, number, settings, out),
            Self::Register(registration) => {
                let value = registration.value.to_string();
                let register = wire::Register {
                    lease_ms: registration.lease_ms,
                    absolute: registration.absolute,
                    ephemeral: false,
                    key: &name(registration.key),
                    owner,
                    value: value.as_bytes(),
                    type_name: type_of(registration.value),
                    traceparent: None,
                };
                if registration.heartbeat {
                    Request::Heartbeat(wire::Heartbeat(register)).encode(number, out);
                } else {
                    Request::Register(register).encode(number, out);
                }
            }
            Self::Unregister { key } => {
                Request::Unregister(wire::Unregister { key: &name(key), owner }).encode(number, out);
            }
            Self::ListEntries(RegistrationListing { cursor, count_max, like, .. }) => {
                let type_name = like.map(type_of).unwrap_or_default();
                let any_type = like.is_none();
                Request::ListEntries(wire::ListEntries { cursor, count_max, any_type, type_name })
                    .encode(number, out);
            }
            Self::LookUp { key } => Request::LookUp(wire::LookUp { key: &name(key) }).encode(number, out),
            Self::Namespaces { cursor, count_max } => {
                Request::Namespaces(wire::Namespaces { cursor, count_max }).encode(number, out);
            }
            Self::KeepAlive => Request::KeepAlive(wire::KeepAlive).encode(number, out),
            Self::Goodbye => Request::Goodbye(wire::Goodbye).encode(number, out),
            Self::Hello { session, worker, kind } => {
                let hello = wire::Hello {
                    version_min: waymaker_protocol::VERSION_MIN,
                    version_max: waymaker_protocol::VERSION_MIN,
                    session,
                    worker,
                    kind,
                    namespace: kind.name().as_bytes(),
                    owner,
                    // The attempt numbers of greetings must rise with each connection, and their request
                    // numbers fall.
                    attempt: Some(u32::MAX - number),
                    notify_taken_up: hears_taken_up((u32::MAX - number) as usize),
                    ..wire::Hello::default()
                };
                Request::Hello(hello).encode(number, out);
            }
        }
    }
}

fn encode_acquire(acquire: &Acquire, number: u32, settings: &Settings, out: &mut Vec<u8>) {
    let id = acquire.request_id.map(request_id);
    let (deputy, metadata) = acquire.label.map(label_of).unzip();
    let options = wire::AcquireOptions {
        owner: deputy.as_deref(),
        metadata: metadata.as_deref(),
        release_after_ms: acquire.release_after_ms,
        priority: acquire.priority,
        scope: scope_number(acquire.scope),
        request_id: id.as_ref().map(<[u8; 2]>::as_slice),
        traceparent: None,
    };
    let Acquire { lease_ms, wait_ms, session_lease, notify_queued, .. } = *acquire;
    let name = settings.name_of(acquire.key);
    let mut buffer = Vec::new();
    let request = match &acquire.form {
        Form::One => Request::Acquire(wire::Acquire {
            key: &name,
            shared: acquire.shared,
            terms: wire::AcquireTerms { lease_ms, wait_ms, session_lease, notify_queued, options },
        }),
        Form::Keys(keys) => {
            let named: Vec<_> =
                keys.items().iter().map(|(key, shared)| (settings.name_of(*key), *shared)).collect();
            // Clients name the keys in any order. This order is the reverse of the sorted one.
            let items = named.iter().rev().map(|(key, shared)| wire::KeyItem { shared: *shared, key });
            let items = Items::new(items, &mut buffer).unwrap_or_default();
            return Request::AcquireKeys(wire::AcquireKeys {
                items,
                terms: wire::AcquireTerms { lease_ms, wait_ms, session_lease, notify_queued, options },
            })
            .encode(number, out);
        }
        Form::Paths(paths) => {
            let keys: Vec<_> = paths.items().iter().map(|item| (item.path_key(), item.write)).collect();
            let items = keys.iter().filter_map(|(key, write)| {
                wire::PathKey::new(key).ok().map(|path| wire::PathItem { write: *write, path })
            });
            let items = Items::new(items, &mut buffer).unwrap_or_default();
            return Request::AcquireSet(wire::AcquireSet {
                items,
                terms: wire::AcquireTerms { lease_ms, wait_ms, session_lease, notify_queued, options },
            })
            .encode(number, out);
        }
        Form::Permits(permits) => Request::AcquirePermits(wire::AcquirePermits {
            capacity: permits.capacity.unwrap_or(0),
            any_capacity: permits.capacity.is_none(),
            permits: permits.permits,
            order: settings.pool_order(acquire.key),
            timestamp_us: permits.timestamp_us.unwrap_or(0),
            name: &name,
            terms: wire::AcquireTerms { lease_ms, wait_ms, session_lease, notify_queued, options },
        }),
    };
    request.encode(number, out);
}

fn encode_withdrawal(withdrawal: &Withdrawal, number: u32, settings: &Settings, out: &mut Vec<u8>) {
    let parts: Vec<_> =
        withdrawal.parts().map(|(key, cost)| (settings.rule_of(key), settings.name_of(key), cost)).collect();
    let mut buckets = parts.iter().map(|(rule, name, cost)| wire::Bucket {
        rate: rule.rate,
        burst: rule.burst,
        cost: *cost,
        period_ns: rule.period_ns,
        name,
    });
    if withdrawal.second.is_some() {
        let mut buffer = Vec::new();
        let buckets = Items::new(buckets, &mut buffer).unwrap_or_default();
        Request::ThrottleAll(wire::ThrottleAll { buckets, refund: withdrawal.refund }).encode(number, out);
    } else if let Some(bucket) = buckets.next() {
        Request::Throttle(wire::Throttle { bucket, refund: withdrawal.refund }).encode(number, out);
    }
}
