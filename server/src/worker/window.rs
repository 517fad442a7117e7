//! Answers that a session keeps for repeated requests.

use crate::limits::{SESSION_ANSWERS_LEN_MAX, WINDOW_LEN_MAX};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use waymaker_protocol::limits::IN_FLIGHT_MAX;

const CHUNK_LEN: usize = 64;
const CHUNK_COUNT: usize = IN_FLIGHT_MAX as usize / CHUNK_LEN;
/// Maximum length of an answer that is kept inside its slot. The grant of one key fits, and so do the answers to
/// releases and renewals.
const INLINE_LEN: usize = 50;

/// Number that no connection has. It stands for the receiver of an answer that no connection waits for.
pub(crate) const NOBODY: u32 = 0;

/// State of a request number.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RequestState<'a> {
    /// The number is new: serve the request.
    New,
    /// The request is being served, and its answer will come.
    InFlight,
    /// The request was answered with this frame.
    Answered(&'a [u8]),
    /// The request was answered, and the answer is no longer kept.
    Dropped,
}

/// Result of withdrawing a request that had no effect because its connection was lost while the request waited.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Withdrawal {
    /// The request is forgotten.
    Forgotten,
    /// A later connection repeated the request with this frame: it is a new request.
    AskedAgain(Box<[u8]>),
    /// A later connection repeated the request and then cancelled it.
    GivenUp,
}

#[derive(Clone, Debug, Default)]
enum Slot {
    #[default]
    Free,
    /// Number of a request that is being served, and the connection that last sent it, or `NOBODY`.
    InFlight(u32, u32),
    /// Number of a request that is being served, the later connection that repeated it (by its number `epoch` in the
    /// lane), and the repeated frame. If the first attempt has no effect, the worker serves this frame.
    Again(u32, u32, Box<[u8]>),
    /// Number of a request that is being served, and the connection that repeated and then cancelled it. The
    /// repetition is not served.
    GivenUp(u32, u32),
    Short(u32, u8, [u8; INLINE_LEN]),
    Long(u32, Box<[u8]>),
    /// Number of a request whose long answer was dropped because the kept answers were too long together.
    Dropped(u32),
}

impl Slot {
    fn number(&self) -> Option<u32> {
        match self {
            Self::Free => None,
            Self::InFlight(number, _)
            | Self::Again(number, ..)
            | Self::GivenUp(number, _)
            | Self::Short(number, ..)
            | Self::Long(number, _)
            | Self::Dropped(number) => Some(*number),
        }
    }
}

/// Total length of the long answers that all lanes of one session keep. The lanes belong to one worker.
#[derive(Clone, Debug, Default)]
pub(crate) struct SessionAnswers(Arc<AtomicUsize>);

impl SessionAnswers {
    fn is_exceeded(&self) -> bool {
        self.0.load(Relaxed) > SESSION_ANSWERS_LEN_MAX
    }
}

/// The last 1,024 request numbers of a lane with a session, and the kept answers as they were sent. Answers to served
/// requests of a kind without an effect are not kept.
///
/// After a lost connection, the client resumes the session and repeats every request without an answer under its old
/// number. A number in this window has no second effect. Its answer goes out at most once on each connection that sent
/// the request.
///
/// A client that uses a number confirms that it needs no answer to the number 1,024 before, or to any older one. So the
/// number that comes 1,024 later reuses the slot. Memory is allocated in chunks, as numbers are used.
///
/// Long answers of the lane have at most [`WINDOW_LEN_MAX`] bytes in total, and at most [`SESSION_ANSWERS_LEN_MAX`]
/// together with other lanes of the session. The lane drops its oldest long answers to make room for its newest, and
/// the newest too if other lanes use all the room.
#[derive(Debug, Default)]
pub(crate) struct Window {
    chunks: [Option<Box<[Slot]>>; CHUNK_COUNT],
    /// Numbers and lengths of long answers, oldest first. The answer itself may be gone already, because a later
    /// request has taken its slot.
    long: VecDeque<(u32, usize)>,
    /// Sum of the lengths in `long`.
    long_len: usize,
    of_session: SessionAnswers,
}

impl Window {
    /// Returns the window of a lane that has received no request yet. The lanes of a session share `of_session`, the
    /// total length of the long answers that they keep.
    pub(crate) fn new(of_session: SessionAnswers) -> Self {
        let mut window = Self::default();
        window.of_session = of_session;
        window
    }

    fn slot(&self, number: u32) -> Option<&Slot> {
        let index = (number % IN_FLIGHT_MAX) as usize;
        self.chunks[index / CHUNK_LEN].as_ref().map(|chunk| &chunk[index % CHUNK_LEN])
    }

    fn slot_mut(&mut self, number: u32) -> &mut Slot {
        let index = (number % IN_FLIGHT_MAX) as usize;
        let chunk = &mut self.chunks[index / CHUNK_LEN];
        &mut chunk.get_or_insert_with(|| vec![Slot::Free; CHUNK_LEN].into())[index % CHUNK_LEN]
    }

    /// Returns the state of this number.
    pub(crate) fn look(&self, number: u32) -> RequestState<'_> {
        match self.slot(number).filter(|slot| slot.number() == Some(number)) {
            None | Some(Slot::Free) => RequestState::New,
            Some(Slot::InFlight(..) | Slot::Again(..) | Slot::GivenUp(..)) => RequestState::InFlight,
            Some(Slot::Short(_, len, bytes)) => RequestState::Answered(&bytes[..usize::from(*len)]),
            Some(Slot::Long(_, bytes)) => RequestState::Answered(bytes),
            Some(Slot::Dropped(_)) => RequestState::Dropped,
        }
    }

    /// Notes that a request is being served and that the answer is for this connection, or for none if `epoch` is
    /// `NOBODY`. The request is new or repeated.
    pub(crate) fn begin(&mut self, number: u32, epoch: u32) {
        *self.slot_mut(number) = Slot::InFlight(number, epoch);
    }

    /// Handles the repetition of a request that is still being served for an earlier connection. The answer then goes
    /// to the connection with the number `epoch`. If the first attempt has no effect, the worker serves `frame`, unless
    /// the client has already cancelled a repetition.
    pub(crate) fn ask_again(&mut self, number: u32, epoch: u32, frame: &[u8]) {
        let slot = self.slot_mut(number);
        *slot = match slot {
            Slot::GivenUp(..) => Slot::GivenUp(number, epoch),
            _ => Slot::Again(number, epoch, frame.into()),
        };
    }

    /// Handles a CANCEL for this number. If the request is still being served for an earlier connection and a later one
    /// has repeated it, the repetition will not be served. Otherwise nothing changes here.
    pub(crate) fn give_up(&mut self, number: u32) {
        if let Some(&Slot::Again(asked, by, _)) = self.slot(number)
            && asked == number
        {
            *self.slot_mut(number) = Slot::GivenUp(number, by);
        }
    }

    /// Withdraws a request that had no effect because its connection was lost while the request waited. Returns whether
    /// the request is forgotten, must be served again as a repetition, or was cancelled after its repetition
    /// (`GivenUp`). In the last case, the caller must answer that the request was cancelled.
    pub(crate) fn withdraw(&mut self, number: u32, epoch: u32) -> Withdrawal {
        if self.look(number) != RequestState::InFlight {
            return Withdrawal::Forgotten;
        }
        let slot = self.slot_mut(number);
        match std::mem::take(slot) {
            Slot::Again(_, by, frame) if by == epoch => Withdrawal::AskedAgain(frame),
            Slot::GivenUp(_, by) => {
                // The client repeated the request on a later connection and cancelled it there. Even a cancelled
                // request gets an answer, an error that says so. The caller sends it next, so the number stays in
                // flight until then.
                *slot = Slot::InFlight(number, by);
                Withdrawal::GivenUp
            }
            _ => Withdrawal::Forgotten,
        }
    }

    /// Whether the answer to a number goes out on this connection; true for a number that is not in flight. The answer
    /// does not go out if only an earlier connection sent the request: the client will repeat the request on this
    /// connection, and would then get two answers to one request.
    pub(crate) fn is_asked_by(&self, number: u32, epoch: u32) -> bool {
        match self.slot(number) {
            Some(Slot::InFlight(asked, by) | Slot::Again(asked, by, _) | Slot::GivenUp(asked, by))
                if *asked == number =>
            {
                *by == epoch
            }
            _ => true,
        }
    }

    /// Keeps the answer of a request that is being served. Does nothing for other numbers: their answers need not be
    /// kept, or a number that is 1,024 later uses the slot.
    pub(crate) fn answer(&mut self, number: u32, frame: &[u8]) {
        if self.look(number) != RequestState::InFlight {
            return;
        }
        *self.slot_mut(number) = if frame.len() <= INLINE_LEN {
            let mut bytes = [0; INLINE_LEN];
            bytes[..frame.len()].copy_from_slice(frame);
            Slot::Short(number, frame.len() as u8, bytes)
        } else {
            self.long.push_back((number, frame.len()));
            self.long_len += frame.len();
            self.of_session.0.fetch_add(frame.len(), Relaxed);
            Slot::Long(number, frame.into())
        };
        while self.long_len > WINDOW_LEN_MAX || (self.long_len > 0 && self.of_session.is_exceeded()) {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        let Some((number, len)) = self.long.pop_front() else { return };
        self.give_back(len);
        let slot = self.slot_mut(number);
        if matches!(slot, Slot::Long(kept, _) if *kept == number) {
            *slot = Slot::Dropped(number);
        }
    }

    fn give_back(&mut self, len: usize) {
        self.long_len -= len;
        self.of_session.0.fetch_sub(len, Relaxed);
    }

    /// Forgets a request that had no effect. A repetition of it is a new request.
    pub(crate) fn forget(&mut self, number: u32) {
        if self.look(number) != RequestState::New {
            *self.slot_mut(number) = Slot::Free;
        }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.give_back(self.long_len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_number_is_new_only_once() {
        let mut window = Window::default();
        assert_eq!(window.look(7), RequestState::New);
        window.begin(7, 1);
        assert_eq!(window.look(7), RequestState::InFlight);
        window.answer(7, b"answer");
        assert_eq!(window.look(7), RequestState::Answered(b"answer"));
        window.answer(7, b"another");
        assert_eq!(window.look(7), RequestState::Answered(b"answer"));
    }

    #[test]
    fn long_answers_are_kept() {
        let mut window = Window::default();
        window.begin(1, 1);
        window.answer(1, &[9; 500]);
        assert_eq!(window.look(1), RequestState::Answered(&[9; 500]));
    }

    #[test]
    fn lanes_of_a_session_share_a_limit_of_kept_answers() {
        let session = SessionAnswers::default();
        let answer = vec![7; WINDOW_LEN_MAX];
        let lane = || {
            let mut window = Window::new(session.clone());
            window.begin(1, 1);
            window.answer(1, &answer);
            window
        };
        let mut lanes: Vec<_> = (0..SESSION_ANSWERS_LEN_MAX / WINDOW_LEN_MAX).map(|_| lane()).collect();
        assert!(lanes.iter().all(|lane| matches!(lane.look(1), RequestState::Answered(_))));
        assert!(matches!(lane().look(1), RequestState::Dropped), "the others have all of the room");
        lanes.pop();
        assert!(matches!(lane().look(1), RequestState::Answered(_)), "a lane that has ended keeps nothing");
    }

    #[test]
    fn the_oldest_long_answers_are_dropped_and_their_numbers_stay_known() {
        let mut window = Window::default();
        let answer = vec![7; WINDOW_LEN_MAX / 4];
        for number in 0..6 {
            window.begin(number, 1);
            window.answer(number, &answer);
        }
        for number in 0..2 {
            assert_eq!(window.look(number), RequestState::Dropped);
        }
        for number in 2..6 {
            assert_eq!(window.look(number), RequestState::Answered(&answer));
        }
        window.begin(IN_FLIGHT_MAX, 1);
        assert_eq!((window.look(0), window.look(IN_FLIGHT_MAX)), (RequestState::New, RequestState::InFlight));
    }

    #[test]
    fn a_number_1024_later_takes_the_slot() {
        let mut window = Window::default();
        window.begin(3, 1);
        window.begin(3 + IN_FLIGHT_MAX, 1);
        window.answer(3, b"too late to be kept");
        assert_eq!(window.look(3), RequestState::New);
        assert_eq!(window.look(3 + IN_FLIGHT_MAX), RequestState::InFlight);
    }

    #[test]
    fn a_forgotten_number_is_new_again() {
        let mut window = Window::default();
        window.begin(5, 1);
        window.forget(5);
        assert_eq!(window.look(5), RequestState::New);
        window.answer(5, b"nobody asked");
        assert_eq!(window.look(5), RequestState::New);
    }

    #[test]
    fn an_answer_goes_to_the_connection_that_asked_last() {
        let mut window = Window::default();
        window.begin(2, 1);
        assert!(window.is_asked_by(2, 1) && !window.is_asked_by(2, 9));
        window.begin(2, 9);
        assert!(window.is_asked_by(2, 9));
        window.begin(2 + IN_FLIGHT_MAX, 9);
        assert!(window.is_asked_by(2, 10), "a number that is no longer known was asked by whoever is there");
    }

    #[test]
    fn a_request_of_a_lost_connection_is_served_for_its_repetition() {
        let mut window = Window::default();
        window.begin(4, 1);
        assert_eq!(window.withdraw(4, 2), Withdrawal::Forgotten, "nobody asked again");
        assert_eq!(window.look(4), RequestState::New);
        window.begin(4, 1);
        window.ask_again(4, 2, b"frame");
        assert_eq!(window.look(4), RequestState::InFlight);
        assert!(window.is_asked_by(4, 2) && !window.is_asked_by(4, 1));
        assert_eq!(window.withdraw(4, 2), Withdrawal::AskedAgain(b"frame"[..].into()));
        assert_eq!(window.look(4), RequestState::New);
        window.begin(4, 1);
        window.ask_again(4, 2, b"frame");
        assert_eq!(window.withdraw(4, 3), Withdrawal::Forgotten, "that connection is lost as well");
    }

    #[test]
    fn a_cancelled_request_of_a_lost_connection_is_not_served_again() {
        let mut window = Window::default();
        window.begin(4, 1);
        window.give_up(4);
        assert_eq!(window.withdraw(4, 1), Withdrawal::Forgotten, "nobody asked again");
        window.begin(4, 1);
        window.ask_again(4, 2, b"frame");
        window.give_up(4 + IN_FLIGHT_MAX);
        window.give_up(4);
        window.ask_again(4, 3, b"frame");
        assert_eq!(window.withdraw(4, 3), Withdrawal::GivenUp);
        assert!(window.is_asked_by(4, 3), "the answer goes to the newest connection");
        window.answer(4, b"given up");
        assert_eq!(window.look(4), RequestState::Answered(b"given up"));
    }
}
