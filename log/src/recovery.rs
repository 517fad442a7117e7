//! Decision which frames of segment files to trust.
//!
//! The header of the next segment says where a segment ends, and all frames before that end must be intact. The last
//! segment has no successor. Its frames end before the first frame that is not intact, unless there is proof that this
//! frame was durable.
//!
//! A server start appends behind the last frame that it found, and overwrites the bytes there. The superblock has that
//! frame and the number of the start. Behind that frame, only frames with this start number are valid. So no frame that
//! an earlier start dropped becomes valid again.

use super::block::{BLOCK_LEN, BadBlock};
use super::damage::{Damage, Evidence};
use super::file_name::FileName;
use super::file_reader::FileReader;
use super::fold::Fold;
use super::frame::{BadFrame, Durable, FRAME_LIMIT, FrameHeader, Records};
use super::group::Grouped;
use super::segment::SegmentHeader;
use super::superblock::Superblock;
use std::ops::RangeInclusive;

/// Position in the log: the number and checksum of a frame, which identify the frame and everything before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Position {
    /// Number of the frame; 0 before the first frame.
    pub lsn: u64,
    /// Checksum of the frame; 0 before the first frame. Also 0 if the checksum is unknown, because the log was restored
    /// from a backup or continued after accepted damage.
    pub checksum: u32,
}

/// State of the bytes behind the last intact frame in the last segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// The block behind the last intact frame was never written, or the file ends there. Further behind, the file has
    /// no intact frame of the last server start that wrote to the log. (After a crash, it could have one: the disk may
    /// lose a frame and keep later ones.)
    Clean,
    /// The last intact frame is followed by a frame that was not written completely, or by frames that the last server
    /// start dropped. No intact frame of that start follows. No client was told of their records, and they are dropped.
    Torn {
        /// Offset in the file, in bytes, of the first byte behind the last intact frame.
        offset: u64,
    },
    /// A frame is not intact, but whole frames follow it. The disk may write unsynced frames in any order before a
    /// crash, so no client was told of their records. All of them are dropped.
    OutOfOrder {
        /// Offset of the frame that is not intact, in bytes.
        offset: u64,
        /// Number of intact frames found behind the frame that is not intact.
        frames: u32,
    },
}

/// End of the last segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// What follows the last intact frame.
    pub tail: Tail,
    /// Number of the first block behind the last intact frame.
    pub block: u32,
}

/// Reader of a log, segment after segment, and the state that results from the records so far.
#[derive(Debug)]
pub struct Recovery<F> {
    grouped: Grouped<F>,
    log_id: u64,
    position: Position,
    /// Durable position that `note_durable` took last from a frame header of the server start `generation`. `None`
    /// before the first frame of that start. `None` also directly after a snapshot, because a snapshot does not store
    /// it.
    durable: Option<Durable>,
    /// Number of the server start that wrote the last frame, or that began the segment which is read now.
    generation: u64,
}

impl<F: Fold> Recovery<F> {
    /// Returns a reader that continues with the frame after `position`. `grouped` must have all records up to
    /// `position`.
    pub fn new(log_id: u64, grouped: Grouped<F>, position: Position) -> Self {
        Self { grouped, log_id, position, durable: None, generation: 0 }
    }

    /// Returns the position of the last frame that was read, or of the frame after which the reading begins.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Returns the state that results from all records, with the group or record that is incomplete at the end.
    pub fn into_grouped(self) -> Grouped<F> {
        self.grouped
    }

    /// Returns the state to which all complete records and groups were applied.
    pub fn into_fold(self) -> F {
        self.grouped.into_fold()
    }

    /// Checks the header and the length of this file, but no frames. The file must be the segment of this log with this
    /// number. The server start that created it must not be older than the start of the last frame. Returns the header.
    ///
    /// # Errors
    /// Returns an error if the header is damaged, the length is wrong, or it is another file.
    pub fn header(&self, number: u64, file: &mut dyn FileReader) -> Result<SegmentHeader, Damage> {
        let name = FileName::Segment(number);
        let actual = file.file_len();
        let block = read(file, name, 0, BLOCK_LEN)?;
        let header = SegmentHeader::decode(block).map_err(|reason| match reason {
            BadBlock::Short => Damage::Length { file: name, expected: BLOCK_LEN as u64, actual },
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
        if header.len != actual {
            return Err(Damage::Length { file: name, expected: header.len, actual });
        }
        Ok(header)
    }

    /// Reads a segment that has a successor.
    ///
    /// # Errors
    /// Returns an error if a frame before its end is not intact or has a malformed record. Also if the segment and its
    /// neighbours do not fit together.
    pub fn sealed(
        &mut self,
        header: &SegmentHeader,
        file: &mut dyn FileReader,
        next: &SegmentHeader,
    ) -> Result<(), Damage> {
        self.begin(header)?;
        let mut block = 1;
        let evidence = Evidence::LaterSegment(FileName::Segment(next.number));
        while self.position.lsn < next.after.lsn {
            let generations = self.generation..=next.generation;
            let (frame, records) = self
                .frame(header, file, block, generations)?
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

    /// Reads the last segment of a log, and applies the records of its intact frames. The superblock says which frames
    /// must exist: all frames up to `start` and, after a clean stop, up to `clean_lsn`. Frames behind `start` belong to
    /// the log only if the newest server start wrote them. Returns where the frames end, and what follows them.
    ///
    /// # Errors
    /// Returns an error if a durable frame is not intact, or a frame has a malformed record. Also if frames are at
    /// positions where no crash can leave them.
    pub fn last(
        &mut self,
        header: &SegmentHeader,
        file: &mut dyn FileReader,
        superblock: &Superblock,
    ) -> Result<End, Damage> {
        self.begin(header)?;
        let mut block = 1;
        let Superblock { start, clean_lsn, .. } = *superblock;
        // If the log has no segment, a server start first creates one with its own number (`generation`), and then
        // writes that number to the superblock. After a crash in between, the segment has a higher `generation` than
        // the superblock.
        let newest = superblock.generation.max(header.generation);
        let reason = loop {
            // The last start dropped all frames after the last frame that it found (`start.lsn`). So only frames that
            // it wrote itself are valid after that frame.
            let oldest = if self.position.lsn < start.lsn { self.generation } else { newest };
            match self.frame(header, file, block, oldest..=newest)? {
                Ok((frame, _)) if frame.fields.lsn == start.lsn && frame.checksum != start.checksum => {
                    break BadFrame::Checksum;
                }
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
        if self.position.lsn < start.lsn {
            return damaged(Evidence::LaterStart(start.lsn));
        }
        let name = FileName::Segment(header.number);
        let tail = match self.behind(header, file, block, newest)? {
            Remainder::Durable(evidence) => return damaged(evidence),
            Remainder::Frames(0) if is_blank(read(file, name, offset_of(block), BLOCK_LEN)?) => Tail::Clean,
            Remainder::Frames(0) => Tail::Torn { offset: offset_of(block) },
            Remainder::Frames(_) if clean_lsn != 0 => return damaged(Evidence::CleanStop(clean_lsn)),
            Remainder::Frames(frames) => Tail::OutOfOrder { offset: offset_of(block), frames },
        };
        Ok(End { tail, block })
    }

    /// Begins to read the next segment. Checks that its first frame follows the last frame that was read.
    fn begin(&mut self, header: &SegmentHeader) -> Result<(), Damage> {
        if header.after != self.position {
            let file = FileName::Segment(header.number);
            return Err(Damage::Gap { file, after: header.after.lsn, end: self.position.lsn });
        }
        self.enter(header.generation);
        Ok(())
    }

    /// Continues with frames of this server start.
    fn enter(&mut self, generation: u64) {
        if generation != self.generation {
            // The machine may have been rebooted between two starts, so the instants in frames of this start cannot be
            // compared with those of the start before it.
            self.durable = None;
        }
        self.generation = generation;
    }

    /// Reads the frame at this block. Returns a [`BadFrame`] unless it is the intact next frame of the log, and one of
    /// the starts in `generations` wrote it.
    fn frame<'a>(
        &self,
        header: &SegmentHeader,
        file: &'a mut dyn FileReader,
        block: u32,
        generations: RangeInclusive<u64>,
    ) -> Result<Result<(FrameHeader, Records<'a>), BadFrame>, Damage> {
        let bytes = read(file, FileName::Segment(header.number), offset_of(block), FRAME_LIMIT)?;
        Ok(self.next_frame(header, bytes, block, generations))
    }

    fn next_frame<'a>(
        &self,
        header: &SegmentHeader,
        bytes: &'a [u8],
        block: u32,
        generations: RangeInclusive<u64>,
    ) -> Result<(FrameHeader, Records<'a>), BadFrame> {
        let origin = header.origin();
        let frame = FrameHeader::decode_at(&origin, bytes, block)?;
        let expected = self.position.lsn + 1;
        if frame.fields.lsn != expected {
            return Err(BadFrame::Lsn { found: frame.fields.lsn, expected });
        }
        if !generations.contains(&frame.generation) {
            return Err(BadFrame::Generation(frame.generation));
        }
        if frame.fields.previous != self.position.checksum {
            return Err(BadFrame::Chain);
        }
        Ok((frame, frame.records_at(&origin, bytes)?))
    }

    fn apply(&mut self, number: u64, frame: &FrameHeader, records: Records<'_>) -> Result<(), Damage> {
        let fields = &frame.fields;
        self.enter(frame.generation);
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
        Ok(())
    }

    /// Passes the durable position in the header of this frame to `fold`, if it is later than the last one that was
    /// noted.
    ///
    /// The header of a frame has the LSN (number) of the last durable frame, and the instant at which that frame became
    /// durable. In version 1, a segment that became full in the middle of a flush raised only the LSN. The instant
    /// beside it was the end of the previous flush. A lease that begins there would end too early, while its client
    /// still relies on it. So a durable LSN of version 1 begins leases only if the instant beside it has risen too. In
    /// version 1, the first position of a start, or after a snapshot, is not used either, because the instant before it
    /// is unknown. The affected leases begin a little later, or in full at the next start.
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

    /// Searches behind the last intact frame for frames of the newest server start. The search also uses a frame with
    /// an intact header but damaged records: its header says up to which frame the log was durable when it was built.
    /// If the missing frame was durable then, the log is damaged. It is also damaged if a frame does not belong at its
    /// position, has a newer format version, or names a start newer than `newest`. Otherwise, the intact frames are
    /// counted. Frames of earlier starts are skipped: the newest start continued the log before them, so they are not
    /// part of it any more.
    fn behind(
        &self,
        header: &SegmentHeader,
        file: &mut dyn FileReader,
        from: u32,
        newest: u64,
    ) -> Result<Remainder, Damage> {
        let (origin, bad_lsn) = (header.origin(), self.position.lsn + 1);
        let blocks = (file.file_len() / BLOCK_LEN as u64) as u32;
        let mut block = from;
        let mut frames = 0;
        while block < blocks {
            let moved = Remainder::Durable(Evidence::Moved { offset: offset_of(block) });
            let bytes = read(file, FileName::Segment(header.number), offset_of(block), FRAME_LIMIT)?;
            match FrameHeader::decode_at(&origin, bytes, block) {
                Ok(frame) if frame.generation < newest => block += 1,
                Ok(frame) if frame.generation > newest => {
                    // A start writes its number to the superblock before it writes its first frame. So this superblock
                    // was written before the start that wrote the frame, and cannot say which frames were durable.
                    let offset = offset_of(block);
                    return Ok(Remainder::Durable(Evidence::LaterFrame { lsn: frame.fields.lsn, offset }));
                }
                Ok(frame) => {
                    let fields = frame.fields;
                    if fields.durable.lsn >= bad_lsn {
                        let offset = offset_of(block);
                        return Ok(Remainder::Durable(Evidence::LaterFrame { lsn: fields.lsn, offset }));
                    }
                    let is_bad_one = block == from;
                    if is_bad_one != (fields.lsn == bad_lsn) || fields.lsn < bad_lsn {
                        return Ok(moved);
                    }
                    if is_bad_one && fields.previous != self.position.checksum {
                        return Ok(moved);
                    }
                    let is_whole = frame.records_at(&origin, bytes).is_ok();
                    frames += u32::from(is_whole);
                    let blocks = if is_whole { frame.frame_len() / BLOCK_LEN } else { 1 };
                    block += blocks as u32;
                }
                Err(BadFrame::Misplaced(_) | BadFrame::NewerVersion(_)) => return Ok(moved),
                Err(_) => block += 1,
            }
        }
        Ok(Remainder::Frames(frames))
    }

    fn damaged(&self, number: u64, block: u32, reason: BadFrame, evidence: Evidence) -> Damage {
        let (file, offset) = (FileName::Segment(number), offset_of(block));
        Damage::Frame { file, offset, lsn: self.position.lsn + 1, reason, evidence }
    }
}

enum Remainder {
    /// Proof that the log is damaged, for example that the frame that is not intact was durable.
    Durable(Evidence),
    /// Number of intact frames after the frame that is not intact. None of them proves that this frame was durable.
    Frames(u32),
}

/// Whether all bytes of a block are zero, as in a block that was never written. `true` for an empty slice too, which is
/// read at the end of the file.
fn is_blank(block: &[u8]) -> bool {
    block.iter().all(|byte| *byte == 0)
}

/// Reads bytes of a file. If they cannot be read, returns this as damage, and never treats it as the end of the file.
pub(super) fn read(
    reader: &mut dyn FileReader,
    file: FileName,
    offset: u64,
    len: usize,
) -> Result<&[u8], Damage> {
    reader.read_at(offset, len).map_err(|reason| Damage::Unreadable { file, reason })
}

fn offset_of(block: u32) -> u64 {
    u64::from(block) * BLOCK_LEN as u64
}
