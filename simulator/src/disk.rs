//! A simulated disk under a log. Written bytes are in a cache. After a crash any part of the bytes that were
//! not synced may be on the platter.
//!
//! Every call is one operation. The disk can fail at any operation. It can also record its state before each
//! operation, so that a test can simulate a crash at every operation of one run.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use waymaker_log::store::{SegmentFile, Storage};

/// Length of the pieces of a file that a crash may lose independently.
pub const BLOCK_LEN: usize = 4096;
/// Length of a sector, which a crash never tears.
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

/// Contents of a disk: its cache and its platter. Copies share memory as far as they are equal.
#[derive(Clone, Debug)]
pub struct DiskState {
    files: BTreeMap<u64, FileState>,
    names: Names,
    /// Directory entries that are possible after a crash: the last durable ones, and the ones after each
    /// change since.
    possible_names: Vec<Names>,
    next_file: u64,
    /// Mark that a test sets to recognize a recorded state.
    pub mark: (u64, u64),
}

type Names = BTreeMap<String, u64>;

#[derive(Clone, Debug, Default)]
struct FileState {
    cache: Arc<Vec<u8>>,
    platter: Arc<Vec<u8>>,
    /// Ranges in which the cache is newer than the platter. No range is longer than a block.
    unsynced: Vec<Range<usize>>,
}

/// The unsynced changes that are on the platter after a crash.
#[derive(Clone, Copy, Debug)]
pub struct Survival {
    /// Bit `n % 64` is set if the n-th unsynced piece is on the platter.
    pub pieces: u64,
    /// Number of leading sectors on the platter for each of the other pieces. The first of these sectors may
    /// be incomplete.
    pub torn_sectors: usize,
    /// Number of unsynced changes of names on the platter; all of them if there are fewer.
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
    /// Returns the number of unsynced pieces of files.
    pub fn unsynced_pieces(&self) -> usize {
        self.files.values().map(|file| file.unsynced.len()).sum()
    }

    /// Returns the number of unsynced changes of names.
    pub fn unsynced_names(&self) -> usize {
        self.possible_names.len() - 1
    }

    /// Returns the state of the disk after a crash.
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

    /// Returns the bytes of a file on the platter.
    pub fn bytes(&self, name: &str) -> Option<&[u8]> {
        Some(&self.files.get(self.names.get(name)?)?.platter)
    }

    /// Changes the bytes of a file on the platter without any operation, as bit rot does.
    pub fn rot(&mut self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        if let Some(file) = self.names.get(name).and_then(|number| self.files.get_mut(number)) {
            change(Arc::make_mut(&mut file.platter));
            file.cache = Arc::clone(&file.platter);
        }
    }

    /// Returns the names of all files.
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
    /// Creates a disk with this state.
    pub fn new(state: DiskState) -> Self {
        Self(Arc::new(Mutex::new(Machine { state, ..Machine::default() })))
    }

    fn lock(&self) -> MutexGuard<'_, Machine> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the current state of the disk.
    pub fn state(&self) -> DiskState {
        self.lock().state.clone()
    }

    /// Returns whether a file of this name is visible.
    pub fn has_file(&self, name: &str) -> bool {
        self.lock().state.names.contains_key(name)
    }

    /// Returns the number of operations so far.
    pub fn operations(&self) -> u64 {
        self.lock().operations
    }

    /// Lets one operation fail, counted from the first operation of this disk. If the operation is a sync,
    /// the unsynced bytes are lost although the cache still shows them.
    pub fn fail_at(&self, operation: u64, kind: ErrorKind) {
        self.lock().fault = Some(Fault { operation, kind });
    }

    /// Sets whether the disk is full, so that new files find no room.
    pub fn set_full(&self, is_full: bool) {
        self.lock().is_full = is_full;
    }

    /// Removes the planned failure of an operation.
    pub fn fail_no_more(&self) {
        self.lock().fault = None;
    }

    /// Starts to record the state of the disk before each operation.
    pub fn record(&self) {
        self.lock().is_recording = true;
    }

    /// Returns the recorded states, followed by the current state.
    pub fn recorded(&self) -> Vec<DiskState> {
        let mut machine = self.lock();
        let mut recorded = std::mem::take(&mut machine.recorded);
        recorded.push(machine.state.clone());
        recorded
    }

    /// Sets the mark of all states from now on.
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
            // A read that bypasses the cache sees bytes that are about to be written, although a crash may
            // still lose them. It does not see bytes that a failed sync has lost.
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
            // The pages count as clean after the failure, so the next sync has nothing to do and succeeds.
            file.unsynced.clear();
        }
        result
    }
}
