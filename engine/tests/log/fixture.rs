//! Data directories of released servers as text, and the facts that a later server must find in them.
//!
//! A fixture is two files. `NAME.hex` has every file of the directory: a line `file NAME LENGTH`, then its bytes as lines of an
//! offset and hexadecimal digits; bytes that are not listed are zero. `NAME.txt` has one line for each fact that a server must
//! find: a word for its subject, then fields `name=value`. Bytes in values are escaped, spaces too.
//!
//! This file is shared by the tests of the engine, of the server and of `waymaker-ctl`.
#![allow(dead_code, reason = "each of the crates that share this file uses a part of it")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use waymaker_engine::Scope;
use waymaker_engine::log::frame::FORMAT_VERSION;
use waymaker_engine::log::{FileName, FileReader, Found, Hold, Image, Item, Superblock, Tail, read_log};

/// The fixtures of each format version.
pub(crate) const NAMES: [&str; 6] =
    ["damage-accepted", "killed", "killed-compacted", "killed-torn", "stopped", "stopped-compacted"];

/// Most bytes in a line of a packed directory.
const BYTES_PER_LINE: usize = 32;
/// Zero bytes that end a line of a packed directory.
const ZEROS_BETWEEN_LINES: usize = 8;

/// The folder of the fixtures of a format version.
pub(crate) fn folder(version: u16) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../engine/tests/log")).join(format!("v{version}"))
}

/// One fixture.
pub(crate) struct Fixture {
    /// Its folder and its name.
    pub(crate) name: String,
    /// Name and bytes of each file of the directory.
    pub(crate) files: Vec<(String, Vec<u8>)>,
    /// Facts that a server must find, sorted.
    pub(crate) facts: Vec<Fact>,
}

impl Fixture {
    /// Reads the fixture with this name.
    pub(crate) fn read(version: u16, name: &str) -> Self {
        let read = |extension| {
            let path = folder(version).join(name).with_extension(extension);
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        };
        let facts = read("txt").lines().filter(|line| !line.starts_with('#')).map(Fact::parse).collect();
        Self { name: format!("v{version}/{name}"), files: unpack(&read("hex")), facts }
    }

    /// Reads the fixtures of every version.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (1..=FORMAT_VERSION).flat_map(|version| NAMES.map(|name| Self::read(version, name)))
    }

    /// Makes the directory, with a copy of every file.
    pub(crate) fn write_to(&self, directory: &Path) {
        std::fs::create_dir_all(directory).expect("a directory");
        for (name, bytes) in &self.files {
            std::fs::write(directory.join(name), bytes).expect("a file");
        }
    }

    /// The facts about this subject.
    pub(crate) fn about(&self, subject: &str) -> impl Iterator<Item = &Fact> {
        self.facts.iter().filter(move |fact| fact.subject == subject)
    }
}

/// Name and bytes of each file in a directory, sorted.
pub(crate) fn files_of(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry"));
    let file = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().expect("names are text");
        (name, std::fs::read(entry.path()).expect("a file"))
    };
    let mut files: Vec<_> = entries.map(file).collect();
    files.sort();
    files
}

/// These files as text.
pub(crate) fn pack(files: &[(String, Vec<u8>)]) -> String {
    let mut text = String::new();
    for (name, bytes) in files {
        writeln!(text, "file {name} {}", bytes.len()).expect("a string takes all");
        let mut offset = 0;
        while let Some(zeros) = bytes[offset..].iter().position(|byte| *byte != 0) {
            offset += zeros;
            let rest = &bytes[offset..bytes.len().min(offset + BYTES_PER_LINE)];
            let gap =
                rest.windows(ZEROS_BETWEEN_LINES).position(|window| window.iter().all(|byte| *byte == 0));
            let line = &rest[..gap.unwrap_or(rest.len())];
            let digits: String = line.iter().map(|byte| format!("{byte:02x}")).collect();
            writeln!(text, "{offset} {digits}").expect("a string takes all");
            offset += line.len();
        }
    }
    text
}

/// The files of a packed directory.
pub(crate) fn unpack(text: &str) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    for line in text.lines() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["file", name, len] => files.push((name.to_owned(), vec![0; len.parse().expect("a length")])),
            [offset, digits] => {
                let (_, file) = files.last_mut().expect("a file comes first");
                let offset: usize = offset.parse().expect("an offset");
                for (index, pair) in digits.as_bytes().chunks(2).enumerate() {
                    let pair = std::str::from_utf8(pair).expect("digits");
                    file[offset + index] = u8::from_str_radix(pair, 16).expect("two hexadecimal digits");
                }
            }
            _ => panic!("no line of a packed directory: {line}"),
        }
    }
    files
}

/// One thing that must be found: a subject such as `hold`, and its fields.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Fact {
    pub(crate) subject: String,
    pub(crate) fields: BTreeMap<String, Vec<u8>>,
}

impl Fact {
    pub(crate) fn new(subject: &str) -> Self {
        Self { subject: subject.to_owned(), fields: BTreeMap::new() }
    }

    /// The same with one more field.
    pub(crate) fn with(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.fields.insert(name.to_owned(), value.as_ref().to_vec());
        self
    }

    /// The same with one more field that is a number.
    pub(crate) fn number(self, name: &str, value: impl Into<u64>) -> Self {
        self.with(name, value.into().to_string())
    }

    /// The bytes of a field, if there is one.
    pub(crate) fn get(&self, name: &str) -> Option<&[u8]> {
        self.fields.get(name).map(Vec::as_slice)
    }

    /// The bytes of a field that must be there.
    pub(crate) fn bytes(&self, name: &str) -> &[u8] {
        self.get(name).unwrap_or_else(|| panic!("no field {name} in: {}", self.line()))
    }

    pub(crate) fn text(&self, name: &str) -> &str {
        std::str::from_utf8(self.bytes(name)).expect("text")
    }

    pub(crate) fn u64(&self, name: &str) -> u64 {
        self.text(name).parse().unwrap_or_else(|_| panic!("{name} is no number in: {}", self.line()))
    }

    /// The fact on a line.
    pub(crate) fn line(&self) -> String {
        let mut line = self.subject.clone();
        for (name, value) in &self.fields {
            let value = value.escape_ascii().to_string().replace(' ', r"\x20");
            write!(line, " {name}={value}").expect("a string takes all");
        }
        line
    }

    pub(crate) fn parse(line: &str) -> Self {
        let mut words = line.split(' ');
        let mut fact = Self::new(words.next().expect("a subject"));
        for word in words {
            let (name, value) = word.split_once('=').unwrap_or_else(|| panic!("no field: {word}"));
            fact = fact.with(name, unescape(value));
        }
        fact
    }
}

/// Undoes what `escape_ascii` does.
fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        let escaped = if *byte == b'\\' { rest.split_first() } else { None };
        let Some((kind, behind)) = escaped else {
            bytes.push(*byte);
            continue;
        };
        rest = behind;
        bytes.push(match kind {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'x' => {
                let (digits, behind) = rest.split_at(2);
                rest = behind;
                u8::from_str_radix(std::str::from_utf8(digits).expect("digits"), 16).expect("two digits")
            }
            other => *other,
        });
    }
    bytes
}

/// An id as people see it.
pub(crate) fn id_text(place: u64, secret: u64) -> String {
    format!("{place:016x}{secret:016x}")
}

/// The two halves of an id that people see.
pub(crate) fn id_of(text: &str) -> (u64, u64) {
    let half = |digits| u64::from_str_radix(digits, 16).expect("sixteen hexadecimal digits");
    (half(&text[..16]), half(&text[16..]))
}

/// The facts that recovery finds in these files, sorted.
///
/// # Panics
/// If it refuses them.
pub(crate) fn recovered(files: &[(String, Vec<u8>)]) -> Vec<Fact> {
    let files: BTreeMap<FileName, &Vec<u8>> =
        files.iter().map(|(name, bytes)| (FileName::parse(name).expect("a file of a log"), bytes)).collect();
    let (superblock, _) = Superblock::decode_file(files[&FileName::Superblock]).expect("a superblock");
    let number = |file: &FileName| if let FileName::Segment(number) = file { Some(*number) } else { None };
    let newest = files.keys().filter_map(number).max().unwrap_or(0);
    let mut read = |file| Ok(Box::new(files[&file].clone()) as Box<dyn FileReader>);
    let found: Found<Image> = read_log(&superblock, newest, Image::default(), &mut read)
        .unwrap_or_else(|unread| panic!("refused: {}", unread.damage));
    let end = match found.tail {
        Tail::Clean if superblock.clean_lsn != 0 && found.fold.is_stopped() => "stopped",
        Tail::Clean => "whole",
        Tail::Torn { .. } => "torn",
        Tail::OutOfOrder { .. } => "out of order",
    };
    let snapshot = if found.snapshot == 0 { "none" } else { "present" };
    let mut facts = vec![Fact::new("log").with("end", end).with("snapshot", snapshot)];
    facts.extend(facts_of(&found.fold));
    facts.sort();
    facts
}

/// The facts of an image, without the facts that no client knows: numbers of namespaces and instants of the server's clocks.
fn facts_of(image: &Image) -> Vec<Fact> {
    let names: BTreeMap<u16, &[u8]> = image.namespaces().map(|(number, _, name)| (number, name)).collect();
    let about = |subject, namespace: u16| Fact::new(subject).with("namespace", names[&namespace]);
    let mut facts = vec![Fact::new("floor").number("fence", image.floor())];
    facts.extend(image.namespaces().map(|(number, kind, _)| about("namespace", number).number("kind", kind)));
    facts.extend(image.counters().map(|counter| {
        let fact =
            about("counter", counter.namespace).with("key", counter.key).number("fence", counter.fence);
        fact.with("scope", scope_name(counter.scope))
    }));
    facts.extend(image.pools().map(|(namespace, name, capacity, by_timestamp)| {
        let fact = about("pool", namespace).with("key", name).number("capacity", capacity);
        fact.with("order", order_name(by_timestamp))
    }));
    facts.extend(image.frozen().map(|(namespace, prefix)| about("frozen", namespace).with("prefix", prefix)));
    facts.extend(image.holds().map(|hold| hold_fact(&hold, about("hold", hold.namespace))));
    facts
}

fn hold_fact(hold: &Hold<'_>, fact: Fact) -> Fact {
    let mut fact = fact
        .with("id", id_text(hold.id.place, hold.id.secret))
        .number("fence", hold.fence)
        .with("scope", scope_name(hold.scope))
        .with("owner", hold.owner);
    fact = match &hold.item {
        Item::Key(key) => fact.with("key", key).with("mode", mode_name(hold.shared)),
        Item::Permits { permits, capacity, by_timestamp, name } => fact
            .with("key", name)
            .number("permits", *permits)
            .number("capacity", *capacity)
            .with("order", order_name(*by_timestamp)),
        Item::Paths(paths) => {
            let path = |(path, write): &(&[u8], bool)| path_text(path, *write);
            let mut paths: Vec<_> = paths.iter().map(path).collect();
            paths.sort();
            fact.with("paths", paths.join(","))
        }
        Item::Registration { key, type_name, .. } => fact.with("key", key).with("type", type_name),
    };
    fact = match &hold.item {
        // The record has an end by the server's clocks; the length is too large for its field.
        Item::Registration { lazy: true, .. } => fact.with("lease", "lazy"),
        _ if hold.session_lease => fact.with("lease", "session"),
        _ if hold.endless => fact.with("lease", "none"),
        _ => fact.number("lease", hold.lease_ms),
    };
    if hold.priority != 0 {
        fact = fact.number("priority", hold.priority);
    }
    if let Some(delay_ms) = hold.release_after_ms {
        fact = fact.number("release_after", delay_ms);
    }
    if let Some(request_id) = hold.request_id {
        fact = fact.with("request_id", request_id);
    }
    if let Some(metadata) = hold.metadata {
        fact = fact.with("metadata", metadata);
    }
    if let Some(session) = hold.session {
        fact = fact
            .with("session", id_text(session.place, session.secret))
            .number("session_lease", session.lease_ms)
            .number("lane", session.lane)
            .number("number", hold.number);
    }
    fact
}

/// A path of a tree: `+` if it is written, then its segments with slashes between them.
fn path_text(mut path_key: &[u8], write: bool) -> String {
    let mut segments = Vec::new();
    while let Some((len, rest)) = path_key.split_first_chunk::<2>() {
        let (segment, behind) = rest.split_at(u16::from_le_bytes(*len).into());
        segments.push(String::from_utf8(segment.to_vec()).expect("paths of fixtures are text"));
        path_key = behind;
    }
    format!("{}{}", if write { "+" } else { "" }, segments.join("/"))
}

fn scope_name(scope: Scope) -> &'static str {
    match scope {
        Scope::Ephemeral => "ephemeral",
        Scope::Local => "local",
        Scope::Quorum => "quorum",
    }
}

pub(crate) fn mode_name(shared: bool) -> &'static str {
    if shared { "shared" } else { "exclusive" }
}

pub(crate) fn order_name(by_timestamp: bool) -> &'static str {
    if by_timestamp { "timestamp" } else { "arrival" }
}
