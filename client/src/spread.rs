//! What a client reaches the server through: one space, or one for each worker of the server.
//!
//! A key lives in a shard, and a shard is at home with one worker of the server. Any worker serves any key, but the one at home
//! touches no memory of others and needs nobody woken. A session lives on one worker and draws its connections there, so a
//! client that wants each request to arrive where its key lives needs a session for each worker, and so a [`Space`].

use std::sync::Arc;

use waymaker_protocol::limits::ANY_WORKER;
use waymaker_protocol::slot::slot_of_key;

use crate::clock::Clock;
use crate::error::Result;
use crate::lane::SessionOptions;
use crate::link::Target;
use crate::space::Space;

/// See the module.
#[derive(Debug)]
pub(crate) struct Spread {
    /// At least one; if several, by the number of their worker.
    spaces: Vec<Arc<Space>>,
    shard_count: u16,
}

/// How the server had divided its keys when it was asked. Only a hint: a server that was restarted may have others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) worker_count: u16,
    pub(crate) shard_count: u16,
}

impl Spread {
    /// Connects, to every worker if asked to.
    pub(crate) async fn open(
        target: Target,
        options: SessionOptions,
        clock: Arc<dyn Clock>,
        per_worker: bool,
    ) -> Result<Self> {
        let open = |worker| Space::open(Target { worker, ..target.clone() }, options, Arc::clone(&clock));
        let (first, layout) = open(if per_worker { 0 } else { ANY_WORKER }).await?;
        let mut spaces = vec![first];
        if per_worker {
            for worker in 1..layout.worker_count {
                spaces.push(open(worker).await?.0);
            }
        }
        Ok(Self { spaces, shard_count: layout.shard_count.max(1) })
    }

    /// Where it does not matter.
    pub(crate) fn first(&self) -> &Arc<Space> {
        &self.spaces[0]
    }

    /// The way to where this key, pool or bucket lives.
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
