//! Locket: locks and presences that their owners keep alive.
