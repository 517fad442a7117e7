//! Rules about registrations: a key has one owner at a time, for the requested lease, and shows the value of
//! the newest request.

use super::Auditor;
use super::holds::Tampering;
use crate::key::{Key, kind_of};
use crate::operation::{Operation, Registration, type_of};
use std::collections::BTreeMap;
use waymaker_protocol::{
    Entry, ErrorAnswer, ErrorCode, ErrorDetail, LockId, LookedUp, NamespaceKind, Registered,
};

/// Time after its lease in which a lazy registration still belongs to its owner, in milliseconds.
const GRACE_MS: u64 = 5_000;

/// Known history of one key of a registry.
#[derive(Debug, Default)]
pub(crate) struct RegistrationHistory {
    /// Tenures by fence.
    tenures: BTreeMap<u64, Tenure>,
    /// Register requests, by value.
    requests: BTreeMap<u32, ValueRequest>,
    /// Unregister requests.
    endings: Vec<Ending>,
}

/// Time during which one owner has the key.
#[derive(Debug)]
struct Tenure {
    client: usize,
    id: LockId,
    /// Whether the auditor knows the first registration, not only a renewal.
    began: bool,
    /// Stamp of the newest known lease. `end_ms` is the earliest end by that lease.
    stamp_ms: u64,
    end_ms: u64,
    lease_ms: u64,
    said_ms: u64,
    over_ms: Option<u64>,
}

/// A request of an owner to end its registration.
#[derive(Clone, Copy, Debug)]
struct Ending {
    request: usize,
    client: usize,
    sent_ms: u64,
    answered_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct ValueRequest {
    client: usize,
    /// Earliest end of the requested lease.
    end_ms: u64,
    sent_ms: u64,
    /// When the registration was confirmed, and its fence.
    said: Option<(u64, u64)>,
    is_refused: bool,
}

pub(crate) type Registrations = BTreeMap<Key, RegistrationHistory>;

impl RegistrationHistory {
    /// Returns the earliest instant at which another client may have the key after this tenure.
    fn floor_ms(&self, fence: u64, is_lazy: bool, tampered: &BTreeMap<LockId, Tampering>) -> u64 {
        let Some(tenure) = self.tenures.get(&fence) else { return 0 };
        let tampered_ms = tampered.get(&tenure.id).map_or(u64::MAX, |tampering| tampering.may_end_ms);
        let grace_ms = if is_lazy { GRACE_MS } else { 0 };
        let mine = |client: usize| client == tenure.client;
        let pending = self
            .requests
            .values()
            .filter(|request| mine(request.client) && request.said.is_none() && !request.is_refused);
        let moved = pending.map(|request| request.end_ms);
        // An end before the beginning of the clock is 0 here; its grace period may have ended too.
        let lease_ms = match moved.chain([tenure.end_ms]).min() {
            None | Some(0) => 0,
            Some(end_ms) => end_ms + grace_ms,
        };
        // An unregister request that was answered before the newest lease did not end it.
        let may_end = |ending: &&Ending| {
            mine(ending.client) && ending.answered_ms.is_none_or(|at_ms| at_ms >= tenure.stamp_ms)
        };
        let endings = self.endings.iter().filter(may_end).map(|ending| ending.sent_ms);
        endings.chain([lease_ms, tampered_ms]).min().unwrap_or(0)
    }

    fn note_ending_answered(&mut self, request: usize, now_ms: u64) {
        if let Some(ending) = self.endings.iter_mut().find(|ending| ending.request == request) {
            ending.answered_ms = Some(now_ms);
        }
    }

    fn newest_fence(&self) -> u64 {
        self.tenures.last_key_value().map_or(0, |(fence, _)| *fence)
    }
}

impl Auditor {
    pub(super) fn newest_registration_fence(&self, key: Key) -> u64 {
        self.registrations.get(&key).map_or(0, RegistrationHistory::newest_fence)
    }

    pub(super) fn note_registering(&mut self, lane: usize, registration: &Registration, now_ms: u64) {
        let client = self.lanes[lane].client;
        let Registration { key, value, .. } = *registration;
        let end_ms = registration.end_ms(now_ms);
        let request = ValueRequest { client, end_ms, sent_ms: now_ms, said: None, is_refused: false };
        self.registrations.entry(key).or_default().requests.insert(value, request);
    }

    /// Records that a register request is sent to another server, which may execute it once more.
    pub(super) fn note_registering_anew(&mut self, registration: &Registration) {
        let history = self.registrations.entry(registration.key).or_default();
        if let Some(request) = history.requests.get_mut(&registration.value) {
            (request.said, request.is_refused) = (None, false);
        }
    }

    /// Returns each registry key that is surely registered now, with its newest fence.
    pub(super) fn surely_registered(&self, now_ms: u64) -> Vec<(Key, u64)> {
        let registries =
            self.registrations.iter().filter(|(key, _)| kind_of(**key) == NamespaceKind::Registry);
        let newest = registries.filter_map(|(key, history)| {
            let fence = history.newest_fence();
            let lives = history.tenures.get(&fence)?.over_ms.is_none()
                && history.floor_ms(fence, false, &self.tampered) > now_ms;
            lives.then_some((*key, fence))
        });
        newest.collect()
    }

    /// Records that a restarted server gives a registration its full lease.
    pub(super) fn note_registered_anew(&mut self, key: Key, fence: u64, now_ms: u64) {
        let history = self.registrations.entry(key).or_default();
        if let Some(tenure) = history.tenures.get_mut(&fence) {
            tenure.end_ms = tenure.end_ms.max(now_ms + tenure.lease_ms);
        }
    }

    pub(super) fn note_unregistering(&mut self, request: usize, key: Key, sent_ms: u64) {
        let client = self.lanes[self.requests[request].lane].client;
        let ending = Ending { request, client, sent_ms, answered_ms: None };
        self.registrations.entry(key).or_default().endings.push(ending);
    }

    /// Records that an unregister request is sent to another server. That server may have forgotten its
    /// response, and ends the current registration.
    pub(super) fn note_unregistering_anew(&mut self, request: usize, key: Key) {
        let sent_ms = self.requests[request].sent_ms;
        let mut endings = self.registrations.entry(key).or_default().endings.iter_mut();
        if let Some(ending) = endings.find(|ending| ending.request == request && ending.answered_ms.is_some())
        {
            (ending.sent_ms, ending.answered_ms) = (sent_ms, None);
        }
    }

    /// Rules `answers`, `fence-unique`, `fence-order` and `early-grant` for one REGISTERED response.
    pub(super) fn judge_registered(
        &mut self,
        request: usize,
        registration: &Registration,
        registered: &Registered,
        now_ms: u64,
    ) {
        let Registration { key, value, heartbeat, .. } = *registration;
        let Registered { id, fence, remaining_ms, stamp_ms, renewed } = *registered;
        let is_lazy = kind_of(key) == NamespaceKind::Lazy;
        let record = &self.requests[request];
        let (client, fence_before) = (self.lanes[record.lane].client, record.fence_before);
        let history = self.registrations.entry(key).or_default();
        if let Some(record) = history.requests.get_mut(&value) {
            record.said = Some((now_ms, fence));
        }
        let lease_ms = registration.remaining_ms(stamp_ms);
        if remaining_ms != lease_ms || heartbeat && !renewed || !is_lazy && lease_ms <= 0 {
            return self.accuse("answers", || {
                format!("{registration:?} must get the requested lease, but got {registered:?}")
            });
        }
        let end_ms = stamp_ms.saturating_add_signed(remaining_ms);
        let full_ms = u64::try_from(remaining_ms).unwrap_or(0);
        if let Some(tenure) = history.tenures.get_mut(&fence) {
            if tenure.client != client || tenure.id != id || !renewed && tenure.began {
                let text = format!("client {client} got {registered:?}, but the fence belongs to {tenure:?}");
                return self.accuse("fence-unique", || format!("registration of key {key}: {text}"));
            }
            tenure.began |= !renewed;
            if stamp_ms > tenure.stamp_ms {
                (tenure.stamp_ms, tenure.end_ms, tenure.lease_ms) = (stamp_ms, end_ms, full_ms);
            } else if stamp_ms == tenure.stamp_ms {
                tenure.end_ms = tenure.end_ms.min(end_ms);
                tenure.lease_ms = tenure.lease_ms.min(full_ms);
            }
            return;
        }
        if !renewed && fence <= fence_before {
            self.accuse("fence-order", || {
                format!(
                    "registration of key {key}: the fence must be above the known fence {fence_before}, but the server sent {registered:?}"
                )
            });
            return;
        }
        let before = history.tenures.range(..fence).next_back().map(|(fence, _)| *fence);
        if let Some(before) = before.filter(|_| !renewed) {
            let floor_ms = history.floor_ms(before, is_lazy, &self.tampered);
            let earlier = format!("{:?}", history.tenures.get(&before));
            if floor_ms > stamp_ms {
                return self.accuse("early-grant", || {
                    format!(
                        "registration of key {key}: {registered:?}, but the earlier registration lasts to {floor_ms} ms: {earlier}"
                    )
                });
            }
        }
        if !renewed {
            self.judge_granted_in_time(request, stamp_ms);
        }
        let began = !renewed;
        let tenure =
            Tenure { client, id, began, stamp_ms, end_ms, lease_ms: full_ms, said_ms: now_ms, over_ms: None };
        self.registrations.entry(key).or_default().tenures.insert(fence, tenure);
        if !renewed && self.requests[request].sent_count == 1 {
            self.owe_grant_to_watchers(key, fence, stamp_ms, now_ms);
        }
        self.grant_count += 1;
    }

    /// Returns the fence of a registration that existed before the request was sent and surely still exists.
    /// It belongs to the client of the request if `is_own`, otherwise to another client.
    fn living_tenure(&self, request: usize, key: Key, is_own: bool, now_ms: u64) -> Option<u64> {
        let record = &self.requests[request];
        let (client, sent_ms) = (self.lanes[record.lane].client, record.first_sent_ms);
        let history = self.registrations.get(&key)?;
        let is_lazy = kind_of(key) == NamespaceKind::Lazy;
        let newest = history.newest_fence();
        let tenure = history.tenures.get(&newest)?;
        let lives = tenure.over_ms.is_none()
            && tenure.said_ms < sent_ms
            && history.floor_ms(newest, is_lazy, &self.tampered) > now_ms;
        ((tenure.client == client) == is_own && lives).then_some(newest)
    }

    /// Returns whether the server had a reason for this error to a register or unregister request.
    pub(super) fn is_registration_refusal_fair(
        &mut self,
        request: usize,
        operation: &Operation,
        error: &ErrorAnswer<'_>,
        now_ms: u64,
    ) -> bool {
        let client = self.lanes[self.requests[request].lane].client;
        let (key, value, lease_ms, heartbeat) = match *operation {
            Operation::Register(registration @ Registration { key, value, heartbeat, .. }) => {
                (key, Some(value), registration.remaining_ms(now_ms), heartbeat)
            }
            Operation::Unregister { key } => (key, None, 1, true),
            _ => return false,
        };
        let history = self.registrations.entry(key).or_default();
        history.note_ending_answered(request, now_ms);
        if let Some(record) = value.and_then(|value| history.requests.get_mut(&value)) {
            record.is_refused = true;
        }
        let is_lazy = kind_of(key) == NamespaceKind::Lazy;
        match error.code {
            ErrorCode::BadInput => value.is_some() && lease_ms <= 0 && !is_lazy,
            ErrorCode::NotFound => heartbeat && self.living_tenure(request, key, true, now_ms).is_none(),
            // A client that wants the key gets Busy; a client that wants to keep or end its registration gets
            // NotOwner.
            ErrorCode::Busy | ErrorCode::NotOwner if heartbeat == (error.code == ErrorCode::NotOwner) => {
                let owner = format!("client-{client}");
                let names_other = matches!(error.detail, ErrorDetail::Contention(contention)
                    if contention.owner != owner.as_bytes());
                names_other && self.living_tenure(request, key, true, now_ms).is_none()
            }
            ErrorCode::Shutdown => self.may_be_shut_out(operation),
            ErrorCode::Frozen => {
                let sent_ms = self.requests[request].first_sent_ms;
                !heartbeat && self.may_be_frozen(key, sent_ms, now_ms)
            }
            ErrorCode::Overloaded => self.settings.is_tight && !heartbeat,
            _ => false,
        }
    }

    /// Rule `early-grant`: unregistering removes another client's registration only after the lease and its grace period.
    pub(super) fn judge_unregistered(&mut self, request: usize, key: Key, was_expired: bool, now_ms: u64) {
        self.registrations.entry(key).or_default().note_ending_answered(request, now_ms);
        if was_expired {
            let is_lazy = kind_of(key) == NamespaceKind::Lazy;
            if !is_lazy || self.living_tenure(request, key, false, now_ms).is_some() {
                self.accuse("early-grant", || {
                    format!(
                        "registration of key {key} was unregistered by another client at {now_ms} ms, while its owner still has the lease"
                    )
                });
            }
            return;
        }
        let sent_ms = self.requests[request].first_sent_ms;
        let client = self.lanes[self.requests[request].lane].client;
        let history = self.registrations.entry(key).or_default();
        // Only the tenures that began before the request are surely over; the client may have registered
        // again meanwhile.
        for tenure in history.tenures.values_mut() {
            if tenure.client == client && tenure.stamp_ms < sent_ms {
                tenure.over_ms.get_or_insert(now_ms);
            }
        }
    }

    /// Rule `view`: LOOK_UP finds a registration that surely exists, and shows no fence older than a known one.
    pub(super) fn judge_look_up(&mut self, request: usize, key: Key, looked_up: &LookedUp<'_>, now_ms: u64) {
        let record = &self.requests[request];
        let (sent_ms, fence_before) = (record.first_sent_ms, record.fence_before);
        let history = self.registrations.entry(key).or_default();
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
                self.accuse("view", || {
                    format!("registration of key {key} is not found at {now_ms} ms, but its registration lasts: {tenure}")
                });
            }
            return;
        }
        if entry.fence < fence_before {
            self.accuse("view", || {
                format!(
                    "registration of key {key}: fence {fence_before} was known before {sent_ms} ms, but LOOK_UP shows an older one: {looked_up:?}"
                )
            });
        }
        self.judge_registration(request, key, entry);
    }

    /// Rule `view`: a registration is shown with the owner, type and value of its newest register request.
    pub(super) fn judge_registration(&mut self, request: usize, key: Key, entry: &Entry<'_>) {
        let sent_ms = self.requests[request].first_sent_ms;
        let history = self.registrations.entry(key).or_default();
        let value = std::str::from_utf8(entry.value).ok().and_then(|value| value.parse::<u32>().ok());
        let given = value.and_then(|value| history.requests.get(&value)).copied();
        let is_owners =
            given.is_some_and(|given| format!("client-{}", given.client).as_bytes() == entry.owner);
        let is_typed = value.is_some_and(|value| type_of(value) == entry.type_name);
        let is_known = history.tenures.get(&entry.fence).is_none_or(|tenure| {
            tenure.id == entry.id && given.is_some_and(|given| given.client == tenure.client)
        });
        // The shown value is stale if the request for a later value was sent after this one was confirmed,
        // and was confirmed under the same fence before this request was sent.
        let is_stale = given.and_then(|given| given.said).is_some_and(|(said_ms, fence)| {
            history.requests.values().any(|later| {
                later.sent_ms > said_ms
                    && later
                        .said
                        .is_some_and(|(later_ms, later_fence)| later_ms < sent_ms && later_fence == fence)
            })
        });
        if !is_owners || !is_typed || !is_known || is_stale {
            self.accuse("view", || {
                format!(
                    "registration of key {key}, requested at {sent_ms} ms, is shown with a wrong owner, type or id, or with an old value: {entry:?}"
                )
            });
        }
    }

    /// Returns the registrations of a kind that existed before `since_ms` and surely still exist.
    pub(super) fn living_registrations(
        &self,
        kind: NamespaceKind,
        since_ms: u64,
        now_ms: u64,
    ) -> Vec<LockId> {
        let is_lazy = kind == NamespaceKind::Lazy;
        let histories = self.registrations.iter().filter(|(key, _)| kind_of(**key) == kind);
        let newest = histories.filter_map(|(_, history)| {
            let fence = history.newest_fence();
            let tenure = history.tenures.get(&fence)?;
            let lives = tenure.over_ms.is_none()
                && tenure.said_ms < since_ms
                && history.floor_ms(fence, is_lazy, &self.tampered) > now_ms;
            lives.then_some(tenure.id)
        });
        newest.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::workload::Settings;
    use waymaker_protocol::{Response, Unregistered};

    /// Returns an auditor with one client on each of two connections, and a registry key.
    fn auditor() -> (Auditor, Key) {
        let mut random = Random::new(0);
        let settings = Settings::new(0, None, &mut random);
        let key = settings.mix.choose_registry_key(NamespaceKind::Registry, &mut random);
        let mut auditor = Auditor::new(&settings);
        for client in 0..2 {
            let lane = auditor.new_lane(client);
            auditor.open(lane, false);
        }
        (auditor, key)
    }

    fn says(auditor: &mut Auditor, connection: usize, number: u32, response: &Response<'_>, now_ms: u64) {
        let mut frame = Vec::new();
        response.encode(number, &mut frame);
        auditor.said(connection, &frame, now_ms);
    }

    /// The client of `connection` registers the key, with a lease that does not expire in these tests.
    fn registers(auditor: &mut Auditor, key: Key, connection: usize, fence: u64, now_ms: u64) {
        let (number, lease_ms) = (fence as u32, 4_000);
        let registration = Registration { key, lease_ms, absolute: false, value: number, heartbeat: false };
        auditor.asks(connection, number, Operation::Register(registration), 0, now_ms);
        let id = LockId { place: fence, secret: fence };
        let registered = Registered { id, fence, remaining_ms: lease_ms, stamp_ms: now_ms, renewed: false };
        says(auditor, connection, number, &Response::Registered(registered), now_ms);
    }

    /// The first client registers the key, unregisters it with request 100, and registers it again.
    fn gets_it_anew(auditor: &mut Auditor, key: Key) {
        registers(auditor, key, 0, 1, 10_000);
        auditor.asks(0, 100, Operation::Unregister { key }, 0, 10_010);
        let unregistered = Response::Unregistered(Unregistered { was_expired: false });
        says(auditor, 0, 100, &unregistered, 10_020);
        registers(auditor, key, 0, 2, 10_030);
    }

    #[test]
    fn an_entry_registered_again_is_not_taken_from_its_owner() {
        let (mut auditor, key) = auditor();
        gets_it_anew(&mut auditor, key);
        assert_eq!(auditor.violation(), None);
        registers(&mut auditor, key, 1, 3, 10_040);
        assert_eq!(auditor.violation().map(|violation| violation.rule), Some("early-grant"));
    }

    #[test]
    fn an_entry_may_change_owner_if_unregister_was_repeated_after_a_restart() {
        let (mut auditor, key) = auditor();
        gets_it_anew(&mut auditor, key);
        auditor.note_start(10_031, 0, false);
        auditor.asks(0, 100, Operation::Unregister { key }, 0, 10_035);
        registers(&mut auditor, key, 1, 3, 10_040);
        assert_eq!(auditor.violation(), None);
    }

    #[test]
    fn an_entry_may_change_owner_after_an_unanswered_unregister() {
        let (mut auditor, key) = auditor();
        registers(&mut auditor, key, 0, 1, 10_000);
        auditor.asks(0, 100, Operation::Unregister { key }, 0, 10_010);
        registers(&mut auditor, key, 1, 2, 10_040);
        assert_eq!(auditor.violation(), None);
    }
}
