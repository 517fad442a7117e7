//! Pages in a real Chromium, which decides itself which headers it sends.

use super::server;
use super::site::Site;
use crate::harness::{Server, WATCHDOG};
use crate::skip::skip;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// Name that the browser resolves to this machine.
const REBOUND: &str = "evil.example";

/// A running browser. Ends with this value.
struct Browser {
    child: Child,
    _profile: TempDir,
}

impl Browser {
    /// Opens the page in a new browser.
    fn open(url: &str) -> Self {
        let profile = tempfile::tempdir().expect("a folder");
        let child = Command::new("chromium")
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
            ])
            .args(["--disable-background-networking", "--disable-features=HttpsUpgrades"])
            .arg(format!("--host-resolver-rules=MAP {REBOUND} 127.0.0.1"))
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg(url)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("it starts");
        Self { child, _profile: profile }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = killpg(Pid::from_raw(self.child.id() as i32), Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

fn is_missing(test: &str) -> bool {
    let mut version = Command::new("chromium");
    let is_missing = version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err();
    if is_missing {
        skip(test, "chromium is not installed");
    }
    is_missing
}

/// Returns the results of the page of the site, opened under this host name, at the target: `fetch=…&socket=…`.
fn attempt(host: &str, site: &Site, target: &str) -> String {
    let url = format!("http://{host}:{}/page?{target}", site.port());
    let _browser = Browser::open(&url);
    // A browser with a new profile takes seconds to start on a busy machine.
    site.report(2 * WATCHDOG)
}

#[test]
fn a_page_of_another_origin_reaches_the_server_only_if_it_is_allowed() {
    if is_missing("pages of other origins") {
        return;
    }
    let site = Site::start(None);
    let origin = format!("--http-origins=http://127.0.0.1:{}", site.port());
    for (options, expected) in
        [(&[][..], "fetch=failed&socket=failed"), (&[&*origin][..], "fetch=200&socket=open")]
    {
        let server = server(options);
        for port in ["http", "locktopus"] {
            let achieved = attempt("127.0.0.1", &site, server.address(port));
            assert_eq!(achieved, expected, "{options:?} {port}");
        }
    }
}

/// The site serves its page at first, and is the server for every later request: so does a name whose address changes.
#[test]
fn a_page_that_rebinds_its_name_reaches_the_server_only_if_the_name_is_allowed() {
    if is_missing("pages that rebind their names") {
        return;
    }
    let hosts = format!("--http-hosts={REBOUND}");
    for (options, expected) in
        [(&[][..], "fetch=421&socket=failed"), (&[&*hosts][..], "fetch=200&socket=open")]
    {
        let server: Server = server(options);
        let site = Site::start(Some(server.address("http")));
        let own = format!("{REBOUND}:{}", site.port());
        assert_eq!(attempt(REBOUND, &site, &own), expected, "{options:?}");
    }
}
