//! The first block of a segment file.

use super::block::{BLOCK_LEN, BadBlock, BlockReader, BlockWriter, check_numbers};
use super::frame::Origin;
use super::recovery::Position;

/// The length of a segment file in bytes, if nothing else is said.
pub const SEGMENT_LEN_DEFAULT: u64 = 64 << 20;
/// The shortest segment file in bytes.
pub const SEGMENT_LEN_MIN: u64 = 64 << 10;
/// The longest segment file in bytes: the number of a block fits 32 bits, and the whole file is read at once.
pub const SEGMENT_LEN_MAX: u64 = 1 << 30;

const MAGIC: [u8; 4] = *b"WMsg";

/// What a segment file says of itself, and after which frame it continues. Whatever lies behind that frame in older
/// segments is dead: this block is durable before the first frame of its file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The log that it is part of.
    pub log_id: u64,
    /// Its number; they follow each other without gaps.
    pub number: u64,
    /// The start of the server in which it was begun. Later starts may append to it too.
    pub generation: u64,
    /// The bytes of the file, this block included.
    pub len: u64,
    /// The frame after which it continues.
    pub after: Position,
}

impl SegmentHeader {
    /// Whether a segment may have this many bytes.
    pub fn is_len_valid(len: u64) -> bool {
        (SEGMENT_LEN_MIN..=SEGMENT_LEN_MAX).contains(&len) && len.is_multiple_of(BLOCK_LEN as u64)
    }

    /// The block.
    pub fn encode(&self) -> [u8; BLOCK_LEN] {
        BlockWriter::new(MAGIC)
            .u64(self.log_id)
            .u64(self.number)
            .u64(self.generation)
            .u64(self.len)
            .u64(self.after.lsn + 1)
            .u64(self.after.lsn)
            .u32(self.after.checksum)
            .seal()
    }

    /// The header in front of these bytes.
    ///
    /// # Errors
    /// If the block is damaged or says what cannot be.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadBlock> {
        let mut block = BlockReader::check(bytes, MAGIC)?;
        let (log_id, number, generation, len) = (block.u64(), block.u64(), block.u64(), block.u64());
        let first_lsn = block.u64();
        let after = Position { lsn: block.u64(), checksum: block.u32() };
        if !Self::is_len_valid(len) {
            return Err(BadBlock::Field("length"));
        }
        check_numbers([number, generation, after.lsn])?;
        if after.lsn + 1 != first_lsn {
            return Err(BadBlock::Field("first LSN"));
        }
        Ok(Self { log_id, number, generation, len, after })
    }

    /// The file, for its frames.
    pub fn origin(&self) -> Origin {
        Origin::segment(self.log_id, self.number, self.generation)
    }
}
