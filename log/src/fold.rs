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

    /// Notes that the reader of the log begins this frame of this file. Until the next call, [`Self::record`] gets the
    /// records of this frame. The default implementation does nothing.
    fn frame(&mut self, _file: FileName, _frame: &FrameHeader) {}

    /// Receives each whole record as soon as its last byte is read from the current frame, for example to print it. The
    /// default implementation does nothing. A group header, which precedes records that are valid only together, is
    /// such a record too. A record of a group is passed before the rest of the group is read. If the rest is missing,
    /// [`Self::apply`] never gets the record.
    fn record(&mut self, _record: &[u8]) {}

    /// Applies the next record that is valid: it is whole and, if it belongs to a group, the group is complete. The
    /// record is durable once frame `lsn` is durable.
    ///
    /// # Errors
    /// Returns an error if the record cannot be applied. No later record may then be applied.
    fn apply(&mut self, lsn: u64, record: &[u8]) -> Result<(), Self::Error>;

    /// Tells this state that all frames up to `durable.lsn` were durable at the instant `durable.at_ms`, on the
    /// boot-time clock of the server that wrote them. A lease that begins when its record is durable begins at that
    /// instant.
    fn durable(&mut self, durable: Durable);

    /// Passes records to `out` that, applied to an empty state, give this state. `out` gets each record without its
    /// length field.
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
