//! A data directory for people.

use std::collections::BTreeMap;
use std::time::Duration;

use waymaker_client::Quoted;
use waymaker_log::{FileName, Hold, Item, Losses, Tail};

use super::fields::{Field, id_text, kind_name, scope_name};
use super::lease::{Left, Now};
use super::look::{Look, Outcome};
use super::reader::Place;
use crate::kind::Kind;
use crate::text;

/// Returns the whole page except the records.
pub(crate) fn whole(look: &Look) -> String {
    let path = look.directory.path().display();
    let mut page = String::new();
    if let Some(user) = &look.user {
        page.push_str(&format!("{path} is in use ({user}): its latest changes may be missing below\n"));
    }
    page.push_str(&superblock(look));
    page.push('\n');
    page.push_str(&files(look));
    page.push_str(&format!("\n{}\n", end(look)));
    if look.superblock.is_some() {
        page.push_str(&state(look));
    }
    page
}

/// Returns one line for a log on which a server would start.
pub(crate) fn summary(look: &Look) -> String {
    let image = &look.reader.image;
    let (mut frames, mut records) = (0, 0);
    for content in look.reader.contents.values() {
        frames += content.frames;
        records += content.records;
    }
    format!(
        "{}: {}; {}, {}; {}, {}\n",
        look.directory.path().display(),
        end(look),
        count(frames, "frame"),
        count(records, "record"),
        count(image.hold_count() as u64, "hold"),
        count(image.counter_count() as u64, "counter"),
    )
}

/// Returns one record as a line.
pub(crate) fn record(place: &Place, fields: &[(&'static str, Field<'_>)]) -> String {
    let mut line = format!("{} {}+{}", place.lsn, place.file, place.offset);
    for (name, value) in fields {
        match (*name, value) {
            ("record", Field::Word(kind)) => line.push_str(&format!(" {kind}")),
            (name, value) => line.push_str(&format!(" {name}={}", value_text(value))),
        }
    }
    line.push('\n');
    line
}

fn value_text(value: &Field<'_>) -> String {
    match value {
        Field::Bytes(bytes) => quoted(bytes),
        Field::Word(word) => (*word).to_owned(),
        Field::Text(text) => text.clone(),
        Field::Number(number) => number.to_string(),
        Field::Signed(number) => number.to_string(),
        Field::Flag(flag) => flag.to_string(),
        Field::Paths(paths) => {
            let path = |(path, write): &(&[u8], bool)| {
                format!("{}:{}", text::mode(!write), quoted(text::key(Kind::Tree, path).as_bytes()))
            };
            paths.iter().map(path).collect::<Vec<_>>().join(",")
        }
    }
}

/// Escapes bytes, and quotes them if they could not be distinguished from the next field.
fn quoted(bytes: &[u8]) -> String {
    let text = text::printable(bytes);
    if text.is_empty() || text.contains([' ', '"', '=']) { Quoted(bytes).to_string() } else { text }
}

fn count(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn superblock(look: &Look) -> String {
    let Some(superblock) = &look.superblock else { return "superblock: none\n".to_owned() };
    let snapshot = match superblock.snapshot {
        0 => "none".to_owned(),
        number => number.to_string(),
    };
    let stopped = match superblock.clean_lsn {
        0 => "no".to_owned(),
        lsn => format!("after frame {lsn}"),
    };
    let losses = superblock.losses.map_or_else(
        || "none".to_owned(),
        |Losses { fence_floor, wait_ms }| {
            let wait = text::time(Some(Duration::from_millis(wait_ms)));
            format!("accepted; fences continue above {fence_floor}, grants resume after {wait}")
        },
    );
    let uneven =
        if look.bad_copy.is_some() { " (from one copy; the other copy is older or damaged)" } else { "" };
    let rows = [
        ("log id", format!("{:016x}{uneven}", superblock.log_id)),
        ("generation", superblock.generation.to_string()),
        ("segments", format!("{} to {}", superblock.first_segment, superblock.last_segment)),
        ("snapshot", snapshot),
        ("fence floor", superblock.fence_floor.to_string()),
        ("longest lease", text::time(Some(Duration::from_millis(superblock.longest_lease_ms)))),
        ("stopped cleanly", stopped),
        ("losses", losses),
    ];
    text::table(["SUPERBLOCK", ""], rows.map(|(name, value)| [name.to_owned(), value]))
}

fn files(look: &Look) -> String {
    let rows = look.listing.files.iter().map(|(file, len)| {
        let content = look.reader.contents.get(file).copied();
        let number = |get: fn(&super::reader::Content) -> u64| {
            content.as_ref().map_or_else(|| "-".to_owned(), |content| get(content).to_string())
        };
        [
            file.to_string(),
            len.to_string(),
            number(|content| content.first_lsn),
            number(|content| content.last_lsn),
            number(|content| content.frames),
            number(|content| content.records),
            note(look, *file),
        ]
    });
    let foreign = look.listing.foreign.iter().map(|name| {
        let name = text::printable(name.as_bytes());
        let [len, first, last, frames, records] = [(); 5].map(|()| "-".to_owned());
        [name, len, first, last, frames, records, "not part of the log, ignored".to_owned()]
    });
    text::table(["FILE", "BYTES", "FIRST", "LAST", "FRAMES", "RECORDS", ""], rows.chain(foreign))
}

/// Describes a file, if its name does not.
fn note(look: &Look, file: FileName) -> String {
    let superblock = look.superblock.unwrap_or_default();
    match file {
        FileName::Segment(number) if number < superblock.first_segment => {
            "contained in the snapshot; the next start removes it".to_owned()
        }
        FileName::Segment(number) => look.segment_header(number).map_or_else(String::new, |header| {
            format!("generation {}, after frame {}", header.generation, header.after.lsn)
        }),
        FileName::Snapshot(number) => {
            let which = if number == superblock.snapshot { "" } else { ", not used" };
            look.snapshot_header(number).map_or_else(String::new, |header| {
                format!("state up to frame {}, generation {}{which}", header.covers.lsn, header.generation)
            })
        }
        FileName::Temporary(_) => "incomplete, ignored".to_owned(),
        FileName::Spare | FileName::Reserve => "preallocated".to_owned(),
        FileName::Lock | FileName::Superblock => String::new(),
    }
}

/// Describes the end of the log, or the reason why it cannot be used.
fn end(look: &Look) -> String {
    let last = look.last_lsn;
    match look.outcome() {
        Outcome::Fresh => "there is no log yet; a server would create one".to_owned(),
        Outcome::Whole(Tail::Clean) if look.is_clean() => {
            format!("complete up to frame {last}; the server stopped cleanly")
        }
        Outcome::Whole(Tail::Clean) => format!("complete up to frame {last}"),
        Outcome::Whole(Tail::Torn { offset }) => {
            format!(
                "complete up to frame {last}; a start drops an incomplete, unacknowledged end from byte {offset} on"
            )
        }
        Outcome::Whole(Tail::OutOfOrder { offset, frames }) => format!(
            "complete up to frame {last}; a start drops {} without a predecessor, unacknowledged, from byte {offset} on",
            count((*frames).into(), "frame")
        ),
        Outcome::Problem(problem) if problem.is_newer() => format!("NEWER: {problem}"),
        Outcome::Problem(problem) => format!("DAMAGED: {problem}\nthe state below is up to frame {last}"),
    }
}

fn state(look: &Look) -> String {
    let image = &look.reader.image;
    let now = Now::of(image.started());
    let mut page = match image.started() {
        Some(_) if now.is_same_boot() => {
            "written since the last boot of this machine: leases continue\n".to_owned()
        }
        Some(_) => {
            "written before the last boot of this machine: a start grants each lease again\n".to_owned()
        }
        None => String::new(),
    };
    page.push_str(&format!(
        "{}, {}, keys without a counter continue above fence {}\n",
        count(image.hold_count() as u64, "hold"),
        count(image.counter_count() as u64, "counter"),
        image.floor()
    ));
    let namespaces = Namespaces::of(look);
    page.push_str(&namespaces.table());
    for (namespace, name, capacity, _) in image.pools() {
        let (namespace, name) = (namespaces.name(namespace), text::printable(name));
        page.push_str(&format!("pool {name} in {namespace}: capacity set to {capacity}\n"));
    }
    for (namespace, prefix) in image.frozen() {
        let (namespace, prefix) = (namespaces.name(namespace), quoted(prefix));
        page.push_str(&format!("frozen in {namespace}: prefix {prefix}\n"));
    }
    if image.hold_count() > 0 {
        page.push('\n');
        page.push_str(&holds(look, &namespaces, &now));
    }
    page
}

fn holds(look: &Look, namespaces: &Namespaces, now: &Now) -> String {
    let title = ["KEY", "NAMESPACE", "MODE", "OWNER", "FENCE", "LEFT", "SCOPE", "ID"];
    let rows = look.reader.image.holds().map(|hold| {
        let left = match now.left(&hold) {
            Left::Known(left) if left.is_zero() => "expired".to_owned(),
            Left::Known(left) => text::time(Some(left)),
            Left::Anew(full) => format!("{} from start", text::time(Some(full))),
            Left::Session => "session".to_owned(),
            Left::Endless => "-".to_owned(),
        };
        [
            item_text(&hold),
            namespaces.name(hold.namespace),
            text::mode(hold.shared).to_owned(),
            text::printable(hold.owner),
            hold.fence.to_string(),
            left,
            scope_name(hold.scope).to_owned(),
            id_text(hold.id),
        ]
    });
    text::table(title, rows)
}

fn item_text(hold: &Hold<'_>) -> String {
    match &hold.item {
        Item::Key(key) | Item::Registration { key, .. } => text::printable(key),
        Item::Permits { permits, capacity, name, .. } => {
            format!("{} ({permits} of {capacity})", text::printable(name))
        }
        Item::Paths(paths) => {
            let path = |(path, _): &(&[u8], bool)| text::key(Kind::Tree, path);
            paths.iter().map(path).collect::<Vec<_>>().join(", ")
        }
    }
}

/// Namespaces by their numbers, with counts.
struct Namespaces(BTreeMap<u16, Namespace>);

#[derive(Default)]
struct Namespace {
    name: String,
    kind: &'static str,
    hold_count: u64,
    counter_count: u64,
}

impl Namespaces {
    fn of(look: &Look) -> Self {
        let image = &look.reader.image;
        let mut namespaces: BTreeMap<u16, Namespace> = BTreeMap::new();
        for (number, kind, name) in image.namespaces() {
            let (name, kind) = (text::printable(name), kind_name(kind));
            namespaces.insert(number, Namespace { name, kind, ..Namespace::default() });
        }
        for hold in image.holds() {
            namespaces.entry(hold.namespace).or_default().hold_count += 1;
        }
        for counter in image.counters() {
            namespaces.entry(counter.namespace).or_default().counter_count += 1;
        }
        Self(namespaces)
    }

    fn name(&self, number: u16) -> String {
        let name = self.0.get(&number).map(|namespace| namespace.name.clone());
        name.filter(|name| !name.is_empty()).unwrap_or_else(|| number.to_string())
    }

    fn table(&self) -> String {
        if self.0.is_empty() {
            return String::new();
        }
        let rows = self.0.iter().map(|(number, namespace)| {
            let Namespace { kind, hold_count, counter_count, .. } = namespace;
            [self.name(*number), (*kind).to_owned(), hold_count.to_string(), counter_count.to_string()]
        });
        format!("\n{}", text::table(["NAMESPACE", "KIND", "HOLDS", "COUNTERS"], rows))
    }
}
