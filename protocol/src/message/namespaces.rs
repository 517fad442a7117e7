//! The namespaces of the server, page by page.

use crate::cursor::{Cursor, put_string};
use crate::decode_error::DecodeError;
use crate::frame::{Frame, put_frame};
use crate::limits::{LIST_PAGE_MAX, NAMESPACE_LEN_MAX};
use crate::message::hello::NamespaceKind;
use crate::message::opcode;

/// Opcode of the answer.
pub const NAMESPACES_LISTED: u8 = opcode::NAMESPACES | opcode::ANSWER;

/// Asks for one page of the namespaces of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Namespaces {
    /// 0 for the first page, then what the page before said.
    pub cursor: u64,
    /// Most namespaces in the page; 0 is as many as fit.
    pub count_max: u16,
}

impl Namespaces {
    /// The question in this frame.
    pub fn decode(frame: Frame<'_>) -> Result<Self, DecodeError> {
        frame.checked_flags(0)?;
        let mut cursor = Cursor::new(frame);
        let namespaces = Self { cursor: cursor.u64("cursor")?, count_max: cursor.u16("count_max")? };
        cursor.finish()?;
        Ok(namespaces)
    }

    /// Appends the question as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, opcode::NAMESPACES, 0, number, |out| {
            out.extend_from_slice(&self.cursor.to_le_bytes());
            out.extend_from_slice(&self.count_max.to_le_bytes());
        });
    }
}

/// One namespace, with what happened in it since the server began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ListedNamespace<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Its rules.
    pub kind: NamespaceKind,
    /// How many claims are held now.
    pub held: u64,
    /// How many claims wait now.
    pub waiting: u64,
    /// How many waits ended before the grant.
    pub timeouts: u64,
    /// How many holds ended with their lease.
    pub expired: u64,
    /// How many holds were taken away.
    pub revoked: u64,
}

/// One page. It may be empty although others follow.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct NamespacesListed<'a> {
    /// The cursor of the next page; 0 after the last.
    pub next: u64,
    /// The namespaces.
    pub namespaces: Vec<ListedNamespace<'a>>,
}

impl<'a> NamespacesListed<'a> {
    /// The page in this frame.
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

    /// Appends the page as a frame. Namespaces beyond `LIST_PAGE_MAX` would be cut, so whoever fills a page stops
    /// there.
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
