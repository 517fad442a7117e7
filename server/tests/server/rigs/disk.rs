//! A disk of our own: an image that is mounted in a temporary directory.

use super::site::{has, is_root};
use crate::skip::skip;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// With all room for everybody, and a short log.
const EXT4: [&str; 7] = ["mkfs.ext4", "-q", "-F", "-m", "0", "-J", "size=4"];

/// A mounted file system, unmounted when this is dropped.
#[derive(Debug)]
pub(crate) struct MountedImage {
    image: PathBuf,
    mounted: Mount,
    /// What else has to be there for as long.
    below: Option<Mount>,
    /// Where all that lies.
    _directory: tempfile::TempDir,
}

/// A file system in memory, unmounted when this is dropped.
#[derive(Debug)]
pub(crate) struct MemoryDisk {
    mounted: Mount,
    _directory: tempfile::TempDir,
}

/// A file that takes all room there is, gone when this is dropped.
#[derive(Debug)]
pub(crate) struct Ballast {
    path: PathBuf,
    file: File,
}

/// A mount, undone when this is dropped.
#[derive(Debug)]
struct Mount(PathBuf);

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-l".as_ref(), self.0.as_os_str()]).status();
    }
}

/// Runs a program that must succeed.
#[track_caller]
fn run(program: &str, arguments: &[&str]) -> String {
    let output =
        Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Mounts an image. Whatever is written to it goes down block by block: of a longer write that finds room for its first part
/// alone, the loop device says that all of it was written.
fn mount_image(image: &Path, point: &Path) {
    let device = run("losetup", &["--find", "--show", text(image)]);
    let queue = Path::new("/sys/block").join(device.trim_start_matches("/dev/")).join("queue/max_sectors_kb");
    std::fs::write(&queue, "4").expect("a loop device has a queue");
    run("mount", &[&device, text(point)]);
    // It goes with the mount.
    run("losetup", &["--detach", &device]);
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

/// Whether file systems can be made and mounted here; says so if not.
pub(crate) fn can_mount(what: &str, format: &str) -> bool {
    if !is_root() {
        skip(what, "only root can mount");
    } else if let Some(missing) = [format, "mount", "perl"].into_iter().find(|program| !has(program)) {
        skip(what, &format!("there is no {missing}"));
    } else {
        return true;
    }
    false
}

impl MountedImage {
    /// An ext4 file system of so many MiB.
    pub(crate) fn ext4(len_mib: u64) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        Self::make(directory, None, len_mib, &EXT4)
    }

    /// An XFS file system of the least size it can have.
    pub(crate) fn xfs() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        Self::make(directory, None, 512, &["mkfs.xfs", "-q"])
    }

    /// The same, in a tmpfs that has room for less: the disk under the file system runs out before it is full.
    pub(crate) fn thin(len_mib: u64, room_mib: u64) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let below = directory.path().join("below");
        std::fs::create_dir(&below).expect("a directory");
        run("mount", &["-t", "tmpfs", "-o", &format!("size={room_mib}m"), "none", text(&below)]);
        Self::make(directory, Some(Mount(below)), len_mib, &EXT4)
    }

    /// Goes once through the file system's own log, so that it has its room below for good.
    pub(crate) fn use_log_of_file_system(&self) {
        let path = self.path().join("passing");
        for _ in 0..600 {
            let file = File::create(&path).expect("a file");
            file.sync_all().expect("it is there");
            std::fs::remove_file(&path).expect("it was there");
            File::open(self.path()).and_then(|root| root.sync_all()).expect("it is gone");
        }
    }

    fn make(directory: tempfile::TempDir, below: Option<Mount>, len_mib: u64, format: &[&str]) -> Self {
        let image = below.as_ref().map_or(directory.path(), |below| &below.0).join("image");
        let point = directory.path().join("mounted");
        std::fs::create_dir(&point).expect("a directory");
        let file = File::create(&image).expect("a file");
        file.set_len(len_mib << 20).expect("a sparse file");
        run(format[0], &[&format[1..], &[text(&image)]].concat());
        mount_image(&image, &point);
        Self { image, mounted: Mount(point), below, _directory: directory }
    }

    /// Where it is mounted.
    pub(crate) fn path(&self) -> &Path {
        &self.mounted.0
    }

    /// The file system under a thin one.
    pub(crate) fn below(&self) -> &Path {
        &self.below.as_ref().expect("a thin one").0
    }

    /// Cuts the power: nothing reaches the disk any more, not even the file system's own log.
    pub(crate) fn cut_power(&self) {
        // EXT4_IOC_SHUTDOWN, and XFS_IOC_GOINGDOWN, without a flush of the log.
        let cut = "open(my $root, '<', $ARGV[0]) or die $!; my $how = pack('L', 2); \
                   ioctl($root, 0x8004587d, $how) or die $!;";
        run("perl", &["-e", cut, text(self.path())]);
    }

    /// Mounts it again, as after a boot. Nobody may use it.
    pub(crate) fn remount(&self) {
        run("umount", &[text(self.path())]);
        mount_image(&self.image, self.path());
    }
}

impl MemoryDisk {
    /// One with room for so many MiB.
    pub(crate) fn new(len_mib: u64) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let point = directory.path().join("mounted");
        std::fs::create_dir(&point).expect("a directory");
        run("mount", &["-t", "tmpfs", "-o", &format!("size={len_mib}m"), "none", text(&point)]);
        Self { mounted: Mount(point), _directory: directory }
    }

    /// Where it is mounted.
    pub(crate) fn path(&self) -> &Path {
        &self.mounted.0
    }

    /// Nothing can be written there from here on.
    pub(crate) fn forbid_writes(&self) {
        run("mount", &["-o", "remount,ro", text(self.path())]);
    }
}

impl Ballast {
    /// None yet, on the file system of this directory.
    pub(crate) fn new(directory: &Path) -> Self {
        let path = directory.join("ballast");
        let file = File::create(&path).expect("a file");
        Self { path, file }
    }

    /// Takes what room there is at the moment.
    pub(crate) fn fill(&self) {
        for len in [1 << 20, 1 << 12] {
            while (&self.file).write(&vec![1; len]).is_ok() {}
        }
        // Room that is only promised may turn out not to be there.
        let _ = self.file.sync_all();
    }
}

impl Drop for Ballast {
    fn drop(&mut self) {
        let _ = self.file.set_len(0);
        let _ = std::fs::remove_file(&self.path);
    }
}
