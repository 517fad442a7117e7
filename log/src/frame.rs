//! Frame: the unit in which records are written to a file.
//!
//! A frame begins on a block boundary and fills whole blocks. Its header has its own checksum, so no length is trusted
//! unchecked. A second checksum covers everything behind the header. Each checksum starts from a seed that depends on
//! the file of the frame and on the server start that wrote it. So a frame that was copied from another file does not
//! pass the check. The header also has the frame's position in the file, so a frame that was moved inside its file is
//! detected.

use super::block::{BLOCK_LEN, NUMBER_LIMIT, u16_at, u32_at, u64_at};

/// Format version of all newly written frames and blocks of the log. Every change of the format raises it. This server
/// can read all older versions, from 1 on.
pub const FORMAT_VERSION: u16 = 2;
/// Maximum length of a frame in bytes.
pub const FRAME_LIMIT: usize = 256 << 10;
/// Number of bytes before the records.
pub const HEADER_LEN: usize = 80;
/// Number of bytes at the end of a frame, behind its padding. They repeat the number of the frame (LSN).
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
    /// Number of a server start. For writing, the start that writes the frame. For reading, the start that created the
    /// file. Later starts append to the same segment, so a frame in it has this number or a higher one.
    pub generation: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Segment = 0,
    Snapshot = 1,
}

impl Origin {
    /// Returns the origin (the file and the server start) of frames in a segment.
    pub fn segment(log_id: u64, number: u64, generation: u64) -> Self {
        Self { kind: Kind::Segment, log_id, number, generation }
    }

    /// Returns the origin (the file and the server start) of frames in a snapshot.
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

/// Last durable frame of the log, and the time at which it became durable. The two values change together, at the end
/// of a flush.
///
/// A flush syncs all frames that were appended since the flush before it. If a segment becomes full in between, it is
/// synced earlier, and that sync changes neither `lsn` nor `at_ms`. A grant is acknowledged, and its lease begins, when
/// the flush that contains its frame has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Durable {
    /// Number of the last frame of the latest flush (a sync of all appended frames); 0 before the first flush of a
    /// server start.
    pub lsn: u64,
    /// Time at which the latest flush (the sync of all frames up to `lsn`) ended, in milliseconds of the boot-time
    /// clock.
    pub at_ms: u64,
}

/// Fields of a frame, apart from its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameFields {
    /// Number of the frame, counted over all segments from 1 on.
    pub lsn: u64,
    /// The last frame that was durable when this frame was built, and when it became durable. Zero before the first
    /// flush of a server start, and in snapshots.
    pub durable: Durable,
    /// Position of the frame in its file, in blocks.
    pub block: u32,
    /// Checksum of the previous frame of the log, which may be in the previous segment; 0 if there is no previous
    /// frame.
    pub previous: u32,
}

/// Header of a frame with a matching header checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Format version of the frame.
    pub version: u16,
    /// Server start that wrote the frame.
    pub generation: u64,
    /// Number and position of the frame, the last durable frame, and the checksum of the previous frame.
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
    /// The bytes of the header are all zero, so no frame begins at this position.
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
    /// The checksum of the header matches, but the checksum of the rest of the frame does not. Or the superblock says
    /// that the last server start found this frame as the last one, but with another checksum.
    #[error("the checksum of the frame does not match")]
    Checksum,
    /// The header is intact, but this server does not know its format version.
    #[error("it has format version {0}, but this server reads only {known}", known = known_versions())]
    NewerVersion(u16),
    /// The header is intact, but the number of the frame is not the expected next number.
    #[error("frame {found} is here instead of frame {expected}")]
    Lsn {
        /// Number of the frame.
        found: u64,
        /// Number of the expected frame.
        expected: u64,
    },
    /// The header is intact, but it does not name the checksum of the frame that precedes it in the log.
    #[error("the frame does not follow the previous frame")]
    Chain,
    /// The header is intact, but the frame was written for another block of the file.
    #[error("the frame was written for block {0}")]
    Misplaced(u32),
    /// The header is intact, but it names a server start that cannot have written a valid frame at this position of the
    /// log.
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

/// Builds a frame of the server start `origin.generation` in `out`, whose old content is discarded. Returns the
/// checksum of the frame. `payload` has `record_count` records, each preceded by its length (`u32`), and is at most
/// [`payload_limit`] bytes long.
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
    /// Reads the header of the frame that begins at this block of a file. `file` is the content of the whole file.
    ///
    /// # Errors
    /// Returns an error if the file ends inside the header, its checksum does not match, its format version is unknown,
    /// or a field has an impossible value.
    pub fn decode(origin: &Origin, file: &[u8], block: u32) -> Result<Self, BadFrame> {
        Self::decode_at(origin, file.get(block as usize * BLOCK_LEN..).ok_or(BadFrame::Short)?, block)
    }

    /// Reads a header like [`Self::decode`], but `bytes` contains only the part of the file from this block on.
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

    /// Returns the records of this frame. `file` is the content of the whole file; the header says at which block of it
    /// the frame begins.
    ///
    /// # Errors
    /// Returns an error if the frame is not intact.
    pub fn records<'a>(&self, origin: &Origin, file: &'a [u8]) -> Result<Records<'a>, BadFrame> {
        let start = self.fields.block as usize * BLOCK_LEN;
        self.records_at(origin, file.get(start..).ok_or(BadFrame::Short)?)
    }

    /// Returns the records of this frame like [`Self::records`], but `bytes` contains only the part of the file from
    /// this frame on.
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

/// Iterator over records. Each record is preceded by its length (`u32`), and the records fill the bytes exactly.
#[derive(Clone, Debug)]
pub struct Records<'a>(&'a [u8]);

impl<'a> Records<'a> {
    /// Returns an iterator over `count` records in these bytes. Returns `None` if the bytes are cut off, or if bytes
    /// follow the last record.
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
