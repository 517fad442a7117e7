//! What the records of a log are folded into.

use std::fmt::Display;

use super::file_name::FileName;
use super::frame::FrameHeader;
use super::image::Image;
use super::record::BadRecord;

/// What the log knows of the meaning of records: that they can be applied one after the other, and written anew.
pub trait Fold: Default {
    /// Why a record makes no sense.
    type Error: Display;

    /// The records that come next are those of this frame of this file.
    fn frame(&mut self, _file: FileName, _frame: &FrameHeader) {}

    /// Applies the next record, which stood in frame `lsn`.
    ///
    /// # Errors
    /// If the record makes no sense; nothing behind it is applied then.
    fn apply(&mut self, lsn: u64, record: &[u8]) -> Result<(), Self::Error>;

    /// The frames up to `lsn` were known to be durable at `at_ms` of the boot-time clock of whoever wrote them.
    fn durable(&mut self, lsn: u64, at_ms: u64);

    /// Hands out records that make this from nothing, each without its length.
    fn write(&self, out: &mut dyn FnMut(&[u8]));
}

impl Fold for Image {
    type Error = BadRecord;

    fn apply(&mut self, lsn: u64, record: &[u8]) -> Result<(), BadRecord> {
        self.apply(lsn, record)
    }

    fn durable(&mut self, lsn: u64, at_ms: u64) {
        self.durable(lsn, at_ms);
    }

    fn write(&self, out: &mut dyn FnMut(&[u8])) {
        self.write(out);
    }
}
