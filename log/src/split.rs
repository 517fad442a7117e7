//! Layout of records in frames: a record that is longer than a frame is split into parts. `group` joins them again.

use super::record::{PART_HEADER_LEN, Record, each};

/// Stored records of one frame, each with its length in front.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Payload {
    /// Bytes of the stored records.
    pub bytes: Vec<u8>,
    /// Number of stored records.
    pub count: u32,
}

/// Size of a length field in bytes.
const LENGTH_LEN: usize = 4;

/// Splits records into payloads of a limited length. A record that does not fit into the current payload begins the
/// next one. A record that is longer than any payload is stored in parts.
#[derive(Debug)]
pub struct Splitter {
    limit: usize,
    current: Payload,
}

impl Splitter {
    /// Minimum limit in bytes, with room for a part of one byte.
    pub const LIMIT_MIN: usize = LENGTH_LEN + PART_HEADER_LEN + 1;

    /// Returns a splitter with payloads of at most `limit` bytes.
    ///
    /// # Panics
    /// Panics if `limit` is below [`Self::LIMIT_MIN`].
    pub fn new(limit: usize) -> Self {
        assert!(limit >= Self::LIMIT_MIN, "a payload of {limit} bytes has no room for a part");
        Self { limit, current: Payload::default() }
    }

    /// Adds a record. `out` takes each full payload.
    pub fn push(&mut self, record: &[u8], out: &mut dyn FnMut(Payload)) {
        if LENGTH_LEN + record.len() > self.limit {
            return self.push_parts(record, 0, out);
        }
        if self.current.bytes.len() + LENGTH_LEN + record.len() > self.limit {
            self.flush(out);
        }
        self.current.bytes.extend_from_slice(&(record.len() as u32).to_le_bytes());
        self.current.bytes.extend_from_slice(record);
        self.current.count += 1;
    }

    /// Adds a record in parts, or the beginning of one whose last `left` bytes are stored elsewhere.
    pub(super) fn push_parts(&mut self, mut bytes: &[u8], left: u32, out: &mut dyn FnMut(Payload)) {
        while !bytes.is_empty() {
            let mut room = self.limit.saturating_sub(self.current.bytes.len());
            if room < Self::LIMIT_MIN {
                self.flush(out);
                room = self.limit;
            }
            let (part, rest) = bytes.split_at(bytes.len().min(room - LENGTH_LEN - PART_HEADER_LEN));
            Record::Part { left: left + rest.len() as u32, bytes: part }.encode(&mut self.current.bytes);
            self.current.count += 1;
            bytes = rest;
        }
    }

    /// Passes the last payload to `out`, unless it is empty.
    pub fn finish(mut self, out: &mut dyn FnMut(Payload)) {
        if self.current.count > 0 {
            self.flush(out);
        }
    }

    fn flush(&mut self, out: &mut dyn FnMut(Payload)) {
        out(std::mem::take(&mut self.current));
    }
}

/// Splits a batch of `count` records, each with its length in front, that count only together. `out` takes payloads of
/// at most `limit` bytes. The first one begins with a group header.
pub fn split_batch(records: &[u8], count: u32, limit: usize, out: &mut dyn FnMut(Payload)) {
    let mut splitter = Splitter::new(limit);
    let mut header = Vec::new();
    Record::Group { count }.encode(&mut header);
    splitter.push(&header[LENGTH_LEN..], out);
    for record in each(records).flatten() {
        splitter.push(record, out);
    }
    splitter.finish(out);
}
