//! Checks JSON output strictly against the schema that `waymaker-ctl schema` prints: every member must be in the schema.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use serde_json::{Map, Value};

use crate::program::{ctl, output, stderr, stdout};

/// Returns the schemas of all commands.
fn schemas() -> &'static Map<String, Value> {
    static SCHEMAS: OnceLock<Map<String, Value>> = OnceLock::new();
    SCHEMAS.get_or_init(|| serde_json::from_str(&stdout(&output(ctl("", &["schema"])))).unwrap())
}

/// Returns the names of all outputs that have a schema.
pub(crate) fn commands_with_schema() -> BTreeSet<String> {
    schemas().keys().cloned().collect()
}

/// Checks the output of this command.
///
/// # Panics
///
/// If the object does not follow the schema.
pub(crate) fn check(name: &str, object: &Value) {
    let schema = &schemas()[name];
    if let Err(problem) = matches(schema, schema, object) {
        panic!("{name}: {problem}: {object}");
    }
}

/// Compares a value with a schema inside `root`.
fn matches(root: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    for variants in [&schema["oneOf"], &schema["anyOf"]].into_iter().filter_map(Value::as_array) {
        let problems: Vec<_> =
            variants.iter().map_while(|variant| matches(root, variant, value).err()).collect();
        if problems.len() == variants.len() {
            return Err(problems.join(" / "));
        }
    }
    let parts = [Some(schema), referenced(root, schema)];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    for part in &parts {
        let is_of = |kind: &Value| kind.as_str().is_some_and(|kind| is_of_type(value, kind));
        let is_right = match &part["type"] {
            Value::Null => true,
            Value::Array(kinds) => kinds.iter().any(is_of),
            kind => is_of(kind),
        };
        let is_constant = part.get("const").is_none_or(|constant| constant == value);
        if !is_right || !is_constant {
            return Err(format!("{value} is not {part}"));
        }
    }
    if let Some(object) = value.as_object() {
        let properties: Vec<_> = parts.iter().filter_map(|part| part["properties"].as_object()).collect();
        let is_open = properties.is_empty();
        for (name, member) in object.iter().filter(|_| !is_open) {
            let property = properties.iter().find_map(|properties| properties.get(name));
            matches(root, property.ok_or_else(|| format!("{name} is not in the schema"))?, member)
                .map_err(|problem| format!("{name}: {problem}"))?;
        }
        let required = parts.iter().flat_map(|part| part["required"].as_array().into_iter().flatten());
        if let Some(name) = required.filter_map(Value::as_str).find(|name| !object.contains_key(*name)) {
            return Err(format!("{name} is missing"));
        }
    }
    value.as_array().into_iter().flatten().try_for_each(|item| matches(root, &schema["items"], item))
}

fn referenced<'a>(root: &'a Value, schema: &Value) -> Option<&'a Value> {
    let name = schema["$ref"].as_str()?.strip_prefix("#/$defs/")?;
    Some(&root["$defs"][name])
}

fn is_of_type(value: &Value, kind: &str) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("unknown type {other}"),
    }
}

#[test]
fn the_schema_of_one_command_is_printed_alone() {
    let one = output(ctl("", &["schema", "locks", "list"]));
    let one: Value = serde_json::from_str(&stdout(&one)).unwrap();
    assert_eq!(one, schemas()["locks list"]);
    let option = output(ctl("", &["schema", "locks", "list", "--waiting"]));
    let option: Value = serde_json::from_str(&stdout(&option)).unwrap();
    assert_eq!(option, schemas()["locks list --waiting"]);
    assert_ne!(option, one);
    let none = output(ctl("", &["schema", "locks", "release"]));
    assert_eq!(none.status.code(), Some(125));
    assert!(stderr(&none).contains("`locks release` has no JSON output"), "{}", stderr(&none));
}

#[test]
fn objects_with_other_members_or_types_do_not_follow_a_schema() {
    let name = "namespaces remove";
    let schema = &schemas()[name];
    let follows = |text: &str| matches(schema, schema, &serde_json::from_str(text).unwrap()).is_ok();
    assert!(follows(r#"{"namespace":"n"}"#) && follows(r#"{"namespace":"n","namespace_hex":"ff"}"#));
    assert!(!follows("{}") && !follows(r#"{"namespace":1}"#) && !follows(r#"{"namespace":"n","other":1}"#));
}
