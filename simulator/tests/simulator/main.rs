//! Tests of the simulator: it finds nothing in the current server, it is deterministic, and an independent
//! checker agrees with its auditor. Also tests of the server's log on a simulated disk.

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
