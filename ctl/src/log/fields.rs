//! The members of a record: names and values.

use std::collections::BTreeMap;

use waymaker_client::{LockId, NamespaceKind};
use waymaker_log::{ClaimId, Scope};
use waymaker_log::{Hold, Item, Record};

/// A value.
#[derive(Debug)]
pub(crate) enum Field<'a> {
    /// Bytes that a client chose; output must escape them.
    Bytes(&'a [u8]),
    /// A fixed word.
    Word(&'a str),
    Text(String),
    Number(u64),
    Signed(i64),
    Flag(bool),
    /// Paths, each with whether it is held exclusively.
    Paths(&'a [(&'a [u8], bool)]),
}

/// Names of the namespaces, by the numbers that records use.
#[derive(Debug, Default)]
pub(crate) struct Namespaces(BTreeMap<u16, Box<[u8]>>);

impl Namespaces {
    pub(crate) fn note(&mut self, record: &Record<'_>) {
        if let Record::Namespace { number, name, .. } = record {
            self.0.insert(*number, (*name).into());
        }
    }

    fn field(&self, number: u16) -> (&'static str, Field<'_>) {
        let name = self.0.get(&number);
        ("namespace", name.map_or_else(|| Field::Number(number.into()), |name| Field::Bytes(name)))
    }
}

/// Returns the name of a kind of namespaces.
pub(crate) fn kind_name(kind: u8) -> &'static str {
    NamespaceKind::ALL.get(usize::from(kind)).map_or("unknown", |kind| kind.name())
}

/// Returns the id in the form that all commands use.
pub(crate) fn id_text(id: ClaimId) -> String {
    LockId { place: id.place, secret: id.secret }.to_string()
}

/// Returns the name of a scope.
pub(crate) fn scope_name(scope: Scope) -> &'static str {
    match scope {
        Scope::Ephemeral => "ephemeral",
        Scope::Local => "local",
        Scope::Quorum => "quorum",
    }
}

/// Returns the members of a record. The first member is its kind.
pub(crate) fn fields<'a>(
    record: &'a Record<'a>,
    namespaces: &'a Namespaces,
) -> Vec<(&'static str, Field<'a>)> {
    use Field::{Bytes, Flag, Number, Signed, Text, Word};
    let record_is = |name| ("record", Word(name));
    match record {
        Record::Started(started) => {
            let boot_id = u128::from_be_bytes(started.boot_id);
            vec![
                record_is("started"),
                ("boot_id", Text(format!("{boot_id:032x}"))),
                ("boot_ms", Number(started.now_ms)),
                ("unix_ms", Signed(started.unix_ms)),
            ]
        }
        Record::Namespace { number, kind, name } => vec![
            record_is("namespace"),
            ("namespace", Bytes(name)),
            ("kind", Word(kind_name(*kind))),
            ("number", Number((*number).into())),
        ],
        Record::NamespaceRemoved { number } => {
            vec![
                record_is("namespace_removed"),
                namespaces.field(*number),
                ("number", Number((*number).into())),
            ]
        }
        Record::Held(hold) => hold_fields(hold, namespaces),
        Record::LeaseMoved { id, deadline_ms, lease_ms } => vec![
            record_is("lease_moved"),
            ("id", Text(id_text(*id))),
            ("deadline_ms", Number(*deadline_ms)),
            ("lease_ms", Number((*lease_ms).into())),
        ],
        Record::Ended { id } => vec![record_is("ended"), ("id", Text(id_text(*id)))],
        Record::Counted { id, fence } => {
            vec![record_is("counted"), ("id", Text(id_text(*id))), ("fence", Number(fence.get()))]
        }
        Record::Counter { namespace, scope, fence, key } => vec![
            record_is("counter"),
            namespaces.field(*namespace),
            ("key", Bytes(key)),
            ("fence", Number(fence.get())),
            ("scope", Word(scope_name(*scope))),
        ],
        Record::Folded { namespace, key } => {
            vec![record_is("folded"), namespaces.field(*namespace), ("key", Bytes(key))]
        }
        Record::Floor { fence } => vec![record_is("floor"), ("fence", Number(fence.get()))],
        Record::BeginAbove { fence } => vec![record_is("begin_above"), ("fence", Number(fence.get()))],
        Record::Group { count } => vec![record_is("group"), ("count", Number((*count).into()))],
        Record::Part { left, bytes } => {
            vec![record_is("part"), ("bytes", Number(bytes.len() as u64)), ("left", Number((*left).into()))]
        }
        Record::PoolSet { namespace, capacity, by_timestamp, name } => vec![
            record_is("pool_set"),
            namespaces.field(*namespace),
            ("key", Bytes(name)),
            ("capacity", Number(*capacity)),
            ("by_timestamp", Flag(*by_timestamp)),
        ],
        Record::Frozen { namespace, frozen, prefix } => vec![
            record_is(if *frozen { "frozen" } else { "thawed" }),
            namespaces.field(*namespace),
            ("prefix", Bytes(prefix)),
        ],
        Record::Stopped => vec![record_is("stopped")],
    }
}

fn hold_fields<'a>(hold: &'a Hold<'a>, namespaces: &'a Namespaces) -> Vec<(&'static str, Field<'a>)> {
    use Field::{Bytes, Number, Signed, Text, Word};
    let mut fields = vec![("record", Word("held")), namespaces.field(hold.namespace)];
    match &hold.item {
        Item::Key(key) => fields.push(("key", Bytes(key))),
        Item::Permits { permits, capacity, name, .. } => {
            let (permits, capacity) = (Number(*permits), Number(*capacity));
            fields.extend([("key", Bytes(name)), ("permits", permits), ("capacity", capacity)]);
        }
        Item::Paths(paths) => fields.push(("paths", Field::Paths(paths))),
        Item::Registration { key, type_name, end_ms, lazy } => fields.extend([
            ("key", Bytes(key)),
            ("type", Bytes(type_name)),
            ("end_ms", Signed(*end_ms)),
            ("lazy", Field::Flag(*lazy)),
        ]),
    }
    fields.extend([
        ("mode", Word(crate::text::mode(hold.shared))),
        ("fence", Number(hold.fence.get())),
        ("owner", Bytes(hold.owner)),
        ("scope", Word(scope_name(hold.scope))),
        ("id", Text(id_text(hold.id))),
        ("since_ms", Number(hold.since_ms)),
    ]);
    match hold.deadline_ms {
        Some(deadline_ms) => fields.push(("deadline_ms", Number(deadline_ms))),
        None if hold.endless => fields.push(("lease", Word("none"))),
        None if hold.session_lease => fields.push(("lease", Word("session"))),
        None => {}
    }
    fields.push(("lease_ms", Number(hold.lease_ms.into())));
    fields.extend(hold.release_after_ms.map(|delay| ("release_after_ms", Number(delay.into()))));
    fields.extend(hold.request_id.map(|id| ("request_id", Bytes(id))));
    fields.extend(hold.metadata.map(|metadata| ("metadata", Bytes(metadata))));
    fields
}
