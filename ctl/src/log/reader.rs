//! Folds a log into its final state, and counts the contents of each file.

use std::collections::BTreeMap;
use std::fmt;

use waymaker_log::{BLOCK_LEN, BadRecord, Durable, FileName, Fold, FrameHeader, Image, Record};

use super::fields::{Field, Namespaces, fields};

/// Position of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) file: FileName,
    /// First byte of its frame in the file.
    pub(crate) offset: u64,
    /// Number of its frame. Frames of a snapshot have their own numbers.
    pub(crate) lsn: u64,
}

/// Receives each record, in order.
pub(crate) type RecordSink = Box<dyn FnMut(&Place, &[(&'static str, Field<'_>)])>;

/// Contents of one file that the log uses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Content {
    pub(crate) first_lsn: u64,
    pub(crate) last_lsn: u64,
    pub(crate) frames: u64,
    pub(crate) records: u64,
}

/// Folds a log.
#[derive(Default)]
pub(crate) struct Reader {
    pub(crate) image: Image,
    pub(crate) contents: BTreeMap<FileName, Content>,
    /// Position of the frame whose records are read.
    place: Option<Place>,
    sink: Option<RecordSink>,
    /// Used by the sink only.
    namespaces: Namespaces,
}

impl Reader {
    pub(crate) fn new(sink: Option<RecordSink>) -> Self {
        Self { sink, ..Self::default() }
    }

    /// Drops the sink, which flushes its records before other output.
    pub(crate) fn without_sink(self) -> Self {
        Self { sink: None, ..self }
    }
}

impl Fold for Reader {
    type Error = BadRecord;

    fn frame(&mut self, file: FileName, frame: &FrameHeader) {
        let lsn = frame.fields.lsn;
        let content = self.contents.entry(file).or_insert(Content { first_lsn: lsn, ..Content::default() });
        content.last_lsn = lsn;
        content.frames += 1;
        content.records += u64::from(frame.record_count);
        let offset = u64::from(frame.fields.block) * BLOCK_LEN as u64;
        self.place = Some(Place { file, offset, lsn });
    }

    fn record(&mut self, record: &[u8]) {
        if let (Some(sink), Some(place)) = (&mut self.sink, &self.place)
            && let Ok(record) = Record::decode(record)
        {
            self.namespaces.note(&record);
            sink(place, &fields(&record, &self.namespaces));
        }
    }

    fn apply(&mut self, lsn: u64, record: &[u8]) -> Result<(), BadRecord> {
        self.image.apply(lsn, record)
    }

    fn durable(&mut self, durable: Durable) {
        self.image.durable(durable);
    }

    fn write(&self, out: &mut dyn FnMut(&[u8])) {
        self.image.write(out);
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("contents", &self.contents).finish_non_exhaustive()
    }
}
