//! Frame: the unit in which records are written to a file.
//!
//! A frame begins on a block boundary and fills whole blocks. Its header has its own checksum, so no length is trusted
//! unchecked. A second checksum covers everything behind the header. Both begin with a seed that depends on the file of
//! the frame and on the server start that wrote it. So a frame that was copied from another file does not pass the
//! check. The header also has the position in the file, which reveals frames that were moved inside it.

use super::block::{BLOCK_LEN, NUMBER_LIMIT, u16_at, u32_at, u64_at};

/// Format version of all newly written parts of the log. Every change of the format raises it; all older versions, from
/// 1 on, can still be read.
pub const FORMAT_VERSION: u16 = 2;
/// Maximum length of a frame in bytes.
pub const FRAME_LIMIT: usize = 256 << 10;
/// Number of bytes before the records.
pub const HEADER_LEN: usize = 80;
/// Number of bytes behind the padding, which repeat the LSN.
pub const TRAILER_LEN: usize = 8;

const MAGIC: [u8; 4] = *b"WMfr";
const GENERATION_AT: usize = 24;
const HEADER_CHECKSUM_AT: usize = HEADER_LEN - 4;

/// File that a frame was written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    kind: Kind,
    /// Id of the log that the file belongs to.
    pub log_id: u64,
    /// Number of the segment or snapshot.
    pub number: u64,
    /// Number of a server start. For reading: the start that began the file. Later starts append to a segment, so its
    /// frames have this generation or a later one. For writing: the start that writes the frame.
    pub generation: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Segment = 0,
    Snapshot = 1,
}

impl Origin {
    /// Returns the origin of frames in a segment file.
    pub fn segment(log_id: u64, number: u64, generation: u64) -> Self {
        Self { kind: Kind::Segment, log_id, number, generation }
    }

    /// Returns the origin of frames in a snapshot file.
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

/// Position up to which the log is durable, and the time at which it became durable. Both change together, at the end
/// of a flush.
///
/// A sync that only ends a full segment changes neither. A grant is acknowledged, and its lease begins, once all of its
/// flush is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Durable {
    /// Number of the last frame of the flush; 0 before the first flush.
    pub lsn: u64,
    /// End of the sync, in milliseconds of the boot-time clock.
    pub at_ms: u64,
}

/// Fields of a frame, apart from its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameFields {
    /// Number of the frame, counted over all segments from 1 on.
    pub lsn: u64,
    /// The last frame that was durable when this frame was built, and since when. Zero before the first flush of a
    /// server start, and in snapshots.
    pub durable: Durable,
    /// Position of the frame in its file, in blocks.
    pub block: u32,
    /// Checksum of the previous frame, which may be in the segment before; 0 if there is none.
    pub previous: u32,
}

/// Header of a frame with a matching header checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Format version of the frame.
    pub version: u16,
    /// Server start that wrote the frame.
    pub generation: u64,
    /// Number and position of the frame, and what it says about the frames before it.
    pub fields: FrameFields,
    /// Length of the records in bytes, including their length fields.
    pub payload_len: u32,
    /// Number of records.
    pub record_count: u32,
    /// Checksum of everything behind the header: records, padding and trailer.
    pub checksum: u32,
}

/// Reason why bytes are not the expected frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadFrame {
    /// There are only zeros instead of a header.
    #[error("no frame begins here")]
    Blank,
    /// The file ends inside the frame.
    #[error("the file ends inside the frame")]
    Short,
    /// The checksum of the header does not match.
    #[error("the checksum of the frame header does not match")]
    HeaderChecksum,
    /// The checksum of the header matches, but a field has an impossible value.
    #[error("the field {0} has an impossible value")]
    Field(&'static str),
    /// The checksum of the header matches, but the one of the rest does not. Or the frame is the last one that the last
    /// server start found, and the superblock has another checksum for it.
    #[error("the checksum of the frame does not match")]
    Checksum,
    /// The header is intact, but this server does not know its format version.
    #[error("it has format version {0}, but this server reads only {known}", known = known_versions())]
    NewerVersion(u16),
    /// The header is intact, but it is not that of the next frame.
    #[error("frame {found} is here instead of frame {expected}")]
    Lsn {
        /// Number of the frame.
        found: u64,
        /// Number of the expected frame.
        expected: u64,
    },
    /// The header is intact, but the checksum of the previous frame in it is not that of the frame before.
    #[error("the frame does not follow the previous frame")]
    Chain,
    /// The header is intact, but the frame was written for another block of the file.
    #[error("the frame was written for block {0}")]
    Misplaced(u32),
    /// The header is intact, but it has the number of a server start that cannot have written a frame that counts here.
    #[error("the frame was written by start {0} of the server")]
    Generation(u64),
}

/// Returns the readable format versions as text.
pub fn known_versions() -> String {
    format!("1 to {FORMAT_VERSION}")
}

/// Returns the length in bytes of a frame with `payload_len` bytes of records. It is a multiple of [`BLOCK_LEN`].
pub fn frame_len(payload_len: usize) -> usize {
    (HEADER_LEN + payload_len + TRAILER_LEN).next_multiple_of(BLOCK_LEN)
}

/// Returns the maximum number of bytes of records, including their length fields, in a frame of at most `frame_limit`
/// bytes.
pub fn payload_limit(frame_limit: usize) -> usize {
    (frame_limit / BLOCK_LEN * BLOCK_LEN).saturating_sub(HEADER_LEN + TRAILER_LEN)
}

/// Builds a frame of the server start `origin.generation` in `out`, which it clears first. Returns the checksum of the
/// frame. `payload` has `record_count` records, each with its length (`u32`) in front, and at most [`payload_limit`]
/// bytes.
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
    /// Reads the header of the frame at this block of `file`, which are the bytes of the whole file.
    ///
    /// # Errors
    /// Returns an error if the checksum of the header does not match, or a field has an impossible value.
    pub fn decode(origin: &Origin, file: &[u8], block: u32) -> Result<Self, BadFrame> {
        Self::decode_at(origin, file.get(block as usize * BLOCK_LEN..).ok_or(BadFrame::Short)?, block)
    }

    /// Reads a header like `decode`, from bytes that begin at this block.
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

    /// Returns the highest frame number in any intact frame header in this file; 0 without any. The frames themselves
    /// may be damaged.
    pub fn highest_lsn(origin: &Origin, file: &[u8]) -> u64 {
        let blocks = 0..(file.len() / BLOCK_LEN) as u32;
        let headers = blocks.filter_map(|block| Self::decode(origin, file, block).ok());
        headers.map(|header| header.fields.lsn).max().unwrap_or(0)
    }

    /// Returns the length of the frame in bytes.
    pub fn frame_len(&self) -> usize {
        frame_len(self.payload_len as usize)
    }

    /// Returns the records of this frame. `file` are the bytes of the whole file, in which the header gives the
    /// position of the frame.
    ///
    /// # Errors
    /// Returns an error if the frame is not intact.
    pub fn records<'a>(&self, origin: &Origin, file: &'a [u8]) -> Result<Records<'a>, BadFrame> {
        let start = self.fields.block as usize * BLOCK_LEN;
        self.records_at(origin, file.get(start..).ok_or(BadFrame::Short)?)
    }

    /// Returns the records like `records`, from bytes that begin with this frame.
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

/// Records, each with its length (`u32`) in front, that exactly fill their bytes.
#[derive(Clone, Debug)]
pub struct Records<'a>(&'a [u8]);

impl<'a> Records<'a> {
    /// Returns these bytes as records, or `None` unless they are exactly `count` records.
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
