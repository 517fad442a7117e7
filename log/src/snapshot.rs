//! Snapshot file: a header block, frames of records, and an end block. The end block has the number of frames, the
//! number of records, and a checksum over the checksums of all frames.

use super::block::{BLOCK_LEN, BadBlock, BlockReader, BlockWriter, check_numbers};
use super::damage::{Damage, Evidence};
use super::file_name::FileName;
use super::file_reader::FileReader;
use super::fold::Fold;
use super::frame::{self, BadFrame, Durable, FRAME_LIMIT, FrameFields, FrameHeader, Origin};
use super::group::{Grouped, Written};
use super::recovery::{Position, read};
use super::split::{Payload, Splitter};

const MAGIC: [u8; 4] = *b"WMsn";
const END_MAGIC: [u8; 4] = *b"WMse";

/// Function that passes data to its argument, piece by piece. A piece is either one record without its length field, or
/// some bytes of a file.
pub type Source<'a> = dyn FnMut(&mut dyn FnMut(&[u8])) + 'a;

/// Header of a snapshot file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotHeader {
    /// Id of the log that the snapshot belongs to.
    pub log_id: u64,
    /// Number of the snapshot.
    pub number: u64,
    /// Server start that wrote the snapshot.
    pub generation: u64,
    /// Last frame whose records are in the snapshot.
    pub covers: Position,
    /// Number of the first segment that is not in the snapshot. Its first frame follows the frame `covers`.
    pub next_segment: u64,
}

impl SnapshotHeader {
    /// Returns the header as a block.
    pub fn encode(&self) -> [u8; BLOCK_LEN] {
        BlockWriter::new(MAGIC)
            .u64(self.log_id)
            .u64(self.number)
            .u64(self.generation)
            .u64(self.covers.lsn)
            .u64(self.next_segment)
            .u32(self.covers.checksum)
            .seal()
    }

    /// Reads the header block at the beginning of `bytes`.
    ///
    /// # Errors
    /// Returns an error if the block is damaged or has an impossible value.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadBlock> {
        let mut block = BlockReader::check(bytes, MAGIC)?;
        let (log_id, number, generation) = (block.u64(), block.u64(), block.u64());
        let (lsn, next_segment) = (block.u64(), block.u64());
        let covers = Position { lsn, checksum: block.u32() };
        check_numbers([number, generation, lsn, next_segment])?;
        Ok(Self { log_id, number, generation, covers, next_segment })
    }

    fn origin(&self) -> Origin {
        Origin::snapshot(self.log_id, self.number, self.generation)
    }
}

/// Writes a snapshot file with this header. The file has the records of the folded state. The snapshot may end inside a
/// long record, or inside a group (records that are valid only together). The file then also has the beginning of it,
/// and the next segment has the rest. `out` takes the bytes of the file, piece by piece.
pub fn write_snapshot<F: Fold>(header: &SnapshotHeader, grouped: &Grouped<F>, out: &mut dyn FnMut(&[u8])) {
    write_pieces(header, |put| grouped.write(put), out);
}

/// Writes a snapshot file with this header and the records that `write` provides. `write` passes each record without
/// its length field. `out` takes the bytes of the file, piece by piece.
pub fn write_records(header: &SnapshotHeader, write: &mut Source<'_>, out: &mut dyn FnMut(&[u8])) {
    write_pieces(header, |put| write(&mut |record| put(Written::Whole(record))), out);
}

fn write_pieces(
    header: &SnapshotHeader,
    write: impl FnOnce(&mut dyn FnMut(Written<'_>)),
    out: &mut dyn FnMut(&[u8]),
) {
    out(&header.encode());
    let mut splitter = Splitter::new(frame::payload_limit(FRAME_LIMIT));
    let mut frames = FrameWriter::new(header.origin());
    write(&mut |written| {
        let mut out = |payload: Payload| frames.write(&payload, out);
        match written {
            Written::Whole(record) => splitter.push(record, &mut out),
            Written::Beginning { bytes, left } => splitter.push_parts(bytes, left, &mut out),
        }
    });
    splitter.finish(&mut |payload| frames.write(&payload, out));
    out(&frames.end());
}

/// Writer of the frames of a snapshot file. For the end block, it counts the frames and records, and computes a
/// checksum over the checksums of the frames.
struct FrameWriter {
    origin: Origin,
    frames: u64,
    block: u32,
    previous: u32,
    records: u64,
    checksums: u32,
    bytes: Vec<u8>,
}

impl FrameWriter {
    fn new(origin: Origin) -> Self {
        Self { origin, frames: 0, block: 1, previous: 0, records: 0, checksums: 0, bytes: Vec::new() }
    }

    fn write(&mut self, payload: &Payload, out: &mut dyn FnMut(&[u8])) {
        self.frames += 1;
        let fields = FrameFields {
            lsn: self.frames,
            durable: Durable::default(),
            block: self.block,
            previous: self.previous,
        };
        self.previous = frame::encode(&self.origin, &fields, &payload.bytes, payload.count, &mut self.bytes);
        self.checksums = crc32c::crc32c_append(self.checksums, &self.previous.to_le_bytes());
        self.block += (self.bytes.len() / BLOCK_LEN) as u32;
        self.records += u64::from(payload.count);
        out(&self.bytes);
    }

    /// Returns the end block of the file.
    fn end(&self) -> [u8; BLOCK_LEN] {
        BlockWriter::new(END_MAGIC)
            .u64(self.origin.log_id)
            .u64(self.origin.number)
            .u64(self.frames)
            .u64(self.records)
            .u32(self.checksums)
            .seal()
    }
}

/// Reads the records of a snapshot file into `grouped`, and checks the whole file. `grouped` applies the records to a
/// state, and keeps the beginning of an incomplete group (records that are valid only together). Returns the header of
/// the file.
///
/// # Errors
/// Returns an error if the file is damaged, incomplete, or not the snapshot with this number of this log.
pub fn read_snapshot<F: Fold>(
    log_id: u64,
    number: u64,
    reader: &mut dyn FileReader,
    grouped: &mut Grouped<F>,
) -> Result<SnapshotHeader, Damage> {
    let file = FileName::Snapshot(number);
    let file_len = reader.file_len();
    let header = SnapshotHeader::decode(read(reader, file, 0, BLOCK_LEN)?)
        .map_err(|reason| Damage::Block { file, offset: 0, reason })?;
    if header.log_id != log_id {
        return Err(Damage::Stranger { file, field: "log id" });
    }
    if header.number != number {
        return Err(Damage::Stranger { file, field: "number" });
    }
    let origin = header.origin();
    let (mut block, mut frames, mut records, mut previous, mut checksums) = (1u32, 0u64, 0u64, 0u32, 0u32);
    loop {
        let offset = u64::from(block) * BLOCK_LEN as u64;
        let bytes = read(reader, file, offset, FRAME_LIMIT)?;
        match BlockReader::check(bytes, END_MAGIC) {
            Ok(mut end) => {
                let expected = [log_id, number, frames, records, u64::from(checksums)];
                let found = [end.u64(), end.u64(), end.u64(), end.u64(), u64::from(end.u32())];
                if found != expected {
                    return Err(Damage::Block { file, offset, reason: BadBlock::Field("count or checksum") });
                }
                let expected = offset + BLOCK_LEN as u64;
                if file_len != expected {
                    return Err(Damage::Length { file, expected, actual: file_len });
                }
                return Ok(header);
            }
            Err(BadBlock::Checksum | BadBlock::Short) => {}
            Err(reason) => return Err(Damage::Block { file, offset, reason }),
        }
        let lsn = frames + 1;
        let damaged = |reason| Damage::Frame { file, offset, lsn, reason, evidence: Evidence::Snapshot };
        let frame = FrameHeader::decode_at(&origin, bytes, block).map_err(damaged)?;
        if frame.generation != header.generation {
            return Err(damaged(BadFrame::Generation(frame.generation)));
        }
        if frame.fields.lsn != lsn {
            return Err(damaged(BadFrame::Lsn { found: frame.fields.lsn, expected: lsn }));
        }
        if frame.fields.previous != previous {
            return Err(damaged(BadFrame::Chain));
        }
        let frame_records = frame.records_at(&origin, bytes).map_err(damaged)?;
        grouped.fold().frame(file, &frame);
        for record in frame_records {
            grouped.take(header.covers.lsn, record).map_err(|reason| Damage::Record {
                file,
                offset,
                lsn,
                reason,
            })?;
        }
        frames = lsn;
        records += u64::from(frame.record_count);
        previous = frame.checksum;
        checksums = crc32c::crc32c_append(checksums, &frame.checksum.to_le_bytes());
        block = block.saturating_add((frame.frame_len() / BLOCK_LEN) as u32);
    }
}
