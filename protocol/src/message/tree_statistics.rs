//! Counters of a tree namespace as a whole.

use crate::cursor::Cursor;
use crate::decode_error::DecodeError;
use crate::frame::{Frame, header, put_frame};
use crate::message::opcode;

/// Opcode of the answer.
pub const TREE_STATISTICS_ANSWER: u8 = opcode::TREE_STATISTICS | opcode::ANSWER;

/// Asks how much is held and awaited in the tree namespace of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TreeStatistics;

impl TreeStatistics {
    /// The question in this frame.
    pub fn decode(frame: Frame<'_>) -> Result<Self, DecodeError> {
        frame.checked_flags(0)?;
        Cursor::new(frame).finish()?;
        Ok(Self)
    }

    /// Appends the question as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(&header(opcode::TREE_STATISTICS, 0, number, 0));
    }
}

/// The counters of a tree namespace. The paths of a set are counted without those that another path of the same set covers:
/// one that is the same or lies above, where a write covers all and a read covers reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TreeStatisticsAnswer {
    /// Sets that were asked for since the start of the server and not refused, with those that it restored.
    pub sets: u64,
    /// Sets that wait.
    pub waiting_sets: u64,
    /// Sets that are held.
    pub held_sets: u64,
    /// Paths of sets that wait.
    pub waiting_paths: u64,
    /// Paths of sets that are held.
    pub held_paths: u64,
    /// Distinct paths of all sets.
    pub distinct_paths: u64,
    /// Segments of the paths of all sets, each as often as it is there, and one for the namespace itself.
    pub segments: u64,
    /// Distinct segments of the paths of all sets, and one for the namespace itself.
    pub distinct_segments: u64,
}

impl TreeStatisticsAnswer {
    /// The answer in this frame.
    pub fn decode(frame: Frame<'_>) -> Result<Self, DecodeError> {
        frame.checked_flags(0)?;
        let mut cursor = Cursor::new(frame);
        let answer = Self {
            sets: cursor.u64("sets")?,
            waiting_sets: cursor.u64("waiting_sets")?,
            held_sets: cursor.u64("held_sets")?,
            waiting_paths: cursor.u64("waiting_paths")?,
            held_paths: cursor.u64("held_paths")?,
            distinct_paths: cursor.u64("distinct_paths")?,
            segments: cursor.u64("segments")?,
            distinct_segments: cursor.u64("distinct_segments")?,
        };
        cursor.finish()?;
        Ok(answer)
    }

    /// Appends the answer as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, TREE_STATISTICS_ANSWER, 0, number, |out| {
            for value in [
                self.sets,
                self.waiting_sets,
                self.held_sets,
                self.waiting_paths,
                self.held_paths,
                self.distinct_paths,
                self.segments,
                self.distinct_segments,
            ] {
                out.extend_from_slice(&value.to_le_bytes());
            }
        });
    }
}
