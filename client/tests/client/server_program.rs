//! The server program that the tests of several packages start.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::SystemTime;

/// Returns the path of the server that `cargo build --workspace --bins` left beside this test.
///
/// Tests build no programs themselves: a build inside a test waits for other builds. A build of one package has other
/// features and compiles its dependencies again.
///
/// # Panics
///
/// If the program is missing or older than its sources. The message names the command that builds it.
pub(crate) fn server_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let test = std::env::current_exe().expect("the path of this test");
        // target/<profile>/deps/<test>
        let folder = test.ancestors().nth(2).expect("the folder of the profile");
        up_to_date(folder.join("waymaker-server")).unwrap_or_else(|problem| {
            let profile = match folder.file_name().and_then(|name| name.to_str()) {
                Some("debug") | None => String::new(),
                Some(name) => format!(" --profile {name}"),
            };
            panic!("{problem}; build it with `cargo build --workspace --bins{profile}`");
        })
    })
}

/// Returns the path of an example of this package, as `cargo test` built it.
///
/// # Panics
///
/// If the example is missing or older than its sources: cargo builds no examples for `--test NAME`.
#[allow(dead_code, reason = "only some of the packages that share this file test examples")]
pub(crate) fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    // target/<profile>/deps/<test>
    let folder = test.ancestors().nth(2).expect("the folder of the profile");
    up_to_date(folder.join("examples").join(name)).unwrap_or_else(|problem| {
        panic!("{problem}; build it with `cargo build -p {} --examples`", env!("CARGO_PKG_NAME"))
    })
}

/// Returns this program, or the problem with it: it is missing, older than its sources, or from another checkout.
pub(crate) fn up_to_date(program: PathBuf) -> Result<PathBuf, String> {
    up_to_date_in(Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace"), program)
}

/// Does the same for a workspace.
fn up_to_date_in(workspace: &Path, program: PathBuf) -> Result<PathBuf, String> {
    let Some(built) = modified(&program) else {
        return Err(format!("there is no {}", program.display()));
    };
    // `cargo build` writes the list of sources beside the program, and `cargo test` does not.
    let rules = fs::read_to_string(program.with_extension("d")).unwrap_or_default();
    let mut all = sources(&rules).peekable();
    if all.peek().is_some() && !all.any(|source| source.starts_with(workspace)) {
        // The folder of programs was copied here, for example from another worktree.
        return Err(format!("{} was not built from {}", program.display(), workspace.display()));
    }
    let newer = sources(&rules).find(|source| modified(source).is_none_or(|changed| changed > built));
    match newer {
        Some(source) => Err(format!("{} is older than {}", program.display(), source.display())),
        None => Ok(program),
    }
}

/// Returns the files after the first colon of a rule for `make`. A backslash escapes a space in a name.
fn sources(rules: &str) -> impl Iterator<Item = PathBuf> {
    let (_, names) = rules.split_once(": ").unwrap_or_default();
    let names = names.replace("\\ ", "\0");
    let names: Vec<_> = names.split_whitespace().map(|name| name.replace('\0', " ").into()).collect();
    names.into_iter()
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

#[test]
fn a_missing_or_outdated_server_program_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let [program, rules, source] =
        ["waymaker-server", "waymaker-server.d", "a source.rs"].map(|name| folder.path().join(name));
    assert!(up_to_date_in(folder.path(), program.clone()).unwrap_err().contains("there is no"));
    fs::write(&source, "").unwrap();
    fs::write(&program, "").unwrap();
    let name = source.to_str().unwrap().replace(' ', "\\ ");
    fs::write(&rules, format!("{}: {name}\n", program.display())).unwrap();
    let date = |path: &Path, seconds| {
        let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    };
    assert_eq!(up_to_date_in(Path::new("/elsewhere"), folder.path().join("a source.rs")), Ok(source.clone()));
    date(&program, 7);
    date(&source, 6);
    assert_eq!(up_to_date_in(folder.path(), program.clone()), Ok(program.clone()));
    date(&source, 8);
    let problem = up_to_date_in(folder.path(), program.clone()).unwrap_err();
    assert!(problem.contains("is older than") && problem.contains("a source.rs"), "{problem}");
    fs::remove_file(&source).unwrap();
    assert!(up_to_date_in(folder.path(), program.clone()).unwrap_err().contains("is older than"));
    fs::write(&rules, format!("{}: /elsewhere/main.rs\n", program.display())).unwrap();
    assert!(up_to_date_in(folder.path(), program.clone()).unwrap_err().contains("was not built from"));
}
