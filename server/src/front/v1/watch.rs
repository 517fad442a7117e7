//! Streams of `waymaker.v1` that watch one key.

use super::connection::{Connection, OwnLane};
use super::status;
use crate::driver::ReplyStream;
use crate::front::conversion::text;
use futures_core::Stream;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tonic::{Response as Answer, Status};
use waymaker_proto::v1;
use waymaker_proto::v1::watch_response::Event as Told;
use waymaker_protocol::{Event, NamespaceKind, Request, Response, Watch};

/// Events of one key. The stream has its own lane, so the watch ends when the stream is dropped.
#[derive(Debug)]
pub(super) struct WatchStream {
    followed: ReplyStream,
    is_over: bool,
    _lane: OwnLane,
}

impl WatchStream {
    /// Starts a watch of the key that the request names.
    pub(super) fn begin(
        connection: &Connection,
        kind: NamespaceKind,
        request: &v1::WatchRequest,
    ) -> Result<Answer<Self>, Status> {
        let lane = connection.own_lane(kind, &request.namespace)?;
        let watch = Request::Watch(Watch { key: request.key.as_bytes() });
        let followed = lane.inlet.follow(b"", |number, out| watch.encode(number, out));
        Ok(Answer::new(Self { followed, is_over: false, _lane: lane }))
    }

    fn hear(&mut self, response: &Response<'_>) -> Option<Result<Told, Status>> {
        Some(Ok(match response {
            Response::Watching(watching) => Told::Watching(v1::Watching {
                fence: watching.fence,
                holder_count: watching.holder_count,
                waiter_count: watching.waiter_count,
            }),
            Response::Event(Event::KeyHeld { fence, shared, owner }) => {
                Told::Held(v1::KeyHeld { fence: *fence, shared: *shared, owner: text(owner) })
            }
            Response::Event(Event::KeyFreed { fence }) => Told::Freed(v1::KeyFreed { fence: *fence }),
            Response::Event(Event::Overrun) => Told::Overrun(v1::Overrun {}),
            Response::Error(error) => {
                self.is_over = true;
                return Some(Err(status::of(error)));
            }
            _ => return None,
        }))
    }
}

impl Stream for WatchStream {
    type Item = Result<v1::WatchResponse, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let own = self.get_mut();
        while !own.is_over {
            let reply = match ready!(own.followed.poll_reply(context)) {
                Ok(reply) => reply,
                Err(closed) => {
                    own.is_over = true;
                    return Poll::Ready(Some(Err(status::closed(closed))));
                }
            };
            if let Some(told) = own.hear(&reply.response()) {
                return Poll::Ready(Some(told.map(|event| v1::WatchResponse { event: Some(event) })));
            }
        }
        Poll::Ready(None)
    }
}
