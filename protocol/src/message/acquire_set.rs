//! Acquire a set of paths as one hold.

use crate::cursor::{Cursor, put_string};
use crate::decode_error::DecodeError;
use crate::frame::{Frame, put_frame};
use crate::items::{Item, Items};
use crate::limits::{ITEM_COUNT_MAX, PATH_KEY_LEN_MAX};
use crate::message::acquire::{AcquireOptions, flag};
use crate::message::opcode;
use crate::path::PathKey;

/// The flags of `ACQUIRE` that `ACQUIRE_SET` has too: what is shared is said path by path, and all wait in order.
pub const FLAGS: u16 = flag::ALL & !(flag::SHARED | flag::PRIORITY);

/// Asks for one hold on several paths of a tree namespace, granted as a whole. Answered with `GRANTED`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct AcquireSet<'a> {
    /// Length of the lease; 0 is the server's default, `LEASE_NONE_MS` is none, which needs `release_after_ms`.
    pub lease_ms: u32,
    /// How long to wait for the grant; 0 is a try, `WAIT_FOREVER_MS` waits until cancelled.
    pub wait_ms: u32,
    /// The lease is the session's.
    pub session_lease: bool,
    /// Send `QUEUED` when the claim has to wait.
    pub notify_queued: bool,
    /// 1 to `ITEM_COUNT_MAX` paths. They may overlap and repeat each other.
    pub items: Items<'a, PathItem<'a>>,
    /// What most claims leave out. There is no `priority`; one that is set is not sent.
    pub options: AcquireOptions<'a>,
}

/// One path of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PathItem<'a> {
    /// Alone on the path and everything below it; without it, shared with other readers.
    pub write: bool,
    /// The path; the one without segments is the whole namespace.
    pub path: PathKey<'a>,
}

impl<'a> AcquireSet<'a> {
    /// The acquire in this frame.
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        let flags = frame.checked_flags(FLAGS)?;
        let mut cursor = Cursor::new(frame);
        let acquire = Self {
            lease_ms: cursor.u32("lease_ms")?,
            wait_ms: cursor.u32("wait_ms")?,
            session_lease: flags & flag::SESSION_LEASE != 0,
            notify_queued: flags & flag::NOTIFY_QUEUED != 0,
            items: Items::decode(&mut cursor)?,
            options: AcquireOptions::decode(flags, &mut cursor)?,
        };
        cursor.finish()?;
        Ok(acquire)
    }

    /// Appends the acquire as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        let options = AcquireOptions { priority: None, ..self.options };
        let flags = options.flags()
            | if self.session_lease { flag::SESSION_LEASE } else { 0 }
            | if self.notify_queued { flag::NOTIFY_QUEUED } else { 0 };
        put_frame(out, opcode::ACQUIRE_SET, flags, number, |out| {
            out.extend_from_slice(&self.lease_ms.to_le_bytes());
            out.extend_from_slice(&self.wait_ms.to_le_bytes());
            self.items.encode(out);
            options.encode(out);
        });
    }
}

impl<'a> Item<'a> for PathItem<'a> {
    const COUNT_MAX: usize = ITEM_COUNT_MAX;

    #[inline]
    fn decode(cursor: &mut Cursor<'a>) -> Result<Self, DecodeError> {
        let write = cursor.bool("item.write")?;
        let path = cursor.string("item.path", PATH_KEY_LEN_MAX)?;
        Ok(Self { write, path: PathKey::of_field("item.path", path)? })
    }

    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.write));
        put_string(out, self.path.as_bytes());
    }
}
