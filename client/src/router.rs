//! The connections of a client: one space (a session with its connections) or, if the client was built with
//! `connection_per_worker`, one space for each worker of the server.
//!
//! A key belongs to a shard, and a shard belongs to one worker of the server. Any worker serves any key, but the owning
//! worker touches no memory of other workers and wakes no other thread. So a client built with `connection_per_worker`
//! computes the owning worker from the key and the number of shards, and sends the request there. A session lives on
//! one worker, which also serves its connections. So such a client needs a session, and thus a [`Space`], for each
//! worker.

use std::sync::Arc;

use waymaker_protocol::limits::ANY_WORKER;
use waymaker_protocol::slot::slot_of_key;

use crate::clock::Clock;
use crate::connection::link::Target;
use crate::error::Result;
use crate::lane::SessionOptions;
use crate::space::Space;

/// The spaces of a client. A space is a session with its connections. There is one space, or one for each worker of the
/// server.
#[derive(Debug)]
pub(crate) struct Router {
    /// At least one space; if there are several, they are ordered by worker number.
    spaces: Vec<Arc<Space>>,
    /// Number of shards at the time of the first welcome. It is only a hint: a restarted server may divide keys
    /// differently.
    shard_count: u16,
}

impl Router {
    /// Connects to the server, or to each of its workers if `per_worker` is set.
    pub(crate) async fn open(
        target: Target,
        options: SessionOptions,
        clock: Arc<dyn Clock>,
        per_worker: bool,
    ) -> Result<Self> {
        let open = |worker| Space::open(Target { worker, ..target.clone() }, options, Arc::clone(&clock));
        let (first, welcome) = open(if per_worker { 0 } else { ANY_WORKER }).await?;
        let mut spaces = vec![first];
        if per_worker {
            for worker in 1..welcome.worker_count {
                spaces.push(open(worker).await?.0);
            }
        }
        Ok(Self { spaces, shard_count: welcome.shard_count.max(1) })
    }

    /// Returns the first space (a session with its connections), for registries and for requests that are not about a
    /// single key, pool or bucket.
    pub(crate) fn first(&self) -> &Arc<Space> {
        &self.spaces[0]
    }

    /// Returns the space (a session with its connections) on the worker that owned the key, pool or bucket with this
    /// name when the client connected. If the client has only one space, returns that space.
    pub(crate) fn home(&self, name: &[u8]) -> &Arc<Space> {
        match self.spaces.len() {
            1 => self.first(),
            worker_count => &self.spaces[usize::from(slot_of_key(name) % self.shard_count) % worker_count],
        }
    }

    pub(crate) fn spaces(&self) -> &[Arc<Space>] {
        &self.spaces
    }
}
