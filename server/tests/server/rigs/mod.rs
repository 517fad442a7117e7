//! Faults under load: the server is killed, its system calls fail, the power is cut, the disk is full, time jumps. Clients
//! that never rest write down what they see, and the checker looks whether any promise was broken.
//!
//! Short forms run with all other tests. `WAYMAKER_KILLS` and `WAYMAKER_CUTS` say how often the long forms kill the server
//! or cut its power, `WAYMAKER_FULL_SECONDS` how long a disk stays full; `CONTRIBUTING.md` has the command.

mod boot_time;
mod checker;
mod checker_tests;
mod client;
mod cut;
mod disk;
mod early_stop;
mod exhausted;
mod file_size;
mod full;
pub(crate) mod history;
mod inject;
mod kill;
pub(crate) mod link;
pub(crate) mod load;
mod memory;
mod restarts;
mod rotten;
pub(crate) mod site;
mod starts;
