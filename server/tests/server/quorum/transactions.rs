//! What etcd does with a transaction.

use super::asking::{Asking, create, get, nested, put, unchanged};
use super::has_etcd;
use super::members::Members;
use waymaker_proto::etcd::etcdserverpb::response_op::Response;
use waymaker_proto::etcd::etcdserverpb::{TxnRequest, TxnResponse};
use waymaker_server::quorum::cluster::ClusterError;

/// The transactions in one, in the order of their answers.
fn inner(answer: TxnResponse) -> Vec<TxnResponse> {
    let answers = answer.responses.into_iter().map(|operation| match operation.response {
        Some(Response::ResponseTxn(answer)) => answer,
        other => panic!("{other:?}"),
    });
    answers.collect()
}

/// What was read by one that did not succeed.
fn read(answer: &TxnResponse) -> &[u8] {
    match answer.responses[0].response.as_ref() {
        Some(Response::ResponseRange(range)) => &range.kvs[0].value,
        other => panic!("{other:?}"),
    }
}

fn several(txns: impl IntoIterator<Item = TxnRequest>) -> TxnRequest {
    TxnRequest { success: txns.into_iter().map(nested).collect(), ..TxnRequest::default() }
}

#[test]
fn a_transaction_is_applied_once_and_only_if_its_condition_holds() {
    if !has_etcd("transactions") {
        return;
    }
    let members = Members::start(1);
    let [one, other] = [(), ()].map(|()| Asking::of(&members));
    let created = one.txn(create("key", "one")).unwrap();
    assert!(created.succeeded);
    let revision = created.header.unwrap().revision;
    let found = one.get("key").unwrap().expect("it was created");
    assert_eq!((found.mod_revision, found.version, &found.value[..]), (revision, 1, &b"one"[..]));

    let again = other.txn(create("key", "other")).unwrap();
    assert_eq!((again.succeeded, read(&again)), (false, &b"one"[..]));

    let swap = |revision, value: &str| TxnRequest {
        compare: vec![unchanged("key", revision)],
        success: vec![put("key", value)],
        failure: vec![get("key")],
    };
    assert!(other.txn(swap(revision, "other")).unwrap().succeeded);
    let late = one.txn(swap(revision, "late")).unwrap();
    assert_eq!((late.succeeded, read(&late)), (false, &b"other"[..]));
    assert_eq!(one.get("key").unwrap().expect("it was created").version, 2);
}

#[test]
fn many_concurrent_transactions_share_a_connection() {
    if !has_etcd("many transactions at once") {
        return;
    }
    let members = Members::start(1);
    let asking = Asking::of(&members);
    let txns = (0..500).map(|index| create(&format!("key{}", index / 2), &index.to_string()));
    let answers = asking.all(txns, crate::harness::WATCHDOG);
    let succeeded = answers.iter().filter(|answer| answer.as_ref().unwrap().succeeded).count();
    assert_eq!(succeeded, 250);
}

#[test]
fn nested_transactions_are_answered_in_order() {
    if !has_etcd("nested transactions") {
        return;
    }
    let members = Members::start(1);
    let asking = Asking::of(&members);
    assert!(asking.txn(create("7", "before")).unwrap().succeeded);
    let answer = asking.txn(several((0..60).map(|index: u32| create(&index.to_string(), "now")))).unwrap();
    assert!(answer.succeeded);
    let answers = inner(answer);
    assert_eq!(answers.len(), 60);
    for (index, answer) in answers.iter().enumerate() {
        assert_eq!(answer.succeeded, index != 7, "{index}");
    }
    assert_eq!(read(&answers[7]), b"before");
    let revisions = (0..60).map(|index: u32| asking.get(&index.to_string()).unwrap().unwrap().mod_revision);
    let revisions: std::collections::BTreeSet<_> = revisions.collect();
    assert_eq!(revisions.len(), 2, "one before, and one for all the others");
}

/// etcd counts the operations of the outermost together with the most of any inside it.
#[test]
fn etcd_accepts_at_most_127_nested_transactions() {
    if !has_etcd("the limit of a transaction") {
        return;
    }
    let members = Members::start(1);
    let asking = Asking::of(&members);
    let asked = |count: u32| asking.txn(several((0..count).map(|index| create(&index.to_string(), "v"))));
    assert_eq!(inner(asked(127).unwrap()).len(), 127);
    let reason = match asked(128).unwrap_err() {
        ClusterError::Refused { reason } => reason,
        other => panic!("{other}"),
    };
    assert!(reason.ends_with("etcdserver: too many operations in txn request"), "{reason}");
    assert_eq!(asking.get("127").unwrap(), None);

    // A key may be put once, wherever in a transaction that is, but in branches that exclude each other.
    let twice = several([create("twice", "v"), create("twice", "v")]);
    let error = asking.txn(twice).unwrap_err().to_string();
    assert!(error.ends_with("etcdserver: duplicate key given in txn request"), "{error}");
}
