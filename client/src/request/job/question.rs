//! Queries to the server that touch no hold of this client.

use waymaker_protocol::Response;

use crate::request::need::Need;
use crate::request::reply::{Awaited, Reply};

/// A query to the server, with the conversion of its response.
pub(crate) trait Question: Send {
    /// Returns the capability without which the query must not be sent.
    fn need(&self) -> Option<Need>;
    fn encode(&self, number: u32, out: &mut Vec<u8>);
    /// Passes the response on to the caller. Returns whether the response fits this query.
    fn answer(&mut self, response: Response<'_>) -> bool;
    fn reply(&mut self) -> &mut dyn Awaited;
    fn is_awaited(&self) -> bool;
}

/// A query that consists of two functions.
pub(crate) struct Ask<E, R, T> {
    pub(crate) need: Option<Need>,
    pub(crate) encode: E,
    /// Converts the response; `None` if the response does not fit the query.
    pub(crate) read: R,
    pub(crate) reply: Reply<T>,
}

impl<E, R, T> Question for Ask<E, R, T>
where
    E: Fn(u32, &mut Vec<u8>) + Send,
    R: Fn(Response<'_>) -> Option<T> + Send,
    T: Send,
{
    fn need(&self) -> Option<Need> {
        self.need
    }

    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        (self.encode)(number, out);
    }

    fn answer(&mut self, response: Response<'_>) -> bool {
        let read = (self.read)(response);
        let matches = read.is_some();
        if let Some(value) = read {
            self.reply.answer(Ok(value));
        }
        matches
    }

    fn reply(&mut self) -> &mut dyn Awaited {
        &mut self.reply
    }

    fn is_awaited(&self) -> bool {
        self.reply.is_awaited()
    }
}
