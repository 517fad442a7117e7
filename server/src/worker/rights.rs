//! The rights that each request needs, and the only place where the worker compares them with the rights of a lane.
//!
//! For a lane that has a right for every key, one comparison of bits suffices. The same comparison checks whether the
//! namespace's kind serves the request at all ([`Barriers`]). Only if that fails, the request is decoded and its keys
//! are compared with the rules. Requests that name a claim by its id pass here, because only the shard knows the owner
//! of the claim (`engine/src/shard/access.rs`). FORCE_RELEASE passes only if the client has the right for some key.

use super::acts::is_act;
use super::kinds::served_kinds;
use super::spans::trace_context_flag;
use waymaker_engine::{Access, Rights};
use waymaker_protocol::message::opcode;
use waymaker_protocol::{Heartbeat, NamespaceKind, Request};

/// Bits that stand for reasons to check a request before it is served. The lowest bits are rights, above them are kinds
/// of namespaces. One bit is for acts of operators, and one for requests that may be traced.
///
/// An opcode has the bits of the rights that it needs for every key, and of the kinds that do not serve it. A lane
/// has the bits of its kind, and of the rights that it lacks for some key. A request passes if both have no bit in
/// common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Barriers(u32);

const KIND_SHIFT: u32 = 10;
const _: () = assert!(Rights::ALL.bits() == (1 << KIND_SHIFT) - 1);
/// Bit that every lane has, and every opcode of an operator's act. Two values with a common bit make the worker check
/// the request before it is served. So the worker handles each such act apart, and the audit log gets a line for it.
const ACT: u32 = 1 << 16;
/// Bit of every lane of a server that exports traces, and of every request that may have a trace context.
const TRACED: u32 = 1 << 17;
const _: () = assert!(1 << (NamespaceKind::ALL.len() as u32 + KIND_SHIFT) <= ACT);

const OF_OPCODES: [u32; 256] = {
    let mut barriers = [0; 256];
    let mut opcode = 0;
    while opcode < 256 {
        let unserved = !(served_kinds(opcode as u8) as u32) & ((1 << NamespaceKind::ALL.len()) - 1);
        let act = if is_act(opcode as u8) { ACT } else { 0 };
        let traced = if trace_context_flag(opcode as u8) != 0 { TRACED } else { 0 };
        barriers[opcode] = needed(opcode as u8).bits() as u32 | unserved << KIND_SHIFT | act | traced;
        opcode += 1;
    }
    barriers
};

/// Returns the rights that let a request pass without a look at its keys.
const fn needed(opcode: u8) -> Rights {
    match opcode {
        opcode::ACQUIRE
        | opcode::ACQUIRE_KEYS
        | opcode::ACQUIRE_SET
        | opcode::ACQUIRE_PERMITS
        | opcode::THROTTLE
        | opcode::THROTTLE_ALL
        | opcode::REGISTER
        | opcode::HEARTBEAT
        | opcode::UNREGISTER => Rights::ACQUIRE,
        opcode::INSPECT
        | opcode::WATCH
        | opcode::VERIFY
        | opcode::LOOK_UP
        | opcode::DESCRIBE_POOL
        | opcode::TREE_STATISTICS => Rights::INSPECT,
        opcode::LIST | opcode::LIST_ENTRIES | opcode::LIST_POOLS => Rights::LIST,
        opcode::SET_CAPACITY => Rights::RESIZE,
        opcode::FREEZE => Rights::FREEZE,
        opcode::FORCE_RELEASE => Rights::FORCE_RELEASE,
        _ => Rights::NONE,
    }
}

impl Barriers {
    /// Returns the bits of a lane in a namespace of this kind. The lane has a bit for the kind, one for each right that
    /// the client lacks for some key, and one for acts of operators. A request whose opcode has one of these bits needs
    /// a check before it is served. Without `access`, the client has all rights.
    pub(crate) fn of_lane(kind: NamespaceKind, access: Option<&Access>) -> Self {
        let lacking = access.map_or(0, |access| Rights::ALL.bits() & !access.everywhere().bits());
        Self(u32::from(lacking) | 1 << (KIND_SHIFT + u32::from(kind.number())) | ACT)
    }

    /// Returns these bits with one more, for a lane of a server that exports traces. With that bit, a request that may
    /// have a trace context needs a check before it is served.
    pub(crate) fn tracing(self) -> Self {
        Self(self.0 | TRACED)
    }

    /// Returns whether a request with this opcode needs no check before it is served. The check is for a right that the
    /// client may lack, and for a kind of namespace that does not serve the request. Acts of operators also need the
    /// check, to begin an audit event. So do requests that may be traced, to begin a span.
    #[inline]
    pub(crate) fn let_pass(self, opcode: u8) -> bool {
        OF_OPCODES[usize::from(opcode)] & self.0 == 0
    }
}

/// Returns the name of a right that the client needs for the request and lacks. Also returns the first key for which it
/// lacks the right, or no key if the right for any key would suffice.
pub(crate) fn missing_right<'a>(
    access: &Access,
    request: &Request<'a>,
) -> Option<(&'static str, Option<&'a [u8]>)> {
    let acquire = |shared: bool| if shared { Rights::ACQUIRE_SHARED } else { Rights::ACQUIRE };
    let for_key = |right, key: &'a [u8]| (!access.covers(right, key)).then_some((right, Some(key)));
    let lacks = |(right, key): &(Rights, &'a [u8])| !access.covers(*right, key);
    let named = |(right, key)| (right, Some(key));
    let for_some = |right| (!access.somewhere().contains(right)).then_some((right, None));
    let missing = match request {
        Request::Acquire(request) => for_key(acquire(request.shared), request.key),
        Request::AcquireKeys(request) => {
            let mut keys = request.items.iter().map(|item| (acquire(item.shared), item.key));
            keys.find(lacks).map(named)
        }
        Request::AcquireSet(request) => {
            let mut paths = request.items.iter().map(|item| (acquire(!item.write), item.path.as_bytes()));
            paths.find(lacks).map(named)
        }
        Request::AcquirePermits(request) => for_key(Rights::ACQUIRE, request.name),
        Request::Throttle(request) => for_key(Rights::ACQUIRE, request.bucket.name),
        Request::ThrottleAll(request) => {
            let mut names = request.buckets.iter().map(|bucket| (Rights::ACQUIRE, bucket.name));
            names.find(lacks).map(named)
        }
        Request::Register(request) | Request::Heartbeat(Heartbeat(request)) => {
            for_key(Rights::ACQUIRE, request.key)
        }
        Request::Unregister(request) => for_key(Rights::ACQUIRE, request.key),
        Request::Inspect(request) => for_key(Rights::INSPECT, request.key),
        Request::Watch(request) => for_key(Rights::INSPECT, request.key),
        Request::Verify(request) => for_key(Rights::INSPECT, request.key),
        Request::LookUp(request) => for_key(Rights::INSPECT, request.key),
        Request::DescribePool(request) => for_key(Rights::INSPECT, request.name),
        Request::TreeStatistics(_) => for_key(Rights::INSPECT, b""),
        Request::List(_) | Request::ListEntries(_) | Request::ListPools(_) => for_some(Rights::LIST),
        Request::SetCapacity(request) => for_key(Rights::RESIZE, request.name),
        Request::Freeze(request) => for_key(Rights::FREEZE, request.prefix),
        Request::ForceRelease(_) => for_some(Rights::FORCE_RELEASE),
        _ => None,
    };
    missing.map(|(right, key)| (right.name(), key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use waymaker_protocol::{Acquire, ForceRelease, Freeze, List};

    fn access(everywhere: Rights, prefix: &[u8], rights: Rights) -> Access {
        Access::new("me".into(), everywhere, vec![(prefix.into(), rights)])
    }

    #[test]
    fn a_lane_without_access_passes_every_request_that_its_kind_serves() {
        let flat = Barriers::of_lane(NamespaceKind::Flat, None);
        assert!(flat.let_pass(opcode::ACQUIRE) && flat.let_pass(opcode::RELEASE));
        assert!(!flat.let_pass(opcode::FORCE_RELEASE), "the audit log has a line for it");
        assert!(!flat.let_pass(opcode::ACQUIRE_SET));
        let tree = Barriers::of_lane(NamespaceKind::Tree, None);
        assert!(tree.let_pass(opcode::ACQUIRE_SET) && !tree.let_pass(opcode::ACQUIRE));
    }

    #[test]
    fn a_lane_passes_with_the_rights_that_it_has_for_every_key() {
        let access = access(Rights::ACQUIRE, b"a/", Rights::INSPECT);
        let lane = Barriers::of_lane(NamespaceKind::Flat, Some(&access));
        assert!(lane.let_pass(opcode::ACQUIRE) && lane.let_pass(opcode::RELEASE));
        assert!(!lane.let_pass(opcode::INSPECT), "it has the right for some keys only");
        assert!(!lane.let_pass(opcode::FREEZE));
    }

    #[test]
    fn a_request_needs_the_right_for_its_key() {
        let access = access(Rights::ACQUIRE_SHARED, b"a/", Rights::ACQUIRE | Rights::FREEZE);
        let missing = |key, shared| {
            let request = Request::Acquire(Acquire { key, shared, ..Acquire::default() });
            missing_right(&access, &request).map(|(right, key)| (right, key.expect("a key")))
        };
        assert_eq!(missing(b"a/1", false), None);
        assert_eq!(missing(b"b", true), None);
        assert_eq!(missing(b"b", false), Some(("acquire", &b"b"[..])));
        let frozen = |prefix| Request::Freeze(Freeze { prefix, thaw: false, ..Freeze::default() });
        assert_eq!(missing_right(&access, &frozen(b"a/x")), None);
        let missing = missing_right(&access, &frozen(b"a"));
        assert_eq!(missing, Some(("freeze", Some(&b"a"[..]))), "it would freeze other keys too");
    }

    #[test]
    fn a_request_about_no_single_key_needs_the_right_for_some_key() {
        let some = access(Rights::NONE, b"a/", Rights::LIST);
        let list = Request::List(List { cursor: 0, count_max: 0, prefix: b"", ..List::default() });
        assert_eq!(missing_right(&some, &list), None);
        let force = Request::ForceRelease(ForceRelease { id: Default::default(), reason: b"" });
        assert_eq!(missing_right(&some, &force), Some(("force_release", None)));
    }
}
