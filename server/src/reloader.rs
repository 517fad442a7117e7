//! Files that the server reads again while it runs: all of them on SIGHUP, and the files of one object after one of
//! them has changed.
//!
//! A [`Reload`] is an object with files, such as the certificates. A [`Reloader`] has a list of them and checks their
//! files every [`RELOAD_LOOK_MS`]. It reads changed files once they stay the same between two checks, because operators
//! replace a certificate and its key one after the other. If a file cannot be used, the previous contents stay in use,
//! and later checks retry.

use crate::audit::{Audit, AuditEvent};
use crate::file_identity::FileIdentity;
use crate::limits::RELOAD_LOOK_MS;
use crate::reload::Reload;
use crate::supervisor::Supervisor;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

/// The objects whose files are watched.
#[derive(Debug, Default)]
pub struct Reloader {
    watched: Vec<WatchedObject>,
    audit: Audit,
    supervisor: Supervisor,
}

impl Reloader {
    /// Returns a reloader without files. The reloader writes reloads, failed ones too, to `audit`; a failure that later
    /// checks find again is written once. It reports each SIGHUP to `supervisor`.
    pub fn new(audit: Audit, supervisor: Supervisor) -> Self {
        Self { watched: Vec::new(), audit, supervisor }
    }

    /// Adds an object whose files have already been read.
    pub fn add(&mut self, subject: impl Reload + 'static) {
        self.watched.push(WatchedObject::new(Box::new(subject)));
    }

    /// Starts a task that reads files again, on SIGHUP and after changes. From now on SIGHUP does not end the process.
    ///
    /// # Errors
    /// Returns an error if no handler can be installed for SIGHUP.
    pub fn start(self) -> std::io::Result<()> {
        let hangup = signal(SignalKind::hangup())?;
        tokio::spawn(self.run(hangup));
        Ok(())
    }

    async fn run(mut self, mut hangup: Signal) {
        loop {
            let is_asked = tokio::select! {
                received = hangup.recv() => match received {
                    Some(()) => true,
                    None => return,
                },
                () = sleep(Duration::from_millis(RELOAD_LOOK_MS)), if !self.watched.is_empty() => false,
            };
            // Read the files on another thread. A file system that does not respond must not keep this thread, which
            // also accepts connections, from running.
            let looked = spawn_blocking(move || {
                if is_asked {
                    self.reload_all();
                } else {
                    self.look();
                }
                self
            });
            let Ok(reloader) = looked.await else { return };
            self = reloader;
        }
    }

    fn look(&mut self) {
        self.watched.iter_mut().for_each(|watched| watched.look(&self.audit));
    }

    fn reload_all(&mut self) {
        if self.watched.is_empty() {
            tracing::info!("SIGHUP: there are no files to read again");
        }
        self.supervisor.note_reloading();
        self.watched.iter_mut().for_each(|watched| watched.reload(&self.audit));
        self.audit.reopen();
        self.supervisor.note_reloaded();
    }
}

/// An object and the state of its files.
#[derive(Debug)]
struct WatchedObject {
    subject: Box<dyn Reload>,
    /// State of each file of `subject` at the last check or SIGHUP; `None` for a file that is missing or has no
    /// readable metadata.
    stamps: Vec<Option<Stamp>>,
    state: State,
}

/// The relation between the contents in use and the files.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// The object was just added. A file may have changed after it was read and before its stamp was taken. So the next
    /// check reads the files again or, if it finds a change, a later check does.
    Unconfirmed,
    /// A file has changed, and the files were not read since.
    Changed,
    /// The contents in use matched the files when they were last read.
    Current,
    /// The files cannot be used, for this reason, which was logged.
    Unusable(String),
}

/// State of a file from its metadata. Usually differs after the file was written or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    identity: FileIdentity,
    len: u64,
    modified: (i64, i64),
    /// Time of the last change of contents or attributes. A program can set the modification time of a file to that of
    /// another file, but it cannot set this time.
    changed: (i64, i64),
}

impl Stamp {
    /// Returns the device, inode, length and times of a file, or of the target of a symbolic link. Another value means
    /// that the file has changed. Returns `None` if the file is missing or its metadata cannot be read.
    fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok()?;
        Some(Self {
            identity: FileIdentity::from(&metadata),
            len: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

impl WatchedObject {
    fn new(subject: Box<dyn Reload>) -> Self {
        let mut watched = Self { subject, stamps: Vec::new(), state: State::Unconfirmed };
        watched.stamps = watched.current_stamps();
        watched
    }

    fn current_stamps(&self) -> Vec<Option<Stamp>> {
        self.subject.files().iter().map(|path| Stamp::of(path)).collect()
    }

    /// Reads the files if they are the same as at the previous check, but the contents in use may differ: after a
    /// change, after a failed read, and at the first check.
    fn look(&mut self, audit: &Audit) {
        let stamps = self.current_stamps();
        if stamps != self.stamps {
            self.stamps = stamps;
            self.state = State::Changed;
            return;
        }
        if self.state == State::Current {
            return;
        }
        let subject = self.subject.subject();
        match (self.subject.reload(), &self.state) {
            (Ok(()), State::Unconfirmed) => self.state = State::Current,
            (Ok(()), _) => {
                tracing::info!("reloaded the {subject} because a file changed");
                audit.record(&AuditEvent::reload(subject, None::<&String>));
                self.state = State::Current;
            }
            (Err(error), state) => {
                let error = error.to_string();
                if *state != State::Unusable(error.clone()) {
                    tracing::warn!(
                        %error,
                        "could not reload the {subject} after a file changed; the previous ones stay in use"
                    );
                    audit.record(&AuditEvent::reload(subject, Some(&error)));
                    self.state = State::Unusable(error);
                }
            }
        }
    }

    /// Reads the files, changed or not.
    fn reload(&mut self, audit: &Audit) {
        // Take the stamps before reading. If a file changes during the read, the next check then finds another stamp.
        self.stamps = self.current_stamps();
        let subject = self.subject.subject();
        let reloaded = self.subject.reload();
        audit.record(&AuditEvent::reload(subject, reloaded.as_ref().err()));
        match reloaded {
            Ok(()) => {
                tracing::info!("reloaded the {subject}");
                self.state = State::Current;
            }
            Err(error) => {
                tracing::error!(%error, "could not reload the {subject}; the previous ones stay in use");
                self.state = State::Unusable(error.to_string());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reload::ReloadError;
    use std::path::PathBuf;
    use std::sync::{Arc, Mutex};

    /// The contents in use of a file that must not be empty.
    #[derive(Clone, Debug)]
    struct Words {
        path: PathBuf,
        in_use: Arc<Mutex<String>>,
        read_count: Arc<Mutex<u32>>,
    }

    impl Words {
        fn in_use(&self) -> String {
            self.in_use.lock().unwrap().clone()
        }

        fn write(&self, text: &str) {
            std::fs::write(&self.path, text).unwrap();
        }

        fn read_count(&self) -> u32 {
            *self.read_count.lock().unwrap()
        }
    }

    impl Reload for Words {
        fn subject(&self) -> &'static str {
            "words"
        }

        fn files(&self) -> Vec<PathBuf> {
            vec![self.path.clone()]
        }

        fn reload(&mut self) -> Result<(), ReloadError> {
            *self.read_count.lock().unwrap() += 1;
            let text = std::fs::read_to_string(&self.path)?;
            if text.is_empty() {
                return Err("there are no words".into());
            }
            *self.in_use.lock().unwrap() = text;
            Ok(())
        }
    }

    /// Returns a reloader with one file whose contents are `before` and which the first check has already read.
    fn reloader(directory: &tempfile::TempDir) -> (Reloader, Words) {
        let (path, in_use) = (directory.path().join("words"), Arc::new(Mutex::new("before".to_owned())));
        let words = Words { path, in_use, read_count: Arc::default() };
        words.write("before");
        let mut reloader = Reloader::default();
        reloader.add(words.clone());
        reloader.look();
        assert_eq!(words.read_count(), 1);
        (reloader, words)
    }

    fn state(reloader: &Reloader) -> &State {
        &reloader.watched[0].state
    }

    #[test]
    fn a_changed_file_is_read_once_after_it_stays_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let (mut reloader, words) = reloader(&directory);
        words.write("half");
        reloader.look();
        words.write("whole words");
        reloader.look();
        assert_eq!(words.in_use(), "before", "the file still changes");
        reloader.look();
        assert_eq!(words.in_use(), "whole words");
        (0..3).for_each(|_| reloader.look());
        assert_eq!(words.read_count(), 2);
    }

    #[test]
    fn a_change_before_the_first_look_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let (_, words) = reloader(&directory);
        words.write("after");
        let mut reloader = Reloader::default();
        reloader.add(words.clone());
        reloader.look();
        assert_eq!((words.in_use().as_str(), state(&reloader)), ("after", &State::Current));
    }

    #[test]
    fn an_unusable_file_keeps_the_old_contents_and_is_tried_again() {
        let directory = tempfile::tempdir().unwrap();
        let (mut reloader, words) = reloader(&directory);
        words.write("");
        (0..4).for_each(|_| reloader.look());
        assert_eq!(words.in_use(), "before");
        assert_eq!(state(&reloader), &State::Unusable("there are no words".to_owned()));
        assert_eq!(words.read_count(), 4);
        words.write("after");
        (0..2).for_each(|_| reloader.look());
        assert_eq!((words.in_use().as_str(), state(&reloader)), ("after", &State::Current));
    }

    #[test]
    fn a_missing_file_is_a_change_and_so_is_its_replacement() {
        let directory = tempfile::tempdir().unwrap();
        let (mut reloader, words) = reloader(&directory);
        std::fs::remove_file(&words.path).unwrap();
        (0..2).for_each(|_| reloader.look());
        assert!(matches!(state(&reloader), State::Unusable(_)));
        // Write another file first, then rename it, as careful programs replace a file.
        let new = directory.path().join("new");
        std::fs::write(&new, "after").unwrap();
        std::fs::rename(&new, &words.path).unwrap();
        (0..2).for_each(|_| reloader.look());
        assert_eq!(words.in_use(), "after");
    }

    #[test]
    fn a_signal_reads_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let (mut reloader, words) = reloader(&directory);
        words.write("after");
        reloader.reload_all();
        assert_eq!(words.in_use(), "after");
        (0..2).for_each(|_| reloader.look());
        assert_eq!(words.read_count(), 2);
    }
}
