//! Installation of Debian packages; needs root.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;

use super::{on_path, output_of};

/// Script that packages call to ask whether they may start services; exit code 101 denies it.
const POLICY_FILE: &str = "/usr/sbin/policy-rc.d";
const POLICY: &[u8] = b"#!/bin/sh\nexit 101\n";

/// Installs a package without starting its services. Returns the reason if that fails.
pub(super) fn install(package: &str) -> Result<(), String> {
    if !nix::unistd::geteuid().is_root() || on_path("apt-get").is_none() {
        return Err(format!("the Debian package {package} contains it"));
    }
    eprintln!("installing the Debian package {package}");
    let _policy = NoServices::declare();
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(["-qq", "-o", "DPkg::Lock::Timeout=120"]).args(arguments);
        output_of(command.env("DEBIAN_FRONTEND", "noninteractive"))
    };
    apt(&["update"])
        .and_then(|_| apt(&["install", "-y", "--no-install-recommends", package]))
        .map(drop)
        .map_err(|why| format!("the Debian package {package} could not be installed: {why}"))
}

/// While this guard lives, packages start no services, which would take the port and the data of an existing
/// server.
struct NoServices {
    is_ours: bool,
}

impl NoServices {
    /// Leaves an existing policy unchanged.
    fn declare() -> Self {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o755).open(POLICY_FILE);
        Self { is_ours: file.and_then(|mut file| file.write_all(POLICY)).is_ok() }
    }
}

impl Drop for NoServices {
    fn drop(&mut self) {
        if self.is_ours {
            let _ = fs::remove_file(Path::new(POLICY_FILE));
        }
    }
}
