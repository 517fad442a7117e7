//! A disk under a log: what was written stands in a cache, and of what was not synced any part may be on the platter.
//!
//! Every call is one operation. The disk can fail at each of them, and it can remember how it was before each, so that
//! one run gives every crash of that run.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use waymaker_server::log::{SegmentFile, Storage};

/// What a disk may lose at once.
pub const BLOCK_LEN: usize = 4096;
/// What it never tears.
pub const SECTOR_LEN: usize = 512;

/// A simulated directory.
#[derive(Clone, Debug, Default)]
pub struct SimulatedDisk(Arc<Mutex<Machine>>);

#[derive(Debug, Default)]
struct Machine {
    state: DiskState,
    operations: u64,
    fault: Option<Fault>,
    is_full: bool,
    is_recording: bool,
    recorded: Vec<DiskState>,
}

#[derive(Clone, Copy, Debug)]
struct Fault {
    operation: u64,
    kind: ErrorKind,
}

/// Everything that a disk has, in its cache and on its platter. Copies share what they have in common.
#[derive(Clone, Debug)]
pub struct DiskState {
    files: BTreeMap<u64, FileState>,
    names: Names,
    /// Names as they may be after a crash: as they were last made durable, and after each change since.
    possible_names: Vec<Names>,
    next_file: u64,
    /// What whoever drives the disk wants to find again in a recorded state.
    pub mark: (u64, u64),
}

type Names = BTreeMap<String, u64>;

#[derive(Clone, Debug, Default)]
struct FileState {
    cache: Arc<Vec<u8>>,
    platter: Arc<Vec<u8>>,
    /// Where the cache is newer than the platter, no piece longer than a block.
    unsynced: Vec<Range<usize>>,
}

/// What of the unsynced pieces is on the platter after a crash.
#[derive(Clone, Copy, Debug)]
pub struct Survival {
    /// Piece by piece, whether it is: bit `n % 64` for the n-th.
    pub pieces: u64,
    /// The number of leading sectors that are of each of the other pieces. The first may be a part of a sector.
    pub torn_sectors: usize,
    /// How many changes of names are, of those that were not durable; all if there are fewer.
    pub name_changes: usize,
}

impl Default for DiskState {
    fn default() -> Self {
        Self {
            files: BTreeMap::new(),
            names: Names::new(),
            possible_names: vec![Names::new()],
            next_file: 0,
            mark: (0, 0),
        }
    }
}

impl DiskState {
    /// How many pieces of files are not synced.
    pub fn unsynced_pieces(&self) -> usize {
        self.files.values().map(|file| file.unsynced.len()).sum()
    }

    /// How many changes of names are not durable.
    pub fn unsynced_names(&self) -> usize {
        self.possible_names.len() - 1
    }

    /// The disk after a crash.
    pub fn crash(&self, survival: Survival) -> Self {
        let names = &self.possible_names[survival.name_changes.min(self.unsynced_names())];
        let mut state = Self {
            names: names.clone(),
            possible_names: vec![names.clone()],
            mark: self.mark,
            next_file: self.next_file,
            files: BTreeMap::new(),
        };
        let mut piece = 0;
        for (number, file) in &self.files {
            let mut platter = Arc::clone(&file.platter);
            for range in &file.unsynced {
                let end = match survival.torn_sectors {
                    _ if survival.pieces >> (piece % 64) & 1 == 1 => range.end,
                    0 => range.start,
                    count => range.end.min((range.start / SECTOR_LEN + count) * SECTOR_LEN),
                };
                land(&mut platter, &file.cache, range.start..end);
                piece += 1;
            }
            if names.values().any(|named| named == number) {
                let file = FileState { cache: Arc::clone(&platter), platter, unsynced: Vec::new() };
                state.files.insert(*number, file);
            }
        }
        state
    }

    /// The bytes of a file on the platter.
    pub fn bytes(&self, name: &str) -> Option<&[u8]> {
        Some(&self.files.get(self.names.get(name)?)?.platter)
    }

    /// Changes a file where nobody sees it: on the platter.
    pub fn rot(&mut self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        if let Some(file) = self.names.get(name).and_then(|number| self.files.get_mut(number)) {
            change(Arc::make_mut(&mut file.platter));
            file.cache = Arc::clone(&file.platter);
        }
    }

    /// The names of all files.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.keys().map(String::as_str)
    }

    fn changed_names(&mut self) {
        self.possible_names.push(self.names.clone());
    }

    fn file(&mut self, name: &str) -> io::Result<&mut FileState> {
        let number = self.names.get(name).ok_or(ErrorKind::NotFound)?;
        self.files.get_mut(number).ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn create(&mut self, name: &str, file: FileState) -> u64 {
        let number = self.next_file;
        self.next_file += 1;
        self.files.insert(number, file);
        self.names.insert(name.to_owned(), number);
        self.changed_names();
        number
    }
}

fn land(platter: &mut Arc<Vec<u8>>, cache: &[u8], range: Range<usize>) {
    if range.is_empty() {
        return;
    }
    let platter = Arc::make_mut(platter);
    platter.resize(platter.len().max(range.end), 0);
    platter[range.clone()].copy_from_slice(&cache[range]);
}

impl SimulatedDisk {
    /// A disk in this state.
    pub fn new(state: DiskState) -> Self {
        Self(Arc::new(Mutex::new(Machine { state, ..Machine::default() })))
    }

    fn lock(&self) -> MutexGuard<'_, Machine> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How the disk is now.
    pub fn state(&self) -> DiskState {
        self.lock().state.clone()
    }

    /// Returns whether it shows a file of this name.
    pub fn has_file(&self, name: &str) -> bool {
        self.lock().state.names.contains_key(name)
    }

    /// How many operations there were.
    pub fn operations(&self) -> u64 {
        self.lock().operations
    }

    /// Lets one operation fail, counted from the first one of this disk. What a failed sync had to write is lost, though
    /// the cache shows it.
    pub fn fail_at(&self, operation: u64, kind: ErrorKind) {
        self.lock().fault = Some(Fault { operation, kind });
    }

    /// Whether new files find no room.
    pub fn set_full(&self, is_full: bool) {
        self.lock().is_full = is_full;
    }

    /// No operation fails any more.
    pub fn fail_no_more(&self) {
        self.lock().fault = None;
    }

    /// From now on remembers how the disk is before each operation.
    pub fn record(&self) {
        self.lock().is_recording = true;
    }

    /// What was remembered, and how the disk is now.
    pub fn recorded(&self) -> Vec<DiskState> {
        let mut machine = self.lock();
        let mut recorded = std::mem::take(&mut machine.recorded);
        recorded.push(machine.state.clone());
        recorded
    }

    /// Marks all states from now on.
    pub fn mark(&self, mark: (u64, u64)) {
        self.lock().state.mark = mark;
    }

    fn operate<T>(&self, operation: impl FnOnce(&mut DiskState, bool) -> io::Result<T>) -> io::Result<T> {
        let mut machine = self.lock();
        if machine.is_recording {
            let state = machine.state.clone();
            machine.recorded.push(state);
        }
        let number = machine.operations;
        machine.operations += 1;
        let is_full = machine.is_full;
        match machine.fault {
            Some(fault) if fault.operation == number => Err(fault.kind.into()),
            _ => operation(&mut machine.state, is_full),
        }
    }
}

impl Storage for SimulatedDisk {
    fn list(&self) -> io::Result<Vec<(String, Option<u64>)>> {
        self.operate(|state, _| {
            let len = |number| state.files.get(number).map_or(0, |file: &FileState| file.cache.len() as u64);
            Ok(state.names.iter().map(|(name, number)| (name.clone(), Some(len(number)))).collect())
        })
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        self.operate(|state, _| {
            let file = state.file(name)?;
            // Who reads around the cache is first shown what is about to be written, though it may still be lost; but
            // not what a failed sync lost.
            let mut bytes = Arc::clone(&file.platter);
            for range in &file.unsynced {
                land(&mut bytes, &file.cache, range.clone());
            }
            Ok(bytes.to_vec())
        })
    }

    fn make_zeroed(&self, name: &str, len: u64) -> io::Result<()> {
        self.operate(|state, is_full| {
            let made = Arc::new(vec![0; if is_full { len / 2 } else { len } as usize]);
            state.create(name, FileState { cache: Arc::clone(&made), platter: made, unsynced: Vec::new() });
            if is_full { Err(ErrorKind::StorageFull.into()) } else { Ok(()) }
        })
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn SegmentFile>> {
        let number = self.operate(|state, _| Ok(state.create(name, FileState::default())))?;
        Ok(Box::new(SimulatedFile { disk: self.clone(), number }))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn SegmentFile>> {
        let number =
            self.operate(|state, _| state.names.get(name).copied().ok_or(ErrorKind::NotFound.into()))?;
        Ok(Box::new(SimulatedFile { disk: self.clone(), number }))
    }

    fn open_segment(&self, name: &str) -> io::Result<Box<dyn SegmentFile>> {
        self.open(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.operate(|state, _| {
            let number = state.names.remove(from).ok_or(ErrorKind::NotFound)?;
            state.names.insert(to.to_owned(), number);
            state.changed_names();
            Ok(())
        })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.operate(|state, _| {
            state.names.remove(name).ok_or(ErrorKind::NotFound)?;
            state.changed_names();
            Ok(())
        })
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.operate(|state, _| {
            state.possible_names = vec![state.names.clone()];
            Ok(())
        })
    }
}

struct SimulatedFile {
    disk: SimulatedDisk,
    number: u64,
}

impl SegmentFile for SimulatedFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let number = self.number;
        self.disk.operate(|state, is_full| {
            let file = state.files.get_mut(&number).ok_or(ErrorKind::NotFound)?;
            let (start, end) = (offset as usize, offset as usize + bytes.len());
            if is_full && end > file.cache.len() {
                return Err(ErrorKind::StorageFull.into());
            }
            let cache = Arc::make_mut(&mut file.cache);
            cache.resize(cache.len().max(end), 0);
            cache[start..end].copy_from_slice(bytes);
            let pieces = (start..end).step_by(BLOCK_LEN).map(|at| at..(at + BLOCK_LEN).min(end));
            file.unsynced.extend(pieces);
            Ok(())
        })
    }

    fn sync(&mut self) -> io::Result<()> {
        let number = self.number;
        let result = self.disk.operate(|state, _| {
            let file = state.files.get_mut(&number).ok_or(ErrorKind::NotFound)?;
            for range in std::mem::take(&mut file.unsynced) {
                land(&mut file.platter, &file.cache, range);
            }
            Ok(())
        });
        if result.is_err()
            && let Some(file) = self.disk.lock().state.files.get_mut(&number)
        {
            // The pages count as clean now, so the next sync has nothing to do and succeeds.
            file.unsynced.clear();
        }
        result
    }
}
