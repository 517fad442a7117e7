//! The encoding of counters in etcd.
//!
//! The etcd key of a counter is the prefix, the namespace, a slash and the key of the lock. The value is the fence in
//! decimal, a space, and the id of the attempt that wrote it. People can read the value, and the key if the key of the
//! lock is text.
//!
//! A step is the conditional write of one counter. Several steps form one transaction without a condition. Inside it,
//! each step is a nested transaction with its own condition. A failed step therefore does not stop the others, and the
//! members write to disk once.

use super::counters::{Attempt, Reply, Step, StoredCounter};
use waymaker_engine::{CounterName, Fence};
use waymaker_log::NUMBER_LIMIT;
use waymaker_proto::etcd::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use waymaker_proto::etcd::etcdserverpb::request_op::Request;
use waymaker_proto::etcd::etcdserverpb::response_op::Response;
use waymaker_proto::etcd::etcdserverpb::{
    Compare, PutRequest, RangeRequest, RequestOp, ResponseOp, TxnRequest, TxnResponse,
};

/// Maximum number of steps in one transaction. etcd accepts 128 operations by default, and the outer transaction counts
/// as one.
pub(super) const STEP_COUNT_MAX: usize = 127;

/// Lowest fence that is rejected as malformed; no server ever counts this far. The log accepts only numbers below
/// [`NUMBER_LIMIT`]. Later fences, and the floor (the minimum for forgotten keys) above each fence, must stay below
/// that limit too.
const FENCE_LIMIT: u64 = NUMBER_LIMIT / 2;

/// Returns the etcd key of a counter. Slashes and percent signs in the name of the namespace are escaped, so that
/// different counters have different keys.
pub fn etcd_key(prefix: &str, namespace: &[u8], name: &CounterName) -> Vec<u8> {
    let mut key = Vec::with_capacity(prefix.len() + namespace.len() + 1 + name.key.len());
    key.extend_from_slice(prefix.as_bytes());
    for byte in namespace {
        match byte {
            b'%' => key.extend_from_slice(b"%25"),
            b'/' => key.extend_from_slice(b"%2F"),
            _ => key.push(*byte),
        }
    }
    key.push(b'/');
    key.extend_from_slice(&name.key);
    key
}

fn value_of(step: &Step) -> Vec<u8> {
    let Attempt { run, number } = step.attempt;
    format!("{} {run:016x}.{number}", step.fence).into_bytes()
}

fn parse_value(value: &[u8]) -> Option<(u64, Attempt)> {
    let (fence, attempt) = std::str::from_utf8(value).ok()?.split_once(' ')?;
    let (run, number) = attempt.split_once('.')?;
    let attempt = Attempt { run: u64::from_str_radix(run, 16).ok()?, number: number.parse().ok()? };
    let fence = fence.parse().ok().filter(|fence| *fence < FENCE_LIMIT)?;
    Some((fence, attempt))
}

/// Returns the transaction for these steps (conditional writes of counters), each with its etcd key. A single step is
/// not nested in an outer transaction.
pub fn txn_of<'a>(steps: impl Iterator<Item = (Vec<u8>, &'a Step)>) -> TxnRequest {
    let mut txns: Vec<TxnRequest> = steps.map(|(key, step)| txn_of_one(key, step)).collect();
    if txns.len() == 1 {
        return txns.remove(0);
    }
    let success = txns.into_iter().map(|txn| op(Request::RequestTxn(txn))).collect();
    TxnRequest { success, ..Default::default() }
}

fn txn_of_one(key: Vec<u8>, step: &Step) -> TxnRequest {
    let unchanged = Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Mod.into(),
        key: key.clone(),
        target_union: Some(TargetUnion::ModRevision(step.since)),
    };
    let put = PutRequest { key: key.clone(), value: value_of(step), ..Default::default() };
    let look = RangeRequest { key, ..Default::default() };
    TxnRequest {
        compare: vec![unchanged],
        success: vec![op(Request::RequestPut(put))],
        failure: vec![op(Request::RequestRange(look))],
    }
}

fn op(request: Request) -> RequestOp {
    RequestOp { request: Some(request) }
}

/// Returns the reply to each of `step_count` steps, or `None` if the response is malformed.
pub fn replies_of(response: &TxnResponse, step_count: usize) -> Option<Vec<Reply>> {
    let revision = response.header.as_ref()?.revision;
    if step_count == 1 {
        return Some(vec![reply_of(response, revision)?]);
    }
    if response.responses.len() != step_count {
        return None;
    }
    let nested = |op: &ResponseOp| match &op.response {
        Some(Response::ResponseTxn(nested)) => reply_of(nested, revision),
        _ => None,
    };
    response.responses.iter().map(nested).collect()
}

fn reply_of(txn: &TxnResponse, revision: i64) -> Option<Reply> {
    match &txn.responses.first()?.response {
        Some(Response::ResponsePut(_)) if txn.succeeded => Some(Reply::Written { revision }),
        Some(Response::ResponseRange(range)) if !txn.succeeded => {
            let Some(kv) = range.kvs.first() else { return Some(Reply::Found(None)) };
            let found = parse_value(&kv.value).map(|(fence, attempt)| StoredCounter {
                revision: kv.mod_revision,
                fence: Fence::new(fence),
                attempt,
            });
            Some(found.map_or(Reply::Nonsense, |found| Reply::Found(Some(found))))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_counters_have_different_etcd_keys() {
        let name = |key: &str| CounterName { namespace: 0, key: key.as_bytes().into() };
        let keys = [("a/b", "c"), ("a", "b/c"), ("a%2Fb", "c"), ("a", "/b/c")];
        let keys = keys.map(|(namespace, key)| etcd_key("waymaker/", namespace.as_bytes(), &name(key)));
        let keys = keys.map(|key| String::from_utf8(key).unwrap());
        assert_eq!(keys, ["waymaker/a%2Fb/c", "waymaker/a/b/c", "waymaker/a%252Fb/c", "waymaker/a//b/c"]);
    }

    #[test]
    fn a_counter_value_contains_the_fence_and_its_writer() {
        let attempt = Attempt { run: 0xab, number: 9 };
        let name = CounterName { namespace: 0, key: Box::from(*b"k") };
        let value = value_of(&Step { name, attempt, since: 0, fence: Fence::new(41) });
        assert_eq!(value, b"41 00000000000000ab.9");
        assert_eq!(parse_value(&value), Some((41, attempt)));
        for nonsense in ["", "41", "41 ", "x 1.1", "41 g.1", "41 1", "-1 1.1", "99999999999999999999 1.1"] {
            assert_eq!(parse_value(nonsense.as_bytes()), None, "{nonsense:?}");
        }
        assert_eq!(
            parse_value(b"2305843009213693951 ab.9"),
            Some(((1 << 61) - 1, Attempt { run: 0xab, number: 9 }))
        );
        for nonsense in ["2305843009213693952 1.1", "4611686018427387903 1.1", "18446744073709551615 1.1"] {
            assert_eq!(parse_value(nonsense.as_bytes()), None, "{nonsense:?}");
        }
        assert_eq!(parse_value(&[0xff]), None);
    }
}
