//! Frames with one defect, and the error that names it.

use waymaker_protocol::limits::{
    BUCKET_COUNT_MAX, CREDENTIALS_LEN_MAX, DESCRIBE_LISTED_MAX, INSPECT_HOLDERS_MAX, ITEM_COUNT_MAX,
    KEY_LEN_MAX, KEYS_BYTES_MAX, LIST_PAGE_MAX, METADATA_LEN_MAX, NAMESPACE_LEN_MAX, OWNER_LEN_MAX,
    REASON_CODE_LEN_MAX, REASON_LEN_MAX, REASON_MESSAGE_LEN_MAX, REQUEST_ID_LEN_MAX, SEGMENT_COUNT_MAX,
    SEGMENT_LEN_MAX, SERVER_ADDRESSES_LEN_MAX, SERVER_REASONS_MAX, SERVER_VERSION_LEN_MAX, TYPE_LEN_MAX,
    VALUE_LEN_MAX,
};
use waymaker_protocol::message::{acquire_keys, opcode, throttle};
use waymaker_protocol::{
    AcquireKeys, DecodeError, ErrorAnswer, ErrorCode, ErrorDetail, GrantedKey, GrantedKeys, Items, KeyItem,
    Request, Response, Route, TraceParent, route,
};

use crate::direction::{Message, Sender, only_frame, patch_length};
use crate::layout::{Field, layout};
use crate::samples::{sample, samples};

/// Limit of each string, by the name of its field. Path keys have only the limit of the length field.
const STRING_LIMITS: [(&str, usize); 30] = [
    ("namespace", NAMESPACE_LEN_MAX),
    ("owner", OWNER_LEN_MAX),
    ("credentials", CREDENTIALS_LEN_MAX),
    ("key", KEY_LEN_MAX),
    ("item.key", KEY_LEN_MAX),
    ("name", KEY_LEN_MAX),
    ("prefix", KEY_LEN_MAX),
    ("pool.name", KEY_LEN_MAX),
    ("reason", REASON_LEN_MAX),
    ("value", VALUE_LEN_MAX),
    ("type", TYPE_LEN_MAX),
    ("entry.key", KEY_LEN_MAX),
    ("entry.owner", OWNER_LEN_MAX),
    ("entry.value", VALUE_LEN_MAX),
    ("entry.type", TYPE_LEN_MAX),
    ("waiter.owner", OWNER_LEN_MAX),
    ("namespace.name", NAMESPACE_LEN_MAX),
    ("request_id", REQUEST_ID_LEN_MAX),
    ("metadata", METADATA_LEN_MAX),
    ("holder.owner", OWNER_LEN_MAX),
    ("lock.key", KEY_LEN_MAX),
    ("lock.owner", OWNER_LEN_MAX),
    ("lock.request_id", REQUEST_ID_LEN_MAX),
    ("lock.metadata", METADATA_LEN_MAX),
    ("server_version", SERVER_VERSION_LEN_MAX),
    ("addresses", SERVER_ADDRESSES_LEN_MAX),
    ("reason.code", REASON_CODE_LEN_MAX),
    ("reason.message", REASON_MESSAGE_LEN_MAX),
    ("field", 1024),
    ("message", 1024),
];

/// Limit of each list, by the opcode of its message and the name of its count.
const COUNT_LIMITS: [(u8, &str, usize); 13] = [
    (0x95, "listed_holders", INSPECT_HOLDERS_MAX),
    (0x95, "listed_waiters", INSPECT_HOLDERS_MAX),
    (0x96, "count", LIST_PAGE_MAX as usize),
    (0x9d, "count", LIST_PAGE_MAX as usize),
    (0x9f, "count", SERVER_REASONS_MAX),
    (opcode::ACQUIRE_SET, "count", ITEM_COUNT_MAX),
    (opcode::ACQUIRE_KEYS, "count", ITEM_COUNT_MAX),
    (acquire_keys::GRANTED_KEYS, "count", ITEM_COUNT_MAX),
    (0xb1, "listed_holders", DESCRIBE_LISTED_MAX),
    (0xb1, "listed_waiters", DESCRIBE_LISTED_MAX),
    (0xb3, "count", LIST_PAGE_MAX as usize),
    (opcode::THROTTLE_ALL, "count", BUCKET_COUNT_MAX),
    (0xd4, "count", LIST_PAGE_MAX as usize),
];

/// Opcodes of the messages whose key or prefix may be a path key, so that only the length of a string limits it.
const PATHS: [u8; 10] = [
    opcode::CANCEL,
    opcode::INSPECT,
    opcode::LIST,
    opcode::WATCH,
    opcode::UNWATCH,
    opcode::VERIFY,
    opcode::FREEZE,
    0x94,
    0x96,
    0x9b,
];

#[test]
fn an_unknown_flag_is_rejected_with_its_bit() {
    for sample in samples() {
        let bytes = sample.message.encode(sample.number);
        let known = known_flags(bytes[8]);
        for bit in (0..16).map(|shift| 1_u16 << shift).filter(|bit| known & bit == 0) {
            let flags = u16::from_le_bytes([bytes[10], bytes[11]]) | bit;
            let error = decode_changed(&bytes, sample.message.sender(), 10, &flags.to_le_bytes());
            assert_eq!(error, DecodeError::UnknownFlags { bits: bit }, "{}", sample.name);
            assert_eq!(error.field(), "flags");
        }
    }
}

/// Returns the flags of each message, as in `docs/reference/wire.md`.
fn known_flags(opcode: u8) -> u16 {
    match opcode {
        opcode::ACQUIRE => 0b11_1111_1111,
        opcode::ACQUIRE_SET => 0b11_1110_1110,
        opcode::ACQUIRE_KEYS => 0b11_1111_1110,
        opcode::ACQUIRE_PERMITS => 0b1000_0011_1110_1110,
        0x90 | 0xa1 => 0b1111,
        0x9a => 0b11,
        opcode::FREEZE => 0b11,
        opcode::LIST | opcode::SET_CAPACITY | 0x99 | 0x9b | 0x9c => 0b1,
        opcode::THROTTLE | opcode::THROTTLE_ALL | throttle::THROTTLED => 0b1,
        opcode::REGISTER => 0b111,
        opcode::HEARTBEAT | opcode::LIST_ENTRIES | 0xd0 | 0xd2 | 0xd3 => 0b1,
        opcode::HELLO => 0b111,
        opcode::RELEASE | opcode::EXTEND => 0b11,
        opcode::STATUS | 0x91 | 0x92 | 0x93 => 0b1,
        0x81 | 0x94 => 0b11,
        _ => 0,
    }
}

#[test]
fn a_reserved_byte_that_is_not_zero_is_rejected() {
    for sample in samples() {
        let bytes = sample.message.encode(sample.number);
        let error = decode_changed(&bytes, sample.message.sender(), 9, &[0x5a]);
        assert_eq!(error, DecodeError::BadValue { field: "zero", value: 0x5a }, "{}", sample.name);
    }
}

#[test]
fn trailing_bytes_are_counted_and_rejected() {
    for sample in samples() {
        for count in [1, 2, 100] {
            let mut bytes = sample.message.encode(sample.number);
            bytes.resize(bytes.len() + count, 0);
            patch_length(&mut bytes);
            let error = decode_error(&bytes, sample.message.sender());
            assert_eq!(error, DecodeError::TrailingBytes { count }, "{}", sample.name);
            assert_eq!(error.field(), "body");
        }
    }
}

#[test]
fn a_string_above_its_limit_is_rejected_with_the_limit() {
    let mut seen = Vec::new();
    for sample in samples() {
        let bytes = sample.message.encode(sample.number);
        for Field { name, offset, .. } in layout(sample.message.sender(), &bytes) {
            let Some((_, limit)) = STRING_LIMITS.into_iter().find(|(limited, _)| *limited == name) else {
                continue;
            };
            let is_number =
                matches!((bytes[8], name), (opcode::ERROR, "value") | (opcode::REVOKED, "reason"));
            let may_be_path = name.ends_with("key") || name == "prefix";
            if is_number || may_be_path && PATHS.contains(&bytes[8]) {
                continue;
            }
            let limit = if bytes[8] == opcode::REVOKED { REASON_LEN_MAX } else { limit };
            // The decoder checks the length before the bytes, so the bytes may be missing.
            let above = u16::try_from(limit + 1).expect("limits are short");
            let error = decode_changed(&bytes, sample.message.sender(), offset, &above.to_le_bytes());
            let expected = DecodeError::TooLong { field: name, actual: limit + 1, limit };
            assert_eq!(error, expected, "{}", sample.name);
            assert_eq!(error.limit(), limit as u64);
            seen.push(name);
        }
    }
    for (name, _) in STRING_LIMITS {
        assert!(seen.contains(&name), "no sample has a {name}");
    }
}

#[test]
fn a_list_above_its_limit_is_rejected_with_the_limit() {
    let mut seen = Vec::new();
    for sample in samples() {
        let bytes = sample.message.encode(sample.number);
        for Field { name, offset, .. } in layout(sample.message.sender(), &bytes) {
            let limit =
                COUNT_LIMITS.into_iter().find(|(opcode, field, _)| (*opcode, *field) == (bytes[8], name));
            let Some((opcode, _, limit)) = limit else { continue };
            // The decoder checks the count before the items, so the items may be missing.
            let above = u16::try_from(limit + 1).expect("limits are short");
            let error = decode_changed(&bytes, sample.message.sender(), offset, &above.to_le_bytes());
            assert_eq!(
                error,
                DecodeError::TooMany { field: name, count: limit + 1, limit },
                "{}",
                sample.name
            );
            assert_eq!(error.limit(), limit as u64);
            seen.push((opcode, name));
        }
    }
    for (opcode, name, _) in COUNT_LIMITS {
        assert!(seen.contains(&(opcode, name)), "no sample of {opcode:#04x} has a {name}");
    }
}

#[test]
fn an_empty_list_in_a_request_is_rejected() {
    for name in ["acquire_set", "acquire_keys", "throttle_all"] {
        let sample = sample(name);
        let bytes = sample.message.encode(1);
        let fields = layout(Sender::Client, &bytes);
        let place = fields.iter().find(|field| field.name == "count").expect("the sample has a list");
        let error = decode_changed(&bytes, Sender::Client, place.offset, &[0, 0]);
        assert_eq!(error, DecodeError::Empty { field: "count" }, "{name}");
    }
}

#[test]
fn keys_are_rejected_if_their_grant_would_exceed_a_frame() {
    let key = [b'k'; KEY_LEN_MAX];
    let most = KEYS_BYTES_MAX / (3 + KEY_LEN_MAX);
    for (count, fits) in [(most, true), (most + 1, false)] {
        let mut buffer = Vec::new();
        let items = (0..count).map(|_| KeyItem { shared: true, key: &key });
        let items = Items::new(items, &mut buffer).expect("few enough, short enough");
        let bytes =
            Message::Request(Request::AcquireKeys(AcquireKeys { items, ..Default::default() })).encode(1);
        let decoded = Message::decode(Sender::Client, only_frame(&bytes));
        if fits {
            assert!(decoded.is_ok());
        } else {
            let actual = count * (3 + KEY_LEN_MAX);
            assert_eq!(decoded, Err(DecodeError::TooLong { field: "items", actual, limit: KEYS_BYTES_MAX }));
        }
    }
    // The largest grant: the maximum number of keys, with the maximum length together.
    let key = &key[..KEYS_BYTES_MAX / ITEM_COUNT_MAX - 3];
    let keys = vec![GrantedKey { key, ..GrantedKey::default() }; ITEM_COUNT_MAX];
    let granted = Response::GrantedKeys(GrantedKeys { keys, ..GrantedKeys::default() });
    let bytes = Message::Response(granted.clone()).encode(1);
    assert_eq!(Response::decode(only_frame(&bytes)), Ok(granted));
}

#[test]
fn an_invalid_path_is_rejected_with_its_field() {
    let sample = sample("acquire_set");
    let bytes = sample.message.encode(1);
    let fields = layout(Sender::Client, &bytes);
    let place = fields.iter().find(|field| field.name == "item.path").expect("the sample has a path");
    let with_path = |path: &[u8]| {
        let len = u16::try_from(path.len()).expect("a short path").to_le_bytes();
        let parts = [&bytes[..place.offset], &len, path, &bytes[place.offset + place.len..]];
        let mut bytes = parts.concat();
        patch_length(&mut bytes);
        Message::decode(Sender::Client, only_frame(&bytes)).map(|_| ())
    };
    let field = "item.path";
    assert_eq!(with_path(b""), Ok(()));
    assert_eq!(with_path(b"\x01\0a\x02\0b"), Err(DecodeError::BadPath { field, offset: 3 }));
    assert_eq!(with_path(b"\x01"), Err(DecodeError::BadPath { field, offset: 0 }));
    let (count, limit) = (SEGMENT_COUNT_MAX + 1, SEGMENT_COUNT_MAX);
    assert_eq!(with_path(&[0; 2 * SEGMENT_COUNT_MAX]), Ok(()));
    assert_eq!(
        with_path(&[0; 2 * (SEGMENT_COUNT_MAX + 1)]),
        Err(DecodeError::TooMany { field, count, limit })
    );
    let segment =
        |len: usize| [&u16::try_from(len).expect("short").to_le_bytes()[..], &vec![b's'; len]].concat();
    let (actual, limit) = (SEGMENT_LEN_MAX + 1, SEGMENT_LEN_MAX);
    assert_eq!(with_path(&segment(SEGMENT_LEN_MAX)), Ok(()));
    assert_eq!(with_path(&segment(SEGMENT_LEN_MAX + 1)), Err(DecodeError::TooLong { field, actual, limit }));
}

#[test]
fn building_a_list_checks_the_same_limits_as_decoding_it() {
    let item = |key| KeyItem { shared: false, key };
    let long = vec![b'k'; KEY_LEN_MAX + 1];
    let too_long = DecodeError::TooLong { field: "item.key", actual: KEY_LEN_MAX + 1, limit: KEY_LEN_MAX };
    let (count, limit) = (ITEM_COUNT_MAX + 1, ITEM_COUNT_MAX);
    for (items, error) in [
        (vec![], DecodeError::Empty { field: "count" }),
        (vec![item(b"")], DecodeError::Empty { field: "item.key" }),
        (vec![item(b"k"), item(&long)], too_long),
        (vec![item(b"k"); ITEM_COUNT_MAX + 1], DecodeError::TooMany { field: "count", count, limit }),
    ] {
        assert_eq!(Items::new(items, &mut Vec::new()), Err(error));
    }
    let mut buffer = b"old".to_vec();
    let items = Items::new(vec![item(b"k"); ITEM_COUNT_MAX], &mut buffer).expect("just within the limits");
    assert_eq!((items.len(), items.iter().len(), items.iter().count()), (1024, 1024, 1024));
    assert!(items.iter().all(|found| found == item(b"k")));
}

#[test]
fn an_empty_required_string_is_rejected_with_its_field() {
    for (name, field) in [
        ("acquire", "key"),
        ("acquire_everything", "request_id"),
        ("release_key", "key"),
        ("extend_key", "key"),
        ("status_key", "key"),
        ("acquire_keys", "item.key"),
        ("acquire_permits", "name"),
        ("describe_pool", "name"),
        ("set_capacity", "name"),
        ("throttle", "name"),
        ("throttle_all", "name"),
        ("register", "owner"),
        ("heartbeat", "owner"),
        ("hello_session_none", "namespace"),
    ] {
        let sample = sample(name);
        let bytes = sample.message.encode(sample.number);
        let fields = layout(Sender::Client, &bytes);
        let place = fields.iter().find(|found| found.name == field).expect("the sample has the field");
        // Remove the text and leave its length, now 0.
        let mut bytes = [&bytes[..place.offset], &[0, 0], &bytes[place.offset + place.len..]].concat();
        patch_length(&mut bytes);
        assert_eq!(decode_error(&bytes, Sender::Client), DecodeError::Empty { field }, "{name}");
    }
}

#[test]
fn an_undefined_value_is_rejected_with_its_field() {
    for (name, field, values) in [
        ("hello_session_none", "kind", 6..=255_u8),
        ("hello_session_none", "session_mode", 4..=255),
        ("status_answer_held", "state", 2..=255),
        ("inspected", "holder.shared", 2..=255),
        ("inspected", "waiter.shared", 2..=255),
        ("listed", "lock.shared", 2..=255),
        ("error_busy", "held", 2..=255),
        ("error_busy", "shared", 2..=255),
        ("acquire_set", "item.write", 2..=255),
        ("acquire_keys", "item.shared", 2..=255),
        ("granted_keys", "lock.shared", 2..=255),
        ("acquire_permits", "order", 2..=255),
        ("set_capacity", "order", 2..=255),
        ("pool_described", "order", 2..=255),
        ("pool_described", "is_set", 2..=255),
        ("pools_listed", "pool.order", 2..=255),
        ("pools_listed", "pool.is_set", 2..=255),
        ("namespaces_listed", "namespace.kind", 6..=255),
        ("server_status_answer", "readiness", 3..=255),
        ("key_held", "shared", 2..=255),
    ] {
        let sample = sample(name);
        let bytes = sample.message.encode(sample.number);
        let fields = layout(sample.message.sender(), &bytes);
        let place = fields.iter().find(|found| found.name == field).expect("the sample has the field");
        for value in values {
            let error = decode_changed(&bytes, sample.message.sender(), place.offset, &[value]);
            assert_eq!(error, DecodeError::BadValue { field, value: u64::from(value) }, "{name}");
        }
    }
}

#[test]
fn a_zero_in_a_nonzero_field_is_rejected_with_its_field() {
    for (name, field) in [
        ("acquire_permits", "capacity"),
        ("acquire_permits", "permits"),
        ("acquire_permits_everything", "permits"),
        ("acquire_traceparent", "traceparent"),
        ("throttle", "rate"),
        ("throttle", "burst"),
        ("throttle", "period_ns"),
        ("throttle_all", "rate"),
    ] {
        let sample = sample(name);
        let bytes = sample.message.encode(1);
        let fields = layout(Sender::Client, &bytes);
        let place = fields.iter().find(|found| found.name == field).expect("the sample has the field");
        let error = decode_changed(&bytes, Sender::Client, place.offset, &vec![0; place.len]);
        assert_eq!(error, DecodeError::BadValue { field, value: 0 }, "{name}");
    }
}

#[test]
fn a_trace_context_with_an_id_of_zeros_is_rejected() {
    for name in [
        "acquire_traceparent",
        "acquire_keys_traceparent",
        "acquire_set_traceparent",
        "acquire_permits_traceparent",
        "register_traceparent",
    ] {
        let sample = sample(name);
        let bytes = sample.message.encode(1);
        let fields = layout(Sender::Client, &bytes);
        let place =
            fields.iter().find(|found| found.name == "traceparent").expect("the sample has the field");
        assert_eq!(place.len, TraceParent::LEN, "{name}");
        for (offset, len) in [(0, 16), (16, 8)] {
            let error = decode_changed(&bytes, Sender::Client, place.offset + offset, &vec![0; len]);
            assert_eq!(error, DecodeError::BadValue { field: "traceparent", value: 0 }, "{name}");
        }
    }
}

#[test]
fn undefined_opcodes_and_those_of_the_other_direction_are_unknown() {
    let opcodes = |sender| -> Vec<u8> {
        let samples = samples().into_iter().filter(|sample| sample.message.sender() == sender);
        samples.map(|sample| sample.message.encode(0)[8]).collect()
    };
    let mut bytes = Message::Request(Request::KeepAlive(waymaker_protocol::KeepAlive)).encode(1);
    for (sender, known) in
        [(Sender::Client, opcodes(Sender::Client)), (Sender::Server, opcodes(Sender::Server))]
    {
        for opcode in (0..=u8::MAX).filter(|opcode| !known.contains(opcode)) {
            bytes[8] = opcode;
            let error = decode_error(&bytes, sender);
            assert_eq!(error, DecodeError::UnknownOpcode { opcode });
            assert_eq!(error.field(), "opcode");
            if sender == Sender::Client {
                assert_eq!(route(only_frame(&bytes)), Route::Malformed);
            }
        }
    }
}

#[test]
fn a_bad_magic_is_reported_before_other_errors() {
    let sample = sample("hello_session_none");
    let bytes = sample.message.encode(1);
    for offset in 12..20 {
        let error = decode_changed(&bytes, Sender::Client, offset, b"!");
        assert_eq!(error, DecodeError::BadMagic);
        assert_eq!(error.field(), "magic");
    }
    // With wrong flags and a wrong magic, the error must name the magic.
    let mut bytes = bytes;
    bytes[10] = 0xff;
    assert_eq!(decode_changed(&bytes, Sender::Client, 12, b"!"), DecodeError::BadMagic);
    // The first frame must be a HELLO, so a server decodes it as a HELLO.
    let acquire = crate::samples::sample("acquire").message.encode(1);
    let error = waymaker_protocol::Hello::decode(only_frame(&acquire));
    assert_eq!(error, Err(DecodeError::BadMagic));
}

#[test]
fn an_error_answer_has_the_field_the_limit_and_the_message() {
    let error = DecodeError::TooLong { field: "key", actual: 1025, limit: 1024 };
    let words = error.to_string();
    let answer = |message| ErrorAnswer {
        code: ErrorCode::BadInput,
        detail: ErrorDetail::Text { value: 1024, field: b"key", message },
    };
    assert_eq!(error.answer(&words), answer(b"key: 1025 bytes; the maximum is 1024"));
    // The golden file has the error text of an earlier version.
    let earlier = answer(b"key: 1025 bytes, the limit is 1024");
    let bytes = Message::Response(Response::Error(earlier)).encode(2);
    assert_eq!(bytes, sample("error_bad_input").message.encode(2));
}

/// Returns the decoder's error for a frame with some bytes changed.
fn decode_changed(bytes: &[u8], sender: Sender, offset: usize, change: &[u8]) -> DecodeError {
    let mut bytes = bytes.to_vec();
    bytes[offset..offset + change.len()].copy_from_slice(change);
    decode_error(&bytes, sender)
}

fn decode_error(bytes: &[u8], sender: Sender) -> DecodeError {
    Message::decode(sender, only_frame(bytes)).expect_err("the frame is malformed")
}
