//! Parts of etcd's contract that a client of its keys, leases and locks needs, from `proto/etcd/`.

generated! {
    /// Keys, leases, members and users.
    etcdserverpb from "etcdserverpb"
}

generated! {
    /// The key-value records.
    mvccpb from "mvccpb"
}

generated! {
    /// Users and their permissions.
    authpb from "authpb"
}

generated! {
    /// Locks.
    v3lockpb from "v3lockpb"
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::authpb::Permission;
    use super::authpb::permission::Type;
    use super::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
    use super::etcdserverpb::request_op::Request;
    use super::etcdserverpb::response_op::Response;
    use super::etcdserverpb::{
        AuthRoleAddRequest, AuthRoleGrantPermissionRequest, AuthUserAddRequest, AuthUserGrantRoleRequest,
        AuthenticateRequest, AuthenticateResponse, Compare, LeaseGrantRequest, LeaseGrantResponse,
        LeaseKeepAliveRequest, LeaseKeepAliveResponse, LeaseRevokeRequest, PutRequest, PutResponse,
        RangeRequest, RangeResponse, RequestOp, ResponseHeader, ResponseOp, StatusResponse, TxnRequest,
        TxnResponse,
    };
    use super::mvccpb::KeyValue;
    use super::v3lockpb::{LockRequest, LockResponse, UnlockRequest};

    // etcd defined these numbers, so the encoded bytes must never change.

    const HEADER: ResponseHeader = ResponseHeader { cluster_id: 1, member_id: 2, revision: 3, raft_term: 4 };
    /// The encoded message as the first field of a response.
    const HEADER_BYTES: &[u8] = &[0x0a, 8, 0x08, 1, 0x10, 2, 0x18, 3, 0x20, 4];
    const KEY_VALUE_BYTES: &[u8] = b"\x0a\x01k\x10\x01\x18\x02\x20\x03\x2a\x01v\x30\x07";

    fn key_value() -> KeyValue {
        let (key, value) = (b"k".to_vec(), b"v".to_vec());
        KeyValue { key, create_revision: 1, mod_revision: 2, version: 3, value, lease: 7 }
    }

    /// Encodes the field with this tag and these bytes; at most 127 bytes.
    fn field(tag: u8, bytes: &[u8]) -> Vec<u8> {
        [&[tag, u8::try_from(bytes.len()).unwrap()], bytes].concat()
    }

    #[test]
    fn lease_messages_are_encoded_as_in_etcd() {
        assert_eq!(LeaseGrantRequest { ttl: 60, id: 7 }.encode_to_vec(), [0x08, 60, 0x10, 7]);
        assert_eq!(LeaseRevokeRequest { id: 7 }.encode_to_vec(), [0x08, 7]);
        let granted = LeaseGrantResponse { header: None, id: 7, ttl: 60, error: "no".to_owned() };
        assert_eq!(granted.encode_to_vec(), b"\x10\x07\x18\x3c\x22\x02no");
        assert_eq!(LeaseKeepAliveRequest { id: 7 }.encode_to_vec(), [0x08, 7]);
        let alive = LeaseKeepAliveResponse { header: Some(HEADER), id: 7, ttl: 60 };
        assert_eq!(alive.encode_to_vec(), [HEADER_BYTES, b"\x10\x07\x18\x3c"].concat());
    }

    #[test]
    fn lock_messages_are_encoded_as_in_etcd() {
        let lock = LockRequest { name: b"key".to_vec(), lease: 7 };
        assert_eq!(lock.encode_to_vec(), b"\x0a\x03key\x10\x07");
        assert_eq!(UnlockRequest { key: b"key".to_vec() }.encode_to_vec(), b"\x0a\x03key");
        let locked = LockResponse { header: Some(HEADER), key: b"key".to_vec() };
        assert_eq!(locked.encode_to_vec(), [HEADER_BYTES, b"\x12\x03key"].concat());
    }

    #[test]
    fn key_messages_are_encoded_as_in_etcd() {
        let [key, range_end] = ["k", "l"].map(|text| text.as_bytes().to_vec());
        let range =
            RangeRequest { key, range_end, limit: 5, revision: 9, serializable: true, keys_only: true };
        assert_eq!(range.encode_to_vec(), b"\x0a\x01k\x12\x01l\x18\x05\x20\x09\x38\x01\x40\x01");
        let ranged = RangeResponse { header: Some(HEADER), kvs: vec![key_value()], more: true, count: 6 };
        let expected = [HEADER_BYTES, &field(0x12, KEY_VALUE_BYTES), &[0x18, 1, 0x20, 6]].concat();
        assert_eq!(ranged.encode_to_vec(), expected);
        let put = PutRequest { key: b"k".to_vec(), value: b"v".to_vec(), lease: 7, prev_kv: true };
        assert_eq!(put.encode_to_vec(), b"\x0a\x01k\x12\x01v\x18\x07\x20\x01");
        let put = PutResponse { header: Some(HEADER), prev_kv: Some(key_value()) };
        assert_eq!(put.encode_to_vec(), [HEADER_BYTES, &field(0x12, KEY_VALUE_BYTES)].concat());
    }

    #[test]
    fn compare_messages_are_encoded_as_in_etcd() {
        let (equal, less) = (CompareResult::Equal, CompareResult::Less);
        let (greater, not_equal) = (CompareResult::Greater, CompareResult::NotEqual);
        let value = TargetUnion::Value(b"v".to_vec());
        for (result, target, union, expected) in [
            (equal, CompareTarget::Version, TargetUnion::Version(0), b"\x1a\x01k\x20\x00".to_vec()),
            (
                greater,
                CompareTarget::Create,
                TargetUnion::CreateRevision(9),
                b"\x08\x01\x10\x01\x1a\x01k\x28\x09".to_vec(),
            ),
            (
                less,
                CompareTarget::Mod,
                TargetUnion::ModRevision(9),
                b"\x08\x02\x10\x02\x1a\x01k\x30\x09".to_vec(),
            ),
            (not_equal, CompareTarget::Value, value, b"\x08\x03\x10\x03\x1a\x01k\x3a\x01v".to_vec()),
            (equal, CompareTarget::Lease, TargetUnion::Lease(7), b"\x10\x04\x1a\x01k\x40\x07".to_vec()),
        ] {
            let (result, target) = (result.into(), target.into());
            let compare = Compare { result, target, key: b"k".to_vec(), target_union: Some(union) };
            assert_eq!(compare.encode_to_vec(), expected);
        }
    }

    #[test]
    fn transaction_messages_are_encoded_as_in_etcd() {
        let operation = |request| RequestOp { request: Some(request) };
        let range =
            operation(Request::RequestRange(RangeRequest { key: b"k".to_vec(), ..Default::default() }));
        let put = operation(Request::RequestPut(PutRequest { key: b"k".to_vec(), ..Default::default() }));
        let txn =
            operation(Request::RequestTxn(TxnRequest { success: vec![range.clone()], ..Default::default() }));
        let compare = Compare { target: CompareTarget::Mod.into(), ..Default::default() };
        let asked = TxnRequest { compare: vec![compare], success: vec![put, txn], failure: vec![range] };
        let [range_bytes, put_bytes] = [0x0a, 0x12].map(|tag| field(tag, b"\x0a\x01k"));
        let expected = [
            &b"\x0a\x02\x10\x02"[..],
            &field(0x12, &put_bytes),
            &field(0x12, &field(0x22, &field(0x12, &range_bytes))),
            &field(0x1a, &range_bytes),
        ];
        assert_eq!(asked.encode_to_vec(), expected.concat());

        let operation = |response| ResponseOp { response: Some(response) };
        let range = Response::ResponseRange(RangeResponse { more: true, ..Default::default() });
        let put = Response::ResponsePut(PutResponse::default());
        let txn = Response::ResponseTxn(TxnResponse { succeeded: true, ..Default::default() });
        let responses = [range, put, txn].map(operation).to_vec();
        let answered = TxnResponse { header: Some(HEADER), succeeded: true, responses };
        let expected =
            [HEADER_BYTES, b"\x10\x01\x1a\x04\x0a\x02\x18\x01\x1a\x02\x12\x00\x1a\x04\x22\x02\x10\x01"];
        assert_eq!(answered.encode_to_vec(), expected.concat());
    }

    #[test]
    fn member_and_user_messages_are_encoded_as_in_etcd() {
        let status =
            StatusResponse { header: Some(HEADER), version: "3".to_owned(), leader: 8, raft_term: 9 };
        assert_eq!(status.encode_to_vec(), [HEADER_BYTES, b"\x12\x013\x20\x08\x30\x09"].concat());
        let [name, password] = ["u", "p"].map(str::to_owned);
        let authenticate = AuthenticateRequest { name: name.clone(), password: password.clone() };
        assert_eq!(authenticate.encode_to_vec(), b"\x0a\x01u\x12\x01p");
        let authenticated = AuthenticateResponse { header: Some(HEADER), token: "t".to_owned() };
        assert_eq!(authenticated.encode_to_vec(), [HEADER_BYTES, b"\x12\x01t"].concat());
        let add = AuthUserAddRequest { name: name.clone(), password };
        assert_eq!(add.encode_to_vec(), b"\x0a\x01u\x12\x01p");
        assert_eq!(AuthRoleAddRequest { name: name.clone() }.encode_to_vec(), b"\x0a\x01u");
        let grant = AuthUserGrantRoleRequest { user: name.clone(), role: "r".to_owned() };
        assert_eq!(grant.encode_to_vec(), b"\x0a\x01u\x12\x01r");
        let [key, range_end] = ["k", "l"].map(|text| text.as_bytes().to_vec());
        let permission = Permission { perm_type: Type::Readwrite.into(), key, range_end };
        let grant = AuthRoleGrantPermissionRequest { name, perm: Some(permission) };
        assert_eq!(grant.encode_to_vec(), b"\x0a\x01u\x12\x08\x08\x02\x12\x01k\x1a\x01l");
    }
}
