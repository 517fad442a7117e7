//! Frames that are wrong in one place, and the error that says where.

use waymaker_protocol::limits::{
    CREDENTIALS_LEN_MAX, INSPECT_HOLDERS_MAX, KEY_LEN_MAX, LIST_PAGE_MAX, METADATA_LEN_MAX,
    NAMESPACE_LEN_MAX, OWNER_LEN_MAX, REQUEST_ID_LEN_MAX,
};
use waymaker_protocol::message::opcode;
use waymaker_protocol::{DecodeError, ErrorAnswer, ErrorCode, ErrorDetail, Request, Response, Route, route};

use crate::direction::{Message, Sender, only_frame, patch_length};
use crate::layout::{Field, layout};
use crate::samples::{sample, samples};

/// The limit of every string, by the name of its field. Every text of an error answer has that of `message`.
const STRING_LIMITS: [(&str, usize); 16] = [
    ("namespace", NAMESPACE_LEN_MAX),
    ("owner", OWNER_LEN_MAX),
    ("credentials", CREDENTIALS_LEN_MAX),
    ("key", KEY_LEN_MAX),
    ("request_id", REQUEST_ID_LEN_MAX),
    ("metadata", METADATA_LEN_MAX),
    ("prefix", KEY_LEN_MAX),
    ("holder.owner", OWNER_LEN_MAX),
    ("lock.key", KEY_LEN_MAX),
    ("lock.owner", OWNER_LEN_MAX),
    ("lock.request_id", REQUEST_ID_LEN_MAX),
    ("lock.metadata", METADATA_LEN_MAX),
    ("field", 1024),
    ("message", 1024),
    ("listed", INSPECT_HOLDERS_MAX),
    ("count", LIST_PAGE_MAX as usize),
];

#[test]
fn an_unknown_flag_is_refused_with_its_bit() {
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

/// The flags of each message, as `docs/wire.md` has them.
fn known_flags(opcode: u8) -> u16 {
    match opcode {
        opcode::ACQUIRE => 0b1_1111_1111,
        0x90 => 0b1111,
        opcode::RELEASE | opcode::EXTEND | opcode::STATUS | 0x81 | 0x91 | 0x92 | 0x93 => 0b1,
        0x94 => 0b11,
        _ => 0,
    }
}

#[test]
fn a_zero_byte_that_is_not_zero_is_refused() {
    for sample in samples() {
        let bytes = sample.message.encode(sample.number);
        let error = decode_changed(&bytes, sample.message.sender(), 9, &[0x5a]);
        assert_eq!(error, DecodeError::BadValue { field: "zero", value: 0x5a }, "{}", sample.name);
    }
}

#[test]
fn bytes_behind_the_last_field_are_counted_and_refused() {
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
fn a_string_or_a_list_above_its_limit_is_refused_with_the_limit() {
    let mut seen = Vec::new();
    for sample in samples() {
        let bytes = sample.message.encode(sample.number);
        for Field { name, offset, .. } in layout(sample.message.sender(), &bytes) {
            let Some((_, limit)) = STRING_LIMITS.into_iter().find(|(limited, _)| *limited == name) else {
                continue;
            };
            // The length is judged before the bytes behind it, so they need not be there.
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
fn a_string_that_must_not_be_empty_is_named() {
    for (name, field) in [
        ("acquire", "key"),
        ("acquire_everything", "request_id"),
        ("release_key", "key"),
        ("extend_key", "key"),
        ("status_key", "key"),
        ("cancel", "key"),
        ("inspect", "key"),
        ("hello_session_none", "namespace"),
    ] {
        let sample = sample(name);
        let bytes = sample.message.encode(sample.number);
        let fields = layout(Sender::Client, &bytes);
        let place = fields.iter().find(|found| found.name == field).expect("the sample has the field");
        // Take the text out and leave its length, now 0.
        let mut bytes = [&bytes[..place.offset], &[0, 0], &bytes[place.offset + place.len..]].concat();
        patch_length(&mut bytes);
        assert_eq!(decode_error(&bytes, Sender::Client), DecodeError::Empty { field }, "{name}");
    }
}

#[test]
fn a_number_without_meaning_is_refused_with_its_field() {
    for (name, field, values) in [
        ("hello_session_none", "kind", 6..=255_u8),
        ("hello_session_none", "session_mode", 4..=255),
        ("status_answer_held", "state", 2..=255),
        ("inspected", "holder.shared", 2..=255),
        ("listed", "lock.shared", 2..=255),
        ("error_busy", "held", 2..=255),
        ("error_busy", "shared", 2..=255),
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
fn an_opcode_of_the_other_direction_or_of_none_is_unknown() {
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
fn whoever_speaks_something_else_learns_that_first() {
    let sample = sample("hello_session_none");
    let bytes = sample.message.encode(1);
    for offset in 12..20 {
        let error = decode_changed(&bytes, Sender::Client, offset, b"!");
        assert_eq!(error, DecodeError::BadMagic);
        assert_eq!(error.field(), "magic");
    }
    // Wrong flags and a wrong magic: the magic is what matters.
    let mut bytes = bytes;
    bytes[10] = 0xff;
    assert_eq!(decode_changed(&bytes, Sender::Client, 12, b"!"), DecodeError::BadMagic);
    // The first frame must be a HELLO, and a server reads it as one.
    let acquire = crate::samples::sample("acquire").message.encode(1);
    let error = waymaker_protocol::Hello::decode(only_frame(&acquire));
    assert_eq!(error, Err(DecodeError::BadMagic));
}

#[test]
fn an_error_is_answered_with_its_field_its_limit_and_its_words() {
    let error = DecodeError::TooLong { field: "key", actual: 1025, limit: 1024 };
    let words = error.to_string();
    let expected = ErrorAnswer {
        code: ErrorCode::BadInput,
        detail: ErrorDetail::Text {
            value: 1024,
            field: b"key",
            message: b"key: 1025 bytes, the limit is 1024",
        },
    };
    assert_eq!(error.answer(&words), expected);
    let bytes = Message::Response(Response::Error(expected)).encode(2);
    assert_eq!(bytes, sample("error_bad_input").message.encode(2));
}

/// The error of a frame in which some bytes were changed.
fn decode_changed(bytes: &[u8], sender: Sender, offset: usize, change: &[u8]) -> DecodeError {
    let mut bytes = bytes.to_vec();
    bytes[offset..offset + change.len()].copy_from_slice(change);
    decode_error(&bytes, sender)
}

fn decode_error(bytes: &[u8], sender: Sender) -> DecodeError {
    Message::decode(sender, only_frame(bytes)).expect_err("the frame is malformed")
}
