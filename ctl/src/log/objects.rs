//! A data directory for programs: one JSON object per line. The member `about` names the subject of the object.

use serde_json::{Map, Value};
use waymaker_client::path_segments;
use waymaker_log::{Losses, Record, Tail};

use super::fields::{Field, Namespaces, fields, kind_name};
use super::lease::{Left, Now};
use super::look::{Look, Outcome};
use super::reader::Place;
use crate::{output, text};

/// Returns all objects except the records.
pub(crate) fn all(look: &Look) -> Vec<Value> {
    let mut objects = vec![directory(look)];
    objects.extend(superblock(look));
    objects.extend(files(look));
    let image = &look.reader.image;
    for (number, kind, name) in image.namespaces() {
        let mut object = about("namespace");
        text::insert_bytes(&mut object, "namespace", name);
        object.insert("kind".to_owned(), kind_name(kind).into());
        object.insert("number".to_owned(), number.into());
        objects.push(object.into());
    }
    let mut namespaces = Namespaces::default();
    for (number, kind, name) in image.namespaces() {
        namespaces.note(&Record::Namespace { number, kind, name });
    }
    for (namespace, name, capacity, by_timestamp) in image.pools() {
        let record = Record::PoolSet { namespace, capacity, by_timestamp, name };
        objects.push(state_object("pool", &record, &namespaces).into());
    }
    for (namespace, prefix) in image.frozen() {
        let record = Record::Frozen { namespace, frozen: true, prefix };
        objects.push(state_object("frozen", &record, &namespaces).into());
    }
    let now = Now::of(image.started());
    for hold in image.holds() {
        let (state, left) = match now.left(&hold) {
            Left::Known(left) => ("running", Some(left)),
            Left::Anew(_) => ("anew", None),
            Left::Session => ("session", None),
            Left::Endless => ("none", None),
        };
        let mut object = state_object("hold", &Record::Held(hold), &namespaces);
        object.insert("lease".to_owned(), state.into());
        object.insert("remaining_ms".to_owned(), left.map(text::milliseconds).into());
        objects.push(object.into());
    }
    objects
}

/// Returns one record as a line.
pub(crate) fn record(place: &Place, fields: &[(&'static str, Field<'_>)]) -> String {
    let mut object = about("record");
    object.insert("lsn".to_owned(), place.lsn.into());
    object.insert("file".to_owned(), place.file.to_string().into());
    object.insert("offset".to_owned(), place.offset.into());
    insert_fields(&mut object, fields);
    output::line(&object)
}

fn about(what: &str) -> Map<String, Value> {
    Map::from_iter([("about".to_owned(), what.into())])
}

/// Returns an object about the state after all records, with the members of the record that set the state.
fn state_object(what: &str, record: &Record<'_>, namespaces: &Namespaces) -> Map<String, Value> {
    let mut object = about(what);
    insert_fields(&mut object, &fields(record, namespaces));
    object.remove("record");
    object
}

fn insert_fields(object: &mut Map<String, Value>, fields: &[(&'static str, Field<'_>)]) {
    for (name, value) in fields {
        let value = match value {
            Field::Bytes(bytes) => {
                text::insert_bytes(object, name, bytes);
                continue;
            }
            Field::Word(word) => (*word).into(),
            Field::Text(text) => text.as_str().into(),
            Field::Number(number) => (*number).into(),
            Field::Signed(number) => (*number).into(),
            Field::Flag(flag) => (*flag).into(),
            Field::Paths(paths) => paths.iter().map(|(path, write)| path_object(path, *write)).collect(),
        };
        object.insert((*name).to_owned(), value);
    }
}

fn path_object(path: &[u8], write: bool) -> Value {
    let segments: Value = path_segments(path).into_iter().map(String::from_utf8_lossy).collect();
    Map::from_iter([("path".to_owned(), segments), ("mode".to_owned(), text::mode(!write).into())]).into()
}

/// Returns the object about the log itself.
pub(crate) fn directory(look: &Look) -> Value {
    let image = &look.reader.image;
    let mut object = about("log");
    object.insert("directory".to_owned(), look.directory.path().display().to_string().into());
    object.insert("in_use_by".to_owned(), look.user.clone().into());
    let (end, offset) = match look.outcome() {
        Outcome::Fresh => ("fresh", None),
        Outcome::Whole(Tail::Clean) if look.is_clean() => ("stopped", None),
        Outcome::Whole(Tail::Clean) => ("clean", None),
        Outcome::Whole(Tail::Torn { offset }) => ("torn", Some(*offset)),
        Outcome::Whole(Tail::OutOfOrder { offset, .. }) => ("out_of_order", Some(*offset)),
        Outcome::Problem(problem) if problem.is_newer() => ("newer", None),
        Outcome::Problem(_) => ("damaged", None),
    };
    object.insert("end".to_owned(), end.into());
    object.extend(offset.map(|offset| ("dropped_from".to_owned(), offset.into())));
    if let Some(problem) = look.problem() {
        object.insert("problem".to_owned(), problem.to_string().into());
        if let Some((file, offset)) = problem.place() {
            object.insert("problem_file".to_owned(), file.into());
            object.insert("problem_offset".to_owned(), offset.into());
        }
    }
    object.insert("last_lsn".to_owned(), look.last_lsn.into());
    object.insert("hold_count".to_owned(), image.hold_count().into());
    object.insert("counter_count".to_owned(), image.counter_count().into());
    object.insert("floor".to_owned(), image.floor().get().into());
    object.into()
}

fn superblock(look: &Look) -> Option<Value> {
    let superblock = look.superblock.as_ref()?;
    let mut object = about("superblock");
    object.insert("log_id".to_owned(), format!("{:016x}", superblock.log_id).into());
    for (name, value) in [
        ("sequence", superblock.sequence),
        ("generation", superblock.generation),
        ("segment_len", superblock.segment_len),
        ("first_segment", superblock.first_segment),
        ("last_segment", superblock.last_segment),
        ("snapshot", superblock.snapshot),
        ("fence_floor", superblock.fence_floor.get()),
        ("longest_lease_ms", superblock.longest_lease_ms),
        ("clean_lsn", superblock.clean_lsn),
    ] {
        object.insert(name.to_owned(), value.into());
    }
    if let Some(Losses { fence_floor, wait_ms }) = superblock.losses {
        object.insert("losses_fence_floor".to_owned(), fence_floor.get().into());
        object.insert("losses_wait_ms".to_owned(), wait_ms.into());
    }
    Some(object.into())
}

fn files(look: &Look) -> impl Iterator<Item = Value> {
    let foreign = look.listing.foreign.iter().map(|name| {
        let mut object = about("file");
        object.insert("file".to_owned(), name.as_str().into());
        object.insert("foreign".to_owned(), true.into());
        object.into()
    });
    let files = look.listing.files.iter().map(|(file, len)| {
        let mut object = about("file");
        object.insert("file".to_owned(), file.to_string().into());
        object.insert("bytes".to_owned(), (*len).into());
        if let Some(content) = look.reader.contents.get(file) {
            for (name, value) in [
                ("first_lsn", content.first_lsn),
                ("last_lsn", content.last_lsn),
                ("frames", content.frames),
                ("records", content.records),
            ] {
                object.insert(name.to_owned(), value.into());
            }
        }
        object.into()
    });
    files.chain(foreign)
}
