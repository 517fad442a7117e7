//! Interface to the state that the records of a log are folded into.

use std::fmt::Display;

use super::file_name::FileName;
use super::frame::{Durable, FrameHeader};
use super::image::Image;
use super::record::BadRecord;

/// State that is built from records. The log knows only that records can be applied in order, and that the state can be
/// written as new records.
pub trait Fold: Default {
    /// Error of a record that cannot be applied.
    type Error: Display;

    /// Notes that reading has come to this frame of this file. The next calls of the other functions are about its
    /// records.
    fn frame(&mut self, _file: FileName, _frame: &FrameHeader) {}

    /// Notes that a whole record was read, whose last byte is in the current frame. It is called for group headers too.
    /// For a record of a group, it is called before the end of the group was read, so the record may still be dropped.
    fn record(&mut self, _record: &[u8]) {}

    /// Applies the next record that counts: it is whole and, if it is in a group, the group is complete. It is durable
    /// with frame `lsn`.
    ///
    /// # Errors
    /// Returns an error if the record cannot be applied. No later record may then be applied.
    fn apply(&mut self, lsn: u64, record: &[u8]) -> Result<(), Self::Error>;

    /// Notes that all frames up to one became durable at an instant, on the boot-time clock of the server that wrote
    /// them.
    fn durable(&mut self, durable: Durable);

    /// Passes records to `out` that build this state from an empty one, each without its length.
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
