//! Registrations of keys by owners. Nobody waits for a registered key. A client names the key and the owner to renew or
//! end a registration; it must have the identity that registered the key, or the right to release claims of others.
//!
//! In a *registry*, the hold ends with its lease. In a *lazy* namespace, the end of the lease has no immediate effect:
//! the owner can still renew it, and other owners can take the key once the lease has been expired for longer than the
//! grace period. Like a lease, the grace period ends only after all sockets were read, so a renewal that waits in a
//! socket is served first.

use super::quota::{MovedClaims, NewClaims, as_u32};
use super::{Caller, PageBounds, Shard};
use crate::access::Rights;
use crate::claim::{Claim, Extra, LeaseKind, Properties, RegisteredAs, State, flag};
use crate::effect::{
    Answer, ClaimAct, Effects, LogState, Refusal, Registered, Registration, RegistrationPage,
};
use crate::entry;
use crate::handle::{ClaimIx, DetailIx, KeyIx, LaneIx};
use crate::ids::{ClaimId, Scope};
use crate::limits::{LAZY_FORGET_MS, LAZY_GRACE_MS, REGISTRY_LEASE_MAX_MS};
use crate::time::Time;
use std::sync::Arc;

/// Requested end of the lease of a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// Length in milliseconds from now. In a lazy namespace, a negative length means that the lease has already
    /// expired.
    FromNow(i64),
    /// Instant of the engine's clock in milliseconds. It may be negative.
    Until(i64),
}

/// Registration of a key by an owner.
#[derive(Clone, Copy, Debug)]
pub struct Register<'a> {
    /// Key of at most 1024 bytes.
    pub key: &'a [u8],
    /// Owner of at least one byte.
    pub owner: &'a [u8],
    /// Value of at most 4096 bytes.
    pub value: &'a [u8],
    /// Type name of at most 256 bytes.
    pub type_name: &'a [u8],
    /// Requested end of the lease.
    pub lease: Lease,
    /// Whether the namespace is lazy: the end of a lease has no immediate effect in it. Otherwise the namespace is a
    /// registry, and a registration ends with its lease.
    pub lazy: bool,
    /// Whether the registration may be lost in a crash. It is recorded all the same if the counter of its key is in the
    /// log, or if the namespace requires a durable scope. A heartbeat does not change this.
    pub ephemeral: bool,
}

impl Register<'_> {
    /// Returns the number of bytes that the claim keeps besides its key.
    fn counted_len(&self) -> usize {
        self.owner.len() + self.value.len() + self.type_name.len()
    }

    fn counted(&self) -> NewClaims {
        NewClaims::of_key(self.key).and(self.counted_len())
    }
}

impl Shard {
    /// Registers a key that is free or may be taken, or renews the owner's registration.
    pub fn register(&mut self, caller: &Caller, register: &Register<'_>, effects: &mut impl Effects) {
        let registered = self.try_register(caller, register, effects);
        self.answer_registered(caller, registered, effects);
    }

    /// Renews an existing registration of the owner.
    pub fn heartbeat(&mut self, caller: &Caller, register: &Register<'_>, effects: &mut impl Effects) {
        let registered = self.try_heartbeat(caller, register, effects);
        self.answer_registered(caller, registered, effects);
    }

    /// Answers with the present registration, and whether it existed before. If the registration is in the log, or the
    /// request is refused, the answer waits until all present records are durable.
    fn answer_registered(
        &self,
        caller: &Caller,
        registered: Result<(ClaimIx, bool), Refusal>,
        effects: &mut impl Effects,
    ) {
        match registered {
            Ok((claim, renewed)) if self.claims[claim].is_recorded() => {
                let answer = Answer::Registered(self.registered(claim, renewed));
                self.answer_durably(caller.ticket, answer, effects);
            }
            Ok((claim, renewed)) => {
                effects.answer(caller.ticket, Answer::Registered(self.registered(claim, renewed)));
            }
            Err(refusal) => self.answer_durably(caller.ticket, Answer::Refused(refusal), effects),
        }
    }

    /// Ends the registration of this owner. In a lazy namespace, also ends the registration of another owner if its
    /// lease has been expired for longer than the grace period.
    pub fn unregister(
        &mut self,
        caller: &Caller,
        key: &[u8],
        owner: &[u8],
        lazy: bool,
        effects: &mut impl Effects,
    ) {
        let claim = self.registered_claim(caller.namespace, key);
        let answer = if claim.is_none() {
            Answer::Refused(Refusal::NotFound)
        } else if self.is_registered_by(caller, claim, owner) {
            if self.claims[claim].lane != caller.lane {
                self.report_act(caller.lane, claim, ClaimAct::Release, effects);
            }
            Answer::Unregistered { was_expired: false }
        } else if lazy && self.claims[claim].state() == State::Overdue {
            Answer::Unregistered { was_expired: true }
        } else {
            Answer::Refused(self.not_owner(caller, claim))
        };
        if matches!(answer, Answer::Refused(_)) {
            self.answer_durably(caller.ticket, answer, effects);
        } else if self.claims[claim].is_recorded() {
            self.end_hold(claim, effects);
            self.answer_durably(caller.ticket, answer, effects);
        } else {
            effects.answer(caller.ticket, answer);
            self.end_hold(claim, effects);
        }
    }

    /// Answers with the registration of a key, even if its lease has expired.
    pub fn look_up(&self, caller: &Caller, key: &[u8], effects: &mut impl Effects) {
        let claim = self.registered_claim(caller.namespace, key);
        let found = (claim.is_some()).then(|| Box::new(self.registration(caller.lane, claim)));
        self.answer_durably(caller.ticket, Answer::LookedUp(found), effects);
    }

    /// Answers with one page of the registrations in the namespace that the caller may list, of this type or of any
    /// type. The search begins at slot `from`.
    pub fn list_registrations(
        &self,
        caller: &Caller,
        type_name: Option<&[u8]>,
        from: u32,
        bounds: &PageBounds,
        effects: &mut impl Effects,
    ) {
        let mut page = RegistrationPage::default();
        let mut bytes = 0;
        page.next = self.scan(from, |claim| {
            let own_type = |detail: DetailIx| self.details[detail].registration().map(|own| &*own.type_name);
            let wanted = self.claims[claim].is_registration()
                && self.namespace_of(claim) == caller.namespace
                && self.may(caller.lane, claim, Rights::LIST)
                && type_name.is_none_or(|wanted| own_type(self.claims[claim].detail) == Some(wanted));
            if wanted {
                let registration = self.registration(caller.lane, claim);
                bytes += 64 + registration.key.len() + registration.owner.len() + registration.value.len();
                bytes += registration.type_name.len();
                page.registrations.push(registration);
            }
            page.registrations.len() < bounds.count_max && bytes < bounds.bytes_max
        });
        self.answer_durably(caller.ticket, Answer::RegistrationsListed(Box::new(page)), effects);
    }

    fn try_register(
        &mut self,
        caller: &Caller,
        register: &Register<'_>,
        effects: &mut impl Effects,
    ) -> Result<(ClaimIx, bool), Refusal> {
        let end_ms = self.checked_end_ms(register)?;
        let hash = self.hash(caller.namespace, register.key);
        let known = self.keys.find(caller.namespace, register.key, hash);
        let is_durable = self.is_registered_durably(caller.namespace, known, register)?;
        let claim = self.registered_claim(caller.namespace, register.key);
        if claim.is_some() && self.is_registered_by(caller, claim, register.owner) {
            self.may_grow(claim, caller.lane, register)?;
            self.raise_scope(claim, is_durable)?;
            self.renew_registration(claim, caller, register, end_ms, effects);
            return Ok((claim, true));
        }
        if claim.is_some() && !(register.lazy && self.claims[claim].state() == State::Overdue) {
            let entry = self.claims[claim].entry;
            return Err(Refusal::Busy(Box::new(self.contention(caller.lane, entry, false))));
        }
        if self.stopping {
            return Err(Refusal::Shutdown);
        }
        self.may_grant()?;
        if self.meets_freeze(caller, register.key) {
            return Err(Refusal::Frozen);
        }
        if is_durable {
            self.may_count_in(Scope::Local)?;
        }
        if claim.is_none() {
            self.has_room(caller.lane, || register.counted())?;
        } else {
            self.has_quota(caller.lane, register.counted())?;
            self.end_hold(claim, effects);
        }
        let entry =
            if known.is_none() { self.insert_key(caller.namespace, register.key, hash) } else { known };
        let scope = if is_durable { Scope::Local } else { Scope::Ephemeral };
        let properties = Properties::new(LeaseKind::Registered, false, scope);
        let claim = self.new_claim(caller.lane, entry, State::Waiting, properties);
        if is_durable {
            self.keys.entries[entry].flags |= entry::flag::LOCAL;
        }
        self.detail_mut(claim).owner = Some(Arc::from(register.owner));
        self.join_holders(claim);
        self.start_lease(claim, 0);
        self.renew_registration(claim, caller, register, end_ms, effects);
        if self.keys.entries[entry].has(entry::flag::QUEUED) {
            self.tell_held(claim, effects);
        }
        Ok((claim, false))
    }

    fn try_heartbeat(
        &mut self,
        caller: &Caller,
        register: &Register<'_>,
        effects: &mut impl Effects,
    ) -> Result<(ClaimIx, bool), Refusal> {
        let end_ms = self.checked_end_ms(register)?;
        let claim = self.registered_claim(caller.namespace, register.key);
        if claim.is_none() {
            return Err(Refusal::NotFound);
        }
        if !self.is_registered_by(caller, claim, register.owner) {
            return Err(self.not_owner(caller, claim));
        }
        self.may_grow(claim, caller.lane, register)?;
        self.renew_registration(claim, caller, register, end_ms, effects);
        Ok((claim, true))
    }

    /// Refuses a renewal with more bytes than the quota accounts of its lane allow. A renewal without additional bytes
    /// is not refused, because a registration may be older than its quota. But if the renewal moves the registration to
    /// other accounts, these must have room for all of it.
    #[inline]
    fn may_grow(&self, claim: ClaimIx, lane: LaneIx, register: &Register<'_>) -> Result<(), Refusal> {
        if self.has_accounts { self.has_quota_to_grow(claim, lane, register) } else { Ok(()) }
    }

    #[cold]
    fn has_quota_to_grow(
        &self,
        claim: ClaimIx,
        lane: LaneIx,
        register: &Register<'_>,
    ) -> Result<(), Refusal> {
        let len = register.counted_len();
        self.has_quota_for_move(claim, lane, as_u32(len), &mut MovedClaims::default())?;
        let detail = &self.details[self.claims[claim].detail];
        let before = detail.owner.as_ref().map_or(0, |owner| owner.len())
            + detail.registration().map_or(0, RegisteredAs::len);
        self.has_quota_for_bytes(lane, len.saturating_sub(before))
    }

    /// Whether this owner registered a claim, and the caller may act for the owner.
    fn is_registered_by(&self, caller: &Caller, claim: ClaimIx, owner: &[u8]) -> bool {
        self.owner_of(claim).as_ref() == owner && self.may(caller.lane, claim, Rights::RELEASE_OTHERS)
    }

    /// Whether a registration of a key must be durable: the request or the namespace asks for it, or the counter of the
    /// key is durable already. Returns false if the server has no log. `entry` is the record of the key, or `NONE`.
    ///
    /// # Errors
    /// Returns an error if the lowest scope of the namespace needs a log, and there is none.
    fn is_registered_durably(
        &self,
        namespace: u16,
        entry: KeyIx,
        register: &Register<'_>,
    ) -> Result<bool, Refusal> {
        let scope_min = self.scope_in(namespace, Scope::Ephemeral);
        if self.log_state == LogState::Absent {
            return if scope_min.is_durable() {
                Err(Refusal::ScopeUnavailable(scope_min))
            } else {
                Ok(false)
            };
        }
        let scope = if register.ephemeral { scope_min } else { Scope::Local };
        Ok(self.is_reserved_first(entry, scope))
    }

    /// Makes an ephemeral registration durable if `is_durable`.
    fn raise_scope(&mut self, claim: ClaimIx, is_durable: bool) -> Result<(), Refusal> {
        if !is_durable || self.claims[claim].is_recorded() {
            return Ok(());
        }
        self.may_count_in(Scope::Local)?;
        let Claim { entry, .. } = self.claims[claim];
        self.claims[claim].flags |= flag::DURABLE;
        self.keys.entries[entry].flags |= entry::flag::LOCAL;
        Ok(())
    }

    /// Returns the end of the lease that a registration requests, in milliseconds of the engine's clock. Shortens a
    /// lease that is longer than the maximum. Refuses a lease that is over already, unless the registration is lazy.
    fn checked_end_ms(&self, register: &Register<'_>) -> Result<i64, Refusal> {
        let now_ms = self.now_ms();
        let end_ms = match register.lease {
            Lease::FromNow(lease_ms) => now_ms.saturating_add(lease_ms),
            Lease::Until(end_ms) => end_ms,
        };
        if !register.lazy && end_ms <= now_ms {
            return Err(Refusal::bad_input("lease_ms", 1, "the lease must be at least 1 ms"));
        }
        Ok(end_ms.min(now_ms.saturating_add(REGISTRY_LEASE_MAX_MS)))
    }

    fn now_ms(&self) -> i64 {
        i64::try_from(self.now.as_millis()).unwrap_or(i64::MAX)
    }

    fn registered_claim(&self, namespace: u16, key: &[u8]) -> ClaimIx {
        let entry = self.keys.find(namespace, key, self.hash(namespace, key));
        if entry.is_none() {
            return ClaimIx::NONE;
        }
        let entry = &self.keys.entries[entry];
        if entry.has(entry::flag::QUEUED) { self.queues[entry.queue()].holders.first } else { entry.holder() }
    }

    fn renew_registration(
        &mut self,
        claim: ClaimIx,
        caller: &Caller,
        register: &Register<'_>,
        end_ms: i64,
        effects: &mut impl Effects,
    ) {
        let lease_ms = u64::try_from(end_ms.saturating_sub(self.now_ms())).unwrap_or(0);
        self.move_to_lane(claim, caller.lane, ClaimAct::Register { lease_ms }, effects);
        // A new registration has no lease yet. The deadline of a lazy one is later than the end of its lease.
        if let Some(end_ms) = self.lease_end_ms(claim) {
            self.measure_renewal(time_at(end_ms), effects);
        }
        self.claims[claim].set_granted(self.nanos);
        let type_name = self.type_name_for(claim, register.type_name);
        let detail = self.detail_mut(claim);
        let value = Arc::from(register.value);
        let registered = RegisteredAs { type_name, value, end_ms, lazy: register.lazy };
        detail.extra = Extra::Registration(Box::new(registered));
        self.count_len(claim, register.counted_len());
        if self.claims[claim].state() == State::Overdue {
            self.claims[claim].set_state(State::Held);
        }
        if register.lazy {
            self.time_lazy(claim);
        } else {
            self.set_deadline(claim, time_at(end_ms));
        }
        if self.claims[claim].is_recorded() {
            self.record_hold(claim, effects);
        }
    }

    /// Returns the name of the type for a new or existing registration, and updates the counts of types.
    fn type_name_for(&mut self, claim: ClaimIx, type_name: &[u8]) -> Arc<[u8]> {
        let namespace = self.namespace_of(claim);
        if let Some(registered) = self.details[self.claims[claim].detail].registration() {
            if *registered.type_name == *type_name {
                return Arc::clone(&registered.type_name);
            }
            self.registrations.end(namespace, &registered.type_name);
        }
        self.registrations.begin(namespace, type_name)
    }

    /// Subtracts a registration that is about to be freed from the count of its type.
    #[cold]
    #[inline(never)]
    pub(super) fn end_registration(&mut self, claim: ClaimIx) {
        if let Some(registered) = self.details[self.claims[claim].detail].registration() {
            let namespace = self.namespace_of(claim);
            self.registrations.end(namespace, &registered.type_name);
        }
    }

    /// Returns the number of registrations of a type in a namespace.
    pub fn registration_count(&self, namespace: u16, type_name: &[u8]) -> u64 {
        self.registrations.count(namespace, type_name)
    }

    /// Whether the claim is a lazy registration.
    #[inline]
    pub(super) fn is_lazy(&self, claim: ClaimIx) -> bool {
        let claim = &self.claims[claim];
        claim.is_registration()
            && self.details[claim.detail].registration().is_some_and(|registered| registered.lazy)
    }

    /// Sets the timer of a registration in a lazy namespace for the end of the grace period after its lease. From that
    /// time on, other owners may take the key.
    pub(super) fn time_lazy(&mut self, claim: ClaimIx) {
        let end_ms = self.lease_end_ms(claim).unwrap_or(0);
        let overdue_ms = end_ms.saturating_add(LAZY_GRACE_MS).saturating_add(1);
        self.set_deadline(claim, time_at(overdue_ms));
        if overdue_ms <= self.now_ms() {
            // The grace period is over already: the owner itself set a lease that expired long ago, or a restart
            // restores such a lease. So no renewal can still wait in a socket, and the registration becomes overdue at
            // once, without its timer.
            self.become_overdue(claim);
        }
    }

    /// Makes a lazy registration overdue: other owners may take it. Its owner can still renew it until it is taken, or
    /// removed `LAZY_FORGET_MS` after the end of its lease.
    pub(super) fn become_overdue(&mut self, claim: ClaimIx) {
        self.claims[claim].set_state(State::Overdue);
        let end_ms = self.lease_end_ms(claim).unwrap_or(0);
        self.set_deadline(claim, time_at(end_ms.saturating_add(LAZY_FORGET_MS)));
    }

    /// Returns the end of the lease of a registration in milliseconds of the engine's clock; `None` if the claim is new
    /// and has no registered data yet.
    fn lease_end_ms(&self, claim: ClaimIx) -> Option<i64> {
        self.details[self.claims[claim].detail].registration().map(|registered| registered.end_ms)
    }

    /// Returns the remaining lease of a registration in milliseconds; negative if it has expired.
    pub(super) fn lazy_remaining_ms(&self, claim: ClaimIx) -> i64 {
        self.lease_end_ms(claim).map_or(0, |end_ms| end_ms.saturating_sub(self.now_ms()))
    }

    /// Reports to the metrics that the lease of a registration expired.
    pub(super) fn tell_registration_expired(&self, claim: ClaimIx, effects: &mut impl Effects) {
        if let Some(registered) = self.details[self.claims[claim].detail].registration() {
            effects.registration_expired(self.namespace_of(claim), &registered.type_name);
        }
    }

    fn not_owner(&self, caller: &Caller, claim: ClaimIx) -> Refusal {
        Refusal::NotOwner(Box::new(self.contention(caller.lane, self.claims[claim].entry, false)))
    }

    fn registered(&self, claim: ClaimIx, renewed: bool) -> Registered {
        let (id, fence) = (self.id(claim), self.claims[claim].fence);
        Registered { id, fence, remaining_ms: self.lazy_remaining_ms(claim), renewed }
    }

    /// Returns a registration as a lane may see it: without its id, owner and value, unless the lane may know them.
    fn registration(&self, lane: LaneIx, index: ClaimIx) -> Registration {
        let is_known = self.may(lane, index, Rights::INSPECT);
        let claim = &self.claims[index];
        let detail = &self.details[claim.detail];
        Registration {
            id: if is_known { self.id(index) } else { ClaimId::default() },
            fence: claim.fence,
            age_ms: self.age_ms(claim),
            remaining_ms: self.lazy_remaining_ms(index),
            key: self.keys.key(claim.entry).to_vec(),
            owner: self.owner_if(is_known, index),
            value: detail.text().filter(|_| is_known).unwrap_or_default().to_vec(),
            type_name: detail.registration().map(|own| own.type_name.to_vec()).unwrap_or_default(),
        }
    }
}

/// Returns an instant of the engine's clock. Negative values give its beginning.
fn time_at(millis: i64) -> Time {
    Time::from_millis(u64::try_from(millis).unwrap_or(0))
}
