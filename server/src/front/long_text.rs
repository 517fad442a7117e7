//! Long texts as bodies of HTTP/1 responses.

use crate::driver::front_turn::poll_turn;
use crate::limits::HTTP_PIECE_LEN;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Bytes;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Text that is sent in pieces, so that the turn of its connection can end between them. The HTTP library would
/// otherwise send all of the text at once.
#[derive(Debug)]
pub(super) struct LongText(Bytes);

impl LongText {
    pub(super) fn new(text: Bytes) -> Self {
        Self(text)
    }
}

impl Body for LongText {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Self(rest) = self.get_mut();
        if rest.is_empty() {
            return Poll::Ready(None);
        }
        ready!(poll_turn(context));
        let len = rest.len().min(HTTP_PIECE_LEN);
        Poll::Ready(Some(Ok(Frame::data(rest.split_to(len)))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Local;
    use crate::driver::test_local::enter_crowded;
    use std::task::Waker;

    #[test]
    fn a_long_text_waits_between_its_pieces_while_the_turn_is_over() {
        let local = enter_crowded();
        let text: Vec<u8> = (0..HTTP_PIECE_LEN + 1).map(|place| place as u8).collect();
        let mut body = LongText::new(text.clone().into());
        assert_eq!(body.size_hint().exact(), Some(text.len() as u64));
        let mut context = Context::from_waker(Waker::noop());
        let mut next = |local: &Local, is_over: bool| {
            let mut turn = local.front_turn.borrow_mut();
            turn.begin();
            turn.stop_clock();
            if is_over {
                turn.use_up();
            }
            drop(turn);
            Pin::new(&mut body)
                .poll_frame(&mut context)
                .map(|piece| piece.map(|piece| piece.unwrap().into_data()))
        };
        let Poll::Ready(Some(Ok(first))) = next(&local, false) else { panic!("the turn lasts") };
        assert!(next(&local, true).is_pending());
        let Poll::Ready(Some(Ok(rest))) = next(&local, false) else { panic!("the turn lasts") };
        assert_eq!([first, rest].concat(), text);
        assert!(matches!(next(&local, false), Poll::Ready(None)));
    }
}
