//! Fields of records: little-endian integers, and names and values, each with its length before its bytes.

use super::record::BadRecord;
use crate::ids::ClaimId;

/// Fences in records are below this limit.
const FENCE_LIMIT: u64 = 1 << 63;

/// Writer of fields.
pub(super) struct Put<'a>(pub(super) &'a mut Vec<u8>);

impl Put<'_> {
    pub(super) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(super) fn u16(&mut self, value: u16) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn id(&mut self, id: ClaimId) {
        self.u64(id.place);
        self.u64(id.secret);
    }

    /// Writes bytes with their length in front. The caller guarantees that they are at most 65,535: no name or value
    /// may be longer.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.u16(bytes.len() as u16);
        self.0.extend_from_slice(bytes);
    }
}

/// Reader of fields.
pub(super) struct Take<'a>(pub(super) &'a [u8]);

impl<'a> Take<'a> {
    pub(super) fn slice(&mut self, len: usize) -> Result<&'a [u8], BadRecord> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(BadRecord("the record is cut off"))?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn array<const LEN: usize>(&mut self) -> Result<[u8; LEN], BadRecord> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(BadRecord("the record is cut off"))?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(super) fn u8(&mut self) -> Result<u8, BadRecord> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn flag(&mut self) -> Result<bool, BadRecord> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(BadRecord("a flag that is neither 0 nor 1")),
        }
    }

    pub(super) fn u16(&mut self) -> Result<u16, BadRecord> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, BadRecord> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, BadRecord> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads a fence. Rejects values from 2^63 on: no server counts that far. A server that continued above the highest
    /// fences would soon have no greater fence left.
    pub(super) fn fence(&mut self) -> Result<u64, BadRecord> {
        let fence = self.u64()?;
        if fence < FENCE_LIMIT { Ok(fence) } else { Err(BadRecord("a fence above the maximum")) }
    }

    /// Reads the fence of a grant. Rejects 0, because the fences of grants begin at 1.
    pub(super) fn granted_fence(&mut self) -> Result<u64, BadRecord> {
        match self.fence()? {
            0 => Err(BadRecord("a grant without a fence")),
            fence => Ok(fence),
        }
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], BadRecord> {
        let len = self.u16()?;
        self.slice(usize::from(len))
    }

    pub(super) fn text(&mut self) -> Result<&'a str, BadRecord> {
        std::str::from_utf8(self.bytes()?).map_err(|_| BadRecord("a name that is not text"))
    }

    pub(super) fn id(&mut self) -> Result<ClaimId, BadRecord> {
        Ok(ClaimId { place: self.u64()?, secret: self.u64()? })
    }
}
