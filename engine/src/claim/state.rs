//! States of a claim, and the changes between them.

/// State of a claim record. It decides what happens when the claim ends, for example whether its acquire is answered.
///
/// The order matters: a claim in [`State::Reserved`] or a later state is among the holders, and a claim in
/// [`State::Held`] or a later state is a hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum State {
    /// The record is unused.
    #[default]
    Free,
    /// The claim waits for its key. Also the state of a new claim until the request that created it grants it.
    Waiting,
    /// The claim waits as one key of a multi-key claim, and is granted only together with the other keys.
    Stub,
    /// The claim is among the holders and blocks other claims, but its fence is not durable yet. Its lease has not
    /// begun, its acquire is not answered, and its client can still give it up.
    Reserved,
    /// The log failed while the claim was reserved, so its acquire was refused with an unknown outcome. The claim
    /// blocks other claims until it ends like a waiter, or until the process ends.
    Unknown,
    /// The claim holds its key, and its client knows this or is about to learn it.
    Held,
    /// The hold lost its connection, and ends at its deadline unless the connection is resumed before.
    Releasing,
    /// The hold is a lazy registration that has been expired for longer than the grace period, so other owners may take
    /// the key.
    Overdue,
}

impl State {
    /// All states, in order.
    #[cfg(test)]
    const ALL: [Self; 8] = [
        Self::Free,
        Self::Waiting,
        Self::Stub,
        Self::Reserved,
        Self::Unknown,
        Self::Held,
        Self::Releasing,
        Self::Overdue,
    ];

    /// Whether the record is in use.
    #[inline]
    pub(crate) fn is_live(self) -> bool {
        self != Self::Free
    }

    /// Whether the claim waits among the waiters of its key.
    #[inline]
    pub(crate) fn is_waiting(self) -> bool {
        matches!(self, Self::Waiting | Self::Stub)
    }

    /// Whether the claim blocks other claims like a hold, but its fence is not known to be durable.
    #[inline]
    pub(crate) fn is_reserved(self) -> bool {
        matches!(self, Self::Reserved | Self::Unknown)
    }

    /// Whether the claim blocks other claims: it is held or reserved.
    #[inline]
    pub(crate) fn is_among_holders(self) -> bool {
        self >= Self::Reserved
    }

    /// Whether the claim is a hold, and its client knows this or is about to learn it.
    #[inline]
    pub(crate) fn is_held(self) -> bool {
        self >= Self::Held
    }

    /// Whether a claim in this state may change to `next`. Any change that this function does not allow is a bug.
    pub(crate) fn may_become(self, next: Self) -> bool {
        match self {
            // An unused record becomes a hold at once if a restart restores the hold from the log.
            Self::Free => matches!(next, Self::Waiting | Self::Stub | Self::Held),
            Self::Waiting | Self::Stub => matches!(next, Self::Free | Self::Reserved | Self::Held),
            Self::Reserved => matches!(next, Self::Free | Self::Unknown | Self::Held),
            Self::Unknown => next == Self::Free,
            Self::Held => matches!(next, Self::Free | Self::Releasing | Self::Overdue),
            // `Releasing` becomes `Held` if the connection is resumed, and `Overdue` if the owner renews its
            // registration.
            Self::Releasing | Self::Overdue => matches!(next, Self::Free | Self::Held),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One row for each state and one column for each next state, in the order of the states.
    const ALLOWED: [(State, [u8; 8]); 8] = [
        //                 Free Waiting Stub Reserved Unknown Held Releasing Overdue
        (State::Free, /*     */ [0, 1, 1, 0, 0, 1, 0, 0]),
        (State::Waiting, /*  */ [1, 0, 0, 1, 0, 1, 0, 0]),
        (State::Stub, /*     */ [1, 0, 0, 1, 0, 1, 0, 0]),
        (State::Reserved, /* */ [1, 0, 0, 0, 1, 1, 0, 0]),
        (State::Unknown, /*  */ [1, 0, 0, 0, 0, 0, 0, 0]),
        (State::Held, /*     */ [1, 0, 0, 0, 0, 0, 1, 1]),
        (State::Releasing, /**/ [1, 0, 0, 0, 0, 1, 0, 0]),
        (State::Overdue, /*  */ [1, 0, 0, 0, 0, 1, 0, 0]),
    ];

    #[test]
    fn each_pair_of_states_is_allowed_or_not() {
        for (number, (state, row)) in ALLOWED.into_iter().enumerate() {
            assert_eq!(state, State::ALL[number], "the rows have the order of the states");
            for (next, allowed) in State::ALL.into_iter().zip(row) {
                assert_eq!(state.may_become(next), allowed == 1, "{state:?} to {next:?}");
            }
        }
    }

    #[test]
    fn each_live_state_is_waiting_reserved_or_held() {
        for state in State::ALL {
            let kinds = [!state.is_live(), state.is_waiting(), state.is_reserved(), state.is_held()];
            assert_eq!(kinds.into_iter().filter(|kind| *kind).count(), 1, "{state:?}");
            assert_eq!(state.is_among_holders(), state.is_reserved() || state.is_held(), "{state:?}");
        }
    }

    #[test]
    fn each_claim_can_end_and_only_held_claims_can_return_to_a_former_state() {
        for state in State::ALL {
            assert_eq!(state.may_become(State::Free), state.is_live(), "{state:?}");
            for next in State::ALL.into_iter().filter(|next| next.is_live() && state.is_live()) {
                let is_return = state.may_become(next) && next < state;
                assert!(!is_return || state.is_held() && next == State::Held, "{state:?} to {next:?}");
            }
        }
    }
}
