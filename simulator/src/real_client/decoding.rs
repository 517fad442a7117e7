//! Decodes the requests of a real client into operations for the auditor.

use crate::form::{Form, KeySet, PathItem, PathSet, Permits};
use crate::key::{Key, TREE, kind_of};
use crate::operation::{Acquire, MADE_UP_REQUEST_ID, Operation, request_id};
use crate::workload::Settings;
use std::collections::BTreeMap;
use waymaker_engine::Scope;
use waymaker_protocol as wire;
use waymaker_protocol::{NamespaceKind, PoolOrder, Request};

/// Keys and request ids of the run, by their names on the wire.
#[derive(Debug)]
pub(super) struct Names {
    /// Keys, by the number of their kind and their name.
    keys: BTreeMap<(u8, Vec<u8>), Key>,
    /// Request ids that the client library generated.
    made_up: BTreeMap<Vec<u8>, u8>,
}

impl Names {
    pub(super) fn new(settings: &Settings) -> Self {
        let named = settings
            .inspected_keys()
            .into_iter()
            .map(|key| ((kind_of(key).number(), settings.name_of(key)), key));
        Self { keys: named.collect(), made_up: BTreeMap::new() }
    }

    /// Returns the operation of a request; `None` for a request without a response.
    ///
    /// # Panics
    /// On a request that the processes of the simulation never send.
    pub(super) fn operation(&mut self, kind: NamespaceKind, request: &Request<'_>) -> Option<Operation> {
        let key = |name: &[u8]| match kind {
            NamespaceKind::Tree => TREE,
            _ => *self.keys.get(&(kind.number(), name.to_vec())).expect("a key of the run"),
        };
        Some(match request {
            Request::Acquire(wire::Acquire {
                key: name,
                shared,
                terms: wire::AcquireTerms { lease_ms, wait_ms, session_lease, notify_queued, options },
            }) => {
                let acquire = acquire(key(name), *shared, Form::One, *lease_ms, *wait_ms);
                self.with_options(acquire, *session_lease, *notify_queued, options)
            }
            Request::AcquireKeys(wire::AcquireKeys {
                items,
                terms: wire::AcquireTerms { lease_ms, wait_ms, session_lease, notify_queued, options },
            }) => {
                let keys = KeySet::new(items.iter().map(|item| (key(item.key), item.shared)));
                let (first, shared) = keys.items()[0];
                let acquire = acquire(first, shared, Form::Keys(keys), *lease_ms, *wait_ms);
                self.with_options(acquire, *session_lease, *notify_queued, options)
            }
            Request::AcquireSet(wire::AcquireSet {
                items,
                terms: wire::AcquireTerms { lease_ms, wait_ms, session_lease, notify_queued, options },
            }) => {
                let item = |item: wire::PathItem<'_>| {
                    PathItem::of(item.path, item.write).expect("a path of the run")
                };
                let paths = PathSet::new(&items.iter().map(item).collect::<Vec<_>>());
                let acquire = acquire(TREE, paths.is_shared(), Form::Paths(paths), *lease_ms, *wait_ms);
                self.with_options(acquire, *session_lease, *notify_queued, options)
            }
            Request::AcquirePermits(wire::AcquirePermits {
                capacity,
                permits,
                order,
                timestamp_us,
                name,
                any_capacity,
                terms: wire::AcquireTerms { lease_ms, wait_ms, session_lease, notify_queued, options },
            }) => {
                let permits = Permits {
                    permits: *permits,
                    capacity: (!any_capacity).then_some(*capacity),
                    timestamp_us: (*order == PoolOrder::Timestamp).then_some(*timestamp_us),
                };
                let acquire = acquire(key(name), false, Form::Permits(permits), *lease_ms, *wait_ms);
                self.with_options(acquire, *session_lease, *notify_queued, options)
            }
            Request::Release(wire::Release { id, own, .. }) => {
                Operation::Release { id: *id, forged: false, own: *own }
            }
            Request::Extend(wire::Extend { id, lease_ms, own, .. }) => {
                Operation::Extend { id: *id, lease_ms: *lease_ms, own: *own }
            }
            Request::Cancel(wire::Cancel { acquire_number, key: name }) => {
                Operation::Cancel { acquire: *acquire_number, key: key(name) }
            }
            Request::Status(wire::Status { id, .. }) => Operation::Status { id: *id },
            Request::Holds(wire::Holds { cursor, .. }) => Operation::Holds { cursor: *cursor },
            Request::Watch(wire::Watch { key: name }) => Operation::Watch { key: key(name) },
            Request::Unwatch(wire::Unwatch { watch_number, key: name }) => {
                Operation::Unwatch { watch: *watch_number, key: key(name) }
            }
            Request::KeepAlive(_) => Operation::KeepAlive,
            Request::Goodbye(_) => Operation::Goodbye,
            Request::Pong(_) => return None,
            other => panic!("unexpected request of a real client: {other:?}"),
        })
    }

    fn with_options(
        &mut self,
        acquire: Acquire,
        session_lease: bool,
        notify_queued: bool,
        options: &wire::AcquireOptions<'_>,
    ) -> Operation {
        Operation::Acquire(Acquire {
            session_lease,
            notify_queued,
            release_after_ms: options.release_after_ms,
            priority: options.priority,
            request_id: options.request_id.map(|name| self.request_id(name)),
            scope: match options.scope {
                Some(2) => Scope::Local,
                Some(3) => Scope::Quorum,
                _ => Scope::Ephemeral,
            },
            ..acquire
        })
    }

    fn request_id(&mut self, name: &[u8]) -> u8 {
        if let Some(number) = (0..MADE_UP_REQUEST_ID).find(|number| request_id(*number) == name) {
            return number;
        }
        // Only a few generated ids are in use at a time, so numbers can be reused.
        let next =
            MADE_UP_REQUEST_ID + (self.made_up.len() % usize::from(u8::MAX - MADE_UP_REQUEST_ID)) as u8;
        *self.made_up.entry(name.to_vec()).or_insert(next)
    }
}

fn acquire(key: Key, shared: bool, form: Form, lease_ms: u32, wait_ms: u32) -> Acquire {
    Acquire {
        key,
        shared,
        wait_ms,
        lease_ms,
        session_lease: false,
        notify_queued: false,
        release_after_ms: None,
        priority: None,
        request_id: None,
        label: None,
        form,
        scope: Scope::Ephemeral,
    }
}
