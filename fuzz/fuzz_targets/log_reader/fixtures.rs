//! Changed data directories of released servers.

#[path = "../../../log/tests/fixtures/fixture.rs"]
mod fixture;

use crate::files::Files;
use fixture::Fixture;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use waymaker_fuzz::bytes::Bytes;
use waymaker_log::frame::{self, FRAME_LIMIT, HEADER_LEN};
use waymaker_log::{BLOCK_LEN, FileName};

/// Offsets in a frame: its generation, the length of its payload, the checksums of the previous frame, of the frame and of its header.
const GENERATION_AT: usize = 24;
const PAYLOAD_LEN_AT: usize = 60;
const PREVIOUS_AT: usize = 68;
const CHECKSUM_AT: usize = 72;
const HEADER_CHECKSUM_AT: usize = 76;

static FIXTURES: OnceLock<Vec<Vec<(FileName, Vec<u8>)>>> = OnceLock::new();

/// Reads the fixtures, once.
pub(crate) fn load() -> &'static [Vec<(FileName, Vec<u8>)>] {
    FIXTURES.get_or_init(|| {
        let named = |(name, bytes): (String, Vec<u8>)| FileName::parse(&name).map(|name| (name, bytes));
        Fixture::all().map(|fixture| fixture.files.into_iter().filter_map(named).collect()).collect()
    })
}

/// Returns a fixture with changes. Each change has a byte for its file, an offset of three bytes, and new bytes with their length. The
/// second byte of the input says whether the checksums are made right again, so that the change is not found at once.
pub(crate) fn changed(mut input: Bytes<'_>) -> Files {
    let fixtures = load();
    let files = &fixtures[input.below(fixtures.len())];
    let seals = input.u8() & 1 != 0;
    let mut files: BTreeMap<FileName, Vec<u8>> = files.iter().cloned().collect();
    let names: Vec<_> = files.keys().copied().collect();
    while !input.is_empty() {
        let file = files.get_mut(&names[input.below(names.len())]).expect("a file of the fixture");
        let offset = usize::from(input.u16()) | usize::from(input.u8()) << 16;
        let len = usize::from(input.u8());
        let bytes = input.take(len);
        if len == 0 {
            file.truncate(offset);
        } else if let Some(place) = file.get_mut(offset..offset + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }
    if seals {
        for (name, file) in &mut files {
            seal(*name, file);
        }
    }
    Files(files.into_iter().map(|(name, bytes)| (name, bytes.into())).collect())
}

/// Makes the checksums of a file right.
fn seal(name: FileName, file: &mut [u8]) {
    match name {
        FileName::Superblock => file.chunks_exact_mut(BLOCK_LEN).for_each(seal_block),
        FileName::Segment(_) | FileName::Snapshot(_) => {
            let Some((head, rest)) = file.split_at_mut_checked(BLOCK_LEN) else { return };
            seal_block(head);
            seal_frames(u8::from(matches!(name, FileName::Snapshot(_))), &head[8..24], rest);
        }
        _ => {}
    }
}

fn seal_block(block: &mut [u8]) {
    let checksum = crc32c::crc32c(&block[..BLOCK_LEN - 4]);
    block[BLOCK_LEN - 4..].copy_from_slice(&checksum.to_le_bytes());
}

/// Makes the checksums of frames right, each with the one before it. `origin` has the log and the number of the file.
fn seal_frames(kind: u8, origin: &[u8], mut blocks: &mut [u8]) {
    let mut previous = None;
    while blocks.len() >= BLOCK_LEN {
        let payload_len = u32::from_le_bytes(std::array::from_fn(|index| blocks[PAYLOAD_LEN_AT + index]));
        let len = frame::frame_len((payload_len as usize).min(FRAME_LIMIT))
            .min(blocks.len() / BLOCK_LEN * BLOCK_LEN);
        let is_frame = blocks.starts_with(b"WMfr");
        let (frame, rest) = blocks.split_at_mut(if is_frame { len } else { BLOCK_LEN });
        blocks = rest;
        if !is_frame {
            if frame.starts_with(b"WMse") {
                seal_block(frame);
            }
            continue;
        }
        let mut seed = crc32c::crc32c(&[kind]);
        seed = crc32c::crc32c_append(seed, origin);
        seed = crc32c::crc32c_append(seed, &frame[GENERATION_AT..GENERATION_AT + 8]);
        if let Some(previous) = previous {
            put(frame, PREVIOUS_AT, previous);
        }
        let checksum = crc32c::crc32c_append(seed, &frame[HEADER_LEN..]);
        put(frame, CHECKSUM_AT, checksum);
        let header_checksum = crc32c::crc32c_append(seed, &frame[..HEADER_CHECKSUM_AT]);
        put(frame, HEADER_CHECKSUM_AT, header_checksum);
        previous = Some(checksum);
    }
}

fn put(frame: &mut [u8], at: usize, checksum: u32) {
    frame[at..at + 4].copy_from_slice(&checksum.to_le_bytes());
}
