//! `tokens`: files and directories of tokens, without a server.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Output, Stdio};
use std::thread;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::Value;
use tempfile::TempDir;
use waymaker_access::TokenTable;

use crate::program::{ctl, output, stderr, stdout};
use crate::schema;

/// Runs `tokens` with these words and the path.
fn tokens(words: &[&str], path: &Path) -> Output {
    let path = path.to_str().unwrap();
    output(ctl("", &[&["tokens"], words, &["--file", path]].concat()))
}

fn create(words: &[&str], path: &Path) -> String {
    let created = tokens(&[&["create"], words].concat(), path);
    assert_eq!(created.status.code(), Some(0), "{}", stderr(&created));
    stdout(&created).trim_end().to_owned()
}

/// Returns the id in a token.
fn id(token: &str) -> String {
    token.strip_prefix("wm_").and_then(|rest| rest.split_once('.')).unwrap().0.to_owned()
}

fn list(path: &Path) -> Vec<Value> {
    let listed = tokens(&["list", "--json"], path);
    assert_eq!(listed.status.code(), Some(0), "{}", stderr(&listed));
    let objects: Vec<Value> =
        stdout(&listed).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    objects.iter().for_each(|object| schema::check("tokens list", object));
    objects
}

fn identities(path: &Path) -> Vec<String> {
    list(path).iter().map(|object| object["identity"].as_str().unwrap().to_owned()).collect()
}

/// Reads the file as a server does.
fn table(path: &Path) -> TokenTable {
    TokenTable::default().with_file("tokens", &fs::read(path).unwrap()).unwrap()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_created_token_is_accepted_and_only_its_digest_is_stored() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("tokens.toml");
    let created =
        tokens(&["create", "billing", "--group", "writers", "--group", "ops", "--note", "invoices"], &path);
    assert_eq!(created.status.code(), Some(0), "{}", stderr(&created));
    // Stdout has the token and nothing else.
    let token = stdout(&created);
    assert_eq!((token.len(), token.lines().count()), (64, 1));
    let token = token.trim_end();
    let note = stderr(&created);
    assert!(note.contains(&id(token)) && note.contains("is not shown again"), "{note}");
    assert!(!note.contains(token.split_once('.').unwrap().1), "{note}");

    let table = table(&path);
    let record = table.check(token.as_bytes(), 0).unwrap();
    assert_eq!((record.identity.as_str(), record.note.as_str()), ("billing", "invoices"));
    assert_eq!(record.groups, ["writers", "ops"]);
    let validity = record.expires.unwrap().unix_seconds() - record.created.unix_seconds();
    assert_eq!(validity, 365 * 24 * 3_600);
    assert_eq!(mode(&path), 0o600);
    assert!(!fs::read_to_string(&path).unwrap().contains(token.split_once('.').unwrap().1));
}

#[test]
fn two_tokens_are_never_alike() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("tokens.toml");
    let [one, other] = [create(&["a"], &path), create(&["a"], &path)];
    assert_ne!(id(&one), id(&other));
    assert_ne!(one.split_once('.').unwrap().1, other.split_once('.').unwrap().1);
    assert_eq!(table(&path).len(), 2);
}

#[test]
fn the_expiry_can_be_chosen_or_left_out() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("tokens.toml");
    let [short, endless] = [create(&["a", "--expires", "90d"], &path), create(&["b", "--no-expiry"], &path)];
    let table = table(&path);
    let record = |token: &str| table.get(id(token).parse().unwrap()).unwrap();
    let short = record(&short);
    assert_eq!(short.expires.unwrap().unix_seconds() - short.created.unix_seconds(), 90 * 24 * 3_600);
    assert_eq!(record(&endless).expires, None);
    for words in [&["--expires", "90d", "--no-expiry"][..], &["--expires", "0s"], &["--expires", "soon"]] {
        assert_eq!(tokens(&[&["create", "a"], words].concat(), &path).status.code(), Some(125), "{words:?}");
    }
    assert_eq!(table.len(), 2);
}

#[test]
fn json_output_follows_the_schema() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("tokens.toml");
    let created = tokens(&["create", "billing", "--json"], &path);
    let object: Value = serde_json::from_str(&stdout(&created)).unwrap();
    schema::check("tokens create", &object);
    let note: Value = serde_json::from_str(&stderr(&created)).unwrap();
    schema::check("note", &note);
    let token = object["token"].as_str().unwrap();
    assert_eq!(object["id"].as_str(), Some(&*id(token)));
    assert!(table(&path).check(token.as_bytes(), 0).is_ok());
    let revoked = tokens(&["revoke", &id(token), "--json"], &path);
    schema::check("tokens revoke", &serde_json::from_str(&stdout(&revoked)).unwrap());
}

#[test]
fn a_list_shows_every_token_and_no_digest() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("tokens.toml");
    create(&["web", "--no-expiry", "--note", "front"], &path);
    create(&["billing", "--group", "writers", "--group", "ops"], &path);
    let old = fs::read_to_string(&path).unwrap();
    let expired = "[[token]]\nid = \"00000000000000aa\"\nidentity = \"monitor\"\nsecret_sha256 = \"DIGEST\"\n\
                   created = \"2020-01-01T00:00:00Z\"\nexpires = \"2021-01-01T00:00:00Z\"\n";
    let expired = expired.replace("DIGEST", &"0f".repeat(32));
    fs::write(&path, format!("{old}\n{expired}")).unwrap();

    let text = stdout(&tokens(&["list"], &path));
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with("ID ") && lines[0].contains("IDENTITY") && lines[0].contains("EXPIRES"));
    assert!(lines[1].contains("billing") && lines[1].contains("writers,ops"), "{text}");
    assert!(lines[2].contains("monitor") && lines[2].contains("expired 2021-01-01T00:00:00Z"), "{text}");
    assert!(lines[3].contains("web") && lines[3].contains("never") && lines[3].ends_with("front"), "{text}");

    let objects = list(&path);
    let expired: Vec<_> = objects.iter().map(|object| object["has_expired"].as_bool().unwrap()).collect();
    assert_eq!(expired, [false, true, false]);
    let json = stdout(&tokens(&["list", "--json"], &path));
    assert!(!json.contains(&"0f".repeat(32)) && !json.contains("sha256") && !text.contains("0f0f"));
}

#[test]
fn a_revoked_token_is_gone_and_everything_else_stays() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("tokens.toml");
    let [first, second, third] = ["a", "b", "c"].map(|identity| create(&[identity], &path));
    let text = fs::read_to_string(&path).unwrap().replace("identity = \"c\"", "identity = 'c' # the third");
    fs::write(&path, format!("{text}# the end\n")).unwrap();

    let revoked = tokens(&["revoke", &id(&second)], &path);
    assert_eq!(
        stdout(&revoked),
        format!("{}: removed from {}\n", id(&second), path.canonicalize().unwrap().display())
    );
    let table = table(&path);
    assert!(table.check(second.as_bytes(), 0).is_err());
    assert!(table.check(first.as_bytes(), 0).is_ok() && table.check(third.as_bytes(), 0).is_ok());
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("identity = 'c' # the third") && text.ends_with("# the end\n"), "{text}");

    let absent = tokens(&["revoke", &id(&second)], &path);
    assert_eq!(absent.status.code(), Some(118));
    assert!(stderr(&absent).contains(&format!("there is no token {}", id(&second))));
}

#[test]
fn a_directory_has_a_file_for_each_token() {
    let directory = TempDir::new().unwrap();
    let [one, other] = [create(&["a"], directory.path()), create(&["b"], directory.path())];
    let file = |token: &str| directory.path().join(format!("{}.toml", id(token)));
    assert!(table(&file(&one)).check(one.as_bytes(), 0).is_ok());
    assert_eq!(mode(&file(&other)), 0o600);
    // Other names are no token files.
    fs::write(directory.path().join("README"), "no token").unwrap();
    fs::write(directory.path().join(".hidden.toml"), "no token").unwrap();
    assert_eq!(identities(directory.path()), ["a", "b"]);

    assert_eq!(tokens(&["revoke", &id(&one)], directory.path()).status.code(), Some(0));
    assert!(!file(&one).exists() && file(&other).exists());
    // A file with several tokens loses only the one.
    let several = directory.path().join("several.toml");
    let tokens_of_file = [create(&["c"], &several), create(&["d"], &several)];
    assert_eq!(tokens(&["revoke", &id(&tokens_of_file[0])], directory.path()).status.code(), Some(0));
    assert_eq!(identities(directory.path()), ["b", "d"]);
    let names: Vec<_> =
        fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 4, "{names:?}");
}

#[test]
fn concurrent_creates_lose_no_token() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("tokens.toml");
    let texts: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..12)
            .map(|number| {
                scope.spawn({
                    let path = &path;
                    move || create(&[&format!("client-{number}")], path)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let table = table(&path);
    assert_eq!(table.len(), 12);
    assert!(texts.iter().all(|token| table.check(token.as_bytes(), 0).is_ok()));
}

#[test]
fn mode_and_link_of_a_file_stay() {
    let directory = TempDir::new().unwrap();
    let (path, link) = (directory.path().join("real.toml"), directory.path().join("link.toml"));
    fs::write(&path, "").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    symlink(&path, &link).unwrap();
    let token = create(&["a"], &link);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(mode(&path), 0o640);
    assert!(table(&path).check(token.as_bytes(), 0).is_ok());
}

#[test]
fn a_file_keeps_its_owner() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can give a file to another user");
        return;
    }
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("tokens.toml");
    create(&["a"], &path);
    std::os::unix::fs::chown(&path, Some(1_234), Some(1_235)).unwrap();
    let token = create(&["b"], &path);
    tokens(&["revoke", &id(&token)], &path);
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!((metadata.uid(), metadata.gid()), (1_234, 1_235));
    assert_eq!(identities(&path), ["a"]);
}

#[test]
fn a_wrong_file_is_named_with_its_line_and_does_not_change() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("tokens.toml");
    let text = "# mine\n[[token]]\nidentiy = \"a\"\n";
    fs::write(&path, text).unwrap();
    for words in [&["list"][..], &["create", "b"], &["revoke", "0123456789abcdef"]] {
        let refused = tokens(words, &path);
        assert_eq!(refused.status.code(), Some(125), "{words:?}");
        assert!(
            stderr(&refused).contains("tokens.toml, line 3: unknown field `identiy`"),
            "{}",
            stderr(&refused)
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
    let names = fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(names, 1);
}

#[test]
fn inline_tables_are_listed_and_not_changed() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("tokens.toml");
    create(&["a"], &path);
    let table: Vec<_> = fs::read_to_string(&path).unwrap().lines().skip(1).map(str::to_owned).collect();
    let text = format!("token = [{{ {} }}]\n", table.join(", "));
    fs::write(&path, &text).unwrap();
    let id = list(&path)[0]["id"].as_str().unwrap().to_owned();
    for words in [&["create", "b"][..], &["revoke", &id]] {
        assert_eq!(tokens(words, &path).status.code(), Some(125), "{words:?}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
}

#[test]
fn a_wrong_identity_or_id_is_refused_with_the_limit() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("tokens.toml");
    for (words, said) in [
        (&["create", ""][..], "identity is empty"),
        (&["create", &"x".repeat(257)], "identity is 257 bytes long; the maximum is 256"),
        (&["create", "a\nb"], "cannot be printed"),
        (&["create", "a", "--group", " x"], "group begins or ends with a blank"),
        (&["revoke", "7"], "16 lower-case hexadecimal digits"),
    ] {
        let refused = tokens(words, &path);
        assert_eq!(refused.status.code(), Some(125), "{words:?}");
        assert!(stderr(&refused).contains(said), "{}", stderr(&refused));
    }
    assert!(!path.exists());
}

#[test]
fn a_missing_file_is_named() {
    let path = Path::new("/no/such/directory/tokens.toml");
    for words in [&["list"][..], &["create", "a"], &["revoke", "0123456789abcdef"]] {
        let refused = tokens(words, path);
        assert_eq!(refused.status.code(), Some(125), "{words:?}");
        let text = stderr(&refused);
        assert!(text.contains("/no/such/directory/tokens.toml cannot be"), "{text}");
    }
}

#[test]
fn a_token_that_nobody_could_read_is_removed_again() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("tokens.toml");
    create(&["a"], &path);
    let words = ["tokens", "create", "b", "--file", path.to_str().unwrap()];
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let status = ctl("", &words).stdout(full).stderr(Stdio::null()).status().unwrap();
    assert_eq!(status.code(), Some(125));
    assert_eq!(identities(&path), ["a"]);
}

#[test]
fn only_regular_files_and_directories_are_used() {
    let directory = TempDir::new().unwrap();
    let (fifo, socket) = (directory.path().join("fifo"), directory.path().join("socket"));
    mkfifo(&fifo, Mode::S_IRWXU).unwrap();
    let _listener = UnixListener::bind(&socket).unwrap();
    let link = directory.path().join("link");
    symlink(&fifo, &link).unwrap();
    for (path, kind) in [(&fifo, "a FIFO"), (&socket, "a socket"), (&link, "a FIFO")] {
        let kind_before = fs::metadata(path).unwrap().file_type();
        for words in [&["list"][..], &["create", "a"], &["revoke", "0123456789abcdef"]] {
            let refused = tokens(words, path);
            assert_eq!(refused.status.code(), Some(125), "{words:?}");
            let text = stderr(&refused);
            assert!(text.contains(&format!("the file is {kind}, not a regular file")), "{words:?}: {text}");
            assert!(text.contains(fifo.parent().unwrap().to_str().unwrap()), "{words:?}: {text}");
        }
        assert_eq!(fs::metadata(path).unwrap().file_type(), kind_before);
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 3);
}

#[test]
fn a_fifo_in_a_directory_of_tokens_is_named() {
    let directory = TempDir::new().unwrap();
    create(&["a"], directory.path());
    mkfifo(&directory.path().join("fifo.toml"), Mode::S_IRWXU).unwrap();
    for words in [&["list"][..], &["revoke", "0123456789abcdef"]] {
        let refused = tokens(words, directory.path());
        assert_eq!(refused.status.code(), Some(125), "{words:?}");
        let text = stderr(&refused);
        assert!(text.contains("fifo.toml") && text.contains("the file is a FIFO"), "{words:?}: {text}");
    }
}

#[test]
fn a_link_to_a_missing_file_is_refused_and_stays() {
    let directory = TempDir::new().unwrap();
    let (target, link) = (directory.path().join("target.toml"), directory.path().join("link.toml"));
    symlink(&target, &link).unwrap();
    for words in [&["list"][..], &["create", "a"], &["revoke", "0123456789abcdef"]] {
        let refused = tokens(words, &link);
        assert_eq!(refused.status.code(), Some(125), "{words:?}");
        let text = stderr(&refused);
        assert!(text.contains("link.toml") && text.contains("a link to a missing file"), "{words:?}: {text}");
        assert_eq!(fs::read_link(&link).unwrap(), target);
        assert!(!target.exists(), "{words:?}");
    }
}

#[test]
fn a_link_in_a_directory_of_tokens_stays() {
    let (directory, elsewhere) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (target, link) = (elsewhere.path().join("several.toml"), directory.path().join("several.toml"));
    let [one, other] = [create(&["a"], &target), create(&["b"], &target)];
    symlink(&target, &link).unwrap();
    assert_eq!(tokens(&["revoke", &id(&one)], directory.path()).status.code(), Some(0));
    assert_eq!(fs::read_link(&link).unwrap(), target);
    assert_eq!(identities(&target), ["b"]);
    // Without its last token the directory needs no link.
    assert_eq!(tokens(&["revoke", &id(&other)], directory.path()).status.code(), Some(0));
    assert!(fs::symlink_metadata(&link).is_err() && target.exists());
}

#[test]
fn concurrent_revocations_in_a_directory_all_succeed() {
    let directory = TempDir::new().unwrap();
    let ids: Vec<_> = (0..12).map(|_| id(&create(&["a"], directory.path()))).collect();
    thread::scope(|scope| {
        for id in &ids {
            scope.spawn(|| {
                let revoked = tokens(&["revoke", id], directory.path());
                assert_eq!(revoked.status.code(), Some(0), "{}", stderr(&revoked));
            });
        }
    });
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}
