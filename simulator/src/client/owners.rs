//! Clients that are processes of one owner. A request id names a claim of its owner, so each process may
//! repeat a request of another process, at the same time or later, and gets the same claim.

use super::Client;
use super::lane::Lane;
use crate::operation::Acquire;
use crate::world::World;

impl Client {
    /// Returns a new lane for this process of its owner.
    pub(super) fn new_lane(&self, world: &mut World) -> Lane {
        Lane::new(world.auditor.new_lane_of(self.owner_index, self.index))
    }

    /// Returns the acquire, usually with a request id, or repeats the last such acquire of any process of the
    /// same owner.
    pub(super) fn as_owner(&self, world: &mut World, acquire: Acquire) -> Acquire {
        let (name, has_session) = ((self.owner_index, self.kind), self.session.is_some());
        let last = world.named.iter().position(|(other, _)| *other == name);
        if let Some(last) = last
            && world.random.once_in(2)
            && let (_, named) = world.named[last]
            && (has_session || !named.session_lease)
        {
            return named;
        }
        if acquire.request_id.is_none() && world.random.once_in(3) {
            return acquire;
        }
        let request_id = acquire.request_id.or_else(|| Some(world.random.below(3) as u8));
        let acquire = Acquire { request_id, label: None, ..acquire };
        if let Some(last) = last {
            world.named.swap_remove(last);
        }
        world.named.push((name, acquire));
        acquire
    }
}
