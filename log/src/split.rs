//! Layout of records in frames: a record that is longer than a frame is split into parts. `group` joins them again.

use super::record::{PART_HEADER_LEN, Record, each};

/// Records of one frame, as they are stored: each is preceded by its length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Payload {
    /// Bytes of the stored records.
    pub bytes: Vec<u8>,
    /// Number of stored records.
    pub count: u32,
}

/// Size of a length field in bytes.
const LENGTH_LEN: usize = 4;

/// Distributes records to frames: it collects them in payloads of a limited length, one for each frame. A record that
/// does not fit into the current payload begins the next one. A record that is longer than any payload is stored in
/// parts.
#[derive(Debug)]
pub struct Splitter {
    limit: usize,
    current: Payload,
}

impl Splitter {
    /// Minimum length limit of a payload in bytes: room for one part with one byte of a record.
    pub const LIMIT_MIN: usize = LENGTH_LEN + PART_HEADER_LEN + 1;

    /// Returns a splitter with payloads of at most `limit` bytes.
    ///
    /// # Panics
    /// Panics if `limit` is below [`Self::LIMIT_MIN`].
    pub fn new(limit: usize) -> Self {
        assert!(limit >= Self::LIMIT_MIN, "a payload of {limit} bytes has no room for a part");
        Self { limit, current: Payload::default() }
    }

    /// Adds a record. If the current payload has no room for it, passes that payload to `out` and begins the next one.
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

    /// Adds a record in parts, and passes each full payload to `out`, which makes a frame of it. If `left` is not 0,
    /// `bytes` is only the beginning of the record. This is so at the end of a snapshot: the next segment file has the
    /// last `left` bytes.
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

/// Distributes a batch to frames. The batch has `count` records, each preceded by its length, that are valid only
/// together. `out` takes the payloads of the frames, each at most `limit` bytes long. The first payload begins with a
/// group header.
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
