//! `docs/reference/wire.md` must describe the codec correctly, so that authors can write clients from it.

use waymaker_protocol::frame::HEADER_LEN;
use waymaker_protocol::message::opcode::ANSWER;
use waymaker_protocol::{Capabilities, DecodeError, ErrorCode, VERSION, VERSION_MIN, limits};

use crate::direction::{Message, Sender, only_frame};
use crate::golden;
use crate::layout::{Field, HEADER, layout};
use crate::samples::sample;

const DOCUMENT: &str = include_str!("../../../docs/reference/wire.md");

/// Each section that describes a message, with a sample that has all of its fields.
const SECTIONS: [(&str, &str); 74] = [
    ("HELLO", "hello_capabilities"),
    ("WELCOME", "welcome_capabilities"),
    ("KEEP_ALIVE", "keep_alive"),
    ("KEPT_ALIVE", "kept_alive"),
    ("GOODBYE", "goodbye"),
    ("FAREWELL", "farewell"),
    ("PONG", "pong"),
    ("ACQUIRE", "acquire_traceparent"),
    ("GRANTED", "granted"),
    ("RELEASE", "release_key"),
    ("RELEASED", "released"),
    ("EXTEND", "extend_key"),
    ("EXTENDED", "extended"),
    ("CANCEL", "cancel"),
    ("CANCELLED", "cancelled"),
    ("STATUS", "status_key"),
    ("STATUS_ANSWER", "status_answer_held"),
    ("INSPECT", "inspect"),
    ("INSPECTED", "inspected"),
    ("LIST", "list_prefix"),
    ("LISTED", "listed"),
    ("HOLDS", "holds"),
    ("WATCH", "watch"),
    ("WATCHING", "watching"),
    ("UNWATCH", "unwatch"),
    ("UNWATCHED", "unwatched"),
    ("VERIFY", "verify"),
    ("VERIFIED", "verified"),
    ("FORCE_RELEASE", "force_release"),
    ("FORCE_RELEASED", "force_released"),
    ("FREEZE", "freeze_reason"),
    ("FROZEN", "frozen"),
    ("NAMESPACES", "namespaces"),
    ("NAMESPACES_LISTED", "namespaces_listed"),
    ("REMOVE_NAMESPACE", "remove_namespace"),
    ("NAMESPACE_REMOVED", "namespace_removed"),
    ("SERVER_STATUS", "server_status"),
    ("SERVER_STATUS_ANSWER", "server_status_answer"),
    ("ACQUIRE_SET", "acquire_set_traceparent"),
    ("ACQUIRE_KEYS", "acquire_keys_traceparent"),
    ("GRANTED_KEYS", "granted_keys"),
    ("TREE_STATISTICS", "tree_statistics"),
    ("TREE_STATISTICS_ANSWER", "tree_statistics_answer"),
    ("ACQUIRE_PERMITS", "acquire_permits_traceparent"),
    ("DESCRIBE_POOL", "describe_pool"),
    ("POOL_DESCRIBED", "pool_described"),
    ("SET_CAPACITY", "set_capacity_reason"),
    ("CAPACITY_SET", "capacity_set"),
    ("LIST_POOLS", "list_pools_prefix"),
    ("POOLS_LISTED", "pools_listed"),
    ("THROTTLE", "throttle"),
    ("THROTTLED", "throttled"),
    ("THROTTLE_ALL", "throttle_all"),
    ("REGISTER", "register_traceparent"),
    ("REGISTERED", "registered"),
    ("HEARTBEAT", "heartbeat"),
    ("UNREGISTER", "unregister"),
    ("UNREGISTERED", "unregistered"),
    ("LOOK_UP", "look_up"),
    ("LOOKED_UP", "looked_up"),
    ("LIST_ENTRIES", "list_entries"),
    ("ENTRIES_LISTED", "entries_listed"),
    ("QUEUED", "queued"),
    ("EXPIRED", "expired"),
    ("REVOKED", "revoked"),
    ("SESSION_EXPIRED", "session_expired"),
    ("LEASE_MOVED", "lease_moved"),
    ("KEY_HELD", "key_held"),
    ("KEY_FREED", "key_freed"),
    ("OVERRUN", "overrun"),
    ("TAKEN_UP", "taken_up"),
    ("PING", "ping"),
    ("ERROR, busy, timeout and not_owner", "error_busy"),
    ("ERROR, all other codes", "error_bad_input"),
];

#[test]
fn every_message_has_the_fields_in_its_table() {
    for (title, name) in SECTIONS {
        let sample = sample(name);
        let bytes = sample.message.encode(sample.number);
        let mut fields = layout(sample.message.sender(), &bytes).split_off(HEADER.len());
        // The table lists the fields of a list item once.
        let mut seen = Vec::new();
        fields.retain(|field| {
            let new = !seen.contains(&field.name);
            seen.push(field.name);
            new
        });
        let rows = table(section(title), "Offset");
        assert_eq!(rows.len(), fields.len(), "{title}: as many rows as fields");
        for (row, field) in rows.iter().zip(&fields) {
            assert_row(title, row, field, &bytes);
        }
    }
}

fn assert_row(title: &str, row: &[&str], field: &Field, bytes: &[u8]) {
    let [offset, size, name, _] = row else { panic!("{title}: four columns, not {row:?}") };
    assert_eq!(*name, field.name, "{title}");
    let size = match *size {
        "2 + n" => 2 + usize::from(u16::from_le_bytes([bytes[field.offset], bytes[field.offset + 1]])),
        fixed => fixed.parse().expect("a size"),
    };
    assert_eq!(size, field.len, "{title}: size of {name}");
    if *offset != "–" {
        assert_eq!(offset.parse(), Ok(field.offset), "{title}: offset of {name}");
    }
}

#[test]
fn the_header_has_the_fields_in_its_table() {
    let rows = table(part("## Frames"), "Offset");
    for (row, field) in rows.iter().zip(HEADER) {
        assert_eq!(row[..3], [&*field.offset.to_string(), &*field.len.to_string(), field.name]);
    }
    assert_eq!(rows[HEADER.len()][0], HEADER_LEN.to_string());
}

#[test]
fn every_message_accepts_the_flags_in_its_table() {
    for (title, name) in SECTIONS {
        let rows = table(section(title), "Bit");
        let documented: Vec<u16> = rows.iter().map(|row| row[0].parse().expect("a bit")).collect();
        let sample = sample(name);
        let mut bytes = sample.message.encode(sample.number);
        let accepted: Vec<u16> = (0..16)
            .filter(|bit| {
                bytes[10..12].copy_from_slice(&(1_u16 << bit).to_le_bytes());
                let decoded = Message::decode(sample.message.sender(), only_frame(&bytes));
                !matches!(decoded, Err(DecodeError::UnknownFlags { .. }))
            })
            .collect();
        assert_eq!(documented, accepted, "{title}");
    }
}

#[test]
fn every_message_has_the_opcode_in_the_table() {
    let requests = table(part("## Opcodes"), "Opcode | Request");
    let unasked = table(part("## Opcodes"), "Opcode | Sent");
    let mut documented: Vec<(String, &str)> = Vec::new();
    for row in &requests {
        let opcode = u8::from_str_radix(&row[0][2..], 16).expect("an opcode");
        documented.push((row[0].to_owned(), row[1]));
        let answer = (row[2].to_owned(), row[3]);
        // Some requests share the response of an earlier request, and one has none.
        if row[2] != "–" && !documented.contains(&answer) {
            assert_eq!(row[2], format!("{:#04x}", opcode | ANSWER), "the answer has the top bit set");
            documented.push(answer);
        }
    }
    documented.extend(unasked.iter().map(|row| (row[0].to_owned(), row[1])));
    let mut encoded = Vec::new();
    for (title, name) in SECTIONS {
        let opcode = format!("{:#04x}", sample(name).message.encode(0)[8]);
        let title = title.split(',').next().expect("a name");
        encoded.push((opcode, title));
    }
    encoded.dedup();
    assert_eq!(documented, encoded);
}

#[test]
fn the_error_table_lists_exactly_the_error_codes() {
    let rows = table(section("Codes"), "Number");
    let documented: Vec<_> = rows.iter().map(|row| (row[0].to_owned(), row[1])).collect();
    let known: Vec<_> = ErrorCode::ALL.iter().map(|code| (code.number().to_string(), code.name())).collect();
    assert_eq!(documented, known);
}

#[test]
fn the_capability_table_lists_every_known_bit() {
    let rows = table(section("Capabilities"), "Bit");
    let documented: Vec<_> = rows.iter().map(|row| (row[0].to_owned(), row[1].to_lowercase())).collect();
    let known = Capabilities::NAMES
        .iter()
        .map(|(capability, name)| (capability.bits().trailing_zeros().to_string(), (*name).to_owned()));
    assert_eq!(documented, known.collect::<Vec<_>>());
}

#[test]
fn the_version_table_lists_every_supported_version() {
    let rows = table(part("## Versions"), "Version");
    let documented: Vec<_> = rows.iter().map(|row| row[0].to_owned()).collect();
    let spoken: Vec<_> = (VERSION_MIN..=VERSION).map(|version| version.to_string()).collect();
    assert_eq!(documented, spoken);
}

#[test]
fn the_limits_table_matches_the_codec() {
    let rows = table(part("## Limits"), "Limit");
    for (name, limit) in [
        ("frame, with its length field", limits::FRAME_LEN_MAX),
        ("frame before WELCOME", limits::FRAME_LEN_BEFORE_HELLO_MAX),
        ("key, prefix, name of a pool or bucket", limits::KEY_LEN_MAX),
        ("segments of a path", limits::SEGMENT_COUNT_MAX),
        ("segment", limits::SEGMENT_LEN_MAX),
        ("path key", limits::PATH_KEY_LEN_MAX),
        ("paths or keys in an acquire", limits::ITEM_COUNT_MAX),
        ("items of an ACQUIRE_KEYS together", limits::KEYS_BYTES_MAX),
        ("buckets in a THROTTLE_ALL", limits::BUCKET_COUNT_MAX),
        ("value of an entry", limits::VALUE_LEN_MAX),
        ("type of an entry", limits::TYPE_LEN_MAX),
        ("reason of an operator", limits::REASON_LEN_MAX),
        ("namespace", limits::NAMESPACE_LEN_MAX),
        ("owner", limits::OWNER_LEN_MAX),
        ("request id", limits::REQUEST_ID_LEN_MAX),
        ("credentials", limits::CREDENTIALS_LEN_MAX),
        ("metadata", limits::METADATA_LEN_MAX),
        ("requests in flight on a connection", limits::IN_FLIGHT_MAX as usize),
        ("locks, entries, pools or namespaces in a page", usize::from(limits::LIST_PAGE_MAX)),
        ("holders, and waiters, in INSPECTED", limits::INSPECT_HOLDERS_MAX),
        ("holders, and waiters, in POOL_DESCRIBED", limits::DESCRIBE_LISTED_MAX),
    ] {
        let row = rows.iter().find(|row| row[0] == name).unwrap_or_else(|| panic!("no row for {name}"));
        let value: String = row[1].chars().filter(char::is_ascii_digit).collect();
        assert_eq!(value, limit.to_string(), "{name}");
    }
}

#[test]
fn the_worked_example_matches_the_codec() {
    let example = part("## A worked example");
    let blocks: Vec<_> = example.split("```").skip(1).step_by(2).collect();
    let names = ["hello_session_none", "acquire", "granted", "release", "released"];
    assert_eq!(blocks.len(), names.len());
    for (block, name) in blocks.iter().zip(names) {
        let text = block.strip_prefix("text\n").expect("a block of text");
        assert_eq!(golden::parse(text), sample(name).message.encode(sample(name).number), "{name}");
        assert_eq!(text, golden::read(name), "{name}: the example is its golden file");
    }
}

#[test]
fn every_opcode_has_a_section() {
    for sender in [Sender::Client, Sender::Server] {
        let opcodes = |names: Vec<&str>| {
            let of_sender = names.into_iter().map(sample).filter(|sample| sample.message.sender() == sender);
            let mut opcodes: Vec<u8> = of_sender.map(|sample| sample.message.encode(0)[8]).collect();
            opcodes.sort_unstable();
            opcodes.dedup();
            opcodes
        };
        let documented = opcodes(SECTIONS.iter().map(|(_, name)| *name).collect());
        let all = opcodes(crate::samples::samples().iter().map(|sample| sample.name).collect());
        assert_eq!(documented, all);
    }
}

/// Returns the text after this heading, up to the next heading of the same or a higher level.
fn part(heading: &str) -> &'static str {
    let (_, text) = DOCUMENT
        .split_once(&format!("\n{heading}\n"))
        .unwrap_or_else(|| panic!("docs/reference/wire.md has no heading {heading:?}"));
    let level = heading.split(' ').next().expect("a heading begins with its level").len();
    let end = (2..=level).filter_map(|level| text.find(&format!("\n{} ", "#".repeat(level)))).min();
    &text[..end.unwrap_or(text.len())]
}

fn section(title: &str) -> &'static str {
    part(&format!("### {title}"))
}

/// Returns the cells of the table whose header begins with `header`; empty if there is no such table.
fn table(text: &'static str, header: &str) -> Vec<Vec<&'static str>> {
    let start = format!("| {header}");
    let rows = text.lines().skip_while(|line| !line.starts_with(&start)).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}
