//! Registered keys: one owner at a time, for as long as it said, and the value that it gave last.

use super::Auditor;
use crate::mix::kind_of;
use crate::operation::{Key, Operation, Registering};
use std::collections::BTreeMap;
use waymaker_protocol::{ErrorAnswer, ErrorCode, ErrorDetail, LockId, LookedUp, NamespaceKind, Registered};

/// How long after its lease a lazy entry is nobody else's, in milliseconds.
const GRACE_MS: u64 = 5_000;

/// One key of a registry.
#[derive(Debug, Default)]
pub(crate) struct EntryHistory {
    /// By fence.
    tenures: BTreeMap<u64, Tenure>,
    /// Everything that was asked to be registered, by its value.
    asked: BTreeMap<u32, AskedValue>,
    /// When each client asked for the end of what it has, and with which requests.
    ended: Vec<(usize, u64)>,
}

/// One owner's time.
#[derive(Debug)]
struct Tenure {
    client: usize,
    id: LockId,
    /// Its beginning was heard of, not only a renewal.
    began: bool,
    /// The newest word on its lease, and the earliest end by it.
    stamp_ms: u64,
    end_ms: u64,
    said_ms: u64,
    over_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct AskedValue {
    client: usize,
    lease_ms: i64,
    sent_ms: u64,
    /// When it was said that it is registered, and under which fence.
    said: Option<(u64, u64)>,
    /// It was refused.
    is_refused: bool,
}

pub(crate) type Entries = BTreeMap<Key, EntryHistory>;

impl EntryHistory {
    /// The earliest instant at which somebody else may have the key after this tenure.
    fn floor_ms(&self, fence: u64, is_lazy: bool, tampered: &BTreeMap<LockId, u64>) -> u64 {
        let Some(tenure) = self.tenures.get(&fence) else { return 0 };
        let tampered_ms = tampered.get(&tenure.id).copied().unwrap_or(u64::MAX);
        let grace_ms = if is_lazy { GRACE_MS } else { 0 };
        let mine = |client: usize| client == tenure.client;
        let pending = self
            .asked
            .values()
            .filter(|asked| mine(asked.client) && asked.said.is_none() && !asked.is_refused);
        let moved = pending.map(|asked| asked.sent_ms.saturating_add_signed(asked.lease_ms));
        let lease_ms = moved.chain([tenure.end_ms]).min().unwrap_or(0) + grace_ms;
        // It began not before it was first granted, and nothing that was asked before that ended it.
        let ended =
            self.ended.iter().filter(|(client, at_ms)| mine(*client) && *at_ms + 1_000_000 > tenure.said_ms);
        ended.map(|(_, at_ms)| *at_ms).chain([lease_ms, tampered_ms]).min().unwrap_or(0)
    }

    fn newest_fence(&self) -> u64 {
        self.tenures.last_key_value().map_or(0, |(fence, _)| *fence)
    }
}

impl Auditor {
    pub(super) fn newest_entry_fence(&self, key: Key) -> u64 {
        self.entries.get(&key).map_or(0, EntryHistory::newest_fence)
    }

    pub(super) fn note_registering(&mut self, lane: usize, registering: &Registering, now_ms: u64) {
        let client = self.lanes[lane].client;
        let Registering { key, lease_ms, value, .. } = *registering;
        let asked = AskedValue { client, lease_ms, sent_ms: now_ms, said: None, is_refused: false };
        self.entries.entry(key).or_default().asked.insert(value, asked);
    }

    pub(super) fn note_unregistering(&mut self, lane: usize, key: Key, now_ms: u64) {
        let client = self.lanes[lane].client;
        self.entries.entry(key).or_default().ended.push((client, now_ms));
    }

    pub(super) fn judge_registered(
        &mut self,
        request: usize,
        registering: &Registering,
        registered: &Registered,
        now_ms: u64,
    ) {
        let Registering { key, lease_ms, value, heartbeat } = *registering;
        let Registered { id, fence, remaining_ms, stamp_ms, renewed } = *registered;
        let is_lazy = kind_of(key) == NamespaceKind::Lazy;
        let asked = &self.requests[request];
        let (client, fence_before) = (self.lanes[asked.lane].client, asked.fence_before);
        let history = self.entries.entry(key).or_default();
        if let Some(asked) = history.asked.get_mut(&value) {
            asked.said = Some((now_ms, fence));
        }
        if remaining_ms != lease_ms || heartbeat && !renewed || !is_lazy && lease_ms <= 0 {
            return self.accuse("answers", || format!("{registering:?} got {registered:?}"));
        }
        let end_ms = stamp_ms.saturating_add_signed(remaining_ms);
        if let Some(tenure) = history.tenures.get_mut(&fence) {
            if tenure.client != client || tenure.id != id || !renewed && tenure.began {
                let text = format!("{registered:?} of client {client}, it was {tenure:?}");
                return self.accuse("fence-unique", || format!("entry {key}: {text}"));
            }
            tenure.began |= !renewed;
            if stamp_ms > tenure.stamp_ms {
                (tenure.stamp_ms, tenure.end_ms) = (stamp_ms, end_ms);
            } else if stamp_ms == tenure.stamp_ms {
                tenure.end_ms = tenure.end_ms.min(end_ms);
            }
            return;
        }
        if !renewed && fence <= fence_before {
            self.accuse("fence-order", || {
                format!("entry {key}: {registered:?}, {fence_before} was said before")
            });
            return;
        }
        let before = history.tenures.range(..fence).next_back().map(|(fence, _)| *fence);
        if let Some(before) = before.filter(|_| !renewed) {
            let floor_ms = history.floor_ms(before, is_lazy, &self.tampered);
            let earlier = format!("{:?}", history.tenures.get(&before));
            if floor_ms > stamp_ms {
                return self.accuse("early-grant", || {
                    format!("entry {key}: {registered:?}, the one before lives to {floor_ms}: {earlier}")
                });
            }
        }
        let tenure = Tenure { client, id, began: !renewed, stamp_ms, end_ms, said_ms: now_ms, over_ms: None };
        self.entries.entry(key).or_default().tenures.insert(fence, tenure);
        self.grant_count += 1;
    }

    /// A tenure that was there when this was asked, and is so now for sure: of its client, or of anybody else.
    fn living_tenure(&self, request: usize, key: Key, is_own: bool, now_ms: u64) -> Option<u64> {
        let asked = &self.requests[request];
        let (client, sent_ms) = (self.lanes[asked.lane].client, asked.first_sent_ms);
        let history = self.entries.get(&key)?;
        let is_lazy = kind_of(key) == NamespaceKind::Lazy;
        let newest = history.newest_fence();
        let tenure = history.tenures.get(&newest)?;
        let lives = tenure.over_ms.is_none()
            && tenure.said_ms < sent_ms
            && history.floor_ms(newest, is_lazy, &self.tampered) > now_ms;
        ((tenure.client == client) == is_own && lives).then_some(newest)
    }

    /// Whether what an owner asked for was refused for a reason.
    pub(super) fn is_entry_refusal_fair(
        &mut self,
        request: usize,
        operation: &Operation,
        error: &ErrorAnswer<'_>,
        now_ms: u64,
    ) -> bool {
        let client = self.lanes[self.requests[request].lane].client;
        let (key, value, lease_ms, heartbeat) = match *operation {
            Operation::Register(Registering { key, value, lease_ms, heartbeat }) => {
                (key, Some(value), lease_ms, heartbeat)
            }
            Operation::Unregister { key } => (key, None, 1, true),
            _ => return false,
        };
        if let Some(value) = value
            && let Some(asked) = self.entries.entry(key).or_default().asked.get_mut(&value)
        {
            asked.is_refused = true;
        }
        let is_lazy = kind_of(key) == NamespaceKind::Lazy;
        match error.code {
            ErrorCode::BadInput => value.is_some() && lease_ms <= 0 && !is_lazy,
            ErrorCode::NotFound => heartbeat && self.living_tenure(request, key, true, now_ms).is_none(),
            // Who would take the key meets its owner; who would keep it is not that.
            ErrorCode::Busy | ErrorCode::NotOwner if heartbeat == (error.code == ErrorCode::NotOwner) => {
                let owner = format!("client-{client}");
                let names_other = matches!(error.detail, ErrorDetail::Contention(contention)
                    if contention.owner != owner.as_bytes());
                names_other && self.living_tenure(request, key, true, now_ms).is_none()
            }
            ErrorCode::Frozen => !heartbeat && self.may_be_frozen(key),
            ErrorCode::Overloaded => self.settings.is_tight && !heartbeat,
            _ => false,
        }
    }

    pub(super) fn judge_unregistered(&mut self, request: usize, key: Key, was_expired: bool, now_ms: u64) {
        if was_expired {
            let is_lazy = kind_of(key) == NamespaceKind::Lazy;
            if !is_lazy || self.living_tenure(request, key, false, now_ms).is_some() {
                self.accuse("early-grant", || format!("entry {key} was taken from its owner at {now_ms}"));
            }
            return;
        }
        let sent_ms = self.requests[request].first_sent_ms;
        let client = self.lanes[self.requests[request].lane].client;
        let history = self.entries.entry(key).or_default();
        // Only what it had before it asked is surely over; it may have registered anew meanwhile.
        for tenure in history.tenures.values_mut() {
            if tenure.client == client && tenure.stamp_ms < sent_ms {
                tenure.over_ms.get_or_insert(now_ms);
            }
        }
    }

    pub(super) fn judge_look_up(&mut self, request: usize, key: Key, looked_up: &LookedUp<'_>, now_ms: u64) {
        let asked = &self.requests[request];
        let (sent_ms, fence_before) = (asked.first_sent_ms, asked.fence_before);
        let history = self.entries.entry(key).or_default();
        let is_lazy = kind_of(key) == NamespaceKind::Lazy;
        let entry = &looked_up.entry;
        if !looked_up.found {
            let newest = history.newest_fence();
            let lives = history
                .tenures
                .get(&newest)
                .is_some_and(|tenure| tenure.over_ms.is_none() && tenure.said_ms < sent_ms);
            if lives && history.floor_ms(newest, is_lazy, &self.tampered) > now_ms {
                let tenure = format!("{:?}", history.tenures.get(&newest));
                self.accuse("view", || format!("entry {key} is not found at {now_ms}: {tenure}"));
            }
            return;
        }
        let value = std::str::from_utf8(entry.value).ok().and_then(|value| value.parse::<u32>().ok());
        let given = value.and_then(|value| history.asked.get(&value)).copied();
        let is_owners = given.is_some_and(|given| {
            format!("client-{}", given.client).as_bytes() == entry.owner && given.sent_ms <= now_ms
        });
        let is_known = history.tenures.get(&entry.fence).is_none_or(|tenure| {
            tenure.id == entry.id && given.is_some_and(|given| given.client == tenure.client)
        });
        // A value that was known to be registered when a later one was asked for, and that one was said before.
        let is_stale = given.and_then(|given| given.said).is_some_and(|(said_ms, fence)| {
            history.asked.values().any(|later| {
                later.sent_ms > said_ms
                    && later
                        .said
                        .is_some_and(|(later_ms, later_fence)| later_ms < sent_ms && later_fence == fence)
            })
        });
        if !is_owners || !is_known || is_stale || entry.fence < fence_before {
            self.accuse("view", || {
                format!("entry {key}, fence {fence_before} said before {sent_ms}: {looked_up:?}")
            });
        }
    }
}
