//! What a client of etcd's locks needs of its contract, from `proto/etcd/`.

generated! {
    /// Leases.
    etcdserverpb from "etcdserverpb"
}

generated! {
    /// Locks.
    v3lockpb from "v3lockpb"
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::etcdserverpb::{LeaseGrantRequest, LeaseGrantResponse, LeaseRevokeRequest, ResponseHeader};
    use super::v3lockpb::{LockRequest, LockResponse, UnlockRequest};

    /// The numbers are etcd's: whatever else changes here, these bytes do not.
    #[test]
    fn the_bytes_are_those_of_etcd() {
        assert_eq!(LeaseGrantRequest { ttl: 60, id: 7 }.encode_to_vec(), [0x08, 60, 0x10, 7]);
        assert_eq!(LeaseRevokeRequest { id: 7 }.encode_to_vec(), [0x08, 7]);
        let lock = LockRequest { name: b"key".to_vec(), lease: 7 };
        assert_eq!(lock.encode_to_vec(), b"\x0a\x03key\x10\x07");
        assert_eq!(UnlockRequest { key: b"key".to_vec() }.encode_to_vec(), b"\x0a\x03key");
        let header = ResponseHeader { cluster_id: 1, member_id: 2, revision: 3, raft_term: 4 };
        let header_bytes = [0x08, 1, 0x10, 2, 0x18, 3, 0x20, 4];
        assert_eq!(header.encode_to_vec(), header_bytes);
        let locked = LockResponse { header: Some(header), key: b"key".to_vec() };
        assert_eq!(locked.encode_to_vec(), [&[0x0a, 8], &header_bytes[..], b"\x12\x03key"].concat());
        let granted = LeaseGrantResponse { header: None, id: 7, ttl: 60, error: "no".to_owned() };
        assert_eq!(granted.encode_to_vec(), b"\x10\x07\x18\x3c\x22\x02no");
    }
}
