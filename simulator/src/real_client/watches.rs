//! The watches of a process.

use super::{Phase, RealClient, WatchStage};
use crate::auditor::WatchState;
use crate::key::Key;
use crate::world::World;
use std::collections::BTreeMap;
use std::task::{Context, Poll, Waker};
use waymaker_client::{KeyState, NamespaceKind};

impl RealClient {
    /// Polls all watches.
    pub(super) fn look_at_watches(&mut self, world: &mut World) {
        let context = &mut Context::from_waker(Waker::noop());
        let (index, is_closed) = (self.index, self.is_closed());
        self.watches.retain_mut(|watching| {
            if let WatchStage::Beginning(future) = &mut watching.stage {
                match future.as_mut().poll(context) {
                    Poll::Pending => return true,
                    // The lane has had no connection for long, or the server refuses the watch.
                    Poll::Ready(Err(_)) => return false,
                    Poll::Ready(Ok(watch)) => watching.stage = WatchStage::Open(watch),
                }
            }
            let WatchStage::Open(watch) = &mut watching.stage else { return true };
            while let Poll::Ready(state) = std::pin::pin!(watch.next()).poll(context) {
                let Some(state) = state else {
                    if is_closed {
                        return false;
                    }
                    world.auditor.judge_end_of_watch(index, watching.since_us);
                    return false;
                };
                watching.shown = Some(WatchState {
                    is_held: state.is_held(),
                    fence: state.fence(),
                    holder: match state {
                        KeyState::Held { holder, .. } => holder.map(|holder| (holder.shared, holder.owner)),
                        KeyState::Free { .. } => None,
                    },
                });
            }
            true
        });
    }

    pub(super) fn judge_watches(&self, world: &mut World) {
        let Some(lane) = self.lanes.iter().find(|lane| lane.kind == NamespaceKind::Flat) else { return };
        if !lane.is_open() || self.phase == Phase::Gone || self.is_closed() {
            return;
        }
        let shown: BTreeMap<Key, Option<WatchState>> =
            self.watches.iter().map(|watching| (watching.key, watching.shown.clone())).collect();
        world.auditor.judge_watches_of(self.index, lane.auditor_lane(), &shown);
    }
}
