//! Executable files that tests write and then run.

use std::path::Path;
use std::process::Command;

/// Writes an executable file. Another process writes it: a test that starts a process at the same moment would pass on the
/// descriptor that writes the file, and Linux runs no file that is open for writing.
pub(crate) fn write(path: &Path, content: impl AsRef<[u8]>) {
    let text = path.with_extension("new");
    std::fs::write(&text, content).expect("a file");
    let status = Command::new("install").args([&text, path]).status().expect("it starts");
    assert!(status.success(), "install: {status}");
    std::fs::remove_file(text).expect("a file");
}
