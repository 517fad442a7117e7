//! The contracts are published: their names and numbers must never change.

use protox::prost_reflect::{
    Cardinality, DescriptorPool, EnumDescriptor, FieldDescriptor, MessageDescriptor, ServiceDescriptor,
};
use waymaker_proto::FILE_DESCRIPTOR_SET;

/// The published contract, one line per item: rpcs, then enums, then messages.
const PUBLISHED: &str = "
service waymaker.WaymakerService
  Lock LockRequest -> stream LockEvent
  ReadLock LockRequest -> stream LockEvent
  UnLock UnLockRequest -> UnLockResponse
  LeaseStatus LeaseStatusRequest -> LeaseStatusResponse
  ExtendLease ExtendLeaseRequest -> ExtendLeaseResponse
  MultiLock MultiLockRequest -> MultiLockResponse
  ListAcquiredLocks ListAcquiredLocksRequest -> ListAcquiredLocksResponse
enum waymaker.LockEventType
  0 Unknown
  1 Waiting
  2 Acquired
  3 Failed
  4 Expired
  5 Heartbeat
enum waymaker.FenceScope
  0 ScopeUnspecified
  1 ScopeEphemeral
  2 ScopeLocal
  3 ScopeQuorum
message waymaker.LockRequest
  1 key string
  2 max_wait_period uint32
  3 max_lease_period uint32
  4 priority uint32
  10 requester_info string
  11 requester_application string
  12 request_id string
  13 fence_scope FenceScope
message waymaker.LockEvent
  1 success bool
  2 event_type LockEventType
  3 message string
  4 id string
  5 key string
  6 lease_expires_at int64
  7 acquired_at int64
  8 waiting_expires_at int64
  9 fence_token uint64
message waymaker.UnLockRequest
  1 key string
  2 id string
message waymaker.UnLockResponse
  1 success bool
  2 result_code string
  3 message string
message waymaker.Lease
  1 id string
  2 key string
  3 acquired bool
  4 reserved
  5 priority uint32
  6 created_at int64
  7 lease_expires_at int64
  8 waiting_expires_at int64
  9 fence_token uint64
message waymaker.ExtendLeaseRequest
  1 key string
  2 id string
  3 lease_timeout uint32
message waymaker.ExtendLeaseResponse
  1 success bool
  2 result_code string
  3 message string
  4 lease Lease
message waymaker.LeaseStatusRequest
  1 key string
  2 id string
message waymaker.LeaseStatusResponse
  1 success bool
  2 result_code string
  3 message string
  4 lease Lease
message waymaker.MultiLockKey
  1 key string
  2 write_lock bool
message waymaker.MultiLockRequest
  1 keys repeated MultiLockKey
  2 max_wait_period uint32
  3 max_lease_period uint32
  4 priority uint32
  10 requester_info string
  11 requester_application string
  12 request_id string
  13 fence_scope FenceScope
message waymaker.MultiLockResponse
  1 success bool
  2 result_code string
  3 message string
  4 leases repeated Lease
message waymaker.ListAcquiredLocksRequest
  1 key_prefix string
message waymaker.AcquiredLock
  1 key string
  2 lock_id string
  3 write_lock bool
  4 priority uint32
  5 fence_token uint64
  6 lease_expires_at int64
  7 acquired_at int64
  8 request_id string
  9 requester_info string
  10 requester_application string
message waymaker.ListAcquiredLocksResponse
  1 success bool
  2 locks repeated AcquiredLock
";

/// The whole `waymaker.v1` contract, in the same form. Lines may be added, but no line may change.
const V1: &str = include_str!("v1.contract");

#[test]
fn the_descriptor_set_contains_only_the_published_contract() {
    assert_contract("waymaker", PUBLISHED);
}

#[test]
fn names_and_numbers_of_waymaker_v1_never_change() {
    assert_contract("waymaker.v1", V1);
}

/// Asserts that a package consists of exactly these lines.
fn assert_contract(package: &str, published: &str) {
    let lines = contract(&pool(), package);
    let published: Vec<&str> = published.trim().lines().collect();
    for (index, (line, published)) in lines.iter().zip(&published).enumerate() {
        assert_eq!(line, published, "line {index} of {package}");
    }
    assert_eq!(lines.len(), published.len(), "{package} has grown or shrunk");
}

#[test]
fn enum_values_have_the_enum_prefix_and_zero_is_unspecified() {
    let pool = pool();
    let ours = pool.all_enums().filter(|enumeration| enumeration.package_name() == "waymaker.v1");
    for enumeration in ours {
        let mut prefix = String::new();
        for letter in enumeration.name().chars() {
            if letter.is_uppercase() && !prefix.is_empty() {
                prefix.push('_');
            }
            prefix.extend(letter.to_uppercase());
        }
        for value in enumeration.values() {
            assert!(value.name().starts_with(&format!("{prefix}_")), "{}", value.name());
        }
        let zero = enumeration.get_value(0).expect("there is a zero");
        assert_eq!(zero.name(), format!("{prefix}_UNSPECIFIED"));
    }
}

#[test]
fn the_go_package_matches_the_published_contract() {
    let file = pool().get_file_by_name("waymaker.proto").expect("the set holds the contract");
    let options = file.file_descriptor_proto().options.clone().expect("the contract has options");
    assert_eq!(options.go_package(), "/apis/waymaker");
    assert_eq!(file.file_descriptor_proto().syntax(), "proto3");
}

#[test]
fn the_generated_service_uses_the_published_name() {
    use tonic::server::NamedService as _;
    use waymaker_proto::waymaker::waymaker_service_server::WaymakerServiceServer;
    assert_eq!(WaymakerServiceServer::<()>::NAME, "waymaker.WaymakerService");
}

fn pool() -> DescriptorPool {
    DescriptorPool::decode(FILE_DESCRIPTOR_SET).expect("the set decodes")
}

/// Returns the lines of one package.
fn contract(pool: &DescriptorPool, package: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for service in pool.services().filter(|service| service.package_name() == package) {
        lines.push(format!("service {}", service.full_name()));
        lines.extend(rpcs(&service));
    }
    for enumeration in pool.all_enums().filter(|enumeration| enumeration.package_name() == package) {
        lines.push(format!("enum {}", enumeration.full_name()));
        lines.extend(values(&enumeration));
    }
    for message in pool.all_messages().filter(|message| message.package_name() == package) {
        lines.push(format!("message {}", message.full_name()));
        lines.extend(fields(&message));
    }
    lines
}

fn rpcs(service: &ServiceDescriptor) -> Vec<String> {
    let stream = |streaming| if streaming { "stream " } else { "" };
    let line = |rpc: protox::prost_reflect::MethodDescriptor| {
        let (from, to) = (stream(rpc.is_client_streaming()), stream(rpc.is_server_streaming()));
        format!("  {} {from}{} -> {to}{}", rpc.name(), rpc.input().name(), rpc.output().name())
    };
    service.methods().map(line).collect()
}

fn values(enumeration: &EnumDescriptor) -> Vec<String> {
    enumeration.values().map(|value| format!("  {} {}", value.number(), value.name())).collect()
}

fn fields(message: &MessageDescriptor) -> Vec<String> {
    let fields = message.fields().map(|field| (field.number(), field_line(&field)));
    let reserved = message.reserved_ranges().flatten().map(|number| (number, format!("  {number} reserved")));
    let mut lines: Vec<(u32, String)> = fields.chain(reserved).collect();
    lines.sort();
    lines.into_iter().map(|(_, line)| line).collect()
}

fn field_line(field: &FieldDescriptor) -> String {
    let repeated = if field.cardinality() == Cardinality::Repeated { "repeated " } else { "" };
    // Scalars print as their name, messages and enums as their full name.
    let kind = format!("{:?}", field.kind());
    let kind = kind.strip_prefix(&format!("{}.", field.parent_message().package_name())).unwrap_or(&kind);
    format!("  {} {} {repeated}{kind}", field.number(), field.name())
}
