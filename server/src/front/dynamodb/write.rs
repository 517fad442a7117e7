//! Request bodies of PutItem, DeleteItem and GetItem.

use super::attribute::{Item, string};
use super::expression::{Placeholders, parse};
use super::instant;
use super::meaning::{Meaning, meaning};
use super::members::Members;
use super::problem::Problem;
use waymaker_protocol::limits::{KEY_LEN_MAX, OWNER_LEN_MAX};

/// Decoded PutItem: a row to write, and the meaning of its condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Put {
    pub(super) table: String,
    pub(super) meaning: Meaning,
    pub(super) key: String,
    pub(super) owner: String,
    /// End of the lease in Unix milliseconds.
    pub(super) leased_until_ms: i64,
    /// The row as JSON.
    pub(super) row: String,
}

/// Row to delete on behalf of an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Delete {
    pub(super) table: String,
    pub(super) key: String,
    pub(super) owner: String,
}

/// Row to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Get {
    pub(super) table: String,
    pub(super) key: String,
}

impl Put {
    /// Decodes the body of PutItem.
    pub(super) fn read(mut members: Members) -> Result<Self, Problem> {
        let table = members.table_name()?;
        let (item, row) = members.item("Item")?;
        let key = key_of(&item, "Item")?;
        // Check the condition before the attributes `owner` and `leasedUntil`. If a client uses the table for something
        // other than locks, the error about the condition is more helpful.
        let (meaning, named) = condition(&mut members, &key)?;
        let owner = text_of(&item, "owner")?;
        let written = text_of(&item, "leasedUntil")?;
        let leased_until_ms = instant::parse_ms(&written).ok_or_else(|| {
            Problem::validation(format!(
                "Item.leasedUntil: {written:?} is not a time; a time has the form 2026-11-27T17:00:00Z"
            ))
        })?;
        if named != owner {
            return Err(Problem::validation(
                "the owner in the ConditionExpression must be the owner in Item: a lock is not handed over",
            ));
        }
        finish(members)?;
        check_owner(&owner)?;
        Ok(Self { table, meaning, key, owner, leased_until_ms, row })
    }
}

impl Delete {
    /// Decodes the body of DeleteItem.
    pub(super) fn read(mut members: Members) -> Result<Self, Problem> {
        let table = members.table_name()?;
        let key = only_key(&mut members)?;
        let (meaning, owner) = condition(&mut members, &key)?;
        if meaning != Meaning::Take {
            return Err(Problem::validation(
                "the ConditionExpression has no meaning for DeleteItem: a lock is released where its owner could take it, with \
                 attribute_not_exists(key) OR leasedUntil < :now OR owner = :owner",
            ));
        }
        finish(members)?;
        check_owner(&owner)?;
        Ok(Self { table, key, owner })
    }
}

impl Get {
    /// Decodes the body of GetItem.
    pub(super) fn read(mut members: Members) -> Result<Self, Problem> {
        let table = members.table_name()?;
        let key = only_key(&mut members)?;
        // Ignore `ConsistentRead`, because every read of this server is consistent.
        members.ignore("ConsistentRead");
        members.only("ReturnConsumedCapacity", "NONE")?;
        members.finish()?;
        Ok(Self { table, key })
    }
}

/// Takes the condition of a write. Returns its meaning and the owner that it names.
fn condition(members: &mut Members, key: &str) -> Result<(Meaning, String), Problem> {
    let expression = members.text("ConditionExpression")?.ok_or_else(|| {
        Problem::validation(
            "ConditionExpression: this server does not serve writes without a condition, which would end the locks of others",
        )
    })?;
    let names = members.object("ExpressionAttributeNames")?;
    let values = members.object("ExpressionAttributeValues")?;
    let placeholders = Placeholders { names: &names, values: &values };
    let condition = parse(&expression, placeholders).map_err(Problem::validation)?;
    let (meaning, owner) = meaning(&condition, key).map_err(Problem::validation)?;
    Ok((meaning, owner.to_owned()))
}

/// Checks the remaining members of a write.
fn finish(mut members: Members) -> Result<(), Problem> {
    for name in [
        "ReturnValues",
        "ReturnConsumedCapacity",
        "ReturnItemCollectionMetrics",
        "ReturnValuesOnConditionCheckFailure",
    ] {
        members.only(name, "NONE")?;
    }
    members.finish()
}

/// Takes the member `Key`, which must contain only the key of the row.
fn only_key(members: &mut Members) -> Result<String, Problem> {
    let (key, _) = members.item("Key")?;
    if key.len() > 1 {
        return Err(Problem::validation("The provided key element does not match the schema"));
    }
    key_of(&key, "Key")
}

fn key_of(item: &Item, member: &str) -> Result<String, Problem> {
    let value = item.get("key").ok_or_else(|| {
        Problem::validation(format!(
            "One or more parameter values were invalid: Missing the key key in {member}"
        ))
    })?;
    let key = string(value).ok_or_else(|| {
        Problem::validation(
            "One or more parameter values were invalid: Type mismatch for key key expected: S",
        )
    })?;
    match key.len() {
        0 => Err(Problem::validation(
            "One or more parameter values are not valid. The AttributeValue for a key attribute cannot contain an empty string \
             value. Key: key",
        )),
        1..=KEY_LEN_MAX => Ok(key.to_owned()),
        len => Err(Problem::validation(format!(
            "One or more parameter values were invalid: Size of hashkey has exceeded the maximum size limit of {KEY_LEN_MAX} \
             bytes; it has {len}"
        ))),
    }
}

/// Returns a text attribute that the row of a lock must have.
fn text_of(item: &Item, attribute: &str) -> Result<String, Problem> {
    let missing =
        || Problem::validation(format!("Item.{attribute}: the row of a lock has key, owner and leasedUntil"));
    let value = item.get(attribute).ok_or_else(missing)?;
    let text = string(value);
    text.map(str::to_owned)
        .ok_or_else(|| Problem::validation(format!("Item.{attribute}: the attribute must be of type S")))
}

fn check_owner(owner: &str) -> Result<(), Problem> {
    if (1..=OWNER_LEN_MAX).contains(&owner.len()) {
        return Ok(());
    }
    Err(Problem::validation(format!(
        "owner: an owner has 1 to {OWNER_LEN_MAX} bytes; this one has {}",
        owner.len()
    )))
}

#[cfg(test)]
mod tests {
    use super::super::members::TABLE_LEN_MAX;
    use super::*;
    use serde_json::{Value, json};
    use waymaker_protocol::limits::VALUE_LEN_MAX;

    const NOW: &str = "2026-11-29T21:00:00.5Z";

    fn members(body: &Value) -> Members {
        Members::parse(body.to_string().as_bytes()).expect("an object")
    }

    /// Returns the body of a PutItem request that acquires a lock, in the form that Clever's Go package `lock` sends.
    fn acquire() -> Value {
        json!({
            "TableName": "locks",
            "Item": {
                "key": {"S": "k"}, "owner": {"S": "me"}, "leasedUntil": {"S": "2026-11-29T21:05:00Z"}, "createdAt": {"S": NOW},
                "ttl": {"S": "2026-12-01T21:05:00Z"},
            },
            "ConditionExpression": "(attribute_not_exists (#0)) OR (#1 < :0) OR (#2 = :1)",
            "ExpressionAttributeNames": {"#0": "key", "#1": "leasedUntil", "#2": "owner"},
            "ExpressionAttributeValues": {":0": {"S": NOW}, ":1": {"S": "me"}},
        })
    }

    /// Returns the body of [`acquire`] with another value at a path such as `/Item/key`.
    fn with(path: &str, value: Value) -> Value {
        let mut body = acquire();
        let (parent, name) = path.rsplit_once('/').unwrap();
        body.pointer_mut(parent).unwrap().as_object_mut().unwrap().insert(name.to_owned(), value);
        body
    }

    fn without(path: &str) -> Value {
        let mut body = acquire();
        let (parent, name) = path.rsplit_once('/').unwrap();
        body.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(name);
        body
    }

    #[test]
    fn an_acquire_keeps_the_row_as_it_was_written() {
        let put = Put::read(members(&acquire())).unwrap();
        assert_eq!((&*put.table, put.meaning, &*put.key, &*put.owner), ("locks", Meaning::Take, "k", "me"));
        assert_eq!(put.leased_until_ms, 1_795_986_300_000);
        assert_eq!(serde_json::from_str::<Value>(&put.row).unwrap(), acquire()["Item"]);
    }

    #[test]
    fn a_heartbeat_keeps_and_a_release_names_its_owner() {
        let mut heartbeat = acquire();
        heartbeat["ConditionExpression"] = "#0 = :0".into();
        heartbeat["ExpressionAttributeNames"] = json!({"#0": "owner"});
        heartbeat["ExpressionAttributeValues"] = json!({":0": {"S": "me"}});
        assert_eq!(Put::read(members(&heartbeat)).unwrap().meaning, Meaning::Keep);
        let mut release = acquire();
        release.as_object_mut().unwrap().remove("Item");
        release["Key"] = json!({"key": {"S": "k"}});
        let expected = Delete { table: "locks".to_owned(), key: "k".to_owned(), owner: "me".to_owned() };
        assert_eq!(Delete::read(members(&release)), Ok(expected));
        heartbeat.as_object_mut().unwrap().remove("Item");
        heartbeat["Key"] = json!({"key": {"S": "k"}});
        assert!(Delete::read(members(&heartbeat)).unwrap_err().message.contains("no meaning for DeleteItem"));
    }

    #[test]
    fn members_that_change_nothing_are_read() {
        for (name, value) in [
            ("/ReturnValues", json!("NONE")),
            ("/ReturnConsumedCapacity", json!("NONE")),
            ("/ReturnItemCollectionMetrics", Value::Null),
            ("/Expected", Value::Null),
            ("/Item/version", json!({"N": "7"})),
        ] {
            Put::read(members(&with(name, value))).expect(name);
        }
        let get = json!({"TableName": "locks", "Key": {"key": {"S": "k"}}, "ConsistentRead": true});
        let expected = Get { table: "locks".to_owned(), key: "k".to_owned() };
        assert_eq!(Get::read(members(&get)), Ok(expected));
    }

    #[test]
    fn wrong_members_are_named() {
        let long = |len| json!({"S": "x".repeat(len)});
        for (body, part) in [
            (without("/TableName"), "TableName"),
            (with("/TableName", json!("a")), "TableName"),
            (with("/TableName", json!("a/b/c")), "TableName"),
            (with("/TableName", json!("x".repeat(TABLE_LEN_MAX + 1))), "TableName"),
            (with("/TableName", json!(7)), "TableName must be a string"),
            (without("/Item"), "Item"),
            (with("/Item", json!([])), "Item must be an object"),
            (with("/Item/key", json!({"N": "7"})), "Type mismatch for key key"),
            (with("/Item/key", json!({"S": 7})), "Item.key"),
            (without("/Item/key"), "Missing the key key"),
            (with("/Item/key", json!({"S": ""})), "empty string"),
            (with("/Item/key", long(1025)), "hashkey"),
            (without("/Item/owner"), "Item.owner"),
            (with("/Item/owner", json!({"S": ""})), "owner in the ConditionExpression"),
            (with("/Item/owner", json!({"BOOL": true})), "Item.owner"),
            (without("/Item/leasedUntil"), "Item.leasedUntil"),
            (with("/Item/leasedUntil", json!({"S": "soon"})), "soon"),
            (with("/Item/note", long(4096)), "Item size"),
            (with("/Item/note", json!({"S": "a", "N": "1"})), "Item.note"),
            (without("/ConditionExpression"), "ConditionExpression"),
            (with("/ConditionExpression", json!("#0 = :1")), "unused"),
            (with("/ExpressionAttributeNames", json!({"#0": 7})), "#0"),
            (with("/ExpressionAttributeValues", json!([])), "ExpressionAttributeValues must be an object"),
            (with("/ReturnValues", json!("ALL_OLD")), "ReturnValues"),
            (with("/Expected", json!({})), "Expected"),
        ] {
            let problem = Put::read(members(&body)).expect_err(part);
            assert!(problem.message.contains(part), "{part}: {problem:?}");
        }
        for owner in ["", &"x".repeat(OWNER_LEN_MAX + 1)] {
            let mut body = with("/Item/owner", json!({"S": owner}));
            body["ExpressionAttributeValues"][":1"] = json!({"S": owner});
            let problem = Put::read(members(&body)).unwrap_err();
            assert!(problem.message.contains("an owner has 1 to 256 bytes"), "{problem:?}");
        }
        let get = json!({"TableName": "locks", "Key": {"key": {"S": "k"}, "owner": {"S": "me"}}});
        assert!(Get::read(members(&get)).unwrap_err().message.contains("does not match the schema"));
    }

    #[test]
    fn a_body_that_is_no_object_is_refused() {
        for body in ["", "[]", "7", "{", "{\"a\": 1} x", &"[".repeat(1_000)] {
            Members::parse(body.as_bytes()).expect_err(body);
        }
    }

    #[test]
    fn members_up_to_their_limits_are_read() {
        let mut body = with("/Item/owner", json!({"S": "x".repeat(OWNER_LEN_MAX)}));
        body["ExpressionAttributeValues"][":1"] = body["Item"]["owner"].clone();
        Put::read(members(&body)).expect("an owner of 256 bytes");
        Put::read(members(&with("/Item/key", json!({"S": "x".repeat(KEY_LEN_MAX)}))))
            .expect("a key of 1024 bytes");
        let len = with("/Item/note", json!({"S": ""}))["Item"].to_string().len();
        let fitting = |more| with("/Item/note", json!({"S": "x".repeat(VALUE_LEN_MAX - len + more)}));
        assert_eq!(Put::read(members(&fitting(0))).unwrap().row.len(), VALUE_LEN_MAX);
        Put::read(members(&fitting(1))).expect_err("a byte too long");
        assert_eq!("lazy/clever/".len() + TABLE_LEN_MAX, waymaker_protocol::limits::NAMESPACE_LEN_MAX);
        Put::read(members(&with("/TableName", json!("x".repeat(TABLE_LEN_MAX)))))
            .expect("a name of 244 bytes");
    }

    #[test]
    fn answers_with_more_than_nothing_are_refused() {
        for (name, value) in [
            ("ReturnValues", "ALL_OLD"),
            ("ReturnConsumedCapacity", "TOTAL"),
            ("ReturnItemCollectionMetrics", "SIZE"),
            ("ReturnValuesOnConditionCheckFailure", "ALL_OLD"),
        ] {
            let problem = Put::read(members(&with(&format!("/{name}"), json!(value)))).expect_err(name);
            assert!(problem.message.contains(name), "{problem:?}");
        }
        let get =
            json!({"TableName": "locks", "Key": {"key": {"S": "k"}}, "ReturnConsumedCapacity": "TOTAL"});
        Get::read(members(&get)).expect_err("ReturnConsumedCapacity");
    }
}
