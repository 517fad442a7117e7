//! Requests whose response only goes to the caller, such as queries and the commands of operators.

use waymaker_protocol::Response;

use crate::request::need::Need;
use crate::request::reply::{Awaited, Reply};

/// A request, with the conversion of its response for the caller.
pub(crate) trait Question: Send {
    /// Returns the capability without which the request must not be sent; `None` if it needs none.
    fn need(&self) -> Option<Need>;
    /// Returns whether the request changes something at the server.
    fn is_change(&self) -> bool;
    fn encode(&self, number: u32, out: &mut Vec<u8>);
    /// If the response fits this request, converts it, delivers it to the caller, and returns `true`. Otherwise returns
    /// `false`.
    fn answer(&mut self, response: Response<'_>) -> bool;
    fn reply(&mut self) -> &mut dyn Awaited;
    fn is_awaited(&self) -> bool;
}

/// A request that is defined by two functions: one encodes it, the other converts its response for the caller.
pub(crate) struct Ask<E, R, T> {
    pub(crate) need: Option<Need>,
    pub(crate) is_change: bool,
    pub(crate) encode: E,
    /// Converts the response; `None` if the response does not fit the request.
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

    fn is_change(&self) -> bool {
        self.is_change
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
