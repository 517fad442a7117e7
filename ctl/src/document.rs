//! Generated sections of `docs/reference/command-line.md`.
//!
//! `WAYMAKER_REWRITE_DOCS=1 cargo test -p waymaker-ctl --bin waymaker-ctl document` writes them.

use std::collections::BTreeMap;
use std::fmt::Write;

use clap::{Command, CommandFactory};
use serde_json::Value;

use crate::command_line::CommandLine;
use crate::exit;
use crate::schema::OUTPUTS;

#[path = "../../documents/sections.rs"]
mod sections;

#[test]
fn the_reference_document_is_up_to_date() {
    let generated = [("commands", commands()), ("exit codes", exit_codes()), ("outputs", outputs())];
    sections::check("docs/reference/command-line.md", &generated);
}

/// Returns a table of all commands.
fn commands() -> String {
    let mut text = "| Command | Purpose |\n|---|---|\n".to_owned();
    add_commands(&mut text, "", &CommandLine::command());
    text
}

fn add_commands(text: &mut String, names: &str, command: &Command) {
    for command in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        let names = format!("{names} {}", command.get_name());
        if command.has_subcommands() && command.is_subcommand_required_set() {
            add_commands(text, &names, command);
            continue;
        }
        let mut usage = names.trim_start().to_owned();
        for argument in command.get_positionals() {
            let name =
                argument.get_value_names().and_then(|names| names.first()).expect("positionals have names");
            let name = if argument.is_last_set() { format!("-- {name}") } else { name.to_string() };
            let name = if argument.is_required_set() { name } else { format!("[{name}]") };
            let _ = write!(usage, " {name}");
        }
        let _ = writeln!(text, "| `{usage}` | {} |", command.get_about().expect("commands have a purpose"));
        // A command such as `backup` works alone too.
        add_commands(text, &names, command);
    }
}

/// Returns the table of exit codes.
fn exit_codes() -> String {
    let mut text = "| Code | Meaning | Commands | Example |\n|---|---|---|---|\n".to_owned();
    for row in &exit::TABLE {
        let commands = if row.commands.is_empty() { "several" } else { row.commands };
        let example = row.example.replace('|', "\\|");
        let _ = writeln!(text, "| {} | {} | {commands} | {example} |", row.code, row.meaning);
    }
    text
}

/// Returns a section for each JSON output.
fn outputs() -> String {
    let mut sections: Vec<(Vec<&str>, Value)> = Vec::new();
    for output in &OUTPUTS {
        let schema = serde_json::to_value((output.schema)()).expect("a schema is JSON");
        match sections.iter_mut().find(|(_, other)| *other == schema) {
            Some((names, _)) => names.push(output.name),
            None => sections.push((vec![output.name], schema)),
        }
    }
    let mut text = String::new();
    for (names, schema) in sections {
        let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
        let _ = write!(text, "### {}\n\n{}\n\n", names.join(", "), description(&schema));
        let definitions = schema["$defs"].as_object().cloned().unwrap_or_default();
        let shared = definitions.get("RecordMembers");
        for variant in schema["oneOf"].as_array().into_iter().flatten() {
            let about = variant["properties"]["about"]["const"].as_str().expect("a variant has a subject");
            let name = reference(variant).expect("a variant has a type");
            let definition = &definitions[name];
            if Some(definition) == shared {
                let _ = write!(
                    text,
                    "`about` is `{about}`: the members of the record that set it, see below.\n\n"
                );
            } else {
                let _ = write!(text, "`about` is `{about}`: {}\n\n", description(definition));
                add_members(&mut text, definition, shared);
            }
        }
        add_members(&mut text, &schema, None);
        let referenced = definitions.iter().filter(|(name, _)| !is_variant(&schema, name));
        let shared = shared.map(|shared| ("RecordMembers".to_owned(), shared.clone()));
        let all: BTreeMap<_, _> =
            referenced.map(|(name, value)| (name.clone(), value.clone())).chain(shared).collect();
        for definition in all.values() {
            let _ = write!(text, "#### {}\n\n{}\n\n", title(definition), description(definition));
            add_members(&mut text, definition, None);
        }
    }
    text
}

fn is_variant(schema: &Value, name: &str) -> bool {
    schema["oneOf"].as_array().into_iter().flatten().any(|variant| reference(variant) == Some(name))
}

/// Adds a table of the members of an object, without those that `shared` lists as well.
fn add_members(text: &mut String, schema: &Value, shared: Option<&Value>) {
    let Some(properties) = schema["properties"].as_object() else { return };
    let shared = shared.and_then(|shared| shared["properties"].as_object());
    let has_all = shared.is_some_and(|shared| shared.keys().all(|name| properties.contains_key(name)));
    let is_shown =
        |name: &str| !(name.ends_with("_hex") || has_all && shared.is_some_and(|all| all.contains_key(name)));
    text.push_str("| Member | Type | Meaning |\n|---|---|---|\n");
    let required: Vec<_> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, property) in properties.iter().filter(|(name, _)| is_shown(name)) {
        let is_optional = !required.contains(&name.as_str());
        let kind = kind(property, is_optional);
        let _ = writeln!(text, "| `{name}` | {kind} | {} |", description(property).replace('|', "\\|"));
    }
    text.push('\n');
    if has_all {
        text.push_str("It also has the members of records, see below.\n\n");
    }
}

fn description(schema: &Value) -> String {
    schema["description"].as_str().unwrap_or_default().replace('\n', " ")
}

fn title(schema: &Value) -> String {
    let title = schema["title"].as_str().expect("a definition has a title");
    format!("{}{}", title[..1].to_uppercase(), &title[1..])
}

fn reference(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/"))
}

/// Describes the type of a member.
fn kind(schema: &Value, is_optional: bool) -> String {
    let any = schema["anyOf"].as_array().into_iter().flatten();
    let mut kinds: Vec<String> = match &schema["type"] {
        Value::String(kind) if kind == "array" => {
            vec![format!("array of {}s", kind_of_item(&schema["items"]))]
        }
        Value::String(kind) => vec![kind.clone()],
        Value::Array(kinds) => kinds
            .iter()
            .filter_map(Value::as_str)
            .map(|kind| match kind {
                "array" => format!("array of {}s", kind_of_item(&schema["items"])),
                kind => kind.to_owned(),
            })
            .collect(),
        _ => any.map(|any| kind(any, false)).collect(),
    };
    if is_optional {
        // A member that may be absent is never null.
        kinds.retain(|kind| kind != "null");
        kinds.push("absent".to_owned());
    }
    kinds.join(" or ")
}

fn kind_of_item(schema: &Value) -> String {
    schema["type"].as_str().unwrap_or("object").to_owned()
}
