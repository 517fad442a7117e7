//! Requests and their parts, from the checks of the arguments to the destination of the response.
//!
//! `check` rejects invalid arguments. `claim` is everything that one acquire requests, `grant` and `queue_place` the
//! responses to it. `job` is one request of any kind, and `reply` the destination of its response. `need` names the
//! capabilities that requests require.

pub(crate) mod check;
pub(crate) mod claim;
pub(crate) mod grant;
pub(crate) mod job;
pub(crate) mod need;
pub(crate) mod queue_place;
pub(crate) mod reply;
