//! `docs/reference/configuration.md` lists every option of the server. `WAYMAKER_REWRITE_DOCS=1` writes the list into it.

use crate::harness::{self, Server};
use clap::CommandFactory as _;
use std::fmt::Write as _;
use std::process::Command;
use waymaker_server::options::{Configuration, FileKey, Options, file_key};

#[path = "../../../documents/sections.rs"]
mod sections;

/// One option, as the document has it.
struct Described {
    heading: String,
    flag: String,
    variable: Option<String>,
    /// Key in the file; `None` for an option that only flags and variables set.
    key: Option<FileKey>,
    default: String,
    meaning: String,
}

/// Returns all options, in the order of `--help`.
fn options() -> Vec<Described> {
    let command = Options::command();
    let own =
        command.get_arguments().filter(|option| option.get_id() != "help" && option.get_id() != "version");
    own.map(|option| {
        let long = option.get_long().expect("each option has a long name");
        let help = option.get_help().expect("each option has a help text").to_string();
        let own_default = option.get_default_values().first().map(|text| text.to_string_lossy().into_owned());
        let (meaning, default) = match (own_default, help.rsplit_once(" [default: ")) {
            (Some(default), None) => (help, default),
            (None, Some((meaning, default))) => {
                (meaning.to_owned(), default.trim_end_matches(']').to_owned())
            }
            (None, None) if option.get_env().is_none() => (help, "–".to_owned()),
            _ => panic!("--{long} needs one default"),
        };
        let value = option.get_value_names().map_or("", |names| names[0].as_str());
        let is_optional = option.get_num_args().is_some_and(|range| range.min_values() == 0);
        let value = match value {
            _ if !option.get_action().takes_values() => String::new(),
            value if is_optional => format!("[={value}]"),
            value => format!(" {value}"),
        };
        Described {
            heading: option.get_help_heading().expect("each option has a heading").to_owned(),
            flag: format!("--{long}{value}"),
            variable: option.get_env().map(|name| name.to_string_lossy().into_owned()),
            key: file_key(option),
            default,
            meaning,
        }
    })
    .collect()
}

/// Returns a name in the font of code, or a dash.
fn code(name: Option<String>) -> String {
    name.map_or_else(|| "–".to_owned(), |name| format!("`{name}`"))
}

/// Returns the tables, one for each heading.
fn tables() -> String {
    let mut text = String::new();
    let mut heading = String::new();
    for option in options() {
        if option.heading != heading {
            heading.clone_from(&option.heading);
            let head =
                "| Flag | Environment variable | File key | Default | Meaning |\n|---|---|---|---|---|\n";
            let _ = write!(text, "\n### {heading}\n\n{head}");
        }
        let Described { flag, variable, key, default, meaning, .. } = option;
        let default = if default.contains(' ') || ["none", "–"].contains(&default.as_str()) {
            default
        } else {
            format!("`{default}`")
        };
        let (flag, meaning) = (flag.replace('|', "\\|"), meaning.replace('|', "\\|"));
        let (variable, key) = (code(variable), code(key.map(|key| key.dotted())));
        let _ = writeln!(text, "| `{flag}` | {variable} | {key} | {default} | {meaning} |");
    }
    text
}

#[test]
fn the_document_lists_the_options_of_the_program() {
    sections::check("docs/reference/configuration.md", &[("options", tables())]);
}

#[test]
fn variables_and_keys_have_the_names_of_their_flags() {
    for option in options() {
        let name =
            option.flag.trim_start_matches('-').split([' ', '[']).next().expect("a name").replace('-', "_");
        if let Some(variable) = option.variable {
            assert_eq!(variable, format!("WAYMAKER_{}", name.to_uppercase()));
        }
        if let Some(key) = option.key {
            assert_eq!(key.dotted().replace('.', "_"), name);
        }
    }
}

#[test]
fn the_example_file_of_the_document_is_valid() {
    let document = include_str!("../../../docs/reference/configuration.md");
    let (_, rest) = document.split_once("```toml\n").expect("an example");
    let (example, _) = rest.split_once("```").expect("the end of the example");
    Configuration::from_text(example).expect("usable options");
}

/// Runs the program with these arguments and a file with this text. Returns its exit code, its standard output and its errors.
fn run(arguments: &[&str], text: &str) -> (Option<i32>, String, String) {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), text).expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_waymaker-server"));
    // The suite `rights` sets it for the servers of all tests, and a variable wins over the file.
    command.env_remove("WAYMAKER_ACCESS");
    let output = command.arg("--config").arg(file.path()).args(arguments).output().expect("the program runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_check_of_a_valid_configuration_says_so_and_creates_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let data_dir = directory.path().join("data");
    let occupied = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let text =
        format!("listen = \"{}\"\ndata_dir = {data_dir:?}\n", occupied.local_addr().expect("an address"));
    assert_eq!(
        run(&["--check-config"], &text),
        (Some(0), "configuration is valid\n".to_owned(), String::new())
    );
    assert!(!data_dir.exists());
}

#[test]
fn a_file_without_an_end_is_refused() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_waymaker-server"));
    let output =
        command.args(["--check-config", "--config", "/dev/zero"]).output().expect("the program runs");
    let errors = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("cannot read /dev/zero: it has more than 1048576 bytes"), "{errors}");
}

#[test]
fn a_check_names_all_errors() {
    let directory = tempfile::tempdir().expect("a directory");
    let rules = directory.path().join("access.toml");
    std::fs::write(&rules, "[[rule]]\nnonsense = 1\n").expect("a file");
    let text = format!(
        "listen = \"nonsense\"\ntls_key = \"/nonexistent\"\naccess = {rules:?}\n[quorum]\nuser = \"me\"\n"
    );
    let (code, output, errors) = run(&["--check-config"], &text);
    assert_eq!((code, output.as_str()), (Some(1), ""));
    for part in [
        "--tls-key needs --tls-cert",
        "access.toml: ",
        "line 2",
        "--listen: \"nonsense\"",
        "--quorum-user needs",
    ] {
        assert_eq!(errors.matches(part).count(), 1, "{part}: {errors}");
    }
    let declared = "[limits]\nlease_max = \"40s\"\n[[namespace]]\nname = \"jobs\"\nkind = \"flat\"\ndefault_lease = \"45s\"\n";
    let (code, _, errors) = run(&["--check-config"], declared);
    assert_eq!(code, Some(1));
    let part = "namespace \"jobs\": default_lease: 45s is above --limits-lease-max, which is 40s\n";
    assert!(errors.contains(part), "{errors}");
    let (code, _, errors) = run(&["--check-config"], "\nworker = 1\npin = 2\n");
    assert_eq!(code, Some(1));
    for part in
        [": line 2: unknown key `worker`; did you mean `workers`?\n", ": line 3: pin: use true or false\n"]
    {
        assert!(errors.contains(part), "{part}: {errors}");
    }
}

#[test]
fn a_check_names_paths_that_a_start_could_not_use() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("text"), "").expect("a file");
    std::fs::create_dir(path("backup")).expect("a directory");
    std::fs::write(path("backup/superblock.backup"), "").expect("a file");
    let check = |audit: &str, unix: &str, data_dir: &str| {
        let [audit, unix, data_dir] = [audit, unix, data_dir].map(path);
        run(&["--check-config"], &format!("audit = {audit:?}\nunix = {unix:?}\ndata_dir = {data_dir:?}\n"))
    };
    assert_eq!(
        check("new", "socket", "data"),
        (Some(0), "configuration is valid\n".to_owned(), String::new())
    );
    let (code, _, errors) = check("", "text", "text");
    assert_eq!(code, Some(1));
    for part in ["--audit: cannot open ", "--unix: cannot listen on ", "--data-dir: cannot write to "] {
        assert_eq!(errors.matches(part).count(), 1, "{part}: {errors}");
    }
    let (code, _, errors) = check("text", "socket", "backup");
    assert!(code == Some(1) && errors.contains("is a backup"), "{errors}");
    let names = std::fs::read_dir(directory.path()).expect("a directory").count();
    assert_eq!(names, 2, "nothing is made");
}

#[test]
fn a_check_reads_certificates_and_tokens() {
    let text = "tls_cert = \"/nonexistent-a\"\ntls_key = \"/nonexistent-b\"\ntokens = \"/nonexistent-c\"\n";
    let (code, _, errors) = run(&["--check-config"], text);
    assert_eq!(code, Some(1));
    assert!(
        errors.contains("--tls-cert: cannot read /nonexistent-a") && errors.contains("--tokens: "),
        "{errors}"
    );
}

#[test]
fn the_printed_configuration_is_valid_and_has_the_same_options() {
    let declared = "pin = true\n[[namespace]]\nname = \"jobs\"\nkind = \"flat\"\nquotas = { claims = 7 }\n";
    let first = run(&["--print-config", "--workers", "3"], declared);
    assert!(first.1.contains("\n[[namespace]] # file\nname = \"jobs\" # file\n"), "{first:?}");
    assert!(
        first.1.contains("workers = 3 # flag --workers\n") && first.1.contains("pin = true # file\n"),
        "{first:?}"
    );
    let (code, second, _) = run(&["--print-config"], &first.1);
    let without_sources = |text: &str| {
        text.lines().map(|line| line.split(" # ").next().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!((code, without_sources(&first.1)), (Some(0), without_sources(&second)));
}

/// Starts a server with these variables, stops it, and returns its log.
fn log_of(arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let log = tempfile::NamedTempFile::new().expect("a file");
    let mut command = harness::command(arguments);
    command.envs(variables.iter().copied()).stderr(log.reopen().expect("the file"));
    let mut server = Server::start_with(&mut command, None);
    server.signal("TERM");
    server.wait();
    std::fs::read_to_string(log.path()).expect("the log")
}

#[test]
fn a_log_in_json_has_an_object_in_each_line() {
    let log = log_of(&["--log-format", "json", "--audit", "log"], &[("WAYMAKER_WORKER", "3")]);
    let lines: Vec<serde_json::Value> =
        log.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    assert!(!lines.is_empty());
    for line in &lines {
        for key in ["timestamp", "level", "target", "message"] {
            assert!(line[key].is_string(), "{key}: {line}");
        }
    }
    let misspelt = "the environment variable `WAYMAKER_WORKER` is not an option and has no effect; did you mean `WAYMAKER_WORKERS`?";
    assert!(lines.iter().any(|line| line["level"] == "WARN" && line["message"] == misspelt), "{log}");
}

#[test]
fn the_level_of_the_log_can_be_in_the_file_and_a_wrong_one_is_an_error() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "log = \"error\"\n").expect("a file");
    let path = file.path().to_str().expect("text");
    assert_eq!(log_of(&["--config", path], &[("WAYMAKER_WORKER", "3")]), "");
    assert_ne!(log_of(&["--config", path, "--log", "warn"], &[("WAYMAKER_WORKER", "3")]), "");
    let (code, _, errors) = run(&["--check-config"], "log = \"wran\"\n");
    assert_eq!(code, Some(1));
    assert!(errors.contains("line 1: log: \"wran\" is not valid; use off, error, warn"), "{errors}");
}
