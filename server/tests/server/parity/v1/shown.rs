//! Messages of the contract in the words of the spec files.

use crate::parity::command::segments;
use crate::parity::contract_text;
use crate::parity::grpc::now_ms;
use crate::parity::words::{mode, shown_millis, shown_path};
use prost::Message as _;
use tonic::Status;
use waymaker_proto::v1;

/// An expected line without what the contract leaves out.
pub(super) fn without_internals(text: &str) -> String {
    let told = contract_text::without_internals(text);
    // An owner who takes out what is over is not told that it was another's.
    let told = told.strip_suffix(" of somebody who was late").unwrap_or(&told);
    match told.split_once(" waited=") {
        // Only the age is told, of a hold from its grant on.
        Some((status, _)) if told.contains(" is `") => status.to_owned(),
        _ => told.to_owned(),
    }
}

/// Why a call was refused.
pub(super) fn refusal(status: &Status) -> String {
    let details = tonic_types::pb::Status::decode(status.details()).expect("a google.rpc.Status").details;
    let detail = details.first().unwrap_or_else(|| panic!("{status:?} has no details"));
    let refusal = v1::Refusal::decode(&detail.value[..]).expect("a refusal");
    let v1::Refusal { field, value, .. } = &refusal;
    let contention = refusal.contention.as_ref().map(contention).unwrap_or_default();
    match refusal.code() {
        v1::ErrorCode::Busy => format!("busy, {contention}"),
        v1::ErrorCode::Timeout => format!("timeout, {contention}"),
        v1::ErrorCode::NotOwner => format!("not_owner, {contention}"),
        v1::ErrorCode::Cancelled => {
            let reasons = ["", ", superseded", ", connection lost", ", forced"];
            format!("cancelled{}", reasons[*value as usize])
        }
        v1::ErrorCode::CapacityMismatch => format!("capacity_mismatch, it is {value}"),
        v1::ErrorCode::BadInput => format!("bad_input, {field} ({value})"),
        v1::ErrorCode::Overloaded => format!("overloaded, {field} ({value})"),
        other => other.as_str_name().trim_start_matches("ERROR_CODE_").to_lowercase(),
    }
}

/// Whether a stream ended because another call took its claim over.
pub(super) fn is_taken_over(status: &Status) -> bool {
    status.code() == tonic::Code::Aborted
}

fn contention(contention: &v1::Contention) -> String {
    let state = if contention.held { "held" } else { "awaited" };
    let owner = if contention.owner.is_empty() { "nobody" } else { &contention.owner };
    format!(
        "{state} by {owner} {} age={} remaining={} waiters={}",
        mode(contention.shared),
        shown_millis(contention.age_ms),
        remaining(contention.remaining_ms),
        contention.waiter_count
    )
}

pub(super) fn remaining(remaining_ms: u32) -> String {
    shown_millis(u64::from(remaining_ms))
}

/// How long something has been so, of which it is said since when, and when it ends.
pub(super) fn age(since_ms: i64, ends_at_ms: i64, remaining_ms: u32) -> String {
    let now = if ends_at_ms == 0 { now_ms() } else { ends_at_ms - i64::from(remaining_ms) };
    shown_millis((now - since_ms).max(0) as u64)
}

pub(super) fn age_of_hold(hold: &v1::Hold) -> String {
    age(hold.acquired_at_ms, hold.lease_expires_at_ms, hold.remaining_ms)
}

pub(super) fn age_of_waiter(waiter: &v1::Waiter) -> String {
    age(waiter.waiting_since_ms, waiter.wait_ends_at_ms, waiter.remaining_ms)
}

/// One hold, as lists and inspections show it.
pub(super) fn hold(hold: &v1::Hold) -> String {
    let (held, remaining) = (age_of_hold(hold), remaining(hold.remaining_ms));
    let (owner, mode, fence) = (&hold.owner, mode(hold.shared), hold.fence);
    let text = format!("{owner} {mode} fence={fence} held={held} remaining={remaining}");
    text + &as_requested(hold.priority, &hold.request_id, &hold.metadata)
}

/// One claim that waits, as lists show it.
pub(super) fn waiter(waiter: &v1::Waiter) -> String {
    let (age, remaining) = (age_of_waiter(waiter), remaining(waiter.remaining_ms));
    let (owner, mode) = (&waiter.owner, mode(waiter.shared));
    let text = format!("{owner} {mode} fence=0 held={age} remaining={remaining}");
    text + &as_requested(waiter.priority, &waiter.request_id, &waiter.metadata)
}

fn as_requested(priority: u32, request_id: &str, metadata: &str) -> String {
    let mut text = String::new();
    if priority != 0 {
        text += &format!(" priority={priority}");
    }
    for (name, value) in [("request", request_id), ("metadata", metadata)] {
        if !value.is_empty() {
            text += &format!(" {name}={value}");
        }
    }
    text
}

/// A key, or a path as the files write it.
pub(super) fn place(key: &str, path: Option<&v1::Path>) -> String {
    let Some(path) = path else { return key.replace('\0', "\\0") };
    let mut bytes = Vec::new();
    for segment in &path.segments {
        bytes.extend((segment.len() as u16).to_le_bytes());
        bytes.extend(segment.as_bytes());
    }
    shown_path(&bytes)
}

/// A path as the contract has it.
pub(super) fn path(word: &str) -> v1::Path {
    v1::Path { segments: segments(word) }
}
