//! Checks whether a file or directory could be written or created, and whether a socket could be created. The checks
//! create nothing, so checking a configuration leaves no trace.

use nix::unistd::{AccessFlags, access};
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::SocketAddr;
use std::path::Path;

/// Returns an error if a file can be neither written nor created.
pub(crate) fn file(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(about) if about.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(_) => Ok(access(path, AccessFlags::W_OK)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => entry(path),
        Err(error) => Err(error),
    }
}

/// Returns an error if no Unix socket can be created at this path. An existing socket is no error. The directory may be
/// missing: a supervisor may create it at the start, as systemd does with a directory in `/run`.
pub(crate) fn socket(path: &Path) -> io::Result<()> {
    SocketAddr::from_pathname(path)?;
    let possible = match fs::symlink_metadata(path) {
        Ok(about) if about.file_type().is_socket() => entry(path),
        Ok(_) => Err(io::Error::new(io::ErrorKind::AlreadyExists, "another file is there")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => entry(path),
        Err(error) => Err(error),
    };
    possible.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

/// Returns an error if a directory can be neither written nor created together with its parents.
pub(crate) fn directory(path: &Path) -> io::Result<()> {
    for directory in path.ancestors().map(or_here) {
        match fs::metadata(directory) {
            Ok(about) if about.is_dir() => return writable(directory),
            Ok(_) => return Err(io::ErrorKind::NotADirectory.into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns an error if the parent directory of a path is missing or not writable.
fn entry(path: &Path) -> io::Result<()> {
    writable(path.parent().map_or(path, or_here))
}

fn writable(directory: &Path) -> io::Result<()> {
    Ok(access(directory, AccessFlags::W_OK | AccessFlags::X_OK)?)
}

fn or_here(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;

    fn kind(result: io::Result<()>) -> Result<(), ErrorKind> {
        result.map_err(|error| error.kind())
    }

    #[test]
    fn what_could_be_made_is_distinguished_from_what_could_not() {
        let place = tempfile::tempdir().unwrap();
        let [text, missing, below_text] =
            ["text", "missing/file", "text/file"].map(|name| place.path().join(name));
        fs::write(&text, "").unwrap();
        let socket_path = place.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket_path).unwrap();
        for check in [file, socket] {
            assert_eq!(kind(check(&place.path().join("new"))), Ok(()));
            assert_eq!(kind(check(Path::new("new"))), Ok(()));
            assert_eq!(kind(check(&below_text)), Err(ErrorKind::NotADirectory));
        }
        assert_eq!(kind(file(&missing)), Err(ErrorKind::NotFound));
        assert_eq!(kind(socket(&missing)), Ok(()), "somebody else may make the directory");
        assert_eq!(kind(file(&text)), Ok(()));
        assert_eq!(kind(file(place.path())), Err(ErrorKind::IsADirectory));
        assert_eq!(kind(socket(&socket_path)), Ok(()));
        assert_eq!(kind(socket(&text)), Err(ErrorKind::AlreadyExists));
        assert_eq!(kind(socket(Path::new(&"x".repeat(200)))), Err(ErrorKind::InvalidInput));
        for path in [place.path(), Path::new("new"), &missing] {
            assert_eq!(kind(directory(path)), Ok(()), "{path:?}");
        }
        for path in [&text, &below_text] {
            assert_eq!(kind(directory(path)), Err(ErrorKind::NotADirectory), "{path:?}");
        }
        // No user can create a directory in `/proc`, not even root.
        assert!(directory(Path::new("/proc/self/new")).is_err());
    }
}
