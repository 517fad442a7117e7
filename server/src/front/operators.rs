//! Searches for requests of operators that several front ends answer alike and that need no shard.

use super::conversion::text;
use crate::driver::Local;
use crate::driver::front_turn::next_turn;
use std::sync::{Arc, PoisonError};
use waymaker_access::Identity;
use waymaker_engine::{Access, Rights};
use waymaker_protocol::NamespaceKind;

/// Maximum number of namespaces whose rules are checked before other connections get a turn. With 1,000 rules the check
/// takes 1 ms.
const LOOKED_AT_MAX: usize = 2_048;

/// Returns the first namespace by number that `is_wanted` accepts and in which the client has any right, if there is
/// one. The caller opens a lane in this namespace to send a request that concerns all namespaces or another one. The
/// search awaits `next_turn`, so that other connections of the worker run in between. So only the task of a front-end
/// connection, which `in_turns` polls, may await this function.
pub(super) async fn some_namespace(
    identity: Option<&Arc<Identity>>,
    is_wanted: impl Fn(&[u8]) -> bool,
) -> Option<(NamespaceKind, String)> {
    let mut from = 0;
    loop {
        match some_namespace_from(from, identity, &is_wanted) {
            (None, Some(next)) => from = next,
            (found, _) => return found,
        }
        next_turn().await;
    }
}

/// Searches the namespaces with this number or a higher one for the first that `is_wanted` accepts and in which the
/// client has any right. Looks at no more than [`LOOKED_AT_MAX`] namespaces. Also returns the number at which to
/// continue, if there are more.
fn some_namespace_from(
    from: u64,
    identity: Option<&Arc<Identity>>,
    is_wanted: &impl Fn(&[u8]) -> bool,
) -> (Option<(NamespaceKind, String)>, Option<u64>) {
    let policy = Local::with(|local| local.node.access.policy());
    let reaches = policy.reach(identity);
    Local::with(|local| {
        let namespaces = local.node.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
        let mut names = namespaces.by_number(from);
        let found = names.by_ref().take(LOOKED_AT_MAX).find(|(_, name, _)| is_wanted(name) && reaches(name));
        (found.map(|(_, name, kind)| (kind, text(name))), names.next().map(|(number, ..)| u64::from(number)))
    })
}

/// Returns the frozen prefixes of a namespace that a client with these rights may list, converted by `shown`. An
/// `access` of `None` means all rights.
pub(super) fn frozen_prefixes<T>(
    namespace: u16,
    access: Option<&Access>,
    shown: impl Fn(&[u8]) -> T,
) -> Vec<T> {
    let may_list = |prefix: &&[u8]| access.is_none_or(|access| access.covers(Rights::LIST, prefix));
    Local::with(|local| {
        let freezes = local.node.freezes.lock().unwrap_or_else(PoisonError::into_inner);
        freezes.prefixes(namespace).filter(may_list).map(shown).collect()
    })
}
