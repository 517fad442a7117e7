//! Counters of a whole tree namespace.

use crate::cursor::Cursor;
use crate::decode_error::DecodeError;
use crate::frame::{Frame, header, put_frame};
use crate::message::opcode;

/// Opcode of the response to `TREE_STATISTICS`.
pub const TREE_STATISTICS_ANSWER: u8 = opcode::TREE_STATISTICS | opcode::ANSWER;

/// Requests the counters of the connection's tree namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TreeStatistics;

impl TreeStatistics {
    /// Parses the request from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
    pub fn decode(frame: Frame<'_>) -> Result<Self, DecodeError> {
        frame.checked_flags(0)?;
        Cursor::new(frame).finish()?;
        Ok(Self)
    }

    /// Appends the request as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(&header(opcode::TREE_STATISTICS, 0, number, 0));
    }
}

/// The counters of a tree namespace.
///
/// A path that another path of the same set covers is not counted. A path covers equal paths and the paths below it: a
/// write covers reads and writes, a read covers only reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TreeStatisticsAnswer {
    /// Number of sets of paths that were requested since the start of the server. Includes the sets restored at the
    /// start, but no refused sets.
    pub sets: u64,
    /// Number of sets that are waiting.
    pub waiting_sets: u64,
    /// Number of sets that are held.
    pub held_sets: u64,
    /// Number of paths of waiting sets.
    pub waiting_paths: u64,
    /// Number of paths of held sets.
    pub held_paths: u64,
    /// Number of distinct paths of all sets.
    pub distinct_paths: u64,
    /// Number of segments in the paths of all sets, counted with repetitions, plus one for the namespace itself.
    pub segments: u64,
    /// Number of distinct segments in the paths of all sets, plus one for the namespace itself.
    pub distinct_segments: u64,
}

impl TreeStatisticsAnswer {
    /// Parses the response from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
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

    /// Appends the response as a frame.
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
