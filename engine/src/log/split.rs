//! Splitting: from records to what frames store. The other direction is `group`.

use super::record::{PART_HEADER_LEN, Record, each};

/// Stored records of one frame, each behind its length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Payload {
    /// The stored records.
    pub bytes: Vec<u8>,
    /// How many they are.
    pub count: u32,
}

/// Bytes of a length.
const LENGTH_LEN: usize = 4;

/// Lays records out in payloads of a limited length. A record that does not fit the current payload begins the next one; a record that is
/// longer than any payload is stored in parts.
#[derive(Debug)]
pub struct Splitter {
    limit: usize,
    current: Payload,
}

impl Splitter {
    /// The least limit: a part has to have at least one byte.
    pub const LIMIT_MIN: usize = LENGTH_LEN + PART_HEADER_LEN + 1;

    /// A splitter whose payloads have at most `limit` bytes.
    ///
    /// # Panics
    /// If `limit` is below [`Self::LIMIT_MIN`].
    pub fn new(limit: usize) -> Self {
        assert!(limit >= Self::LIMIT_MIN, "a payload of {limit} bytes has no room for a part");
        Self { limit, current: Payload::default() }
    }

    /// Adds a record. `out` takes each payload that is full.
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

    /// Adds the beginning of a record in parts, of which `left` bytes are stored elsewhere.
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

    /// Hands out the last payload, if there is anything in it.
    pub fn finish(mut self, out: &mut dyn FnMut(Payload)) {
        if self.current.count > 0 {
            self.flush(out);
        }
    }

    fn flush(&mut self, out: &mut dyn FnMut(Payload)) {
        out(std::mem::take(&mut self.current));
    }
}

/// Splits a batch of `count` records, each behind its length, that counts as a whole. `out` takes payloads of at most `limit` bytes.
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
