//! The namespaces of the server, page by page.

use crate::cursor::{Cursor, put_string};
use crate::decode_error::DecodeError;
use crate::frame::{Frame, put_frame};
use crate::limits::{LIST_PAGE_MAX, NAMESPACE_LEN_MAX};
use crate::message::hello::NamespaceKind;
use crate::message::opcode;

/// Opcode of the response to `NAMESPACES`.
pub const NAMESPACES_LISTED: u8 = opcode::NAMESPACES | opcode::ANSWER;

/// Requests one page of the server's namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Namespaces {
    /// Position of the page: 0 for the first page, then `next` of the previous page.
    pub cursor: u64,
    /// Maximum number of namespaces in the page; 0 means as many as fit, at most `LIST_PAGE_MAX`.
    pub count_max: u16,
}

impl Namespaces {
    /// Parses the request from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
    pub fn decode(frame: Frame<'_>) -> Result<Self, DecodeError> {
        frame.checked_flags(0)?;
        let mut cursor = Cursor::new(frame);
        let namespaces = Self { cursor: cursor.u64("cursor")?, count_max: cursor.u16("count_max")? };
        cursor.finish()?;
        Ok(namespaces)
    }

    /// Appends the request as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, opcode::NAMESPACES, 0, number, |out| {
            out.extend_from_slice(&self.cursor.to_le_bytes());
            out.extend_from_slice(&self.count_max.to_le_bytes());
        });
    }
}

/// One namespace with its counters. `timeouts`, `expired` and `revoked` count from the start of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ListedNamespace<'a> {
    /// Name of the namespace.
    pub name: &'a [u8],
    /// Kind of the namespace.
    pub kind: NamespaceKind,
    /// Number of claims that are held. A multi-key claim counts once for each key.
    pub held: u64,
    /// Number of claims that are waiting, including grants that are not durable yet.
    pub waiting: u64,
    /// Number of waits that ended because the maximum wait of their acquire had passed.
    pub timeouts: u64,
    /// Number of holds that ended because their lease expired.
    pub expired: u64,
    /// Number of holds that operators ended with `FORCE_RELEASE`.
    pub revoked: u64,
}

/// One page of namespaces. A page may be empty although other pages follow.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct NamespacesListed<'a> {
    /// Cursor of the next page; 0 after the last page.
    pub next: u64,
    /// The namespaces of this page.
    pub namespaces: Vec<ListedNamespace<'a>>,
}

impl<'a> NamespacesListed<'a> {
    /// Parses the page from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        frame.checked_flags(0)?;
        let mut cursor = Cursor::new(frame);
        let next = cursor.u64("next")?;
        let count = cursor.count("count", usize::from(LIST_PAGE_MAX))?;
        let namespaces =
            (0..count).map(|_| ListedNamespace::decode(&mut cursor)).collect::<Result<_, _>>()?;
        cursor.finish()?;
        Ok(Self { next, namespaces })
    }

    /// Appends the page as a frame. At most `LIST_PAGE_MAX` namespaces are sent and further ones are lost, so the
    /// caller must not add more.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, NAMESPACES_LISTED, 0, number, |out| {
            let namespaces = &self.namespaces[..self.namespaces.len().min(usize::from(LIST_PAGE_MAX))];
            out.extend_from_slice(&self.next.to_le_bytes());
            out.extend_from_slice(&(namespaces.len() as u16).to_le_bytes());
            for namespace in namespaces {
                namespace.encode(out);
            }
        });
    }
}

impl<'a> ListedNamespace<'a> {
    fn decode(cursor: &mut Cursor<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            name: cursor.string("namespace.name", NAMESPACE_LEN_MAX)?,
            kind: NamespaceKind::decode(cursor, "namespace.kind")?,
            held: cursor.u64("namespace.held")?,
            waiting: cursor.u64("namespace.waiting")?,
            timeouts: cursor.u64("namespace.timeouts")?,
            expired: cursor.u64("namespace.expired")?,
            revoked: cursor.u64("namespace.revoked")?,
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_string(out, self.name);
        out.push(self.kind.number());
        for value in [self.held, self.waiting, self.timeouts, self.expired, self.revoked] {
            out.extend_from_slice(&value.to_le_bytes());
        }
    }
}
