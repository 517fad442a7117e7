//! Members that are reached by TLS.

use super::asking::{Asking, create, options};
use super::has_etcd;
use super::members::Members;
use crate::authority::Authority;
use waymaker_server::quorum::cluster::ClusterError;
use waymaker_server::quorum::options::QuorumOptions;

#[test]
fn server_and_etcd_authenticate_each_other_with_tls() {
    if !has_etcd("encrypted members") {
        return;
    }
    let authority = Authority::new();
    let members = Members::start_encrypted(1, &authority);
    let issued = authority.issue("waymaker");
    let [cert, key] = [issued.cert(), issued.key()].map(|path| Some(path.into()));
    let good = QuorumOptions { ca: Some(authority.ca()), cert, key, ..options(&members) };
    assert!(Asking::with(&good).txn(create("key", "v")).unwrap().succeeded);

    let refused = |options: &QuorumOptions| match Asking::with(options).txn(create("other", "v")) {
        Err(ClusterError::NotSent { reason }) => reason,
        other => panic!("{other:?}"),
    };
    let other = Authority::new();
    let reason = refused(&QuorumOptions { ca: Some(other.ca()), ..good.clone() });
    let endpoint = &good.endpoints[0];
    assert_eq!(reason, format!("{endpoint}: cannot connect: invalid peer certificate: UnknownIssuer"));
    let reason = refused(&QuorumOptions { cert: None, key: None, ..good.clone() });
    assert!(reason.ends_with("(--quorum-cert)"), "{reason}");
    let plain = endpoint.replace("https", "http");
    let reason = refused(&QuorumOptions { endpoints: vec![plain], ..QuorumOptions::default() });
    assert!(reason.contains("cannot connect: "), "{reason}");
    assert_eq!(Asking::with(&good).get("other").unwrap(), None);
}
