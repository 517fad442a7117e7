//! The durable log of this server: the store of `waymaker-log`, with the effects that wait for its records.

use crate::deferred::DeferredEffect;
use waymaker_log::store::{port, thread};

/// A batch of records for the log, with the effects (responses, events and grants) that wait until the records are
/// durable.
pub type LogBatch = port::LogBatch<DeferredEffect>;
/// Order to the log thread of this server.
pub type LogOrder = port::LogOrder<DeferredEffect>;
/// Port to which the workers of this server post their records.
pub type LogPort = port::LogPort<DeferredEffect>;
/// The log thread of this server.
pub type LogThread = thread::LogThread<DeferredEffect>;
/// Configuration of the log thread of this server.
pub type LogThreadConfig = thread::LogThreadConfig<DeferredEffect>;
