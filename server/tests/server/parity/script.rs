//! A spec file, read for the front ends: blocks of commands, and what is to be heard after each block.

use super::command::{Ask, Command, Kind, Lane, Thing, advance};
use super::counters::COUNTERS;
use super::words::Words;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// One file.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) name: String,
    pub(super) blocks: Vec<Block>,
}

/// Commands, and what all of them together bring about.
#[derive(Debug, Default)]
pub(super) struct Block {
    /// The line of its `----`.
    pub(super) line: usize,
    pub(super) commands: Vec<Command>,
    pub(super) expected: Vec<Said>,
}

/// What one lane is told. What stands in no lane, such as the lines of a list, has the lane [`PAGE`] or [`COUNTERS`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) lane: String,
    pub(super) text: String,
}

/// The lines of lists. How they are cut into pages, and in which order they stand, is the business of a server.
pub(super) const PAGE: &str = "(page)";

impl Said {
    pub(super) fn new(lane: &str, text: impl Into<String>) -> Self {
        Self { lane: lane.to_owned(), text: text.into() }
    }
}

/// All files of the engine's tests.
pub(super) fn all() -> Vec<Script> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/spec");
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    let name = |file: &Path| file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    files
        .iter()
        .map(|file| Script::read(name(file), &std::fs::read_to_string(file).expect("files are text")))
        .collect()
}

impl Script {
    fn read(name: String, text: &str) -> Self {
        let mut reader = Reader::default();
        for (number, line) in text.lines().enumerate() {
            reader.read_line(number + 1, line);
        }
        reader.end_block();
        let mut blocks = reader.blocks;
        tell_kinds(&mut blocks);
        Self { name, blocks }
    }

    pub(super) fn commands(&self) -> impl Iterator<Item = &Command> {
        self.blocks.iter().flat_map(|block| &block.commands)
    }

    pub(super) fn expected(&self) -> impl Iterator<Item = &Said> {
        self.blocks.iter().flat_map(|block| &block.expected)
    }

    /// Whether a namespace is used as one of this kind.
    pub(super) fn has_kind(&self, namespace: u32, kind: Kind) -> bool {
        self.commands().any(|command| command.kind == kind && command.lane.namespace == namespace)
    }

    /// Whether time passes.
    pub(super) fn takes_time(&self) -> bool {
        self.commands().any(|command| matches!(command.ask, Ask::Advance(_)))
    }

    /// Whether somebody gives up what does not wait.
    pub(super) fn gives_up_nothing(&self) -> bool {
        self.expected().any(|said| said.text.starts_with("nothing to"))
    }
}

#[derive(Default)]
struct Reader {
    blocks: Vec<Block>,
    block: Block,
    lanes: BTreeMap<String, Lane>,
    is_expected: bool,
}

impl Reader {
    fn read_line(&mut self, number: usize, line: &str) {
        if line.is_empty() {
            self.end_block();
        } else if line == "----" {
            self.block.line = number;
            self.is_expected = true;
        } else if self.is_expected {
            self.expect(line);
        } else {
            let command = line.split('#').next().unwrap_or_default().trim();
            if !command.is_empty() {
                self.command(command);
            }
        }
    }

    fn end_block(&mut self) {
        if self.is_expected {
            let mut block = std::mem::take(&mut self.block);
            block.expected.retain(|said| said.lane != PAGE || !said.text.is_empty());
            self.blocks.push(block);
        }
        self.is_expected = false;
    }

    fn expect(&mut self, line: &str) {
        let said = match line.split_once(": ") {
            _ if line == "page" => Said::new(PAGE, ""),
            _ if line.starts_with("  ") => {
                let text = line.trim().to_owned();
                match self.block.expected.last_mut() {
                    Some(last) if last.lane == PAGE => Said::new(PAGE, text),
                    Some(last) => {
                        last.text.push('\n');
                        last.text.push_str(&text);
                        return;
                    }
                    None => panic!("{line:?} continues nothing"),
                }
            }
            Some((first, text)) if first.starts_with("namespace ") => {
                Said::new(COUNTERS, format!("{first}: {text}"))
            }
            Some((lane, text)) => Said::new(lane, text),
            // The answer of `counts`, or a line of `recorded`.
            None => return,
        };
        self.block.expected.push(said);
    }

    fn command(&mut self, command: &str) {
        let mut words = Words::new(command);
        let verb = words.next("the command");
        let (lane, ask) = match verb {
            "advance" => {
                let length = advance(words);
                let ask = length.map_or_else(|| Ask::Internal("stalled".to_owned()), Ask::Advance);
                (Lane::default(), ask)
            }
            // A server has as many shards as it likes.
            "shards" | "counts" => (Lane::default(), Ask::Nothing),
            "counters" => (Lane::default(), Ask::Counters),
            "limits" | "delay" | "follow_up" | "stop" | "log" | "recorded" | "synced" | "log_failed"
            | "clean_stop" | "restart" | "quorum" | "counted" | "not_counted" | "counter" => {
                (Lane::default(), Ask::Internal(verb.to_owned()))
            }
            "lane" => {
                let lane = self.lane(words.next("the lane"));
                if let Some(owner) = words.value("owner") {
                    lane.owner = owner.to_owned();
                }
                if let Some(namespace) = words.number("namespace") {
                    lane.namespace = namespace;
                }
                let has_session = words.value("session_end").is_some();
                let ask = if has_session { Ask::Internal("session_end".to_owned()) } else { Ask::Nothing };
                (lane.clone(), ask)
            }
            _ => {
                let lane = self.lane(words.next("the lane")).clone();
                (lane, Ask::read(verb, words))
            }
        };
        let kind = kind_by_itself(&ask, command).unwrap_or(Kind::Unclear);
        self.block.commands.push(Command { lane, kind, ask });
    }

    fn lane(&mut self, name: &str) -> &mut Lane {
        let owner = name.to_owned();
        let new = || Lane { name: name.to_owned(), owner, namespace: 0 };
        self.lanes.entry(name.to_owned()).or_insert_with(new)
    }
}

/// The kind that a command has without its file.
fn kind_by_itself(ask: &Ask, command: &str) -> Option<Kind> {
    let has_word = |word| command.split_whitespace().any(|other| other == word);
    match ask {
        Ask::Acquire(acquire) => Some(match acquire.thing {
            Thing::Key { .. } | Thing::Keys(_) => Kind::Flat,
            Thing::Paths(_) => Kind::Tree,
            Thing::Permits { .. } => Kind::Pool,
        }),
        Ask::TreeStatistics => Some(Kind::Tree),
        Ask::Describe(_) | Ask::SetCapacity { .. } => Some(Kind::Pool),
        Ask::Register { .. } | Ask::Unregister { .. } if has_word("lazy") => Some(Kind::Lazy),
        Ask::Register { .. } | Ask::Unregister { .. } => Some(Kind::Registry),
        Ask::Throttle { .. } => Some(Kind::Limit),
        Ask::Inspect(_) | Ask::Verify { .. } if command.contains(" path=") => Some(Kind::Tree),
        Ask::List { .. } if has_word("paths") => Some(Kind::Tree),
        _ => None,
    }
}

/// Gives each other command the kind that its name, or else its namespace, has elsewhere in the file.
fn tell_kinds(blocks: &mut [Block]) {
    let mut by_name: BTreeMap<(u32, String), BTreeSet<Kind>> = BTreeMap::new();
    let mut by_namespace: BTreeMap<u32, BTreeSet<Kind>> = BTreeMap::new();
    for command in blocks.iter().flat_map(|block| &block.commands) {
        if command.kind != Kind::Unclear {
            let namespace = command.lane.namespace;
            by_namespace.entry(namespace).or_default().insert(command.kind);
            if let Some(name) = name_of(&command.ask) {
                by_name.entry((namespace, name.to_owned())).or_default().insert(command.kind);
            }
        }
    }
    let only = |kinds: Option<&BTreeSet<Kind>>| match kinds {
        Some(kinds) if kinds.len() == 1 => kinds.first().copied(),
        _ => None,
    };
    for command in blocks.iter_mut().flat_map(|block| &mut block.commands) {
        if command.kind == Kind::Unclear {
            let namespace = command.lane.namespace;
            let named = name_of(&command.ask).map(|name| (namespace, name.to_owned()));
            let kind = only(named.and_then(|named| by_name.get(&named)));
            let kind = kind.or_else(|| only(by_namespace.get(&namespace)));
            let is_unused = !by_namespace.contains_key(&namespace);
            let otherwise = match command.ask {
                Ask::LookUp(_) | Ask::Registrations(_) => Kind::Registry,
                _ if is_unused => Kind::Flat,
                _ => Kind::Unclear,
            };
            command.kind = kind.unwrap_or(otherwise);
        }
    }
}

/// The key or pool that is named.
fn name_of(ask: &Ask) -> Option<&str> {
    match ask {
        Ask::Acquire(acquire) => match &acquire.thing {
            Thing::Key { key, .. } => Some(key),
            Thing::Permits { pool, .. } => Some(pool),
            Thing::Keys(_) | Thing::Paths(_) => None,
        },
        Ask::Inspect(name)
        | Ask::Watch(name)
        | Ask::Unwatch(name)
        | Ask::LookUp(name)
        | Ask::Describe(name) => Some(name),
        Ask::Verify { place, .. } => Some(place),
        Ask::SetCapacity { pool, .. } => Some(pool),
        Ask::Register { register, .. } => Some(&register.key),
        Ask::Unregister { key, .. } => Some(key),
        _ => None,
    }
}
