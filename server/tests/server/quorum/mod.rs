//! Scope quorum, against real members of etcd.

mod asking;
mod cycles;
mod encrypted;
mod failing;
mod fences;
mod members;
mod transactions;
mod users;

use crate::rigs::site;
use crate::skip::skip;

/// Whether etcd is installed; says so where it is not.
fn has_etcd(test: &str) -> bool {
    let has = site::has("etcd");
    if !has {
        skip(test, "there is no etcd (Debian: etcd-server)");
    }
    has
}
