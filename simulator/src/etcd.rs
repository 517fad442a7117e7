//! A model of etcd transactions, limited to the requests that servers send.

use std::collections::{BTreeMap, BTreeSet};
use waymaker_proto::etcd::etcdserverpb::compare::TargetUnion;
use waymaker_proto::etcd::etcdserverpb::request_op::Request;
use waymaker_proto::etcd::etcdserverpb::response_op::Response;
use waymaker_proto::etcd::etcdserverpb::{
    Compare, PutResponse, RangeResponse, RequestOp, ResponseHeader, ResponseOp, TxnRequest, TxnResponse,
};
use waymaker_proto::etcd::mvccpb::KeyValue;

/// The keys of a cluster.
#[derive(Debug, Default)]
pub(crate) struct Etcd {
    revision: i64,
    values: BTreeMap<Vec<u8>, KeyValue>,
}

impl Etcd {
    /// Applies a transaction that writes. Returns `None` if etcd refuses the transaction because it puts one
    /// key twice.
    pub(crate) fn apply(&mut self, txn: &TxnRequest) -> Option<TxnResponse> {
        let mut puts = BTreeSet::new();
        if !are_puts_distinct(txn, &mut puts) {
            return None;
        }
        self.revision += 1;
        Some(self.run(txn))
    }

    fn run(&mut self, txn: &TxnRequest) -> TxnResponse {
        let succeeded = txn.compare.iter().all(|compare| self.holds_true(compare));
        let ops = if succeeded { &txn.success } else { &txn.failure };
        let responses = ops.iter().map(|op| ResponseOp { response: self.answer(op) }).collect();
        let header = Some(ResponseHeader { revision: self.revision, ..Default::default() });
        TxnResponse { header, succeeded, responses }
    }

    /// Servers compare only the revisions of keys, and only for equality.
    fn holds_true(&self, compare: &Compare) -> bool {
        let revision = self.values.get(&compare.key).map_or(0, |value| value.mod_revision);
        compare.target_union == Some(TargetUnion::ModRevision(revision))
    }

    fn answer(&mut self, op: &RequestOp) -> Option<Response> {
        Some(match op.request.as_ref()? {
            Request::RequestPut(put) => {
                let (key, value, mod_revision) = (put.key.clone(), put.value.clone(), self.revision);
                let stored = KeyValue { key: key.clone(), value, mod_revision, ..Default::default() };
                self.values.insert(key, stored);
                Response::ResponsePut(PutResponse::default())
            }
            Request::RequestRange(range) => {
                let kvs = self.values.get(&range.key).cloned().into_iter().collect();
                Response::ResponseRange(RangeResponse { kvs, ..Default::default() })
            }
            Request::RequestTxn(txn) => Response::ResponseTxn(self.run(txn)),
        })
    }
}

/// Returns whether no `success` branch puts a key twice. The results of the comparisons do not matter.
fn are_puts_distinct<'a>(txn: &'a TxnRequest, puts: &mut BTreeSet<&'a [u8]>) -> bool {
    txn.success.iter().all(|op| match &op.request {
        Some(Request::RequestPut(put)) => puts.insert(&put.key),
        Some(Request::RequestTxn(txn)) => are_puts_distinct(txn, puts),
        _ => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use waymaker_engine::{CounterName, Fence};
    use waymaker_server::quorum::codec::{etcd_key, replies_of, txn_of};
    use waymaker_server::quorum::counters::{Attempt, Reply, Step, StoredCounter};

    fn step(key: &[u8], number: u64, since: i64) -> Step {
        let name = CounterName { namespace: 0, key: key.into() };
        Step { name, attempt: Attempt { run: 7, number }, since, fence: Fence::new(10 * number) }
    }

    fn replies(etcd: &mut Etcd, steps: &[Step]) -> Option<Vec<Reply>> {
        let keys = steps.iter().map(|step| etcd_key("", b"namespace", &step.name));
        replies_of(&etcd.apply(&txn_of(keys.zip(steps)))?, steps.len())
    }

    #[test]
    fn a_step_writes_only_if_its_counter_has_the_expected_revision() {
        let mut etcd = Etcd::default();
        let (one, other) = (step(b"one", 1, 0), step(b"other", 2, 0));
        assert_eq!(
            replies(&mut etcd, std::slice::from_ref(&one)),
            Some(vec![Reply::Written { revision: 1 }])
        );
        let found = StoredCounter { revision: 1, fence: Fence::new(10), attempt: one.attempt };
        let both = vec![Reply::Found(Some(found)), Reply::Written { revision: 2 }];
        assert_eq!(replies(&mut etcd, &[one.clone(), other]), Some(both));
        let next = Step { since: 1, ..one.clone() };
        assert_eq!(replies(&mut etcd, &[next]), Some(vec![Reply::Written { revision: 3 }]));
        assert_eq!(replies(&mut etcd, &[one.clone(), one]), None, "a key that is put twice");
    }
}
