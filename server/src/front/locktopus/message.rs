//! Client messages, decoded with the rules of Go's `encoding/json`, and the server's answers.

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::marker::PhantomData;
use waymaker_protocol::limits::{ITEM_COUNT_MAX, SEGMENT_COUNT_MAX};
use waymaker_protocol::{DecodeError, PathItem, PathKey};

/// Maximum length of a message in bytes. The request that the server makes from a message for the worker is shorter
/// than the message, so it fits in a frame.
pub(super) const MESSAGE_LEN_MAX: usize = waymaker_protocol::limits::FRAME_LEN_MAX;

/// Action that a client requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Acquire a set of resources.
    Lock,
    /// Release the resources, or leave the queue.
    Release,
}

/// State of a connection as clients see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// No lock is held or waiting.
    Ready,
    /// The requested lock is waiting.
    Enqueued,
    /// The requested lock is held.
    Acquired,
}

/// Client message: an action and at most one set of resources.
#[derive(Debug, Default)]
pub(super) struct Message<'a> {
    /// The action as sent; not validated yet.
    action: Text<'a>,
    resources: Vec<Resource<'a>>,
}

/// One resource of a set; not validated yet.
#[derive(Debug, Default)]
struct Resource<'a> {
    lock_type: Text<'a>,
    path: Option<Vec<Text<'a>>>,
}

/// Error in a message. Clients receive these texts; some of them equal the texts of the original server.
#[derive(Debug, thiserror::Error)]
pub(super) enum MessageError {
    /// The message is empty or truncated.
    #[error("unexpected EOF")]
    Cut,
    /// The message is not JSON, or a member has the wrong type.
    #[error("{0}")]
    Json(serde_json::Error),
    /// The action is unknown.
    #[error("invalid action: {0}")]
    UnknownAction(String),
    /// The lock type is unknown.
    #[error("cannot build resource lock: invalid lock type: {0}")]
    UnknownLockType(String),
    /// A resource has no path. The original Locktopus server locked the whole namespace in this case, which is hardly
    /// ever intended.
    #[error("cannot build resource lock: a resource has no path; the path of the whole namespace is []")]
    NoPath,
    /// The set of resources is empty.
    #[error("cannot build resource lock: there are no resources")]
    NoResources,
    /// The set has too many resources.
    #[error("cannot build resource lock: more than {limit} resources")]
    TooManyResources {
        /// Maximum number of resources.
        limit: usize,
    },
    /// A path exceeds its limits.
    #[error("cannot build resource lock: {0}")]
    Path(DecodeError),
}

impl<'a> Message<'a> {
    /// Decodes the first JSON value in these bytes and ignores the bytes that follow it.
    pub(super) fn decode(bytes: &'a [u8]) -> Result<Self, MessageError> {
        let mut deserializer = serde_json::Deserializer::from_slice(bytes);
        let message = Option::<Self>::deserialize(&mut deserializer)
            .map_err(|error| if error.is_eof() { MessageError::Cut } else { MessageError::Json(error) })?;
        Ok(message.unwrap_or_default())
    }

    /// Returns the requested action.
    pub(super) fn action(&self) -> Result<Action, MessageError> {
        match &*self.action.0 {
            b"lock" => Ok(Action::Lock),
            b"release" => Ok(Action::Release),
            other => Err(MessageError::UnknownAction(String::from_utf8_lossy(other).into_owned())),
        }
    }

    /// Validates the resources and returns them as a set.
    pub(super) fn into_set(self) -> Result<LockSet, MessageError> {
        if self.resources.is_empty() {
            return Err(MessageError::NoResources);
        }
        if self.resources.len() > ITEM_COUNT_MAX {
            return Err(MessageError::TooManyResources { limit: ITEM_COUNT_MAX });
        }
        let mut set = LockSet::default();
        for resource in self.resources {
            let write = resource.is_write()?;
            let path = resource.path.ok_or(MessageError::NoPath)?.into_iter().map(|Text(segment)| segment);
            let start = set.path_keys.len();
            PathKey::append(path, &mut set.path_keys).map_err(MessageError::Path)?;
            set.items.push((write, start..set.path_keys.len()));
        }
        Ok(set)
    }
}

impl Resource<'_> {
    fn is_write(&self) -> Result<bool, MessageError> {
        let is = |name: &str| self.lock_type.0.eq_ignore_ascii_case(name.as_bytes());
        if is("w") || is("write") {
            Ok(true)
        } else if is("r") || is("read") {
            Ok(false)
        } else {
            let name = String::from_utf8_lossy(&self.lock_type.0).into_owned();
            Err(MessageError::UnknownLockType(name))
        }
    }
}

/// Validated set of resources to lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LockSet {
    path_keys: Vec<u8>,
    /// For each resource: whether it is locked for writing, and the range of its path key in `path_keys`.
    items: Vec<(bool, std::ops::Range<usize>)>,
}

impl LockSet {
    /// Returns the resources as items of a worker request.
    pub(super) fn items(&self) -> impl Iterator<Item = PathItem<'_>> {
        self.items.iter().filter_map(|(write, range)| {
            // `PathKey::new` never fails, because the path was validated when it was appended.
            let path = PathKey::new(&self.path_keys[range.clone()]).ok()?;
            Some(PathItem { write: *write, path })
        })
    }
}

impl<'de> Deserialize<'de> for Message<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MessageVisitor;
        impl<'de> Visitor<'de> for MessageVisitor {
            type Value = Message<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a message")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Message<'de>, A::Error> {
                let mut message = Message::default();
                while let Some(Text(name)) = members.next_key()? {
                    if name.eq_ignore_ascii_case(b"action") {
                        set_text(&mut message.action, members.next_value()?);
                    } else if name.eq_ignore_ascii_case(b"resources") {
                        let list: Option<List<Resource<'_>, ITEM_COUNT_MAX>> = members.next_value()?;
                        message.resources = list.map_or_else(Vec::new, |list| list.0);
                    } else {
                        members.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(message)
            }
        }
        deserializer.deserialize_map(MessageVisitor)
    }
}

impl<'de> Deserialize<'de> for Resource<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ResourceVisitor;
        impl<'de> Visitor<'de> for ResourceVisitor {
            type Value = Resource<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a resource")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Resource<'de>, A::Error> {
                let mut resource = Resource::default();
                while let Some(Text(name)) = members.next_key()? {
                    if name.eq_ignore_ascii_case(b"type") {
                        set_text(&mut resource.lock_type, members.next_value()?);
                    } else if name.eq_ignore_ascii_case(b"path") {
                        let list: Option<List<Text<'_>, SEGMENT_COUNT_MAX>> = members.next_value()?;
                        resource.path = list.map(|list| list.0);
                    } else {
                        members.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(resource)
            }
        }
        deserializer.deserialize_map(ResourceVisitor)
    }
}

/// Sets a text member. As in Go, a null leaves the previous value unchanged.
fn set_text<'a>(text: &mut Text<'a>, value: Option<Text<'a>>) {
    if let Some(value) = value {
        *text = value;
    }
}

/// Unescaped JSON string as bytes that need not be UTF-8, so that distinct strings stay distinct paths. Copied only if
/// it contains an escape.
#[derive(Debug, Default)]
struct Text<'a>(Cow<'a, [u8]>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string")
            }

            fn visit_borrowed_bytes<E>(self, bytes: &'de [u8]) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(bytes)))
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(bytes.to_vec())))
            }
        }
        deserializer.deserialize_bytes(TextVisitor)
    }
}

/// JSON list that keeps at most `LEN_MAX + 1` values, enough to detect that it is too long. A null in the list becomes
/// the default value.
struct List<T, const LEN_MAX: usize>(Vec<T>);

impl<'de, T: Deserialize<'de> + Default, const LEN_MAX: usize> Deserialize<'de> for List<T, LEN_MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListVisitor<T, const LEN_MAX: usize>(PhantomData<T>);
        impl<'de, T: Deserialize<'de> + Default, const LEN_MAX: usize> Visitor<'de> for ListVisitor<T, LEN_MAX> {
            type Value = List<T, LEN_MAX>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Self::Value, A::Error> {
                let mut list = Vec::new();
                while list.len() <= LEN_MAX {
                    let Some(value) = values.next_element::<Option<T>>()? else { return Ok(List(list)) };
                    list.push(value.unwrap_or_default());
                }
                while values.next_element::<IgnoredAny>()?.is_some() {}
                Ok(List(list))
            }
        }
        deserializer.deserialize_seq(ListVisitor(PhantomData))
    }
}

/// Answer of the server about a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// Id of the lock in its namespace.
    pub id: u64,
    /// Action of the client that this answers. If a lock was queued, the later grant carries `Lock` again.
    pub action: Action,
    /// State of the connection from now on.
    pub state: State,
}

/// Upper bound of the length of an encoded answer in bytes.
const ANSWER_LEN_MAX: usize = 72;

impl Answer {
    /// Encodes the answer as a line of JSON.
    pub(super) fn encode(self) -> String {
        let Self { id, action, state } = self;
        let mut text = String::with_capacity(ANSWER_LEN_MAX);
        let _ = writeln!(text, "{{\"id\":\"{id}\",\"action\":\"{action}\",\"state\":\"{state}\"}}");
        // If the text had spare capacity, its conversion to a WebSocket message would allocate a record of the capacity
        // on the heap. So free the spare capacity first.
        text.shrink_to_fit();
        text
    }
}

impl fmt::Display for Action {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Lock => "lock",
            Self::Release => "release",
        })
    }
}

impl fmt::Display for State {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Ready => "ready",
            Self::Enqueued => "enqueued",
            Self::Acquired => "acquired",
        })
    }
}
