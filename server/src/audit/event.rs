//! Events of the audit log, with two forms: a JSON object for programs, and a text for the server's log.

use serde::ser::{Serialize, SerializeMap, Serializer};
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;
use waymaker_protocol::{Hex, LockId, Quoted};

/// Kind of an act or event. The outcome of an event says whether the act was performed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Act {
    /// A client released the hold, the waiting claim or the registration of another identity.
    ReleaseOther,
    /// A client set another lease for the hold, or for the waiting claim, of another identity.
    ExtendOther,
    /// A client renewed or changed a registration of another identity. The registration now belongs to the client.
    RegisterOther,
    /// A client acquired with the request id of another identity's claim. That claim now belongs to the client.
    TakeOver,
    /// Request of an operator to end a claim.
    ForceRelease,
    /// Request of an operator to freeze a prefix.
    Freeze,
    /// Request of an operator to thaw a prefix.
    Thaw,
    /// Request of an operator to remove a namespace.
    RemoveNamespace,
    /// Request of a DynamoDB client to create a table.
    CreateTable,
    /// Request of a DynamoDB client to delete a table, with its locks.
    DeleteTable,
    /// A client set the capacity of a pool, or removed the pool.
    SetCapacity,
    /// A client showed credentials that the server does not accept, or none although the server needs them.
    Authenticate,
    /// Too many logins of a source address failed, so the server refuses further logins of the address for a while.
    PauseLogins,
    /// A client made a request without the right for it, or an open connection lost its identity or a right.
    Deny,
    /// The server started.
    Start,
    /// The server read files of its configuration again.
    Reload,
    /// The server stopped.
    Stop,
    /// Lines of the audit log were dropped or could not be written.
    Dropped,
}

impl Act {
    /// Number of acts.
    pub(super) const COUNT: usize = Self::Dropped as usize + 1;

    /// Returns the name in the audit log.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReleaseOther => "release-other",
            Self::ExtendOther => "extend-other",
            Self::RegisterOther => "register-other",
            Self::TakeOver => "take-over",
            Self::ForceRelease => "force-release",
            Self::Freeze => "freeze",
            Self::Thaw => "thaw",
            Self::RemoveNamespace => "remove-namespace",
            Self::CreateTable => "create-table",
            Self::DeleteTable => "delete-table",
            Self::SetCapacity => "set-capacity",
            Self::Authenticate => "authenticate",
            Self::PauseLogins => "pause-logins",
            Self::Deny => "deny",
            Self::Start => "start",
            Self::Reload => "reload",
            Self::Stop => "stop",
            Self::Dropped => "dropped",
        }
    }
}

/// The outcome of an act.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// The server performed the act.
    #[default]
    Done,
    /// The server refused the act.
    Refused {
        /// Name of the error code.
        code: &'static str,
        /// Text of the error.
        message: String,
    },
    /// The durable log failed. Only a restart of the server shows whether the act was performed.
    Unknown,
}

impl Outcome {
    fn name(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Refused { .. } => "refused",
            Self::Unknown => "unknown",
        }
    }
}

/// The client that acted. Unknown parts are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// Identity that the server verified.
    pub identity: Option<Arc<str>>,
    /// Address of the peer.
    pub address: Option<Arc<str>>,
    /// Protocol of the connection.
    pub front_end: Option<&'static str>,
    /// Owner that the client named; the server does not verify it.
    pub owner: Option<Arc<[u8]>>,
}

/// The value of a member that only some acts add to their audit line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Detail {
    /// A number.
    Number(u64),
    /// A boolean.
    Flag(bool),
    /// Bytes from a client, which may not be text.
    Bytes(Box<[u8]>),
    /// A text.
    Text(String),
    /// A list of texts.
    List(Vec<String>),
}

/// One line of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEvent {
    /// Kind of the event.
    pub act: Act,
    /// Outcome of the act.
    pub outcome: Outcome,
    /// Client that acted.
    pub caller: Caller,
    /// Name of the namespace.
    pub namespace: Option<Box<[u8]>>,
    /// Key, prefix or pool.
    pub key: Option<Box<[u8]>>,
    /// Id of the claim.
    pub id: Option<LockId>,
    /// Reason that the client gave.
    pub reason: Option<Box<[u8]>>,
    /// Members of the line that only some kinds of acts have, in the order in which they are written.
    pub details: Vec<(&'static str, Detail)>,
}

impl AuditEvent {
    /// Returns the event of a performed act, with only the act and the caller.
    pub fn new(act: Act, caller: Caller) -> Self {
        let (namespace, key, id, reason, details) = (None, None, None, None, Vec::new());
        Self { act, outcome: Outcome::Done, caller, namespace, key, id, reason, details }
    }

    /// Returns an event of this act that the server refused.
    pub fn refused(act: Act, caller: Caller, code: &'static str, message: String) -> Self {
        Self { outcome: Outcome::Refused { code, message }, ..Self::new(act, caller) }
    }

    /// Returns the event of a reload of files. `subject` is a plural noun for their contents, such as `certificates`.
    /// `error` is the reason why the files cannot be used; the server then continues with the previous contents.
    pub fn reload(subject: &str, error: Option<&impl Display>) -> Self {
        let details = vec![("subject", Detail::Text(subject.to_owned()))];
        let event = match error {
            None => Self::new(Act::Reload, Caller::default()),
            Some(error) => Self::refused(Act::Reload, Caller::default(), "unusable", error.to_string()),
        };
        Self { details, ..event }
    }

    /// Returns the event of dropped lines.
    pub(super) fn dropped(count: u64) -> Self {
        let details = vec![("count", Detail::Number(count))];
        Self { details, ..Self::new(Act::Dropped, Caller::default()) }
    }

    /// Returns the event as a JSON object without a line break. `at_ms` is the time of the event in milliseconds since
    /// 1970.
    pub fn json(&self, at_ms: u64) -> String {
        // Serialization cannot fail: the JSON object has only strings as keys.
        serde_json::to_string(&Line { event: self, at_ms }).unwrap_or_default()
    }

    /// Returns the members that every event has and whose values may not be text.
    fn parts(&self) -> [(&'static str, Option<&[u8]>); 4] {
        [
            ("owner", self.caller.owner.as_deref()),
            ("namespace", self.namespace.as_deref()),
            ("key", self.key.as_deref()),
            ("reason", self.reason.as_deref()),
        ]
    }
}

/// An event with its time.
struct Line<'a> {
    event: &'a AuditEvent,
    at_ms: u64,
}

impl Serialize for Line<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let AuditEvent { act, outcome, caller, id, details, .. } = self.event;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("at", &self.at_ms)?;
        map.serialize_entry("act", act.name())?;
        map.serialize_entry("result", outcome.name())?;
        if let Outcome::Refused { code, message } = outcome {
            map.serialize_entry("code", code)?;
            map.serialize_entry("message", message)?;
        }
        map.serialize_entry("identity", &caller.identity.as_deref())?;
        map.serialize_entry("address", &caller.address.as_deref())?;
        map.serialize_entry("front_end", &caller.front_end)?;
        for (name, bytes) in self.event.parts() {
            put_bytes(&mut map, name, bytes)?;
        }
        map.serialize_entry("id", &id.map(|id| id.to_string()))?;
        for (name, detail) in details {
            match detail {
                Detail::Number(number) => map.serialize_entry(name, number)?,
                Detail::Flag(flag) => map.serialize_entry(name, flag)?,
                Detail::Bytes(bytes) => put_bytes(&mut map, name, Some(bytes))?,
                Detail::Text(text) => map.serialize_entry(name, text)?,
                Detail::List(list) => map.serialize_entry(name, list)?,
            }
        }
        map.end()
    }
}

/// Writes bytes as text. Invalid UTF-8 becomes null, and the member `NAME_hex` has the bytes as hexadecimal digits.
fn put_bytes<M: SerializeMap>(map: &mut M, name: &'static str, bytes: Option<&[u8]>) -> Result<(), M::Error> {
    match bytes.map(str::from_utf8).transpose() {
        Ok(text) => map.serialize_entry(name, &text),
        Err(_) => {
            map.serialize_entry(name, &None::<&str>)?;
            map.serialize_entry(&format!("{name}_hex"), &Hex(bytes.unwrap_or_default()).to_string())
        }
    }
}

impl Display for AuditEvent {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} result={}", self.act.name(), self.outcome.name())?;
        if let Outcome::Refused { code, message } = &self.outcome {
            write!(formatter, " code={code} message={}", Quoted(message.as_bytes()))?;
        }
        let Caller { identity, address, front_end, .. } = &self.caller;
        let texts =
            [("identity", identity.as_deref()), ("address", address.as_deref()), ("front_end", *front_end)];
        let texts = texts.map(|(name, text)| (name, text.map(str::as_bytes)));
        for (name, bytes) in texts.into_iter().chain(self.parts()) {
            if let Some(bytes) = bytes {
                write!(formatter, " {name}={}", Quoted(bytes))?;
            }
        }
        if let Some(id) = self.id {
            write!(formatter, " id={id}")?;
        }
        for (name, detail) in &self.details {
            match detail {
                Detail::Number(number) => write!(formatter, " {name}={number}")?,
                Detail::Flag(flag) => write!(formatter, " {name}={flag}")?,
                Detail::Bytes(bytes) => write!(formatter, " {name}={}", Quoted(bytes))?,
                Detail::Text(text) => write!(formatter, " {name}={}", Quoted(text.as_bytes()))?,
                Detail::List(list) => write!(formatter, " {name}={}", Quoted(list.join(",").as_bytes()))?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> AuditEvent {
        let caller = Caller {
            identity: Some("ada".into()),
            address: Some("127.0.0.1:5".into()),
            front_end: Some("binary"),
            owner: Some(Arc::from(&b"op"[..])),
        };
        AuditEvent {
            namespace: Some(Box::from(&b"default"[..])),
            key: Some(Box::from(&b"k\xff"[..])),
            id: Some(LockId { place: 1, secret: 2 }),
            reason: Some(Box::from(&b"it \"hangs\"\n"[..])),
            details: vec![("fence", Detail::Number(3)), ("holder", Detail::Bytes(Box::from(&b"\xfe"[..])))],
            ..AuditEvent::new(Act::ForceRelease, caller)
        }
    }

    #[test]
    fn a_line_of_json_has_every_member_and_no_line_break() {
        let line = event().json(7);
        assert_eq!(
            line,
            "{\"at\":7,\"act\":\"force-release\",\"result\":\"done\",\"identity\":\"ada\",\
             \"address\":\"127.0.0.1:5\",\"front_end\":\"binary\",\"owner\":\"op\",\"namespace\":\"default\",\
             \"key\":null,\"key_hex\":\"6bff\",\"reason\":\"it \\\"hangs\\\"\\n\",\
             \"id\":\"00000000000000010000000000000002\",\"fence\":3,\"holder\":null,\"holder_hex\":\"fe\"}"
        );
        let line = AuditEvent::dropped(5).json(7);
        assert_eq!(
            line,
            "{\"at\":7,\"act\":\"dropped\",\"result\":\"done\",\"identity\":null,\"address\":null,\
             \"front_end\":null,\"owner\":null,\"namespace\":null,\"key\":null,\"reason\":null,\"id\":null,\
             \"count\":5}"
        );
    }

    #[test]
    fn words_name_what_is_known_and_escape_what_clients_chose() {
        assert_eq!(
            event().to_string(),
            "force-release result=done identity=\"ada\" address=\"127.0.0.1:5\" front_end=\"binary\" owner=\"op\" \
             namespace=\"default\" key=\"k\\xff\" reason=\"it \\\"hangs\\\"\\n\" \
             id=00000000000000010000000000000002 fence=3 holder=\"\\xfe\""
        );
        let refused =
            AuditEvent::refused(Act::Deny, Caller::default(), "unauthorized", "no \"right\"".into());
        assert_eq!(refused.to_string(), "deny result=refused code=unauthorized message=\"no \\\"right\\\"\"");
    }
}
