//! The frames of an acquire-release pair, encoded and decoded.

use std::hint::black_box;
use waymaker_protocol::limits::FRAME_LEN_MAX;
use waymaker_protocol::message::release::Released;
use waymaker_protocol::{Acquire, AcquireTerms, Granted, LockId, Release, Request, Response, next_frame};

fn id(number: u64) -> LockId {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    LockId::from_bytes(bytes)
}

/// Encodes the frames of `pair_count` acquires and releases, in turn.
pub fn encode_requests(pair_count: u32, out: &mut Vec<u8>) -> u64 {
    out.clear();
    for number in 0..pair_count {
        let key = crate::keys::key(u64::from(number));
        Acquire {
            key: &key,
            terms: AcquireTerms { lease_ms: 30_000, wait_ms: 1000, ..AcquireTerms::default() },
            ..Acquire::default()
        }
        .encode(2 * number, out);
        Release { id: id(u64::from(number)), key: None, own: false }.encode(2 * number + 1, out);
    }
    out.len() as u64
}

/// Encodes their responses.
pub fn encode_answers(pair_count: u32, out: &mut Vec<u8>) -> u64 {
    out.clear();
    for number in 0..pair_count {
        let granted = Granted {
            id: id(u64::from(number)),
            fence: u64::from(number),
            remaining_ms: 30_000,
            stamp_ms: 1_000_000,
            ..Granted::default()
        };
        granted.encode(2 * number, out);
        Released { was_waiting: false }.encode(2 * number + 1, out);
    }
    out.len() as u64
}

/// Decodes requests as a server does. Returns the sum of their numbers.
pub fn decode_requests(bytes: &[u8]) -> u64 {
    let mut rest = bytes;
    let mut sum = 0;
    while let Ok(Some(frame)) = next_frame(rest, FRAME_LEN_MAX) {
        rest = &rest[frame.len()..];
        sum += u64::from(frame.number());
        if let Ok(request) = Request::decode(frame) {
            black_box(&request);
        }
    }
    sum
}

/// Decodes responses as a client does. Returns the sum of their numbers.
pub fn decode_answers(bytes: &[u8]) -> u64 {
    let mut rest = bytes;
    let mut sum = 0;
    while let Ok(Some(frame)) = next_frame(rest, FRAME_LEN_MAX) {
        rest = &rest[frame.len()..];
        sum += u64::from(frame.number());
        if let Ok(response) = Response::decode(frame) {
            black_box(&response);
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_every_encoded_frame() {
        let mut bytes = Vec::new();
        assert_eq!(encode_requests(10, &mut bytes), bytes.len() as u64);
        assert_eq!(decode_requests(&bytes), (0..20).sum::<u64>());
        assert_eq!(encode_answers(10, &mut bytes), bytes.len() as u64);
        assert_eq!(decode_answers(&bytes), (0..20).sum::<u64>());
    }
}
