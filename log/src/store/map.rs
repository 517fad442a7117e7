//! A segment that is mapped into memory, and the handling of a disk failure under the map.

#![expect(clippy::disallowed_types, reason = "maps a file into memory")]
#![expect(unsafe_code, reason = "maps a file into memory, and handles the signal SIGBUS of a failed access")]

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

use memmap2::{Advice, MmapMut, MmapOptions};
use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use super::storage::SegmentFile;

/// Exit status of the server after the disk failed to take a store into mapped memory.
const EXIT_SIGBUS: i32 = 74;

/// Start address of the newest memory map; `MAP_LEN` is its length. The signal handler checks whether a failed access
/// was inside this map.
static MAP_START: AtomicUsize = AtomicUsize::new(0);
static MAP_LEN: AtomicUsize = AtomicUsize::new(0);

/// A file that is changed by stores into a memory map of it, or by write calls after the map was dropped.
pub(super) struct MappedFile {
    /// The mapped file, open for syncs. It was opened before the first store: a sync reports only the failed writes
    /// that happened while the file was open.
    file: File,
    map: Option<MmapMut>,
    dirtied: DirtyRange,
}

impl MappedFile {
    /// Maps the file at its current length. Every page of the file must have been written before, so that the disk has
    /// room for it. A store into a page without room would kill the process.
    pub(super) fn new(file: File) -> io::Result<Self> {
        static HANDLER: Once = Once::new();
        HANDLER.call_once(handle_sigbus);
        let len = file.metadata()?.len() as usize;
        // SAFETY: the lock on the directory keeps other processes from writing or shortening the file, and the server
        // never shortens a segment. References into the map exist only while bytes are copied into it.
        let map = unsafe { MmapOptions::new().len(len).map_mut(&file)? };
        // The advice `Random` turns readahead off. Otherwise the kernel would load pages in large groups, and each
        // store would write its whole group to the disk.
        map.advise(Advice::Random)?;
        MAP_START.store(map.as_ptr() as usize, Ordering::Relaxed);
        MAP_LEN.store(len, Ordering::Relaxed);
        Ok(Self { file, map: Some(map), dirtied: DirtyRange::default() })
    }
}

impl SegmentFile for MappedFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let Some(map) = &mut self.map else { return self.file.write_all_at(bytes, offset) };
        let target = usize::try_from(offset)
            .ok()
            .and_then(|start| map.get_mut(start..)?.get_mut(..bytes.len()))
            .ok_or(io::ErrorKind::InvalidInput)?;
        let before = self.dirtied.begin();
        target.copy_from_slice(bytes);
        if self.dirtied.is_too_much(before, bytes.len() as u64) {
            tracing::warn!(
                "log: the file system writes more than expected for a store into mapped memory; using write calls instead"
            );
            self.map = None;
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// Measurement of the first stores into a map: the stored bytes, and the bytes that the kernel must write to the disk
/// for them. The second number should be little more than the first. If the kernel uses large pages, the disk may write
/// up to a megabyte for each store, with blocks that were acknowledged long ago. [`MappedFile`] then uses write calls
/// instead of the map.
#[derive(Default)]
struct DirtyRange {
    stores: u32,
    stored_len: u64,
    dirtied_len: u64,
}

impl DirtyRange {
    /// Number of stores after which the stored bytes are compared with the bytes that the kernel must write for them.
    /// The result decides whether the map is still used.
    const STORES: u32 = 8;
    /// Maximum ratio of the bytes that the kernel must write to the stored bytes. A higher ratio shows that the kernel
    /// uses large pages. The segment is then changed by write calls instead of stores into the map.
    const FACTOR_MAX: u64 = 4;

    fn begin(&self) -> Option<u64> {
        if self.stores < Self::STORES { dirtied_len() } else { None }
    }

    fn is_too_much(&mut self, before: Option<u64>, stored_len: u64) -> bool {
        let (Some(before), Some(after)) = (before, dirtied_len()) else { return false };
        self.stores += 1;
        self.stored_len += stored_len;
        self.dirtied_len += after.saturating_sub(before);
        self.stores == Self::STORES && self.dirtied_len > Self::FACTOR_MAX * self.stored_len
    }
}

/// Returns the number of bytes of file pages that this thread has changed in memory, and that the kernel must write to
/// the disk. Returns `None` if the kernel does not count them.
pub(super) fn dirtied_len() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("write_bytes: "))?.parse().ok()
}

fn handle_sigbus() {
    let action = SigAction::new(SigHandler::SigAction(on_sigbus), SaFlags::SA_SIGINFO, SigSet::empty());
    // SAFETY: the handler calls nothing but `write`, `_exit` and `signal`, and reads no shared data but atomics.
    if let Err(error) = unsafe { sigaction(Signal::SIGBUS, &action) } {
        tracing::warn!(
            "log: cannot install a SIGBUS handler, so a disk failure in mapped memory ends the server without a message: {error}"
        );
    }
}

extern "C" fn on_sigbus(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel hands a valid `siginfo_t` to a handler with SA_SIGINFO.
    let address = unsafe { (*info).si_addr() } as usize;
    let offset = address.wrapping_sub(MAP_START.load(Ordering::Relaxed));
    if offset >= MAP_LEN.load(Ordering::Relaxed) {
        // The failed access was not to this map, so this handler cannot explain it. It restores the default action and
        // returns: the access is repeated, and the signal ends the process.
        // SAFETY: `signal` is async-signal-safe.
        unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
        return;
    }
    let mut line = *b"log: the disk failed under the segment at byte 0x0000000000000000\n";
    let digits = line.len() - 17;
    for (place, digit) in line[digits..digits + 16].iter_mut().enumerate() {
        *digit = b"0123456789abcdef"[(offset >> (60 - 4 * place)) & 15];
    }
    // SAFETY: `write` and `_exit` are async-signal-safe, and the buffer outlives the call of `write`.
    unsafe {
        libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len());
        libc::_exit(EXIT_SIGBUS)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::store::tests::{mappable, skip::skip};
    use crate::store::{Device, Disk, Storage};

    const LEN: usize = 2 << 20;
    const FRAME: [u8; 4096] = [7; 4096];

    fn frames(mapped: &mut MappedFile) {
        for frame in 1..32u64 {
            mapped.write_at(frame * 4096, &FRAME).unwrap();
            mapped.sync().unwrap();
        }
    }

    #[test]
    fn a_segment_evicted_from_the_cache_still_dirties_single_blocks() {
        let Some(directory) = mappable("a_segment_evicted_from_the_cache_still_dirties_single_blocks") else {
            return;
        };
        let disk = Disk::open(directory.path(), Device::Map).unwrap();
        disk.make_zeroed("segment", LEN as u64).unwrap();
        let file = File::options().read(true).write(true).open(directory.path().join("segment")).unwrap();
        let drop_cached = nix::fcntl::PosixFadviseAdvice::POSIX_FADV_DONTNEED;
        nix::fcntl::posix_fadvise(&file, 0, 0, drop_cached).unwrap();
        let mut mapped = MappedFile::new(file).unwrap();
        let before = dirtied_len().unwrap();
        frames(&mut mapped);
        let sectors = (dirtied_len().unwrap() - before) / 512 / 31;
        assert!((8..=16).contains(&sectors), "{sectors} sectors a frame");
        assert!(mapped.map.is_some());
    }

    #[test]
    fn a_map_of_large_pages_falls_back_to_writes() {
        let Some(directory) = mappable("a_map_of_large_pages_falls_back_to_writes") else { return };
        let path = directory.path().join("segment");
        std::fs::write(&path, vec![0; LEN]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        file.sync_all().unwrap();
        let mut mapped = MappedFile::new(file).unwrap();
        frames(&mut mapped);
        if mapped.map.is_some() {
            skip("a_map_of_large_pages_falls_back_to_writes", "this kernel made no large pages");
        }
        let bytes = std::fs::read(&path).unwrap();
        assert!(bytes[4096..32 * 4096].iter().all(|byte| *byte == 7));
        assert!(bytes[32 * 4096..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_write_beyond_the_mapped_file_is_an_error() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        let mut mapped = MappedFile::new(file).unwrap();
        for offset in [4097, 8192, u64::MAX] {
            assert!(mapped.write_at(offset, &FRAME).is_err());
        }
        mapped.write_at(4096, &FRAME).unwrap();
    }

    const IN_CHILD: &str = "WAYMAKER_TEST_SIGBUS";

    /// Not a test by itself: another test runs it in a child process, because the failed store ends the process.
    #[test]
    fn a_store_into_a_truncated_file() {
        if std::env::var_os(IN_CHILD).is_none() {
            return;
        }
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        let mut mapped = MappedFile::new(file.try_clone().unwrap()).unwrap();
        file.set_len(4096).unwrap();
        let _ = mapped.write_at(4096, &FRAME);
    }

    #[test]
    fn a_failed_store_reports_its_byte_and_ends_the_process() {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", "store::map::tests::a_store_into_a_truncated_file"])
            .env(IN_CHILD, "1")
            .output()
            .unwrap();
        assert_eq!(child.status.code(), Some(EXIT_SIGBUS), "{child:?}");
        let said = String::from_utf8_lossy(&child.stderr);
        // The processor may store any byte of the frame first, so the last digits of the reported byte are not checked.
        assert!(said.contains("under the segment at byte 0x0000000000001"), "{said}");
    }
}
