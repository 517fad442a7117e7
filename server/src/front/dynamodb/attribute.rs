//! DynamoDB attribute values in their JSON form: `{"S": "text"}`.

use base64ct::{Base64, Encoding as _};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Maximum number of levels of a value. A list or map has one level more than its deepest member.
const DEPTH_MAX: usize = 32;
/// Maximum number of digits of a number without its exponent.
const DIGITS_MAX: usize = 38;

/// Attributes of a row by name.
pub(super) type Item = Map<String, Value>;

/// Returns the text of a value of type S.
pub(super) fn string(value: &Value) -> Option<&str> {
    let members = value.as_object()?;
    if members.len() == 1 { members.get("S")?.as_str() } else { None }
}

/// Checks that a value has exactly one DynamoDB type and is valid for it.
///
/// # Errors
/// Returns a description of the problem.
pub(super) fn check(value: &Value) -> Result<(), String> {
    check_nested(value, 1)
}

fn check_nested(value: &Value, depth: usize) -> Result<(), String> {
    if depth > DEPTH_MAX {
        return Err(format!("Nesting Levels have exceeded supported limits: the maximum is {DEPTH_MAX}"));
    }
    let members = value.as_object().filter(|members| members.len() == 1);
    let Some((kind, value)) = members.and_then(|members| members.iter().next()) else {
        return Err("Supplied AttributeValue is empty, must contain exactly one of the supported datatypes"
            .to_owned());
    };
    match (kind.as_str(), value) {
        ("S", Value::String(_)) | ("BOOL", Value::Bool(_)) | ("NULL", Value::Bool(true)) => Ok(()),
        ("N", Value::String(number)) => check_number(number),
        ("B", Value::String(bytes)) => check_bytes(bytes),
        ("L", Value::Array(values)) => values.iter().try_for_each(|value| check_nested(value, depth + 1)),
        ("M", Value::Object(values)) => values.values().try_for_each(|value| check_nested(value, depth + 1)),
        ("SS" | "NS" | "BS", Value::Array(values)) => check_set(kind, values),
        _ => Err(format!(
            "the value does not fit the type {kind:?}; the types are S, N, B, BOOL, NULL, L, M, SS, NS and BS"
        )),
    }
}

fn check_number(number: &str) -> Result<(), String> {
    let digits =
        number.bytes().take_while(|byte| !matches!(byte, b'e' | b'E')).filter(u8::is_ascii_digit).count();
    // The parser of the standard library also accepts words such as `inf`, so check the characters too.
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte))
        && number.parse::<f64>().is_ok_and(f64::is_finite);
    if is_number && digits <= DIGITS_MAX {
        return Ok(());
    }
    Err("The parameter cannot be converted to a numeric value".to_owned())
}

fn check_bytes(bytes: &str) -> Result<(), String> {
    Base64::decode_vec(bytes).map(drop).map_err(|_| "a value of type B must be Base64".to_owned())
}

fn check_set(kind: &str, values: &[Value]) -> Result<(), String> {
    if values.is_empty() {
        return Err("One or more parameter values were invalid: a set may not be empty".to_owned());
    }
    let mut known = BTreeSet::new();
    for value in values {
        let Some(text) = value.as_str() else {
            return Err(format!("the members of a {kind} must be strings"));
        };
        match kind {
            "NS" => check_number(text)?,
            "BS" => check_bytes(text)?,
            _ => {}
        }
        if !known.insert(text) {
            return Err("One or more parameter values were invalid: a set contains duplicates".to_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_of_all_types_are_read() {
        for value in [
            json!({"S": ""}),
            json!({"N": "-1.5e3"}),
            json!({"N": "+1"}),
            json!({"N": "1".repeat(38)}),
            json!({"N": format!("{}e10", "1".repeat(38))}),
            json!({"B": "AAE="}),
            json!({"BOOL": false}),
            json!({"NULL": true}),
            json!({"L": [{"S": "a"}, {"L": []}]}),
            json!({"M": {"a": {"N": "1"}}}),
            json!({"SS": ["a", "b"]}),
            json!({"NS": ["1"]}),
            json!({"BS": ["AA=="]}),
        ] {
            assert_eq!(check(&value), Ok(()), "{value}");
        }
        assert_eq!(string(&json!({"S": "text"})), Some("text"));
        assert_eq!(string(&json!({"N": "1"})), None);
        assert_eq!(string(&json!({"S": "text", "N": "1"})), None);
    }

    #[test]
    fn values_that_do_not_fit_their_type_are_refused() {
        for value in [
            json!("text"),
            json!({}),
            json!({"S": "a", "N": "1"}),
            json!({"S": 1}),
            json!({"N": 1}),
            json!({"N": "inf"}),
            json!({"N": "1e999"}),
            json!({"N": "1".repeat(39)}),
            json!({"B": "-"}),
            json!({"NULL": false}),
            json!({"X": "a"}),
            json!({"SS": []}),
            json!({"SS": ["a", "a"]}),
            json!({"NS": ["a"]}),
            json!({"BS": ["-"]}),
            json!({"L": [{"S": 1}]}),
            json!({"M": {"a": 1}}),
        ] {
            check(&value).expect_err(&value.to_string());
        }
    }

    #[test]
    fn deep_values_are_refused() {
        let nested = |depth| (1..depth).fold(json!({"S": "a"}), |value, _| json!({"L": [value]}));
        assert_eq!(check(&nested(DEPTH_MAX)), Ok(()));
        check(&nested(DEPTH_MAX + 1)).expect_err("too deep");
        let nested = |depth| (1..depth).fold(json!({"S": "a"}), |value, _| json!({"M": {"a": value}}));
        assert_eq!(check(&nested(DEPTH_MAX)), Ok(()));
        check(&nested(DEPTH_MAX + 1)).expect_err("too deep");
    }
}
