//! Members of the JSON body of a DynamoDB request.

use super::attribute::{self, Item};
use super::problem::{Kind, Problem};
use crate::front::conversion::json_text;
use serde_json::{Map, Value};
use waymaker_protocol::limits::VALUE_LEN_MAX;

/// Members of a body that were not read yet.
#[derive(Debug)]
pub(super) struct Members(Map<String, Value>);

impl Members {
    /// Parses a body.
    pub(super) fn parse(body: &[u8]) -> Result<Self, Problem> {
        match serde_json::from_slice(body) {
            Ok(Value::Object(members)) => Ok(Self(members)),
            Ok(_) => Err(serialization("the body must be a JSON object")),
            Err(error) => Err(serialization(&format!("the body is not JSON: {error}"))),
        }
    }

    /// Takes a member. Null counts as missing.
    fn take(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name).filter(|value| !value.is_null())
    }

    /// Takes a member that must be a text; `None` if it is missing.
    pub(super) fn text(&mut self, name: &str) -> Result<Option<String>, Problem> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(wrong_type(name, "a string")),
        }
    }

    /// Takes a member that must be an object; empty if it is missing.
    pub(super) fn object(&mut self, name: &str) -> Result<Map<String, Value>, Problem> {
        match self.take(name) {
            None => Ok(Map::new()),
            Some(Value::Object(object)) => Ok(object),
            Some(_) => Err(wrong_type(name, "an object")),
        }
    }

    /// Takes a member that must be a list; empty if it is missing.
    pub(super) fn list(&mut self, name: &str) -> Result<Vec<Value>, Problem> {
        match self.take(name) {
            None => Ok(Vec::new()),
            Some(Value::Array(list)) => Ok(list),
            Some(_) => Err(wrong_type(name, "a list")),
        }
    }

    /// Takes a member that must be a whole number; `None` if it is missing.
    pub(super) fn number(&mut self, name: &str) -> Result<Option<i64>, Problem> {
        match self.take(name) {
            None => Ok(None),
            Some(value) => value.as_i64().map(Some).ok_or_else(|| wrong_type(name, "a whole number")),
        }
    }

    /// Takes a member that must be false, which is also its default.
    pub(super) fn only_false(&mut self, name: &str) -> Result<(), Problem> {
        match self.take(name) {
            None | Some(Value::Bool(false)) => Ok(()),
            Some(_) => Err(Problem::validation(format!("{name}: this server supports only false"))),
        }
    }

    /// Takes an object whose only member must be false, which is also the default.
    pub(super) fn off(&mut self, name: &str, member: &str) -> Result<(), Problem> {
        let mut inner = Self(self.object(name)?);
        let is_off = inner.only_false(member).and_then(|()| inner.finish());
        is_off.map_err(|problem| Problem::validation(format!("{name}.{}", problem.message)))
    }

    /// Discards a member that has no effect on this server.
    pub(super) fn ignore(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Takes a member that must be a row. Returns its attributes, and the row as JSON.
    pub(super) fn item(&mut self, name: &str) -> Result<(Item, String), Problem> {
        if !self.0.contains_key(name) {
            return Err(missing(name));
        }
        let item = self.object(name)?;
        // Check the length first, because it limits the cost of all other checks.
        let row = json_text(&item);
        if row.len() > VALUE_LEN_MAX {
            return Err(Problem::validation(format!(
                "{name}: Item size has exceeded the maximum allowed size: it is {} bytes long as JSON; the maximum of this server is \
                 {VALUE_LEN_MAX}",
                row.len()
            )));
        }
        for (attribute, value) in &item {
            attribute::check(value)
                .map_err(|problem| Problem::validation(format!("{name}.{attribute}: {problem}")))?;
        }
        Ok((item, row))
    }

    /// Takes the name of the table, which must be present and valid.
    pub(super) fn table_name(&mut self) -> Result<String, Problem> {
        let name = self.text("TableName")?.ok_or_else(|| missing("TableName"))?;
        if is_table_name(&name) {
            return Ok(name);
        }
        Err(Problem::validation(format!(
            "TableName must be at least {TABLE_LEN_MIN} characters long and at most {TABLE_LEN_MAX} characters long, with only \
             the characters a-z, A-Z, 0-9, '_', '-' and '.'"
        )))
    }

    /// Takes a member that must have this value, which is also its default.
    pub(super) fn only(&mut self, name: &str, allowed: &str) -> Result<(), Problem> {
        match self.text(name)? {
            Some(given) if given != allowed => {
                Err(Problem::validation(format!("{name}: this server supports only {allowed}")))
            }
            _ => Ok(()),
        }
    }

    /// Returns an error if a member that is not null was not read.
    pub(super) fn finish(self) -> Result<(), Problem> {
        match self.0.iter().find(|(_, value)| !value.is_null()) {
            None => Ok(()),
            Some((name, _)) => Err(Problem::validation(format!(
                "{name}: this server does not support the member for this operation"
            ))),
        }
    }
}

/// Minimum length of a table name.
const TABLE_LEN_MIN: usize = 3;
/// Maximum length of a table name. DynamoDB allows 255, but the name of the namespace has a prefix.
pub(super) const TABLE_LEN_MAX: usize = 244;

/// Returns whether a table name is valid.
pub(super) fn is_table_name(name: &str) -> bool {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    (TABLE_LEN_MIN..=TABLE_LEN_MAX).contains(&name.len()) && name.bytes().all(is_valid)
}

/// Returns the problem of a missing required member.
fn missing(name: &str) -> Problem {
    Problem::validation(format!(
        "1 validation error detected: Value null at '{name}' failed to satisfy constraint: Member must not be null"
    ))
}

fn wrong_type(name: &str, wanted: &str) -> Problem {
    serialization(&format!("{name} must be {wanted}"))
}

fn serialization(message: &str) -> Problem {
    Problem::new(Kind::Serialization, message)
}
