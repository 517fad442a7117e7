//! An intact log with any records.

use crate::files::Files;
use waymaker_fuzz::bytes::Bytes;
use waymaker_log::frame::{self, payload_limit};
use waymaker_log::{
    BLOCK_LEN, Durable, FileName, FrameFields, Position, SEGMENT_LEN_MIN, SegmentHeader, SnapshotHeader,
    Superblock, write_records,
};

const LOG_ID: u64 = 1;
const GENERATION: u64 = 1;
const SNAPSHOT: u64 = 1;
/// The frame that the snapshot covers.
const COVERED: Position = Position { lsn: 7, checksum: 7 };
/// Most segments of a log, whose bytes are mostly zero.
const SEGMENT_COUNT_MAX: u64 = 4;

/// Returns a log of the records in the input. The first byte says how many of them are in a snapshot. Each record is behind a byte, which
/// says whether a frame ends with it and up to which frame the log was durable then, and a length of two bytes.
pub(crate) fn log(mut input: Bytes<'_>) -> Files {
    let snapshot_count = usize::from(input.u8() & 0x7f);
    let records: Vec<_> =
        std::iter::from_fn(|| (!input.is_empty()).then(|| (input.u8(), input.piece()))).collect();
    let (in_snapshot, in_segments) = records.split_at(snapshot_count.min(records.len()));
    let mut files = Files::default();
    let mut position = Position::default();
    if !in_snapshot.is_empty() {
        position = COVERED;
        let header = SnapshotHeader {
            log_id: LOG_ID,
            number: SNAPSHOT,
            generation: GENERATION,
            covers: COVERED,
            next_segment: 1,
        };
        let mut bytes = Vec::new();
        let mut put = |out: &mut dyn FnMut(&[u8])| in_snapshot.iter().for_each(|(_, record)| out(record));
        write_records(&header, &mut put, &mut |piece| bytes.extend_from_slice(piece));
        files.0.insert(FileName::Snapshot(SNAPSHOT), bytes.into());
    }
    let last_segment = write_segments(&mut files, position, in_segments);
    let superblock = Superblock {
        sequence: 1,
        log_id: LOG_ID,
        generation: GENERATION,
        segment_len: SEGMENT_LEN_MIN,
        first_segment: 1,
        last_segment,
        snapshot: if in_snapshot.is_empty() { 0 } else { SNAPSHOT },
        start: position,
        ..Superblock::default()
    };
    let block = superblock.encode();
    files.0.insert(FileName::Superblock, [block, block].concat().into());
    files
}

/// Writes frames with these records. Returns the number of the last segment.
fn write_segments(files: &mut Files, mut position: Position, records: &[(u8, &[u8])]) -> u64 {
    let mut segment = Segment::begin(1, position);
    let mut frame = Vec::new();
    for group in records.split_inclusive(|(choice, _)| choice & 1 != 0) {
        let choice = group.last().map_or(0, |(choice, _)| *choice);
        let mut payload = Vec::new();
        for (_, record) in group {
            payload.extend_from_slice(&(record.len() as u32).to_le_bytes());
            payload.extend_from_slice(record);
        }
        if payload.len() > payload_limit(SEGMENT_LEN_MIN as usize - BLOCK_LEN) {
            continue;
        }
        if segment.bytes.len() + frame::frame_len(payload.len()) > SEGMENT_LEN_MIN as usize {
            if segment.header.number == SEGMENT_COUNT_MAX {
                break;
            }
            let next = Segment::begin(segment.header.number + 1, position);
            std::mem::replace(&mut segment, next).finish(files);
        }
        let lsn = position.lsn + 1;
        let durable = Durable {
            lsn: lsn.saturating_sub(1 + u64::from(choice >> 1 & 7)),
            at_ms: u64::from(choice) << 8,
        };
        let block = (segment.bytes.len() / BLOCK_LEN) as u32;
        let fields = FrameFields { lsn, durable, block, previous: position.checksum };
        let checksum =
            frame::encode(&segment.header.origin(), &fields, &payload, group.len() as u32, &mut frame);
        segment.bytes.extend_from_slice(&frame);
        position = Position { lsn, checksum };
    }
    let last = segment.header.number;
    segment.finish(files);
    last
}

/// A segment that is being written.
struct Segment {
    header: SegmentHeader,
    bytes: Vec<u8>,
}

impl Segment {
    fn begin(number: u64, after: Position) -> Self {
        let header =
            SegmentHeader { log_id: LOG_ID, number, generation: GENERATION, len: SEGMENT_LEN_MIN, after };
        Self { bytes: header.encode().to_vec(), header }
    }

    fn finish(mut self, files: &mut Files) {
        self.bytes.resize(SEGMENT_LEN_MIN as usize, 0);
        files.0.insert(FileName::Segment(self.header.number), self.bytes.into());
    }
}
