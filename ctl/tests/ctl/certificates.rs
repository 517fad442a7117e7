//! `tls`: makes certificates that a real server and a real client accept.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Output;
use std::thread;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use tempfile::TempDir;
use x509_parser::extensions::GeneralName;
use x509_parser::pem::parse_x509_pem;
use x509_parser::prelude::FromDer;
use x509_parser::revocation_list::CertificateRevocationList;

use crate::output::objects;
use crate::program::{ctl, eventually, output, stderr, stdout};
use crate::real::{RealServer, server};
use crate::schema::check;

/// Runs a command that needs no server.
fn run(words: &[&str]) -> Output {
    output(ctl("waymaker://127.0.0.1:1", words))
}

fn succeed(words: &[&str]) -> String {
    let done = run(words);
    assert!(done.status.success(), "{words:?}: {}", stderr(&done));
    stdout(&done)
}

/// Asserts that a command is refused, and returns its message.
fn refuse(words: &[&str]) -> String {
    let done = run(words);
    assert_eq!(done.status.code(), Some(125), "{words:?}: {}", stdout(&done));
    stderr(&done)
}

/// A directory with a CA, and the output of the command that made it.
fn init(words: &[&str]) -> (TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let page = succeed(&[&["tls", "init", path], words].concat());
    (directory, page)
}

fn path(directory: &TempDir, name: &str) -> String {
    directory.path().join(name).to_str().unwrap().to_owned()
}

/// Returns the words of the printed command that begins with this text, without its program.
fn printed<'a>(page: &'a str, begin: &str) -> Vec<&'a str> {
    let (_, rest) = page.split_once(begin).unwrap_or_else(|| panic!("{begin} in {page}"));
    let end = rest.find("\n\n").unwrap_or(rest.len());
    rest[..end].split_whitespace().filter(|word| *word != "\\").collect()
}

/// Starts a server with the printed options, on a free port.
fn start(page: &str) -> RealServer {
    let words = printed(page, "waymaker-server ");
    assert_eq!(words[..2], ["--listen", "127.0.0.1:7420"]);
    server!(None, &words[2..])
}

/// Runs `locks list` with the certificate of a client.
fn list_as(server: &RealServer, directory: &TempDir, name: &str) -> Output {
    let [ca, cert, key] =
        ["ca.pem", &format!("{name}.pem"), &format!("{name}.key")].map(|name| path(directory, name));
    output(ctl(
        &server.tls_url(),
        &["locks", "list", "--tls-ca", &ca, "--tls-cert", &cert, "--tls-key", &key],
    ))
}

fn assert_served(server: &RealServer, directory: &TempDir, name: &str) {
    let done = list_as(server, directory, name);
    assert!(done.status.success(), "{name}: {}", stderr(&done));
}

/// The names, the uses and the number of days of validity of a certificate.
fn describe(directory: &TempDir, name: &str) -> (String, Vec<String>, [bool; 3], i64) {
    let text = std::fs::read(directory.path().join(name)).unwrap();
    let (_, pem) = parse_x509_pem(&text).unwrap();
    let certificate = pem.parse_x509().unwrap();
    let alternatives = certificate.subject_alternative_name().unwrap();
    let names = alternatives.iter().flat_map(|names| &names.value.general_names).map(|name| match name {
        GeneralName::IPAddress([a, b, c, d]) => format!("IP {a}.{b}.{c}.{d}"),
        GeneralName::IPAddress(bytes) => format!("IP {bytes:?}"),
        GeneralName::DNSName(name) => format!("DNS {name}"),
        GeneralName::URI(name) => format!("URI {name}"),
        other => panic!("{other:?}"),
    });
    let extended = certificate.extended_key_usage().unwrap();
    let uses = extended.map_or([certificate.is_ca(), false, false], |usage| {
        [certificate.is_ca(), usage.value.server_auth, usage.value.client_auth]
    });
    let validity = certificate.validity();
    let days = (validity.not_after.timestamp() - validity.not_before.timestamp()) / (24 * 3600);
    (certificate.subject().to_string(), names.collect(), uses, days)
}

#[test]
fn a_server_and_a_client_use_the_files_by_the_printed_commands() {
    let (directory, page) = init(&["--client", "alice"]);
    let server = start(&page);
    let mut words = printed(&page, "Connect as alice:\n  waymaker-ctl ");
    assert_eq!(words[..2], ["--server", "waymaker+tls://localhost:7420"]);
    let address = server.tls_url().replace("127.0.0.1", "localhost");
    words[1] = &address;
    let done = output(ctl("", &words));
    assert!(done.status.success(), "{}", stderr(&done));
    assert_served(&server, &directory, "alice");

    let nobody = output(ctl(&server.tls_url(), &["locks", "list", "--tls-ca", &path(&directory, "ca.pem")]));
    assert_eq!(nobody.status.code(), Some(122));
    // A certificate of a server admits no client.
    assert_eq!(list_as(&server, &directory, "server").status.code(), Some(122));
}

#[test]
fn a_later_client_is_served_and_a_revoked_one_is_refused_without_a_restart() {
    let (directory, page) = init(&["--client", "alice"]);
    let server = start(&page);
    let of = directory.path().to_str().unwrap();
    succeed(&["tls", "client", of, "bob"]);
    assert_served(&server, &directory, "bob");
    assert!(succeed(&["tls", "revoke", of, "alice"]).contains("alice: revoked"));
    eventually(|| !list_as(&server, &directory, "alice").status.success());
    let refused = list_as(&server, &directory, "alice");
    assert!(stderr(&refused).contains("revocation list"), "{}", stderr(&refused));
    assert_served(&server, &directory, "bob");
    assert!(succeed(&["tls", "revoke", of, "alice"]).contains("alice: was revoked before"));
    // The list keeps its earlier certificates.
    succeed(&["tls", "revoke", of, "bob"]);
    eventually(|| !list_as(&server, &directory, "bob").status.success());
    assert!(!list_as(&server, &directory, "alice").status.success());
}

#[test]
fn certificates_have_their_names_uses_and_validity() {
    let words = ["--server-name", "locks.example", "--server-name", "10.0.0.7", "--server-name", "localhost"];
    let (directory, page) = init(&[&words[..], &["--client", "spiffe://example.org/alice"]].concat());
    assert!(
        page.contains("--listen 0.0.0.0:7420") && page.contains("waymaker+tls://locks.example:7420"),
        "{page}"
    );
    let (name, names, uses, days) = describe(&directory, "ca.pem");
    assert!(name.starts_with("CN=Waymaker CA "), "{name}");
    assert_eq!((names.len(), uses, days), (0, [true, false, false], 3650));
    let loopback = "IP [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]";
    let names = ["DNS localhost", "IP 127.0.0.1", loopback, "DNS locks.example", "IP 10.0.0.7"];
    let names = names.map(str::to_owned).to_vec();
    let expected = ("CN=locks.example".to_owned(), names, [false, true, false], 365);
    assert_eq!(describe(&directory, "server.pem"), expected);
    let (name, names, uses, days) = describe(&directory, "spiffe-example.org-alice.pem");
    assert_eq!((name.as_str(), days), ("CN=spiffe://example.org/alice", 365));
    assert_eq!((names, uses), (vec!["URI spiffe://example.org/alice".to_owned()], [false, false, true]));
    succeed(&["tls", "client", directory.path().to_str().unwrap(), "bob", "--days", "30"]);
    let (name, names, _, days) = describe(&directory, "bob.pem");
    assert_eq!((name.as_str(), names, days), ("CN=bob", vec!["DNS bob".to_owned()], 30));
}

#[test]
fn keys_are_private_and_no_file_is_overwritten() {
    let (directory, _) = init(&["--client", "alice"]);
    let of = directory.path().to_str().unwrap();
    let mode =
        |name: &str| std::fs::metadata(directory.path().join(name)).unwrap().permissions().mode() & 0o777;
    for name in ["ca.key", "server.key", "alice.key"] {
        assert_eq!(mode(name), 0o600, "{name}");
    }
    let contents = || {
        let mut files: Vec<_> = std::fs::read_dir(directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| (path.clone(), std::fs::read(path).unwrap()))
            .collect();
        files.sort();
        files
    };
    let before = contents();
    assert!(refuse(&["tls", "init", of]).contains("ca.pem exists; no file is overwritten"));
    assert!(refuse(&["tls", "client", of, "alice"]).contains("alice.pem exists"));
    assert_eq!(contents(), before);

    let other = tempfile::tempdir().unwrap();
    for name in ["bob.key", "clients.crl"] {
        std::fs::write(other.path().join(name), "in the way").unwrap();
        let message = refuse(&["tls", "init", other.path().to_str().unwrap(), "--client", "bob"]);
        assert!(message.contains(&format!("{name} exists")), "{message}");
        assert_eq!(std::fs::read_dir(other.path()).unwrap().count(), 1, "nothing was written");
        std::fs::remove_file(other.path().join(name)).unwrap();
    }
}

#[test]
fn unusable_names_and_files_are_named_in_the_error() {
    let (directory, _) = init(&["--client", "alice"]);
    let (other, _) = init(&["--client", "alice"]);
    let of = directory.path().to_str().unwrap();
    let new = path(&directory, "new");
    for (words, named) in [
        (&["tls", "init", &new, "--client", "two words"][..], "neither a DNS name"),
        (&["tls", "init", &new, "--client", "ca"], "the names of other files"),
        (
            &["tls", "init", &new, "--client", "a", "--client", "a"],
            "two certificates would have the file a.pem",
        ),
        (&["tls", "init", &new, "--server-name", "a b"], "neither a host name nor an IP address"),
        (&["tls", "init", &new, "--days", "0"], "--days"),
        (&["tls", "client", &new, "bob"], "ca.pem"),
        (&["tls", "revoke", of, "bob"], "bob.pem"),
    ] {
        let message = refuse(words);
        assert!(message.contains(named), "{words:?}: {message}");
    }
    assert!(!Path::new(&new).exists(), "nothing was written");

    let copy = |from: &TempDir, name: &str| std::fs::copy(path(from, name), path(&directory, name)).unwrap();
    copy(&other, "alice.pem");
    assert!(refuse(&["tls", "revoke", of, "alice"]).contains("was not issued by"));
    copy(&other, "ca.key");
    assert!(
        refuse(&["tls", "client", of, "bob"]).contains("ca.key does not belong to the certificate in ca.pem")
    );
    std::fs::write(path(&other, "clients.crl"), "no list").unwrap();
    let message = refuse(&["tls", "revoke", other.path().to_str().unwrap(), "alice"]);
    assert!(message.contains("clients.crl contains no revocation list"), "{message}");
}

#[test]
fn json_describes_each_certificate() {
    let directory = tempfile::tempdir().unwrap();
    let of = directory.path().to_str().unwrap();
    let made = objects(&succeed(&["tls", "init", of, "--client", "alice", "--json"]));
    made.iter().for_each(|object| check("tls init", object));
    let purposes: Vec<_> = made.iter().map(|object| object["purpose"].as_str().unwrap()).collect();
    assert_eq!(purposes, ["ca", "server", "client"]);
    assert_eq!((&made[2]["name"], &made[2]["key"]), (&"alice".into(), &path(&directory, "alice.key").into()));
    let client = objects(&succeed(&["tls", "client", of, "bob", "--json"]));
    check("tls client", &client[0]);
    assert_eq!(client[0]["name"], "bob");
    for count in [1, 1] {
        let revoked = objects(&succeed(&["tls", "revoke", of, "bob", "--json"]));
        check("tls revoke", &revoked[0]);
        assert_eq!(revoked[0]["revoked_count"], count);
    }
}

#[test]
fn concurrent_revocations_are_all_in_the_list() {
    let names: Vec<_> = (0..8).map(|number| format!("client-{number}")).collect();
    let words: Vec<_> = names.iter().flat_map(|name| ["--client", name]).collect();
    let (directory, _) = init(&words);
    let of = directory.path().to_str().unwrap();
    thread::scope(|scope| {
        for name in &names {
            scope.spawn(|| succeed(&["tls", "revoke", of, name]));
        }
    });
    assert_eq!(revoked_count(&directory), 8);
    for name in &names {
        assert!(succeed(&["tls", "revoke", of, name]).contains("was revoked before"));
    }
}

/// Returns the number of certificates in the revocation list, as another program reads it.
fn revoked_count(directory: &TempDir) -> usize {
    let text = std::fs::read(path(directory, "clients.crl")).unwrap();
    let pem = parse_x509_pem(&text).unwrap().1;
    let (_, list) = CertificateRevocationList::from_der(&pem.contents).unwrap();
    list.iter_revoked_certificates().count()
}

#[test]
fn a_file_of_an_interrupted_revocation_is_no_obstacle() {
    let (directory, _) = init(&["--client", "alice"]);
    std::fs::write(path(&directory, "clients.crl.new"), "half a li").unwrap();
    let count = || std::fs::read_dir(directory.path()).unwrap().count();
    let before = count();
    succeed(&["tls", "revoke", directory.path().to_str().unwrap(), "alice"]);
    assert_eq!((revoked_count(&directory), count()), (1, before));
}

#[test]
fn mode_and_link_of_the_revocation_list_stay() {
    let (directory, _) = init(&["--client", "alice", "--client", "bob"]);
    let of = directory.path().to_str().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let (list, target) = (path(&directory, "clients.crl"), path(&elsewhere, "waymaker.crl"));
    std::fs::rename(&list, &target).unwrap();
    std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o640)).unwrap();
    symlink(&target, &list).unwrap();
    succeed(&["tls", "revoke", of, "alice"]);
    assert_eq!(std::fs::read_link(&list).unwrap(), Path::new(&target));
    assert_eq!(std::fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(revoked_count(&directory), 1);

    std::fs::remove_file(&target).unwrap();
    let message = refuse(&["tls", "revoke", of, "bob"]);
    assert!(message.contains("clients.crl") && message.contains("a link to a missing file"), "{message}");
    std::fs::remove_file(&list).unwrap();
    mkfifo(Path::new(&list), Mode::S_IRWXU).unwrap();
    let message = refuse(&["tls", "revoke", of, "bob"]);
    assert!(message.contains("clients.crl") && message.contains("the file is a FIFO"), "{message}");
    // A list that is missing is made again.
    std::fs::remove_file(&list).unwrap();
    succeed(&["tls", "revoke", of, "bob"]);
    assert_eq!(revoked_count(&directory), 1);
}
