//! DynamoDB requests, decoded from the header `X-Amz-Target` and the body.

use super::members::Members;
use super::problem::{Kind, Problem};
use super::table::{List, read_create, read_name};
use super::write::{Delete, Get, Put};

/// Version of the interface. In the header `X-Amz-Target`, the operation name follows it.
const VERSION: &[u8] = b"DynamoDB_20120810.";

/// Request of a DynamoDB client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Put(Put),
    Delete(Delete),
    Get(Get),
    /// Creates the table of this name.
    CreateTable(String),
    DescribeTable(String),
    DeleteTable(String),
    ListTables(List),
}

impl Request {
    /// Decodes the body of the operation that the header `X-Amz-Target` names.
    pub(super) fn read(target: &[u8], body: &[u8]) -> Result<Self, Problem> {
        let operation = target.strip_prefix(VERSION).unwrap_or_default();
        let members = || Members::parse(body);
        match operation {
            b"PutItem" => Put::read(members()?).map(Self::Put),
            b"DeleteItem" => Delete::read(members()?).map(Self::Delete),
            b"GetItem" => Get::read(members()?).map(Self::Get),
            b"CreateTable" => read_create(members()?).map(Self::CreateTable),
            b"DescribeTable" => read_name(members()?).map(Self::DescribeTable),
            b"DeleteTable" => read_name(members()?).map(Self::DeleteTable),
            b"ListTables" => List::read(members()?).map(Self::ListTables),
            _ => Err(Problem::new(
                Kind::UnknownOperation,
                "this server serves the operations PutItem, DeleteItem, GetItem, CreateTable, DescribeTable, DeleteTable and ListTables \
                 of DynamoDB_20120810, for locks",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(target: &str, body: &str) -> Result<Request, Problem> {
        Request::read(target.as_bytes(), body.as_bytes())
    }

    #[test]
    fn operations_on_tables_are_read() {
        let table = "locks".to_owned();
        let named = r#"{"TableName": "locks"}"#;
        for (operation, request) in [
            ("DescribeTable", Request::DescribeTable(table.clone())),
            ("DeleteTable", Request::DeleteTable(table.clone())),
        ] {
            assert_eq!(read(&format!("DynamoDB_20120810.{operation}"), named), Ok(request));
        }
        let create = r#"{
            "TableName": "locks", "BillingMode": "PAY_PER_REQUEST",
            "KeySchema": [{"KeyType": "HASH", "AttributeName": "key"}],
            "AttributeDefinitions": [{"AttributeName": "key", "AttributeType": "S"}]
        }"#;
        assert_eq!(read("DynamoDB_20120810.CreateTable", create), Ok(Request::CreateTable(table)));
        for (from, to) in [
            ("HASH", "RANGE"),
            ("\"key\"", "\"id\""),
            ("\"S\"", "\"N\""),
            ("BillingMode", "StreamSpecification"),
        ] {
            read("DynamoDB_20120810.CreateTable", &create.replace(from, to)).expect_err(to);
        }
    }

    #[test]
    fn a_list_has_1_to_100_tables() {
        for (limit, is_valid) in
            [("1", true), ("100", true), ("0", false), ("101", false), ("1.5", false), ("\"1\"", false)]
        {
            let body = format!(r#"{{"Limit": {limit}, "ExclusiveStartTableName": "a"}}"#);
            assert_eq!(read("DynamoDB_20120810.ListTables", &body).is_ok(), is_valid, "{limit}");
        }
        assert!(read("DynamoDB_20120810.ListTables", "{}").is_ok());
    }

    #[test]
    fn other_operations_are_refused_with_those_that_are_served() {
        for target in
            ["", "PutItem", "DynamoDB_20111205.PutItem", "DynamoDB_20120810.Scan", "DynamoDB_20120810."]
        {
            let problem = read(target, "{}").unwrap_err();
            assert!(problem.body().contains("UnknownOperationException"), "{problem:?}");
            assert!(problem.message.contains("PutItem, DeleteItem"), "{problem:?}");
        }
    }
}
