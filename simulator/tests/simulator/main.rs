//! The simulator's own promises: it finds nothing in a good server, everything in a bad one, and the same twice.

mod linearizable;
mod lock_history;
mod lock_model;
mod log_claims;
mod log_crashes;
mod log_damage;
mod log_faults;
mod log_rig;
mod replay;
mod seeds;
