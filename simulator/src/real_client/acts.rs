//! The acts and the faults of a process.

use super::{
    Answer, Call, CallerFuture, ExtendResult, Guard, KeyWatch, Losses, PendingAcquire, RealClient, Terms,
    WatchStage,
};
use crate::form::Form;
use crate::operation::{Acquire, Operation, request_id};
use crate::world::{Prey, World};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use waymaker_client::{
    AcquireBuilder, Clock, Enqueued, FenceScope, Lock, MultiLock, NamespaceKind, Permit, QueuePlace, TreeLock,
};
use waymaker_engine::Scope;

/// Largest number of acquires that a process awaits at a time.
const ACQUIRES_MAX: usize = 8;
/// Shortest `release_after` that a client takes into account for its local deadline.
const RELEASE_AFTER_MIN_MS: u32 = 1_000;

impl RealClient {
    /// Performs one act that the seed chooses.
    pub(super) fn act(&mut self, world: &mut World) {
        if world.random.percent(self.plan.fault_percent) {
            return self.suffer(world);
        }
        match world.random.below(100) {
            0..=39 if self.acquires.len() < ACQUIRES_MAX => self.ask(world),
            0..=54 if !self.acquires.is_empty() => {
                // The caller gives up, possibly at the moment of the grant.
                let index = world.random.below(self.acquires.len() as u64) as usize;
                drop(self.acquires.swap_remove(index));
            }
            55..=74 => self.let_go(world),
            75..=84 => self.extend(world),
            85..=87 => self.watch(world),
            88 => drop(self.pick_watch(world)),
            89 => self.release_by_id(world),
            _ => {}
        }
    }

    pub(super) fn ask(&mut self, world: &mut World) {
        let lane = world.random.below(self.lanes.len() as u64) as usize;
        let (settings, unix_us, kind) = (world.settings.clone(), world.unix_us(), self.lanes[lane].kind);
        let acquire = settings.choose_acquire(&mut world.random, kind, true, unix_us);
        let named = world.random.percent(self.plan.request_id_percent);
        // Most values are long enough for the client to take them into account.
        let release_after_ms =
            acquire.release_after_ms.map(|ms| if ms % 4 == 0 { ms } else { ms + RELEASE_AFTER_MIN_MS });
        let acquire = Acquire { release_after_ms, ..acquire };
        let acquire = self.named(world, Acquire { label: None, request_id: None, ..acquire }, named);
        let is_renewed = acquire.session_lease || !world.random.once_in(4);
        let enqueues = world.random.once_in(4);
        let harness = &self.lanes[lane].harness;
        let losses = Losses::default();
        let place: Arc<Mutex<Option<QueuePlace>>> = Arc::default();
        let name = |key| settings.name_of(key);
        let future: CallerFuture<_> = match acquire.form {
            Form::One => {
                let builder = harness.key(&name(acquire.key), acquire.shared);
                let builder = match acquire.priority {
                    Some(priority) => builder.priority(priority),
                    None => builder,
                };
                granted(
                    with_options(builder, &acquire, is_renewed, &losses),
                    enqueues.then(|| Arc::clone(&place)),
                )
            }
            Form::Keys(keys) => {
                let keys: Vec<_> = keys.items().iter().map(|(key, shared)| (name(*key), *shared)).collect();
                let builder = harness.keys(keys.iter().map(|(key, shared)| (key.as_slice(), *shared)));
                let builder = match acquire.priority {
                    Some(priority) => builder.priority(priority),
                    None => builder,
                };
                granted(
                    with_options(builder, &acquire, is_renewed, &losses),
                    enqueues.then(|| Arc::clone(&place)),
                )
            }
            Form::Paths(paths) => {
                let builder = paths.items().iter().fold(harness.paths(), |builder, path| match path.write {
                    true => builder.write(path.names()),
                    false => builder.read(path.names()),
                });
                let builder = with_options(builder, &acquire, is_renewed, &losses);
                let builder = match acquire.is_endless() {
                    true => builder.without_lease(milliseconds(
                        acquire.release_after_ms.unwrap_or(0).max(RELEASE_AFTER_MIN_MS),
                    )),
                    false => builder,
                };
                granted(builder, enqueues.then(|| Arc::clone(&place)))
            }
            Form::Permits(permits) => {
                let builder = harness.permits(
                    &name(acquire.key),
                    permits.capacity,
                    permits.permits,
                    permits.timestamp_us,
                );
                granted(
                    with_options(builder, &acquire, is_renewed, &losses),
                    enqueues.then(|| Arc::clone(&place)),
                )
            }
        };
        let has_end = !acquire.session_lease && !acquire.is_endless();
        let terms = Terms { kind, is_renewed, has_end, is_on_session: acquire.session_lease };
        let call = Call { is_named: named, ..self.call(world, kind, Some(acquire.wait_ms)) };
        world.auditor.note_call(self.index);
        self.acquires.push(PendingAcquire { future, terms, call, losses, acquire, place });
        self.look(world);
    }

    /// Gives an acquire a request id that other acquires of the owner share, also in other processes. All
    /// acquires with a request id use the same kind of lease.
    fn named(&self, world: &mut World, acquire: Acquire, named: bool) -> Acquire {
        if !named {
            return acquire;
        }
        let number = world.random.below(3) as u8;
        let session_lease = number == 0;
        let lease_ms = match number {
            0 => 0,
            1 => 1_500,
            _ => 400,
        };
        Acquire { request_id: Some(number), session_lease, lease_ms, ..acquire }
    }

    /// Releases, drops or forgets a guard.
    fn let_go(&mut self, world: &mut World) {
        if self.guards.is_empty() {
            return;
        }
        let index = world.random.below(self.guards.len() as u64) as usize;
        let guard = self.guards.swap_remove(index);
        let Some(lock) = Arc::into_inner(guard.lock) else { return };
        match world.random.below(20) {
            0 if guard.terms.has_end => {
                let was_held = lock.is_held();
                world.auditor.note_forgotten(lock.forget(), was_held);
            }
            0..=9 => drop(lock),
            _ => {
                self.await_answer(
                    world,
                    guard.terms.kind,
                    async move { lock.release().await.map(|()| None) },
                );
            }
        }
    }

    /// Extends a guard, in some cases several times at once.
    fn extend(&mut self, world: &mut World) {
        if self.guards.is_empty() {
            return;
        }
        let index = world.random.below(self.guards.len() as u64) as usize;
        self.extend_guard(world, index);
        while world.random.once_in(3) && self.guards.len() > index {
            self.extend_guard(world, index);
        }
        let guard = self.guards.get(index).filter(|guard| guard.lock.is_held() && world.random.once_in(3));
        if let Some((kind, id)) = guard.map(|guard| (guard.terms.kind, guard.lock.id())) {
            let lease_ms = world.settings.clone().choose_lease_ms(&mut world.random);
            let operation = Operation::Extend { id, lease_ms, own: false };
            world.prey.push(Prey { kind, operation, process: self.index });
        }
    }

    /// Extends the guard whose lease another client changes at the same time.
    pub(super) fn move_beside(&mut self, world: &mut World) {
        let Some(id) = self.rival.take() else { return };
        if let Some(index) = self.guards.iter().position(|guard| guard.lock.id() == id) {
            self.extend_guard(world, index);
        }
    }

    fn extend_guard(&mut self, world: &mut World, index: usize) {
        let guard = &self.guards[index];
        let lock = Arc::downgrade(&guard.lock);
        let lease_ms = world.settings.clone().choose_lease_ms(&mut world.random).max(10);
        let Some(lock) = lock.upgrade() else { return };
        let (kind, id) = (guard.terms.kind, lock.id());
        world.auditor.note_extend_of(self.index, id, world.now_us);
        self.await_answer(world, kind, async move {
            lock.extend(milliseconds(lease_ms)).await.map(|remaining| Some((id, remaining)))
        });
    }

    /// Watches a key that this process does not watch yet.
    fn watch(&mut self, world: &mut World) {
        let Some(lane) = self.lanes.iter().find(|lane| lane.kind == NamespaceKind::Flat) else { return };
        let (settings, unix_us) = (world.settings.clone(), world.unix_us());
        let key = settings.choose_acquire(&mut world.random, lane.kind, true, unix_us).key;
        if self.watches.iter().any(|watching| watching.key == key) {
            return;
        }
        let stage = WatchStage::Beginning(Box::pin(lane.harness.watch(&settings.name_of(key))));
        self.watches.push(KeyWatch { key, stage, since_us: world.now_us, shown: None });
        self.look_at_watches(world);
    }

    fn pick_watch(&mut self, world: &mut World) -> Option<KeyWatch> {
        let count = self.watches.len() as u64;
        (count > 0).then(|| self.watches.swap_remove(world.random.below(count) as usize))
    }

    /// Releases one of the process's own holds by its id, without telling the guard.
    fn release_by_id(&mut self, world: &mut World) {
        let held = self.guards.iter().filter(|guard| guard.lock.is_held());
        let held: Vec<_> =
            held.map(|guard| (guard.terms.kind, guard.lock.id(), guard.lock.key().to_vec())).collect();
        if held.is_empty() {
            return;
        }
        let (kind, id, key) = held[world.random.below(held.len() as u64) as usize].clone();
        if kind == NamespaceKind::Flat {
            world.auditor.note_release_by_id(id);
            let release = self.lane_of(kind).harness.release(id, &key);
            self.await_answer(world, kind, async move { release.await.map(|_| None) });
        }
    }

    /// Registers the future of a call, to be polled now and in later steps.
    fn await_answer(
        &mut self,
        world: &mut World,
        kind: NamespaceKind,
        answer: impl Future<Output = waymaker_client::Result<ExtendResult>> + 'static,
    ) {
        let mut future: CallerFuture<waymaker_client::Result<ExtendResult>> = Box::pin(answer);
        let call = self.call(world, kind, None);
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => self.answers.push(Answer { future, call }),
            Poll::Ready(Ok(_)) => {}
            Poll::Ready(Err(error)) => {
                self.judge_refusal(world, &call, &error);
            }
        }
    }

    /// Returns the record of a call that begins now. Only an acquire has a wait.
    fn call(&self, world: &World, kind: NamespaceKind, wait_ms: Option<u32>) -> Call {
        Call {
            kind,
            since_us: world.now_us,
            since: self.clock.now(),
            wait_ms,
            is_named: false,
            patience: self.plan.patience,
        }
    }

    /// Lets one fault happen to the process.
    fn suffer(&mut self, world: &mut World) {
        let index = self.index;
        let connections: Vec<usize> = self.lanes.iter().filter_map(|lane| lane.connection).collect();
        match world.random.below(10) {
            0..=4 => {
                if let Some(connection) = world.random.pick(&connections) {
                    world.cut(connection);
                    self.name_to_thieves(world);
                }
            }
            5 => {
                // The connection breaks after a while, so responses in flight are lost. An adversarial client
                // may end a hold meanwhile.
                if let Some(connection) = world.random.pick(&connections) {
                    let for_us = world.random.spread(1_000, self.plan.silence_max_us);
                    world.hold_back(connection, false, for_us + 1);
                    self.breaks.push((world.now_us + for_us, connection));
                    self.name_to_thieves(world);
                }
            }
            6 => {
                if let Some(connection) = world.random.pick(&connections) {
                    let for_us = world.random.spread(1_000, world.settings.late_max_us);
                    let to_server = world.random.once_in(2);
                    world.hold_back(connection, to_server, for_us);
                }
            }
            7..=8 => {
                let for_us = world.random.spread(1_000, 4_000_000);
                self.paused_until_us = world.now_us + for_us;
                self.awake_us = self.paused_until_us;
                world.trace.note(world.now_us, 35, index as u64, || {
                    format!("process {index}  pauses for {} ms", for_us / 1000)
                });
            }
            _ => self.crash(world),
        }
    }

    /// Lets an adversarial client end a hold of this process, which may not have read of the grant yet.
    fn name_to_thieves(&self, world: &mut World) {
        let held = self.guards.iter().filter(|guard| guard.lock.is_held());
        let mut ids: Vec<_> = held.map(|guard: &Guard| (guard.terms.kind, guard.lock.id())).collect();
        for lane in &self.lanes {
            let granted = world.auditor.holds_granted_to(lane.auditor_lane());
            let is_guarded = |id| self.guards.iter().any(|guard| guard.lock.id() == id);
            ids.extend(granted.filter(|id| !is_guarded(*id)).map(|id| (lane.kind, id)));
        }
        if world.random.once_in(2) {
            let Some((kind, id)) = world.random.pick(&ids) else { return };
            let operation = Operation::Release { id, forged: false, own: false };
            world.prey.push(Prey { kind, operation, process: self.index });
        }
    }

    /// Crashes and starts again.
    fn crash(&mut self, world: &mut World) {
        let index = self.index;
        world.trace.note(world.now_us, 36, index as u64, || format!("process {index}  crashes"));
        self.guards.iter().for_each(|guard| world.auditor.note_forgotten(guard.lock.id(), false));
        for connection in self.lanes.iter().filter_map(|lane| lane.connection) {
            world.cut(connection);
            world.network.connections[connection].client_done = true;
        }
        self.acquires.clear();
        self.answers.clear();
        self.guards.clear();
        self.watches.clear();
        self.begin_anew(world);
    }
}

/// Applies the options that acquires of all forms have.
fn with_options<G>(
    builder: AcquireBuilder<G>,
    acquire: &Acquire,
    is_renewed: bool,
    losses: &Losses,
) -> AcquireBuilder<G> {
    let losses = Arc::clone(losses);
    let builder = builder.on_loss(move |reason| {
        losses.lock().unwrap_or_else(PoisonError::into_inner).push(reason);
    });
    let builder = match acquire.wait_ms {
        u32::MAX => builder,
        0 => builder.try_(),
        ms => builder.wait(milliseconds(ms)),
    };
    let builder = match (acquire.session_lease, acquire.lease_ms) {
        (true, _) => builder.session_lease(),
        // The server's default lease applies.
        (false, 0 | u32::MAX) => builder,
        (false, ms) => builder.lease(milliseconds(ms)),
    };
    let builder = match acquire.scope {
        Scope::Ephemeral => builder,
        Scope::Local => builder.scope(FenceScope::Local),
        Scope::Quorum => builder.scope(FenceScope::Quorum),
    };
    let builder = match acquire.request_id {
        Some(number) => builder.request_id(request_id(number)),
        None => builder,
    };
    let builder = match acquire.release_after_ms {
        Some(ms) => builder.release_after(milliseconds(ms)),
        None => builder,
    };
    builder.renew(is_renewed)
}

fn milliseconds(ms: u32) -> Duration {
    Duration::from_millis(ms.into())
}

/// Splits a guard into the guards of its single keys.
trait IntoLocks {
    fn into_locks(self) -> Vec<Lock>;
}

impl IntoLocks for Lock {
    fn into_locks(self) -> Vec<Lock> {
        vec![self]
    }
}

impl IntoLocks for MultiLock {
    fn into_locks(self) -> Vec<Lock> {
        Self::into_locks(self)
    }
}

impl IntoLocks for TreeLock {
    fn into_locks(self) -> Vec<Lock> {
        vec![self.into_lock()]
    }
}

impl IntoLocks for Permit {
    fn into_locks(self) -> Vec<Lock> {
        vec![self.into_lock()]
    }
}

/// Starts an acquire and awaits its grant. With `enqueues` it first awaits the queue position.
fn granted<G: waymaker_client::Guard + IntoLocks + 'static>(
    builder: AcquireBuilder<G>,
    place: Option<Arc<Mutex<Option<QueuePlace>>>>,
) -> CallerFuture<waymaker_client::Result<Vec<Lock>>> {
    Box::pin(async move {
        let guard = if let Some(place) = place {
            let enqueued: Enqueued<G> = builder.enqueue().await?;
            if let Enqueued::Queued(queued) = &enqueued {
                *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(queued.place());
            }
            enqueued.granted().await?
        } else {
            builder.await?
        };
        Ok(guard.into_locks())
    })
}
