//! What the records of a log are folded into.

use std::fmt::Display;

use super::file_name::FileName;
use super::frame::{Durable, FrameHeader};
use super::image::Image;
use super::record::BadRecord;

/// What the log knows of the meaning of records: that they can be applied one after the other, and written anew.
pub trait Fold: Default {
    /// Why a record makes no sense.
    type Error: Display;

    /// The records that come next are those of this frame of this file.
    fn frame(&mut self, _file: FileName, _frame: &FrameHeader) {}

    /// The frame has the end of this record, which may be a group header or count only with others.
    fn record(&mut self, _record: &[u8]) {}

    /// Applies the next record that counts, which is durable with frame `lsn`.
    ///
    /// # Errors
    /// If the record makes no sense; nothing behind it is applied then.
    fn apply(&mut self, lsn: u64, record: &[u8]) -> Result<(), Self::Error>;

    /// Notes since when frames were durable, by the boot-time clock of the server that wrote them.
    fn durable(&mut self, durable: Durable);

    /// Hands out records that make this from nothing, each without its length.
    fn write(&self, out: &mut dyn FnMut(&[u8]));
}

impl Fold for Image {
    type Error = BadRecord;

    fn apply(&mut self, lsn: u64, record: &[u8]) -> Result<(), BadRecord> {
        self.apply(lsn, record)
    }

    fn durable(&mut self, durable: Durable) {
        self.durable(durable);
    }

    fn write(&self, out: &mut dyn FnMut(&[u8])) {
        self.write(out);
    }
}
