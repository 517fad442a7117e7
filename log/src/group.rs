//! Joins the stored parts of long records, and holds back the records of each group until the group is complete.
//!
//! A record that is longer than a frame is stored as several [`Record::Part`]s. Records that are valid only together
//! follow a group header ([`Record::Group`]). A long record or a group may begin in one frame or segment and end in
//! another, so recovery reads the whole log through one [`Grouped`]. A snapshot contains the whole state of the
//! [`Grouped`]: the folded records, and at the end the incomplete group or record.

use super::fold::Fold;
use super::record::{BadRecord, Record, Stored};

/// State (`fold`) to which all complete records were applied, and the stored records that wait for the rest of their
/// group or record.
#[derive(Debug, Default)]
pub struct Grouped<F> {
    fold: F,
    part: Option<Unfinished>,
    group: Group,
}

/// Beginning of a record whose other parts were not read yet.
#[derive(Debug)]
struct Unfinished {
    bytes: Vec<u8>,
    /// Number of bytes of the record that were not read yet.
    left: u32,
}

/// Beginning of a group whose other records were not read yet.
#[derive(Debug, Default)]
struct Group {
    records: Vec<Box<[u8]>>,
    /// Number of records of the group that were not read yet; 0 outside of a group.
    left: u32,
}

impl<F: Fold> Grouped<F> {
    /// Returns a reader of stored records that starts without an incomplete group or record. Complete records will be
    /// applied to `fold`.
    pub fn new(fold: F) -> Self {
        Self { fold, part: None, group: Group::default() }
    }

    /// Returns the state to which all complete groups and records were applied.
    pub fn fold(&mut self) -> &mut F {
        &mut self.fold
    }

    /// Returns the state to which all complete groups and records were applied. Drops the records of an incomplete
    /// group, and the parts of an incomplete record.
    pub fn into_fold(self) -> F {
        self.fold
    }

    /// Processes the next stored record of frame `lsn`: a whole record, a part of a long record, or a group header.
    ///
    /// # Errors
    /// Returns an error if the record is malformed. No later record may then be taken.
    pub fn take(&mut self, lsn: u64, stored: &[u8]) -> Result<(), String> {
        match Stored::of(stored).map_err(text)? {
            Stored::Part { left, bytes } => {
                let Some(record) = self.join(left, bytes).map_err(text)? else { return Ok(()) };
                match Stored::of(&record).map_err(text)? {
                    Stored::Whole => self.take_whole(lsn, &record),
                    _ => Err(text(BadRecord("records of this kind are not stored in parts"))),
                }
            }
            Stored::Started => {
                // A `Started` record is the first record of a server start. So the previous server ended before it had
                // written the rest of this group or record. No client got a response that depends on it, so the
                // unfinished group or record is dropped.
                (self.part, self.group) = (None, Group::default());
                self.take_whole(lsn, stored)
            }
            _ if self.part.is_some() => Err(text(BadRecord("a part of the previous record is missing"))),
            Stored::Group { .. } if self.group.left > 0 => {
                Err(text(BadRecord("a group inside another group")))
            }
            Stored::Group { count } => {
                self.fold.record(stored);
                self.group.left = count;
                Ok(())
            }
            Stored::Whole => self.take_whole(lsn, stored),
        }
    }

    /// Passes records to `out` that, read in this order by an empty `Grouped`, give the same state. The records have no
    /// length field.
    pub(super) fn write(&self, out: &mut dyn FnMut(Written<'_>)) {
        self.fold.write(&mut |record| out(Written::Whole(record)));
        if self.group.left > 0 {
            let mut header = Vec::new();
            Record::Group { count: self.group.left + self.group.records.len() as u32 }.encode(&mut header);
            out(Written::Whole(&header[4..]));
            self.group.records.iter().for_each(|record| out(Written::Whole(record)));
        }
        if let Some(Unfinished { bytes, left }) = &self.part {
            out(Written::Beginning { bytes, left: *left });
        }
    }

    /// Adds a part of a long record. Returns the whole record if this was its last part, otherwise `None`.
    fn join(&mut self, left: u32, bytes: &[u8]) -> Result<Option<Vec<u8>>, BadRecord> {
        let part = self.part.get_or_insert_with(|| Unfinished {
            bytes: Vec::new(),
            left: left.saturating_add(bytes.len() as u32),
        });
        if part.left.checked_sub(bytes.len() as u32) != Some(left) {
            return Err(BadRecord("a part of another record"));
        }
        part.bytes.extend_from_slice(bytes);
        part.left = left;
        Ok(if left == 0 { self.part.take().map(|part| part.bytes) } else { None })
    }

    fn take_whole(&mut self, lsn: u64, record: &[u8]) -> Result<(), String> {
        self.fold.record(record);
        if self.group.left == 0 {
            return self.fold.apply(lsn, record).map_err(text);
        }
        self.group.records.push(record.into());
        self.group.left -= 1;
        if self.group.left == 0 {
            // The group becomes durable only with its last record, so all its records are applied with the frame number
            // (LSN) of that record.
            let records = std::mem::take(&mut self.group.records);
            return records.iter().try_for_each(|record| self.fold.apply(lsn, record)).map_err(text);
        }
        Ok(())
    }
}

/// Piece of a snapshot.
pub(super) enum Written<'a> {
    /// Whole record.
    Whole(&'a [u8]),
    /// Beginning of a record whose other `left` bytes follow in the segment after the snapshot.
    Beginning { bytes: &'a [u8], left: u32 },
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
