//! What is kept of a log that is read: what it adds up to, and how much each file has.

use std::collections::BTreeMap;
use std::fmt;

use waymaker_engine::log::{BLOCK_LEN, BadRecord, Durable, FileName, Fold, FrameHeader, Image, Record};

use super::fields::{Field, Namespaces, fields};

/// Where a record stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) file: FileName,
    /// Where its frame begins, in bytes.
    pub(crate) offset: u64,
    /// Of its frame; in a snapshot they are counted anew.
    pub(crate) lsn: u64,
}

/// Takes each record, in order.
pub(crate) type RecordSink = Box<dyn FnMut(&Place, &[(&'static str, Field<'_>)])>;

/// What one file has that counts.
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
    /// The frame whose records are read.
    place: Option<Place>,
    sink: Option<RecordSink>,
    /// For the sink alone.
    namespaces: Namespaces,
}

impl Reader {
    pub(crate) fn new(sink: Option<RecordSink>) -> Self {
        Self { sink, ..Self::default() }
    }

    /// All records were given away: whoever takes them may put them where they belong, before anything else is printed.
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
