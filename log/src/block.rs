//! Block of 4 KiB with one checksum at its end. Each copy of the superblock, the head of a segment or snapshot, and the
//! end of a snapshot are such blocks.
//!
//! In every version of the format, the magic is first, the version follows, and the checksum is in the last four bytes.
//! So a newer version can be distinguished from damage.

use super::frame::{FORMAT_VERSION, known_versions};

/// Unit of the log in bytes. Frames begin on block boundaries, and a block with bytes of an acknowledged frame is never
/// written again.
pub const BLOCK_LEN: usize = 4096;

/// Limit of all numbers of files, frames and server starts, and of the update number and the fences in a superblock. A
/// block or frame with this number or a higher one is refused, so adding 1 to a number never overflows.
pub const NUMBER_LIMIT: u64 = 1 << 62;

const CHECKSUM_AT: usize = BLOCK_LEN - 4;

/// Reason why a block cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadBlock {
    /// There are fewer bytes than one block.
    #[error("the file ends inside the block")]
    Short,
    /// The checksum does not match the bytes.
    #[error("the checksum of the block does not match")]
    Checksum,
    /// The checksum matches, but the magic is not that of the expected kind of block.
    #[error("the block is intact but of another kind")]
    Magic,
    /// The block is intact, but this server does not know its format version.
    #[error("it has format version {0}, but this server reads only {known}", known = known_versions())]
    NewerVersion(u16),
    /// A field has an impossible value.
    #[error("the field {0} has an impossible value")]
    Field(&'static str),
}

/// Block that is being filled, field by field, from its first byte on.
#[derive(Debug)]
pub(super) struct BlockWriter {
    bytes: [u8; BLOCK_LEN],
    len: usize,
}

impl BlockWriter {
    pub(super) fn new(magic: [u8; 4]) -> Self {
        let mut writer = Self { bytes: [0; BLOCK_LEN], len: 0 };
        writer.put(&magic);
        writer.put(&FORMAT_VERSION.to_le_bytes());
        writer.put(&[0; 2]);
        writer
    }

    fn put(&mut self, field: &[u8]) {
        self.bytes[self.len..self.len + field.len()].copy_from_slice(field);
        self.len += field.len();
    }

    pub(super) fn u64(mut self, value: u64) -> Self {
        self.put(&value.to_le_bytes());
        self
    }

    pub(super) fn u32(mut self, value: u32) -> Self {
        self.put(&value.to_le_bytes());
        self
    }

    pub(super) fn seal(mut self) -> [u8; BLOCK_LEN] {
        let checksum = crc32c::crc32c(&self.bytes[..CHECKSUM_AT]);
        self.bytes[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
        self.bytes
    }
}

/// Reader of the fields of a checked block, from front to back.
#[derive(Debug)]
pub(super) struct BlockReader<'a> {
    bytes: &'a [u8; BLOCK_LEN],
    offset: usize,
}

impl<'a> BlockReader<'a> {
    /// Checks the block at the beginning of these bytes. Returns a reader whose next field is the one after magic,
    /// version and two unused bytes.
    pub(super) fn check(bytes: &'a [u8], magic: [u8; 4]) -> Result<Self, BadBlock> {
        let bytes: &[u8; BLOCK_LEN] = bytes.first_chunk().ok_or(BadBlock::Short)?;
        if crc32c::crc32c(&bytes[..CHECKSUM_AT]) != u32_at(bytes, CHECKSUM_AT) {
            return Err(BadBlock::Checksum);
        }
        if bytes[..4] != magic {
            return Err(BadBlock::Magic);
        }
        match u16_at(bytes, 4) {
            0 => Err(BadBlock::Field("version")),
            1..=FORMAT_VERSION => Ok(Self { bytes, offset: 8 }),
            newer => Err(BadBlock::NewerVersion(newer)),
        }
    }

    pub(super) fn u64(&mut self) -> u64 {
        self.offset += 8;
        u64_at(self.bytes, self.offset - 8)
    }

    pub(super) fn u32(&mut self) -> u32 {
        self.offset += 4;
        u32_at(self.bytes, self.offset - 4)
    }
}

/// Returns an error if one of the numbers is `NUMBER_LIMIT` or higher. No server can count that far, so an intact log
/// has no such number.
pub(super) fn check_numbers<const N: usize>(numbers: [u64; N]) -> Result<(), BadBlock> {
    if numbers.iter().all(|number| *number < NUMBER_LIMIT) { Ok(()) } else { Err(BadBlock::Field("number")) }
}

/// Returns the little-endian integer that begins at this offset. All its bytes must be inside `bytes`: callers check
/// the length before.
pub(super) fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes([bytes[offset], bytes[offset + 1]])
}

/// Returns the little-endian integer that begins at this offset. All its bytes must be inside `bytes`.
pub(super) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from(u16_at(bytes, offset)) | u32::from(u16_at(bytes, offset + 2)) << 16
}

/// Returns the little-endian integer that begins at this offset. All its bytes must be inside `bytes`.
pub(super) fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from(u32_at(bytes, offset)) | u64::from(u32_at(bytes, offset + 4)) << 32
}
