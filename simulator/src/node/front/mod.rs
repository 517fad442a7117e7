//! A connection of a front end, which a server has for each gRPC or WebSocket client.
//!
//! In the simulation, front ends speak the binary protocol. The "library" below takes frames from the network
//! and passes each request to an inlet of the worker, under a number of the inlet's own. Responses and events
//! return under the numbers of the client. All decisions are made by the server's code: inlets, listeners,
//! turns, and the order of turns. A CANCEL stands for the reset of a gRPC stream: the request loses its
//! listener, and neither the CANCEL nor the request is answered.

mod work;

use super::io::{LaneTable, VirtualStopwatch};
use super::tasks::{Errands, Tasks};
use crate::world::World;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Wake};
use waymaker_protocol::{LockId, NamespaceKind};
use waymaker_server::clock::Moment;
use waymaker_server::edge::connection::End;
use waymaker_server::edge::front_turn::{FrontTurn, FrontTurnEnd, Others};
use waymaker_server::edge::inlet::{InletState, Listener};
use waymaker_server::edge::read_barrier::ReadBarrier;
use waymaker_server::edge::streams::StreamTurns;
use waymaker_server::mail::ConnectionKey;
use waymaker_server::worker::Worker;
use work::Work;

/// One of this number of connections never follows its claims.
const NEVER_FOLLOWS_EVERY: usize = 3;

/// Purpose of an inlet. It determines the requests that pass through the inlet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Purpose {
    /// Claims, and requests that name holds of this connection alone.
    Claims,
    /// All other requests. Events that result from them go to the stream that has the hold.
    Questions,
    Watches,
}

/// Connections whose streams were woken.
#[derive(Clone, Debug, Default)]
pub(super) struct WakeList(Arc<Mutex<Vec<usize>>>);

impl WakeList {
    pub(super) fn take(&self) -> Vec<usize> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Wakes one stream of a connection.
#[derive(Debug)]
struct StreamWake {
    is_woken: AtomicBool,
    connection: usize,
    woken: WakeList,
}

impl Wake for StreamWake {
    fn wake(self: Arc<Self>) {
        if !self.is_woken.swap(true, Ordering::Relaxed) {
            self.woken.0.lock().unwrap_or_else(PoisonError::into_inner).push(self.connection);
        }
    }
}

/// A request of the client that has a listener.
#[derive(Debug)]
struct Stream {
    purpose: Purpose,
    listener: Listener,
    is_followed: bool,
    wake: Arc<StreamWake>,
    /// The holds that were granted to the stream and have not ended.
    granted: Vec<LockId>,
    /// Time at which one of these holds was found to have ended while the stream had not received the event.
    unaware_since_us: Option<u64>,
    /// Until this time the client takes nothing from the stream.
    quiet_until_us: u64,
    /// Time for which the client takes nothing once the stream has output again.
    nap_us: u64,
    /// Key of a claim on one key; empty for any other claim, `None` if the request is no claim.
    claimed: Option<Vec<u8>>,
}

/// A connection of a front end.
#[derive(Debug)]
pub(super) struct Front {
    connection: usize,
    /// Greeting of the client, which each inlet repeats.
    hello: Option<OwnedHello>,
    inlets: BTreeMap<Purpose, InletState>,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Requests that have not run yet, each with the arrival time of the first bytes of its read.
    begun: VecDeque<(u64, Vec<u8>)>,
    streams: BTreeMap<u32, Stream>,
    /// True if the connection never follows its claims, because its client only wants the responses.
    never_follows: bool,
    /// Holds that streams have received.
    known: BTreeSet<LockId>,
    /// Time at which the connection last gave up a claim that no stream had received.
    given_up_us: Option<u64>,
    /// Holds that the client released with `own`, so that their streams get no event about the release.
    given_back: BTreeSet<LockId>,
    /// Until this time a hold without a listener may exist: its grant crossed the reset of a stream that
    /// follows its hold.
    strangers_until_us: u64,
    turn: FrontTurn<VirtualStopwatch>,
    turns: StreamTurns,
    woken: WakeList,
    /// True if the connection ends once its output is written.
    is_closing: bool,
}

#[derive(Clone, Debug)]
struct OwnedHello {
    kind: NamespaceKind,
    namespace: Vec<u8>,
    owner: Vec<u8>,
}

/// The parts of the thread that a connection uses in its turn.
pub(super) struct Hands<'a> {
    pub(super) world: &'a mut World,
    pub(super) worker: &'a mut Worker,
    pub(super) barrier: &'a mut ReadBarrier,
    pub(super) tasks: &'a mut Tasks,
    pub(super) registered: &'a mut LaneTable,
    pub(super) errands: &'a mut Errands,
    pub(super) is_readable: &'a mut bool,
    pub(super) others: Others,
}

impl Front {
    pub(super) fn new(connection: usize, woken: &WakeList) -> Self {
        Self {
            connection,
            hello: None,
            inlets: BTreeMap::new(),
            input: Vec::new(),
            output: Vec::new(),
            begun: VecDeque::new(),
            streams: BTreeMap::new(),
            never_follows: connection.is_multiple_of(NEVER_FOLLOWS_EVERY),
            known: BTreeSet::new(),
            given_up_us: None,
            given_back: BTreeSet::new(),
            strangers_until_us: 0,
            turn: FrontTurn::default(),
            turns: StreamTurns::default(),
            woken: woken.clone(),
            is_closing: false,
        }
    }

    /// Takes a turn in which each look at the stopwatch takes `look_us`. Ready when the connection has ended.
    pub(super) fn take_turn(&mut self, hands: Hands<'_>, look_us: u64) -> Poll<End> {
        self.turn.begin();
        self.turn.stopwatch_mut().look_us = look_us;
        let mut turns = std::mem::take(&mut self.turns);
        let polled = turns.poll(&mut Work { front: self, hands });
        self.turns = turns;
        polled
    }

    /// Ends a turn after which the connection continues.
    pub(super) fn end_turn(&mut self, barrier: &mut ReadBarrier) -> FrontTurnEnd {
        self.turn.end(barrier)
    }

    /// Returns the duration of the last turn.
    pub(super) fn spent_us(&mut self) -> u64 {
        self.turn.stopwatch_mut().elapsed_us()
    }

    /// Returns the arrival time of the first request that has not run yet.
    pub(super) fn begun_since_us(&self) -> Option<u64> {
        self.begun.front().map(|(arrived_us, _)| *arrived_us)
    }

    /// Returns whether the connection ends once its output is written.
    pub(super) fn is_closing(&self) -> bool {
        self.is_closing
    }

    /// Takes the output of the worker for this lane.
    pub(super) fn take_output(&mut self, worker: &mut Worker, key: ConnectionKey) {
        if let Some(inlet) = self.inlets.values_mut().find(|inlet| inlet.key() == key) {
            inlet.take_output(worker);
        }
    }

    /// Returns whether a stream was woken from which the client takes nothing yet.
    pub(super) fn has_quiet_streams(&self) -> bool {
        self.streams.values().any(|stream| stream.wake.is_woken.load(Ordering::Relaxed))
    }

    /// Returns a stream that sleeps although its lane is closed, unless the connection is ending.
    pub(super) fn sleeper(&self) -> Option<u32> {
        let is_closed = |purpose: &Purpose| self.inlets.get(purpose).is_some_and(InletState::is_closed);
        let sleeps = |(_, stream): &(&u32, &Stream)| {
            is_closed(&stream.purpose) && !stream.wake.is_woken.load(Ordering::Relaxed)
        };
        let mut streams = self.streams.iter().filter(|_| !self.is_closing);
        streams.find(sleeps).map(|(number, _)| *number)
    }

    /// Returns the stream that has missed the end of a hold for the longest time, and the start of that time.
    pub(super) fn find_unaware(
        &mut self,
        now_us: u64,
        is_over: impl Fn(LockId) -> bool,
    ) -> Option<(u64, u32)> {
        let given_back = &self.given_back;
        let mut found = None;
        for (number, stream) in self.streams.iter_mut().filter(|(_, stream)| stream.is_followed) {
            if stream.granted.iter().any(|id| !given_back.contains(id) && is_over(*id)) {
                let since_us = *stream.unaware_since_us.get_or_insert(now_us);
                found = [found, Some((since_us, *number))].into_iter().flatten().min();
            } else {
                stream.unaware_since_us = None;
            }
        }
        found
    }

    /// Returns whether a stream has received this hold.
    pub(super) fn knows(&self, id: LockId) -> bool {
        self.known.contains(&id)
    }

    /// Returns whether a stream that waits for its first response may get a hold of this key.
    pub(super) fn awaits(&self, key: &[u8]) -> bool {
        let waiting = self.streams.values().filter(|stream| stream.granted.is_empty());
        let mut claimed = waiting.filter_map(|stream| stream.claimed.as_deref());
        claimed.any(|claimed| claimed.is_empty() || claimed == key)
    }

    /// Returns the time at which the connection last gave up a claim that no stream had received.
    pub(super) fn given_up_us(&mut self) -> &mut Option<u64> {
        &mut self.given_up_us
    }

    /// Returns the lane of the claims, and the time until which it may have holds without a listener.
    pub(super) fn claims(&self) -> Option<(ConnectionKey, u64)> {
        self.inlets.get(&Purpose::Claims).map(|inlet| (inlet.key(), self.strangers_until_us))
    }

    /// Returns the name of the namespace.
    pub(super) fn namespace(&self) -> &[u8] {
        self.hello.as_ref().map(|hello| hello.namespace.as_slice()).unwrap_or_default()
    }

    /// Ends the connection. Returns the lanes that it had.
    pub(super) fn finish(
        mut self: Box<Self>,
        worker: &mut Worker,
        barrier: &mut ReadBarrier,
        now: Moment,
    ) -> Vec<ConnectionKey> {
        self.turn.leave(barrier);
        let keys: Vec<_> = self.inlets.values().map(InletState::key).collect();
        keys.iter().for_each(|key| worker.handle_lost(*key, now));
        keys
    }
}
