//! What may be believed of the frames in segment files.
//!
//! The end of a segment with a successor is where the successor says it is, and everything before it must check. In the
//! last segment the first frame that does not check is the end, unless something shows that it was durable.

use super::block::{BLOCK_LEN, BadBlock};
use super::damage::{Damage, Evidence};
use super::file_name::FileName;
use super::fold::Fold;
use super::frame::{BadFrame, Durable, FrameHeader, Records};
use super::group::Grouped;
use super::segment::SegmentHeader;

/// A frame, by its number and checksum, and so everything before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Position {
    /// The frame; 0 before the first.
    pub lsn: u64,
    /// Its checksum; 0 before the first.
    pub checksum: u32,
}

/// How the last segment ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// There is nothing behind the last whole frame.
    Clean,
    /// There are bytes that make no frame. They were never acknowledged and are dropped.
    Torn {
        /// Where they begin, in bytes.
        offset: u64,
    },
    /// There are frames behind one that is not whole; none of them was acknowledged, and all are dropped.
    OutOfOrder {
        /// Where the frame begins that is not whole, in bytes.
        offset: u64,
        /// How many were found behind it.
        frames: u32,
    },
}

/// A log that is being read, segment after segment.
#[derive(Debug)]
pub struct Recovery<F> {
    grouped: Grouped<F>,
    log_id: u64,
    position: Position,
    /// The newest pair of this start that was believed; behind a snapshot it is not known.
    durable: Option<Durable>,
    generation: u64,
    /// Frames of the segment that was read last.
    frames: u64,
}

impl<F: Fold> Recovery<F> {
    /// Continues behind the end of a snapshot.
    pub fn new(log_id: u64, grouped: Grouped<F>, position: Position) -> Self {
        Self { grouped, log_id, position, durable: None, generation: 0, frames: 0 }
    }

    /// The last frame that was read.
    pub fn position(&self) -> Position {
        self.position
    }

    /// How many frames were kept of the segment that was read last.
    pub fn frames_of_last_segment(&self) -> u64 {
        self.frames
    }

    /// Returns the fold, and the group or record that is incomplete at the end.
    pub fn into_grouped(self) -> Grouped<F> {
        self.grouped
    }

    /// Returns the fold of all complete groups.
    pub fn into_fold(self) -> F {
        self.grouped.into_fold()
    }

    /// Checks that this file can be the next segment, with this number.
    ///
    /// # Errors
    /// If it cannot.
    pub fn header(&self, number: u64, file: &[u8]) -> Result<SegmentHeader, Damage> {
        let name = FileName::Segment(number);
        let header = SegmentHeader::decode(file).map_err(|reason| match reason {
            BadBlock::Short => {
                Damage::Length { file: name, expected: BLOCK_LEN as u64, actual: file.len() as u64 }
            }
            reason => Damage::Block { file: name, offset: 0, reason },
        })?;
        let stranger = |field| Err(Damage::Stranger { file: name, field });
        if header.log_id != self.log_id {
            return stranger("log id");
        }
        if header.number != number {
            return stranger("number");
        }
        if header.generation < self.generation {
            return stranger("generation");
        }
        if header.len != file.len() as u64 {
            return Err(Damage::Length { file: name, expected: header.len, actual: file.len() as u64 });
        }
        Ok(header)
    }

    /// Reads a segment that has a successor.
    ///
    /// # Errors
    /// If a frame before its end does not check, or makes no sense.
    pub fn sealed(
        &mut self,
        header: &SegmentHeader,
        file: &[u8],
        next: &SegmentHeader,
    ) -> Result<(), Damage> {
        self.begin(header)?;
        let evidence = Evidence::LaterSegment(FileName::Segment(next.number));
        let mut block = 1;
        while self.position.lsn < next.after.lsn {
            let (frame, records) = self
                .frame(header, file, block)
                .map_err(|reason| self.damaged(header.number, block, reason, evidence))?;
            self.apply(header.number, &frame, records)?;
            block += (frame.frame_len() / BLOCK_LEN) as u32;
        }
        if self.position != next.after {
            return Err(Damage::Gap {
                file: FileName::Segment(next.number),
                after: next.after.lsn,
                end: self.position.lsn,
            });
        }
        Ok(())
    }

    /// Reads the last segment. `clean_lsn` is the last frame if the server was stopped cleanly, else 0.
    ///
    /// # Errors
    /// If a frame does not check that was durable, or one makes no sense.
    pub fn last(&mut self, header: &SegmentHeader, file: &[u8], clean_lsn: u64) -> Result<Tail, Damage> {
        self.begin(header)?;
        let mut block = 1;
        let reason = loop {
            match self.frame(header, file, block) {
                Ok((frame, records)) => {
                    self.apply(header.number, &frame, records)?;
                    block += (frame.frame_len() / BLOCK_LEN) as u32;
                }
                Err(reason) => break reason,
            }
        };
        let damaged = |evidence| Err(self.damaged(header.number, block, reason, evidence));
        if let BadFrame::NewerVersion(_) = reason {
            return damaged(Evidence::LaterFrame { lsn: 0, offset: offset_of(block) });
        }
        if clean_lsn != 0 && self.position.lsn != clean_lsn {
            return damaged(Evidence::CleanStop(clean_lsn));
        }
        match self.behind(header, file, block) {
            Behind::Durable(evidence) => damaged(evidence),
            Behind::Frames(0) if is_blank(file, block) => Ok(Tail::Clean),
            Behind::Frames(0) => Ok(Tail::Torn { offset: offset_of(block) }),
            Behind::Frames(_) if clean_lsn != 0 => damaged(Evidence::CleanStop(clean_lsn)),
            Behind::Frames(frames) => Ok(Tail::OutOfOrder { offset: offset_of(block), frames }),
        }
    }

    fn begin(&mut self, header: &SegmentHeader) -> Result<(), Damage> {
        if header.after != self.position {
            let file = FileName::Segment(header.number);
            return Err(Damage::Gap { file, after: header.after.lsn, end: self.position.lsn });
        }
        if header.generation != self.generation {
            // Of another start, perhaps on another boot: its instants do not compare with those before.
            self.durable = None;
        }
        self.generation = header.generation;
        self.frames = 0;
        Ok(())
    }

    /// The frame at this block, if it is the next one.
    fn frame<'a>(
        &self,
        header: &SegmentHeader,
        file: &'a [u8],
        block: u32,
    ) -> Result<(FrameHeader, Records<'a>), BadFrame> {
        let origin = header.origin();
        let frame = FrameHeader::decode(&origin, file, block)?;
        let expected = self.position.lsn + 1;
        if frame.fields.lsn != expected {
            return Err(BadFrame::Lsn { found: frame.fields.lsn, expected });
        }
        if frame.fields.previous != self.position.checksum {
            return Err(BadFrame::Chain);
        }
        Ok((frame, frame.records(&origin, file)?))
    }

    fn apply(&mut self, number: u64, frame: &FrameHeader, records: Records<'_>) -> Result<(), Damage> {
        let fields = &frame.fields;
        self.note_durable(frame);
        self.grouped.fold().frame(FileName::Segment(number), frame);
        for record in records {
            self.grouped.take(fields.lsn, record).map_err(|reason| Damage::Record {
                file: FileName::Segment(number),
                offset: offset_of(fields.block),
                lsn: fields.lsn,
                reason,
            })?;
        }
        self.position = Position { lsn: fields.lsn, checksum: frame.checksum };
        self.frames += 1;
        Ok(())
    }

    /// Tells the fold since when more frames are durable, if this frame says so.
    ///
    /// In frames of version 1 the LSN alone rose when a segment was full in the middle of a flush. The instant beside it was the end of
    /// the flush before, too early for a lease. So there an LSN counts only with a later instant, and the first pair of a start
    /// or behind a snapshot, where the instant before is not known, does not count. The leases concerned begin a little later, or anew.
    fn note_durable(&mut self, frame: &FrameHeader) {
        let durable = frame.fields.durable;
        let is_later = match self.durable {
            Some(before) => durable.lsn > before.lsn && (frame.version > 1 || durable.at_ms > before.at_ms),
            None => frame.version > 1 && durable.lsn > 0,
        };
        if is_later {
            self.grouped.fold().durable(durable);
        }
        if is_later || self.durable.is_none() {
            self.durable = Some(durable);
        }
    }

    /// What lies behind the last whole frame. A header that checks is believed even if its records do not: it was
    /// written, and says what was durable by then.
    fn behind(&self, header: &SegmentHeader, file: &[u8], from: u32) -> Behind {
        let (origin, bad_lsn) = (header.origin(), self.position.lsn + 1);
        let blocks = (file.len() / BLOCK_LEN) as u32;
        let mut block = from;
        let mut frames = 0;
        while block < blocks {
            let moved = Behind::Durable(Evidence::Moved { offset: offset_of(block) });
            match FrameHeader::decode(&origin, file, block) {
                Ok(frame) => {
                    let fields = frame.fields;
                    if fields.durable.lsn >= bad_lsn {
                        let offset = offset_of(block);
                        return Behind::Durable(Evidence::LaterFrame { lsn: fields.lsn, offset });
                    }
                    let is_bad_one = block == from;
                    if is_bad_one != (fields.lsn == bad_lsn) || fields.lsn < bad_lsn {
                        return moved;
                    }
                    if is_bad_one && fields.previous != self.position.checksum {
                        return moved;
                    }
                    let is_whole = frame.records(&origin, file).is_ok();
                    frames += u32::from(is_whole);
                    let blocks = if is_whole { frame.frame_len() / BLOCK_LEN } else { 1 };
                    block += blocks as u32;
                }
                Err(BadFrame::Misplaced(_) | BadFrame::NewerVersion(_)) => return moved,
                Err(_) => block += 1,
            }
        }
        Behind::Frames(frames)
    }

    fn damaged(&self, number: u64, block: u32, reason: BadFrame, evidence: Evidence) -> Damage {
        let (file, offset) = (FileName::Segment(number), offset_of(block));
        Damage::Frame { file, offset, lsn: self.position.lsn + 1, reason, evidence }
    }
}

enum Behind {
    /// Something that shows that the bad frame was durable.
    Durable(Evidence),
    /// So many frames that were not.
    Frames(u32),
}

/// Whether this block was never written to; also where the file ends.
fn is_blank(file: &[u8], block: u32) -> bool {
    file.iter().skip(block as usize * BLOCK_LEN).take(BLOCK_LEN).all(|byte| *byte == 0)
}

fn offset_of(block: u32) -> u64 {
    u64::from(block) * BLOCK_LEN as u64
}
