//! `docs/reference/configuration.md` lists every option of the server. `WAYMAKER_REWRITE_DOCS=1` writes the list into it.

use clap::CommandFactory as _;
use std::fmt::Write as _;
use waymaker_server::options::Flags;

#[path = "../../../documents/sections.rs"]
mod sections;

/// One option, as the document has it.
struct Described {
    heading: String,
    flag: String,
    variable: String,
    /// The table of the file and the key in it; `None` for the option that names the file.
    key: Option<(&'static str, String)>,
    default: String,
    meaning: String,
}

/// Returns all options, in the order of `--help`.
fn options() -> Vec<Described> {
    let command = Flags::command();
    let own =
        command.get_arguments().filter(|option| option.get_id() != "help" && option.get_id() != "version");
    own.map(|option| {
        let long = option.get_long().expect("each option has a long name");
        let help = option.get_help().expect("each option has a help text").to_string();
        let (meaning, default) = help.rsplit_once(" [default: ").expect("a help text ends with the default");
        let value = option.get_value_names().expect("each option has a value")[0].as_str();
        let is_optional = option.get_num_args().is_some_and(|range| range.min_values() == 0);
        let value = if is_optional { format!("[={value}]") } else { format!(" {value}") };
        Described {
            heading: option.get_help_heading().expect("each option has a heading").to_owned(),
            flag: format!("--{long}{value}"),
            variable: option.get_env().expect("each option has a variable").to_string_lossy().into_owned(),
            key: (long != "config").then(|| key(long)),
            default: default.trim_end_matches(']').to_owned(),
            meaning: meaning.to_owned(),
        }
    })
    .collect()
}

/// Returns the table and the key of an option in the file.
fn key(long: &str) -> (&'static str, String) {
    let (table, rest) = match (long.strip_prefix("quorum-"), long.strip_prefix("locket-")) {
        (Some(rest), _) => ("quorum", rest),
        (_, Some(rest)) => ("locket", rest),
        _ => ("", long),
    };
    (table, rest.replace('-', "_"))
}

fn shown_key(key: Option<&(&'static str, String)>) -> String {
    match key {
        None => "–".to_owned(),
        Some(("", key)) => format!("`{key}`"),
        Some((table, key)) => format!("`{table}.{key}`"),
    }
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
        let Described { flag, variable, default, meaning, .. } = &option;
        let default =
            if default.contains(' ') || default == "none" { default.clone() } else { format!("`{default}`") };
        let (flag, meaning) = (flag.replace('|', "\\|"), meaning.replace('|', "\\|"));
        let key = shown_key(option.key.as_ref());
        let _ = writeln!(text, "| `{flag}` | `{variable}` | {key} | {default} | {meaning} |");
    }
    text
}

#[test]
fn the_document_lists_the_options_of_the_program() {
    sections::check("docs/reference/configuration.md", &[("options", tables())]);
}

/// The value is wrong for every option, so an error about the key is an error about its name.
#[test]
fn the_file_has_every_option_under_the_listed_key() {
    for (table, key) in options().into_iter().filter_map(|option| option.key) {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let head = if table.is_empty() { String::new() } else { format!("[{table}]\n") };
        std::fs::write(file.path(), format!("{head}{key} = 2020-02-02\n")).expect("a file");
        let flags = Flags { config: Some(file.path().to_owned()), ..Flags::default() };
        let error = flags.resolve().expect_err("no option is a date").to_string();
        assert!(!error.contains("unknown field"), "{error}");
    }
}

#[test]
fn the_example_file_of_the_document_is_valid() {
    let document = include_str!("../../../docs/reference/configuration.md");
    let (_, rest) = document.split_once("```toml\n").expect("an example");
    let (example, _) = rest.split_once("```").expect("the end of the example");
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), example).expect("a file");
    let flags = Flags { config: Some(file.path().to_owned()), ..Flags::default() };
    flags.resolve().expect("usable options");
}
