//! Errands: pieces of slow work on the files of the log, beside the log thread. The keeper thread runs one errand after
//! the other; a simulator runs them at times of its choice.

use super::keeper::{self, CompactError, Space};
use super::{CompactionPlan, ObsoleteFiles, Storage};
use crate::Image;
use std::io;

/// One errand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Errand {
    /// Create the spare and the reserve segment, if they are missing or have another length. The log begins its next
    /// segment in the spare or, if that is missing, in the reserve, even if the disk has become full.
    Prepare,
    /// Fold old segments into a snapshot.
    Compact(CompactionPlan),
    /// Remove files that are no longer needed.
    Remove(ObsoleteFiles),
}

/// The result of an errand, for the log.
#[derive(Debug)]
pub enum Report {
    /// Whether the disk has room for the next segments.
    Space(Space),
    /// Result of the compaction with this plan; on success, its snapshot is durable.
    Compacted(CompactionPlan, Result<(), CompactError>),
    /// Creating the spare or the reserve segment, or removing files, failed with this error.
    Failed(io::Error),
}

impl Errand {
    /// Does the work of this errand on the files of the log. Returns the report for the log thread, or `None` if files
    /// were removed without an error, because the log thread needs no report of that.
    pub fn run(self, storage: &dyn Storage, segment_len: u64) -> Option<Report> {
        match self {
            Self::Prepare => {
                Some(keeper::prepare(storage, segment_len).map_or_else(Report::Failed, Report::Space))
            }
            Self::Compact(plan) => Some(Report::Compacted(plan, keeper::compact::<Image>(storage, &plan))),
            Self::Remove(dead) => keeper::remove(storage, &dead).err().map(Report::Failed),
        }
    }
}
