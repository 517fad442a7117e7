//! The directory of a CA.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rcgen::{KeyPair, RevokedCertParams, SerialNumber};
use waymaker_protocol::Hex;
use x509_parser::prelude::FromDer;
use x509_parser::revocation_list::CertificateRevocationList;

use super::Failure;
use super::authority::{Authority, Issued, pem_of};
use super::names::ClientName;
use crate::files::{open_to_read, replace, resolved, write_new};

/// Permissions of a file with a private key.
const KEY_MODE: u32 = 0o600;
/// Permissions of other files, before the file mode creation mask.
const PUBLIC_MODE: u32 = 0o644;

#[derive(Debug)]
pub(super) struct Directory(PathBuf);

/// A certificate in the revocation list.
#[derive(Debug)]
pub(super) struct Revoked {
    /// Hexadecimal digits of the serial number.
    pub(super) serial: String,
    /// Whether the certificate was not in the list before.
    pub(super) is_new: bool,
    /// Number of certificates in the list.
    pub(super) count: u64,
}

/// Files that a command has written. A command that fails removes them, because they would block the next attempt.
#[derive(Debug, Default)]
pub(super) struct NewFiles(Vec<PathBuf>);

impl NewFiles {
    /// Writes a file that must not exist yet.
    fn write(&mut self, path: PathBuf, text: &str, mode: u32) -> Result<(), Failure> {
        write_new(&path, text, mode).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => exists(&path),
            _ => Failure::file(&path, "write", &error),
        })?;
        self.0.push(path);
        Ok(())
    }

    /// Keeps the files.
    pub(super) fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for NewFiles {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}

impl Directory {
    pub(super) fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn certificate(&self, stem: &str) -> PathBuf {
        self.0.join(format!("{stem}.pem"))
    }

    pub(super) fn key(&self, stem: &str) -> PathBuf {
        self.0.join(format!("{stem}.key"))
    }

    pub(super) fn list(&self) -> PathBuf {
        self.0.join("clients.crl")
    }

    /// Checks that the files of these certificates do not exist, nor two of them have the same name.
    pub(super) fn check_free(&self, stems: &[String]) -> Result<(), Failure> {
        for (index, stem) in stems.iter().enumerate() {
            if stems[..index].contains(stem) {
                return Err(Failure::usage(format!("two certificates would have the file {stem}.pem")));
            }
            check_absent(&self.certificate(stem))?;
            check_absent(&self.key(stem))?;
        }
        Ok(())
    }

    /// Checks that there is no revocation list.
    pub(super) fn check_no_list(&self) -> Result<(), Failure> {
        check_absent(&self.list())
    }

    /// Creates the directory if it is missing.
    pub(super) fn create(&self) -> Result<(), Failure> {
        fs::create_dir_all(&self.0).map_err(|error| Failure::file(&self.0, "create", &error))
    }

    /// Writes a certificate and its key. Overwrites neither.
    pub(super) fn write_pair(&self, new: &mut NewFiles, stem: &str, issued: &Issued) -> Result<(), Failure> {
        new.write(self.key(stem), &issued.key, KEY_MODE)?;
        new.write(self.certificate(stem), &issued.certificate, PUBLIC_MODE)
    }

    /// Writes the first revocation list. Overwrites none.
    pub(super) fn write_list(&self, new: &mut NewFiles, list: &str) -> Result<(), Failure> {
        new.write(self.list(), list, PUBLIC_MODE)
    }

    /// Replaces the revocation list in one step, since a server may read it at any time. Creates it if it is missing.
    fn replace_list(&self, list: &str) -> Result<(), Failure> {
        let path = self.list();
        let replaced = resolved(&path).and_then(|target| match fs::metadata(&target) {
            Ok(old) => replace(&target, &old, list),
            Err(error) if error.kind() == ErrorKind::NotFound => write_new(&target, list, PUBLIC_MODE),
            Err(error) => Err(error),
        });
        replaced.map_err(|error| Failure::file(&path, "replace", &error))
    }

    /// Locks the directory until the result is dropped. Waits while another process has the lock.
    fn locked(&self) -> Result<File, Failure> {
        let locked = File::open(&self.0).and_then(|directory| directory.lock().map(|()| directory));
        locked.map_err(|error| Failure::file(&self.0, "lock", &error))
    }

    /// Reads the CA.
    pub(super) fn authority(&self) -> Result<Authority, Failure> {
        let (path, key_path) = (self.certificate("ca"), self.key("ca"));
        let (text, key) = (read(&path)?, read(&key_path)?);
        let unusable = || Failure::usage(format!("{} contains no certificate", path.display()));
        let pem = pem_of(text.as_bytes(), "CERTIFICATE").ok_or_else(unusable)?;
        let certificate = pem.parse_x509().map_err(|_| unusable())?;
        let key = KeyPair::from_pem(&key)
            .map_err(|error| Failure::usage(format!("cannot use {}: {error}", key_path.display())))?;
        Authority::of(&text, &certificate, key)
    }

    /// Adds the certificate of a client to the revocation list.
    pub(super) fn revoke(&self, authority: &Authority, name: &ClientName) -> Result<Revoked, Failure> {
        let path = self.certificate(&name.stem());
        let unusable = || Failure::usage(format!("{} contains no certificate", path.display()));
        let pem = pem_of(read(&path)?.as_bytes(), "CERTIFICATE").ok_or_else(unusable)?;
        let certificate = pem.parse_x509().map_err(|_| unusable())?;
        if !authority.has_signed(&certificate) {
            let ca = self.certificate("ca");
            let problem = format!("the certificate in {} was not issued by {}", path.display(), ca.display());
            return Err(Failure::usage(problem));
        }
        let serial = certificate.tbs_certificate.serial.to_bytes_be();
        // Two processes that change the same list would lose a revocation.
        let _locked = self.locked()?;
        let (mut revoked, number) = self.revoked()?;
        let is_new = revoked.iter().all(|other| other.serial_number.as_ref() != serial);
        if is_new {
            revoked.push(RevokedCertParams {
                serial_number: SerialNumber::from(serial.clone()),
                revocation_time: SystemTime::now().into(),
                reason_code: None,
                invalidity_date: None,
            });
            self.replace_list(&authority.revocation_list(&revoked, number + 1)?)?;
        }
        let serial = Hex(&serial).to_string();
        Ok(Revoked { serial, is_new, count: revoked.len() as u64 })
    }

    /// Returns the certificates in the revocation list, and the number of the list. A missing list is empty.
    fn revoked(&self) -> Result<(Vec<RevokedCertParams>, u64), Failure> {
        let path = self.list();
        let bytes = resolved(&path).and_then(|target| {
            let mut bytes = Vec::new();
            open_to_read(&target)?.read_to_end(&mut bytes)?;
            Ok(bytes)
        });
        let text = match bytes {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok((Vec::new(), 0)),
            Err(error) => return Err(Failure::file(&path, "read", &error)),
        };
        let unusable = || Failure::usage(format!("{} contains no revocation list", path.display()));
        let pem = pem_of(&text, "X509 CRL").ok_or_else(unusable)?;
        let (_, list) = CertificateRevocationList::from_der(&pem.contents).map_err(|_| unusable())?;
        let revoked = list.iter_revoked_certificates().map(|revoked| RevokedCertParams {
            serial_number: SerialNumber::from(revoked.serial().to_bytes_be()),
            revocation_time: revoked.revocation_date.to_datetime(),
            reason_code: None,
            invalidity_date: None,
        });
        let number = list.crl_number().and_then(|number| number.iter_u64_digits().next());
        Ok((revoked.collect(), number.unwrap_or_default()))
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    open_to_read(path).and_then(io::read_to_string).map_err(|error| Failure::file(path, "read", &error))
}

fn check_absent(path: &Path) -> Result<(), Failure> {
    // A link that leads nowhere exists too.
    match fs::symlink_metadata(path) {
        Ok(_) => Err(exists(path)),
        Err(_) => Ok(()),
    }
}

fn exists(path: &Path) -> Failure {
    Failure::usage(format!("{} exists; no file is overwritten", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_fails_removes_the_files_that_it_has_written_and_no_others() {
        let directory = tempfile::tempdir().unwrap();
        let [first, second, other] = ["first", "second", "other"].map(|name| directory.path().join(name));
        let write = |path: &PathBuf| {
            let mut new = NewFiles::default();
            new.write(first.clone(), "", PUBLIC_MODE)?;
            new.write(path.clone(), "", PUBLIC_MODE)?;
            new.keep();
            Ok::<_, Failure>(())
        };
        fs::write(&other, "of another command").unwrap();
        write(&other).unwrap_err();
        assert!(!first.exists() && other.exists());
        write(&second).unwrap();
        assert!(first.exists() && second.exists());
    }
}
