//! A frame: what one group commit writes.
//!
//! It begins on a block, fills whole blocks, and is checked in two steps: the header has a checksum of its own, so no
//! length is believed unchecked, and the other covers everything behind the header. Both begin from a seed made of the
//! file that the frame was written for and of the start that wrote it, so a frame that was copied from elsewhere never checks.

use super::block::{BLOCK_LEN, NUMBER_LIMIT, u16_at, u32_at, u64_at};

/// The version that every part of the log is written in. Every change of the format raises it; all older ones, from 1 on, are
/// still read.
pub const FORMAT_VERSION: u16 = 2;
/// The most bytes a frame may have.
pub const FRAME_LIMIT: usize = 256 << 10;
/// Bytes before the records.
pub const HEADER_LEN: usize = 80;
/// Bytes behind the padding: the LSN once more.
pub const TRAILER_LEN: usize = 8;

const MAGIC: [u8; 4] = *b"WMfr";
const GENERATION_AT: usize = 24;
const HEADER_CHECKSUM_AT: usize = HEADER_LEN - 4;

/// The file that a frame was written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    kind: Kind,
    /// The log that the file is part of.
    pub log_id: u64,
    /// The number of the segment or snapshot.
    pub number: u64,
    /// The start of the server in which the file was begun. Later starts append to it too, so its frames have this generation or
    /// a later one.
    pub generation: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Segment = 0,
    Snapshot = 1,
}

impl Origin {
    /// A segment file.
    pub fn segment(log_id: u64, number: u64, generation: u64) -> Self {
        Self { kind: Kind::Segment, log_id, number, generation }
    }

    /// A snapshot file.
    pub fn snapshot(log_id: u64, number: u64, generation: u64) -> Self {
        Self { kind: Kind::Snapshot, log_id, number, generation }
    }

    fn seed(&self) -> u32 {
        let mut seed = crc32c::crc32c(&[self.kind as u8]);
        for field in [self.log_id, self.number, self.generation] {
            seed = crc32c::crc32c_append(seed, &field.to_le_bytes());
        }
        seed
    }
}

/// How far the log was durable, and since when. Both change together, at the end of a flush.
///
/// A sync that only ends a full segment leaves both as they are: a grant is acknowledged, and its lease begins, when all of its
/// flush is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Durable {
    /// The last frame of the flush.
    pub lsn: u64,
    /// When its sync had ended, in milliseconds of the boot-time clock.
    pub at_ms: u64,
}

/// What a frame says beside its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameFields {
    /// Counts frames over all segments, from 1 on.
    pub lsn: u64,
    /// The end of the last flush before this frame was built.
    pub durable: Durable,
    /// The frame's place in its file, in blocks.
    pub block: u32,
    /// The checksum of the frame before.
    pub previous: u32,
}

/// The header of a frame, whose own checksum fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// The format version.
    pub version: u16,
    /// The start of the server that wrote the frame.
    pub generation: u64,
    /// What it says of itself and of others.
    pub fields: FrameFields,
    /// Bytes of records, with their lengths.
    pub payload_len: u32,
    /// How many records there are.
    pub record_count: u32,
    /// The checksum of everything behind the header: records, padding, trailer.
    pub checksum: u32,
}

/// Why bytes are not the frame that should be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadFrame {
    /// There are zeros instead of a header.
    #[error("no frame begins here")]
    Blank,
    /// The file ends inside the frame.
    #[error("the file ends inside the frame")]
    Short,
    /// The header does not check.
    #[error("the checksum of the frame header does not match")]
    HeaderChecksum,
    /// The header checks but says what cannot be.
    #[error("the field {0} has an impossible value")]
    Field(&'static str),
    /// The header checks, what is behind it does not.
    #[error("the checksum of the frame does not match")]
    Checksum,
    /// A whole frame of a format that this server does not know.
    #[error("it has format version {0}, but this server reads only {known}", known = known_versions())]
    NewerVersion(u16),
    /// A whole frame, but not the next one.
    #[error("frame {found} is here instead of frame {expected}")]
    Lsn {
        /// Which it is.
        found: u64,
        /// Which should be here.
        expected: u64,
    },
    /// A whole frame, with another one before it than the one that is there.
    #[error("the frame does not follow the previous frame")]
    Chain,
    /// A whole frame at a place where it was never written.
    #[error("the frame was written for block {0}")]
    Misplaced(u32),
    /// A whole frame of another start of the server than the one whose frame should be here.
    #[error("the frame was written by start {0} of the server")]
    Generation(u64),
}

/// Returns the format versions that are read, in words.
pub fn known_versions() -> String {
    format!("1 to {FORMAT_VERSION}")
}

/// The bytes of a frame with this many bytes of records; a multiple of [`BLOCK_LEN`].
pub fn frame_len(payload_len: usize) -> usize {
    (HEADER_LEN + payload_len + TRAILER_LEN).next_multiple_of(BLOCK_LEN)
}

/// The most bytes of records, with their lengths, that a frame of at most this many bytes can have.
pub fn payload_limit(frame_limit: usize) -> usize {
    (frame_limit / BLOCK_LEN * BLOCK_LEN).saturating_sub(HEADER_LEN + TRAILER_LEN)
}

/// Builds a frame of the start `origin.generation` in `out`, which it clears first, and returns its checksum. `payload` is `record_count` records, each
/// behind its length (`u32`), together no more than [`payload_limit`].
pub fn encode(
    origin: &Origin,
    fields: &FrameFields,
    payload: &[u8],
    record_count: u32,
    out: &mut Vec<u8>,
) -> u32 {
    let len = frame_len(payload.len());
    out.clear();
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    out.extend_from_slice(&[0; 2]);
    for field in [
        origin.log_id,
        origin.number,
        origin.generation,
        fields.lsn,
        fields.durable.lsn,
        fields.durable.at_ms,
    ] {
        out.extend_from_slice(&field.to_le_bytes());
    }
    for field in [fields.block, payload.len() as u32, record_count, fields.previous, 0, 0] {
        out.extend_from_slice(&field.to_le_bytes());
    }
    out.extend_from_slice(payload);
    out.resize(len - TRAILER_LEN, 0);
    out.extend_from_slice(&fields.lsn.to_le_bytes());
    let seed = origin.seed();
    let checksum = crc32c::crc32c_append(seed, &out[HEADER_LEN..]);
    out[HEADER_CHECKSUM_AT - 4..HEADER_CHECKSUM_AT].copy_from_slice(&checksum.to_le_bytes());
    let header_checksum = crc32c::crc32c_append(seed, &out[..HEADER_CHECKSUM_AT]);
    out[HEADER_CHECKSUM_AT..HEADER_LEN].copy_from_slice(&header_checksum.to_le_bytes());
    checksum
}

impl FrameHeader {
    /// Reads the header of the frame that `file` has at this block, if its checksum fits and what it says can be.
    ///
    /// # Errors
    /// If there is no such header.
    pub fn decode(origin: &Origin, file: &[u8], block: u32) -> Result<Self, BadFrame> {
        Self::decode_at(origin, file.get(block as usize * BLOCK_LEN..).ok_or(BadFrame::Short)?, block)
    }

    /// The same of bytes that begin at this block.
    pub(super) fn decode_at(origin: &Origin, bytes: &[u8], block: u32) -> Result<Self, BadFrame> {
        let header = bytes.first_chunk::<HEADER_LEN>().ok_or(BadFrame::Short)?;
        let generation = u64_at(header, GENERATION_AT);
        let seed = Origin { generation, ..*origin }.seed();
        if u32_at(header, HEADER_CHECKSUM_AT) != crc32c::crc32c_append(seed, &header[..HEADER_CHECKSUM_AT]) {
            let is_blank = header.iter().all(|byte| *byte == 0);
            return Err(if is_blank { BadFrame::Blank } else { BadFrame::HeaderChecksum });
        }
        if header[..4] != MAGIC {
            return Err(BadFrame::Field("magic"));
        }
        let version = match u16_at(header, 4) {
            0 => return Err(BadFrame::Field("version")),
            known @ 1..=FORMAT_VERSION => known,
            newer => return Err(BadFrame::NewerVersion(newer)),
        };
        let this = Self {
            version,
            generation,
            fields: FrameFields {
                lsn: u64_at(header, 32),
                durable: Durable { lsn: u64_at(header, 40), at_ms: u64_at(header, 48) },
                block: u32_at(header, 56),
                previous: u32_at(header, 68),
            },
            payload_len: u32_at(header, 60),
            record_count: u32_at(header, 64),
            checksum: u32_at(header, 72),
        };
        if [8, 16].map(|at| u64_at(header, at)) != [origin.log_id, origin.number] {
            return Err(BadFrame::Field("origin"));
        }
        if !(origin.generation..NUMBER_LIMIT).contains(&generation) {
            return Err(BadFrame::Field("generation"));
        }
        if this.payload_len as usize > payload_limit(FRAME_LIMIT) {
            return Err(BadFrame::Field("length"));
        }
        if this.fields.lsn >= NUMBER_LIMIT {
            return Err(BadFrame::Field("LSN"));
        }
        if this.fields.durable.lsn >= this.fields.lsn {
            return Err(BadFrame::Field("durable LSN"));
        }
        if this.fields.block != block {
            return Err(BadFrame::Misplaced(this.fields.block));
        }
        Ok(this)
    }

    /// The highest frame of which this file has a header that checks; 0 if it has none.
    pub fn highest_lsn(origin: &Origin, file: &[u8]) -> u64 {
        let blocks = 0..(file.len() / BLOCK_LEN) as u32;
        let headers = blocks.filter_map(|block| Self::decode(origin, file, block).ok());
        headers.map(|header| header.fields.lsn).max().unwrap_or(0)
    }

    /// The bytes of the frame.
    pub fn frame_len(&self) -> usize {
        frame_len(self.payload_len as usize)
    }

    /// The records of this frame, which `file` has at the place that the header says, if all of it checks.
    ///
    /// # Errors
    /// If it does not.
    pub fn records<'a>(&self, origin: &Origin, file: &'a [u8]) -> Result<Records<'a>, BadFrame> {
        let start = self.fields.block as usize * BLOCK_LEN;
        self.records_at(origin, file.get(start..).ok_or(BadFrame::Short)?)
    }

    /// The same of bytes that begin with this frame.
    pub(super) fn records_at<'a>(&self, origin: &Origin, bytes: &'a [u8]) -> Result<Records<'a>, BadFrame> {
        let frame = bytes.get(..self.frame_len()).ok_or(BadFrame::Short)?;
        let seed = Origin { generation: self.generation, ..*origin }.seed();
        if crc32c::crc32c_append(seed, &frame[HEADER_LEN..]) != self.checksum {
            return Err(BadFrame::Checksum);
        }
        if u64_at(frame, frame.len() - TRAILER_LEN) != self.fields.lsn {
            return Err(BadFrame::Field("trailer"));
        }
        let payload = &frame[HEADER_LEN..HEADER_LEN + self.payload_len as usize];
        Records::check(payload, self.record_count).ok_or(BadFrame::Field("list of records"))
    }
}

/// Records, each behind its length (`u32`), which fit the bytes exactly.
#[derive(Clone, Debug)]
pub struct Records<'a>(&'a [u8]);

impl<'a> Records<'a> {
    /// These bytes as records; `None` unless they are exactly `count`.
    pub fn check(bytes: &'a [u8], count: u32) -> Option<Self> {
        let mut rest = bytes;
        for _ in 0..count {
            rest = split(rest)?.1;
        }
        rest.is_empty().then_some(Self(bytes))
    }
}

fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_le_bytes(*len) as usize)
}

impl<'a> Iterator for Records<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (record, rest) = split(self.0)?;
        self.0 = rest;
        Some(record)
    }
}
